"""Watches jobs while they run together: rates, energy, the limits, and who ended how."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Never

from advisor.core.flags import P99_BROKEN, STRANGER
from advisor.core.interval import Interval
from advisor.core.observations import SETTLE_S
from advisor.core.results import VERDICT_FLAGS, read_first
from advisor.core.split import Split
from advisor.core.telemetry import TelemetrySource
from advisor.errors import JobError, LimitBrokenError, LimitNotProvenError, PartitionError
from advisor.formats.moments import now
from advisor.launch.monitor.account import Account, work_per_joule
from advisor.launch.monitor.energy import CardMeter
from advisor.launch.monitor.faults import (
    broken_promise,
    is_fault,
    take_down,
    unsure_promises,
    watch_promises,
)
from advisor.launch.monitor.job_monitor import JobMonitor
from advisor.launch.monitor.limit_monitor import LimitMonitor, broken
from advisor.launch.monitor.timed import timed
from advisor.launch.records.spec import Forecast, LaunchPart, LaunchSet, LaunchSpec
from advisor.launch.start.starting import end_jobs, open_gates
from advisor.runtime.backends.backend import Backend
from advisor.runtime.jobs.libraries import loaded_libraries
from advisor.runtime.jobs.running_job import RunningJob

_ASK_S, _LIMIT_S = 1.0, 15.0
"""How often the driver is asked who computes, and how often each job must be a client itself: one
that repeats a short command is none in between."""


class SetMonitor:
    """Jobs that stood ready at their gates, which this opens.

    Attributes:
        mode: How the GPU is shared, as points have it.
        first_ended: Indices of the jobs that ended first by themselves; empty: none did yet.
        limit_broken: Something computed that was not under its limit; what was seen is of no use.
        newcomer_error: The same of the one that is to join, which has disturbed nobody for long.
        forecasts: What was predicted of those who run together, by their numbers.
        expected_power_w: What was predicted when somebody joined last, or at first.
    """

    def __init__(
        self,
        pair: LaunchSet,
        jobs: Sequence[RunningJob],
        backend: Backend,
        source: TelemetrySource,
        spec: LaunchSpec,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self.pair, self._backend, self._spec = pair, backend, spec
        # Of a record its own clock.
        self._now_s = now_s or time.monotonic
        sharing = pair.split.sharing
        self.mode = backend.mode if sharing == "limited" else sharing
        self._meter = CardMeter(source)
        drawn, begun = timed(self._meter.read, self._now_s)
        self.begun_s = self._note_from_s = self._asked_s = self._checked_s = begun.at_s
        self.jobs = tuple(
            JobMonitor(job, self.begun_s, part.solo_rate, read_first(part.reported))
            for job, part in zip(jobs, pair.parts, strict=True)
        )
        self._alarms: list[str] = []
        self.account = Account(pair, self.jobs, self._meter.add(drawn, begun), begun)
        self.forecasts: dict[tuple[int, ...], Forecast] = {}
        self.expected_power_w: Interval | None = None
        self._expect(pair.forecast)
        watch_promises(self.jobs, pair.parts, self.begun_s)
        self.first_ended: tuple[int, ...] = ()
        self.limit_broken = False
        self._silent, self._noted, self._answered_at = False, False, now()
        self._coming: RunningJob | None = None
        self.newcomer_error: LimitBrokenError | None = None
        self._limits = LimitMonitor(backend, pair.cap_percent, self.begun_s, strict=spec.strict)
        open_gates(jobs, [part.solo_rate for part in pair.parts])

    @property
    def is_void(self) -> bool:
        """Its work is none that was done cheaper: of wrong results, or beyond a broken limit."""
        return self.limit_broken or any(one.results in VERDICT_FLAGS for one in self.jobs)

    @property
    def over(self) -> bool:
        """Whether none runs any more."""
        return all(one.over for one in self.jobs)

    def expect(self, job: RunningJob | None) -> None:
        """It starts beside those that run, so it is no stranger there; None: none does."""
        self._coming, self.newcomer_error = job, None

    def join(self, job: RunningJob, part: LaunchPart, forecast: Forecast | None = None) -> None:
        """Open the gate of the one that was expected; it is one of them from now on.

        `forecast` is of those that run, and of the newcomer as the last.
        """
        self.expect(None)
        pair, now_s = self.pair, self._now_s()
        split = Split((*pair.split.shares, job.share.percent), pair.split.sharing)
        self.pair = replace(pair, split=split, parts=(*pair.parts, part))
        one = JobMonitor(job, now_s, part.solo_rate, read_first(part.reported), joined_at=now())
        self.jobs = (*self.jobs, one)
        self.account.join(self.pair, self.jobs)
        self._expect(forecast)
        watch_promises(self.jobs, self.pair.parts, now_s)
        self._noted, self._note_from_s = False, now_s
        job.go()

    def running_numbers(self) -> tuple[int, ...]:
        """Which of them run, counted from 0."""
        return tuple(n for n, one in enumerate(self.jobs) if not one.over)

    def running_names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(one.job.job.name for one in self._running())

    def look(self) -> None:
        """One look at everything; a job that ended, hangs or broke its limit is stopped.

        Raises:
            PartitionError: what limits the jobs is gone.
            LimitBrokenError: something computes that is not under its limit.
            SurvivorsError: a process of a job that is over does not end.
        """
        were = self._running()
        (counts, drawn), now = timed(
            lambda: ([one.count() for one in were], self._meter.read()), self._now_s
        )
        for one, counted in zip(were, counts, strict=True):
            one.look(now, counted, self._spec.hang_s)
        self._judge(were)
        self.account.add(now, self._meter.add(drawn, now), were)
        self._note_libraries(now.at_s)
        self._end([one for one in were if one.over])
        self._look_at_promises(now.at_s)
        if not self.over:
            self._check_backend(now.at_s)

    def work_per_joule(self) -> float | None:
        """Sum of relative speeds per watt over the last seconds."""
        # A job that is over adds nothing; when all are, there is nothing to tell.
        speeds = [one.relative_speed() for one in self._running()]
        return work_per_joule(speeds, self.account.power_w()) if speeds else None

    def alarms(self) -> list[str]:
        """What was found wrong with the jobs' results since this was asked last."""
        found, self._alarms = self._alarms, []
        return found

    def lose_limits(self) -> None:
        """What holds the limits has failed: from its last answer on none is proven of who runs."""
        for one in self._running():
            one.lose_limit(self._answered_at)

    def stop(self) -> None:
        """Stop what runs.

        Raises:
            SurvivorsError: a process does not end.
        """
        running = self._running()
        for one in running:
            one.end("stopped")
        end_jobs(one.job for one in running)

    def _expect(self, forecast: Forecast | None) -> None:
        numbers = self.running_numbers()
        if forecast:
            self.forecasts[numbers] = forecast
        self.expected_power_w = forecast and forecast.power_w
        jobs = forecast.jobs if forecast else (None,) * len(numbers)
        for n, known in zip(numbers, jobs, strict=True):
            self.jobs[n].expected = known and known.rate

    def _look_at_promises(self, now_s: float) -> None:
        self._alarms += unsure_promises(self._running())
        found = broken_promise(self._running(), now_s, self._spec.when_p99_breaks)
        if found is None:
            return
        self.account.stretches[-1].flags.add(P99_BROKEN)
        self._alarms.append(found.text)
        if found.ends is not None:
            found.ends.end("stopped", error=f"ended since {found.why}")
            end_jobs([found.ends.job])
            watch_promises(self.jobs, self.pair.parts, now_s)

    def _note_libraries(self, now_s: float) -> None:
        """Once for each: what has counted for some seconds has loaded what it computes with."""
        if self._noted or now_s - self._note_from_s < SETTLE_S:
            return
        self._noted = True
        for one in self._running():
            one.libraries = one.libraries or loaded_libraries(one.job.pids())

    def _running(self) -> list[JobMonitor]:
        return [one for one in self.jobs if not one.over]

    def _judge(self, were: list[JobMonitor]) -> None:
        """Look at the jobs' own results; wrong ones end all where that was asked for."""
        found = [(one, wrong) for one in were if (wrong := one.judge())]
        self._alarms += [wrong for _, wrong in found]
        guilty = [(one, wrong) for one, wrong in found if not one.over]
        if not (guilty and self._spec.stop_on_wrong_results):
            return
        for one, wrong in guilty:
            one.end("failed", "wrong-results", wrong)
        self._end([one for one, _ in guilty])
        self.stop()

    def _end(self, ended: list[JobMonitor]) -> None:
        if not ended:
            return
        self.first_ended = self.first_ended or self._indices_over()
        failed = [one for one in ended if one.outcome == "failed"]
        if failed and is_fault([*failed, *self._running()], self._backend):
            self._take_down([*failed, *self._running()])
        # A job that hangs still runs, and one that ended may have left workers behind.
        end_jobs(one.job for one in ended)
        if self._spec.when_one_ends == "stop":
            self.stop()

    def _indices_over(self) -> tuple[int, ...]:
        return tuple(number for number, one in enumerate(self.jobs) if one.over)

    def _take_down(self, struck: Sequence[JobMonitor]) -> None:
        take_down(struck, self._backend)
        self.first_ended = self.first_ended or self._indices_over()

    def _check_backend(self, now_s: float) -> None:
        if now_s - self._asked_s < _ASK_S:
            return
        self._asked_s = now_s
        try:
            # Asked over the same channel that says whether the daemon still lives.
            spoiled = self._backend.spoiled()
            if not spoiled:
                self._check_limits(now_s)
        except PartitionError:
            # One answer that came too late is no reason to end the work of weeks.
            if self._silent:
                raise
            self._silent = True
            return
        self._silent, self._answered_at = False, now()
        if spoiled:
            self._take_down(self._running())
        elif now_s - self._checked_s >= _LIMIT_S:
            self._checked_s = now_s
            for one in self._running():
                self._check_limit(one)

    def _check_limits(self, now_s: float) -> None:
        running = [one.job for one in self._running()]
        coming = [self._coming] if self._coming is not None else []
        try:
            self._alarms += self._limits.check([*running, *coming], now_s)
            if self._limits.strangers:
                self.account.stretches[-1].flags.add(STRANGER)
        except LimitBrokenError as error:
            # Names: a copy of one that runs may be either of the two, so all are stopped then.
            if error.jobs and error.jobs <= {job.job.name for job in coming} - {
                job.job.name for job in running
            }:
                self.newcomer_error = error
                return
            self._break(error)

    def _check_limit(self, one: JobMonitor) -> None:
        try:
            one.job.check_limit()
        except JobError:
            one.note_end()
            self._end([one])
        except LimitNotProvenError as error:
            self._break(broken(error, one.job))

    def _break(self, error: LimitBrokenError) -> Never:
        for one in self._running():
            if one.job.job.name in error.jobs:
                one.lost = str(error)
                one.end("failed", error.code, one.lost)
        self.limit_broken = True
        end_jobs(one.job for one in self.jobs)
        raise error
