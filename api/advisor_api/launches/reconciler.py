"""Keeps the rows of this home's launches up to date, and finishes what a killed server left half.

A thread of the service, which looks about once a second. Everything it does is right however often
it is done, so the next service of the home goes on where one was killed. Another looks once a
minute whether jobs drift: for advice, the audit log and `/metrics`.

What `/metrics` shows of launches is made of their folders. Launches and forecasts are counted from
the folders that are there, so a restart neither loses nor repeats any. Energy is counted from 0 as
it is stored: folders are removed in time, and a counter that went down with them would look like
new energy.
"""

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import get_args

from opentelemetry import trace
from prometheus_client import Gauge
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
from advisor.errors import AdvisorError, BusyError, InputError, StoreError
from advisor.formats.moments import now, to_text
from advisor.formats.rows import from_row, json_row
from advisor.formats.wire import write
from advisor.launch.folder import (
    LaunchFolder,
    close_unclaimed,
    list_folders,
    observation_lines,
)
from advisor.launch.guard import Stopping
from advisor.launch.spec import (
    Forecast,
    JobStatus,
    LaunchSpec,
    LaunchStatus,
    State,
    as_heard,
)
from advisor_advice.conditions import checks_of, experience_of
from advisor_api.http.routing import LOG, family
from advisor_api.launches.launching import (
    current_status,
    fail,
    keep_status,
    launches_folder,
    row_of,
    start_supervisor,
)
from advisor_api.otlp import tell_metrics
from advisor_api.service import Service, looking
from advisor_data import Store
from advisor_data.lists import Span
from advisor_data.state import AuditEntry, LaunchRow, clean_launches

_QUANTITIES = ("rate", "power", "work_per_joule")

# Energy is counted by job name for so many names; jobs of further names count as `other`.
_MOST_JOBS = 500


class LaunchMetrics(Collector):
    """Launches by state, work per joule of those that run, and forecasts that were missed.

    Attributes:
        complete: Everything that was there has been counted; a part of it would look like new
            events.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states = dict[str, State]()
        self._going = dict[str, LaunchStatus]()
        self._judged, self._missed = Counter[str](), Counter[str]()
        self._used_j, self._saved_j, self._lost_j, self._of_jobs_j, self._counted_j = (
            defaultdict[str, float](float) for _ in range(5)
        )
        self.complete = False

    def set_status(self, status: LaunchStatus) -> None:
        """Take note of where a launch stands."""
        with self._lock:
            self._states[status.launch_id] = status.state
            # Counters begin at 0, so that Prometheus sees the first value as an increase.
            if status.gpu_uuid is not None:
                for by_gpu in (self._used_j, self._saved_j, self._lost_j):
                    by_gpu[status.gpu_uuid] += 0.0
            for job in status.jobs:
                self._of_jobs_j[self._label(job.job)] += 0.0
            self._going[status.launch_id] = status
            if status.over:
                for table in (self._going, self._counted_j):
                    table.pop(status.launch_id, None)

    def _label(self, job: str) -> str:
        return job if job in self._of_jobs_j or len(self._of_jobs_j) < _MOST_JOBS else "other"

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
        # Energy of the jobs left after an end is in the first stretch, too.
        if observation.stretch or used_j is None:
            return
        with self._lock:
            self._used_j[observation.gpu_uuid] += used_j
            # Wrong results, or work beyond a broken limit, are nothing that was done cheaper.
            if apart_j is not None and not ({*observation.flags} & (WRONG | {LIMIT_BROKEN})):
                self._saved_j[observation.gpu_uuid] += max(0.0, apart_j - used_j)
                self._lost_j[observation.gpu_uuid] += max(0.0, used_j - apart_j)
                if observation.launch_id in self._going:
                    self._counted_j[observation.launch_id] += apart_j - used_j
            for part in observation.parts:
                self._of_jobs_j[self._label(part.job)] += part.energy_j or 0.0

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks for."""
        with self._lock:
            states = Counter[str](self._states.values())
            # Who looks may wait for a database meanwhile: what was written then grows old here.
            heard = [one for one in self._going.values() if as_heard(one).silent_s is None]
            silent = len(self._going) - len(heard)
            judged, missed = Counter(self._judged), Counter(self._missed)
            energies = [dict(energy) for energy in (self._used_j, self._saved_j, self._lost_j)]
            of_jobs_j, counted_j = dict(self._of_jobs_j), dict(self._counted_j)
        # Old values are not shown as the present ones of a GPU.
        running = [launch for launch in heard if launch.state == "running"]
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
        yield _gauge(
            "running_energy_saved_joules",
            "Energy that the launch on a GPU saved so far, without sets that have ended, J",
            "gpu",
            {
                of.gpu_uuid: ledger.alone_j - ledger.energy_j - counted_j.get(of.launch_id, 0.0)
                for of in running
                if (ledger := of.ledger)
            },
        )
        for name, text, of_job in _OF_JOBS:
            yield family(
                GaugeMetricFamily,
                name,
                text,
                ("gpu", "job", "slot"),
                (
                    ((launch.gpu_uuid, job.job, str(slot)), of_job(launch, job))
                    for launch in running
                    for slot, job in enumerate(launch.jobs)  # which tells copies apart
                    if job.outcome == "running"
                ),
            )
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
            yield _counter(
                f"forecasts_{name}", text, "quantity", {q: counts[q] for q in quantities}
            )


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
        lambda _, job: job.latency_p99_ms and job.latency_p99_ms / 1000,
    ),
    (
        "arriving_requests_per_second",
        "What arrives at a server of late, where that is another demand than it declares",
        lambda _, job: job.demand,
    ),
    (
        "promised_latency_p99_seconds",
        "Longest that it may be, s",
        lambda _, job: job.max_p99_ms and job.max_p99_ms / 1000,
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
    expected = observation.jobs, observation.predicted_work_per_joule
    for pair in spec.pairs:
        work_per_joule = pair.forecast and pair.forecast.work_per_joule.value
        if (tuple(sorted(job.name for job in pair.jobs)), work_per_joule) == expected:
            return pair.forecast
    return None


class ObservationImporter:
    """Those of all launches of this host; the same one may be brought in any number of times."""

    def __init__(self, store: Store, launch_metrics: LaunchMetrics) -> None:
        self._store, self._launch_metrics = store, launch_metrics
        self._counted, self._stored = Counter[str](), Counter[str]()

    def bring_in(self, folder: LaunchFolder) -> None:
        """Bring in the observations of a launch that are new.

        Raises:
            OSError, UnsafeFileError: they cannot be read.
            StoreError: they cannot be stored now.
        """
        launch_id, lines = folder.launch_id, observation_lines(folder)

        def score(observation: Observation) -> None:
            self._launch_metrics.score(observation, folder.read_spec())

        # What cannot be stored now is scored already, and only once.
        for done, take_in in ((self._counted, score), (self._stored, self._keep)):
            for line in lines[done[launch_id] :]:
                if observation := _observation(line, launch_id):
                    take_in(observation)
                done[launch_id] += 1

    def forget(self, launch_id: str) -> None:
        """No more will come of this launch."""
        self._counted.pop(launch_id, None)
        self._stored.pop(launch_id, None)

    def _keep(self, observation: Observation) -> None:
        try:
            if self._store.add([observation]):
                self._launch_metrics.count_energy(observation)
                _trace(observation)
        except InputError as error:
            LOG.error(
                "an observation of the launch %s is no good: %s", observation.launch_id, error
            )


def _trace(observation: Observation) -> None:
    """A span for what ran, from its start to its end; without `--otel` it goes nowhere."""
    begun_ns = int(datetime.fromisoformat(observation.started_at).timestamp() * 1e9)
    readings = {
        "advisor.launch_id": observation.launch_id,
        "advisor.jobs": observation.jobs,
        "advisor.shares_percent": tuple(part.share_percent for part in observation.parts),
        "advisor.state": observation.state,
        "hw.id": observation.gpu_uuid,
        "hw.model": observation.gpu_model,
        "advisor.power_watts": observation.power_w,
        "advisor.energy_joules": observation.energy_to_end_j,
        "advisor.energy_saved_ratio": observation.energy_saved_to_end,
    }
    attributes = {name: value for name, value in readings.items() if value is not None}
    span = trace.get_tracer("advisor").start_span(
        "launch", attributes=attributes, start_time=begun_ns
    )
    span.end(begun_ns + int((observation.overlap_s + (observation.rest_s or 0.0)) * 1e9))


def _observation(line: bytes, launch_id: str) -> Observation | None:
    try:
        return from_row(Observation, json_row(line))
    except InputError as error:
        LOG.error("an observation of the launch %s cannot be read: %s", launch_id, error)
        return None


EVERY_S = 3600.0

# The remover of something, in the audit log.
_WHO = "service"


class Housekeeping:
    """Keeps launch folders and the audit log of a service within their bounds."""

    def __init__(self, service: Service) -> None:
        self._state, self._bounds = service.state, service.settings.retention
        self._root, self._store = launches_folder(service.settings), service.store
        self._next_s = -math.inf
        self._said = set[str]()

    def look(self) -> None:
        """Remove what is beyond its bound, where the last time is an hour ago.

        Raises:
            StoreError: the database does not answer.
            UnsafeFileError: other users may write to the folder of launches.
        """
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        cleaned = clean_launches(self._root, self._bounds, self._store, self._state, _WHO)
        for launch in cleaned.removed:
            LOG.info(
                "the folder of the launch %s, which ended %s, was removed for its %s: %.1f MiB",
                launch.launch_id, launch.ended_at, launch.reason, launch.size_bytes / 2**20,
            )  # fmt: skip
        said = {
            f"the launch {launch.launch_id} is not removed: {launch.why}" for launch in cleaned.kept
        }
        # Once, however often it is looked at.
        for text in sorted(said - self._said):
            LOG.error("%s", text)
        self._said = said
        if math.isinf(self._bounds.audit_days):
            return
        before = to_text(datetime.now(UTC) - timedelta(days=self._bounds.audit_days))
        if count := self._state.prune_audit_log(before, _WHO):
            LOG.info("%s entries of the audit log before %s were removed", count, before)


LOOK_S = 1.0

# Longest time from a request until its folder is made and its supervisor started, however far the
# clock was set back, s.
_HALF_S = 3.0

# Supervisors that are started for a launch before it is given up; each gets longer to begin.
TRIES = 5


class Reconciler:
    """Looks after the launches of this host; starts supervisors where its service may launch."""

    def __init__(self, service: Service, launch_metrics: LaunchMetrics) -> None:
        self._state, self._settings, self._home = service.state, service.settings, service.home
        self._may_start = service.options.launching
        self._root = launches_folder(service.settings)
        self._observations = ObservationImporter(service.store, launch_metrics)
        self._launch_metrics = launch_metrics
        self._housekeeping = Housekeeping(service)
        self._settled = set[str]()
        self._rows = dict[str, LaunchRow]()
        self._started = dict[str, tuple[int, float]]()
        self._first_look_s = dict[str, float]()
        self._stopping = dict[str, Stopping]()
        self._said = dict[str, str]()
        self._lost = False

    def look(self) -> None:
        """One look at everything.

        Raises:
            StoreError: the database does not answer; what is not kept yet is kept at a later look.
        """
        # The rows first: one that is added after it has its turn at the next look.
        self._rows = {
            row.launch_id: row
            for row in self._state.launches(home=self._home, active_only=True, limit=10_000)
        }
        folders = {folder.launch_id: folder for folder in list_folders(self._root)}
        self._settled &= folders.keys()
        there = self._rows.keys() | folders.keys()
        self._first_look_s = {
            launch_id: at_s for launch_id, at_s in self._first_look_s.items() if launch_id in there
        }
        for launch_id in (*(folders.keys() - self._settled), *(self._rows.keys() - folders.keys())):
            try:
                folder = folders.get(launch_id)
                self._keep_folder(folder) if folder else self._keep_row(self._rows[launch_id])
            except StoreError:
                raise
            except (AdvisorError, OSError, ValueError) as error:
                # A launch that cannot be read, or a full disk, holds up no other launch.
                if self._said.get(launch_id) != str(error):
                    self._said[launch_id] = str(error)
                    LOG.error("the launch %s: %s", launch_id, error)

    def look_safely(self) -> None:
        """One look; that the database does not answer is logged once."""
        try:
            self.look()
            self._housekeeping.look()
        except StoreError as error:
            if not self._lost:
                LOG.error("launches go on, but their state cannot be kept: %s", error)
            self._lost = True
        else:
            self._lost = False
            self._launch_metrics.complete = True

    def _keep_row(self, row: LaunchRow) -> None:
        """A row without a folder: its writer was killed at once, or the folder is lost."""
        if row.state != "accepted":
            fail(
                row,
                self._state,
                "supervisor-gone",
                "the folder of the launch is gone, so its result is unknown",
            )
            return
        if self._may_start and not self._is_young(
            row.launch_id, datetime.fromisoformat(row.created_at).timestamp()
        ):
            try:
                start_supervisor(row, self._state, self._settings)
            except InputError as error:
                fail(
                    row,
                    self._state,
                    "internal",
                    f"another version of advisor asked for it: {error}",
                )

    def _keep_folder(self, folder: LaunchFolder) -> None:
        if (row := self._row_of(folder)) is None:
            return
        if row.home != self._home:
            self._settle(folder.launch_id)
            return
        if not folder.claimed():
            self._start_again(folder, row)
        status = current_status(folder)
        self._launch_metrics.set_status(status)
        self._observations.bring_in(folder)
        keep_status(row, status, self._state)
        if folder.stop_requested() and (
            fault := self._stopping.setdefault(folder.launch_id, Stopping(folder)).look(status)
        ):
            LOG.error("%s", fault)
        if status.over:
            self._settle(folder.launch_id)

    def _row_of(self, folder: LaunchFolder) -> LaunchRow | None:
        """The row of a folder; one is made for a launch that the command line began."""
        if row := self._rows.get(folder.launch_id):
            return row
        if not folder.claimed():
            # A command line that was killed before it began: it has no caller.
            return None
        if row := self._state.launch(folder.launch_id):
            return row
        if (status := current_status(folder)).gpu_uuid is None and not status.over:
            # Which GPU it holds is not known yet: kept now, its row would hold none.
            return None
        try:
            spec = folder.read_spec()
            made_at = to_text(datetime.fromtimestamp(_made_at(folder), UTC))
            return self._state.add_launch(
                row_of(
                    spec,
                    current_status(folder),
                    self._home,
                    sha256(write(spec).encode()).hexdigest(),
                    created_at=made_at,
                )
            )
        except BusyError:
            # Only one of them has the GPU; the other one ends at once, and is kept then.
            return None

    def _start_again(self, folder: LaunchFolder, row: LaunchRow) -> None:
        """A folder that no supervisor has claimed: start one, unless one may just be beginning."""
        tries, since_s = self._started.get(folder.launch_id, (0, 0.0))
        may_be_starting = (
            time.monotonic() - since_s < _HALF_S * (tries + 1)
            if tries
            else self._is_young(folder.launch_id, _made_at(folder))
        )
        if folder.stop_requested():
            close_unclaimed(folder)
        elif not self._may_start or may_be_starting:
            return
        elif tries >= TRIES:
            close_unclaimed(
                folder,
                "failed",
                "supervisor-gone",
                f"its supervisor did not begin, though it was started {tries} times",
            )
        else:
            self._started[folder.launch_id] = (tries + 1, time.monotonic())
            start_supervisor(row, self._state, self._settings)

    def _is_young(self, launch_id: str, made_s: float) -> bool:
        """Whether the caller of a launch may just be beginning it, by this moment of the clock."""
        now_s = time.monotonic()
        age_s = now_s - self._first_look_s.setdefault(launch_id, now_s)
        # One from the future is of before the clock was set back.
        return 0 <= time.time() - made_s < _HALF_S and age_s < _HALF_S

    def _settle(self, launch_id: str) -> None:
        self._settled.add(launch_id)
        self._observations.forget(launch_id)
        for table in (self._started, self._stopping, self._said, self._first_look_s):
            table.pop(launch_id, None)


@contextmanager
def reconciling(service: Service) -> Generator[Reconciler]:
    """Look after the launches of this host until the end of the block."""
    launch_metrics = LaunchMetrics()
    reconciler = Reconciler(service, launch_metrics)
    service.metrics.registry.register(launch_metrics)
    tell_metrics(launch_metrics)
    try:
        with looking("launches", reconciler.look_safely, LOOK_S):
            yield reconciler
    finally:
        service.metrics.registry.unregister(launch_metrics)


def _made_at(folder: LaunchFolder) -> float:
    with InputError.instead_of(
        OSError, f"the launch {folder.launch_id} has no readable spec", why=""
    ):
        return (folder.path / "spec.json").stat().st_mtime


_BEGUN, _ENDED = "begun", "done"

_DRIFTING = ("rate", "power")


class DriftWatch:
    """Compares stored observations with the model, and passes the drift to its engine."""

    def __init__(self, service: Service, gauge: Gauge) -> None:
        self._service, self._gauge = service, gauge
        self._compared: object = None
        self._open: set[str] | None = None

    def look(self) -> None:
        """One look; nothing is worked out where there is no new observation and no new model.

        Raises:
            ModelError: there is no model, or it is damaged.
            StoreError: the database does not answer.
        """
        service = self._service
        newest = service.store.observation_page(None, Span(limit=1)).records
        state = (
            newest and newest[0].point_id,
            service.registry.stamp(),
            service.state.change_count(),
        )
        if not newest or state == self._compared:
            return
        predictor, settings = service.registry.open_champion(), service.settings
        experience = experience_of(service.store, predictor, checks_of(settings), settings.home)
        service.engine.present.observed(experience)
        for quantity in _DRIFTING:
            self._gauge.labels(quantity).set(
                sum(drift.quantity == quantity for drift in experience.drifts)
            )
        open_before = self._begun() if self._open is None else self._open
        there = {
            f"{drift.job} {drift.quantity} {drift.gpu_uuid or drift.gpu_model} since {drift.since}"
            for drift in experience.drifts
        }
        for subject, outcome in (
            *((subject, _BEGUN) for subject in sorted(there - open_before)),
            *((subject, _ENDED) for subject in sorted(open_before - there)),
        ):
            service.state.audit(
                # Without a request.
                AuditEntry(
                    at=now(), who="advisor", action="drift", subject=subject, outcome=outcome
                )
            )
        self._open, self._compared = there, state

    def _begun(self) -> set[str]:
        """Drifts that an earlier service saw begin, and none end."""
        last: dict[str, str] = {}
        for entry in self._service.state.audit_log(1000):
            if entry.action == "drift":
                last.setdefault(entry.subject, entry.outcome)
        return {subject for subject, outcome in last.items() if outcome == _BEGUN}


@contextmanager
def watching_drift(service: Service) -> Generator[DriftWatch]:
    """Look at the observations until the end of the block."""
    gauge = Gauge(
        "advisor_drifting",
        "Quantities of jobs on cards that do other than the model in use expects",
        ("quantity",),
        registry=service.metrics.registry,
    )
    for quantity in _DRIFTING:
        gauge.labels(quantity).set(0)
    watch = DriftWatch(service, gauge)
    try:
        with looking("drift", watch.look, 60.0):
            yield watch
    finally:
        service.metrics.registry.unregister(gauge)
