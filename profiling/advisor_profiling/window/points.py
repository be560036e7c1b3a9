"""Turns a window into a point, with a flag for everything that was wrong with it."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, cast

import advisor
from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job, Reported, Verdict, verdict_flags, write_first
from advisor.core.records import (
    HEAT,
    RESULTS_ONLY,
    Counters,
    PairPoint,
    Point,
    PointPart,
    SoloPoint,
)
from advisor.core.telemetry import POWER_CAPS
from advisor_profiling.window.window import MeanEstimate, MeasuredWindow, WindowRules


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process that takes part in windows.

    Attributes:
        copy: 1 for the second of several alike, where a job runs next to itself at the same share.
    """

    job: Job
    share: Share
    copy: int = 0

    def __str__(self) -> str:
        return f"{self.job.name} at {self.share} %"


@dataclass(frozen=True, slots=True)
class Target:
    """One window: a job alone, or several together, for the `repeat`-th time."""

    specs: tuple[ProcessSpec, ...]
    repeat: int = 0

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of its jobs."""
        return tuple(spec.job.name for spec in self.specs)

    def __str__(self) -> str:
        return " with ".join(map(str, self.specs))


def solo(job: Job, share: Share, repeat: int = 0) -> Target:
    """A job alone."""
    return Target((ProcessSpec(job, share),), repeat)


def together(jobs: Iterable[tuple[Job, Share]], repeat: int = 0) -> Target:
    """Jobs side by side; in the order of their names, alike ones in the order of their shares."""
    specs = list[ProcessSpec]()
    for job, share in sorted(jobs, key=lambda of: (of[0].name, of[1].percent)):
        copy = sum((spec.job, spec.share) == (job, share) for spec in specs)
        specs.append(ProcessSpec(job, share, copy))
    return Target(tuple(specs), repeat)


def pair(
    job_a: Job,
    share_a: Share,
    job_b: Job,
    share_b: Share,
    repeat: int = 0,
    *,
    two_ends: bool = False,
) -> Target:
    """Two jobs together.

    With `two_ends` the second one's units are counted from the last down, as CU masks need it.
    """
    target = together(((job_a, share_a), (job_b, share_b)), repeat)
    if not two_ends:
        return target
    first, second = target.specs
    return Target((first, replace(second, share=replace(second.share, upper=True))), repeat)


_MODEL_COUNTERS = (
    "sm_active_percent",
    "sm_occupancy_percent",
    "fp32_active_percent",
    "dram_active_percent",
    "pcie_tx_mib_per_s",
    "pcie_rx_mib_per_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """What is the same for all windows of a run on one GPU."""

    gpu: Gpu
    rules: WindowRules
    run: str
    mode: str
    source: str
    host: str
    idle_power_w: float | None
    active_idle_power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """One window, what it was taken for, and the part of each of its jobs.

    Attributes:
        reported: What each job said of its results, from its start to the end of the window.
    """

    target: Target
    parts: tuple[PointPart, ...]
    reported: tuple[Reported, ...]
    window: MeasuredWindow
    cpu_steal_percent: float | None


def part_of(spec: ProcessSpec, **measured: Any) -> PointPart:
    """A job's part of a window, with what was measured of it."""
    return PointPart(
        job=spec.job.name,
        job_hash=spec.job.job_hash,
        share_percent=spec.share.percent,
        rate_unit=spec.job.progress.unit,
        offered_rate=spec.job.offered_rate,
        **measured,
    )


_OF_SOLO = {"units": "units_granted", "cpu_percent": "job_cpu_percent"}
"""Columns of a part that a solo point has under another name."""


def part_alone(point: SoloPoint) -> PointPart:
    """A solo point as the part of its one job."""
    names = (field.name for field in fields(PointPart))
    return PointPart(**{name: getattr(point, _OF_SOLO.get(name, name)) for name in names})


def to_point(result: WindowResult, conditions: RunConditions) -> Point:
    """The point of one window: of a job alone, or of several together."""
    measured = _measured(result, conditions)
    if len(result.target.jobs) > 1:
        mode = pair_mode(conditions.mode, result.target)
        return PairPoint(parts=result.parts, mode=mode, **measured)
    return SoloPoint(
        **{_OF_SOLO.get(name, name): value for name, value in asdict(result.parts[0]).items()},
        mode=conditions.mode,
        reported=write_first(result.reported[0]),
        input_fingerprint=result.target.specs[0].job.input_fingerprint,
        **measured,
    )


def failed_point(target: Target, conditions: RunConditions, moment: str, error: str) -> PairPoint:
    """The mark that a pair leaves where it could not be measured."""
    return PairPoint(
        parts=tuple(map(part_of, target.specs)),
        mode=pair_mode(conditions.mode, target),
        **_origin(target, conditions),
        window_s=0.0,
        started_at=moment,
        flags=("failed",),
        error="".join(filter(str.isprintable, " ".join(error.split())))[:400],
    )


def pair_mode(mode: str, target: Target) -> str:
    """How a pair shares the GPU, from how its testbed enforces shares."""
    if mode == "uncapped":
        return "time-sliced"
    if mode == "mps" and all(spec.share.percent == 100 for spec in target.specs):
        return "uncapped"
    return mode


def flags_of(result: WindowResult, conditions: RunConditions) -> tuple[str, ...]:
    """What was wrong with a window, in the words of `advisor.core.records.FLAGS`."""
    window, target = result.window, conditions.rules.target
    counters = window.counters
    wrong = {
        "noisy-rate": any(
            _noisy(
                MeanEstimate(part.rate or 0.0, part.rate_stderr),
                max(target, _by_chance(part.offered_rate, window.window_s)),
            )
            for part in result.parts
        ),
        "noisy-power": window.power is not None and _noisy(window.power, target),
        "not-settled": not window.settled,
        "throttled": bool(window.throttle_reasons),
        HEAT: bool(set(window.throttle_reasons or ()) - POWER_CAPS),
        "counter-mismatch": window.counter_disagrees,
        "counters-missing": any(getattr(counters, name) is None for name in _MODEL_COUNTERS),
        "cpu-bound": _cpu_bound(counters, result.parts, conditions.gpu),
        "cpu-steal": (result.cpu_steal_percent or 0) > 1,
        RESULTS_ONLY: conditions.rules.results_only,
    }
    found = (flag for flag, holds in wrong.items() if holds)
    return (*found, *verdict_flags(cast("Verdict | None", part.results) for part in result.parts))


def _origin(target: Target, conditions: RunConditions) -> dict[str, Any]:
    gpu = conditions.gpu
    return {
        "gpu_model": gpu.model,
        "gpu_uuid": gpu.uuid,
        "driver": gpu.driver,
        "units_total": gpu.units_total,
        "source": conditions.source,
        "host": conditions.host,
        "run": conditions.run,
        "repeat": target.repeat,
        "idle_power_w": conditions.idle_power_w,
        "active_idle_power_w": conditions.active_idle_power_w,
        "tool_version": advisor.__version__,
    }


def _measured(result: WindowResult, conditions: RunConditions) -> dict[str, Any]:
    window, power = result.window, result.window.power
    return {
        **_origin(result.target, conditions),
        "power_w": power.mean if power else None,
        "power_stderr_w": power.stderr if power else None,
        "counter_power_w": window.counter_power_w,
        "memory_power_w": window.memory_power_w,
        "power_limit_w": window.power_limit_w,
        "sm_clock_mhz": window.sm_clock_mhz,
        "memory_clock_mhz": window.memory_clock_mhz,
        "temperature_c": window.temperature_c,
        "throttled": None if window.throttle_reasons is None else bool(window.throttle_reasons),
        "cpu_steal_percent": result.cpu_steal_percent,
        "settle_s": window.settle_s,
        "window_s": window.window_s,
        "started_at": window.started_at,
        "flags": flags_of(result, conditions),
        **asdict(window.counters),
    }


def _noisy(estimate: MeanEstimate, target: float) -> bool:
    return estimate.relative is None or estimate.relative > target


def _by_chance(offered_rate: float | None, window_s: float) -> float:
    """Relative spread of what arrives at random in a window (Poisson), which is no noise of a job.

    Half as much more is allowed, since a standard error is only estimated.
    """
    return 1.5 / math.sqrt(offered_rate * window_s) if offered_rate else 0.0


def _cpu_bound(counters: Counters, parts: tuple[PointPart, ...], gpu: Gpu) -> bool:
    """SM activity is relative to the whole GPU, so it is compared with the granted part."""
    active, units = counters.sm_active_percent, [part.units for part in parts]
    if active is None or not gpu.units_total or not all(units):
        return False
    granted = min(gpu.units_total, sum(filter(None, units)))
    idle = active < 70 * granted / gpu.units_total
    return idle and any((part.cpu_percent or 0) >= 90 for part in parts)
