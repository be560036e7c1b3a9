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
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
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
    energy_j: float, duration_s: float, idle_power_w: float | None, loads: Sequence[Load]
) -> list[float]:
    """The part of each job, J; together they are `energy_j`, for any jobs but none.

    Args:
        energy_j: Of the GPU in that time.
        duration_s: The time.
        idle_power_w: Of the GPU when nobody computes; None: not known.
        loads: The jobs that were on it.

    Where the use of one of them is not known, or nobody made progress, all is divided by SMs.
    """
    by_size = [load.units for load in loads]
    if not loads:
        return []
    uses = [_use_w(load, idle_power_w) for load in loads]
    known = [use for use in uses if use is not None]
    if idle_power_w is None or len(known) < len(uses) or not sum(known):
        return _in_proportion(energy_j, by_size)
    idle_j = min(energy_j, idle_power_w * duration_s)
    of_idle = _in_proportion(idle_j, by_size)
    of_rest = _in_proportion(energy_j - idle_j, known)
    return [idle + rest for idle, rest in zip(of_idle, of_rest, strict=True)]


def _use_w(load: Load, idle_power_w: float | None) -> float | None:
    if load.relative_speed is None or load.solo_power_w is None or idle_power_w is None:
        return None
    return max(0.0, load.relative_speed) * max(0.0, load.solo_power_w - idle_power_w)


def _in_proportion(total: float, weights: Sequence[float]) -> list[float]:
    return [total * (weight / sum(weights)) for weight in weights]
