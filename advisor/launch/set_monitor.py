"""Starts jobs together and watches them while they run: rates, energy, limits, faults, promises.

Whatever goes wrong at the start, nothing is left running. Gates open together, or for copies of a
job a part of a step apart.
"""

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Never, TypeAlias

from advisor.core.gpu import (
    ALL_GPUS,
    MOST_GPUS,
    WHOLE,
    Gpu,
    MemoryFit,
    Share,
)
from advisor.core.job import VERDICT_FLAGS, Job
from advisor.core.objectives import Interval
from advisor.core.records import P99_BROKEN, SETTLE_S, STRANGER
from advisor.core.telemetry import COUNTERS, TelemetrySource, counters_of
from advisor.core.wording import in_digits, listed
from advisor.errors import (
    AdvisorError,
    InputError,
    JobError,
    LimitBrokenError,
    LimitNotProvenError,
    NoSplitError,
    PartitionError,
    SurvivorsError,
)
from advisor.formats.moments import now as now_text
from advisor.launch.account import Account, JobMonitor, P99Watch, work_per_joule
from advisor.launch.meter import CardMeter, Moment, timed
from advisor.launch.spec import Forecast, LaunchPart, LaunchSet, LaunchSpec
from advisor.runtime.backend import (
    Backend,
    Control,
    CuMaskBackend,
    MpsBackend,
    Proof,
    UncappedBackend,
    private_pipe_dir,
)
from advisor.runtime.job_process import stop_all
from advisor.runtime.processes import (
    RunInBackground,
    awaited,
    beat,
    in_thread,
    loaded_libraries,
    name_of,
)
from advisor.runtime.running_job import (
    Proven,
    RunningJob,
    check_limits,
    clients_of,
    is_listed,
    prove,
)
from advisor.settings import Settings

_POLL_S = 0.05


# Between two copies. Of short steps any time that is no multiple of a step does; the last of
# seven begins before the first seconds are over, which no mean is of.
_LEAST_S, _MOST_S = 0.037, 0.4


class StopRequestedError(Exception):
    """A stop was requested before the jobs ran together."""


def check_memory(jobs: Sequence[Job], gpu: Gpu) -> None:
    """Refuse jobs that do not fit together, as far as their needs are known.

    Raises:
        NoSplitError: it does not.
    """
    memory = MemoryFit(tuple(job.memory_mib for job in jobs), gpu.memory_mib)
    if not memory.is_too_much:
        return
    needs = " + ".join(f"{need or 0}" for need in memory.needs_mib)
    held = memory.held_ahead(job.command for job in jobs)
    raise NoSplitError(
        f"{listed(job.name for job in jobs)} need {needs} MiB of memory",
        why=f"{memory.most_mib:.0f} of the {gpu.memory_mib} MiB of {gpu.model} may be filled",
        fix="run them one after the other, or correct memory_mib in their files"
        + (f". {held}" if held else ""),
    )


def check_set_memory(pair: LaunchSet, gpu: Gpu) -> None:
    """As `check_memory`, on each GPU.

    Raises:
        NoSplitError: jobs do not fit on one.
    """
    for on in pair.split.each_gpu:
        check_memory([pair.jobs[n] for n in on], gpu)


def check_workdir(job: Job) -> None:
    """Refuse a job whose folder is gone.

    Raises:
        InputError: it is.
    """
    if job.workdir is not None and not job.workdir.is_dir():
        raise InputError(f"{job.name} cannot run in {job.workdir}: there is no such folder")


def prove_set(
    pair: LaunchSet, backend: Backend, base: Mapping[str, str], folders: Iterable[Path]
) -> tuple[Proven, ...]:
    """Prove all limits; nothing has been started when this returns or raises.

    Raises:
        LimitNotProvenError: one is not in force.
        InputError: the GPU cannot be shared so.
        PartitionError: what enforces them cannot be used.
    """
    pair.split.check_masks(backend.gpu.vendor)
    backend.cap(pair.cap_percent)
    proven: list[Proven] = []
    for job, share, folder in zip(
        pair.jobs, pair.shares(backend.gpu.memory_mib), folders, strict=True
    ):
        check_workdir(job)
        folder.mkdir(mode=0o700)
        proven.append(prove(job, share, backend, base, folder))
    return tuple(proven)


def start_set(
    proven: Sequence[Proven],
    stop_requested: Callable[[], bool],
    first: Collection[int] = (),
    between: Callable[[Mapping[int, RunningJob]], object] = len,
) -> tuple[tuple[RunningJob, ...], dict[int, JobError]]:
    """Start all jobs and wait until each is warm and seen under its limit, or has ended.

    Jobs with a gate stand at it when this returns; `stop_requested` is asked again and again.

    Args:
        proven: Of the jobs.
        stop_requested: Whether a stop was requested.
        first: Numbers of jobs that start before the others.
        between: Takes those of them that stand ready, before the others start.

    Returns:
        All jobs, and by their numbers why some did not get ready, which may still run.

    Raises:
        JobError: a command cannot be started.
        LimitNotProvenError: a job is not under its limit.
        StopRequestedError: it was stopped.
        SurvivorsError: of one that did not start well a process does not end.
    """
    jobs: dict[int, RunningJob] = {}
    failed: dict[int, JobError] = {}
    try:
        for wave in filter(None, (first, [n for n in range(len(proven)) if n not in first])):
            for n in wave:
                jobs[n] = proven[n].start()
            while not all(_is_settled(n, jobs[n], failed) for n in wave):
                beat()
                if stop_requested():
                    raise StopRequestedError
                time.sleep(_POLL_S)
            for n in wave:
                if n not in failed:
                    jobs[n].check_client()
            if wave is first:
                between({n: jobs[n] for n in wave if n not in failed})
    except BaseException as error:  # Ctrl-C too: no job runs on unwatched
        end_jobs(jobs.values(), error)
        raise
    return tuple(jobs[n] for n in range(len(proven))), failed


def _is_settled(number: int, job: RunningJob, failed: dict[int, JobError]) -> bool:
    """Whether a job is ready, has ended, or has failed to get ready, which is noted."""
    if number in failed or job.exit_code is not None:
        return True
    try:
        return job.ready_to_launch()
    except JobError as error:
        if job.exit_code is None:
            failed[number] = error
        return True


def end_jobs(jobs: Iterable[RunningJob], cause: BaseException | None = None) -> None:
    """Stop jobs in the safe order; what goes wrong on the way does not matter once they ended.

    Raises:
        SurvivorsError: a process does not end; `cause` is why they are stopped.
    """
    for error in stop_all(jobs):
        if isinstance(error, SurvivorsError):
            raise error from cause


def open_gates(jobs: Sequence[RunningJob], solo_rates: Sequence[float | None]) -> None:
    """Open all; those of further copies of a job follow, each a part of a step later.

    Copies that begin their steps at one moment would ask for the same part of the GPU at the same
    moments: whatever alternates in a step, such as waiting for input and computing, stays in step
    where nothing else disturbs them.

    Args:
        jobs: Ready.
        solo_rates: Steps per second of each alone; where its unit is not a step, but something that
            a step has many of, the time is shorter than it should be.
    """
    names = [job.job.name for job in jobs]
    ranks = [names[:n].count(name) for n, name in enumerate(names)]
    for rank in range(max(ranks, default=-1) + 1):
        late = [n for n, of in enumerate(ranks) if of == rank]
        if rank:
            steps_s = [1 / rate / names.count(names[n]) for n in late if (rate := solo_rates[n])]
            time.sleep(min(_MOST_S, max([_LEAST_S, *steps_s])))
        for n in late:
            jobs[n].go()


def limit_environment(
    pair: LaunchSet, share: Share, gpu: Gpu | None, settings: Settings
) -> dict[str, str]:
    """Variables that limit a job of this share; without a GPU as MPS takes them."""
    if gpu is None:
        is_bound = pair.split.is_limited or share.below_normal
        gpus = MOST_GPUS if pair.split.gpus and share.gpu == ALL_GPUS else 1
        return share.environment(None, "nvidia", gpus) if is_bound else {}
    if pair.split.sharing == "time-sliced":
        return UncappedBackend(gpu).environment(share)
    if gpu.vendor == "amd":
        return CuMaskBackend(gpu).environment(share)
    return MpsBackend(
        gpu,
        Control(settings.mps_pipe_dir or private_pipe_dir(gpu, settings.runtime_dir), {}),
        owned=False,
    ).environment(share)


# How often the driver is asked who computes, and how often each job must be a client itself: one
# that repeats a short command is none in between.
_ASK_S, _LIMIT_S = 1.0, 15.0


Renew: TypeAlias = Callable[[LaunchSet, Sequence[float | None]], tuple[Forecast, tuple[str, ...]]]
"""What to expect of jobs that run at these demands, None: as declared, and what would break."""


_DEMAND = "another demand arrives"


class SetMonitor:
    """Jobs that stood ready at their gates, which this opens.

    Attributes:
        mode: How the GPU is shared, as points have it.
        first_ended: Indices of the jobs that ended first by themselves; empty: none did yet.
        suspicions: Of jobs that failed, while it is not known whether a fault took them down.
        limit_broken: Something computed that was not under its limit; what was seen is of no use.
        newcomer_error: The same of the newcomer, which has not disturbed other jobs for long.
        forecasts: Forecasts of the running jobs, by their numbers.
        expected_power_w: Forecast at the last join, or at first.
        looked_at: Time of the last look at the jobs, ISO 8601, UTC; the status is as of then.
    """

    def __init__(
        self,
        pair: LaunchSet,
        jobs: Sequence[RunningJob],
        backend: Backend,
        source: TelemetrySource,
        spec: LaunchSpec,
        now_s: Callable[[], float] | None = None,
        run: RunInBackground = in_thread,
        failed: Mapping[int, JobError] | None = None,
        renew: Renew | None = None,
    ) -> None:
        self.pair, self._backend, self._spec = pair, backend, spec
        # Of a record its own clock.
        self._now_s = now_s or time.monotonic
        self.mode = backend.mode if pair.split.is_limited else pair.split.sharing
        self._meter, self._source = CardMeter(source), source
        drawn, begun = timed(self._meter.read, self._now_s)
        self.begun_s = self._note_from_s = self._query_s = self._checked_s = begun.at_s
        self.jobs = tuple(map(partial(JobMonitor, now_s=self.begun_s), jobs, pair.parts))
        self._alarms: list[str] = []
        self.account = Account(pair, self.jobs, self._meter.add(drawn, begun), begun)
        self.forecasts: dict[tuple[int, ...], Forecast] = {}
        self.expected_power_w: Interval | None = None
        self._expect(pair.forecast)
        _watch_promises(self.jobs, self.begun_s)
        self.first_ended: tuple[int, ...] = ()
        self.limit_broken = self._silent = self._noted = False
        self.looked_at = self._answered_at = now_text()
        self._coming = self._query_newcomer = self.newcomer_error = None
        self._run = run
        self._question: Future[tuple[bool, list[str]]] | None = None
        self._clients: Future[tuple[JobMonitor, LimitNotProvenError] | None] | None = None
        self._renew = renew
        self._renewing: (
            tuple[tuple[int, ...], str, Future[tuple[Forecast, tuple[str, ...]]]] | None
        ) = None
        self._endings: list[tuple[list[JobMonitor], Future[None]]] = []
        self._ended = set[JobMonitor]()
        self.suspicions: list[_Suspicion] = []
        self._is_spoiled, self._answered_s, self._stop_due = False, -math.inf, False
        self._limits = _LimitMonitor(backend, pair.cap_percent, self.begun_s, strict=spec.strict)
        for n, error in (failed or {}).items():
            self.jobs[n].end("failed", error.code, str(error))
        self._note_ends([monitor for monitor in self.jobs if monitor.over], self.begun_s)
        running = self._running()
        self._begun_cpu_s = sum(monitor.job.cpu_s() for monitor in running)
        with suppress(AdvisorError):
            source.start_window()
        open_gates(
            [monitor.job for monitor in running], [monitor.part.solo_rate for monitor in running]
        )

    @property
    def is_void(self) -> bool:
        """Its work is none that was done cheaper: of wrong results, or beyond a broken limit."""
        return self.limit_broken or any(monitor.results in VERDICT_FLAGS for monitor in self.jobs)

    def of_only_job(self) -> dict[str, Any] | None:
        """Columns of a point: what the only job, or the last one without a limit, does to the GPU.

        None: it has not all of it.

        Raises:
            SourceError: the GPU cannot be read.
        """
        running, shares = self.running_numbers(), {*self.pair.split.shares}
        if len(running) != 1 or shares != {WHOLE} or self.pair.split.below_normal:
            return None
        job, read_s = self.jobs[running[0]].job, self._now_s() - self.begun_s
        return {
            **asdict(counters_of(self._source.read([*COUNTERS]))),
            "memory_used_mib": self._source.processes_memory_mib(job.pids()),
            "job_cpu_percent": max(0.0, WHOLE * (job.cpu_s() - self._begun_cpu_s) / read_s),
        }

    @property
    def over(self) -> bool:
        """Whether no job runs, and it is known how each ended."""
        return all(monitor.over for monitor in self.jobs) and not self.suspicions

    def expect(self, job: RunningJob | None) -> None:
        """It starts beside those that run, so it is no stranger there; None: none does."""
        self._coming, self.newcomer_error = job, None

    def join(
        self,
        join_id: str,
        job: RunningJob,
        part: LaunchPart,
        forecast: Forecast | None = None,
        proof: Proof | None = None,
    ) -> None:
        """Open the gate of the one that was expected; it is one of them from now on.

        `join_id` names its request; `forecast` is of those that run, and of the newcomer as the
        last.
        """
        self.expect(None)
        pair, now_s = self.pair, self._now_s()
        self.pair = replace(
            pair,
            split=pair.split.joined_by(job.share.percent, job.share.below_normal),
            parts=(*pair.parts, part),
        )
        self.jobs = (*self.jobs, JobMonitor(job, part, now_s, join_id, proof))
        self.account.join(self.pair, self.jobs)
        self._expect(forecast, f"{job.job.name} joined")
        _watch_promises(self.jobs, now_s)
        self._noted, self._note_from_s = False, now_s
        job.go()

    def running_numbers(self) -> tuple[int, ...]:
        """Which of them run, counted from 0."""
        return tuple(n for n, monitor in enumerate(self.jobs) if not monitor.over)

    def running_names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(monitor.job.job.name for monitor in self._running())

    def left(self) -> tuple[LaunchSet, list[float | None]]:
        """Those of them that run, and their demands where these have changed."""
        numbers = self.running_numbers()
        parts = tuple(self.pair.parts[n] for n in numbers)
        left = replace(self.pair, split=self.pair.split.ordered(numbers), parts=parts)
        return left, [self.jobs[n].demand for n in numbers]

    def look(self) -> None:
        """One look at everything, which waits for nothing.

        Questions to the driver and the end of jobs run in the background; what came of them is
        taken at a later look.

        Raises:
            PartitionError: what limits the jobs is gone.
            LimitBrokenError: something computes that is not under its limit.
            SurvivorsError: a process of a job that is over does not end.
        """
        were, self.looked_at = self._running(), now_text()
        (counts, drawn), now = timed(
            lambda: ([monitor.count(self._now_s) for monitor in were], self._meter.read()),
            self._now_s,
        )
        for monitor, counted in zip(were, counts, strict=True):
            monitor.look(now, counted, self._spec.hang_s)
        for monitor in were:
            if (wrong := monitor.judge(self._now_s)) is not None:
                self._alarms.append(wrong)
                if self._spec.stop_on_wrong_results and not monitor.over:
                    monitor.end("failed", "wrong-results", wrong)
                    self._stop_due = True
        self.account.add(now, self._meter.add(drawn, now), were)
        if (kept := self.account.kept.numbers) == self.running_numbers() and any(
            monitor.paused for monitor in were
        ):
            # The others are alone meanwhile: that is not what was promised of them.
            self.account.promise(self.account.promised, kept, "a job was paused")
        # What has counted for some seconds has loaded what it computes with.
        if not self._noted and now.at_s - self._note_from_s >= SETTLE_S:
            self._noted = True
            for monitor in self._running():
                monitor.libraries = monitor.libraries or loaded_libraries(monitor.job.pids())
        self._note_ends([monitor for monitor in were if monitor.over], now.at_s)
        self._look_at_promises(now.at_s)
        self._look_at_demands(now)
        self._check_backend(now.at_s)
        self._check_clients(now.at_s)
        self._look_for_faults(now.at_s)
        if self._stop_due and not self.suspicions:
            self._stop_running()
        self._end_over()
        self._close_ended(now)

    def work_per_joule(self) -> float | None:
        """Sum of relative speeds per watt over the last seconds."""
        # A job that is over adds nothing; when all are, there is nothing to tell.
        speeds = [monitor.relative_speed() for monitor in self._running()]
        return work_per_joule(speeds, self.account.power_w()) if speeds else None

    def alarms(self) -> list[str]:
        """What was found wrong with the jobs' results since this was asked last."""
        alarms, self._alarms = self._alarms, []
        return alarms

    def lose_limits(self) -> None:
        """Mark the limits of running jobs unverified since the last answer of the MPS server."""
        for monitor in self._running():
            monitor.lost = (
                f"its limit was proven until {self._answered_at}, the last answer of the MPS server"
            )

    def end(self, name: str) -> bool:
        """End the jobs of a name, as was asked; whether nothing is left of them."""
        jobs = [monitor for monitor in self.jobs if monitor.job.job.name == name]
        for monitor in jobs:
            if not monitor.over:
                monitor.end("stopped", error="ended as was asked")
                _watch_promises(self.jobs, self._now_s())
        ending = {monitor for of, _ in self._endings for monitor in of}
        return self._ended - ending >= {*jobs}

    def stop(self) -> None:
        """Stop what runs, and wait until all has ended and is counted.

        Raises:
            SurvivorsError: a process does not end.
        """
        were = self._running()
        self._stop_running()
        self.suspicions = []
        self._end_over()
        for _, ending in self._endings:
            with suppress(SurvivorsError):
                awaited(ending)
        drawn, now = timed(self._meter.read, self._now_s)
        try:
            self._close_ended(now)
        finally:
            self.account.close(now, self._meter.add(drawn, now), were)

    def _expect(self, forecast: Forecast | None, renewed: str = "") -> None:
        numbers = self.running_numbers()
        self._promised_of = numbers
        self.account.promise(forecast, numbers, renewed)
        if forecast:
            self.forecasts[numbers] = forecast
        self.expected_power_w = forecast and forecast.power_w
        for n, job_forecast in zip(
            numbers, forecast.jobs if forecast else (None,) * len(numbers), strict=True
        ):
            self.jobs[n].expected = job_forecast and job_forecast.rate

    def _look_at_promises(self, now_s: float) -> None:
        stretch = self.account.stretches[-1]
        _watch_promises([self.jobs[n] for n in stretch.catching_up], now_s)
        tails = [(job.tail, job.job.job.name) for job in self._running() if job.tail]
        # What cannot be read of running jobs; once of each.
        self._alarms += filter(None, (tail.unsure(name) for tail, name in tails))
        if broken := next((tail.text(name) for tail, name in tails if tail.look(now_s)), None):
            stretch.flags.add(P99_BROKEN)
            self._answer_broken(broken, now_s)

    def _answer_broken(self, why: str, now_s: float) -> None:
        """A promise is broken: tell it, or end the newest batch job, as the user chose."""
        batch = [
            job for job in self._running() if job.tail is None and job.job.job.offered_rate is None
        ]
        if batch and self._spec.when_p99_breaks == "end-newest":
            batch[-1].end("stopped", error=f"ended since {why}")
            _watch_promises(self.jobs, now_s)
            why = f"{batch[-1].job.job.name} was ended: {why}"
        self._alarms.append(why)

    def _look_at_demands(self, now: Moment) -> None:
        """Renew what is expected where another demand arrives at a server; in the background."""
        changed = [monitor for monitor in self._running() if monitor.demand_changed(now)]
        for monitor in changed:
            self.account.stretches[-1].flags.add("other-demand")
            self._alarms.append(
                f"{in_digits(monitor.demand or 0)} {monitor.job.job.progress.unit}/s arrive at "
                f"{monitor.job.job.name}, "
                f"which declares {monitor.job.job.offered_rate:g}: the forecast is renewed"
            )
        numbers, before = self.running_numbers(), self._promised_of
        renewed = _DEMAND
        if not changed and numbers != before:
            renewed = (
                f"{listed(self.jobs[n].job.job.name for n in before if n not in numbers)} left"
            )
            changed = [] if self.account.promised is None else self._running()
        self._promised_of = numbers
        if changed and self._renew and len(numbers) > 1:
            self._renewing = numbers, renewed, self._run(partial(self._renew, *self.left()))
        if self._renewing is None or not self._renewing[-1].done():
            return
        (numbers, renewed, renewing), self._renewing = self._renewing, None
        if (error := renewing.exception()) is not None:
            self._alarms.append(f"no forecast since {renewed}: {error}")
        elif numbers == self.running_numbers():
            forecast, broken = renewing.result()
            if renewed != _DEMAND:
                # Each is compared at its end with the forecast of the jobs that it began with.
                self.account.promise(forecast, numbers, renewed)
                self.expected_power_w = forecast.power_w
                return
            self._expect(forecast, renewed)
            if broken:
                self._answer_broken(
                    f"by the forecast at that demand: {', '.join(broken)}", now.at_s
                )

    def _running(self) -> list[JobMonitor]:
        return [monitor for monitor in self.jobs if not monitor.over]

    def _note_ends(self, ended: list[JobMonitor], now_s: float) -> None:
        if not ended:
            return
        self.first_ended = self.first_ended or self._indices_over()
        # One that was ended here, as at a time limit, has no exit code.
        failed = [
            monitor
            for monitor in ended
            if monitor.outcome == "failed" and monitor.exit_code is not None
        ]
        if failed and self._backend.mode == "mps":
            self.suspicions.append(_Suspicion((*failed, *self._running()), now_s))
        self._stop_due = self._stop_due or self._spec.when_one_ends == "stop"

    def _indices_over(self) -> tuple[int, ...]:
        return tuple(number for number, monitor in enumerate(self.jobs) if monitor.over)

    def _stop_running(self) -> None:
        for monitor in self._running():
            monitor.end("stopped")

    def _end_over(self) -> None:
        """Begin to end what is left of jobs that are over, in the background.

        One that hangs still runs, and one that ended may have left workers behind.
        """
        suspects = {monitor for suspicion in self.suspicions for monitor in suspicion.struck}
        over = [
            monitor
            for monitor in self.jobs
            if monitor.over and monitor not in suspects | self._ended
        ]
        if over:
            self._ended.update(over)
            self._endings.append(
                (over, self._run(lambda: end_jobs(monitor.job for monitor in over)))
            )

    def _close_ended(self, now: Moment) -> None:
        """Count the jobs of which no process is left for the last time.

        Raises:
            SurvivorsError: a process of one does not end.
        """
        done = [(jobs, ending) for jobs, ending in self._endings if ending.done()]
        self._endings = [ending for ending in self._endings if ending not in done]
        for monitor in (monitor for jobs, _ in done for monitor in jobs):
            monitor.close(now)
        for _, ending in done:
            ending.result()

    def _look_for_faults(self, now_s: float) -> None:
        """Whether jobs that failed were taken down by a fault of the MPS server."""
        verdicts = {
            suspicion: suspicion.is_fault(self._answered_s, now_s) for suspicion in self.suspicions
        }
        if self._is_spoiled or True in verdicts.values():
            suspects = (monitor for suspicion in verdicts for monitor in suspicion.struck)
            self._take_down((*suspects, *self._running()))
        self.suspicions = [
            suspicion for suspicion in self.suspicions if verdicts[suspicion] is None
        ]

    def _take_down(self, struck: Sequence[JobMonitor]) -> None:
        """Note that a fault has struck these, but for those that have finished meanwhile.

        The job that caused it has failed, where it is known.
        """
        self.suspicions = []
        running = [
            *dict.fromkeys(
                monitor for monitor in struck if monitor.outcome in ("running", "failed")
            )
        ]
        if running:
            guilty, fault = _author(running, self._backend)
            for monitor in running:
                monitor.exit_code = monitor.job.exit_code
                monitor.end(
                    "failed" if monitor is guilty else "taken-down",
                    "mps-fault",
                    fault + f"; the end of its output:\n{monitor.job.tail() or '(nothing)'}",
                )
            self.first_ended = self.first_ended or self._indices_over()

    def _check_backend(self, now_s: float) -> None:
        """Ask the driver whether all is well, and take its last answer.

        Raises:
            PartitionError: it failed to answer twice.
            LimitBrokenError: a limit does not hold, and not that of a newcomer alone.
        """
        running = [monitor.job for monitor in self._running()]
        urgent = any(suspicion.since_s > self._query_s for suspicion in self.suspicions)
        if self._question is None and (urgent or (running and now_s - self._query_s >= _ASK_S)):
            self._query_s, self._query_newcomer = now_s, self._coming
            self._question = self._run(
                partial(self._ask, [*running, *filter(None, [self._coming])], now_s)
            )
        if self._question is None or not self._question.done():
            return
        question, self._question = self._question, None
        try:
            # Asked over the same channel that says whether the daemon still lives.
            spoiled, alarms = question.result()
        except PartitionError:
            # One answer that came too late is no reason to end the work of weeks.
            if self._silent and running:
                raise
            self._silent = True
            return
        except LimitBrokenError as error:
            if self._coming is not self._query_newcomer:
                # The newcomer started meanwhile, and may be what was found: it is asked again.
                self._query_s = -math.inf
            # Names: a copy of one that runs may be either of the two, so all are stopped then.
            elif not error.jobs or error.jobs & {*self.running_names()}:
                self._break(error)
            elif self._coming is not None and self._coming.job.name in error.jobs:
                self.newcomer_error = error
            return
        self._silent, self._answered_at, self._answered_s = False, now_text(), self._query_s
        self._is_spoiled = spoiled
        self._alarms += alarms
        if self._limits.strangers:
            self.account.stretches[-1].flags.add(STRANGER)

    def _ask(self, jobs: Sequence[RunningJob], now_s: float) -> tuple[bool, list[str]]:
        """Whether a fault spoiled the server, and what is to be said of the limits; may wait."""
        spoiled = self._backend.spoiled()
        return spoiled, [] if spoiled or not jobs else self._limits.check(jobs, now_s)

    def _check_clients(self, now_s: float) -> None:
        """Whether each job is a client itself, asked now and then.

        Raises:
            LimitBrokenError: one is not.
        """
        running = self._running()
        if self._clients is None and running and now_s - self._checked_s >= _LIMIT_S:
            self._checked_s = now_s
            self._clients = self._run(lambda: _no_client(running))
        if self._clients is None or not self._clients.done():
            return
        breach, self._clients = self._clients.result(), None
        # One that has ended meanwhile is no client either.
        if breach is not None and not breach[0].over and breach[0].job.exit_code is None:
            self._break(_broken(breach[1], breach[0].job))

    def _break(self, error: LimitBrokenError) -> Never:
        for monitor in self._running():
            if monitor.job.job.name in error.jobs:
                monitor.lost = str(error)
                monitor.end("failed", error.code, monitor.lost)
        self.limit_broken = True
        raise error


def _no_client(jobs: Sequence[JobMonitor]) -> tuple[JobMonitor, LimitNotProvenError] | None:
    """The first that is not under its limit itself, and why; waits some seconds for each."""
    for monitor in jobs:
        try:
            monitor.job.check_client()
        except LimitNotProvenError as error:
            return monitor, error
        except PartitionError:
            # Whether the server answers is asked every second.
            return None
    return None


_FAULT_WORDS = re.compile(r"cuda|illegal memory access|unspecified launch failure|mps", re.I)


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """Jobs that failed, and those that ran beside them: perhaps a fault of the MPS server.

    Attributes:
        since_s: When the jobs were seen to have failed.
    """

    struck: tuple[JobMonitor, ...]
    since_s: float

    def is_fault(self, answered_s: float, now_s: float) -> bool | None:
        """Whether it was one that the server does not show; None: that is not known yet.

        Args:
            answered_s: When the server was asked last and answered.
            now_s: The time.
        """
        gone = all(monitor.job.exit_code is not None for monitor in self.struck)
        # A server whose clients have all ended recovers at once, and shows nothing any more.
        if gone and len(self.struck) > 1:
            ends = [monitor.job for monitor in self.struck]
            if all(job.exit_code != 0 and _FAULT_WORDS.search(job.tail()) for job in ends):
                return True
        # A fault on an MPS server reaches all its clients within 3 s.
        return False if (gone and answered_s >= self.since_s) or now_s - self.since_s > 3 else None


def _author(struck: Sequence[JobMonitor], backend: Backend) -> tuple[JobMonitor | None, str]:
    """The job that caused a fault, None if unknown, and the message.

    Only a log that names processes of one job and of no other is evidence.
    """
    names = listed(monitor.job.job.name for monitor in struck)
    if len(struck) == 1:
        return None, (
            f"a fault on the MPS server took {names} down, which had the GPU for itself by then"
        )
    blamed = backend.blamed()
    blamed_jobs = [monitor for monitor in struck if monitor.job.last_pids & blamed]
    if len(blamed_jobs) != 1:
        return None, (
            f"a fault on the MPS server took {names} down; which one caused it the driver does not "
            "tell. Jobs that fault must not share a GPU: run each alone to find it"
        )
    guilty = blamed_jobs[0]
    name, pid = guilty.job.job.name, min(guilty.job.last_pids & blamed)
    others = listed(monitor.job.job.name for monitor in struck if monitor is not guilty)
    return guilty, (
        f"a fault of {name} took {others} down with it: the log of the MPS server names its "
        f"process {pid}. {name} must not share a GPU before that is mended; run it alone to find it"
    )


def _watch_promises(jobs: Sequence[JobMonitor], now_s: float) -> None:
    """Begin anew for all jobs with a promised p99, after a join or an end."""
    for monitor in jobs:
        if (promised_ms := monitor.part.promised_p99_ms) is not None:
            monitor.tail = monitor.tail or P99Watch(monitor.job, promised_ms, now_s)
            monitor.tail.begin(now_s)


class _LimitMonitor:
    """The limits of one set.

    Args:
        backend: What enforces them.
        cap_percent: At which the back-end holds all that starts.
        begun_s: When the gates opened, monotonic.
        strict: A stranger on the GPU breaks them, too.

    Attributes:
        strangers: Processes of no job, as last seen on the GPU.
    """

    def __init__(self, backend: Backend, cap_percent: int, begun_s: float, *, strict: bool) -> None:
        self._backend, self._cap_percent, self._begun_s = backend, cap_percent, begun_s
        self._strict, self._reported = strict, set[int]()
        self.strangers: tuple[int, ...] = ()
        self._is_listed, self._counted_s = False, -math.inf
        self._reported_clients: dict[RunningJob, int] = {}

    def check(self, jobs: Sequence[RunningJob], now_s: float) -> list[str]:
        """Look once; what is to be said about it.

        Raises:
            LimitBrokenError: something computes, or may soon, that is not under its limit.
            PartitionError: what enforces the limits does not answer.
        """
        given = self._backend.given_percent()
        if given is not None and given > self._cap_percent:
            raise LimitBrokenError(
                f"the MPS server gives {given:g} % to what starts now, and was set to "
                f"{self._cap_percent} %",
                why="a process of this user changed it through the MPS control program",
                fix="leave the MPS daemon of advisor alone",
            )
        self.strangers = check_limits(jobs, strict=self._strict, former=self.strangers)
        for job in jobs:
            try:
                job.check_variables()
            except LimitNotProvenError as error:
                raise _broken(error, job) from error
        # Once it is said who is a stranger, and where NVML does not know the jobs: one that is
        # ready may have no context yet.
        # Ten warnings, one after the other; all are in the flag.
        reported = [pid for pid in self.strangers if pid not in self._reported][
            : 10 - len(self._reported)
        ]
        self._reported.update(reported)
        alarms = [
            f"process {pid} ({name_of(pid)}) computes on the GPU and belongs to no job: meanwhile "
            "the jobs have less than their shares, and the model does not learn from them; "
            "--strict ends a launch for that"
            for pid in reported
        ]
        if self._is_listed or is_listed(jobs):
            self._is_listed = True
        elif now_s - self._begun_s > 5:
            self._is_listed = True
            alarms.append(
                "NVML names no process of these jobs, as in a container with process numbers of "
                "its own: what computes on the GPU outside of MPS cannot be seen"
            )
        if now_s - self._counted_s >= _LIMIT_S:
            self._counted_s = now_s
            alarms += self._crowds(jobs)
        return alarms

    def _crowds(self, jobs: Sequence[RunningJob]) -> Iterator[str]:
        """Jobs of several clients, each of which has the whole share: when there are more."""
        total = self._backend.gpu.units_total
        for job, clients in zip(jobs, clients_of(jobs), strict=True):
            if job.share.percent < WHOLE and clients > self._reported_clients.get(job, 1):
                self._reported_clients[job] = clients
                most = job.share.most_of(clients, total, job.granted.units)
                yield (
                    f"{job.job.name} {most}; let one process compute, or launch it at a smaller "
                    "share"
                )


def _broken(error: LimitNotProvenError, job: RunningJob) -> LimitBrokenError:
    """The same error, of a job that was under its limit before."""
    return LimitBrokenError(
        error.what, why=error.why, fix=error.fix, jobs=frozenset({job.job.name})
    )
