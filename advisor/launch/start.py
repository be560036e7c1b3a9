"""Starts the supervisor of a launch, and starts its jobs together.

Whatever goes wrong on the way, nothing is left running. Gates open together, or for copies of a job
a part of a step apart.
"""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from advisor.core.gpu import (
    ALL_GPUS,
    MOST_GPUS,
    Gpu,
    MemoryFit,
    Share,
)
from advisor.core.job import Job
from advisor.core.wording import listed
from advisor.errors import InputError, JobError, LimitNotProvenError, NoSplitError, SurvivorsError
from advisor.files import writing_private
from advisor.launch.folder import LaunchFolder
from advisor.launch.spec import LaunchSet
from advisor.runtime.backend import (
    Backend,
    Control,
    CuMaskBackend,
    MpsBackend,
    UncappedBackend,
    private_pipe_dir,
)
from advisor.runtime.job_process import stop_all
from advisor.runtime.processes import beat
from advisor.runtime.running_job import Proven, RunningJob, prove
from advisor.settings import SECRETS, Settings, python

_POLL_S = 0.05


# Between two copies. Of short steps any time that is no multiple of a step does; the last of
# seven begins before the first seconds are over, which no mean is of.
_LEAST_S, _MOST_S = 0.037, 0.4


class StopRequestedError(Exception):
    """Somebody wants the launch stopped before its jobs ran together."""


def check_memory(jobs: Sequence[Job], gpu: Gpu) -> None:
    """Refuse jobs that do not fit together, as far as their needs are known.

    Raises:
        NoSplitError: it does not.
    """
    memory = MemoryFit(tuple(job.memory_mib for job in jobs), gpu.memory_mib)
    if not memory.is_too_much:
        return
    needs = " + ".join(f"{need or 0}" for need in memory.needs_mib)
    apart = "run them one after the other, or correct memory_mib in their files"
    held = memory.held_ahead(job.command for job in jobs)
    raise NoSplitError(
        f"{listed(job.name for job in jobs)} need {needs} MiB of memory",
        why=f"{memory.most_mib:.0f} of the {gpu.memory_mib} MiB of {gpu.model} may be filled",
        fix=f"{apart}. {held}" if held else apart,
    )


def check_set_memory(pair: LaunchSet, gpu: Gpu) -> None:
    """As `check_memory`, on each GPU.

    Raises:
        NoSplitError: jobs do not fit on one.
    """
    for on in pair.split.each_gpu:
        check_memory([pair.jobs[n] for n in on], gpu)


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
    pair.split.check_masks(backend.gpu.vendor)
    backend.cap(pair.cap_percent)
    proven: list[Proven] = []
    shares = pair.shares(backend.gpu.memory_mib)
    for job, share, folder in zip(pair.jobs, shares, folders, strict=True):
        check_workdir(job)
        folder.mkdir(mode=0o700)
        proven.append(prove(job, share, backend, base, folder))
    return tuple(proven)


def start_set(
    proven: Sequence[Proven],
    stop_requested: Callable[[], bool],
    first: Collection[int] = (),
    between: Callable[[Mapping[int, RunningJob]], object] = len,
) -> tuple[tuple[RunningJob, ...], dict[int, JobError]]:
    """Start all jobs and wait until each is warm and seen under its limit, or has ended.

    Jobs with a gate stand at it when this returns; `stop_requested` is asked again and again.

    Args:
        proven: Of the jobs.
        stop_requested: Whether somebody wants the launch stopped.
        first: Numbers of jobs that start before the others.
        between: Takes those of them that stand ready, before the others start.

    Returns:
        All jobs, and by their numbers why some did not get ready, which may still run.

    Raises:
        JobError: a command cannot be started.
        LimitNotProvenError: a job is not under its limit.
        StopRequestedError: it was stopped.
        SurvivorsError: of one that did not start well a process does not end.
    """
    jobs: dict[int, RunningJob] = {}
    failed: dict[int, JobError] = {}
    later = [n for n in range(len(proven)) if n not in first]
    try:
        for wave in filter(None, (first, later)):
            for n in wave:
                jobs[n] = proven[n].start()
            while not all(_is_settled(n, jobs[n], failed) for n in wave):
                beat()
                if stop_requested():
                    raise StopRequestedError
                time.sleep(_POLL_S)
            for n in wave:
                if n not in failed:
                    check_client(jobs[n])
            if wave is first:
                between({n: jobs[n] for n in wave if n not in failed})
    except BaseException as error:  # Ctrl-C too: no job runs on that nobody watches
        end_jobs(jobs.values(), error)
        raise
    return tuple(jobs[n] for n in range(len(proven))), failed


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
            steps_s = [1 / rate / names.count(names[n]) for n in late if (rate := solo_rates[n])]
            time.sleep(min(_MOST_S, max([_LEAST_S, *steps_s])))
        for n in late:
            jobs[n].go()


def limit_environment(
    pair: LaunchSet, share: Share, gpu: Gpu | None, settings: Settings
) -> dict[str, str]:
    """Variables that limit a job of this share; without a GPU as MPS takes them."""
    if gpu is None:
        is_bound = pair.split.is_limited or share.below_normal
        gpus = MOST_GPUS if pair.split.gpus and share.gpu == ALL_GPUS else 1
        return share.environment(None, "nvidia", gpus) if is_bound else {}
    if pair.split.sharing == "time-sliced":
        return UncappedBackend(gpu).environment(share)
    if gpu.vendor == "amd":
        return CuMaskBackend(gpu).environment(share)
    pipe_dir = settings.mps_pipe_dir or private_pipe_dir(gpu, settings.runtime_dir)
    return MpsBackend(gpu, Control(pipe_dir, {}), owned=False).environment(share)


LOG = "supervisor.log"


def spawn_supervisor(
    folder: LaunchFolder, settings: Settings, program: str
) -> subprocess.Popen[bytes]:
    """Start the supervisor for a folder, in a session of its own; returns at once.

    A second one for the same folder ends without doing anything.

    Args:
        folder: Of the launch.
        settings: Handed on, secrets by a pipe.
        program: The module that supervises; it knows drivers and stores, which launches do not.

    Raises:
        OSError: it cannot be started.
    """
    with writing_private(folder.path / LOG, "ab") as log:
        process = subprocess.Popen(
            # -P: a folder in which somebody stands may have a module of any name.
            [python(), "-P", "-m", program, str(folder.path)],
            env={k: v for k, v in settings.environment.items() if k not in SECRETS},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin is not None
    # What is in the environment stays to be read for as long as the process lives.
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps(settings.secrets()).encode())
    # Where the caller lives longer, nothing stays in the table of processes.
    threading.Thread(target=process.wait, daemon=True).start()
    return process
