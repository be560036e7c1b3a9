"""What `/metrics` shows of the launches of this host, made of their folders.

Everything is counted from the folders that are there, so a restart neither loses nor repeats
anything, and several services on one host show the same numbers.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from advisor.core.interval import Interval
from advisor.core.observations import JUDGE_S, SETTLE_S, Observation, is_far
from advisor.launch.records.spec import Forecast, LaunchSpec
from advisor.launch.records.status import LaunchStatus, State

_QUANTITIES = ("rate", "power", "work_per_joule")


class LaunchMetrics(Collector):
    """Launches by state, work per joule of those that run, and forecasts that were missed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states = dict[str, State]()
        self._running = dict[str, LaunchStatus]()
        self._silent = set[str]()
        self._judged, self._missed = Counter[str](), Counter[str]()
        self._complete = False

    def mark_complete(self) -> None:
        """Everything that was there has been counted; a part of it would look like new events."""
        self._complete = True

    def set_status(self, status: LaunchStatus) -> None:
        """Take note of where a launch stands."""
        with self._lock:
            self._states[status.launch_id] = status.state
            if status.silent_s is not None:
                self._silent.add(status.launch_id)
            else:
                self._silent.discard(status.launch_id)
            # What is old is shown to nobody as what a GPU does now.
            if status.state == "running" and status.silent_s is None:
                self._running[status.launch_id] = status
            else:
                self._running.pop(status.launch_id, None)

    def score(self, seen: Observation, spec: LaunchSpec) -> None:
        """Hold what a pair did against what was expected of it; called once for each pair."""
        forecast = None if seen.stretch else _forecast_of(seen, spec)
        if forecast is None or seen.overlap_s < SETTLE_S + JUDGE_S:
            return
        with self._lock:
            for quantity, observed, expected in _compared(seen, forecast):
                self._judged[quantity] += 1
                self._missed[quantity] += is_far(observed, expected)

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks for."""
        with self._lock:
            states = Counter[str](self._states.values())
            running, silent = list(self._running.values()), len(self._silent)
            judged, missed = Counter(self._judged), Counter(self._missed)
        counted = get_args(State) if self._complete else ()
        yield _gauge("launches", "Launches of this host", "state", {
            state: float(states[state]) for state in counted
        })  # fmt: skip
        yield GaugeMetricFamily("advisor_launches_silent", _SILENT, value=silent)
        for name, text, value_of in _OF_RUNNING:
            yield _gauge(name, text, "gpu", {one.gpu_uuid: value_of(one) for one in running})
        quantities = _QUANTITIES if self._complete else ()
        for name, text, counts in (
            ("judged", "Forecasts of pairs that have ended", judged),
            ("missed", "Those that were far off", missed),
        ):
            family = CounterMetricFamily(f"advisor_forecasts_{name}", text, labels=("quantity",))
            for quantity in quantities:
                family.add_metric((quantity,), counts[quantity])
            yield family


_SILENT = "Launches of this host that have not ended, and were not heard of for 10 s"

_WORTH = "Sum of relative speeds per watt of the launch that runs on a GPU, 1/J"

_SAVED = "Energy saved for the same work by the launch on a GPU, against one after the other, part"


def _predicted(one: LaunchStatus) -> float | None:
    return one.forecast and one.forecast.work_per_joule.value


def _predicted_saved(one: LaunchStatus) -> float | None:
    return one.forecast and one.forecast.energy_saved and one.forecast.energy_saved.value


_OF_RUNNING: tuple[tuple[str, str, Callable[[LaunchStatus], float | None]], ...] = (
    ("observed_work_per_joule", _WORTH, lambda one: one.work_per_joule),
    ("predicted_work_per_joule", f"{_WORTH}, as forecast", _predicted),
    ("observed_energy_saved", _SAVED, lambda one: one.energy_saved),
    ("predicted_energy_saved", f"{_SAVED}, as forecast", _predicted_saved),
)


def _gauge(
    name: str, text: str, label: str, values: dict[str, float] | dict[str | None, float | None]
) -> Metric:
    family = GaugeMetricFamily(f"advisor_{name}", text, labels=(label,))
    for of, value in values.items():
        if of is not None and value is not None:
            family.add_metric((of,), value)
    return family


def _forecast_of(seen: Observation, spec: LaunchSpec) -> Forecast | None:
    """The forecast that the observation was made beside; its jobs may stand the other way round."""
    for pair in spec.pairs:
        names = tuple(sorted(job.name for job in pair.jobs))
        expected = pair.forecast and pair.forecast.work_per_joule.value
        if names == seen.jobs and expected == seen.predicted_work_per_joule:
            return pair.forecast
    return None


def _compared(seen: Observation, forecast: Forecast) -> Iterator[tuple[str, float, Interval]]:
    rates = {interval.value: interval for interval in (job.rate for job in forecast.jobs)}
    for quantity, observed, expected in (
        *(("rate", part.rate, rates.get(part.predicted_rate or 0.0)) for part in seen.parts),
        ("power", seen.power_w, forecast.power_w),
        ("work_per_joule", seen.work_per_joule, forecast.work_per_joule),
    ):
        if observed is not None and expected is not None:
            yield quantity, observed, expected
