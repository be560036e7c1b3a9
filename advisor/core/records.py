"""Measured points: one frozen record per row, the same names in code, files, JSON and SQL.

A reading that was not available is None, never 0. Every column carries its unit and meaning in
its field's metadata; `docs/schema.md` is made from it. advisor/formats/rows.py turns points into
plain values and back.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

SCHEMA_VERSION = 10

REPLAY_SOURCE = "replay"
"""The `source` of points that were replayed, not measured."""

OBSERVED_SOURCE = "launch"
"""The `source` of pair points that were made of what launched jobs did."""


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
class Measured(Counters):
    """What one window showed of the GPU, and how it was taken; the same for one job and for two."""

    gpu_model: str = column("as the driver names it")
    gpu_uuid: str = column("the card")
    units_total: int | None = column("SMs or CUs of the whole GPU", "units", default=None)
    power_w: float | None = column("mean of instant readings", "W", default=None)
    power_stderr_w: float | None = column("standard error of power_w", "W", default=None)
    counter_power_w: float | None = column(
        "energy counter over the time between its ticks", "W", default=None
    )
    memory_power_w: float | None = column(
        "mean of the memory's own sensor, part of power_w", "W", default=None
    )
    idle_power_w: float | None = column("before the first job started", "W", default=None)
    power_limit_w: float | None = column("enforced power limit", "W", default=None)
    sm_clock_mhz: float | None = column("mean clock of SMs or CUs", "MHz", default=None)
    memory_clock_mhz: float | None = column("mean clock of memory", "MHz", default=None)
    temperature_c: float | None = column("at the end of the window", "°C", default=None)
    throttled: bool | None = column("a throttle reason was active in the window", default=None)
    cpu_steal_percent: float | None = column(
        "CPU time taken by other guests of the host", "%", default=None
    )
    settle_s: float | None = column("time until rate and power were flat", "s", default=None)
    window_s: float = column("length of the window", "s")
    started_at: str = column("start of the window, ISO 8601, UTC")
    run: str = column("the sweep or campaign that the point belongs to")
    repeat: int = column("0 for the first time in this run", default=0)
    source: str | None = column("where power and counters came from", default=None)
    driver: str | None = column("GPU driver version", default=None)
    host: str | None = column("name of the host", default=None)
    tool_version: str | None = column("version of advisor", default=None)
    flags: tuple[str, ...] = column("what was wrong with the window; empty is good", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloPoint(Measured):
    """One job alone at one share, over one window."""

    job: str = column("name of the job")
    mode: str = column("how the share was enforced: mps, cu_mask or uncapped", default="mps")
    share_percent: float = column("share asked for", "%")
    units_granted: int | None = column(
        "SMs or CUs read back under the limit", "units", default=None
    )
    rate: float = column("progress per second", "rate_unit/s")
    rate_unit: str = column("what one step of progress is", default="steps")
    rate_stderr: float | None = column("standard error of rate", "rate_unit/s", default=None)
    memory_used_mib: float | None = column("GPU memory of the job", "MiB", default=None)
    job_cpu_percent: float | None = column(
        "CPU time of the job, 100 is one core", "%", default=None
    )
    job_hash: str | None = column("SHA-256 of the job's fields, first 16 digits", default=None)
    results: str | None = column(
        "the job's own results against those at the full GPU: right, wrong (not finite) or differ",
        default=None,
    )
    reported: str | None = column(
        "first values that the job reported, each after its count: 48=10.93 96=10.68", default=None
    )
    input_fingerprint: str | None = column(
        "type and bits of what its matrices held, JSON: advisor.wire.input_power.InputFingerprint",
        default=None,
    )
    offered_rate: float | None = column(
        "requests that arrived per second, for a job that serves a demand",
        "rate_unit/s",
        default=None,
    )
    latency_p50_ms: float | None = column("median time to answer a request", "ms", default=None)
    latency_p99_ms: float | None = column(
        "99th percentile of the time to answer a request", "ms", default=None
    )

    @property
    def point_id(self) -> str:
        """Stable identity: the same measurement has the same id wherever it is imported."""
        return identity(
            self.run, self.job, self.gpu_uuid, f"{self.share_percent:g}", self.started_at
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPart:
    """What one job of several did in a window that they shared; no rate where a job failed."""

    job: str = column("name of the job")
    share_percent: float = column("share asked for", "%")
    units: int | None = column("SMs or CUs read back under the limit", "units", default=None)
    rate: float | None = column("progress per second", "rate_unit/s", default=None)
    rate_unit: str = column("what one step of progress is", default="steps")
    rate_stderr: float | None = column("standard error of rate", "rate_unit/s", default=None)
    memory_used_mib: float | None = column("GPU memory of the job", "MiB", default=None)
    cpu_percent: float | None = column("CPU time of the job, 100 is one core", "%", default=None)
    job_hash: str | None = column("SHA-256 of the job's fields, first 16 digits", default=None)
    results: str | None = column("as of a solo point", default=None)
    offered_rate: float | None = column("as of a solo point", "rate_unit/s", default=None)
    latency_p50_ms: float | None = column("as of a solo point", "ms", default=None)
    latency_p99_ms: float | None = column("as of a solo point", "ms", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPoint(Measured):
    """Two jobs or more together at one split, over the interval in which all of them run.

    A job next to itself is a pair too. Where a job failed, the point has no rates, but the flag
    `failed` and the reason in `error`.

    Attributes:
        parts: One for each job, in the order of their names; parts of one name stay as given.
    """

    parts: tuple[PointPart, ...]
    mode: str = column(
        "how the GPU was shared: mps or cu_mask (each job under its share), uncapped (MPS without "
        "limits) or time-sliced (no MPS)",
        default="mps",
    )
    error: str | None = column("why there are no rates", default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", in_name_order(self.parts))

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs."""
        return tuple(part.job for part in self.parts)

    @property
    def shares_percent(self) -> tuple[float, ...]:
        """Share asked for each job."""
        return tuple(part.share_percent for part in self.parts)

    @property
    def point_id(self) -> str:
        """Stable identity: the same measurement has the same id wherever it is imported."""
        shares = (f"{share:g}" for share in self.shares_percent)
        return identity(self.run, *self.jobs, self.gpu_uuid, self.mode, *shares, self.started_at)


Point = SoloPoint | PairPoint


class _OfJob(Protocol):
    @property
    def job(self) -> str: ...


_Part = TypeVar("_Part", bound=_OfJob)


def in_name_order(parts: Iterable[_Part]) -> tuple[_Part, ...]:
    """The parts as a record has them, so that each measurement is written in one way only.

    Raises:
        ValueError: fewer than two.
    """
    ordered = tuple(sorted(parts, key=lambda part: part.job))
    if len(ordered) < 2:
        raise ValueError(f"a record of jobs that share a GPU has two parts or more: {ordered}")
    return ordered


def identity(*key: str) -> str:
    """A short hash of what tells a row apart from others."""
    return hashlib.sha256("|".join(key).encode()).hexdigest()[:32]
