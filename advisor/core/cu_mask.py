"""Masks that give a ROCm process part of an AMD GPU's CUs: pure arithmetic and text.

A bit of a mask is not a physical CU. The kernel deals consecutive bits round-robin over the XCDs
(bit i belongs to XCD i mod `xcds`) and, inside each, over the shader engines; an XCD or shader
engine that is left without a CU can hang its queue (Linux, drivers/gpu/drm/amd/amdkfd/
kfd_mqd_manager.c, mqd_symmetrically_map_cu_mask). So counts are multiples of `xcds`.

`HSA_CU_MASK` fails open: a repeated id, a set without a usable CU or an error of syntax makes
ROCr ignore that set and all later ones, without a message; GPUs that it does not list are
unrestricted (ROCr, core/util/flag.cpp). `ROC_GLOBAL_CU_MASK` is one hexadecimal number for all
devices of the process (clr, rocclr/utils/flags.hpp). Both are given.

| device          | `cus_total` | `xcds` |
|-----------------|-------------|--------|
| MI300X, SPX     | 304         | 8      |
| MI300X, CPX     | 38          | 1      |
| MI250X, one die | 110         | 1      |
| MI210           | 104         | 1      |
"""

import math
from collections.abc import Mapping, Sequence

from advisor.core.gpu import Share
from advisor.errors import InputError, LimitNotProvenError

SHADER_ENGINES_PER_XCD = 4
"""As ROCr shows an MI300 XCD; a multiple of 4 per XCD loads its engines alike."""

XCDS = {304: 8, 256: 8, 228: 6}
"""XCDs of a device by its CUs: MI300X, MI350X and MI300A as one device; all others have one."""


def xcds_of(cus_total: int) -> int:
    """XCDs of a device with this many CUs."""
    return XCDS.get(cus_total, 1)


def cus_for_percent(percent: float, cus_total: int, xcds: int) -> int:
    """CUs for a share: the nearest count that touches every XCD alike.

    With several XCDs a count that fills whole rows of shader engines (32 on MI300X) is taken
    where it is less than one CU per XCD away. Above 50 % the answer is what the other share
    leaves, so the two shares of a split always add up to the GPU.

    Raises:
        InputError: no such share, or a GPU whose XCDs are not alike.
    """
    Share(percent)
    _check_gpu(cus_total, xcds)
    if percent == 100:
        return cus_total
    if percent > 50:
        return cus_total - cus_for_percent(100 - percent, cus_total, xcds)
    exact = percent * cus_total / 100
    row = xcds * SHADER_ENGINES_PER_XCD
    whole_rows = _nearest(exact, row)
    # A count that came from a percentage of three decimals does not slip into the next row.
    if xcds > 1 and whole_rows and abs(whole_rows - exact) < xcds - 0.01:
        return whole_rows
    return max(xcds, _nearest(exact, xcds))


def percent_for_cus(cus: int, cus_total: int) -> float:
    """The share for which exactly `cus` of `cus_total` CUs are masked in.

    Raises:
        InputError: no mask of that many can be made, or shares pass it over.
    """
    xcds = xcds_of(cus_total)
    percent = 100 * check_cus(cus, cus_total, xcds) / cus_total
    if (near := cus_for_percent(percent, cus_total, xcds)) != cus:
        raise InputError(f"{cus} of {cus_total} CUs fill no whole rows", fix=f"ask for {near}")
    return percent


def check_cus(cus: int, cus_total: int, xcds: int) -> int:
    """`cus`, where a mask of that many can be made.

    Raises:
        InputError: it cannot; the message names the nearest counts.
    """
    _check_gpu(cus_total, xcds)
    if xcds <= cus <= cus_total and cus % xcds == 0:
        return cus
    low = min(max(cus // xcds * xcds, xcds), cus_total)
    raise InputError(
        f"{cus} of {cus_total} CUs cannot be granted",
        why=f"each of {xcds} XCDs needs the same number of CUs, one or more",
        fix=f"ask for {low} or {min(low + xcds, cus_total)}",
    )


def mask_env(cu_ids: Sequence[int]) -> dict[str, str]:
    """Variables that hold a process to `cu_ids`, bits of the mask, of the one GPU that it sees.

    The first is as "0:0-31,40", the second a number whose bit 0 is CU 0. `HSA_CU_MASK` counts the
    visible GPUs, and one that it does not list is unrestricted: anyone who starts the process also
    shows it that GPU alone (`ROCR_VISIBLE_DEVICES`).

    Raises:
        InputError: an id is negative or given twice, or there is none.
    """
    ids = _checked(cu_ids)
    ranges: list[list[int]] = []
    for cu in ids:
        if ranges and ranges[-1][1] == cu - 1:
            ranges[-1][1] = cu
        else:
            ranges.append([cu, cu])
    texts = (f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)
    bits = hex(sum(1 << cu for cu in ids))
    return {"HSA_CU_MASK": f"0:{','.join(texts)}", "ROC_GLOBAL_CU_MASK": bits}


def refuse_if_skipped(env: Mapping[str, str]) -> None:
    """Make sure that ROCr will apply the mask.

    Raises:
        LimitNotProvenError: `HSA_CU_MASK_SKIP_INIT` tells it to make queues without the mask
            (ROCr, core/runtime/amd_aql_queue.cpp).
    """
    value = env.get("HSA_CU_MASK_SKIP_INIT", "")
    if value not in {"", "0"}:
        raise LimitNotProvenError(
            f"HSA_CU_MASK_SKIP_INIT is {value!r}",
            why="with it ROCr ignores HSA_CU_MASK and the job gets the whole GPU",
            fix="unset HSA_CU_MASK_SKIP_INIT",
        )


def _checked(cu_ids: Sequence[int]) -> list[int]:
    ids = sorted(cu_ids)
    if not ids or ids[0] < 0 or len(set(ids)) != len(ids):
        raise InputError(
            f"{len(ids)} CU ids, {len(set(ids))} different, lowest {min(ids, default=None)}",
            why="an empty mask, a negative id and an id given twice all mean no limit to ROCr",
        )
    return ids


def _check_gpu(cus_total: int, xcds: int) -> None:
    if xcds < 1 or cus_total < 2 * xcds or cus_total % xcds:
        raise InputError(f"{cus_total} CUs on {xcds} XCDs cannot be shared by two jobs")


def _nearest(value: float, step: int) -> int:
    return math.floor(value / step + 0.5) * step
