"""Proof that a limit is in force, read from inside the job's environment."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.core.gpu import MEMORY_LIMIT, PERCENTAGE, SM_FLOOR, Gpu, Share, units_for_percent
from advisor.errors import LimitNotProvenError
from advisor.runtime.backends.backend import Granted
from advisor.runtime.host.beats import beating
from advisor.runtime.host.processes import of_user
from advisor.settings import python

_PROBE = Path(__file__).with_name("probe.py")
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """One GPU as a process under the limit sees it.

    Attributes:
        units: SMs.
        mps: It is under an MPS server.
        free_mib: Memory that it can still take; read only where its memory is bounded.
    """

    uuid: str
    units: int
    mps: bool
    free_mib: float | None = None


def look(environment: Mapping[str, str], user: int | None = None) -> list[SeenGpu]:
    """The GPUs that a process started with `environment` sees.

    Args:
        environment: All of its variables.
        user: Number of the user that it runs as, since MPS serves one at a time; None: ours.

    Raises:
        LimitNotProvenError: the driver cannot be asked; the message has its error number.
    """
    answer = _probe("cuda", environment, user)
    if "gpus" in answer:
        return [SeenGpu(**gpu) for gpu in answer["gpus"]]
    code = answer.get("error")
    raise LimitNotProvenError(
        f"the CUDA driver refused {answer.get('call')} with error {code}",
        why=_CUDA_ERRORS.get(code, "see CUresult in the CUDA driver API manual"),
        fix="run `advisor doctor`",
    )


def check_granted(gpu: Gpu, share: Share, seen: SeenGpu | None, pipe_dir: Path) -> Granted:
    """Compare what a process saw with what `share` must give.

    Raises:
        LimitNotProvenError: wrong GPU, no MPS, another SM count than the share's, or more memory.
    """
    if seen is None:
        raise LimitNotProvenError(
            f"the job would not see GPU {gpu.uuid}",
            why=f"the MPS daemon in {pipe_dir} serves other GPUs",
            fix="unset CUDA_MPS_PIPE_DIRECTORY, or name the daemon of this GPU",
        )
    if not seen.mps:
        raise LimitNotProvenError(
            f"MPS is not in force: a process with the pipe directory {pipe_dir} saw all "
            f"{seen.units} SMs without an MPS server",
            why="the driver falls back to the whole GPU when no daemon answers there",
            fix="check that the daemon runs (`advisor doctor`) and that the directory is its own",
        )
    expected = units_for_percent(share.percent, gpu.units_total or seen.units)
    # Below the floor that was read on Hopper another GPU may grant what was asked.
    if seen.units != expected and not (seen.units < expected == SM_FLOOR):
        raise LimitNotProvenError(
            f"{share} % of {gpu.units_total} SMs is {expected}, but a process saw {seen.units}",
            why="fewer: the daemon's own percentage is lower; more: the limit was not taken",
            fix=f"unset {PERCENTAGE} where the daemon is started, and restart it",
        )
    _check_memory(share, seen)
    return Granted(seen.units, mps=True, memory_mib=share.memory_mib)


def _check_memory(share: Share, seen: SeenGpu) -> None:
    """Under a limit the driver tells as free what is left of the limit, not of the card."""
    most_mib = share.memory_mib
    if most_mib is None or (seen.free_mib is not None and seen.free_mib <= most_mib):
        return
    free = "nothing is known" if seen.free_mib is None else f"{seen.free_mib:.0f} MiB are free"
    raise LimitNotProvenError(
        f"the memory of a process should be bounded at {most_mib} MiB, and {free} to it",
        why=f"the driver has not taken {MEMORY_LIMIT}, which CUDA 11.5 and newer know",
        fix="launch without it: --no-memory-limit",
    )


def look_hip(environment: Mapping[str, str]) -> int:
    """CUs that HIP reports to a process started with `environment`.

    Raises:
        LimitNotProvenError: HIP cannot be asked.
    """
    answer = _probe("hip", environment)
    if "gpus" in answer:
        return answer["gpus"][0]["units"]
    raise LimitNotProvenError(
        f"HIP cannot be asked for its CUs: {answer.get('call')}, error {answer.get('error')}",
        why="libamdhip64.so comes with ROCm",
        fix="add ROCm's lib folder to LD_LIBRARY_PATH and run `advisor doctor`",
    )


_CUDA_ERRORS: dict[Any, str] = {
    "no-libcuda": "libcuda.so.1 could not be loaded: no NVIDIA driver on this host",
    2: "out of memory: the card is full, or the memory of the job is bounded below what a context "
    "takes (memory_mib in its file)",
    100: "no CUDA device: the GPU is not visible to this process",
    805: "the MPS daemon or its server could not be reached",
    806: "the MPS server stopped answering",
    807: "the MPS server is not ready, or belongs to another user",
    808: "the MPS server has all the clients it can take",
    809: "the MPS server has all the connections it can take",
    810: "the MPS server ended this client",
}
"""CUresult values of cuda.h that speak of MPS."""


def _probe(kind: str, environment: Mapping[str, str], user: int | None = None) -> dict[str, Any]:
    other = of_user(user)
    try:
        done = beating(
            lambda: subprocess.run(
                [python(), "-I", "-S", str(_PROBE), kind],
                env=dict(environment),
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                **other,
            )
        )
    except OSError as error:
        raise LimitNotProvenError(
            "the probe could not be started" + (f" as user {user}" if other else ""),
            why=str(error),
            fix="start advisor as root, or as the user whose job is to be proven",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise LimitNotProvenError(
            f"the probe got no answer from the driver within {_TIMEOUT_S} s",
            why="the MPS server hangs, or serves another user and lets this one wait",
            fix="run `advisor doctor`; end the other user's jobs or restart the MPS daemon",
        ) from error
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise LimitNotProvenError(
            f"the probe died with exit code {done.returncode}",
            why=done.stderr.strip()[-300:],
            fix="run `advisor doctor`",
        ) from error
