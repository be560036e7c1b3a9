"""Runs a launch from its first set to the end of its last; whatever happens has a defined end.

Jobs join a set that runs, one at a time, each with its limit proven before it starts. The proof
takes seconds and runs in the background; the running jobs are watched meanwhile. A fault of a
newcomer ends that newcomer alone. Running jobs keep their limits: a percentage cannot change while
a client runs, and the percentage of the server, which bounds theirs, may not be raised.
"""

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from advisor.core.gpu import MOST_JOBS, Gpu, MemoryFit, Share, Sharing
from advisor.core.job import Job
from advisor.core.records import Observation, Record
from advisor.core.telemetry import TelemetrySource
from advisor.errors import (
    AdvisorError,
    InputError,
    JobError,
    NoSplitError,
    PartitionError,
    SurvivorsError,
)
from advisor.files import read_ours
from advisor.formats.moments import now, to_exact_text
from advisor.launch.account import JobMonitor, Stretch, Trial
from advisor.launch.folder import (
    HistoryKeeper,
    LaunchFolder,
    StatusWriter,
    answer,
    is_requested,
    join_requests,
    join_status,
    refusal,
    write_history,
)
from advisor.launch.guard import LAUNCH_MARK, ProcessGuard
from advisor.launch.meter import CardMeter, LaunchMeter, timed
from advisor.launch.observe import Keeper, forecast_news, pace_news, shown, unsaid
from advisor.launch.set_monitor import (
    Renew,
    SetMonitor,
    StopRequestedError,
    check_memory,
    check_set_memory,
    check_workdir,
    end_jobs,
    prove_set,
    start_set,
)
from advisor.launch.spec import (
    SILENT_S,
    JobStatus,
    LaunchPart,
    LaunchSet,
    LaunchSpec,
    LaunchStatus,
    Resplit,
    State,
    as_alone,
    with_part,
)
from advisor.runtime.backend import Backend, Proof
from advisor.runtime.job_process import adopting_orphans
from advisor.runtime.processes import (
    RunInBackground,
    awaited,
    beat,
    heard_by,
    in_thread,
    wait_until,
)
from advisor.runtime.running_job import Proven, RunningJob, prove


@dataclass(slots=True)
class _Newcomer:
    """A job that is on its way.

    Attributes:
        name: Of its request.
        proving: Its limit, in the background.
        job: Once its limit is proven.
        checking: Once it is ready: whether it is under its limit, and how far that is known.
        refused: Why it does not join.
        ending: Its end, in the background, where it is refused.
    """

    name: str
    request: LaunchSpec
    proving: Future[Proven]
    job: RunningJob | None = None
    checking: Future[Proof] | None = None
    refused: AdvisorError | None = None
    ending: Future[None] | None = None


class Newcomers:
    """Those that ask to join one set of a launch.

    Args:
        number: Of the set, from 0.
        base: Environment of its jobs, without limits.
        warn: Takes messages that cannot reach the caller.

    Attributes:
        coming: The job that is on its way; None: none is.
    """

    def __init__(
        self,
        folder: LaunchFolder,
        number: int,
        monitor: SetMonitor,
        backend: Backend,
        base: Mapping[str, str],
        warn: Callable[[str], None],
        run: RunInBackground = in_thread,
    ) -> None:
        self._run = run
        self._folder, self._number, self._monitor = folder, number, monitor
        self._backend, self._base, self._warn = backend, base, warn
        self.coming: _Newcomer | None = None
        self._started = 0

    def look(self) -> None:
        """Take up the oldest request, or see how far the newcomer is.

        Raises:
            SurvivorsError: a process of one that is refused does not end.
        """
        if (coming := self.coming) is not None:
            if coming.refused is not None:
                self._end(coming, coming.refused)
            else:
                self._attempt(coming.name, coming.request, lambda: self._go_on(coming))
            return
        for name, request in join_requests(self._folder):
            self._attempt(name, request, lambda n=name, r=request: self._start(n, r))
            return

    def close(self) -> None:
        """Refuse jobs that wait to join, and any later one.

        Raises:
            SurvivorsError: a process of one that was starting does not end.
        """
        over = InputError("the jobs of this launch are being stopped, or have ended")
        try:
            if (coming := self.coming) is not None:
                self._give_up(coming.refused or over)
                if coming.ending is not None:
                    with suppress(AdvisorError):
                        awaited(coming.ending)
                self._end(coming, coming.refused or over)
        finally:
            for name, request in join_requests(self._folder):
                self._refuse(name, request, over)

    def _attempt(self, name: str, request: LaunchSpec | None, step: Callable[[], None]) -> None:
        try:
            step()
        except SurvivorsError:
            raise
        except (AdvisorError, OSError) as error:
            # Disk full, no permission: the system's own words.
            said = (
                InputError(f"the job cannot be started: {error.strerror}")
                if isinstance(error, OSError)
                else error
            )
            self._give_up(said) if self.coming else self._refuse(name, request, said)

    def _start(self, name: str, request: LaunchSpec | None) -> None:
        if request is None:
            raise InputError(
                "the request to join cannot be read",
                why="another version of advisor has written it, or its file is damaged",
                fix="ask again with the version that launched the jobs",
            )
        made = request.pairs[0]
        share, job = self._share(made), made.jobs[-1]
        check_workdir(job)
        place = self._folder.path / f"{self._number}-joined-{self._started}"
        self._started += 1
        place.mkdir(mode=0o700)
        for note in request.notes:
            self._warn(note)
        self.coming = _Newcomer(name, request, self._run(lambda: self._prove(job, share, place)))

    def _prove(self, job: Job, share: Share, place: Path) -> Proven:
        if self._backend.max_clients < 1:
            raise NoSplitError(
                "the MPS server has no place for another client", fix="ask again when one has ended"
            )
        return prove(job, share, self._backend, self._base, place)

    def _share(self, made: LaunchSet) -> Share:
        """The share of the newcomer, the last of those made, as its set can grant it.

        Raises:
            InputError, NoSplitError: what stands against it.
        """
        monitor, part, (share_percent, is_low) = self._monitor, made.parts[-1], made.split.seats[-1]
        pair, running = monitor.pair, monitor.running_numbers()
        if len(running) >= MOST_JOBS:
            raise NoSplitError(
                f"{len(running)} jobs run together already",
                why=f"at most {MOST_JOBS} share a GPU",
                fix="ask again when one has ended",
            )
        if pair.split.is_limited and share_percent > pair.cap_percent:
            raise InputError(
                f"a share of {share_percent:g} % cannot join",
                why=f"the MPS server limits new clients to {pair.cap_percent} %, so that running "
                "jobs keep their shares",
                fix=f"ask for {pair.cap_percent} % or less",
            )
        if not pair.split.is_limited and share_percent < 100:
            raise InputError(
                f"a limit of {share_percent:g} % cannot join jobs that run {pair.split.sharing}",
                fix="ask for no limit: 100",
            )
        split = pair.split.joined_by(share_percent, is_low)
        split.check_masks(self._backend.gpu.vendor)
        together, gpu = (*(pair.jobs[n] for n in running), part.job), self._backend.gpu
        if len(together) > 1:
            check_memory(together, gpu)
        memory = MemoryFit(tuple(job.memory_mib for job in together), gpu.memory_mib)
        return replace(
            split.each_share[-1],
            memory_mib=memory.limit_mib(-1) if part.limit_memory and gpu.memory_mib else None,
        )

    def _go_on(self, coming: _Newcomer) -> None:
        if not is_requested(self._folder, coming.name):
            raise InputError("the request to join was withdrawn")
        if self._monitor.newcomer_error is not None:
            raise self._monitor.newcomer_error
        if coming.job is None:
            if coming.proving.done():
                coming.job = coming.proving.result().start()
                self._monitor.expect(coming.job)
            return
        # One that has finished by now has run all the same.
        if (job := coming.job).exit_code == 0:
            self._join(coming, job, None)
        elif coming.checking is None:
            if job.ready_to_launch():
                coming.checking = self._run(lambda: _check(job))
        elif coming.checking.done():
            self._join(coming, job, coming.checking.result())

    def _join(self, coming: _Newcomer, job: RunningJob, proof: Proof | None) -> None:
        made = coming.request.pairs[0]
        beside = tuple(job.name for job in made.jobs[:-1])
        self._monitor.join(
            coming.name,
            job,
            made.parts[-1],
            made.forecast if self._monitor.running_names() == beside else None,
            proof,
        )
        self.coming = None
        self._answer(self._monitor.jobs[-1].status())

    def _give_up(self, error: AdvisorError) -> None:
        """Begin to end the newcomer, which does not join for this reason."""
        coming = self.coming
        assert coming is not None
        coming.refused = error
        if (job := coming.job) is not None and coming.ending is None:
            coming.ending = self._run(lambda: end_jobs([job], error))

    def _end(self, coming: _Newcomer, error: AdvisorError) -> None:
        """Refuse the newcomer once nothing of it is left.

        Raises:
            SurvivorsError: a process of it does not end.
        """
        if coming.ending is not None and not coming.ending.done():
            return
        # A fault of the MPS server takes a newcomer down, too, which then tries again elsewhere.
        if isinstance(error, JobError) and self._monitor.suspicions:
            return
        if isinstance(error, JobError) and any(
            job.code == "mps-fault" for job in self._monitor.jobs
        ):
            error = PartitionError(f"a fault on the MPS server ended the start: {error}")
        self.coming = None
        self._monitor.expect(None)
        self._refuse(coming.name, coming.request, error)
        if coming.ending is not None:
            coming.ending.result()

    def _refuse(self, name: str, request: LaunchSpec | None, error: AdvisorError) -> None:
        self._answer(refusal(join_status(self._folder, name, request), error))

    def _answer(self, said: JobStatus) -> None:
        try:
            answer(self._folder, said)
        except OSError as error:
            self._warn(f"the answer to {said.job}, which asked to join: {error.strerror}")


_LOOK_S = 0.25

# How long jobs that start again at another split may take to end by themselves, s.
_CHECKPOINT_S = 60.0

# How long after a start, a join or an end it is looked at whether another split would do more,
# and how often after that, s: rates and kernels that were learned meanwhile may say so.
_FIRST_S, _AGAIN_S = 30.0, 600.0

Better: TypeAlias = Callable[[LaunchSet, Sequence[Observation]], tuple[Resplit, LaunchSet | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """A GPU that is held for one launch, and what else the launch needs of its host.

    Attributes:
        source: Telemetry of the GPU.
        environment: Of jobs, without limits and without secrets.
        open_backend: What enforces the shares of a set; closed with each set.
        remember: Keeps what was seen where others find it; may fail without harm.
        renew: Makes the forecast at another demand; None: it stays.
        better: Says whether another split would do more, by these observations too, which no store
            has yet, and what would be started then; None: no split is compared.
    """

    gpu: Gpu
    source: TelemetrySource
    environment: Mapping[str, str]
    open_backend: Callable[[Sharing], Backend]
    remember: Callable[[Record], None]
    renew: Renew | None = None
    better: Better | None = None


# How a set ended: by itself, by its spec, on request, or badly.
_Ending = Literal["finished", "stopped", "asked", "failed"]


class _SetRun:
    """One set of a launch that holds its GPU."""

    def __init__(
        self,
        folder: LaunchFolder,
        spec: LaunchSpec,
        number: int,
        context: LaunchContext,
        writer: StatusWriter,
        meter: LaunchMeter,
        stop_requested: Callable[[], bool],
    ) -> None:
        self._meter, self._starts = meter, (0.0, 0.0)
        self._folder, self._spec, self._number = folder, spec, number
        self._context, self._writer, self._stop_requested = context, writer, stop_requested
        self._pair = spec.pairs[number]
        self._beaten_s = time.monotonic()
        self._earlier, self._unwatched_s = writer.status.ledger, writer.status.unwatched_s
        self.trial = self._history = None
        self.again: LaunchSet | None = None
        self._offer: LaunchSet | None = None
        self._offer_of, self._ask_s = tuple[int, ...](), 0.0
        self._asking: Future[tuple[Resplit, LaunchSet | None]] | None = None

    def run(self) -> _Ending:
        """Run it to its end; no job of it is left then.

        A failure ends its set, and the next one may begin.

        Raises:
            SurvivorsError: a process of it does not end.
            AdvisorError: the GPU cannot be shared as it should, so no other set can run either.
        """
        with ExitStack() as stack:
            starting = stack.enter_context(ExitStack())
            starting.enter_context(self._meter.starting())
            backend = self._context.open_backend(self._pair.split.sharing)
            stack.callback(_close, backend)
            guard = ProcessGuard(self._folder.path, backend, self._context.environment)
            stack.callback(guard.close)
            self._beaten_s = time.monotonic()
            stack.enter_context(heard_by(lambda: self._beat(guard)))
            stack.enter_context(adopting_orphans())
            try:
                jobs, failed = self._start(backend)
            except StopRequestedError:
                self._mark_stopped()
                return "asked"
            except JobError as error:
                self._mark_stopped()
                self._writer.blame(error.code, str(error))
                return "failed"
            # Looked at again at the very end: a set with a process left has not ended.
            stack.callback(end_jobs, jobs)
            before_s, before_j = self._meter.starts_s, self._meter.starts_j or 0.0
            monitor = SetMonitor(
                self._pair,
                jobs,
                backend,
                self._context.source,
                self._spec,
                failed=failed,
                renew=self._context.renew,
            )
            starting.close()
            self._starts = (
                self._meter.starts_s - before_s,
                (self._meter.starts_j or 0.0) - before_j,
            )
            return self._watch(monitor, backend)

    def _start(self, backend: Backend) -> tuple[tuple[RunningJob, ...], dict[int, JobError]]:
        if self._is_stopping():
            raise StopRequestedError
        proven = prove_set(
            self._pair,
            backend,
            self._base(),
            (self._folder.path / place for place in self._pair.places(self._number)),
        )
        self._writer.enter(
            "starting",
            jobs=tuple(
                replace(
                    job,
                    units_granted=proof.granted.units,
                    memory_limit_mib=proof.granted.memory_mib,
                    outcome="starting",
                )
                for job, proof in zip(self._writer.status.jobs, proven, strict=True)
            ),
        )
        first = [
            n
            for n, job in enumerate(self._pair.jobs)
            if self._pair.alone_s and job.progress.gate and job.offered_rate is None
        ]
        return start_set(proven, self._is_stopping, first, self._run_alone)

    def _run_alone(self, jobs: Mapping[int, RunningJob]) -> None:
        """Measure each alone, one after the other; the set and what is expected go by that.

        Raises:
            StopRequestedError: a stop was requested.
        """
        seconds, status, measured = self._pair.alone_s or 0.0, self._writer.status, set[int]()
        self._pair = replace(self._pair, alone_s=None)
        self._writer.warn(f"jobs with a gate run alone first, for {seconds:g} s each")
        for n, job in jobs.items():
            shown = [*status.jobs]
            shown[n] = replace(shown[n], outcome="running")
            self._writer.enter("starting", jobs=tuple(shown))
            try:
                figures = self._measured(job, self._pair.parts[n], seconds)
            except JobError as error:
                if job.exit_code is None:
                    self._writer.warn(f"no other job ran alone: {error}")
                    break
                continue
            before, (self._pair, factor) = self._pair, as_alone(self._pair, n, *figures)
            measured |= set[int]() if self._pair is before else {n}
            self._writer.warn(f"{job.job.name} is {factor:.2f} times as fast here as was known")
        self._writer.warn(
            *(
                f"{job.name} was not measured alone: no gate, or a demand"
                for n, job in enumerate(self._pair.jobs)
                if n not in jobs
            )
        )
        if measured and self._pair.forecast and self._context.renew:
            self._renew(self._context.renew)
        for n in measured:
            self._pair = with_part(self._pair, n, host_spread=0.0)
        self._writer.enter("starting", jobs=status.jobs, forecast=self._pair.forecast)
        pairs = [*self._spec.pairs]
        pairs[self._number] = self._pair
        # Joining jobs, and the queue, read it there; on a full disk nothing ends for that.
        with suppress(OSError):
            self._folder.write_spec(replace(self._spec, pairs=tuple(pairs)))

    def _renew(self, renew: Renew) -> None:
        """Expect the speeds, watts and energy that go with the rates alone of the set."""
        renewing = in_thread(lambda: renew(self._pair, [None] * len(self._pair.parts)))
        with suppress(Exception):  # whatever it is, a launch goes on without
            forecast, broken = awaited(renewing)
            self._pair = replace(self._pair, forecast=forecast)
            self._writer.warn(*(f"at these rates: {text}" for text in broken))
        if (error := renewing.exception()) is not None:
            self._writer.warn(f"watts and energy are expected as before: {error}")

    def _measured(
        self, job: RunningJob, part: LaunchPart, seconds: float
    ) -> tuple[float | None, float | None]:
        """Open a gate for so long; progress per second and power without the first seconds.

        Raises:
            JobError: it ended, or does not stop at its gate.
            StopRequestedError: a stop was requested.
        """
        begun_s, meter = time.monotonic(), CardMeter(self._context.source)
        job_monitor = JobMonitor(job, part, begun_s)
        stretch = Stretch([job_monitor], [0], begun_s, None)
        job.go()
        while not job_monitor.over and time.monotonic() - begun_s < seconds:
            if self._is_stopping():
                raise StopRequestedError
            beat()
            time.sleep(_LOOK_S)
            (counted, drawn), now = timed(
                lambda: (job_monitor.count(time.monotonic), meter.read()), time.monotonic
            )
            job_monitor.look(now, counted, None)
            stretch.add(now, _LOOK_S, meter.add(drawn, now))
        job.hold(10.0)  # a job that does not look at its gate for so long has no rate either
        return stretch.rates()[0], stretch.power_w()

    def _base(self) -> dict[str, str]:
        return {**self._context.environment, LAUNCH_MARK: str(self._folder.path)}

    def _beat(self, guard: ProcessGuard) -> None:
        silent_s, self._beaten_s = time.monotonic() - self._beaten_s, time.monotonic()
        if silent_s >= SILENT_S:
            self._writer.warn(
                f"this launch was not watched for {silent_s:.0f} s: its supervisor was stopped, or "
                "its host was suspended"
            )
        if guard.beat():
            self._writer.warn(
                "the guard of this launch was killed or hung; another one watches now"
            )

    def _watch(self, monitor: SetMonitor, backend: Backend) -> _Ending:
        started_at = to_exact_text(datetime.now(UTC))
        newcomers = Newcomers(
            self._folder, self._number, monitor, backend, self._base(), self._writer.warn
        )
        keeper = Keeper(
            self._folder,
            monitor,
            self._context.gpu,
            started_at,
            self._context.remember,
            self._writer.warn,
        )
        self._history = HistoryKeeper(started_at)
        ending = "failed"
        try:
            # One may have ended since it was ready, where this process stood still.
            monitor.look()
            self._show(monitor, "running")
            while (outcome := self._ending(monitor, coming=newcomers.coming is not None)) is None:
                beat()
                time.sleep(_LOOK_S)
                for request in (self._folder.path / "ends").glob("*"):
                    if monitor.end(request.name):
                        # Written first: what waits for the request then reads how it ended.
                        self._show(monitor, "running")
                        request.unlink()
                monitor.look()
                if self._spec.try_s is None and (newcomers.coming or not monitor.over):
                    newcomers.look()
                keeper.look()
                news = (*forecast_news(self._pair, monitor), *pace_news(monitor))
                self._writer.warn(*monitor.alarms(), *unsaid(news, self._writer.said, self._number))
                self._look_for_split(monitor, keeper, coming=newcomers.coming is not None)
                self._show(monitor)
            ending = outcome
        except PartitionError:
            monitor.lose_limits()
            raise
        finally:
            self._end(monitor, newcomers)
            keeper.close(_state(ending, monitor))
        if self._spec.try_s is not None and ending == "stopped":
            self.trial = monitor.account.trial()
        if self.again is not None:
            self.again = replace(
                self.again,
                parts=tuple(
                    replace(part, done=monitor.jobs[n].steps)
                    for part, n in zip(self.again.parts, self._offer_of, strict=True)
                ),
                ran_s=self._pair.ran_s + time.monotonic() - monitor.begun_s,
            )
        return ending

    def _look_for_split(self, monitor: SetMonitor, keeper: Keeper, *, coming: bool) -> None:
        """Ask in the background whether another split would do more, and take it if one is to."""
        now_s, numbers = time.monotonic(), monitor.running_numbers()
        if numbers != self._offer_of:
            self._offer_of, self._ask_s = numbers, now_s + _FIRST_S
            self._asking = self._offer = None
            self._writer.update(resplit=None)
        is_due = numbers and now_s >= self._ask_s and self._spec.try_s is None
        if is_due and self._asking is None and self._context.better is not None:
            self._ask_s = now_s + _AGAIN_S
            pair, demands = monitor.left()
            stays = pair.stays or "another demand arrives" * any(demands)
            better = partial(self._context.better, pair, keeper.so_far())
            # Without a question no model is loaded.
            self._asking = in_thread(lambda: (Resplit(refused=stays), None) if stays else better())
        if self._asking is not None and self._asking.done():
            error = self._asking.exception()
            unknown = Resplit(refused=f"nothing is known of it: {error}"), None
            offer, self._offer = unknown if error else self._asking.result()
            self._asking = None
            self._writer.update(resplit=offer)
        with suppress(OSError):  # no request, or an unreadable one
            wanted = "" if coming else read_ours(self._folder.resplit).decode(errors="replace")
            self.again = self._offer if self._offer and str(self._offer.split) == wanted else None
            if wanted and self.again is None:
                self._folder.resplit.unlink()
                self._writer.warn(f"not started again at {wanted}: it is not offered any more")

    def _end(self, monitor: SetMonitor, newcomers: Newcomers) -> None:
        self._writer.update(resplit=None)
        # To end jobs beside a daemon that hangs takes half a minute.
        if not monitor.over:
            self._show(monitor, "stopping")
        if self.again is not None:
            # Jobs end by themselves that can; all others end as always after that.
            asked = [job.job for job in monitor.jobs if not job.over and job.job.ask_to_end()]
            wait_until(lambda: all(job.over for job in asked), _CHECKPOINT_S, _LOOK_S)
            self._writer.warn(
                *(
                    f"{job.job.name} did not end within {_CHECKPOINT_S:g} s and was ended: what it "
                    "did since its last checkpoint it does again"
                    for job in asked
                    if not job.over
                )
            )
        try:
            with closing(newcomers):
                monitor.stop()
            # Joined jobs, looked at again: a set with a process left has not ended.
            end_jobs(job.job for job in monitor.jobs)
        finally:
            self._show(monitor, self._writer.status.state)
            for number in (*monitor.first_ended, *range(len(monitor.jobs))):
                job_monitor = monitor.jobs[number]
                if job_monitor.code is not None:
                    self._writer.blame(job_monitor.code, job_monitor.error or job_monitor.code)

    def _ending(self, monitor: SetMonitor, *, coming: bool) -> _Ending | None:
        """How the set has ended; None while it is to go on, as for one who is coming."""
        if self._is_stopping():
            return "asked"
        if self.again is not None:
            return "stopped"
        outcomes = {job.outcome for job in monitor.jobs}
        if outcomes != {"running"}:
            # One that has ended is not started again: the way that is on trial then goes on.
            self._spec = replace(self._spec, try_s=None)
            self._writer.update(try_s=None)
        if monitor.over:
            if outcomes <= {"finished"}:
                return None if coming else "finished"
            return "stopped" if outcomes <= {"finished", "stopped"} else "failed"
        limit_s = self._spec.duration_s if self._spec.try_s is None else self._spec.try_s
        if limit_s is None or self._pair.ran_s + time.monotonic() - monitor.begun_s < limit_s:
            return None
        return "stopped" if outcomes <= {"finished", "running", "stopped"} else "failed"

    def _is_stopping(self) -> bool:
        return self._stop_requested() or self._folder.stop_requested()

    def _mark_stopped(self) -> None:
        self._writer.update(
            jobs=tuple(replace(job, outcome="stopped") for job in self._writer.status.jobs)
        )

    def _show(self, monitor: SetMonitor, state: State | None = None) -> None:
        changes = shown(monitor, self._earlier, self._starts, self._unwatched_s)
        changes["whole_energy_j"] = self._meter.joules
        changes["starts_energy_j"] = self._meter.starts_j
        self._writer.enter(state, **changes) if state else self._writer.update(**changes)
        passed_s = time.monotonic() - monitor.begun_s
        if self._history and self._history.add(passed_s, self._writer.status):
            write_history(self._folder, self._history.history)


def _state(ending: _Ending, monitor: SetMonitor) -> State:
    if ending == "failed" or any(job.code for job in monitor.jobs):
        return "failed"
    return "finished" if ending == "finished" else "stopped"


def _close(backend: Backend) -> None:
    # A daemon that is gone needs no end.
    with suppress(AdvisorError):
        backend.close()


def run_launch(
    folder: LaunchFolder,
    spec: LaunchSpec,
    open_context: Callable[[], AbstractContextManager[LaunchContext]],
    stop_requested: Callable[[], bool],
) -> LaunchStatus:
    """Run all sets, one after the other, and write where they stand.

    Args:
        folder: Claimed by the caller.
        spec: What is wanted.
        open_context: Gets hold of the GPU; raises where it cannot be had.
        stop_requested: Whether the caller was asked to stop; the folder's own request counts as
            well.

    Returns:
        The last status; no job runs any more.
    """
    writer = StatusWriter(folder, spec)
    writer.enter("starting", started_at=now())
    state: State = "failed"
    try:
        with heard_by(writer.update), open_context() as context:
            gpu = context.gpu
            writer.update(
                gpu_uuid=gpu.uuid,
                beside=tuple(other.uuid for other in gpu.others),
                gpu_model=gpu.model,
                units_total=gpu.units_total,
                power_limit_w=gpu.power_limit_w and len(gpu.each) * gpu.power_limit_w,
            )
            for pair in spec.pairs:
                check_set_memory(pair, gpu)
            meter = LaunchMeter(context.source, time.monotonic)
            try:
                with heard_by(meter.look):
                    state = _run_sets(folder, spec, context, writer, meter, stop_requested)
            finally:
                writer.warn(*(of.left_out for of in context.source.gates if of.left_out))
    except AdvisorError as error:
        writer.blame(error.code, str(error))
    except OSError as error:
        # Disk full, no permission: the system's own words.
        writer.blame("system", str(error))
    except Exception as error:  # noqa: BLE001 - what is not written down here is never known
        traceback.print_exc(file=sys.stderr)
        writer.blame("internal", f"{type(error).__name__}: {error}")
    writer.close("failed" if writer.status.code else state)
    return writer.status


def _check(job: RunningJob) -> Proof:
    """How far the limit of a job is known that is under it, or has ended; may wait some seconds.

    Raises:
        LimitNotProvenError: it is not under its limit.
    """
    job.check_client()
    return job.proof()


def _run_sets(
    folder: LaunchFolder,
    spec: LaunchSpec,
    context: LaunchContext,
    writer: StatusWriter,
    meter: LaunchMeter,
    stop_requested: Callable[[], bool],
) -> State:
    endings: list[_Ending] = []
    trials: list[Trial] = []
    while (number := len(endings)) < len(spec.pairs):
        folder.keep_reserve()
        writer.begin_pair(spec, number)
        folder.resplit.unlink(missing_ok=True)
        run = _SetRun(folder, spec, number, context, writer, meter, stop_requested)
        try:
            endings.append(run.run())
        finally:
            # With the end of the jobs, and of what held their limits.
            writer.update(whole_energy_j=meter.read(), starts_energy_j=meter.starts_j)
        if endings[-1] == "asked" or (spec.try_s is not None and run.trial is None):
            break
        if run.trial is not None:
            trials.append(run.trial)
            # Jobs begin again: what they did on trial is no work that was done.
            writer.update(
                ledger=(ledger := writer.status.ledger)
                and replace(
                    ledger, alone_s=0.0, alone_j=0.0, freed_idle_j=ledger.freed_idle_j and 0.0
                )
            )
            if len(trials) == len(spec.pairs):
                spec = _with_best(spec, trials, folder, writer)
        if run.again is not None:
            # The same jobs go on: that is no end of a set.
            endings[-1] = "finished"
            pairs = (*spec.pairs[: number + 1], run.again, *spec.pairs[number + 1 :])
            spec = _written(replace(spec, pairs=pairs), folder)
            writer.warn(f"started again at {run.again.split}, as was asked for")
    if trials:
        endings = endings[-1:]
    if any(ending == "failed" for ending in endings):
        return "failed"
    return "finished" if all(ending == "finished" for ending in endings) else "stopped"


def _with_best(
    spec: LaunchSpec, trials: Sequence[Trial], folder: LaunchFolder, writer: StatusWriter
) -> LaunchSpec:
    """The launch with the best of the ways that were tried as its last set.

    Raises:
        NoSplitError: none keeps all limits, or saves anything.
    """
    best = max(trials, key=lambda trial: trial.rank)
    message = f"tried for {spec.try_s:g} s each: {'; '.join(trial.text for trial in trials)}"
    saved = best.energy_saved
    if best.broken or (saved is not None and saved <= 0):
        raise NoSplitError(
            "these jobs should not share a GPU: no way that was tried "
            f"{'keeps all limits' if best.broken else 'saves energy'}",
            why=message,
            fix="launch one after the other, or each on a GPU of its own: "
            + "; ".join(f"advisor launch {job.name}" for job in best.pair.jobs),
        )
    writer.warn(f"{message}. {best.pair.split} goes on")
    return _written(replace(spec, pairs=(*spec.pairs, best.pair), try_s=None), folder)


def _written(spec: LaunchSpec, folder: LaunchFolder) -> LaunchSpec:
    # On a full disk, too: no job ends for what is written about it.
    folder.free_reserve()
    folder.write_spec(spec)
    return spec
