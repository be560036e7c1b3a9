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

FILLS_PERCENT = 50.0
"""A job fills the GPU that keeps its SMs active at least this part of the time alone on all of it:
below, the GPU idles most of the time, so two such jobs fit into each other's gaps."""


def column(meaning: str, unit: str = "", **options: Any) -> Any:
    """A dataclass field that carries its unit and meaning."""
    return field(metadata={"meaning": meaning, "unit": unit}, **options)


def reading(meaning: str, unit: str = "") -> Any:
    """A column that is None where nothing was read."""
    return column(meaning, unit, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Hardware counters of the whole GPU, averaged over a window; None where not available."""

    sm_active_percent: float | None = reading("time an SM had a warp, mean of SMs", "%")
    sm_occupancy_percent: float | None = reading("resident warps of the most possible", "%")
    fp32_active_percent: float | None = reading("FP32 pipe busy", "%")
    fp64_active_percent: float | None = reading("FP64 pipe busy", "%")
    fp16_active_percent: float | None = reading("FP16 pipe busy, without tensor cores", "%")
    tensor_active_percent: float | None = reading("any tensor pipe busy", "%")
    integer_active_percent: float | None = reading("integer pipe busy", "%")
    dram_active_percent: float | None = reading("memory interface busy with data", "%")
    gpu_busy_percent: float | None = reading("time in which any engine of compute was active", "%")
    memory_busy_percent: float | None = reading("time in which memory was read or written", "%")
    pcie_tx_mib_per_s: float | None = reading("PCIe, GPU to host", "MiB/s")
    pcie_rx_mib_per_s: float | None = reading("PCIe, host to GPU", "MiB/s")
    nvlink_tx_mib_per_s: float | None = reading("NVLink sent", "MiB/s")
    nvlink_rx_mib_per_s: float | None = reading("NVLink received", "MiB/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Counters):
    """What one window showed of the GPU, and how it was taken; the same for one job and for two."""

    gpu_model: str = column("as the driver names it")
    gpu_uuid: str = column("the card")
    units_total: int | None = reading("SMs or CUs of the whole GPU", "units")
    power_w: float | None = reading("mean of instant readings", "W")
    power_stderr_w: float | None = reading("standard error of power_w", "W")
    counter_power_w: float | None = reading("energy counter over the time between its ticks", "W")
    memory_power_w: float | None = reading("mean of the memory's own sensor, part of power_w", "W")
    idle_power_w: float | None = reading("before the first job started", "W")
    active_idle_power_w: float | None = reading("with jobs open on the GPU and none at work", "W")
    power_limit_w: float | None = reading("enforced power limit", "W")
    sm_clock_mhz: float | None = reading("mean clock of SMs or CUs", "MHz")
    memory_clock_mhz: float | None = reading("mean clock of memory", "MHz")
    temperature_c: float | None = reading("at the end of the window", "°C")
    throttled: bool | None = reading("a throttle reason was active in the window")
    cpu_steal_percent: float | None = reading("CPU time taken by other guests of the host", "%")
    settle_s: float | None = reading("time until rate and power were flat", "s")
    window_s: float = column("length of the window", "s")
    started_at: str = column("start of the window, ISO 8601, UTC")
    run: str = column("the sweep or campaign that the point belongs to")
    repeat: int = column("0 for the first time in this run", default=0)
    source: str | None = reading("where power and counters came from")
    driver: str | None = reading("GPU driver version")
    host: str | None = reading("name of the host")
    tool_version: str | None = reading("version of advisor")
    written_by: str | None = reading("who sent it to a service, which signs it; empty: none did")
    flags: tuple[str, ...] = column("what was wrong with the window; empty is good", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloPoint(Measured):
    """One job alone at one share, over one window."""

    job: str = column("name of the job")
    mode: str = column("how the share was enforced: mps, cu_mask or uncapped", default="mps")
    share_percent: float = column("share asked for", "%")
    units_granted: int | None = reading("SMs or CUs read back under the limit", "units")
    rate: float = column("progress per second", "rate_unit/s")
    rate_unit: str = column("what one step of progress is", default="steps")
    rate_stderr: float | None = reading("standard error of rate", "rate_unit/s")
    memory_used_mib: float | None = reading("GPU memory of the job", "MiB")
    job_cpu_percent: float | None = reading("CPU time of the job, 100 is one core", "%")
    job_hash: str | None = reading("SHA-256 of the job's fields, first 16 digits")
    results: str | None = reading(
        "the job's own results against those at the full GPU: right, wrong (not finite) or differ"
    )
    reported: str | None = reading(
        "first values that the job reported, each after its count: 48=10.93 96=10.68"
    )
    input_fingerprint: str | None = reading(
        "type and bits of what its matrices held, JSON: advisor.wire.power.InputFingerprint"
    )
    offered_rate: float | None = reading(
        "requests that arrived per second, for a job that serves a demand", "rate_unit/s"
    )
    latency_p50_ms: float | None = reading("median time to answer a request", "ms")
    latency_p99_ms: float | None = reading("99th percentile of the time to answer a request", "ms")

    @property
    def point_id(self) -> str:
        """Stable identity: the same measurement has the same id wherever it is imported."""
        return identity(
            *(self.run, self.job, self.gpu_uuid, f"{self.share_percent:g}", self.started_at),
            written_by=self.written_by,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPart:
    """What one job of several did in a window that they shared; no rate where a job failed."""

    job: str = column("name of the job")
    share_percent: float = column("share asked for", "%")
    units: int | None = reading("SMs or CUs read back under the limit", "units")
    rate: float | None = reading("progress per second", "rate_unit/s")
    rate_unit: str = column("what one step of progress is", default="steps")
    rate_stderr: float | None = reading("standard error of rate", "rate_unit/s")
    memory_used_mib: float | None = reading("GPU memory of the job", "MiB")
    cpu_percent: float | None = reading("CPU time of the job, 100 is one core", "%")
    job_hash: str | None = reading("SHA-256 of the job's fields, first 16 digits")
    results: str | None = reading("as of a solo point")
    offered_rate: float | None = reading("as of a solo point", "rate_unit/s")
    latency_p50_ms: float | None = reading("as of a solo point", "ms")
    latency_p99_ms: float | None = reading("as of a solo point", "ms")


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
    error: str | None = reading("why there are no rates")

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
        key = self.run, *self.jobs, self.gpu_uuid, self.mode, *shares, self.started_at
        return identity(*key, written_by=self.written_by)


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


def identity(*key: str, written_by: str | None) -> str:
    """A short hash of what tells a row apart from others, who sent it among it."""
    whose = (f"by {written_by}",) if written_by else ()
    return hashlib.sha256("|".join((*key, *whose)).encode()).hexdigest()[:32]
