"""Runs a launch from its first set to the end of its last; whatever happens has a defined end."""

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal, TypeAlias

from advisor.core.gpu import Gpu, Sharing
from advisor.core.records import Observation, Record
from advisor.core.telemetry import TelemetrySource
from advisor.errors import AdvisorError, JobError, NoSplitError, PartitionError
from advisor.formats.moments import now, to_exact_text
from advisor.launch.account import Stretch, Trial
from advisor.launch.folder import LaunchFolder, StatusWriter
from advisor.launch.guard import LAUNCH_MARK, ProcessGuard
from advisor.launch.job_monitor import JobMonitor
from advisor.launch.meter import CardMeter, LaunchMeter, timed
from advisor.launch.newcomers import Newcomers
from advisor.launch.observe import Keeper, forecast_news, pace_news, shown, unsaid
from advisor.launch.overview import HistoryKeeper, write_history
from advisor.launch.set_monitor import Renew, SetMonitor
from advisor.launch.spec import (
    SILENT_S,
    LaunchPart,
    LaunchSet,
    LaunchSpec,
    LaunchStatus,
    Resplit,
    State,
    as_alone,
    with_part,
)
from advisor.launch.start import StopAskedError, check_set_memory, end_jobs, prove_set, start_set
from advisor.runtime.backend import Backend
from advisor.runtime.job_process import adopting_orphans
from advisor.runtime.processes import awaited, beat, heard_by, in_thread
from advisor.runtime.running_job import RunningJob

LOOK_S = 0.25

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
        renew: Says what is to be expected at another demand; None: nobody does.
        better: Says whether another split would do more, by these observations too, which no store
            has yet, and what would be started then; None: nobody does.
    """

    gpu: Gpu
    source: TelemetrySource
    environment: Mapping[str, str]
    open_backend: Callable[[Sharing], Backend]
    remember: Callable[[Record], None]
    renew: Renew | None = None
    better: Better | None = None


# How a set ended: by itself, as its spec says, because somebody asked, or badly.
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
        stop_asked: Callable[[], bool],
    ) -> None:
        self._meter, self._starts = meter, (0.0, 0.0)
        self._folder, self._spec, self._number = folder, spec, number
        self._context, self._writer, self._told_to_stop = context, writer, stop_asked
        self._pair = spec.pairs[number]
        self._beaten_s = time.monotonic()
        self._earlier, self._unwatched_s = writer.status.ledger, writer.status.unwatched_s
        self.trial: Trial | None = None
        self.again: LaunchSet | None = None
        self._offer: LaunchSet | None = None
        self._offer_of, self._ask_s = tuple[int, ...](), 0.0
        self._asking: Future[tuple[Resplit, LaunchSet | None]] | None = None
        self._history: HistoryKeeper | None = None

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
            except StopAskedError:
                self._mark_stopped()
                return "asked"
            except JobError as error:
                self._mark_stopped()
                self._writer.blame(error.code, str(error))
                return "failed"
            # Looked at again at the very end: a set of which somebody is left has not ended.
            stack.callback(end_jobs, jobs)
            before_s, before_j = self._meter.starts_s, self._meter.starts_j
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
            joules = (self._meter.starts_j or 0.0) - (before_j or 0.0)
            self._starts = self._meter.starts_s - before_s, joules
            return self._watch(monitor, backend)

    def _start(self, backend: Backend) -> tuple[tuple[RunningJob, ...], dict[int, JobError]]:
        places = [self._folder.path / place for place in self._pair.places(self._number)]
        if self._stop_asked():
            raise StopAskedError
        proven = prove_set(self._pair, backend, self._base(), places)
        self._writer.enter(
            "starting",
            jobs=tuple(
                replace(
                    job,
                    units_granted=one.granted.units,
                    memory_limit_mib=one.granted.memory_mib,
                    outcome="starting",
                )
                for job, one in zip(self._writer.status.jobs, proven, strict=True)
            ),
        )
        first = [
            n
            for n, job in enumerate(self._pair.jobs)
            if self._pair.alone_s and job.progress.gate and job.offered_rate is None
        ]
        return start_set(proven, self._stop_asked, first, self._run_alone)

    def _run_alone(self, jobs: Mapping[int, RunningJob]) -> None:
        """Measure each alone, one after the other; the set and what is expected go by that.

        Raises:
            StopAskedError: somebody wants the launch stopped.
        """
        seconds, status, known = self._pair.alone_s or 0.0, self._writer.status, set[int]()
        self._pair = replace(self._pair, alone_s=None)
        self._writer.warn(f"jobs with a gate run alone first, for {seconds:g} s each")
        for n, job in jobs.items():
            shown = [*status.jobs]
            shown[n] = replace(shown[n], outcome="running")
            self._writer.enter("starting", jobs=tuple(shown))
            try:
                found = self._measured(job, self._pair.parts[n], seconds)
            except JobError as error:
                if job.exit_code is None:
                    self._writer.warn(f"nobody else ran alone: {error}")
                    break
                continue
            before, (self._pair, factor) = self._pair, as_alone(self._pair, n, *found)
            known |= set[int]() if self._pair is before else {n}
            self._writer.warn(f"{job.job.name} is {factor:.2f} times as fast here as was known")
        names = [one.name for n, one in enumerate(self._pair.jobs) if n not in jobs]
        self._writer.warn(
            *(f"{name} was not measured alone: no gate, or a demand" for name in names)
        )
        if known and self._pair.forecast and self._context.renew:
            self._renew(self._context.renew)
        for n in known:
            self._pair = with_part(self._pair, n, host_spread=0.0)
        self._writer.enter("starting", jobs=status.jobs, forecast=self._pair.forecast)
        pairs = [*self._spec.pairs]
        pairs[self._number] = self._pair
        # Who joins, and the queue, read it there; on a full disk nothing ends for that.
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
            StopAskedError: somebody wants the launch stopped.
        """
        begun_s, meter = time.monotonic(), CardMeter(self._context.source)
        one = JobMonitor(job, part, begun_s)
        stretch = Stretch([one], [0], begun_s, None)
        job.go()
        while not one.over and time.monotonic() - begun_s < seconds:
            if self._stop_asked():
                raise StopAskedError
            beat()
            time.sleep(LOOK_S)
            (counted, drawn), now = timed(
                lambda: (one.count(time.monotonic), meter.read()), time.monotonic
            )
            one.look(now, counted, None)
            stretch.add(now, LOOK_S, meter.add(drawn, now))
        job.hold(10.0)  # who does not look at its gate for so long tells no rate either
        return stretch.rates()[0], stretch.power_w()

    def _base(self) -> dict[str, str]:
        return {**self._context.environment, LAUNCH_MARK: str(self._folder.path)}

    def _beat(self, guard: ProcessGuard) -> None:
        silent_s, self._beaten_s = time.monotonic() - self._beaten_s, time.monotonic()
        if silent_s >= SILENT_S:
            self._writer.warn(
                f"this launch was watched by nobody for {silent_s:.0f} s: its supervisor was "
                "stopped, or its host stood still"
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
        self._show(monitor, "running")
        ending = "failed"
        try:
            while (found := self._ending(monitor, coming=newcomers.coming is not None)) is None:
                beat()
                time.sleep(LOOK_S)
                monitor.look()
                if self._spec.try_s is None and (newcomers.coming or not monitor.over):
                    newcomers.look()
                keeper.look()
                news = (*forecast_news(self._pair, monitor), *pace_news(monitor))
                told = unsaid(news, self._writer.said, self._number)
                self._writer.warn(*monitor.alarms(), *told)
                self._look_for_split(monitor, keeper, coming=newcomers.coming is not None)
                self._show(monitor)
            ending = found
        except PartitionError:
            monitor.lose_limits()
            raise
        finally:
            self._end(monitor, newcomers)
            keeper.close(_state(ending, monitor))
        if self._spec.try_s is not None and ending == "stopped":
            self.trial = monitor.account.trial()
        if self.again is not None:
            seats = zip(self.again.parts, self._offer_of, strict=True)
            self.again = replace(
                self.again,
                parts=tuple(replace(part, done=monitor.jobs[n].steps) for part, n in seats),
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
            asked = partial(self._context.better, pair, keeper.so_far())
            # Who is not asked loads no model.
            self._asking = in_thread(lambda: (Resplit(refused=stays), None) if stays else asked())
        if self._asking is not None and self._asking.done():
            error = self._asking.exception()
            unknown = Resplit(refused=f"nothing is known of it: {error}"), None
            offer, self._offer = unknown if error else self._asking.result()
            self._asking = None
            self._writer.update(resplit=offer)
        if self._folder.resplit.exists() and not coming:
            wanted = self._folder.resplit.read_text()
            self.again = self._offer if self._offer and str(self._offer.split) == wanted else None
            if self.again is None:
                self._folder.resplit.unlink()
                self._writer.warn(f"not started again at {wanted}: it is not offered any more")

    def _await_checkpoints(self, jobs: Sequence[RunningJob]) -> None:
        """Let jobs end by themselves that can; all others end as always after that."""
        asked, until_s = [job for job in jobs if job.ask_to_end()], time.monotonic() + _CHECKPOINT_S
        while (late := [job for job in asked if not job.over]) and time.monotonic() < until_s:
            beat()
            time.sleep(LOOK_S)
        self._writer.warn(
            *(
                f"{job.job.name} did not end within {_CHECKPOINT_S:g} s and was ended: what it did "
                "since its last checkpoint it does again"
                for job in late
            )
        )

    def _end(self, monitor: SetMonitor, newcomers: Newcomers) -> None:
        self._writer.update(resplit=None)
        # To end jobs beside a daemon that hangs takes half a minute.
        if not monitor.over:
            self._show(monitor, "stopping")
        if self.again is not None:
            self._await_checkpoints([one.job for one in monitor.jobs if not one.over])
        try:
            with closing(newcomers):
                monitor.stop()
            # Who joined, looked at again: a set of which somebody is left has not ended.
            end_jobs(one.job for one in monitor.jobs)
        finally:
            self._show(monitor, self._writer.status.state)
            for number in (*monitor.first_ended, *range(len(monitor.jobs))):
                one = monitor.jobs[number]
                if one.code is not None:
                    self._writer.blame(one.code, one.error or one.code)

    def _ending(self, monitor: SetMonitor, *, coming: bool) -> _Ending | None:
        """How the set has ended; None while it is to go on, as for one who is coming."""
        if self._stop_asked():
            return "asked"
        if self.again is not None:
            return "stopped"
        outcomes = {one.outcome for one in monitor.jobs}
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

    def _stop_asked(self) -> bool:
        return self._told_to_stop() or self._folder.stop_asked()

    def _mark_stopped(self) -> None:
        jobs = self._writer.status.jobs
        self._writer.update(jobs=tuple(replace(job, outcome="stopped") for job in jobs))

    def _show(self, monitor: SetMonitor, state: State | None = None) -> None:
        changes = shown(monitor, self._earlier, self._starts, self._unwatched_s)
        changes["whole_energy_j"] = self._meter.joules
        changes["starts_energy_j"] = self._meter.starts_j
        if state is None:
            self._writer.update(**changes)
        else:
            self._writer.enter(state, **changes)
        passed_s = time.monotonic() - monitor.begun_s
        if self._history and self._history.add(passed_s, self._writer.status):
            write_history(self._folder, self._history.history)


def _state(ending: _Ending, monitor: SetMonitor) -> State:
    if ending == "failed" or any(one.code for one in monitor.jobs):
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
    stop_asked: Callable[[], bool],
) -> LaunchStatus:
    """Run all sets, one after the other, and write where they stand.

    Args:
        folder: Claimed by the caller.
        spec: What is wanted.
        open_context: Gets hold of the GPU; raises where it cannot be had.
        stop_asked: Whether the caller was asked to stop; the folder's own request counts as well.

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
                    state = _run_sets(folder, spec, context, writer, meter, stop_asked)
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


def _run_sets(
    folder: LaunchFolder,
    spec: LaunchSpec,
    context: LaunchContext,
    writer: StatusWriter,
    meter: LaunchMeter,
    stop_asked: Callable[[], bool],
) -> State:
    endings: list[_Ending] = []
    trials: list[Trial] = []
    while (number := len(endings)) < len(spec.pairs):
        folder.keep_reserve()
        writer.begin_pair(spec, number)
        folder.resplit.unlink(missing_ok=True)
        run = _SetRun(folder, spec, number, context, writer, meter, stop_asked)
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
                ledger=(known := writer.status.ledger)
                and replace(
                    known, alone_s=0.0, alone_j=0.0, freed_idle_j=known.freed_idle_j and 0.0
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
    best = max(trials, key=lambda trial: trial.worth)
    told = f"tried for {spec.try_s:g} s each: {'; '.join(trial.text for trial in trials)}"
    saved = best.energy_saved
    if best.broken or (saved is not None and saved <= 0):
        raise NoSplitError(
            "these jobs should not share a GPU: no way that was tried "
            f"{'keeps all limits' if best.broken else 'saves energy'}",
            why=told,
            fix="launch one after the other, or each on a GPU of its own: "
            + "; ".join(f"advisor launch {job.name}" for job in best.pair.jobs),
        )
    writer.warn(f"{told}. {best.pair.split} goes on")
    return _written(replace(spec, pairs=(*spec.pairs, best.pair), try_s=None), folder)


def _written(spec: LaunchSpec, folder: LaunchFolder) -> LaunchSpec:
    # On a full disk, too: no job ends for what is written about it.
    folder.free_reserve()
    folder.write_spec(spec)
    return spec
