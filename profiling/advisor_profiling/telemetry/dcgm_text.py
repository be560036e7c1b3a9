"""Reading of dcgm-exporter's text: which fields mean what, and the values of one GPU.

Fields and units are those of dcgm_fields.h. DCGM 4.6 renamed most of them and kept the older
names as aliases, so an exporter can show either. Which are collected is said by the exporter's
CSV; its default leaves out the fields of `OFF_BY_DEFAULT` (etc/default-counters.csv).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from advisor.core.gpu import Gpu
from advisor.core.telemetry import (
    CLOCK_MEMORY,
    CLOCK_SM,
    ENERGY_GPU,
    MEMORY_USED,
    POWER_GPU,
    POWER_LIMIT,
    TEMPERATURE_GPU,
)
from advisor.errors import SourceError


@dataclass(frozen=True, slots=True)
class DcgmField:
    """A value that we want, and the fields that hold it, the best first.

    Attributes:
        scale: Factor from the exporter's unit to ours.
    """

    names: tuple[str, ...]
    scale: float = 1


_RATIO = 100.0  # 0..1 to percent
_BYTES = 1 / 2**20  # bytes per second to MiB per second
_MILLI = 1 / 1000  # mJ to J

COUNTERS: dict[str, DcgmField] = {
    "counter.sm_active": DcgmField(("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO"), _RATIO),
    "counter.sm_occupancy": DcgmField(("PROF_SM_OCCUPANCY", "PROF_SM_OCCUPANCY_RATIO"), _RATIO),
    "counter.fp32_active": DcgmField(("PROF_PIPE_FP32_ACTIVE", "PROF_FP32_UTIL_RATIO"), _RATIO),
    "counter.fp64_active": DcgmField(("PROF_PIPE_FP64_ACTIVE", "PROF_FP64_UTIL_RATIO"), _RATIO),
    "counter.fp16_active": DcgmField(("PROF_PIPE_FP16_ACTIVE", "PROF_FP16_UTIL_RATIO"), _RATIO),
    "counter.tensor_active": DcgmField(
        ("PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO"), _RATIO
    ),
    "counter.integer_active": DcgmField(("PROF_PIPE_INT_ACTIVE", "PROF_INT_UTIL_RATIO"), _RATIO),
    "counter.dram_active": DcgmField(("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO"), _RATIO),
    "counter.gpu_busy": DcgmField(("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO"), _RATIO),
    "counter.memory_busy": DcgmField(("DEV_MEM_COPY_UTIL",)),
    "counter.pcie_tx": DcgmField(("PROF_PCIE_TX_BYTES",), _BYTES),
    "counter.pcie_rx": DcgmField(("PROF_PCIE_RX_BYTES",), _BYTES),
    "counter.nvlink_tx": DcgmField(("PROF_NVLINK_TX_BYTES",), _BYTES),
    "counter.nvlink_rx": DcgmField(("PROF_NVLINK_RX_BYTES",), _BYTES),
}

THROTTLE_MASK = "throttle mask"
"""A value that is no channel: reasons are named."""

STATE: dict[str, DcgmField] = {
    # The instant fields first; the others are an average over 1 s on most GPUs.
    POWER_GPU: DcgmField(
        (
            "DEV_POWER_USAGE_INSTANT",
            "DEV_BOARD_POWER_RAW_WATTS",
            "DEV_POWER_USAGE",
            "DEV_BOARD_POWER_WATTS",
        )
    ),
    ENERGY_GPU: DcgmField(("DEV_TOTAL_ENERGY_CONSUMPTION",), _MILLI),
    CLOCK_SM: DcgmField(("DEV_SM_CLOCK",)),
    CLOCK_MEMORY: DcgmField(("DEV_MEM_CLOCK",)),
    TEMPERATURE_GPU: DcgmField(("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS")),
    MEMORY_USED: DcgmField(("DEV_FB_USED",)),
    POWER_LIMIT: DcgmField(("DEV_ENFORCED_POWER_LIMIT", "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS")),
    THROTTLE_MASK: DcgmField(("DEV_CLOCKS_EVENT_REASONS", "DEV_CLOCK_THROTTLE_REASONS")),
}

OFF_BY_DEFAULT: dict[str, str] = {
    "counter.sm_active": "The ratio of cycles an SM has at least 1 warp assigned.",
    "counter.sm_occupancy": "The ratio of number of warps resident on an SM.",
    "counter.fp64_active": "Ratio of cycles the fp64 pipes are active.",
    "counter.fp32_active": "Ratio of cycles the fp32 pipes are active.",
    "counter.fp16_active": "Ratio of cycles the fp16 pipes are active.",
}
"""Counters that the exporter's default CSV leaves out, with the help text of their line."""

PREFIX = "DCGM_FI_"
_QUOTED = 200
"""Characters of a line that cannot be read which an error repeats."""
_BLANK = 140737488355328.0
"""Least of the values with which DCGM says "no value" (dcgm_structs.h, DCGM_FP64_BLANK)."""


def missing_counters(text: str) -> tuple[str, ...]:
    """Fields that no GPU has in this text though profiles need them, by their older names.

    Raises:
        SourceError: the text is no metrics text.
    """
    shown = {name for name, _, _ in samples(text)}
    names = [COUNTERS[column].names for column in OFF_BY_DEFAULT]
    return tuple(PREFIX + n[0] for n in names if not any(PREFIX + one in shown for one in n))


def csv_lines(fields: tuple[str, ...]) -> str:
    """Lines of the exporter's CSV that turn these fields on."""
    texts = {PREFIX + COUNTERS[column].names[0]: text for column, text in OFF_BY_DEFAULT.items()}
    return "\n".join(f"{field}, gauge, {texts[field]}" for field in fields)


def values_of(text: str, gpu: Gpu) -> dict[str, float]:
    """Every value that the text has for this GPU, named as in `COUNTERS` and `STATE`.

    A GPU is known by its UUID, or by its index where rows have no UUID. The exporter repeats a
    row for each pod on a GPU: equal ones count once, and values that differ between pods are
    those of a process, not of the GPU, and are left out. Rows of MIG instances are left out too.

    Raises:
        SourceError: the text is no metrics text, has no row of this GPU, or only those of its
            MIG instances, or a value is not finite.
    """
    rows: dict[str, set[float]] = {}
    others: set[str] = set()
    only_mig = False
    for name, labels, value in samples(text):
        if not _is_of(labels, gpu):
            others.add(labels.get("uuid") or labels.get("gpu", ""))
        elif labels.get("gpu_i_id"):
            only_mig = True
        else:
            rows.setdefault(name, set()).add(_finite(name, value))
    if not rows:
        raise _no_rows(gpu, others, only_mig)
    found = ((name, _pick(rows, field)) for name, field in (COUNTERS | STATE).items())
    return {name: value for name, value in found if value is not None}


def samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Name, labels in small letters and value of each row of DCGM.

    Raises:
        SourceError: the text is no metrics text.
    """
    try:
        families: list[Any] = list(text_string_to_metric_families(text))
    except ValueError as error:
        raise SourceError("the exporter's text cannot be read", why=str(error)[:_QUOTED]) from error
    for family in families:
        for sample in family.samples:
            if sample.name.startswith(PREFIX):
                # Older exporters write Hostname and UUID where newer ones write hostname.
                labels = {key.lower(): label for key, label in sample.labels.items()}
                # The parser ends each counter with _total, as OpenMetrics wants it.
                yield sample.name.removesuffix("_total"), labels, float(sample.value)


def _is_of(labels: Mapping[str, str], gpu: Gpu) -> bool:
    if uuid := labels.get("uuid"):
        # The device plugin names the replicas of a shared GPU "<uuid>::<number>".
        return uuid.split("::")[0] == gpu.uuid
    return labels.get("gpu") == str(gpu.index)


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value) or value < 0:
        raise SourceError(
            f"the exporter says {value} for {name}",
            why="that is not a GPU reading",
            fix="restart the exporter and look at its log",
        )
    return value


def _pick(rows: Mapping[str, set[float]], field: DcgmField) -> float | None:
    for name in field.names:
        values = {value for value in rows.get(PREFIX + name, ()) if value < _BLANK}
        if len(values) == 1:
            return values.pop() * field.scale
    return None


def _no_rows(gpu: Gpu, others: set[str], only_mig: bool) -> SourceError:
    if only_mig:
        return SourceError(
            f"the exporter has only rows of MIG instances for {gpu.uuid}",
            why="the counters of an instance are not those of the GPU",
            fix="turn MIG off (`nvidia-smi -mig 0`) or choose another GPU",
        )
    return SourceError(
        f"the exporter has no row for {gpu.uuid}",
        why=f"it shows {', '.join(sorted(others)) or 'no GPU'}",
        fix="use the exporter of the node that has this GPU",
    )
