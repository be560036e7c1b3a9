"""Lets jobs join a set that runs: one at a time, each with its limit proven before it starts.

What takes seconds, such as the proof, runs in the background: the jobs that run are watched
meanwhile. Whatever goes wrong with a newcomer ends it alone. Those that run keep what they have: a
percentage cannot change while a client runs, nor may the server's, which holds them to it, be
raised.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.gpu import MOST_JOBS, MemoryFit, Share, check_masks, split_shares
from advisor.core.job import Job
from advisor.errors import (
    AdvisorError,
    InputError,
    JobError,
    NoSplitError,
    PartitionError,
    SurvivorsError,
)
from advisor.launch.folder import (
    LaunchFolder,
    answer,
    asked,
    join_status,
    refusal,
    still_asked,
)
from advisor.launch.set_monitor import SetMonitor
from advisor.launch.spec import JobStatus, LaunchSet, LaunchSpec
from advisor.launch.start import check_client, check_memory, check_workdir, end_jobs
from advisor.runtime.backend import Backend, Proof
from advisor.runtime.processes import RunInBackground, awaited, in_thread
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
        warn: Takes what cannot be said to who asked.

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
        for name, request in asked(self._folder):
            self._attempt(name, request, lambda n=name, r=request: self._start(n, r))
            return

    def close(self) -> None:
        """Nobody joins any more: who has asked is told so.

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
            for name, request in asked(self._folder):
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
                why=f"the MPS server gives what starts at most {pair.cap_percent} %, which holds "
                "those that run to their shares",
                fix=f"ask for {pair.cap_percent} % or less",
            )
        if not pair.split.is_limited and share_percent < 100:
            raise InputError(
                f"a limit of {share_percent:g} % cannot join jobs that run {pair.split.sharing}",
                fix="ask for no limit: 100",
            )
        split = pair.split.joined_by(share_percent, is_low)
        check_masks(split, self._backend.gpu.vendor)
        together, gpu = (*(pair.jobs[n] for n in running), part.job), self._backend.gpu
        if len(together) > 1:
            check_memory(together, gpu)
        memory = MemoryFit(tuple(job.memory_mib for job in together), gpu.memory_mib)
        limit_mib = memory.limit_mib(-1) if part.limit_memory else None
        return replace(split_shares(split)[-1], memory_mib=limit_mib)

    def _go_on(self, coming: _Newcomer) -> None:
        if not still_asked(self._folder, coming.name):
            raise InputError("who asked to join has withdrawn it")
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
        beside = tuple(one.name for one in made.jobs[:-1])
        forecast = made.forecast if self._monitor.running_names() == beside else None
        self._monitor.join(coming.name, job, made.parts[-1], forecast, proof)
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
        had_fault = any(one.code == "mps-fault" for one in self._monitor.jobs)
        if isinstance(error, JobError) and had_fault:
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


def _check(job: RunningJob) -> Proof:
    """How far the limit of a job is known that is under it, or has ended; may wait some seconds.

    Raises:
        LimitNotProvenError: it is not under its limit.
    """
    check_client(job)
    return job.proof()
