"""What `/metrics` shows of the launches of this host, made of their folders.

Launches and forecasts are counted from the folders that are there, so a restart neither loses nor
repeats any. Energy is counted from 0 as it is stored: folders are removed in time, and a counter
that went down with them would look like new energy.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from advisor.core.records import (
    JUDGE_S,
    LIMIT_BROKEN,
    SETTLE_S,
    WRONG,
    Observation,
    is_far,
)
from advisor.launch.spec import Forecast, JobStatus, LaunchSpec, LaunchStatus, State
from advisor_api.http.gate import family

_QUANTITIES = ("rate", "power", "work_per_joule")

MOST_JOBS = 500
"""Names of jobs whose energy is told apart; that of further ones counts as `other`."""


class LaunchMetrics(Collector):
    """Launches by state, work per joule of those that run, and forecasts that were missed.

    Attributes:
        complete: Everything that was there has been counted; a part of it would look like new
            events.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states = dict[str, State]()
        self._running = dict[str, LaunchStatus]()
        self._silent = set[str]()
        self._judged, self._missed = Counter[str](), Counter[str]()
        self._used_j, self._saved_j, self._lost_j, self._of_jobs_j, self._counted_j = (
            defaultdict[str, float](float) for _ in range(5)
        )
        self.complete = False

    def set_status(self, status: LaunchStatus) -> None:
        """Take note of where a launch stands."""
        with self._lock:
            self._states[status.launch_id] = status.state
            is_silent = status.silent_s is not None
            (self._silent.add if is_silent else self._silent.discard)(status.launch_id)
            self._begin_counters(status)
            # What is old is shown to nobody as what a GPU does now.
            if status.state == "running" and not is_silent:
                self._running[status.launch_id] = status
            else:
                self._running.pop(status.launch_id, None)

    def _begin_counters(self, status: LaunchStatus) -> None:
        """From 0, as far as it is known of what: else nobody sees the first value as a growth."""
        if status.gpu_uuid is not None:
            for by_gpu in (self._used_j, self._saved_j, self._lost_j):
                by_gpu[status.gpu_uuid] += 0.0
        for job in status.jobs:
            self._of_jobs_j[self._label(job.job)] += 0.0
        if status.over:
            self._counted_j.pop(status.launch_id, None)

    def _label(self, job: str) -> str:
        return job if job in self._of_jobs_j or len(self._of_jobs_j) < MOST_JOBS else "other"

    def score(self, observation: Observation, spec: LaunchSpec) -> None:
        """Hold what a pair did against what was expected of it; called once for each pair."""
        forecast = None if observation.stretch else _forecast_of(observation, spec)
        if forecast is None or observation.overlap_s < SETTLE_S + JUDGE_S:
            return
        rates = {interval.value: interval for interval in (job.rate for job in forecast.jobs)}
        with self._lock:
            for quantity, observed, expected in (
                *(
                    ("rate", part.rate, rates.get(part.predicted_rate or 0.0))
                    for part in observation.parts
                ),
                ("power", observation.power_w, forecast.power_w),
                ("work_per_joule", observation.work_per_joule, forecast.work_per_joule),
            ):
                if observed is not None and expected is not None:
                    self._judged[quantity] += 1
                    self._missed[quantity] += is_far(observed, expected)

    def count_energy(self, observation: Observation) -> None:
        """Add what jobs took together, and saved or lost by it; called once for each launch."""
        used_j, apart_j = observation.energy_to_end_j, observation.energy_apart_j
        # What those took who were left after an end is in the first stretch, too.
        if observation.stretch or used_j is None:
            return
        with self._lock:
            self._used_j[observation.gpu_uuid] += used_j
            # Wrong results, or work beyond a broken limit, are nothing that was done cheaper.
            if apart_j is not None and not ({*observation.flags} & (WRONG | {LIMIT_BROKEN})):
                self._saved_j[observation.gpu_uuid] += max(0.0, apart_j - used_j)
                self._lost_j[observation.gpu_uuid] += max(0.0, used_j - apart_j)
                if observation.launch_id in self._running:
                    self._counted_j[observation.launch_id] += apart_j - used_j
            for part in observation.parts:
                self._of_jobs_j[self._label(part.job)] += part.energy_j or 0.0

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks for."""
        with self._lock:
            states = Counter[str](self._states.values())
            running, silent = list(self._running.values()), len(self._silent)
            judged, missed = Counter(self._judged), Counter(self._missed)
            energies = [dict(energy) for energy in (self._used_j, self._saved_j, self._lost_j)]
            of_jobs_j, counted_j = dict(self._of_jobs_j), dict(self._counted_j)
        counted = get_args(State) if self.complete else ()
        yield _gauge("launches", "Launches of this host", "state", {s: states[s] for s in counted})
        yield GaugeMetricFamily(
            "advisor_launches_silent",
            "Launches of this host that have not ended, and were not heard of for 10 s",
            value=silent,
        )
        yield from (
            _gauge(name, text, "gpu", {launch.gpu_uuid: value_of(launch) for launch in running})
            for name, text, value_of in _OF_RUNNING
        )
        so_far = "Energy that the launch on a GPU saved so far, without sets that have ended, J"
        yield _gauge("running_energy_saved_joules", so_far, "gpu", {
            launch.gpu_uuid: ledger.alone_j - ledger.energy_j - counted_j.get(launch.launch_id, 0.0)
            for launch in running if (ledger := launch.ledger)
        })  # fmt: skip
        for name, text, of_job in _OF_JOBS:
            values = (
                ((launch.gpu_uuid, job.job, str(slot)), of_job(launch, job))
                for launch in running
                for slot, job in enumerate(launch.jobs)  # which tells copies apart
                if job.outcome == "running"
            )
            yield family(GaugeMetricFamily, name, text, ("gpu", "job", "slot"), values)
        yield from (
            _counter(name, text, "gpu", by_gpu)
            for (name, text), by_gpu in zip(_ENERGIES, energies, strict=True)
        )
        yield _counter(
            "job_energy_joules",
            "Part of the energy of launches that have ended which is a job's, by a rule, J",
            "job",
            of_jobs_j,
        )
        quantities = _QUANTITIES if self.complete else ()
        for name, text, counts in (
            ("judged", "Forecasts of pairs that have ended", judged),
            ("missed", "Those that were far off", missed),
        ):
            of = {quantity: counts[quantity] for quantity in quantities}
            yield _counter(f"forecasts_{name}", text, "quantity", of)


def _by(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    text: str,
    label: str,
    values: Mapping[str, float] | Mapping[str | None, float | None],
) -> Metric:
    return family(kind, name, text, (label,), (((of,), value) for of, value in values.items()))


_gauge, _counter = partial(_by, GaugeMetricFamily), partial(_by, CounterMetricFamily)


_WORK_PER_JOULE = "Sum of relative speeds per watt of the launch that runs on a GPU, 1/J"

_SAVED = "Energy saved for the same work by the launch on a GPU, against one after the other, part"


def _predicted_speed(launch: LaunchStatus, job: JobStatus) -> float | None:
    """Relative, by what is expected of the rate beside those that run now."""
    if job.predicted_rate is None:
        return None
    if job.rate and job.relative_speed:
        return job.predicted_rate.value * job.relative_speed / job.rate
    # One that stands still: what it does alone is known of those that began together.
    forecasts = launch.forecast.jobs if launch.forecast else ()
    if len(forecasts) != len(launch.jobs):
        return None
    return job.predicted_rate.value / forecasts[launch.jobs.index(job)].solo_rate


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


_OF_JOBS: tuple[tuple[str, str, Callable[[LaunchStatus, JobStatus], float | None]], ...] = (
    (
        "observed_relative_speed",
        "Rate of a job that runs over its rate alone on the whole GPU",
        lambda _, job: job.relative_speed,
    ),
    ("predicted_relative_speed", "The same, as forecast", _predicted_speed),
    (
        "speed_drift",
        "Mean rate of a job over the last five minutes, over what is promised",
        lambda _, job: job.drift and job.drift.ratio,
    ),
    ("speed_drift_low", "Least that is promised", lambda _, job: job.drift and job.drift.low),
    ("speed_drift_high", "Most that is promised", lambda _, job: job.drift and job.drift.high),
    (
        "observed_latency_p99_seconds",
        "99th percentile of the time to answer a request, s",
        lambda _, job: _seconds(job.latency_p99_ms),
    ),
    (
        "arriving_requests_per_second",
        "What arrives at a server of late, where that is another demand than it declares",
        lambda _, job: job.demand,
    ),
    (
        "promised_latency_p99_seconds",
        "Longest that it may be, s",
        lambda _, job: _seconds(job.max_p99_ms),
    ),
)

_ENERGIES = (
    ("energy_joules", "Energy of launches that have ended, J"),
    ("energy_saved_joules", "Energy that they saved for the same work, one after the other, J"),
    ("energy_lost_joules", "Energy that they took more than that, where they did, J"),
)

_OF_RUNNING: tuple[tuple[str, str, Callable[[LaunchStatus], float | None]], ...] = (
    ("observed_work_per_joule", _WORK_PER_JOULE, lambda launch: launch.work_per_joule),
    (
        "predicted_work_per_joule",
        f"{_WORK_PER_JOULE}, as forecast",
        lambda launch: launch.forecast and launch.forecast.work_per_joule.value,
    ),
    (
        "launch_speed_drift",
        "Mean of the drifts of the jobs of the launch that runs on a GPU",
        lambda launch: launch.speed_drift and launch.speed_drift.ratio,
    ),
    (
        "launch_work_per_joule_drift",
        "Work per joule of the launch so far, over what is promised",
        lambda launch: launch.work_drift and launch.work_drift.ratio,
    ),
    (
        "observed_power_watts",
        "Power of a GPU on which a launch runs, W",
        lambda launch: launch.power_w,
    ),
    (
        "predicted_power_watts",
        "The same, as forecast, W",
        lambda launch: launch.predicted_power_w and launch.predicted_power_w.value,
    ),
    (
        "running_energy_joules",
        "Energy so far of the jobs that run on a GPU, J; it is counted when they end",
        # Of the set that runs; those before it are counted.
        lambda launch: (
            None if launch.energy_j is None else launch.energy_j + (launch.rest_energy_j or 0.0)
        ),
    ),
    ("observed_energy_saved", _SAVED, lambda launch: launch.energy_saved),
    (
        "predicted_energy_saved",
        f"{_SAVED}, as forecast",
        lambda launch: (
            launch.forecast and launch.forecast.energy_saved and launch.forecast.energy_saved.value
        ),
    ),
)


def _forecast_of(observation: Observation, spec: LaunchSpec) -> Forecast | None:
    """The forecast that the observation was made beside; its jobs may stand the other way round."""
    for pair in spec.pairs:
        names = tuple(sorted(job.name for job in pair.jobs))
        expected = pair.forecast and pair.forecast.work_per_joule.value
        if names == observation.jobs and expected == observation.predicted_work_per_joule:
            return pair.forecast
    return None
