"""State of a queue (`advisor run`), kept so that the same command goes on after any end.

Jobs that run are in the folders of their launches, which outlive the command; what is left to keep
is which launches those are, and what came of those that are over.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Literal

from advisor.core.gpu import ADVISED_JOBS, MOST_JOBS, Split
from advisor.core.job import Job
from advisor.errors import BusyError, InputError
from advisor.files import open_home, read_ours, replace_file, try_lock, writing_private
from advisor.formats.wire import read, write
from advisor.launch.folder import LaunchFolder, joins, list_folders
from advisor.launch.spec import GOING, JobOutcome, JobStatus, LaunchPart, LaunchStatus, split_of

# `lost`: ended through no fault of its own, such as by one of another on the MPS server; it begins
# once more, alone. `ended`: a server, with the last batch job.
_Came = Literal["finished", "failed", "lost", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job of a launch that is over.

    Attributes:
        code: Stable name of what went wrong; None: nothing did.
        error: The same in words.
        steps: Progress, in the job's unit.
        alone_s: How long these steps take alone on the whole GPU; None without a profile.
        alone_j: Energy of the GPU in that time; None likewise, and where hosts differ too much in
            their speed of the job, and this one's is not known.
    """

    job: str
    launch_id: str
    came: _Came
    code: str | None = None
    error: str | None = None
    steps: float = 0.0
    alone_s: float | None = None
    alone_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue.

    Attributes:
        launches: Ids of its launches that are not accounted for.
        ended: Jobs of those that are.
        servers_ended: No batch job is left that could run beside servers.
        held_s: GPU time of launches that are accounted for.
        energy_j: Of their GPUs from taking them to the end; None: of one launch it was not read.
        starts_j: Part of it before the jobs ran.
        unwatched_s: Seconds between two looks at the jobs beyond 2 s.
        due: Of jobs with a deadline, the time that they had at first, s, and when it ends, in
            seconds since 1970.
    """

    launches: tuple[str, ...] = ()
    ended: tuple[EndedJob, ...] = ()
    servers_ended: bool = False
    held_s: float = 0.0
    energy_j: float | None = 0.0
    starts_j: float = 0.0
    unwatched_s: float = 0.0
    due: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])

    def count(self, job: str, *came: _Came) -> int:
        """How many jobs of that name came to one of these ends."""
        return sum(ended.job == job and ended.came in came for ended in self.ended)

    @property
    def failed(self) -> bool:
        """Whether a job came to no good end."""
        return any(ended.came == "failed" for ended in self.ended)

    def to_go_on(self) -> "QueueRecord":
        """As it is taken up by another command: what has not finished begins again."""
        finished = tuple(ended for ended in self.ended if ended.came == "finished")
        return replace(self, ended=finished, servers_ended=False)


@dataclass(frozen=True, slots=True)
class QueueFile:
    """Where the record of a queue is; its owner alone reads and writes it."""

    path: Path

    def read(self) -> QueueRecord:
        """The record; an empty one where there is none yet.

        Raises:
            InputError: it cannot be read; as an empty one it would begin all jobs again.
        """
        what = f"{self.path}, which says how far this queue is, cannot be read"
        fix = "see that nothing of it runs, then remove the file: all its jobs begin again"
        with (
            InputError.instead_of((OSError, InputError), what, fix=fix),
            suppress(FileNotFoundError),
        ):
            return read(QueueRecord, read_ours(self.path))
        return QueueRecord()

    def write(self, record: QueueRecord) -> None:
        """Keep it; on disk when this returns.

        Raises:
            OSError: it cannot be written; the one before stays.
        """
        replace_file(self.path, write(record).encode(), durable=True)

    def remove(self) -> None:
        """Of a queue that is done nothing is left to go on with."""
        self.path.unlink(missing_ok=True)


@contextmanager
def open_queue(home: Path, folder: Path, jobs: Sequence[str]) -> Generator[QueueFile]:
    """The file of the queue of these jobs of a folder, for this process alone.

    Raises:
        BusyError: another command runs the same queue.
        OSError: it cannot be written.
    """
    # The same jobs of the same folder are the same queue, in whatever order they are named.
    said = "\0".join([str(folder.absolute()), *sorted(jobs)])
    name = hashlib.sha256(said.encode()).hexdigest()[:16]
    queues = open_home(home, "queues")
    with writing_private(queues / f"{name}.lock", "r+") as lock:
        if not try_lock(lock):
            raise BusyError(
                "these jobs are a queue that another command runs",
                why="jobs are never started twice",
                fix="wait for it, or stop it with Ctrl-C where it runs",
            )
        yield QueueFile(queues / f"{name}.json")


# How jobs stand in a launch that is over, if they came to no end of their own.
_LOST: tuple[JobOutcome, ...] = (*GOING, "stopped", "taken-down")

# Standard deviation of the log of a job's rate here over that of its profile, from which on nothing
# is compared with the profile: hosts start small kernels at half or twice the speed (0.47), and one
# window on this host leaves 0.24.
_OTHER_HOSTS = 0.3

# Codes of what goes wrong with one job while it starts; jobs that started with it are not affected.
_STARTS_ALONE = ("job", "job-hung")


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """A job of a launch: what is known of it, and how it does."""

    part: LaunchPart
    status: JobStatus


@dataclass(frozen=True, slots=True)
class LaunchView:
    """One launch of a queue.

    Attributes:
        jobs: Those that began with it and those that have joined, or are about to.
        refused: Names of jobs that could not join.
        joining: A job waits for an answer.
        stop_asked: A stop was requested.
    """

    launch_id: str
    gpu: str
    status: LaunchStatus
    jobs: tuple[LaunchedJob, ...]
    refused: frozenset[str]
    joining: bool
    stop_requested: bool

    @property
    def running(self) -> tuple[LaunchedJob, ...]:
        """Jobs that have not ended."""
        return tuple(job for job in self.jobs if job.status.outcome in GOING)

    @property
    def is_ending(self) -> bool:
        """Whether its jobs have ended, and only its supervisor is left: it lets go of the GPU."""
        return not (self.running or self.joining)

    @property
    def has_room(self) -> bool:
        """Whether a job can be asked to join."""
        heard = self.status.state == "running" and self.status.silent_s is None
        is_open = heard and not (self.status.try_s or self.joining or self.stop_requested)
        is_low = any(job.status.below_normal for job in self.running)
        # Two jobs were measured so, and no third beside them.
        return is_open and 0 < len(self.running) < (ADVISED_JOBS if is_low else MOST_JOBS)

    @property
    def split(self) -> Split:
        """Of the jobs that run, one at least."""
        return split_of((job.status for job in self.running), self.status.sharing)


def see(folder: LaunchFolder) -> LaunchView:
    """A launch as it is now.

    Raises:
        InputError: its spec cannot be read.
    """
    # Requests before the status: one answered in between is seen as waiting.
    joining_jobs = [*joins(folder)]
    spec, status = folder.read_spec(), folder.read_status()
    first = [job for job in status.jobs if job.join_id is None]
    seated = list(map(LaunchedJob, spec.pairs[0].parts, first))
    refused: set[str] = set()
    for request, job in joining_jobs:
        part = request.pairs[0].parts[-1]
        if job.outcome != "refused":
            seated.append(LaunchedJob(part, job))
        elif job.code in _STARTS_ALONE:
            seated.append(LaunchedJob(part, replace(job, outcome="failed")))
        else:
            refused.add(job.job)
    return LaunchView(
        launch_id=folder.launch_id,
        gpu=spec.gpu,
        status=status,
        jobs=tuple(seated),
        refused=frozenset(refused),
        joining=any(job.outcome == "waiting" for _, job in joining_jobs),
        stop_requested=folder.stop_requested(),
    )


def former_works(root: Path, jobs: Iterable[Job], gpu_model: str | None) -> dict[str, float]:
    """Seconds that jobs take alone on the GPU, by their names, as the same jobs took before.

    The median over the newest launches in which they finished, at their rates alone there. Servers
    and uncounted jobs are left out.
    """
    wanted = {job.job_hash: job.name for job in jobs if job.offered_rate is None}
    works = defaultdict[str, list[float]](list)
    for folder in list_folders(root)[:500]:  # about a second
        with suppress(InputError):
            view = see(folder)
            for launched in view.jobs if view.status.gpu_model == gpu_model else ():
                name, rate = wanted.get(launched.part.job.job_hash), launched.part.solo_rate
                is_complete = (
                    launched.status.outcome == "finished" and launched.status.unread is None
                )
                if name and rate and is_complete and launched.status.steps:
                    works[name].append(launched.status.steps / rate)
    return {name: median(works_s) for name, works_s in works.items()}


def account_for(record: QueueRecord, view: LaunchView, counts: Mapping[str, int]) -> QueueRecord:
    """The record with a launch that is over; `counts` are of all jobs by name."""
    ended = tuple(_ended(record, view, counts))
    # One that never ran took no energy.
    never_ran = not view.status.overlap_s and view.status.whole_energy_j is None
    energy_j = 0.0 if never_ran else view.status.whole_energy_j
    ended_at = view.status.ended_at or view.status.updated_at
    begun_at = view.status.started_at or ended_at
    begun, ended_then = map(datetime.fromisoformat, (begun_at, ended_at))
    return replace(
        record,
        launches=tuple(name for name in record.launches if name != view.launch_id),
        ended=(*record.ended, *ended),
        held_s=record.held_s + max(0.0, (ended_then - begun).total_seconds()),
        starts_j=record.starts_j + (view.status.starts_energy_j or 0.0),
        unwatched_s=record.unwatched_s + view.status.unwatched_s,
        energy_j=None
        if energy_j is None or record.energy_j is None
        else record.energy_j + energy_j,
    )


def waiting(
    jobs: Sequence[str], record: QueueRecord, views: Sequence[LaunchView]
) -> tuple[str, ...]:
    """Jobs that are neither done nor in a launch, in the order of the queue."""
    taken = Counter(ended.job for ended in record.ended if ended.came != "lost")
    taken.update(job.status.job for launch in views for job in launch.jobs)
    # Of equal jobs the first ones were taken.
    return tuple(job for n, job in enumerate(jobs) if jobs[:n].count(job) >= taken[job])


def must_be_alone(record: QueueRecord) -> tuple[Collection[str], Collection[str]]:
    """Names of jobs that have the GPU for themselves, and of those that start no set with others.

    Which job of a set caused a fault no driver tells, so each runs alone. Where one did not start,
    each starts when the others run.
    """
    lost = [ended for ended in record.ended if ended.came == "lost"]
    sequential = {ended.job for ended in lost if ended.code in _STARTS_ALONE}
    return {ended.job for ended in lost} - sequential, sequential


def _ended(record: QueueRecord, view: LaunchView, counts: Mapping[str, int]) -> Iterator[EndedJob]:
    for job in view.jobs:
        came = _came(job, record, view, counts)
        if came is None:
            continue
        part, status = job.part, job.status
        is_comparable = part.solo_power_w and not part.is_foreign(status.mean_speed)
        alone_s = status.steps / part.solo_rate if part.solo_rate and is_comparable else None
        is_known = alone_s is not None and part.host_spread < _OTHER_HOSTS
        blamed = came in ("failed", "lost")
        yield EndedJob(
            job=status.job,
            launch_id=view.launch_id,
            came=came,
            code=view.status.code if blamed else None,
            error=(status.error or view.status.cause) if blamed else status.trouble,
            steps=status.steps,
            alone_s=alone_s,
            alone_j=(alone_s or 0.0) * (part.solo_power_w or 0.0) if is_known else None,
        )


def _came(
    job: LaunchedJob, record: QueueRecord, view: LaunchView, counts: Mapping[str, int]
) -> _Came | None:
    """What came of a job; None: it was stopped, and waits again."""
    outcome, name = job.status.outcome, job.status.job
    if outcome == "finished":
        return "finished"
    if outcome not in _LOST:
        return "failed"
    if view.stop_requested:
        is_server = job.part.job.offered_rate is not None
        return "ended" if is_server and record.servers_ended else None
    # Beside others it may have been ended for a crash of theirs; alone it has no excuse twice.
    is_alone, is_again = len(view.jobs) == 1, record.count(name, "lost") >= counts[name]
    return "failed" if is_alone and (view.status.code in _STARTS_ALONE or is_again) else "lost"
