"""Turns a window into a point, with a flag for everything that was wrong with it."""

from dataclasses import asdict, dataclass

import advisor
from advisor.flags import COUNTER_BOUND
from advisor.gpu import Gpu, Share
from advisor.job import Job
from advisor.records import Counters, SoloPoint
from advisor.runtime.backend import Granted
from advisor_profiling.estimate import Estimate
from advisor_profiling.window import Window, WindowRules

_MODEL_COUNTERS = (
    "sm_active_percent",
    "sm_occupancy_percent",
    "fp32_active_percent",
    "dram_active_percent",
    "pcie_tx_mib_per_s",
    "pcie_rx_mib_per_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What is the same for all windows of a sweep."""

    job: Job
    gpu: Gpu
    rules: WindowRules
    run: str
    mode: str
    source: str
    host: str
    idle_power_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one job used during its window."""

    memory_used_mib: float | None
    job_cpu_percent: float | None
    cpu_steal_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One window and the share that it was taken under."""

    share: Share
    repeat: int
    granted: Granted
    window: Window
    rate: Estimate
    usage: Usage


def solo_point(taken: Taken, conditions: Conditions) -> SoloPoint:
    """The point of one window."""
    job, gpu, window = conditions.job, conditions.gpu, taken.window
    power = window.power
    return SoloPoint(
        job=job.name,
        job_hash=job.job_hash,
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        driver=gpu.driver,
        mode=conditions.mode,
        source=conditions.source,
        host=conditions.host,
        run=conditions.run,
        tool_version=advisor.__version__,
        share_percent=taken.share.percent,
        repeat=taken.repeat,
        units_granted=taken.granted.units,
        units_total=gpu.units_total,
        rate=taken.rate.mean,
        rate_unit=job.progress.unit,
        rate_stderr=taken.rate.stderr,
        power_w=power.mean if power else None,
        power_stderr_w=power.stderr if power else None,
        counter_power_w=window.counter_power_w,
        idle_power_w=conditions.idle_power_w,
        power_limit_w=window.power_limit_w,
        sm_clock_mhz=window.sm_clock_mhz,
        memory_clock_mhz=window.memory_clock_mhz,
        temperature_c=window.temperature_c,
        throttled=None if window.throttle_reasons is None else bool(window.throttle_reasons),
        settle_s=window.settle_s,
        window_s=window.window_s,
        started_at=window.started_at,
        flags=flags_of(taken, conditions),
        **asdict(window.counters),
        **asdict(taken.usage),
    )


def flags_of(taken: Taken, conditions: Conditions) -> tuple[str, ...]:
    """What was wrong with a window, in the words of `advisor.flags.FLAGS`."""
    window, target = taken.window, conditions.rules.target
    counters = window.counters
    wrong = {
        "noisy-rate": _noisy(taken.rate, target),
        "noisy-power": window.power is not None and _noisy(window.power, target),
        "not-settled": not window.settled,
        "throttled": bool(window.throttle_reasons),
        "counter-mismatch": abs(window.counter_gap or 0) > COUNTER_BOUND,
        "counters-missing": any(getattr(counters, name) is None for name in _MODEL_COUNTERS),
        "cpu-bound": _cpu_bound(counters, taken, conditions.gpu),
        "cpu-steal": (taken.usage.cpu_steal_percent or 0) > 1,
    }
    return tuple(flag for flag, holds in wrong.items() if holds)


def _noisy(estimate: Estimate, target: float) -> bool:
    return estimate.relative is None or estimate.relative > target


def _cpu_bound(counters: Counters, taken: Taken, gpu: Gpu) -> bool:
    """SM activity is relative to the whole GPU, so it is compared with the granted part."""
    active, cpu = counters.sm_active_percent, taken.usage.job_cpu_percent
    if active is None or cpu is None or not taken.granted.units or not gpu.units_total:
        return False
    return cpu >= 90 and active < 70 * taken.granted.units / gpu.units_total
