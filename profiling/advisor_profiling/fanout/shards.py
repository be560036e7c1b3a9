"""A shard: a part of a command for one GPU of some node, and the folder by which all sides meet.

The folder is on a file system that every node sees; in it are the shard's log and its answer.
"""

import ctypes
import json
import platform
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from advisor.errors import InputError, undone_by
from advisor.files import replace_file
from advisor.settings import python

LOG = "log"
_ANSWER, _OUTPUT = "answer.json", "output"
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""In which Slurm and Ray say which GPU is meant: its index or UUID, as NVML and AMD SMI name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What one GPU is to do.

    Attributes:
        name: For people, such as `shard-2-of-8`.
        folder: The shard's own, the same on every node.
        arguments: Command line of `advisor` that does it, without the GPU.
        cwd: Where the command runs, as relative paths in it mean.
        environment: Variables that the command needs on every node; no secrets.
    """

    name: str
    folder: Path
    arguments: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ShardAnswer:
    """How a shard's command ended: its exit code, and its answer as JSON."""

    code: int
    said: Mapping[str, Any]


def read_answer(shard: Shard) -> ShardAnswer | None:
    """A shard's answer; None where it has none yet."""
    # A network file system looks for new files when a folder is listed.
    with suppress(OSError):
        list(shard.folder.iterdir())
    with suppress(FileNotFoundError):
        return ShardAnswer(**json.loads((shard.folder / _ANSWER).read_bytes()))
    return None


def run_shard(shard: Shard, environment: Mapping[str, str]) -> None:
    """Run a shard's command to its end on the node where this is called, and write its answer.

    A command that was stopped gives no answer: the shard is to go on.

    The environment names the GPU; the shard's own variables come on top.

    Raises:
        InputError: the node does not see the shard's folders, or there is no GPU for it.
    """
    for folder in (shard.folder, shard.cwd):
        if not folder.is_dir():
            raise InputError(
                f"{platform.node()} has no folder {folder}",
                fix="run advisor in a folder that all nodes see, and set ADVISOR_HOME to one",
            )
    gpu, output = _given_gpu(environment), shard.folder / _OUTPUT
    with (shard.folder / LOG).open("ab", buffering=0) as log, output.open("wb") as out:
        log.write(f"  on {platform.node()}, GPU {gpu}\n".encode())
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
    with suppress(ValueError):
        answer = ShardAnswer(code, json.loads(output.read_bytes()))
        replace_file(shard.folder / _ANSWER, json.dumps(asdict(answer)).encode())


def _given_gpu(environment: Mapping[str, str]) -> str:
    for name in _GPU_VARIABLES:
        if given := environment.get(name, "").split(",")[0].strip():
            return given
    raise InputError(
        f"the shard was given no GPU on {platform.node()}",
        why=f"none of {', '.join(_GPU_VARIABLES)} names one",
        fix="see that Slurm or Ray counts the GPUs of the node",
    )


def _prepare() -> None:
    """The command ends with its engine's process, in the safe order."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # Slurm sends it to all processes of a job that has to leave; submitit's then ends the command.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Its exit code; where the engine ends this process, the command is ended first."""
    with undone_by(lambda: _end(child)):
        # Ray's interrupt does not reach a process that waits in the kernel.
        while (code := child.poll()) is None:
            time.sleep(_POLL_S)
        return code


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    child.wait()
