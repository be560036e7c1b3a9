"""Units of a GPU by its vendor: what a share is granted, and the variables that ask for it. Pure.

SMs under MPS (NVIDIA) and CUs behind a mask (AMD) come in steps of their own. Advice, launches and
back-ends all ask here, so that what is printed to copy is what a job started by advisor gets.
"""

import functools
import re

from advisor.core.cu_mask import cus_for_percent, mask_env, percent_for_cus, xcds_of
from advisor.core.gpu import (
    MEMORY_LIMIT,
    PERCENTAGE,
    SM_FLOOR,
    SM_QUANTUM,
    Share,
    Vendor,
    percent_for_units,
    units_for_percent,
)
from advisor.errors import InputError

UNIT_NAMES: dict[Vendor, str] = {"nvidia": "SMs", "amd": "CUs"}

_AMD = re.compile(r"\b(amd|instinct|radeon|mi[0-9]{2,3}[a-z]?)\b", re.IGNORECASE)
"""Words of which AMD SMI's market names have one, such as "AMD Instinct MI300X"."""


_NEITHER = re.compile(
    r"\b(intel|arc|gaudi|habana|ponte vecchio|data center gpu (max|flex)|apple|qualcomm|adreno|mali"
    r"|moore threads|mtt|ascend|huawei|biren|cambricon|metax|iluvatar|tpu|graphcore)\b",
    re.IGNORECASE,
)
"""Words of accelerators whose units neither MPS nor a CU mask limits."""


@functools.lru_cache(maxsize=256)
def vendor_of(gpu_model: str) -> Vendor:
    """Who makes a GPU model, by the name that its driver gives it.

    NVML names NVIDIA's of some years without their maker ("A100-SXM4-40GB"), so they are what a
    name without any maker means.

    Raises:
        InputError: neither NVIDIA nor AMD.
    """
    if _NEITHER.search(gpu_model):
        raise InputError(
            f"{gpu_model} is a GPU of neither NVIDIA nor AMD",
            why="neither MPS nor a CU mask limits its units, so no share of it could be held",
            fix="choose profiles of a GPU that can be shared: --gpu-model, or `gpu_model` in a "
            "request",
        )
    return "amd" if _AMD.search(gpu_model) else "nvidia"


def quantum(units_total: int, vendor: Vendor) -> int:
    """Units between two counts that can be granted: a pair of SMs, or one CU on each XCD."""
    return xcds_of(units_total) if vendor == "amd" else SM_QUANTUM


def grantable(units_total: int, vendor: Vendor = "nvidia") -> tuple[int, ...]:
    """Counts that can be granted on a GPU of this many units, ascending; its last one is all."""
    step = quantum(units_total, vendor)
    least = step if vendor == "amd" else SM_FLOOR
    counts = {*range(least, units_total + 1, step), units_total}
    return tuple(sorted(counts - {0}))


def units_for_share(percent: float, units_total: int, vendor: Vendor) -> int:
    """Units that a share is granted.

    Raises:
        InputError: no such share, or a GPU that two jobs cannot share.
    """
    if vendor == "amd":
        return cus_for_percent(percent, units_total, xcds_of(units_total))
    return units_for_percent(percent, units_total)


def share_for_units(units: int, units_total: int, vendor: Vendor) -> float:
    """The percentage for which exactly `units` of `units_total` are granted.

    Raises:
        InputError: that count cannot be granted.
    """
    if vendor == "amd":
        return percent_for_cus(units, units_total)
    return float(percent_for_units(units, units_total))


def share_environment(share: Share, units_total: int | None, vendor: Vendor) -> dict[str, str]:
    """Variables that hold a process to its share; which GPU it sees is for others to say.

    NVIDIA's driver counts by itself and needs no number of units.

    Raises:
        InputError: an AMD GPU of which the CUs are not known, or cannot be shared by two jobs.
    """
    if vendor == "nvidia":
        # By number: a client sees no other GPU than the one that it is to have.
        bound = {} if share.memory_mib is None else {MEMORY_LIMIT: f"0={share.memory_mib}M"}
        return {PERCENTAGE: str(share), **bound}
    if units_total is None:
        raise InputError(
            "the number of CUs of the GPU is not known",
            why="a CU mask names each CU that a job gets",
            fix="run `advisor doctor`, or measure the jobs there: advisor profile",
        )
    cus = units_for_share(share.percent, units_total, vendor)
    return mask_env(range(units_total - cus, units_total) if share.upper else range(cus))
