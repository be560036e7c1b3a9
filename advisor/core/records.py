"""Measured points and observed launches: one frozen record per row, one name for each column.

A reading that was not available is None, never 0. Every column carries its unit and meaning in
its field's metadata; `docs/schema.md` is made from it. advisor/formats/rows.py turns points into
plain values and back.

No sensor reads the power of one process, so this is a rule of accounting, not a measurement:

- Idle power is divided by the SMs that each job holds, whether or not it uses them.
- Power above idle is divided by the power above idle that each job would draw alone at its present
  speed: its relative speed times (its power alone on the whole GPU minus the idle power).

Constant power by size, the rest by use, is how Kepler divides a host's power among processes,
after the GHG Protocol (Amaral et al., "Kepler: A Framework to Calculate the Energy Consumption of
Containerized Applications", IEEE CLOUD 2023). That energy per step changes little with the speed is
our assumption; at other clocks and with other neighbours it does change.

How much it changes is seen of all jobs together: what is above idle is more or less than the sum of
what they would draw alone. The rule divides that difference as it divides the rest. The bounds of a
job are those of giving it all of the difference, or none. Closer bounds would take a run of each
job alone at that speed. Errors of the profiles are not included.
"""

import hashlib
import math
import socket
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from advisor.core.gpu import WHOLE, Gpu
from advisor.core.job import Job
from advisor.core.objectives import Interval

SCHEMA_VERSION = 11

# The `source` of points that were replayed, not measured.
REPLAY_SOURCE = "replay"

# The `source` of pair points that were made of what launched jobs did.
OBSERVED_SOURCE = "launch"

FILLS_PERCENT = 50.0
"""A job fills the GPU that keeps its SMs active at least this part of the time alone on all of it:
below, the GPU idles most of the time, so two such jobs fit into each other's gaps."""


def _column(meaning: str, unit: str = "", **options: Any) -> Any:
    """A dataclass field that carries its unit and meaning."""
    return field(metadata={"meaning": meaning, "unit": unit}, **options)


def _reading(meaning: str, unit: str = "") -> Any:
    """A column that is None where nothing was read."""
    return _column(meaning, unit, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Hardware counters of the whole GPU, averaged over a window; None where not available."""

    sm_active_percent: float | None = _reading("time an SM had a warp, mean of SMs", "%")
    sm_occupancy_percent: float | None = _reading("resident warps of the most possible", "%")
    fp32_active_percent: float | None = _reading("FP32 pipe busy", "%")
    fp64_active_percent: float | None = _reading("FP64 pipe busy", "%")
    fp16_active_percent: float | None = _reading("FP16 pipe busy, without tensor cores", "%")
    tensor_active_percent: float | None = _reading("any tensor pipe busy", "%")
    integer_active_percent: float | None = _reading("integer pipe busy", "%")
    dram_active_percent: float | None = _reading("memory interface busy with data", "%")
    gpu_busy_percent: float | None = _reading("time in which any engine of compute was active", "%")
    memory_busy_percent: float | None = _reading("time in which memory was read or written", "%")
    pcie_tx_mib_per_s: float | None = _reading("PCIe, GPU to host", "MiB/s")
    pcie_rx_mib_per_s: float | None = _reading("PCIe, host to GPU", "MiB/s")
    nvlink_tx_mib_per_s: float | None = _reading("NVLink sent", "MiB/s")
    nvlink_rx_mib_per_s: float | None = _reading("NVLink received", "MiB/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Counters):
    """What one window showed of the GPU, and how it was taken; the same for one job and for two."""

    gpu_model: str = _column("as the driver names it")
    gpu_uuid: str = _column("the card")
    units_total: int | None = _reading("SMs or CUs of the whole GPU", "units")
    power_w: float | None = _reading("mean of instant readings", "W")
    power_stderr_w: float | None = _reading("standard error of power_w", "W")
    counter_power_w: float | None = _reading("energy counter over the time between its ticks", "W")
    memory_power_w: float | None = _reading("mean of the memory's own sensor, part of power_w", "W")
    idle_power_w: float | None = _reading("before the first job started", "W")
    active_idle_power_w: float | None = _reading("with jobs open on the GPU and none at work", "W")
    power_limit_w: float | None = _reading("enforced power limit", "W")
    sm_clock_mhz: float | None = _reading("mean clock of SMs or CUs", "MHz")
    memory_clock_mhz: float | None = _reading("mean clock of memory", "MHz")
    temperature_c: float | None = _reading("at the end of the window", "°C")
    throttled: bool | None = _reading("a throttle reason was active in the window")
    cpu_steal_percent: float | None = _reading("CPU time taken by other guests of the host", "%")
    settle_s: float | None = _reading("time until rate and power were flat", "s")
    window_s: float = _column("length of the window", "s")
    started_at: str = _column("start of the window, ISO 8601, UTC")
    run: str = _column("the sweep or campaign that the point belongs to")
    repeat: int = _column("0 for the first time in this run", default=0)
    source: str | None = _reading("where power and counters came from")
    driver: str | None = _reading("GPU driver version")
    host: str | None = _reading("name of the host")
    tool_version: str | None = _reading("version of advisor")
    written_by: str | None = _reading("who sent it to a service, which signs it; empty: none did")
    flags: tuple[str, ...] = _column("what was wrong with the window; empty is good", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloPoint(Measured):
    """One job alone at one share, over one window."""

    job: str = _column("name of the job")
    mode: str = _column("how the share was enforced: mps, cu_mask or uncapped", default="mps")
    share_percent: float = _column("share asked for", "%")
    units_granted: int | None = _reading("SMs or CUs read back under the limit", "units")
    rate: float = _column("progress per second", "rate_unit/s")
    rate_unit: str = _column("what one step of progress is", default="steps")
    rate_stderr: float | None = _reading("standard error of rate", "rate_unit/s")
    memory_used_mib: float | None = _reading("GPU memory of the job", "MiB")
    job_cpu_percent: float | None = _reading("CPU time of the job, 100 is one core", "%")
    job_hash: str | None = _reading("SHA-256 of the job's fields, first 16 digits")
    results: str | None = _reading(
        "the job's own results against those at the full GPU: right, wrong (not finite) or differ"
    )
    reported: str | None = _reading(
        "first values that the job reported, each after its count: 48=10.93 96=10.68"
    )
    input_fingerprint: str | None = _reading(
        "type and bits of what its matrices held, JSON: advisor.wire.power.InputFingerprint"
    )
    offered_rate: float | None = _reading(
        "requests that arrived per second, for a job that serves a demand", "rate_unit/s"
    )
    latency_p50_ms: float | None = _reading("median time to answer a request", "ms")
    latency_p99_ms: float | None = _reading("99th percentile of the time to answer a request", "ms")
    kernels_per_unit: float | None = _reading(
        "GPU kernels of one step, counted beside a probe, or else as its job file says",
        "1/rate_unit",
    )
    kernels_per_unit_stderr: float | None = _reading(
        "standard error of kernels_per_unit; empty: the job file's", "1/rate_unit"
    )
    kernel_hold_s: float | None = _reading(
        "how long a kernel keeps those of other processes off the GPU", "s"
    )
    kernel_hold_stderr_s: float | None = _reading("standard error of kernel_hold_s", "s")
    memory_bound: str | None = _reading("what bounded the memory of its framework")
    mps_clients: int | None = _reading("clients of MPS on each GPU")
    gpus: int | None = _reading(
        "how many GPUs the job held, where several: readings are means of them, memory the most, "
        "kernels those of a rank"
    )

    @property
    def point_id(self) -> str:
        """Stable identity: the same measurement has the same id wherever it is imported."""
        return _identity(
            *(self.run, self.job, self.gpu_uuid, f"{self.share_percent:g}", self.started_at),
            written_by=self.written_by,
        )

    @classmethod
    def watched(cls, job: Job, gpu: Gpu, **columns: Any) -> "SoloPoint":
        """What was seen of a job that had the whole GPU to itself, by columns of a point."""
        active = columns.get("sm_active_percent", WHOLE)
        waits = (columns.get("job_cpu_percent") or 0.0) >= CORE_PERCENT and active < IDLE_PERCENT
        point = cls(
            job=job.name,
            mode="uncapped",
            share_percent=WHOLE,
            # A server that declares no demand has that which arrives.
            offered_rate=job.offered_rate or (columns["rate"] if job.progress.histogram else None),
            gpu_model=gpu.model,
            gpu_uuid=gpu.uuid,
            units_total=gpu.units_total,
            driver=gpu.driver,
            power_limit_w=gpu.power_limit_w,
            source=columns.pop("source", "watch"),
            host=columns.pop("host", socket.gethostname()),
            flags=(WATCHED, CPU_BOUND) if waits else (WATCHED,),
            **columns,
        )
        per_unit = job.kernels_per_unit if job.progress.unit == point.rate_unit else None
        return point.with_declared(per_unit) if per_unit else point

    def with_declared(self, kernels_per_unit: float) -> "SoloPoint":
        """The point with kernels as its job file declares them.

        A kernel keeps others off for its part of the time in which the GPU is busy with the job.
        """
        busy = self.gpu_busy_percent or self.sm_active_percent or 0.0
        if not (self.rate and busy):
            return self
        hold_s = busy / WHOLE / (kernels_per_unit * self.rate)
        return replace(self, kernels_per_unit=kernels_per_unit, kernel_hold_s=hold_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPart:
    """What one job of several did in a window that they shared; no rate where a job failed."""

    job: str = _column("name of the job")
    share_percent: float = _column("share asked for", "%")
    units: int | None = _reading("SMs or CUs read back under the limit", "units")
    rate: float | None = _reading("progress per second", "rate_unit/s")
    rate_unit: str = _column("what one step of progress is", default="steps")
    rate_stderr: float | None = _reading("standard error of rate", "rate_unit/s")
    memory_used_mib: float | None = _reading("GPU memory of the job", "MiB")
    cpu_percent: float | None = _reading("CPU time of the job, 100 is one core", "%")
    job_hash: str | None = _reading("SHA-256 of the job's fields, first 16 digits")
    results: str | None = _reading("as of a solo point")
    offered_rate: float | None = _reading("as of a solo point", "rate_unit/s")
    latency_p50_ms: float | None = _reading("as of a solo point", "ms")
    latency_p99_ms: float | None = _reading("as of a solo point", "ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPoint(Measured):
    """Two jobs or more together at one split, over the interval in which all of them run.

    A job next to itself is a pair too. Where a job failed, the point has no rates, but the flag
    `failed` and the reason in `error`.

    Attributes:
        parts: One for each job, in the order of their names; parts of one name stay as given.
    """

    parts: tuple[PointPart, ...]
    mode: str = _column(
        "how the GPU was shared: mps or cu_mask (each job under its share), uncapped (MPS without "
        "limits) or time-sliced (no MPS)",
        default="mps",
    )
    error: str | None = _reading("why there are no rates")

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _in_name_order(self.parts))

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
        return _identity(
            *(self.run, *self.jobs, self.gpu_uuid, self.mode),
            *(f"{share:g}" for share in self.shares_percent),
            self.started_at,
            written_by=self.written_by,
        )


# An observation of a job alone is kept once it is as long as this.
KEPT_S = 60.0

# Use of one core, at least, of a job that its CPU holds up (`cpu-bound`).
CORE_PERCENT = 90.0

# SM activity, at most, of such a job.
IDLE_PERCENT = 70.0


Point = SoloPoint | PairPoint


_Part = TypeVar("_Part", bound="PointPart | ObservedPart")


def _in_name_order(parts: Iterable[_Part]) -> tuple[_Part, ...]:
    """The parts as a record has them, so that each measurement is written in one way only.

    Raises:
        ValueError: fewer than two.
    """
    ordered = tuple(sorted(parts, key=lambda part: part.job))
    if len(ordered) < 2:
        raise ValueError(f"a record of jobs that share a GPU has two parts or more: {ordered}")
    return ordered


def _identity(*key: str, written_by: str | None) -> str:
    """A short hash of what tells a row apart from others, who sent it among it."""
    whose = (f"by {written_by}",) if written_by else ()
    return hashlib.sha256("|".join((*key, *whose)).encode()).hexdigest()[:32]


COUNTER_BOUND = 0.03
"""Largest relative disagreement of energy counter and instant power that is not flagged."""

# Flags that are asked for by name; `FLAGS` says what each means.
DEGENERATE, UNREAD, RESULTS_ONLY = "degenerate-data", "results-unread", "results-only"
SLOW_ALONE, CPU_BOUND, HEAT, BACKLOG = "slow-alone", "cpu-bound", "heat", "backlog"
TOO_FAST, TOO_SLOW, LIMIT_BROKEN, P99_BROKEN = "too-fast", "too-slow", "limit-broken", "p99-broken"
UNWATCHED, UNCOUNTED, STRANGER, PAUSED = "unwatched", "uncounted", "stranger", "paused"
FOREIGN_HOST, SEVERAL_GPUS, JOB_CHANGED = "foreign-host", "several-gpus", "job-changed"
WATCHED, SINGLE_WINDOW, PRIOR = "seen", "one-window", "prior"

GPUS_DIFFER = "gpus-differ"

# GPUs of one job whose power spreads by more than this part of its mean are not alike.
GPUS_ALIKE = 0.1

UNCOUNTED_UNIT = "windows"
"""Unit of the rate 1 of a job whose progress was not counted: it has relative speeds alone."""

FLAGS: dict[str, str] = {
    "noisy-rate": "standard error of a rate above the target when the window's time was up; of a "
    "job with a demand, above what chance makes of its requests",
    "noisy-power": "standard error of the power above the target when the window's time was up",
    "not-settled": "power or rate still moved when the window began",
    "throttled": "the clock was lowered: power cap, heat or a hardware slowdown",
    HEAT: "not the power limit, or not alone, lowered the clock: heat, or a brake of the hardware",
    "counter-mismatch": "energy counter and instant power differ by more than "
    f"{COUNTER_BOUND:.0%} and more than three standard errors of the power",
    "counters-missing": "a counter that the models use could not be read",
    CPU_BOUND: "a job used a whole core or more while its SMs were idle over 30 % of the time",
    "cpu-steal": "other guests of the host took over 1 % of the CPU time",
    "shared-core": "time-sliced jobs that need more than one CPU core all ran on one",
    LIMIT_BROKEN: "a process computed on the GPU that was not under its limit, or of no job",
    TOO_FAST: "a job of a launch was far faster than its profile at that share",
    TOO_SLOW: "a job ran at under a twentieth of the rate of its profile at that share",
    P99_BROKEN: "a server of a launch was above its promised p99 for several windows in a row",
    STRANGER: "a process of no job computed on the GPU beside those of a launch",
    UNWATCHED: "the jobs of a launch were not watched for 10 s or more: its supervisor was stopped",
    UNCOUNTED: "the progress or the results of a job of a launch could not be read for a time",
    PAUSED: "a job of a launch was stopped or frozen for a time, which is in no mean",
    FOREIGN_HOST: "a job of a launch was over 14 % faster than alone by its profile, which is of "
    "another host",
    "wrong-results": "a job reported a result that is not finite",
    "results-differ": "a job's results are further from those at the full GPU than it tolerates",
    "results-only": "too short for rates: measured to read the job's results",
    "failed": "a job of the pair failed: there are no rates",
    DEGENERATE: "too little energy for the work: results are likely wrong, such as NaN",
    SLOW_ALONE: "over 12 % slower on the whole GPU than at a smaller share: its host held it up",
    UNREAD: "a half-precision job at a count of SMs where the check of this GPU model found wrong "
    "results, and its own results were not read",
    BACKLOG: "a server answered more than arrives, or far later than at half the GPU: it emptied a "
    "queue from its start or a burst",
    "other-demand": "for minutes more or less arrived at a server of a launch than was expected",
    GPUS_DIFFER: "the GPUs of a job of several drew more than a tenth of their mean power more or "
    "less than each other",
    SEVERAL_GPUS: "a job of a launch held several GPUs: such a launch teaches nothing yet",
    WATCHED: "watched at its work alone on the whole GPU, not profiled",
    SINGLE_WINDOW: (
        "the job was seen on the whole GPU alone: its other shares are estimated from that"
    ),
    PRIOR: "nothing was learned from its GPU model: its other shares are a guess from how busy the "
    "GPU was, with wide ranges",
    JOB_CHANGED: "its job file changed: older points are not used",
}
"""Every flag that a point can carry, and its meaning."""

WRONG = frozenset({DEGENERATE, "wrong-results", "results-differ"})
"""Flags of points at which a job did not do its work: no profile has them, not even where a share
has no others."""

NO_POWER = "no power here: rates only"
"""Why there is no profile, where no source gives power."""

DOUBTFUL = WRONG | {
    RESULTS_ONLY,
    UNREAD,
    LIMIT_BROKEN,
    TOO_FAST,
    TOO_SLOW,
    STRANGER,
    UNWATCHED,
    UNCOUNTED,
    PAUSED,
    FOREIGN_HOST,
    HEAT,
    BACKLOG,
    SEVERAL_GPUS,
    "other-demand",
    "not-settled",
    "counter-mismatch",
    "cpu-steal",
    "shared-core",
    "failed",
}
"""Flags of points that failed a cross-check, or are not of what was profiled: they stay in the
data, and are left out of what is learned or reported unless asked for. The other flags describe the
job or the size of its error."""


def is_catching_up(
    rate: float,
    offered_rate: float | None,
    span_s: float,
    p50_ms: float | None = None,
    errors: float = 3.0,
) -> bool:
    """Whether a server answers more than arrives: that is no rate, and its p99 no tail.

    By a tenth, the accuracy of declared demands, and by more than chance: so many standard
    errors of what arrives at random. None of 1,382 bundled windows of servers has that. Where the
    latency is given, what was answered beyond the demand has waited, too: half of it is the least
    mean queue. Else it is a burst, or was not declared.

    Args:
        rate: Requests answered per second, in so many seconds.
        offered_rate: Requests per second that arrive; None: never.
        span_s: Seconds.
        p50_ms: Median of the time to answer; None: not known.
        errors: Standard errors that are chance.
    """
    if not offered_rate:
        return False
    more = rate - offered_rate
    is_chance = more <= max(0.1 * offered_rate, errors * math.sqrt(offered_rate / span_s))
    return not is_chance and (p50_ms is None or rate * p50_ms / 1000 >= more * span_s / 2)


SETTLE_S = 3.0
"""The first seconds together are in no mean: clocks and caches find their level."""

JUDGE_S = 5.0
"""Means of a shorter time are not held against a prediction."""

MARGIN = 0.1
"""Within a tenth of the expected value a prediction was good, however narrow its interval."""

OBSERVATION_WORDS = {
    "mode": ("mps", "cu_mask", "uncapped", "time-sliced"),
    "state": ("finished", "stopped", "failed"),
}
"""Columns whose values are one of some words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPart:
    """What one job of a launch did next to the others."""

    job: str = _column("name of the job")
    share_percent: float = _column("share asked for; 100 without limits", "%")
    units: int | None = _reading("SMs or CUs read back under the limit", "units")
    rate: float | None = _reading("progress per second, mean over the overlap", "rate_unit/s")
    rate_unit: str = _column("what one step of progress is", default="steps")
    solo_rate: float | None = _reading(
        "rate alone on the whole GPU, from the profile or measured first", "rate_unit/s"
    )
    solo_power_w: float | None = _reading(
        "power of the GPU while the job runs alone on all of it, from the profile", "W"
    )
    predicted_rate: float | None = _reading("what the model expected", "rate_unit/s")
    results: str | None = _reading(
        "the job's own results against those at the full GPU: right, wrong or differ"
    )
    job_hash: str | None = _reading("SHA-256 of the job's fields, first 16 digits")
    libraries: str | None = _reading(
        "versions of the GPU libraries that it had loaded: cublas 130100, torch 2.11.0"
    )
    rest_rate: float | None = _reading(
        "progress per second after another job had ended, under the limit that stayed",
        "rate_unit/s",
    )
    latency_p50_ms: float | None = _reading("median time to answer a request", "ms")
    latency_p99_ms: float | None = _reading("99th percentile of the time to answer a request", "ms")
    energy_j: float | None = _reading(
        "part of the GPU's energy over the overlap that is the job's, by a rule", "J"
    )
    energy_low_j: float | None = _reading("least that it can be", "J")
    energy_high_j: float | None = _reading("most that it can be", "J")
    ended_first: bool = _column(
        "ended by itself before the others, or together with others; of no job: all ran until "
        "they were stopped",
        default=False,
    )
    below_normal: bool = _column("ran below normal priority under MPS", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Jobs that were launched together, from the start of the first to the end of the last.

    Attributes:
        parts: One for each job, in the order of their names, as in a pair point.
    """

    launch_id: str = _column("the launch that the jobs belong to")
    stretch: int = _column(
        "0: of all jobs, from the start; 1 and more: of those, two at least, who were left after "
        "an end; their time and energy are in the rest of 0, too",
        default=0,
    )
    parts: tuple[ObservedPart, ...]
    gpu_model: str = _column("as the driver names it")
    gpu_uuid: str = _column("the card")
    units_total: int | None = _reading("SMs or CUs of the whole GPU", "units")
    power_limit_w: float | None = _reading("enforced power limit", "W")
    driver: str | None = _reading("GPU driver version")
    mode: str = _column(
        "how the GPU was shared: mps or cu_mask (each job under its share), uncapped (MPS without "
        "limits) or time-sliced (no MPS)",
        default="mps",
    )
    power_w: float | None = _reading("mean of the GPU over the overlap", "W")
    energy_j: float | None = _reading("of the GPU over the overlap", "J")
    overlap_s: float = _column("how long both jobs ran together", "s")
    settled_s: float | None = _reading(
        "part of the overlap that rates and power_w are means of, after its first seconds", "s"
    )
    work_per_joule: float | None = _reading(
        "sum of relative speeds over power, over the overlap", "1/J"
    )
    energy_saved: float | None = _reading(
        "part of the energy saved for the same work, against one after the other, over the "
        "overlap; below 0 sharing cost energy"
    )
    rest_s: float | None = _reading("how long one job went on after the other had ended", "s")
    rest_energy_j: float | None = _reading("of the GPU in that time", "J")
    rest_energy_saved: float | None = _reading(
        "as energy_saved, of the work in that time, against the whole GPU"
    )
    energy_saved_to_end: float | None = _reading(
        "as energy_saved, from the start to the end of the last job"
    )
    stranded_unit_s: float = _column(
        "SMs or CUs held for a job that had ended, times seconds", "unit s", default=0.0
    )
    model_version: str | None = _reading("the model that predicted")
    predicted_power_w: float | None = _reading("what it expected of the power", "W")
    predicted_work_per_joule: float | None = _reading("what it expected of work_per_joule", "1/J")
    predicted_energy_saved: float | None = _reading("what it expected of energy_saved")
    predicted_rest_energy_saved: float | None = _reading(
        "what the profile of the job that went on says of rest_energy_saved"
    )
    state: str = _column("how it ended: finished, stopped or failed")
    started_at: str = _column("start of the pair, ISO 8601, UTC")
    host: str | None = _reading("name of the host")
    tool_version: str | None = _reading("version of advisor")
    written_by: str | None = _reading("who sent it to a service, which signs it; empty: none did")
    flags: tuple[str, ...] = _column("what was wrong; empty is good", default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _in_name_order(self.parts))

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs."""
        return tuple(part.job for part in self.parts)

    @property
    def point_id(self) -> str:
        """Stable identity: the same observation has the same id wherever it is brought in."""
        return _identity(
            *(self.launch_id, *self.jobs, self.gpu_uuid, self.started_at),
            written_by=self.written_by,
        )

    @property
    def energy_apart_j(self) -> float | None:
        """What the same work takes one after the other, by the profiles."""
        whole_j, saved = self.energy_to_end_j, self.energy_saved_to_end
        return None if whole_j is None or saved is None or saved >= 1 else whole_j / (1 - saved)

    @property
    def energy_to_end_j(self) -> float | None:
        """Of the GPU to the end of the last job; None where a part of it was not read."""
        if self.energy_j is None or (self.rest_s and self.rest_energy_j is None):
            return None
        return self.energy_j + (self.rest_energy_j or 0.0)

    @property
    def doubt(self) -> str | None:
        """Why an observation says nothing of what the jobs do at that split; None: it does."""
        if self.state == "failed":
            return "it failed"
        if self.overlap_s < SETTLE_S + JUDGE_S:
            return f"under {SETTLE_S + JUDGE_S:g} s together"
        if any(part.results in ("wrong", "differ") for part in self.parts):
            return "results were wrong"
        return next((flag for flag in self.flags if flag in DOUBTFUL), None)

    def with_job_energy(self, idle_power_w: float | None) -> "Observation":
        """The same with the part of its energy that is each job's, where it has any energy."""
        if self.energy_j is None:
            return self
        loads = [
            JobLoad(
                units=part.units or part.share_percent / WHOLE * (self.units_total or WHOLE),
                relative_speed=part.rate / part.solo_rate
                if part.rate is not None and part.solo_rate
                else None,
                solo_power_w=part.solo_power_w,
            )
            for part in self.parts
        ]
        energies = divide_energy(self.energy_j, self.overlap_s, idle_power_w, loads)
        parts = (
            replace(part, energy_j=j.value, energy_low_j=j.low, energy_high_j=j.high)
            for part, j in zip(self.parts, energies, strict=True)
        )
        return replace(self, parts=tuple(parts))


Part = PointPart | ObservedPart
"""What records say of one of several jobs."""

Record = SoloPoint | PairPoint | Observation
"""What stores and files keep."""

PARTS: Mapping[type[Record], type[Part]] = {PairPoint: PointPart, Observation: ObservedPart}
"""Kinds of records that have parts, and of what kind these are."""


def is_far(observed: float, predicted: Interval) -> bool:
    """Whether a value is outside of its interval, and by more than the margin off its middle."""
    outside = not predicted.low <= observed <= predicted.high
    return outside and abs(observed - predicted.value) > MARGIN * abs(predicted.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLoad:
    """One of the jobs on a GPU.

    Attributes:
        units: SMs that it holds, above 0.
        relative_speed: Its rate over its rate alone on the whole GPU; None: not known.
        solo_power_w: Power of the GPU while it runs alone on all of it, W; None: not known.
    """

    units: float
    relative_speed: float | None = None
    solo_power_w: float | None = None


def divide_energy(
    energy_j: float, duration_s: float, idle_power_w: float | None, loads: Sequence[JobLoad]
) -> list[Interval]:
    """The part of each job with its bounds, J; the values sum to `energy_j`, for any jobs but none.

    Idle power is that of the GPU without work; None: not known. If a job's use is not known, or
    no job made progress, all is divided by SMs, with the widest bounds: idle power by SMs, and all
    else to any job. One alone has all of it.
    """
    if len(loads) == 1:
        return [Interval(energy_j, energy_j, energy_j)]
    by_size = [load.units for load in loads]
    idle_j = min(energy_j, (idle_power_w or 0.0) * duration_s)
    of_idle, rest_j = _in_proportion(idle_j, by_size), energy_j - idle_j
    uses_j = [
        max(0.0, speed) * max(0.0, load.solo_power_w - idle_power_w) * duration_s
        for load in loads
        if (speed := load.relative_speed) is not None
        and load.solo_power_w is not None
        and idle_power_w is not None
    ]
    if len(uses_j) < len(loads) or not sum(uses_j):
        values = _in_proportion(energy_j, by_size)
        ends = [(0.0, rest_j)] * len(loads)
    else:
        values = [
            idle + rest for idle, rest in zip(of_idle, _in_proportion(rest_j, uses_j), strict=True)
        ]
        ends = [_ends_j(use_j, rest_j, sum(uses_j)) for use_j in uses_j]
    return [
        # Rounding: a value may be its own bound.
        Interval(value, min(value, idle + low), max(value, idle + high))
        for value, idle, (low, high) in zip(values, of_idle, ends, strict=True)
    ]


def _ends_j(use_j: float, rest_j: float, all_j: float) -> tuple[float, float]:
    """What a job is charged above idle with none and with all of the difference."""
    ends = use_j, use_j + rest_j - all_j
    return max(0.0, min(ends)), min(rest_j, max(ends))


def _in_proportion(total: float, weights: Sequence[float]) -> list[float]:
    return [total * (weight / sum(weights)) for weight in weights]


_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """The items of each key in their order; keys in the order of their first item."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
