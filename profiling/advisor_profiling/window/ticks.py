"""The moment at which an energy counter changes, which it does every 0.1 s or so."""

from collections.abc import Callable
from dataclasses import dataclass

from advisor.core.telemetry import ENERGY_GPU, TelemetrySource

_MOST_S = 0.05
"""A change within so long of the look before: at both ends 2.5 % of 2 s at most."""


@dataclass(frozen=True, slots=True)
class CounterTick:
    """A change of the energy counter: when it was, as near as it was looked, and its new value."""

    at_s: float
    energy_j: float


def next_tick(
    source: TelemetrySource,
    now_s: Callable[[], float],
    within_s: float,
    meanwhile: Callable[[], object],
) -> CounterTick | None:
    """The next change that is seen at once; None where none is within that time.

    One that nobody saw for long, as on a busy host that stops this process, has no moment.

    Args:
        source: Of the counter.
        now_s: A clock, s.
        within_s: How long it is waited for.
        meanwhile: Called between two looks, and lets some time pass.
    """
    most_s = max(_MOST_S, source.interval_s / 10)  # an exporter answers as slowly as that
    since_s = now_s()
    end_s, stood_j = since_s + within_s, energy_j(source)
    while stood_j is not None and now_s() < end_s:
        meanwhile()
        looked_s = now_s()
        if (stands_j := energy_j(source)) is None:
            continue
        if stands_j != stood_j and (seen_s := now_s()) - since_s <= most_s:
            return CounterTick((since_s + seen_s) / 2, stands_j)
        stood_j, since_s = stands_j, looked_s
    return None


def energy_j(source: TelemetrySource) -> float | None:
    """What its counter stands at."""
    return source.read((ENERGY_GPU,))[ENERGY_GPU]
