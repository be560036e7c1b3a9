"""Whether power and rates have settled: both halves of a view agree."""

from collections.abc import Sequence

from advisor_profiling.window.estimate import MeanEstimate, mean_estimate, rate_estimate

Readings = Sequence[tuple[float, float]]
"""(time_s, value) each."""


def is_flat(
    power: Readings, of_jobs: Sequence[Readings], view: tuple[float, float], flat: float
) -> bool:
    """Whether power and every rate are alike in both halves of a view.

    Args:
        power: Watts.
        of_jobs: Of each job its total progress whenever that changed, since before the view.
        view: When it begins and ends, s.
        flat: Largest relative difference of the halves.
    """
    middle_s = sum(view) / 2
    halves = ((view[0], middle_s), (middle_s, view[1]))
    old_power, new_power = (mean_estimate(_between(power, *half)) for half in halves)
    return _alike(old_power, new_power, flat) and all(
        _steady(events, halves, flat) for events in of_jobs
    )


def _steady(all_events: Readings, halves: Sequence[tuple[float, float]], flat: float) -> bool:
    events = [_between(all_events, *half) for half in halves]
    if min(map(len, events)) < 3:
        # Too few steps in the view to see the rate move: any progress at all will do.
        return len(all_events) > 1
    old_rate, new_rate = map(rate_estimate, events)
    return _alike(old_rate, new_rate, flat)


def _alike(first: MeanEstimate | None, second: MeanEstimate | None, flat: float) -> bool:
    if first is None or second is None:
        return first is second
    noise = 2 * ((first.stderr or 0) ** 2 + (second.stderr or 0) ** 2) ** 0.5
    return abs(second.mean - first.mean) <= max(flat * abs(second.mean), noise)


def _between(readings: Readings, start_s: float, end_s: float) -> list[tuple[float, float]]:
    return [reading for reading in readings if start_s <= reading[0] < end_s]
