"""Whether what is observed is what was predicted."""

from collections.abc import Iterator

from advisor.core.interval import Interval
from advisor.core.observations import JUDGE_S, is_far
from advisor.launch.monitor.set_monitor import SetMonitor
from advisor.launch.records.spec import Forecast, LaunchSet


class ForecastCheck:
    """Says once of each quantity that it is far from its prediction."""

    def __init__(self, pair: LaunchSet) -> None:
        self._pair = pair
        self._said = set[str]()

    def warnings(self, monitor: SetMonitor) -> list[str]:
        """What is to be said now."""
        forecast = self._pair.forecast
        if forecast is None or monitor.settled_s() < JUDGE_S:
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
    objective_value, per_kw = monitor.settled_work_per_joule(), 1000.0
    rates = [
        (f"rate of {job.name}", f"{job.progress.unit}/s", rate, expected.rate)
        for job, rate, expected in zip(
            pair.jobs, monitor.settled_rates(), forecast.jobs, strict=True
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
