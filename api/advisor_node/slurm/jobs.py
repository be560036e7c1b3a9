"""Slurm's jobs that share a GPU of this node, as Prolog, TaskProlog and Epilog write them down.

    FOLDER/gpu0-1000/jobs/42/comment     of the job; root's
                             share       the percentage that its tasks get; its user's
                             progress    docs/progress.md; its user's
                    /ended/42            its exit status; root's

All folders are root's, so a user can change what is in his two files and nothing else.
"""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.gpu import Share
from advisor.errors import InputError
from advisor.launch.records.status import OVER, State
from advisor.wire.bounds import NAME
from advisor_node.metering.progress_files import read_plain

_GPU = re.compile(r"gpu([0-9]{1,3})-([0-9]{1,10})")
_JOB_ID = re.compile(r"[1-9][0-9]{0,9}")
_ASKED = re.compile(r"(?:^|\s)advisor:(\S*)")
_NAMED = re.compile(r"job=([^,]*)(?:,with=[^,]*)?")
_SHARE = re.compile(r"[1-9][0-9]?(?:\.[0-9]{1,17})?|100")
"""As the TaskProlog has it: the driver takes 0, and more than 100, for no limit at all."""

_MOST_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFolder:
    """Where the jobs of one user on one GPU are.

    Attributes:
        index: Of the GPU, as Slurm and the driver count them.
        user: Number of the user.
    """

    path: Path
    index: int
    user: int

    @property
    def pipe_dir(self) -> Path:
        """Where the MPS daemon of that user on that GPU listens."""
        return self.path / "pipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A batch job that has part of a GPU.

    Attributes:
        uid: Its number.
        job: Name of the profiled job that it says it is.
        share_text: The percentage exactly as its tasks have it in their environment.
        folder: What is known of it.
        state: While it is in `jobs` it runs.
    """

    uid: str
    job: str
    share_text: str
    folder: Path
    state: State = "running"

    @property
    def share(self) -> Share:
        """Its part of the SMs."""
        return Share(float(self.share_text))

    @property
    def over(self) -> bool:
        """Whether it will run no more."""
        return self.state in OVER

    @property
    def progress_file(self) -> Path:
        """Where it counts."""
        return self.folder / "progress"


def gpu_folders(root: Path) -> Iterator[GpuFolder]:
    """The folders of all GPUs and users that had jobs since the node was started."""
    for path in sorted(root.glob("gpu*-*")):
        if found := _GPU.fullmatch(path.name):
            yield GpuFolder(path=path, index=int(found[1]), user=int(found[2]))


def job_folders(gpu: GpuFolder) -> list[Path]:
    """The folders of the jobs that run there now."""
    return sorted(path for path in gpu.path.glob("jobs/*") if _JOB_ID.fullmatch(path.name))


def read_job(folder: Path, user: int) -> SlurmJob | None:
    """The job of a folder; None where it is none of ours, or its first task has not begun.

    Raises:
        InputError: what is written there cannot be meant.
    """
    comment = read_plain(folder / "comment", _MOST_BYTES, _owner_of(folder))
    share = read_plain(folder / "share", _MOST_BYTES, user)
    name = parse_comment((comment or b"").decode(errors="replace"))
    if name is None or not share:
        return None
    text = share.decode(errors="replace")
    if not _SHARE.fullmatch(text):
        raise InputError(
            f"job {folder.name} has the share {text[:40]!r}",
            why="its user has changed the file that the TaskProlog wrote",
        )
    return SlurmJob(uid=folder.name, job=name, share_text=text, folder=folder)


def parse_comment(text: str) -> str | None:
    """The profiled job that a comment names; None: it names none.

    Raises:
        InputError: a job is named by what is no name.
    """
    asked = _ASKED.search(text)
    if asked is None:
        return None
    named = _NAMED.fullmatch(asked[1])
    if named is None or not re.fullmatch(NAME, named[1]):
        raise InputError(
            f"the comment {text[:100]!r} names no job",
            fix="write advisor:job=NAME or advisor:job=NAME,with=PARTNER",
        )
    return named[1]


def ended(job: SlurmJob, gpu: GpuFolder) -> SlurmJob:
    """The job after its Epilog, which leaves its exit status for us to take away."""
    file = gpu.path / "ended" / job.uid
    status = read_plain(file, _MOST_BYTES)
    file.unlink(missing_ok=True)
    return replace(job, state=parse_status((status or b"").decode(errors="replace")))


def parse_status(text: str) -> State:
    """How a job ended, by its wait status (man 2 wait); one whose status is not known was stopped.

    `scancel` and the time limit send SIGTERM, then SIGKILL.
    """
    if not re.fullmatch(r"[0-9]{1,5}", text):
        return "stopped"
    if int(text) == 0:
        return "finished"
    return "stopped" if int(text) & 0x7F in (signal.SIGTERM, signal.SIGKILL) else "failed"


def _owner_of(folder: Path) -> int | None:
    try:
        return folder.stat().st_uid
    except OSError:
        return None
