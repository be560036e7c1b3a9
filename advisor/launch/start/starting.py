"""Starts jobs together: all limits are proven before any job starts, and each waits for the others.

Whatever goes wrong on the way, nothing is left running. Gates open together, or for copies of a job
a part of a step apart.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from advisor.core.gpu import Gpu
from advisor.core.job import Job
from advisor.core.split import check_masks
from advisor.core.wording import listed
from advisor.errors import (
    InputError,
    JobError,
    LimitNotProvenError,
    NoSplitError,
    SurvivorsError,
)
from advisor.launch.records.spec import LaunchSet
from advisor.runtime.backends.backend import Backend
from advisor.runtime.host.beats import beat
from advisor.runtime.jobs.ending import stop_all
from advisor.runtime.jobs.launcher import Proven, prove
from advisor.runtime.jobs.running_job import RunningJob

POLL_S = 0.05


_LEAST_S, _MOST_S = 0.037, 0.4
"""Between two copies. Of short steps any time that is no multiple of a step does; the last of seven
begins before the first seconds are over, which no mean is of."""


class StopAskedError(Exception):
    """Somebody wants the launch stopped before its jobs ran together."""


def check_memory(pair: LaunchSet, gpu: Gpu) -> None:
    """Refuse jobs that do not fit together, as far as the needs of its jobs are known.

    Raises:
        NoSplitError: it does not.
    """
    memory = pair.memory(gpu.memory_mib)
    if not memory.is_too_much:
        return
    needs = " + ".join(f"{need or 0}" for need in memory.needs_mib)
    raise NoSplitError(
        f"{listed(job.name for job in pair.jobs)} need {needs} MiB of memory",
        why=f"{memory.most_mib:.0f} of the {gpu.memory_mib} MiB of {gpu.model} may be filled",
        fix="run them one after the other, or correct memory_mib in their files",
    )


def check_workdir(job: Job) -> None:
    """Refuse a job whose folder is gone.

    Raises:
        InputError: it is.
    """
    if job.workdir is not None and not job.workdir.is_dir():
        raise InputError(f"{job.name} cannot run in {job.workdir}: there is no such folder")


def prove_set(
    pair: LaunchSet, backend: Backend, base: Mapping[str, str], folders: Iterable[Path]
) -> tuple[Proven, ...]:
    """Prove all limits; nothing has been started when this returns or raises.

    Raises:
        LimitNotProvenError: one is not in force.
        InputError: the GPU cannot be shared so.
        PartitionError: what enforces them cannot be used.
    """
    check_masks(pair.split, backend.gpu.vendor)
    backend.cap(pair.cap_percent)
    proven: list[Proven] = []
    shares = pair.shares(backend.gpu.memory_mib)
    for job, share, folder in zip(pair.jobs, shares, folders, strict=True):
        check_workdir(job)
        folder.mkdir(mode=0o700)
        proven.append(prove(job, share, backend, base, folder))
    return tuple(proven)


def start_set(
    proven: Iterable[Proven], stop_asked: Callable[[], bool]
) -> tuple[tuple[RunningJob, ...], dict[int, JobError]]:
    """Start all jobs and wait until each is warm and seen under its limit, or has ended.

    Jobs with a gate stand at it when this returns; `stop_asked` is asked again and again.

    Returns:
        All jobs, and by their numbers why some did not get ready, which may still run.

    Raises:
        JobError: a command cannot be started.
        LimitNotProvenError: a job is not under its limit.
        StopAskedError: it was stopped.
        SurvivorsError: of one that did not start well a process does not end.
    """
    jobs: list[RunningJob] = []
    failed: dict[int, JobError] = {}
    try:
        jobs.extend(one.start() for one in proven)
        while not all(_is_settled(n, job, failed) for n, job in enumerate(jobs)):
            beat()
            if stop_asked():
                raise StopAskedError
            time.sleep(POLL_S)
        for n, job in enumerate(jobs):
            if n not in failed:
                check_client(job)
    except BaseException as error:  # Ctrl-C too: no job runs on that nobody watches
        end_jobs(jobs, error)
        raise
    return tuple(jobs), failed


def _is_settled(number: int, job: RunningJob, failed: dict[int, JobError]) -> bool:
    """Whether a job is ready, has ended, or has failed to get ready, which is noted."""
    if number in failed or job.exit_code is not None:
        return True
    try:
        return job.ready_to_launch()
    except JobError as error:
        if job.exit_code is None:
            failed[number] = error
        return True


def check_client(job: RunningJob) -> None:
    """Check that a job is itself under its limit, unless it has ended.

    Raises:
        LimitNotProvenError: it is not.
    """
    try:
        job.check_client()
    except LimitNotProvenError:
        # A job that has ended is no client.
        if job.exit_code is None:
            raise


def end_jobs(jobs: Iterable[RunningJob], cause: BaseException | None = None) -> None:
    """Stop jobs in the safe order; what goes wrong on the way does not matter once they ended.

    Raises:
        SurvivorsError: a process does not end; `cause` is why they are stopped.
    """
    for error in stop_all(jobs):
        if isinstance(error, SurvivorsError):
            raise error from cause


def open_gates(jobs: Sequence[RunningJob], solo_rates: Sequence[float | None]) -> None:
    """Open all; those of further copies of a job follow, each a part of a step later.

    Copies that begin their steps at one moment would ask for the same part of the GPU at the same
    moments: whatever alternates in a step, such as waiting for input and computing, stays in step
    where nothing else disturbs them.

    Args:
        jobs: Ready.
        solo_rates: Steps per second of each alone; where its unit is not a step, but something that
            a step has many of, the time is shorter than it should be.
    """
    names = [job.job.name for job in jobs]
    ranks = [names[:n].count(name) for n, name in enumerate(names)]
    for rank in range(max(ranks, default=-1) + 1):
        late = [n for n, of in enumerate(ranks) if of == rank]
        if rank:
            steps_s = [1 / (solo_rates[n] or 1 / _LEAST_S) / names.count(names[n]) for n in late]
            time.sleep(min(_MOST_S, max(_LEAST_S, *steps_s)))
        for n in late:
            jobs[n].go()
