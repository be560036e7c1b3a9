"""What runs on the node: a shard's command, on the GPU that the engine gave."""

import ctypes
import json
import platform
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from advisor.errors import InputError
from advisor.settings import python
from advisor_profiling.fanout.shards import LOG, Answer, Shard, write_answer

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""In which Slurm and Ray say which GPU is meant: its index or UUID, as NVML and AMD SMI name it."""


def run_shard(shard: Shard, environment: Mapping[str, str]) -> None:
    """Run a shard's command to its end, and write its answer.

    A command that was stopped gives no answer: the shard is to go on.

    Args:
        shard: What to do.
        environment: Of the command, before the shard's own variables.

    Raises:
        InputError: the node does not see the shard's folders, or there is no GPU for it.
    """
    for folder in (shard.folder, shard.cwd):
        if not folder.is_dir():
            raise InputError(
                f"{platform.node()} has no folder {folder}",
                fix="run advisor in a folder that all nodes see, and set ADVISOR_HOME to one",
            )
    gpu = shard.gpu or _given_gpu(environment)
    output = shard.folder / "output"
    with (shard.folder / LOG).open("ab") as log, output.open("wb") as out:
        child = subprocess.Popen(
            [python(), "-m", "advisor_cli", *shard.arguments, "--gpu", gpu, "--json"],
            cwd=shard.cwd,
            env={**environment, **shard.environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            process_group=0,
            preexec_fn=_prepare,
        )
        code = _wait(child)
    if (said := _json(output.read_bytes())) is not None:
        write_answer(shard.folder, Answer(code, said))


def _prepare() -> None:
    """The command ends with its engine's process, in the safe order."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # Slurm sends it to all processes of a job that has to leave; submitit's then ends the command.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Its exit code; where the engine ends this process, the command is ended first."""
    try:
        # Ray's interrupt does not reach a process that waits in the kernel.
        while (code := child.poll()) is None:
            time.sleep(_POLL_S)
        return code
    except BaseException:  # the engine's interrupt, and whatever else ends this process
        with suppress(ProcessLookupError):
            child.terminate()
        child.wait()
        raise


def _given_gpu(environment: Mapping[str, str]) -> str:
    for name in _GPU_VARIABLES:
        if given := environment.get(name, "").split(",")[0].strip():
            return given
    raise InputError(
        f"the shard was given no GPU on {platform.node()}",
        why=f"none of {', '.join(_GPU_VARIABLES)} names one",
        fix="see that Slurm or Ray counts the GPUs of the node",
    )


def _json(text: bytes) -> dict[str, Any] | None:
    try:
        return json.loads(text)
    except ValueError:
        return None
