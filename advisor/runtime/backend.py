"""Back-ends that limit a job to part of a GPU, and the read-back of the limit."""

import json
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from advisor.core.gpu import (
    MEMORY_LIMIT,
    PERCENTAGE,
    SM_FLOOR,
    Gpu,
    Share,
    refuse_if_skipped,
    share_environment,
    units_for_percent,
    units_for_share,
)
from advisor.errors import InputError, LimitNotProvenError, PartitionError
from advisor.runtime.beats import beating
from advisor.runtime.processes import environment_of, lacking, of_user
from advisor.settings import LIMIT_VARIABLES, python

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"


@dataclass(frozen=True, slots=True)
class Granted:
    """What was read back under a share.

    Attributes:
        units: SMs or CUs that a process under the share sees; None where the driver hides it.
        mps: The process runs under an MPS server.
        memory_mib: Memory that it can take at most; None: all that there is.
    """

    units: int | None
    mps: bool
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """Who uses a GPU at one moment.

    Attributes:
        computing: Processes with a context on it, without MPS servers.
        clients: Clients of its MPS server; None: there is no MPS.
    """

    computing: frozenset[int]
    clients: frozenset[int] | None


Proof = Literal["server", "set"]
"""How far a limit is known that was read back in the environment of a job: `server`, it is held
from outside; `set`, the job may have changed it before its first context, and nothing tells."""

ComputingPids = Callable[[], Collection[int]]
"""Lists the processes with a context on a GPU; nobody where they cannot be listed."""


def check_environments(
    share: Share, wanted: Mapping[str, str], pids: Callable[[], Collection[int]]
) -> None:
    """Check that every process of a job carries the variables of its limit, and no other limits.

    Raises:
        LimitNotProvenError: a process does not, or none can be seen.
    """
    now = pids()
    foreign = frozenset(LIMIT_VARIABLES) - wanted.keys()
    if found := sorted({name for pid in now for name in foreign & environment_of(pid).keys()}):
        raise LimitNotProvenError(
            f"processes of the job carry {', '.join(found)}, which can lift its share of {share} %",
            why="the job's file or a script inside the job sets what only advisor may set",
            fix="leave such variables out of the job",
        )
    if wrong := lacking(now, wanted):
        raise LimitNotProvenError(
            f"processes {wrong} of the job do not carry the variables of its share of {share} %",
            why="a script inside the job changes them",
            fix=f"leave these to advisor: {', '.join(wanted)}",
        )
    if not now:
        raise LimitNotProvenError(
            "no process of the job can be seen", fix="run advisor in the job's process namespace"
        )


class Server(Protocol):
    """What limits jobs from outside of them; nobody, unless a back-end says otherwise."""

    __slots__ = ()

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that put a process under `share`."""
        ...

    def check_variables(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check that every process of a job carries what limits it, and nothing that lifts it.

        Raises:
            LimitNotProvenError: one does not, or no process can be seen.
        """
        check_environments(share, self.environment(share), pids)

    def check_clients(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check that a running job is itself under the limit; `pids` lists its processes now.

        Raises:
            LimitNotProvenError: a process is not under it, or no process can be seen.
        """
        self.check_variables(share, pids)

    def cap(self, percent: int) -> None:
        """Let no process that starts from now on have more, whatever it says itself.

        Raises:
            PartitionError: that cannot be set.
        """

    def given_percent(self) -> float | None:
        """MPS percentage given to new clients; None if unset."""
        return None

    def holds(self, percent: float) -> bool:
        """Whether no process can have more, whatever it says itself."""
        return percent >= 100

    def check_alive(self) -> None:
        """Check that what enforces the limits still runs.

        Raises:
            PartitionError: it is gone or broken.
        """

    def spoiled(self) -> bool:
        """Whether a fault of one client has taken all of them down; they must end to go on."""
        return False

    def blamed(self) -> frozenset[int]:
        """Processes that what enforces the limits names where it tells of a fault."""
        return frozenset()

    def release(self, pids: Collection[int]) -> None:
        """Take the processes off the GPU, so that signals cannot hurt their neighbours."""

    def close(self) -> None:
        """Stop what was started for this back-end."""


class Backend(Server, Protocol):
    """Limits jobs on one GPU."""

    @property
    def mode(self) -> str:
        """One of mps, cu_mask and uncapped; points carry it."""
        ...

    @property
    def max_clients(self) -> int:
        """Most processes that may hold a context at the same time, beside those that do."""
        ...

    @property
    def gpu(self) -> Gpu:
        """The GPU that is shared."""
        ...

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Read the limit back from inside `environment`.

        Raises:
            LimitNotProvenError: the limit is not in force; nothing may be started.
        """
        ...

    def sight(self) -> Sight | None:
        """Who uses the GPU now; None where nobody can tell.

        Raises:
            PartitionError: what enforces the limits does not answer.
        """
        ...


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
    most_mib, free_mib = share.memory_mib, seen.free_mib
    # Under a limit the driver tells as free what is left of the limit, not of the card.
    if most_mib is not None and (free_mib is None or free_mib > most_mib):
        free = "nothing is known" if free_mib is None else f"{free_mib:.0f} MiB are free"
        raise LimitNotProvenError(
            f"the memory of a process should be bounded at {most_mib} MiB, and {free} to it",
            why=f"the driver has not taken {MEMORY_LIMIT}, which CUDA 11.5 and newer know",
            fix="launch without it: --no-memory-limit",
        )
    return Granted(seen.units, mps=True, memory_mib=most_mib)


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
    with (
        LimitNotProvenError.instead_of(
            OSError,
            "the probe could not be started" + (f" as user {user}" if other else ""),
            fix="start advisor as root, or as the user whose job is to be proven",
        ),
        LimitNotProvenError.instead_of(
            subprocess.TimeoutExpired,
            f"the probe got no answer from the driver within {_TIMEOUT_S} s",
            why="the MPS server hangs, or serves another user and lets this one wait",
            fix="run `advisor doctor`; end the other user's jobs or restart the MPS daemon",
        ),
    ):
        done = beating(
            lambda: subprocess.run(
                [python(), "-I", "-S", str(Path(__file__).with_name("probe.py")), kind],
                env=dict(environment),
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                **other,
            )
        )
    with LimitNotProvenError.instead_of(
        ValueError,
        f"the probe died with exit code {done.returncode}",
        why=done.stderr.strip()[-300:],
        fix="run `advisor doctor`",
    ):
        return json.loads(done.stdout)


@dataclass(frozen=True, slots=True)
class CuMaskBackend(Server):
    """CUs of one AMD GPU from one end, evenly over its XCDs."""

    gpu: Gpu
    mode: str = "cu_mask"
    max_clients: int = 1000

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that hold a process to its CUs: both masks, so that one can be read back."""
        # By itself, so that no GPU that the process sees is left without a mask.
        return {
            "ROCR_VISIBLE_DEVICES": str(self.gpu.index),
            **share_environment(share, self._total, "amd"),
        }

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Read the number of CUs back from inside `environment`."""
        refuse_if_skipped(environment)
        seen, expected = look_hip(environment), units_for_share(share.percent, self._total, "amd")
        if seen != expected:
            raise LimitNotProvenError(
                f"{share} % is {expected} CUs, but a process saw {seen}",
                why="the runtime ignores a mask that it cannot read, without a message",
                fix="check ROC_GLOBAL_CU_MASK and the ROCm version",
            )
        return Granted(seen, mps=False)

    def check_clients(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check that every process of the job carries the masks, and that none skips them."""
        self.check_variables(share, pids)
        for pid in pids():
            refuse_if_skipped(environment_of(pid))

    def sight(self) -> None:
        """Nobody is asked yet who computes on an AMD GPU."""

    @property
    def _total(self) -> int:
        if self.gpu.units_total is None:
            raise PartitionError(
                f"the number of CUs of {self.gpu.model} is not known", fix="run `advisor doctor`"
            )
        return self.gpu.units_total


@dataclass(frozen=True, slots=True)
class UncappedBackend(Server):
    """The GPU as it is; the only share is 100 %.

    Attributes:
        max_clients: Contexts that start take turns on the GPU: of eight all were ready after 16 to
            129 s, of 18 not all after 170 s (docs/measurements/sets.md).
        computing: Lists the processes with a context on the GPU.
    """

    gpu: Gpu
    mode: str = "uncapped"
    max_clients: int = 8
    computing: ComputingPids = tuple

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that keep a process away from any MPS daemon."""
        if share.percent != 100:
            raise InputError(
                f"{share} % was asked for without a limit",
                fix="use --mode mps for shares below 100 %",
            )
        return {PIPE_DIRECTORY: "/nonexistent", "CUDA_VISIBLE_DEVICES": self.gpu.uuid}

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Check that the process sees the whole GPU, without MPS."""
        seen = next((gpu for gpu in look(environment) if gpu.uuid == self.gpu.uuid), None)
        if seen is None or seen.mps or seen.units != (self.gpu.units_total or seen.units):
            raise LimitNotProvenError(
                f"a process that should have all of {self.gpu.uuid} saw {seen}",
                fix="stop the MPS daemon of this GPU",
            )
        return Granted(seen.units, mps=False)

    def sight(self) -> Sight:
        """Who computes."""
        return Sight(frozenset(self.computing()), None)
