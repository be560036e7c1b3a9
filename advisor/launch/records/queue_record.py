"""What is kept of a queue (`advisor run`), so that the same command goes on after any end.

Jobs that run are in the folders of their launches, which outlive the command; what is left to keep
is which launches those are, and what came of those that are over.
"""

import hashlib
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from advisor.errors import BusyError, InputError
from advisor.files import open_home, replace_file, try_lock, writing_private
from advisor.launch.records.folder import dumps, loads

Came = Literal["finished", "failed", "lost", "ended"]
"""`lost`: ended through no fault of its own, such as by one of another on the MPS server; it begins
once more, alone. `ended`: a server, with the last batch job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job of a launch that is over.

    Attributes:
        code: Stable name of what went wrong; None: nothing did.
        error: The same in words.
        steps: Progress, in the job's unit.
        alone_s: How long these steps take alone on the whole GPU; None without a profile.
        alone_j: Energy of the GPU in that time.
    """

    job: str
    launch_id: str
    came: Came
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
    """

    launches: tuple[str, ...] = ()
    ended: tuple[EndedJob, ...] = ()
    servers_ended: bool = False
    held_s: float = 0.0
    energy_j: float | None = 0.0
    starts_j: float = 0.0
    unwatched_s: float = 0.0

    def count(self, job: str, *came: Came) -> int:
        """How many jobs of that name came to one of these ends."""
        return sum(one.job == job and one.came in came for one in self.ended)

    @property
    def failed(self) -> bool:
        """Whether a job came to no good end."""
        return any(one.came == "failed" for one in self.ended)

    def to_go_on(self) -> "QueueRecord":
        """As it is taken up by another command: what has not finished begins again."""
        finished = tuple(one for one in self.ended if one.came == "finished")
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
            InputError.instead_of((OSError, ValueError), what, fix=fix),
            suppress(FileNotFoundError),
        ):
            return loads(QueueRecord, self.path.read_bytes())
        return QueueRecord()

    def write(self, record: QueueRecord) -> None:
        """Keep it; on disk when this returns.

        Raises:
            OSError: it cannot be written; the one before stays.
        """
        replace_file(self.path, dumps(record), durable=True)

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
    name = queue_name(folder, jobs)
    queues = open_home(home, "queues")
    with writing_private(queues / f"{name}.lock", "r+") as lock:
        if not try_lock(lock):
            raise BusyError(
                "these jobs are a queue that another command runs",
                why="jobs are never started twice",
                fix="wait for it, or stop it with Ctrl-C where it runs",
            )
        yield QueueFile(queues / f"{name}.json")


def queue_name(folder: Path, jobs: Iterable[str]) -> str:
    """The same jobs of the same folder are the same queue, in whatever order they are named."""
    said = "\0".join([str(folder.absolute()), *sorted(jobs)])
    return hashlib.sha256(said.encode()).hexdigest()[:16]
