"""When a window begins and when it ends."""

from dataclasses import dataclass, replace

from advisor.errors import InputError
from advisor.validity.sensor_record import PowerTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRules:
    """When a window begins and ends.

    Attributes:
        least_s: Shortest window.
        most_s: Longest window; it ends then, whatever the error. Only for a job that has made fewer
            than three steps by then it goes on, up to four times as long.
        target: Relative standard error of rate and of power at which a window may end.
        settle_least_s: Shortest time between opening the gate and the window.
        sensor_lag_s: What is shown of power in so long after a change of load is of the time
            before, too, and not looked at; 0 where that is not known of the card.
        settle_most_s: The window begins then even if power or rate still moves; it is flagged.
        flat: Largest relative difference of the two halves of the settling view.
        idle_s: Time over which idle power is measured.
        poll_s: Time between two looks at the progress.
        results_only: The window is only as long as it takes to read the job's results; it is
            flagged, and its rates are never used.
    """

    least_s: float = 2.0
    most_s: float = 8.0
    target: float = 0.01
    settle_least_s: float = 1.5
    sensor_lag_s: float = 0.0
    settle_most_s: float = 20.0
    flat: float = 0.015
    idle_s: float = 2.0
    poll_s: float = 0.002
    results_only: bool = False


RESULTS_ONLY = WindowRules(
    least_s=1.0, most_s=1.0, settle_least_s=0.0, settle_most_s=0.2, idle_s=0.5, results_only=True
)
"""For what a job reports, not for how fast it is."""


SETS = WindowRules(least_s=4.0, most_s=5.0, settle_least_s=2.0, settle_most_s=3.0)
"""For three jobs and more: 6.5 s a window. A server of 34 requests a second has more than a hundred
of them in its tail, and rates that wait for the host are not flat however long one waits."""


def rules_for(
    window_s: float | None = None,
    timing: PowerTiming | None = None,
    default: WindowRules = WindowRules(),
) -> WindowRules:
    """Rules for windows of at most `window_s`; one below 2 s shortens all other waits with it.

    What is known of the card's sensor says how long power settles, else a wait for all sensors.

    Raises:
        InputError: a window of that length holds too few readings of this sensor.
    """
    window_s = default.most_s if window_s is None else window_s
    rules = WindowRules(
        least_s=min(default.least_s, window_s),
        most_s=window_s,
        settle_least_s=min(default.settle_least_s, window_s),
        settle_most_s=min(default.settle_most_s, 10 * window_s),
        idle_s=min(default.idle_s, window_s),
    )
    return rules if timing is None else _timed(rules, timing)


def _timed(rules: WindowRules, timing: PowerTiming) -> WindowRules:
    if rules.most_s < timing.shortest_window_s:
        raise InputError(
            f"a window of {rules.most_s:g} s is too short for the power sensor of this card",
            why="it would hold fewer than eight readings (docs/power.md)",
            fix=f"give --window {timing.shortest_window_s:.1f} or more",
        )
    settle_least_s = timing.shown_s + timing.shortest_window_s
    return replace(
        rules,
        least_s=max(rules.least_s, timing.shortest_window_s),
        settle_least_s=settle_least_s,
        settle_most_s=max(rules.settle_most_s, 2 * settle_least_s),
        sensor_lag_s=timing.shown_s,
        idle_s=max(rules.idle_s, timing.shortest_window_s),
    )
