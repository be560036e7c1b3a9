"""What somebody wants launched: pairs by the names of their jobs, and what must hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.launch.records.spec import HANG_S, WhenOneEnds


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPair:
    """Jobs of the folder of jobs that are to share the GPU, by name.

    Attributes:
        split: `30/70`, `uncapped` or `time-sliced`; None: the recommended one.
    """

    jobs: tuple[str, ...]
    split: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLaunch:
    """What was asked for.

    Attributes:
        pairs: Run one after the other.
        gpu: Index or UUID of the GPU.
        gpu_model: Of that GPU, where it is known; None: the one that the profiles have in common.
        units_total: SMs or CUs of that GPU, where they are known.
        objective: Of recommended splits, as are all limits.
        min_speed: Minimum relative speed by name of job; counts in the pairs that have that job.
        max_p99_ms: Longest p99 latency by name of job; `default_max_p99_ms` of every other job
            that answers requests, in the pairs that have one.
        max_power_w: Most power of the GPU.
        memory_mib: Of the GPU, where it is known.
        profiles: File of solo points; None: the stored and the bundled ones.
        allow_unsafe: Launch a split that is given at counts, too, at which results are wrong.
        stop_on_wrong_results: Stop a pair when a job reports a wrong result; None: where the split
            is a recommended one.
    """

    pairs: tuple[WantedPair, ...]
    gpu: str = "0"
    gpu_model: str | None = None
    units_total: int | None = None
    objective: str = DEFAULT_OBJECTIVE
    min_speed: Mapping[str, float] = field(default_factory=dict[str, float])
    max_p99_ms: Mapping[str, float] = field(default_factory=dict[str, float])
    default_max_p99_ms: float | None = None
    max_power_w: float | None = None
    memory_mib: float | None = None
    profiles: Path | None = None
    allow_unsafe: bool = False
    stop_on_wrong_results: bool | None = None
    when_one_ends: WhenOneEnds = "keep"
    duration_s: float | None = None
    hang_s: float = HANG_S
    asked_by: str = ""
