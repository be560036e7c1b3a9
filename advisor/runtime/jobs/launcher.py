"""Starts a job under a share that was proven first, and ends what a killed advisor left behind."""

import os
import shlex
import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.core.gpu import Share
from advisor.core.job import Job
from advisor.errors import JobError
from advisor.files import writing_private
from advisor.progress import FILE_BYTES, HOLD
from advisor.runtime.backends.backend import Backend, Granted
from advisor.runtime.host.bounds import bounds_of
from advisor.runtime.host.cgroup import cgroup_prefix
from advisor.runtime.host.processes import marked_pids
from advisor.runtime.jobs.ending import end_cgroups, end_marked
from advisor.runtime.jobs.job_process import JobProcess
from advisor.runtime.jobs.running_job import PROGRESS_MARK, RunningJob
from advisor.settings import OUR_VARIABLES, RUNTIME_DIR, python

_REPEAT = Path(__file__).with_name("repeat.py")
_SCRAPE = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module('advisor.scrape', run_name='__main__', alter_sys=True)",
    # Where advisor is: found also where a user installed it for himself, and nothing of the job's.
    str(Path(__file__).parents[3]),
)

GPU_MARK = "ADVISOR_GPU"
"""Every job carries the UUID of its GPU in this variable, so that left-over ones are found."""

_GATE = struct.pack("<qq", HOLD, 0)


@dataclass(frozen=True, slots=True)
class Proven:
    """A job whose share is in force in the environment in which it will start.

    Attributes:
        granted: What was read back.
        environment: All variables of the job.
        folder: For its counter, gate and output.
    """

    job: Job
    share: Share
    backend: Backend
    granted: Granted
    environment: Mapping[str, str]
    folder: Path

    def start(self) -> RunningJob:
        """Start the job; returns before it is ready.

        Raises:
            JobError: the command cannot be started.
        """
        empty = {"progress": bytes(FILE_BYTES), "gate": _GATE, "output.log": b""}
        for name, content in empty.items():
            with writing_private(self.folder / name) as file:
                file.write(content)
        command = (*_counted_by(self.job), *self.job.command)
        try:
            process = JobProcess(
                command,
                self.job.workdir,
                self.environment,
                self.folder / "output.log",
                {PROGRESS_MARK: str(self.folder / "progress")},
                cgroup_prefix(self.backend.gpu.uuid, self.environment.get(RUNTIME_DIR, "")),
                bounds_of(self.job),
            )
        except OSError as error:
            raise JobError(
                f"{self.job.name} cannot be started: {error}", fix="check its command and workdir"
            ) from error
        return RunningJob(self.job, self.share, self.backend, self.granted, self.folder, process)


def prove(
    job: Job, share: Share, backend: Backend, base: Mapping[str, str], folder: Path
) -> Proven:
    """Prove the limit in the environment in which the job will start.

    The variables of the job and of its limit go on top of `base`, which has no limits. In `folder`,
    which is empty, the job gets its counter, gate and output.

    Raises:
        LimitNotProvenError: the share is not in force.
        PartitionError: it cannot be set.
    """
    environment = _environment(job, share, backend, base, folder)
    return Proven(job, share, backend, backend.prove(share, environment), environment, folder)


def leftovers(gpu_uuid: str, runtime_dir: Path) -> list[int]:
    """Processes of jobs that an advisor with this runtime directory started on the GPU."""
    return marked_pids({GPU_MARK: gpu_uuid, RUNTIME_DIR: str(runtime_dir)})


def end_leftovers(backend: Backend, runtime_dir: Path) -> None:
    """End jobs that a killed advisor left behind; the caller holds the lock of the GPU.

    Raises:
        SurvivorsError: one of them does not end.
    """
    end_marked(backend, {GPU_MARK: backend.gpu.uuid, RUNTIME_DIR: str(runtime_dir)})
    end_cgroups(cgroup_prefix(backend.gpu.uuid, str(runtime_dir)))


def _counted_by(job: Job) -> tuple[str, ...]:
    """The program that runs the command and counts it, where it does not count itself."""
    progress = job.progress
    if progress.kind == "runs":
        return python(), "-I", "-S", str(_REPEAT)
    if progress.kind != "metrics":
        return ()
    told = {"url": progress.url, "counter": progress.counter, "histogram": progress.histogram}
    told["promised-ms"] = None if job.max_p99_ms is None else str(job.max_p99_ms)
    options = (f"--{name}={value}" for name, value in told.items() if value is not None)
    return (python(), "-I", "-c", *_SCRAPE, *options, "--")


_SHELL = frozenset({"&&", "||", "|", ";", ">", "<"})
"""Words that only a shell understands; quoted ones stand in longer words."""


def check_program(job: Job, base: Mapping[str, str]) -> None:
    """Whether the program of a job is there, before it is tried at every share.

    Raises:
        JobError: it is not.
    """
    program, folder = job.command[0], job.workdir or Path.cwd()
    if program == "cd" or not _SHELL.isdisjoint(job.command):
        word = next(word for word in job.command if word == "cd" or word in _SHELL)
        raise JobError(
            f"{job.name} cannot be started: its command has {word}, and no shell reads it",
            fix=_instead_of_shell(job.command),
        )
    if not folder.is_dir():
        raise JobError(
            f"{job.name} cannot be started: its workdir {folder} does not exist",
            fix="make it, or correct workdir in its job file",
        )
    path = {**base, **dict(job.env)}.get("PATH", os.defpath)
    here = (folder / program).exists() if "/" in program else shutil.which(program, path=path)
    if not here:
        raise JobError(
            f"{job.name} cannot be started: there is no program {program}",
            fix="check its command and workdir",
        )


def _instead_of_shell(command: Sequence[str]) -> str:
    """The same without `cd FOLDER &&` in front, or by a shell."""
    if command[0] == "cd" and len(command) > 3 and command[2] == "&&":
        rest = shlex.join(command[3:])
        return f"write workdir: {command[1]} and command: {rest} in a job file (or stand there)"
    return f"write bash -c {shlex.quote(' '.join(command))}"


def _environment(
    job: Job, share: Share, backend: Backend, base: Mapping[str, str], folder: Path
) -> dict[str, str]:
    gate = {"ADVISOR_GATE_FILE": str(folder / "gate")} if job.progress.gate else {}
    # Job files that set one of ours are refused; a launch that waits may be older than that.
    marks = {name: value for name, value in base.items() if name.startswith(OUR_VARIABLES)}
    return {
        **base,
        **dict(job.env),
        **marks,
        "PYTHONUNBUFFERED": "1",
        PROGRESS_MARK: str(folder / "progress"),
        **gate,
        GPU_MARK: backend.gpu.uuid,
        **backend.environment(share),
    }
