"""Slurm's jobs that share a GPU of this node, as Prolog, TaskProlog and Epilog write them down.

    FOLDER/gpu0-1000/jobs/42/comment     of the job
                             share       the percentage that its tasks get
                             memory      at how many MiB its GPU memory is bounded
                             progress    docs/job-file.md; its user's, all else is root's
                    /ended/42            its exit status

All folders are root's, so a user can change the count and nothing else.
"""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.launch.status import State
from advisor_node.metering.meters import Tenant
from advisor_node.metering.progress_files import read_plain
from advisor_node.slurm.comment import parse_comment

_GPU = re.compile(r"gpu([0-9]{1,3})-([0-9]{1,10})")
_JOB_ID = re.compile(r"[1-9][0-9]{0,9}")
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
class SlurmJob(Tenant):
    """A batch job that has part of a GPU; `uid` is its number, `folder` has what is known of it.

    While its folder is in `jobs` it runs.
    """

    folder: Path

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


def read_job(folder: Path) -> SlurmJob | None:
    """The job of a folder; None where it is none of ours, or not all of it is written yet.

    Raises:
        InputError: its comment names no job.
    """
    root = _owner_of(folder)
    comment, share, memory = (
        (read_plain(folder / name, _MOST_BYTES, root) or b"").decode(errors="replace")
        for name in ("comment", "share", "memory")
    )
    named = parse_comment(comment)
    if named is None or not share:
        return None
    return SlurmJob(
        uid=folder.name,
        job=named.job,
        share_text=share,
        memory_mib=int(memory) if memory else None,
        folder=folder,
    )


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
