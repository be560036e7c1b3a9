"""The only reader of the environment."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor.gpu import PERCENTAGE

RUNTIME_DIR = "ADVISOR_RUNTIME_DIR"

MIN_SPEED = 0.4
"""Relative speed that every job keeps unless another one is asked for.

Without one, the split that saves most of a measured pair leaves the slower job a third of its speed
on average. docs/measurements/question.md has what other values cost.
"""
LIMIT_VARIABLES = (
    PERCENTAGE,
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_SM_PARTITION",
    "CUDA_VISIBLE_DEVICES",
    "HSA_CU_MASK",
    "HSA_CU_MASK_SKIP_INIT",
    "ROC_GLOBAL_CU_MASK",
    "ROCR_VISIBLE_DEVICES",
)
"""Variables that set or lift a limit; a job gets them from its back-end and nobody else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says.

    Attributes:
        home: Where points are kept: `ADVISOR_HOME`, else `$XDG_DATA_HOME/advisor`.
        runtime_dir: Sockets, locks and logs of running jobs: `ADVISOR_RUNTIME_DIR`, else
            `$XDG_RUNTIME_DIR/advisor`, else `/tmp/advisor-<uid>`. Socket paths must stay short.
        lock_dir: Locks that all users of the host share: `ADVISOR_LOCK_DIR`, else
            `/tmp/advisor-locks`.
        jobs_dir: `ADVISOR_JOBS`, else `./jobs`, else the jobs beside a source checkout.
        database_url: `ADVISOR_DATABASE_URL`; None: SQLite in `home`.
        mps_pipe_dir: `CUDA_MPS_PIPE_DIRECTORY`: a daemon that is already there; None: our own.
        dcgm_url: `ADVISOR_DCGM_URL`, address of a dcgm-exporter.
        min_speed: `ADVISOR_MIN_SPEED`: the relative speed that every job keeps unless another one
            is asked for, 0 to 1.
        environment: All variables, as the base of a job's own.
    """

    home: Path
    runtime_dir: Path
    lock_dir: Path
    jobs_dir: Path
    database_url: str | None
    mps_pipe_dir: Path | None
    dcgm_url: str
    min_speed: float
    environment: Mapping[str, str]

    def job_environment(self) -> dict[str, str]:
        """The environment without the variables that set or lift a limit."""
        kept = {k: v for k, v in self.environment.items() if k not in LIMIT_VARIABLES}
        return {**kept, RUNTIME_DIR: str(self.runtime_dir)}


def read_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from `environment`."""
    data_home = environment.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    pipe_dir = environment.get("CUDA_MPS_PIPE_DIRECTORY")
    return Settings(
        home=Path(environment.get("ADVISOR_HOME") or Path(data_home) / "advisor").absolute(),
        runtime_dir=_runtime_dir(environment).absolute(),
        lock_dir=Path(environment.get("ADVISOR_LOCK_DIR") or "/tmp/advisor-locks").absolute(),
        jobs_dir=_jobs_dir(environment),
        database_url=environment.get("ADVISOR_DATABASE_URL") or None,
        mps_pipe_dir=Path(pipe_dir).absolute() if pipe_dir else None,
        dcgm_url=environment.get("ADVISOR_DCGM_URL") or "http://127.0.0.1:9400/metrics",
        min_speed=_min_speed(environment.get("ADVISOR_MIN_SPEED")),
        environment=dict(environment),
    )


def python() -> str:
    """The interpreter that runs our own small programs next to a job."""
    return sys.executable


def _min_speed(given: str | None) -> float:
    try:
        speed = float(given) if given else MIN_SPEED
    except ValueError:
        speed = -1.0
    if not 0 <= speed <= 1:
        raise InputError(
            f"ADVISOR_MIN_SPEED is {given}",
            why="it is a part of the speed of a job alone",
            fix="set it to a number from 0 to 1, such as 0.5, or unset it",
        )
    return speed


def _runtime_dir(environment: Mapping[str, str]) -> Path:
    if given := environment.get(RUNTIME_DIR):
        return Path(given)
    if per_user := environment.get("XDG_RUNTIME_DIR"):
        return Path(per_user) / "advisor"
    return Path(f"/tmp/advisor-{os.getuid()}")


def _jobs_dir(environment: Mapping[str, str]) -> Path:
    if given := environment.get("ADVISOR_JOBS"):
        return Path(given)
    here, checkout = Path("jobs"), Path(__file__).parent.parent / "jobs"
    return here if here.is_dir() or not checkout.is_dir() else checkout
