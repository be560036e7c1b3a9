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


_OF_NO_JOB = "computes on the GPU and is of no job"


@dataclass(frozen=True, slots=True)
class Breach:
    """A process that is not under the limit it should be under.

    Attributes:
        job: Its job; None: it is of none.
        why: In words, without its number.
        is_stranger: It is of somebody else, as far as can be seen, and no client of our server.
    """

    pid: int
    job: RunningJob | None
    why: str
    is_stranger: bool = False


def check_limits(
    jobs: Sequence[RunningJob], *, strict: bool = True, known: Collection[int] = ()
) -> tuple[int, ...]:
    """Check that nobody computes on the GPU of these jobs but they, each under its limit.

    Args:
        jobs: Of one GPU.
        strict: Strangers are as bad as a job that leaves its limit.
        known: Strangers that were found before, which need no second look.

    Returns:
        Strangers that compute there, where not `strict`.

    Raises:
        LimitBrokenError: somebody does; its `jobs` are those whose processes they are.
        PartitionError: the MPS server cannot be asked.
    """
    found = _breaches(jobs)
    if not all(breach.is_stranger and breach.pid in known for breach in found):
        time.sleep(CONFIRM_S)
        before = {breach.pid for breach in found}
        found = [b for b in _breaches(jobs) if b.pid in before and has_memory(b.pid)]
    broken = [breach for breach in found if strict or not breach.is_stranger]
    if broken:
        raise LimitBrokenError(
            "; ".join(f"process {b.pid} ({name_of(b.pid)}) {b.why}" for b in broken),
            why="it has no part of the GPU to itself, and its neighbour has less than its part",
            fix="let each job compute in processes that it starts, and leave the variables of its "
            "limit alone",
            jobs=frozenset(b.job.job.name for b in broken if b.job),
        )
    return tuple(breach.pid for breach in found)


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
        Breach(pid, None, _OF_NO_JOB, is_stranger=pid not in (sight.clients or ()))
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
        # One that somebody else was asked to start.
        or next((job for job in jobs if job.has_marked(pid)), None)
        for pid in pids
    }
