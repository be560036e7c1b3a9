"""Whether all that computes on a GPU is one of our jobs, and under its limit.

Variables say what a process was started with, not what it has: it may change them before its first
CUDA call, or start another process without them. So the driver is asked instead: NVML lists the
processes with a context on the GPU, and the MPS server its clients. A process that computes and is
no client has the whole GPU; one that is no part of a job disturbs both.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from advisor.errors import LimitBrokenError
from advisor.runtime.host.processes import MPS_SERVER, ancestors_of, has_memory, name_of
from advisor.runtime.jobs.running_job import RunningJob

CONFIRM_S = 1.0
"""A process that starts or ends may be on one list only for a moment; one that starts on another
GPU of the host was for up to 0.7 s (H100)."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A process that is not under the limit it should be under.

    Attributes:
        job: Its job; None: it is of none.
        why: In words, without its number.
    """

    pid: int
    job: RunningJob | None
    why: str


def check_limits(jobs: Sequence[RunningJob]) -> None:
    """Check that nobody computes on the GPU of these jobs but they, each under its limit.

    Raises:
        LimitBrokenError: somebody does; its `jobs` are those whose processes they are.
        PartitionError: the MPS server cannot be asked.
    """
    if found := _breaches(jobs):
        time.sleep(CONFIRM_S)
        known = {breach.pid for breach in found}
        found = [b for b in _breaches(jobs) if b.pid in known and has_memory(b.pid)]
    if found:
        raise LimitBrokenError(
            "; ".join(f"process {b.pid} ({name_of(b.pid)}) {b.why}" for b in found),
            why="it has no part of the GPU to itself, and its neighbour has less than its part",
            fix="let each job compute in processes that it starts, and leave the variables of its "
            "limit alone",
            jobs=frozenset(b.job.job.name for b in found if b.job),
        )


def is_seen(jobs: Sequence[RunningJob]) -> bool:
    """Whether NVML names processes of these jobs; in some containers it names none."""
    sight = jobs[0].sight() if jobs else None
    return sight is None or any(_owners(sight.computing, jobs).values())


def _breaches(jobs: Sequence[RunningJob]) -> list[Breach]:
    if not jobs or (sight := jobs[0].sight()) is None:
        return []
    # The jobs after the lists: what was started meanwhile is found below its job.
    owners = _owners(sight.computing | (sight.clients or frozenset()), jobs)
    # Numbers of another namespace say nothing of our processes.
    computing = sight.computing if any(owners[pid] for pid in sight.computing) else frozenset[int]()
    found = [
        Breach(pid, None, "computes on the GPU and is of no job")
        for pid in computing
        # The server of another daemon only serves others.
        if owners[pid] is None and not name_of(pid).startswith(MPS_SERVER)
    ]
    if sight.clients is not None:
        found += [
            Breach(pid, job, f"of {job.job.name} computes without MPS, on the whole GPU")
            for pid in computing - sight.clients
            if (job := owners[pid])
        ]
        found += [
            Breach(pid, None, "is a client of the MPS server and of no job")
            for pid in sight.clients - computing
            if owners[pid] is None
        ]
    return sorted(found, key=lambda breach: breach.pid)


def _owners(pids: Collection[int], jobs: Sequence[RunningJob]) -> dict[int, RunningJob | None]:
    """The job of each process; None where it is of none."""
    roots = {root: job for job in jobs for root in job.roots()}
    return {
        pid: next((roots[above] for above in (pid, *ancestors_of(pid)) if above in roots), None)
        for pid in pids
    }
