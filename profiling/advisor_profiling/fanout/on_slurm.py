"""Slurm: an array job through submitit; a lost node's shard is queued again by Slurm itself."""

import importlib
import os
import subprocess
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor_profiling.fanout.shards import Shard, run_shard

_TIME_LIMIT_MIN = 60
"""Of each shard, unless SBATCH_TIMELIMIT says otherwise; one that needs more is queued again before
that, and short jobs start sooner."""

_TIMEOUTS = 100
_STOP_S = 90.0
_COMMAND_S = 30.0


@dataclass(frozen=True, slots=True)
class _SlurmTask:
    """A shard as submitit runs it; it has a checkpoint, so it is queued again at its time limit."""

    shard: Shard

    def __call__(self) -> None:
        run_shard(self.shard, os.environ)

    def checkpoint(self) -> Any:
        """The same again: the store knows what is done."""
        return importlib.import_module("submitit").helpers.DelayedSubmission(self)


class SlurmEngine:
    """Options of a site (partition, account, kind of GPU) are those variables that sbatch reads.

    Shards that a killed command of the same folder has left in the queue are ended first.

    Args:
        folder: Of the run, on a file system that all nodes see.

    Raises:
        InputError: Slurm's commands are not here.
    """

    def __init__(self, folder: Path) -> None:
        self._submitit: Any = importlib.import_module("submitit")
        self._folder = folder / "slurm"
        self._name = f"advisor-{folder.name}-{zlib.crc32(str(self._folder).encode()):08x}"
        self._names: dict[str, str] = {}
        self.stop()

    def submit(self, shards: Sequence[Shard]) -> None:
        """All of them as one array job."""
        # It would go before our name, by which the shards are found again.
        os.environ.pop("SBATCH_JOB_NAME", None)
        try:
            executor = self._submitit.SlurmExecutor(self._folder, max_num_timeout=_TIMEOUTS)
            executor.update_parameters(
                job_name=self._name,
                time=_TIME_LIMIT_MIN,
                array_parallelism=len(shards),
                gpus_per_node=1,
                additional_parameters={"requeue": True},
            )
            jobs = executor.submit_array([_SlurmTask(shard) for shard in shards])
        except (RuntimeError, OSError, self._submitit.core.utils.FailedJobError) as error:
            raise InputError(
                "Slurm did not take the shards",
                why=str(error).strip(),
                fix="try `sbatch --wrap true` here; SBATCH_PARTITION and others are heeded",
            ) from error
        self._names = {job.job_id: s.name for job, s in zip(jobs, shards, strict=True)}

    def ended(self) -> Mapping[str, str]:
        """Those that `squeue` does not list, none with an error; none while it is silent."""
        # Not submitit's own `done`: it asks sacct, which not every site has.
        queued = self._queued()
        return {n: "" for job, n in self._names.items() if queued is not None and job not in queued}

    def stop(self) -> None:
        """Cancel the shards, and wait until Slurm lists none."""
        _run("scancel", *self._ours)
        deadline_s = time.monotonic() + _STOP_S
        # Each shard first ends its jobs and its MPS daemon.
        while self._queued() and time.monotonic() < deadline_s:
            time.sleep(0.5)

    @property
    def _ours(self) -> tuple[str, ...]:
        return (f"--name={self._name}", f"--user={os.getuid()}")

    def _queued(self) -> frozenset[str] | None:
        """Numbers of the shards that run or wait; None where Slurm does not answer."""
        said = _run("squeue", "--noheader", "--array", "--format=%i", *self._ours)
        return None if said is None else frozenset(said.split())


def _run(*command: str) -> str | None:
    """What a command of Slurm says; None where it failed or hung."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    except FileNotFoundError as error:
        raise InputError(
            f"there is no {command[0]} here", fix="run this where Slurm's commands are"
        ) from error
    return done.stdout if done.returncode == 0 else None
