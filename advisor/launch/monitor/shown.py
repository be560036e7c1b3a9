"""Jobs that run together, as the status of their launch shows them, beside what was predicted."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from advisor.core.interval import Interval
from advisor.core.observations import JUDGE_S, is_far
from advisor.launch.monitor.job_monitor import relative
from advisor.launch.monitor.set_monitor import SetMonitor
from advisor.launch.records.ledger import Ledger, add
from advisor.launch.records.spec import Forecast, LaunchSet
from advisor.launch.records.status import JobStatus


def shown(
    monitor: SetMonitor,
    earlier: Ledger | None = None,
    starts: tuple[float, float] = (0.0, 0.0),
    unwatched_s: float = 0.0,
) -> dict[str, Any]:
    """Fields of a status.

    What is a mean over the last seconds goes with the last job, and what is one over the whole
    time stays.

    Args:
        monitor: Of the set that runs now.
        earlier: Of the sets of the launch that are over.
        starts: Seconds and joules of the start of this set.
        unwatched_s: Of the sets that are over.
    """
    account = monitor.account
    ledger = None if monitor.is_void else account.ledger()
    if ledger is not None:
        ledger = replace(ledger, starts_s=starts[0], starts_j=starts[1])
    return {
        "jobs": tuple(_job(monitor, n) for n in range(len(monitor.jobs))),
        "power_w": None if monitor.over else account.power_w(),
        "mean_power_w": account.settled_power_w(),
        "predicted_power_w": monitor.expected_power_w,
        "energy_j": account.energy_j,
        "work_per_joule": monitor.work_per_joule(),
        "energy_saved": None if monitor.over else account.recent_energy_saved(),
        "mean_energy_saved": account.mean_energy_saved(),
        "ledger": add(earlier, ledger),
        "unwatched_s": unwatched_s + account.unwatched_s,
        "overlap_s": account.overlap_s,
        "rest_s": account.rest_s,
        "rest_energy_j": account.rest_energy_j,
        "stranded_unit_s": account.stranded_unit_s,
    }


def _job(monitor: SetMonitor, n: int) -> JobStatus:
    # Those with whom it began or whom it joined: what was predicted is of these.
    stretch = next((one for one in monitor.account.stretches if n in one.numbers), None)
    status = monitor.jobs[n].status()
    if stretch is None:
        return status
    rate = dict(zip(stretch.numbers, stretch.rates(), strict=True))[n]
    return replace(
        status,
        mean_rate=rate,
        mean_speed=relative(rate, monitor.pair.parts[n].solo_rate),
        mean_p99_ms=stretch.latency_ms(n, 99),
    )


class ForecastCheck:
    """Says once of each quantity that it is far from its prediction."""

    def __init__(self, pair: LaunchSet) -> None:
        self._pair = pair
        self._said = set[str]()

    def warnings(self, monitor: SetMonitor) -> list[str]:
        """What is to be said now."""
        forecast = self._pair.forecast
        if forecast is None or monitor.account.stretches[0].settled_s() < JUDGE_S:
            return []
        new = [
            (name, text)
            for name, text in _far_ones(self._pair, forecast, monitor)
            if name not in self._said
        ]
        self._said.update(name for name, _ in new)
        return [text for _, text in new]


def _far_ones(
    pair: LaunchSet, forecast: Forecast, monitor: SetMonitor
) -> Iterator[tuple[str, str]]:
    objective_value, per_kw = monitor.account.settled_work_per_joule(), 1000.0
    rates = [
        (f"rate of {job.name}", f"{job.progress.unit}/s", rate, expected.rate)
        for job, rate, expected in zip(
            pair.jobs, monitor.account.stretches[0].rates(), forecast.jobs, strict=True
        )
    ]
    once = len({job.name for job in pair.jobs}) == len(pair.jobs)
    for name, unit, observed, predicted in (
        *rates,
        ("power", "W", monitor.account.settled_power_w(), forecast.power_w),
        (
            "work per joule",
            "per kJ",
            None if objective_value is None else objective_value * per_kw,
            forecast.work_per_joule.times(per_kw),
        ),
    ):
        if observed is not None and is_far(observed, predicted):
            key = name if once else f"{name} {predicted}"
            yield key, _text(f"{name} is {observed:.4g} {unit}", observed, predicted)


def _text(said: str, observed: float, predicted: Interval) -> str:
    expected = f"{predicted.value:.4g} ({predicted.low:.4g} to {predicted.high:.4g})"
    off = f"{observed / predicted.value - 1:+.0%} against" if predicted.value else "far from"
    return f"{said}, {off} the prediction of {expected}"
