"""Which part of a GPU's energy is whose, where several jobs share it. Pure.

No sensor reads the power of one process, so this is a rule of accounting, not a measurement:

- What the GPU draws when nobody computes is there for all: it is divided by the SMs that each job
  holds, whether or not it uses them.
- What is above that is divided by what each job would draw above idle if it ran alone as fast as it
  does now: its relative speed times (its power alone on the whole GPU minus the idle power).

Constant power by size, the rest by use, is how Kepler divides a host's power among processes,
after the GHG Protocol (Amaral et al., "Kepler: A Framework to Calculate the Energy Consumption of
Containerized Applications", IEEE CLOUD 2023). That energy per step changes little with the speed is
our assumption; at other clocks and with other neighbours it does change.

How much it changes is seen of all jobs together: what is above idle is more or less than the sum of
what they would draw alone. The rule divides that difference as it divides the rest. The bounds of a
job are those of giving it all of the difference, or none; nobody can say more without running each
job alone at that speed. They know nothing of errors of the profiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.core.observations import Observation, ObservedPart


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

    Idle power is that of the GPU when nobody computes; None: not known. Where the use of one of the
    jobs is not known, or nobody made progress, all is divided by SMs, and the bounds are no more
    than what must be: idle power by SMs, and all else anybody's. One alone has all of it.
    """
    if len(loads) == 1:
        return [Interval(energy_j, energy_j, energy_j)]
    by_size = [load.units for load in loads]
    idle_j = min(energy_j, (idle_power_w or 0.0) * duration_s)
    of_idle, rest_j = _in_proportion(idle_j, by_size), energy_j - idle_j
    uses_w = [_use_w(load, idle_power_w) for load in loads]
    known_j = [use * duration_s for use in uses_w if use is not None]
    if len(known_j) < len(loads) or not sum(known_j):
        values = _in_proportion(energy_j, by_size)
        ends = [(0.0, rest_j)] * len(loads)
    else:
        of_rest = _in_proportion(rest_j, known_j)
        values = [idle + rest for idle, rest in zip(of_idle, of_rest, strict=True)]
        ends = [_ends_j(use_j, rest_j, sum(known_j)) for use_j in known_j]
    return [
        _bounded(value, idle + low, idle + high)
        for value, idle, (low, high) in zip(values, of_idle, ends, strict=True)
    ]


def with_job_energy(seen: Observation, idle_power_w: float | None) -> Observation:
    """The observation with the part of its energy that is each job's, where it has any energy."""
    if seen.energy_j is None:
        return seen
    loads = [_load(part, seen.units_total) for part in seen.parts]
    found = divide_energy(seen.energy_j, seen.overlap_s, idle_power_w, loads)
    parts = (
        replace(part, energy_j=j.value, energy_low_j=j.low, energy_high_j=j.high)
        for part, j in zip(seen.parts, found, strict=True)
    )
    return replace(seen, parts=tuple(parts))


def _load(part: ObservedPart, units_total: int | None) -> JobLoad:
    known = part.rate is not None and part.solo_rate
    return JobLoad(
        units=part.units or part.share_percent / WHOLE * (units_total or WHOLE),
        relative_speed=(part.rate or 0.0) / part.solo_rate if known and part.solo_rate else None,
        solo_power_w=part.solo_power_w,
    )


def _use_w(load: JobLoad, idle_power_w: float | None) -> float | None:
    if load.relative_speed is None or load.solo_power_w is None or idle_power_w is None:
        return None
    return max(0.0, load.relative_speed) * max(0.0, load.solo_power_w - idle_power_w)


def _ends_j(use_j: float, rest_j: float, all_j: float) -> tuple[float, float]:
    """What a job is charged above idle with none and with all of the difference."""
    ends = use_j, use_j + rest_j - all_j
    return max(0.0, min(ends)), min(rest_j, max(ends))


def _bounded(value: float, low: float, high: float) -> Interval:
    # Rounding: a value that is its own bound.
    return Interval(value, min(value, low), max(value, high))


def _in_proportion(total: float, weights: Sequence[float]) -> list[float]:
    return [total * (weight / sum(weights)) for weight in weights]
