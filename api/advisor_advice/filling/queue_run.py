"""Runs a queue: launches sets on empty GPUs, lets jobs join those that run, until all are done.

Each launch has its own supervisor, so whatever ends this process leaves the jobs watched; what is
under way is found again by its folders.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from advisor.core.gpu import WHOLE
from advisor.core.job import Job
from advisor.core.split import Split
from advisor.decide.ways import Running
from advisor.errors import (
    AdvisorError,
    BusyError,
    InputError,
    PartitionError,
    SourceError,
    SurvivorsError,
)
from advisor.launch.folder import (
    LaunchFolder,
    ask_join,
    close_unclaimed,
    create_folder,
    find_folder,
    new_launch_id,
)
from advisor.launch.run_queue import (
    QueueFile,
    QueueRecord,
    SeenLaunch,
    account_for,
    must_be_alone,
    see,
    waiting,
)
from advisor.launch.spec import LaunchPart, LaunchSet, LaunchSpec
from advisor.launch.start import spawn_supervisor
from advisor.settings import Settings
from advisor_advice.filling.advice import QueueCard
from advisor_advice.launching import make_join
from advisor_profiling import SUPERVISOR

_WAIT_S = 60.0
"""A launch may wait for the GPU of the one before it, whose jobs have ended, for so long."""

_OF_GPU = {error.code: error for error in (BusyError, PartitionError, SourceError, SurvivorsError)}
"""What goes wrong with a GPU, whatever job is started on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """A queue at one moment.

    Attributes:
        launches: Those that are under way.
        waiting: Names of the jobs that wait, in the order of the queue.
    """

    record: QueueRecord
    launches: tuple[SeenLaunch, ...]
    waiting: tuple[str, ...]

    @property
    def over(self) -> bool:
        """Nothing of it runs."""
        return not self.launches


class QueueRun:
    """One queue, of which this process has the file.

    Args:
        jobs: As their files are now; one that is wanted several times so often.
        cards: GPUs on which jobs may be started.
        limits_s: How long jobs may run, by their names; servers run until they are ended.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        cards: Sequence[QueueCard],
        file: QueueFile,
        settings: Settings,
        limits_s: Mapping[str, float] | None = None,
    ) -> None:
        self._limits_s = limits_s or {}
        self.cards, self._file, self._settings = tuple(cards), file, settings
        self.names = tuple(job.name for job in jobs)
        self._jobs: Mapping[str, Job] = {job.name: job for job in jobs}
        self._record = file.read().to_go_on()
        self._refused: set[tuple[str, str]] = set()
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self.stopping = False

    def take_up(self) -> None:
        """Let launches begin that were noted and whose supervisors never began.

        Raises:
            OSError: one cannot be started.
        """
        for launch_id in self._record.launches:
            folder = LaunchFolder(self._root / launch_id)
            if (folder.path / "spec.json").is_file() and not folder.claimed():
                self._spawn(folder)

    def stop(self) -> None:
        """Have everything end that runs; nothing is started any more."""
        self.stopping = True

    def is_server(self, name: str) -> bool:
        """Whether a job answers requests until it is ended."""
        return self._jobs[name].offered_rate is not None

    def look(self) -> QueueLook:
        """Where it stands; launches that are over are accounted for.

        Raises:
            OSError: the record cannot be written.
        """
        seen: list[SeenLaunch] = []
        for launch_id in self._record.launches:
            try:
                folder = find_folder(self._root, launch_id)
                if (own := self._supervisors.get(launch_id)) and own.poll() is not None:
                    # It ended before it began: its jobs are lost, and nobody starts them later.
                    close_unclaimed(folder)
                launch = see(folder)
            except InputError:
                # It was noted and never made, or removed since.
                self._keep(replace(self._record, launches=self._others(launch_id)))
                continue
            if launch.status.over:
                self._check_gpu(launch)
                self._keep(account_for(self._record, launch, Counter(self.names)))
            else:
                seen.append(launch)
        left = waiting(self.names, self._record, seen)
        return QueueLook(record=self._record, launches=tuple(seen), waiting=left)

    def act(self, look: QueueLook) -> bool:
        """Start, join or end what is to be next; whether more may be to do at once.

        Raises:
            AdvisorError: what is needed for advice cannot be read.
            OSError: a launch cannot be started.
        """
        if self.stopping:
            for launch in look.launches:
                self._folder(launch).ask_stop()
            return False
        left = [n for n in look.waiting if not (look.record.servers_ended and self.is_server(n))]
        if self._only_servers(look, left):
            return self._end_servers(look)
        for card in self.cards:
            here = _on(card, look)
            if not here and left and self._start(card, left, look):
                return True
            if here and left and self._join(card, here[0], left):
                return True
        return False

    def done(self, look: QueueLook) -> bool:
        """Whether every batch job has come to its end, and nothing runs."""
        return look.over and all(map(self.is_server, look.waiting))

    def finish(self, look: QueueLook) -> bool:
        """Whether all ended well; nothing is kept then."""
        well = self.done(look) and not look.record.failed
        if well:
            self._file.remove()
        return well

    def first_sets(self) -> Iterator[tuple[QueueCard, LaunchSet]]:
        """What starts at once on GPUs that are empty, without starting it."""
        look = self.look()
        left = list(look.waiting)
        empty = [card for card in self.cards if not _on(card, look)]
        for spare, card in zip(range(len(empty) - 1, -1, -1), empty, strict=True):
            if left and (made := self._set(card, left, look, spare)):
                for part in made.parts:
                    left.remove(part.job.name)
                yield card, made

    @property
    def _root(self):
        return self._settings.home / "launches"

    def _folder(self, launch: SeenLaunch) -> LaunchFolder:
        return LaunchFolder(self._root / launch.launch_id)

    def _others(self, launch_id: str) -> tuple[str, ...]:
        return tuple(name for name in self._record.launches if name != launch_id)

    def _check_gpu(self, launch: SeenLaunch) -> None:
        """Take note of a launch that never ran because of its GPU, which no other job can use.

        Raises:
            AdvisorError: as its supervisor met it.
        """
        status = launch.status
        if status.code in _OF_GPU and status.overlap_s == 0:
            self._keep(replace(self._record, launches=self._others(launch.launch_id)))
            raise _OF_GPU[status.code](
                f"GPU {launch.gpu} cannot be used: {status.cause}",
                fix="mend that, then the same command goes on; what runs elsewhere runs on",
            )

    def _keep(self, record: QueueRecord) -> None:
        self._file.write(record)
        self._record = record

    def _spawn(self, folder: LaunchFolder) -> None:
        self._supervisors[folder.launch_id] = spawn_supervisor(folder, self._settings, SUPERVISOR)

    def _only_servers(self, look: QueueLook, left: Sequence[str]) -> bool:
        """Whether what runs are servers alone, and nobody who waits can run beside them."""
        running = [job for launch in look.launches for job in launch.running]
        if not running or not all(self.is_server(job.part.job.name) for job in running):
            return False
        if any(launch.joining or not launch.has_room for launch in look.launches):
            return False
        batch = [name for name in left if not self.is_server(name)]
        return not any(self._could_start(card, batch, look) for card in self.cards)

    def _could_start(self, card: QueueCard, batch: Sequence[str], look: QueueLook) -> bool:
        here = _on(card, look)
        if not here:
            return bool(batch)
        return self._beside(card, here[0], batch) is not None

    def _end_servers(self, look: QueueLook) -> bool:
        self._keep(replace(self._record, servers_ended=True))
        for launch in look.launches:
            self._folder(launch).ask_stop()
        return False

    def _start(self, card: QueueCard, left: Sequence[str], look: QueueLook) -> bool:
        empty = [other for other in self.cards if not _on(other, look)]
        made = self._set(card, left, look, spare=len(empty) - 1)
        if made is None:
            return False
        spec = LaunchSpec(
            launch_id=new_launch_id(),
            gpu=card.gpu.uuid,
            pairs=(replace(made, parts=tuple(map(self._limited, made.parts))),),
            hang_s=card.wanted.request.hang_s,
            wait_s=_WAIT_S if any(one.gpu == card.gpu.uuid for one in look.launches) else 0.0,
            asked_by=card.wanted.asked_by,
        )
        # Noted first: a launch that nobody knows of would be started again.
        self._keep(replace(self._record, launches=(*self._record.launches, spec.launch_id)))
        self._spawn(create_folder(self._root, spec))
        return True

    def _limited(self, part: LaunchPart) -> LaunchPart:
        """The same with its time limit."""
        name = part.job.name
        limit_s = None if self.is_server(name) else self._limits_s.get(name)
        return replace(part, time_limit_s=limit_s)

    def _set(
        self, card: QueueCard, left: Sequence[str], look: QueueLook, spare: int
    ) -> LaunchSet | None:
        """What an empty GPU is to run; None: what waits, waits for another one."""
        alone, one_by_one = must_be_alone(look.record)
        known = [n for n in left if n not in alone and n not in one_by_one]
        found = card.advice.first_set(known, spare)
        if found is not None:
            names, prediction = found
            return card.launch_set([self._jobs[n] for n in names], prediction.split, self._settings)
        # Those of which nothing is known, or that others went down with, come last.
        last = sorted(left, key=lambda n: (self.is_server(n), n not in one_by_one))
        if not last:
            return None
        return card.launch_set([self._jobs[last[0]]], Split((WHOLE,)), self._settings)

    def _beside(self, card: QueueCard, launch: SeenLaunch, left: Sequence[str]):
        """Who is to join a launch, if anybody."""
        alone, _ = must_be_alone(self._record)
        running = launch.running
        names = [job.part.job.name for job in running]
        if not launch.has_room or any(name in alone for name in names):
            return None
        shares = tuple(job.status.share_percent for job in running)
        there = Running(shares=shares, sharing=launch.status.sharing, cap_percent=WHOLE)
        refused = launch.refused | {n for i, n in self._refused if i == launch.launch_id}
        able = [name for name in left if name not in alone and name not in refused]
        return card.advice.joining(names, there, able)

    def _join(self, card: QueueCard, launch: SeenLaunch, left: Sequence[str]) -> bool:
        found = self._beside(card, launch, left)
        if found is None:
            return False
        name, share = found.profile.job, found.prediction.split.shares[-1]
        folder = self._folder(launch)
        try:
            request = make_join(folder, name, share, card.wanted, self._settings)
        except AdvisorError:
            # It has ended meanwhile, or cannot at that share: another look says more.
            self._refused.add((launch.launch_id, name))
            return False
        with suppress(OSError):
            ask_join(
                folder, replace(request, part=self._limited(card.advice.held_to(request.part)))
            )
        return True


def _on(card: QueueCard, look: QueueLook) -> list[SeenLaunch]:
    """Launches with jobs on a GPU; one whose jobs have ended is about to let go of it."""
    return [one for one in look.launches if one.gpu == card.gpu.uuid and not one.is_ending]
