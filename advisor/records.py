"""Measured points: one frozen record per row, the same names in code, files, JSON and SQL.

A reading that was not available is None, never 0. Every column carries its unit and meaning in
its field's metadata; `docs/schema.md` is made from it.
"""

import dataclasses
import functools
import hashlib
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from advisor.errors import InputError

SCHEMA_VERSION = 1


def column(meaning: str, unit: str = "", **options: Any) -> Any:
    """A dataclass field that carries its unit and meaning."""
    return field(metadata={"meaning": meaning, "unit": unit}, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Hardware counters of the whole GPU, averaged over a window; None where not available."""

    sm_active_percent: float | None = column(
        "time an SM had a warp, mean of SMs", "%", default=None
    )
    sm_occupancy_percent: float | None = column(
        "resident warps of the most possible", "%", default=None
    )
    fp32_active_percent: float | None = column("FP32 pipe busy", "%", default=None)
    fp64_active_percent: float | None = column("FP64 pipe busy", "%", default=None)
    fp16_active_percent: float | None = column(
        "FP16 pipe busy, without tensor cores", "%", default=None
    )
    tensor_active_percent: float | None = column("any tensor pipe busy", "%", default=None)
    integer_active_percent: float | None = column("integer pipe busy", "%", default=None)
    dram_active_percent: float | None = column("memory interface busy with data", "%", default=None)
    memory_busy_percent: float | None = column(
        "time in which memory was read or written", "%", default=None
    )
    pcie_tx_mib_per_s: float | None = column("PCIe, GPU to host", "MiB/s", default=None)
    pcie_rx_mib_per_s: float | None = column("PCIe, host to GPU", "MiB/s", default=None)
    nvlink_tx_mib_per_s: float | None = column("NVLink sent", "MiB/s", default=None)
    nvlink_rx_mib_per_s: float | None = column("NVLink received", "MiB/s", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloPoint(Counters):
    """One job alone at one share, over one window."""

    job: str = column("name of the job")
    gpu_model: str = column("as the driver names it")
    gpu_uuid: str = column("the card")
    mode: str = column("how the share was enforced: mps, cu_mask or uncapped", default="mps")
    share_percent: float = column("share asked for", "%")
    units_granted: int | None = column(
        "SMs or CUs read back under the limit", "units", default=None
    )
    units_total: int | None = column("SMs or CUs of the whole GPU", "units", default=None)
    rate: float = column("progress per second", "rate_unit/s")
    rate_unit: str = column("what one step of progress is", default="steps")
    rate_stderr: float | None = column("standard error of rate", "rate_unit/s", default=None)
    power_w: float | None = column("mean of instant readings", "W", default=None)
    power_stderr_w: float | None = column("standard error of power_w", "W", default=None)
    counter_power_w: float | None = column(
        "energy counter over the time between its ticks", "W", default=None
    )
    idle_power_w: float | None = column("before the sweep's first job started", "W", default=None)
    power_limit_w: float | None = column("enforced power limit", "W", default=None)
    sm_clock_mhz: float | None = column("mean clock of SMs or CUs", "MHz", default=None)
    memory_clock_mhz: float | None = column("mean clock of memory", "MHz", default=None)
    temperature_c: float | None = column("at the end of the window", "°C", default=None)
    throttled: bool | None = column("a throttle reason was active in the window", default=None)
    memory_used_mib: float | None = column("GPU memory of the job", "MiB", default=None)
    job_cpu_percent: float | None = column(
        "CPU time of the job, 100 is one core", "%", default=None
    )
    cpu_steal_percent: float | None = column(
        "CPU time taken by other guests of the host", "%", default=None
    )
    settle_s: float | None = column("time until rate and power were flat", "s", default=None)
    window_s: float = column("length of the window", "s")
    started_at: str = column("start of the window, ISO 8601, UTC")
    run: str = column("the sweep that the point belongs to")
    repeat: int = column("0 for the first time at this share in this run", default=0)
    job_hash: str | None = column("SHA-256 of the job's fields, first 16 digits", default=None)
    source: str | None = column("where power and counters came from", default=None)
    driver: str | None = column("GPU driver version", default=None)
    host: str | None = column("name of the host", default=None)
    tool_version: str | None = column("version of advisor", default=None)
    flags: tuple[str, ...] = column("what was wrong with the window; empty is good", default=())

    @property
    def point_id(self) -> str:
        """Stable identity: the same measurement has the same id wherever it is imported."""
        key = (self.run, self.job, self.gpu_uuid, f"{self.share_percent:g}", self.started_at)
        return hashlib.sha256("|".join(key).encode()).hexdigest()[:32]


SOLO_COLUMNS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(SoloPoint))


def to_row(point: SoloPoint) -> dict[str, Any]:
    """The point as plain JSON values; `flags` becomes a list."""
    return {**dataclasses.asdict(point), "flags": list(point.flags)}


def solo_from_row(row: Mapping[str, Any]) -> SoloPoint:
    """A point from plain values, as files and requests bring them.

    NaN and empty strings mean "not available". `flags` may be a list or a string with ";".

    Raises:
        InputError: an unknown or missing column, a wrong type, or a value out of range.
    """
    return _from_row(SoloPoint, row)


@functools.cache
def column_types(kind: type = SoloPoint) -> dict[str, tuple[type, bool]]:
    """Type of each column's values, in order, and whether a column may be without a value."""
    hints = typing.get_type_hints(kind)
    return {f.name: _type_and_optional(hints[f.name]) for f in dataclasses.fields(kind)}


def _type_and_optional(hint: Any) -> tuple[type, bool]:
    if isinstance(hint, types.UnionType):
        return next(a for a in typing.get_args(hint) if a is not types.NoneType), True
    return typing.get_origin(hint) or hint, False


def _from_row(kind: type[SoloPoint], row: Mapping[str, Any]) -> SoloPoint:
    known = column_types(kind)
    if unknown := sorted(set(row) - set(known)):
        raise InputError(f"unknown column {', '.join(unknown)}", fix="see docs/schema.md")
    values = {name: _value(name, known[name][0], value) for name, value in row.items()}
    values = {name: value for name, value in values.items() if value is not None}
    required = (f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING)
    if missing := [name for name in required if name not in values]:
        raise InputError(f"missing column or value: {', '.join(missing)}", fix="see docs/schema.md")
    return kind(**values)


def _value(name: str, target: type, value: Any) -> Any:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        converted = _CONVERT[target](value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} is {value!r}, not {_EXPECTED[target]}") from error
    if target is float and math.isnan(converted):  # "nan" as text
        return None
    _check_range(name, converted)
    return converted


def _text(value: Any) -> str:
    # Line ends, NUL and lone surrogates cannot be kept by every store and file format.
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError(value)
    return str(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _whole(value: Any) -> int:
    number = _number(value)
    if not number.is_integer():
        raise ValueError(value)
    return int(number)


def _truth(value: Any) -> bool:
    if (text := str(value).lower()) not in _TRUTHS:
        raise ValueError(value)
    return _TRUTHS[text]


def _flags(value: Any) -> tuple[str, ...]:
    items = value.split(";") if isinstance(value, str) else [_text(item) for item in value]
    if not isinstance(value, str) and any(";" in item for item in items):
        raise ValueError(value)
    return tuple(_text(item) for item in items if item)


_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}

_CONVERT: dict[type, Callable[[Any], Any]] = {
    str: _text,
    float: _number,
    int: _whole,
    bool: _truth,
    tuple: _flags,
}

_EXPECTED = {
    str: "a line of text",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    tuple: 'a list of words or words joined by ";"',
}


def _check_range(name: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} is {value}", fix="leave it empty where there is no reading")
    if isinstance(value, int | float) and value < 0 and not name.endswith("_c"):
        raise InputError(f"{name} is {value}, below 0")
    if isinstance(value, int) and value > _LARGEST_INTEGER:
        raise InputError(f"{name} is {value}, above {_LARGEST_INTEGER}")
    if name == "share_percent" and not 0 < value <= 100:
        raise InputError(f"share_percent is {value}", fix="give a share above 0 and at most 100")
    if name == "started_at" and not _is_utc(str(value)):
        raise InputError(
            f"started_at is {value!r}, not a moment in UTC",
            fix="write it as 2026-01-31T12:00:00+00:00",
        )


_LARGEST_INTEGER = 2**31 - 1
"""What an SQL INTEGER holds."""


def _is_utc(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() == timedelta(0)
    except ValueError:
        return False
