"""Measured points: one frozen record per row, the same names in code, files, JSON and SQL.

A reading that was not available is None, never 0. Every column carries its unit and meaning in
its field's metadata; `docs/schema.md` is made from it. advisor/formats/rows.py turns points into
plain
values and back.
"""

import hashlib
from dataclasses import dataclass, field, fields
from typing import Any

SCHEMA_VERSION = 5

REPLAY_SOURCE = "replay"
"""The `source` of points that were replayed, not measured."""


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
class PairPoint(Measured):
    """Two jobs together at one split, over the interval in which both run.

    A pair is written with its jobs in the order of their names; a job beside itself is a pair too.
    A job that failed leaves a point without rates, with the flag `failed` and the reason in
    `error`.
    """

    job_a: str = column("name of the first job")
    job_b: str = column("name of the second job")
    mode: str = column(
        "how the GPU was shared: mps or cu_mask (each job under its share), uncapped (MPS without "
        "limits) or time-sliced (no MPS)",
        default="mps",
    )
    share_a_percent: float = column("share asked for the first job", "%")
    share_b_percent: float = column("share asked for the second job", "%")
    units_a: int | None = column("SMs or CUs read back for the first job", "units", default=None)
    units_b: int | None = column("SMs or CUs read back for the second job", "units", default=None)
    rate_a: float | None = column(
        "progress of the first job per second", "rate_unit_a/s", default=None
    )
    rate_b: float | None = column(
        "progress of the second job per second", "rate_unit_b/s", default=None
    )
    rate_unit_a: str = column("what one step of the first job is", default="steps")
    rate_unit_b: str = column("what one step of the second job is", default="steps")
    rate_a_stderr: float | None = column("standard error of rate_a", "rate_unit_a/s", default=None)
    rate_b_stderr: float | None = column("standard error of rate_b", "rate_unit_b/s", default=None)
    memory_used_a_mib: float | None = column("GPU memory of the first job", "MiB", default=None)
    memory_used_b_mib: float | None = column("GPU memory of the second job", "MiB", default=None)
    job_a_cpu_percent: float | None = column(
        "CPU time of the first job, 100 is one core", "%", default=None
    )
    job_b_cpu_percent: float | None = column(
        "CPU time of the second job, 100 is one core", "%", default=None
    )
    job_a_hash: str | None = column("as job_hash, of the first job", default=None)
    job_b_hash: str | None = column("as job_hash, of the second job", default=None)
    results_a: str | None = column("as results, of the first job", default=None)
    results_b: str | None = column("as results, of the second job", default=None)
    offered_rate_a: float | None = column(
        "as offered_rate, of the first job", "rate_unit_a/s", default=None
    )
    offered_rate_b: float | None = column(
        "as offered_rate, of the second job", "rate_unit_b/s", default=None
    )
    latency_p50_a_ms: float | None = column(
        "as latency_p50_ms, of the first job", "ms", default=None
    )
    latency_p50_b_ms: float | None = column(
        "as latency_p50_ms, of the second job", "ms", default=None
    )
    latency_p99_a_ms: float | None = column(
        "as latency_p99_ms, of the first job", "ms", default=None
    )
    latency_p99_b_ms: float | None = column(
        "as latency_p99_ms, of the second job", "ms", default=None
    )
    error: str | None = column("why there are no rates", default=None)

    @property
    def pair(self) -> tuple[str, str]:
        """Names of the two jobs."""
        return self.job_a, self.job_b

    @property
    def point_id(self) -> str:
        """Stable identity: the same measurement has the same id wherever it is imported."""
        shares = f"{self.share_a_percent:g}", f"{self.share_b_percent:g}"
        return identity(self.run, *self.pair, self.gpu_uuid, self.mode, *shares, self.started_at)


Point = SoloPoint | PairPoint

SOLO_COLUMNS: tuple[str, ...] = tuple(f.name for f in fields(SoloPoint))
PAIR_COLUMNS: tuple[str, ...] = tuple(f.name for f in fields(PairPoint))


def identity(*key: str) -> str:
    """A short hash of what tells a row apart from others."""
    return hashlib.sha256("|".join(key).encode()).hexdigest()[:32]
