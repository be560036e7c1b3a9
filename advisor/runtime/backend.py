"""Back-ends that limit a job to part of a GPU, and the read-back of the limit.

MPS is spoken to by its control program. Its exit code only says that a daemon was reached, not that
the command worked, so every reply is read (NVIDIA MPS documentation, "nvidia-cuda-mps-control").

The percentage is read by a client when it starts, and the lower of the server's and the client's
wins. A client that finds no daemon runs on the WHOLE GPU without a word (man page of
nvidia-cuda-mps-control), so nothing is believed that was not read back.
"""

import json
import os
import re
import subprocess
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from advisor.core.gpu import (
    MEMORY_LIMIT,
    MPS_CLIENTS,
    PERCENTAGE,
    SM_FLOOR,
    Gpu,
    Share,
    refuse_if_skipped,
    units_for_percent,
    units_for_share,
    visible,
)
from advisor.errors import InputError, LimitNotProvenError, PartitionError
from advisor.files import check_parents, private_folder, read_end, read_whole
from advisor.runtime.processes import (
    beat,
    beating,
    environment_of,
    lacking,
    of_user,
    owner_of,
    wait_until,
)
from advisor.settings import LIMIT_VARIABLES, python

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"


@dataclass(frozen=True, slots=True)
class Granted:
    """What was read back under a share.

    Attributes:
        units: SMs or CUs that a process under the share sees; None where the driver hides it.
        memory_mib: Memory that it can take at most; None: all that there is.
    """

    units: int | None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """The processes on a GPU at one moment.

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
"""Lists the processes with a context on a GPU; empty where they cannot be listed."""


def check_environments(
    share: Share, wanted: Mapping[str, str], pids: Callable[[], Collection[int]]
) -> None:
    """Check that every process of a job carries the variables of its limit, and no other limits.

    Raises:
        LimitNotProvenError: a process does not, or none can be seen.
    """
    now = pids()
    wrong = lacking(now, wanted)  # waits for those in the middle of exec, which show no variables
    if names := sorted(
        {name for pid in now for name in environment_of(pid)}
        & (frozenset(LIMIT_VARIABLES) - wanted.keys())
    ):
        raise LimitNotProvenError(
            f"processes of the job carry {', '.join(names)}, which can lift its share of {share} %",
            why="the job's file or a script inside the job sets what only advisor may set",
            fix="leave such variables out of the job",
        )
    if wrong:
        raise LimitNotProvenError(
            f"processes {wrong} of the job do not carry the variables of its share of {share} %",
            why="a script inside the job changes them",
            fix=f"leave these to advisor: {', '.join(wanted)}",
        )
    if not now:
        raise LimitNotProvenError(
            "no process of the job can be seen", fix="run advisor in the job's process namespace"
        )


class Backend(Protocol):
    """Limits jobs on one GPU.

    Attributes:
        gpu: The GPU that is shared.
        mode: One of mps, cu_mask and uncapped; points carry it.
    """

    __slots__ = ()

    gpu: Gpu
    mode: str

    @property
    def max_clients(self) -> int:
        """Most processes that may hold a context at the same time, beside those that do.

        As many as anybody starts, where no bound is known.
        """
        return 1000

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that put a process under `share`."""
        ...

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Read the limit back from inside `environment`.

        Raises:
            LimitNotProvenError: the limit is not in force; nothing may be started.
        """
        ...

    def sight(self) -> Sight | None:
        """The processes on the GPU now; None if unknown.

        Raises:
            PartitionError: what enforces the limits does not answer.
        """
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


_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class VisibleGpu:
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


def look(environment: Mapping[str, str], user: int | None = None) -> list[VisibleGpu]:
    """The GPUs that a process started with `environment` sees.

    Args:
        environment: All of its variables.
        user: Number of the user that it runs as, since MPS serves one at a time; None: ours.

    Raises:
        LimitNotProvenError: the driver cannot be asked; the message has its error number.
    """
    answer = _probe("cuda", environment, user)
    if "gpus" in answer:
        return [VisibleGpu(**gpu) for gpu in answer["gpus"]]
    code = answer.get("error")
    raise LimitNotProvenError(
        f"the CUDA driver refused {answer.get('call')} with error {code}",
        why=_CUDA_ERRORS.get(code, "see CUresult in the CUDA driver API manual"),
        fix="run `advisor doctor`",
    )


def check_granted(gpu: Gpu, share: Share, visible: VisibleGpu | None, pipe_dir: Path) -> Granted:
    """Compare what a process saw with what `share` must give.

    Raises:
        LimitNotProvenError: wrong GPU, no MPS, another SM count than the share's, or more memory.
    """
    if visible is None:
        raise LimitNotProvenError(
            f"the job would not see GPU {gpu.uuid}",
            why=f"the MPS daemon in {pipe_dir} serves other GPUs",
            fix="unset CUDA_MPS_PIPE_DIRECTORY, or name the daemon of this GPU",
        )
    if not visible.mps:
        raise LimitNotProvenError(
            f"MPS is not in force: a process with the pipe directory {pipe_dir} saw all "
            f"{visible.units} SMs without an MPS server",
            why="the driver falls back to the whole GPU when no daemon answers there",
            fix="check that the daemon runs (`advisor doctor`) and that the directory is its own",
        )
    expected = units_for_percent(share.percent, gpu.units_total or visible.units)
    # Below the floor that was read on Hopper another GPU may grant what was asked.
    if visible.units != expected and not (visible.units < expected == SM_FLOOR):
        raise LimitNotProvenError(
            f"{share} % of {gpu.units_total} SMs is {expected}, but a process saw {visible.units}",
            why="fewer: the daemon's own percentage is lower; more: the limit was not taken",
            fix=f"unset {PERCENTAGE} where the daemon is started, and restart it",
        )
    most_mib, free_mib = share.memory_mib, visible.free_mib
    # Under a limit the driver tells as free what is left of the limit, not of the card.
    if most_mib is not None and (free_mib is None or free_mib > most_mib):
        free = "nothing is known" if free_mib is None else f"{free_mib:.0f} MiB are free"
        raise LimitNotProvenError(
            f"the memory of a process should be bounded at {most_mib} MiB, and {free} to it",
            why=f"the driver has not taken {MEMORY_LIMIT}, which CUDA 11.5 and newer know",
            fix="launch without it: --no-memory-limit",
        )
    return Granted(visible.units, memory_mib=most_mib)


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


# CUresult values of cuda.h that speak of MPS.
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
class CuMaskBackend(Backend):
    """CUs of one AMD GPU from one end, evenly over its XCDs."""

    gpu: Gpu
    mode: str = "cu_mask"

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that hold a process to its CUs: both masks, so that one can be read back."""
        # By itself, so that no GPU that the process sees is left without a mask.
        return {
            "ROCR_VISIBLE_DEVICES": str(self.gpu.index),
            **share.environment(self._total, "amd"),
        }

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Read the number of CUs back from inside `environment`."""
        refuse_if_skipped(environment)
        units, expected = look_hip(environment), units_for_share(share.percent, self._total, "amd")
        if units != expected:
            raise LimitNotProvenError(
                f"{share} % is {expected} CUs, but a process saw {units}",
                why="the runtime ignores a mask that it cannot read, without a message",
                fix="check ROC_GLOBAL_CU_MASK and the ROCm version",
            )
        return Granted(units)

    def check_clients(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check that every process of the job carries the masks, and that none skips them."""
        self.check_variables(share, pids)
        for pid in pids():
            refuse_if_skipped(environment_of(pid))

    def sight(self) -> None:
        """Processes on an AMD GPU are not listed yet."""

    @property
    def _total(self) -> int:
        if self.gpu.units_total is None:
            raise PartitionError(
                f"the number of CUs of {self.gpu.model} is not known", fix="run `advisor doctor`"
            )
        return self.gpu.units_total


@dataclass(frozen=True, slots=True)
class UncappedBackend(Backend):
    """The GPU as it is; the only share is 100 %.

    Attributes:
        computing: Lists the processes with a context on the GPU.
    """

    gpu: Gpu
    mode: str = "uncapped"
    computing: ComputingPids = tuple

    @property
    def max_clients(self) -> int:
        """Starting contexts are time-sliced: of eight all were ready after 16 to 129 s.

        Of 18 not all after 170 s (docs/measurements/sets.md).
        """
        return 8

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that keep a process away from any MPS daemon."""
        if share.percent != 100:
            raise InputError(
                f"{share} % was asked for without a limit",
                fix="use --mode mps for shares below 100 %",
            )
        return {PIPE_DIRECTORY: "/nonexistent", "CUDA_VISIBLE_DEVICES": visible(self.gpu.each)}

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Check that the process sees the whole GPU, without MPS."""
        visible_gpus = {gpu.uuid: gpu for gpu in look(environment)}
        for gpu in self.gpu.each:
            visible = visible_gpus.get(gpu.uuid)
            if (
                visible is None
                or visible.mps
                or visible.units != (gpu.units_total or visible.units)
            ):
                raise LimitNotProvenError(
                    f"a process that should have all of {gpu.uuid} saw {visible}",
                    fix="stop the MPS daemon of this GPU",
                )
        return Granted(visible_gpus[self.gpu.uuid].units)

    def sight(self) -> Sight:
        """The processes that compute."""
        return Sight(frozenset(self.computing()), None)


BINARY = "nvidia-cuda-mps-control"

_REPLY_S = 10


class _NoDaemonError(PartitionError):
    """No MPS daemon listens in the directory."""


@dataclass(frozen=True, slots=True)
class Control:
    """Front end of the daemon that listens in `pipe_dir`.

    Attributes:
        environment: Of the control program.
        user: Number of the user whose daemon it is, for root to ask as him; None: ours.
    """

    pipe_dir: Path
    environment: Mapping[str, str]
    user: int | None = None

    def ask(self, command: str) -> str:
        """Send one command and return the reply without the last line break.

        Raises:
            NoDaemonError: no daemon answers.
            PartitionError: it hangs, or it does not know the command.
        """
        reply = run([BINARY], self.variables(), command, self.user)
        if "Cannot find MPS control daemon" in reply or "Failed to connect" in reply:
            raise _NoDaemonError(
                f"no MPS daemon answers in {self.pipe_dir}",
                why="it was never started, has ended, or the directory is wrong",
                fix="unset CUDA_MPS_PIPE_DIRECTORY to let advisor start its own, or start it again",
            )
        if reply.startswith("Unknown command"):
            raise PartitionError(f"the MPS daemon refused '{command}'", why=reply)
        return reply

    def servers(self) -> list[int]:
        """Process numbers of the servers; empty until a client came or one was started."""
        return parse_pids(self.ask("get_server_list"))

    def clients(self, server: int) -> list[int]:
        """Process numbers of the clients of `server`."""
        return parse_pids(self.ask(f"get_client_list {server}"))

    def status(self, server: int) -> str:
        """INITIALIZING, ACTIVE or FAULT; the reply as it is when the server is not known."""
        return self.ask(f"get_server_status {server}").strip()

    def default_percentage(self) -> float:
        """Percentage that the daemon gives to its next server."""
        return _parse_percentage(self.ask("get_default_active_thread_percentage"))

    def answers(self) -> bool:
        """Whether a daemon listens there.

        Raises:
            PartitionError: one does, and does not answer as it should.
        """
        try:
            self.default_percentage()
        except _NoDaemonError:
            return False
        return True

    def check_default(self) -> None:
        """Check that the daemon does not tighten every share without a word.

        Raises:
            PartitionError: its own percentage is below 100.
        """
        percentage = self.default_percentage()
        if percentage < 100:
            raise PartitionError(
                f"the MPS daemon in {self.pipe_dir} gives its clients {percentage:g} % at most",
                why="the lower of the daemon's and the job's percentage wins",
                fix="echo set_default_active_thread_percentage 100 | nvidia-cuda-mps-control, "
                "then shut down its servers",
            )

    def percentage(self, server: int) -> float:
        """The most that `server` gives to a client that starts now."""
        return _parse_percentage(self.ask(f"get_active_thread_percentage {server}"))

    def limit(self, percentage: int) -> None:
        """Let no client that starts from now on have more, of any server."""
        self.ask(f"set_default_active_thread_percentage {percentage}")
        for server in self.servers():
            self.ask(f"set_active_thread_percentage {server} {percentage}")

    def start_daemon(self, gpus: str, log_dir: Path) -> None:
        """Start a daemon for GPUs as `visible` names them; it goes to the background by itself.

        Raises:
            PartitionError: the program is missing or refused to start.
        """
        serving = {"CUDA_MPS_LOG_DIRECTORY": str(log_dir), "CUDA_VISIBLE_DEVICES": gpus}
        reply = run([BINARY, "-d"], {**self.variables(), **serving})
        if reply and "already running" not in reply:
            raise PartitionError(
                f"the MPS daemon did not start: {reply}",
                fix=f"read {log_dir}/control.log",
            )

    def variables(self) -> dict[str, str]:
        """Of the control program."""
        return {
            **self.environment,
            # A driver of release 615 or newer also has protocol 3, whose commands differ.
            "CUDA_MPS_PROTOCOL_VERSION": "2",
            PIPE_DIRECTORY: str(self.pipe_dir),
        }


def binary_version(environment: Mapping[str, str]) -> str:
    """Version text of the control program, such as "13000"."""
    reply = run([BINARY, "-v"], environment)
    return reply.partition("Binary version:")[2].split()[0] if "Binary version:" in reply else reply


def daemon_pid(pipe_dir: Path) -> int | None:
    """The number that a daemon left in its folder; None: none is there."""
    try:
        return int(read_whole(pipe_dir / "nvidia-cuda-mps-control.pid", 100))
    except (OSError, ValueError):
        return None


def parse_pids(reply: str) -> list[int]:
    """Process numbers, one a line; anything else is not a list.

    Raises:
        PartitionError: the reply holds something that is not a number.
    """
    words = reply.split()
    if not all(word.isdigit() for word in words):
        raise PartitionError(f"the MPS daemon answered '{reply}' where process numbers were due")
    return [int(word) for word in words]


def _parse_percentage(reply: str) -> float:
    """A percentage.

    Raises:
        PartitionError: the reply is something else.
    """
    with PartitionError.instead_of(
        ValueError,
        f"the MPS daemon answered '{reply}' where a percentage was due",
        why="",
        fix=f"quit it with: echo quit | {BINARY}",
    ):
        return float(reply)


def run(
    arguments: list[str], environment: Mapping[str, str], text: str = "", user: int | None = None
) -> str:
    """Run the control program; return its output and errors.

    Raises:
        PartitionError: it is not there, or hangs.
    """
    beat()
    with (
        PartitionError.instead_of(
            FileNotFoundError,
            f"{BINARY} is not on the PATH",
            why="it comes with the NVIDIA driver (Debian package nvidia-cuda-mps)",
            fix="install it, or add its folder to PATH",
        ),
        PartitionError.instead_of(
            subprocess.TimeoutExpired,
            f"the MPS daemon did not answer '{text or arguments[-1]}' within {_REPLY_S} s",
            why="it hangs, often after a client was killed with work under way",
            fix=f"stop it with: pkill -9 -f {BINARY}; then try again",
        ),
    ):
        done = beating(
            lambda: subprocess.run(
                arguments,
                env=dict(environment),
                input=text + "\n",
                capture_output=True,
                text=True,
                timeout=_REPLY_S,
                check=False,
                **of_user(user),
            )
        )
    return (done.stdout + done.stderr).strip()


# What is in a runtime folder: `locks`, and a folder for each GPU.
_OURS = re.compile(r"[0-9A-Za-z-]{1,12}")

_START_S = 10
_CLIENT_S, _POLL_S = 10, 0.1


@dataclass(frozen=True, slots=True)
class MpsBackend(Backend):
    """MPS on one GPU, or on those that a job of several holds.

    Attributes:
        owned: The daemon was started here and is stopped by `close`.
        computing: Lists the processes with a context on the GPU.
    """

    gpu: Gpu
    control: Control
    owned: bool
    mode: str = "mps"
    computing: ComputingPids = tuple

    @property
    def max_clients(self) -> int:
        """Places left on the GPU, next to clients that are there already."""
        return max(0, MPS_CLIENTS - len(self.clients()))

    def clients(self) -> list[int]:
        """Process numbers of all that use the GPU through this daemon."""
        return [pid for server in self.control.servers() for pid in self.control.clients(server)]

    def environment(self, share: Share) -> dict[str, str]:
        """Variables that make a process a client under `share`."""
        gpus = share.of(self.gpu)
        return {
            PIPE_DIRECTORY: str(self.control.pipe_dir),
            **share.environment(self.gpu.units_total, "nvidia", len(gpus)),
            # By UUID: the daemon renumbers its devices, so an index could miss.
            "CUDA_VISIBLE_DEVICES": visible(gpus),
        }

    def cap(self, percent: int) -> None:
        """Set the percentage of the server; a daemon that was there is not changed.

        A process reads its own percentage when it initialises CUDA and may have changed it; the
        server's holds whatever the process says (read on an H100, docs/threat-model.md).
        """
        if not self.owned:
            return
        self.control.limit(percent)
        if (given := self.given_percent()) is not None and given > percent:
            raise PartitionError(f"the MPS server gives {given:g} % where {percent} % was set")

    def given_percent(self) -> float | None:
        """The percentage of our own server; None before it runs, or where it is not ours."""
        return max(
            map(self.control.percentage, self.control.servers() if self.owned else []), default=None
        )

    def holds(self, percent: float) -> bool:
        """Our own server holds the largest share of those that it was set to."""
        given = self.given_percent()
        return percent >= 100 or (given is not None and given <= percent)

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Read MPS and the SM count back from inside `environment`."""
        # Wait until no server is in a fault; it recovers when all its clients have ended.
        if not wait_until(lambda: not self._faulty(), _CLIENT_S):
            raise PartitionError(
                f"MPS server {self._faulty()[0]} is in a fault",
                why="a client crashed on the GPU and took its neighbours with it",
                fix="end all clients of this GPU; the server then recovers",
            )
        visible_gpus = {gpu.uuid: gpu for gpu in look(environment)}
        granted = [
            check_granted(gpu, share, visible_gpus.get(gpu.uuid), self.control.pipe_dir)
            for gpu in share.of(self.gpu)
        ]
        return granted[0]

    def sight(self) -> Sight:
        """The processes that compute, and the clients."""
        # In this order: a client that has just ended computes no more.
        computing = frozenset(self.computing())
        servers = self.control.servers()
        return Sight(
            computing - frozenset(servers),
            frozenset(pid for server in servers for pid in self.control.clients(server)),
        )

    def check_clients(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check every process's variables, and that those that compute are clients."""
        if not wait_until(lambda: bool(set(pids()) & set(self.clients())), _CLIENT_S, _POLL_S):
            raise LimitNotProvenError(
                f"none of the job's processes {sorted(pids())} is a client of the MPS server",
                why="the job uses no GPU, changes CUDA_MPS_PIPE_DIRECTORY, or runs in another "
                "process namespace than the daemon",
                fix="look first whether torch.cuda.is_available() (or the like) holds in its "
                "environment; else leave the variable alone, and start advisor in the daemon's "
                "namespace",
            )
        # In this order, as in `sight`.
        computing = frozenset(self.computing())
        if outside := sorted((computing - frozenset(self.clients())) & set(pids())):
            raise LimitNotProvenError(
                f"processes {outside} of the job compute on the whole GPU, without MPS",
                why="they set CUDA_MPS_PIPE_DIRECTORY themselves",
                fix="leave the variable alone",
            )
        self.check_variables(share, pids)

    def check_alive(self) -> None:
        """Check that the daemon answers."""
        self.control.servers()

    def spoiled(self) -> bool:
        """A server is in a fault; clients that wait do not know of it yet."""
        return bool(self._faulty())

    def blamed(self) -> frozenset[int]:
        """Clients that our server's log names in lines about faults; it does so for some faults."""
        newest = read_end(self.control.pipe_dir.with_name("log") / "server.log", 64 << 10)
        return named_in_faults(newest.decode(errors="replace")) if self.owned else frozenset()

    def release(self, pids: Collection[int]) -> None:
        """End the processes' GPU work by `terminate_client`, and wait for those that were at work.

        NVIDIA's documentation asks for this before any signal: a client killed with work under
        way can hang the server and its neighbours.
        """
        for server in self.control.servers():
            for pid in set(pids) & set(self.control.clients(server)):
                self.control.ask(f"terminate_client {server} {pid}")
        # A client with work under way is off within 0.5 s of the answer to `terminate_client`; one
        # without stays on the list until it ends, however long (docs/measurements/profiles.md, on
        # an H100).
        wait_until(lambda: not set(pids) & set(self.clients()), 1)

    def close(self) -> None:
        """Quit the daemon if it is ours; a daemon that was already there stays."""
        if not self.owned:
            return
        pid = daemon_pid(self.control.pipe_dir)
        self.control.ask("quit -t 5")
        wait_until(lambda: owner_of(pid) is None if pid else not self.control.answers(), _START_S)

    def _faulty(self) -> list[int]:
        return [s for s in self.control.servers() if "FAULT" in self.control.status(s)]


def open_mps(
    gpu: Gpu,
    runtime_dir: Path,
    environment: Mapping[str, str],
    pipe_dir: Path | None = None,
    computing: ComputingPids = tuple,
) -> MpsBackend:
    """MPS on `gpu`, ready for clients.

    Args:
        gpu: The GPU; its `units_total` must be known.
        runtime_dir: Where a daemon of our own keeps its pipe and logs.
        environment: Base environment of the control program.
        pipe_dir: A daemon that is already there; None: our own. The caller then holds the lock of
            the GPU: one of ours that runs is what a killed advisor left, and is replaced.
        computing: Lists the processes with a context on the GPU.

    Raises:
        PartitionError: no daemon could be reached or started, it belongs to another user, or its
            own percentage is below 100 and would silently tighten every share.
    """
    owned = pipe_dir is None
    control = Control(pipe_dir or private_pipe_dir(gpu, runtime_dir), environment)
    if owned:
        _open_private_daemon(gpu, runtime_dir, control)
    # Clients of other users wait, without a word, until the active user's are gone.
    for server in control.servers():
        owner = owner_of(server)
        if owner not in (None, os.getuid()) and control.clients(server):
            raise PartitionError(
                f"MPS server {server} serves user {owner} and has clients; we are {os.getuid()}",
                why="an MPS server serves one user at a time; others wait in silence",
                fix="wait until that user's jobs end, or start the daemon with -multiuser-server",
            )
    control.check_default()
    start_server(control)
    return MpsBackend(gpu, control, owned, computing=computing)


def private_pipe_dir(gpu: Gpu, runtime_dir: Path) -> Path:
    """Where a daemon of our own listens."""
    return runtime_dir / gpu.uuid[-12:] / "mps"


def _open_private_daemon(gpu: Gpu, runtime_dir: Path, control: Control) -> None:
    """Start our own daemon; it replaces one that a killed advisor left.

    Raises:
        PartitionError: it does not start, or another user's is there.
    """
    check_parents(runtime_dir)
    pipe_dir, log_dir = control.pipe_dir, control.pipe_dir.with_name("log")
    for name in (pipe_dir.name, "log"):
        private_folder(runtime_dir, pipe_dir.parent.name, name, ours=_OURS)
    # The locks of these GPUs are held, so no other daemon of ours may serve one of them.
    ours = {part.uuid for part in gpu.each}
    for other in {pipe_dir, *runtime_dir.glob(f"*/{pipe_dir.name}")}:
        left = Control(other, control.environment)
        served = environment_of(daemon_pid(other) or 0).get("CUDA_VISIBLE_DEVICES", "").split(",")
        if (other == pipe_dir or not ours.isdisjoint(served)) and left.answers():
            _end_daemon(MpsBackend(gpu, left, owned=True))
    control.start_daemon(visible(gpu.each), log_dir)
    if not wait_until(control.answers, _START_S):
        raise PartitionError(
            f"the MPS daemon for {gpu.uuid} did not answer within {_START_S} s",
            fix=f"read {log_dir}/control.log",
        )
    _check_ours(control)


def _check_ours(control: Control) -> None:
    """Refuse another user's daemon that listens in our folder."""
    pid = daemon_pid(control.pipe_dir)
    owner = owner_of(pid) if pid is not None else None
    if owner not in (None, os.geteuid()):
        raise PartitionError(
            f"the MPS daemon {pid} in {control.pipe_dir} belongs to user {owner}",
            why=f"the folder is that of user {os.geteuid()}, and was open to others once",
            fix="let that user or root end it, or set ADVISOR_RUNTIME_DIR to another folder",
        )


def _end_daemon(left: MpsBackend) -> None:
    """End the daemon that a killed advisor left, and the GPU work of its clients.

    Jobs that died with work under way leave the server in an undefined state (NVIDIA MPS
    documentation, best practices): the next clients of the same server may fail as they start.

    Raises:
        PartitionError: it is another user's, or does not end.
    """
    _check_ours(left.control)
    for end in (lambda: left.release(left.clients()), left.close):
        with suppress(PartitionError):
            end()
    if left.control.answers():
        raise PartitionError(
            f"the MPS daemon in {left.control.pipe_dir} did not end",
            why="it was asked to quit, and answers still",
            fix="end it as its user, or set ADVISOR_RUNTIME_DIR to another folder",
        )


def start_server(control: Control) -> None:
    """Start the server now, so that the first client does not pay for it.

    Raises:
        PartitionError: it does not become active.
    """
    if not control.servers():
        control.ask(f"start_server -uid {os.getuid()}")
    if not wait_until(lambda: "ACTIVE" in map(control.status, control.servers()), _START_S):
        raise PartitionError(
            f"the MPS server did not become active within {_START_S} s",
            why="; ".join(control.status(server) for server in control.servers()) or "none started",
            fix="read server.log in the daemon's log directory; is the GPU in exclusive mode "
            "and held by another process?",
        )


_FAULT_LINE = re.compile(r"fault|exception|illegal|fatal", re.IGNORECASE)
# As in `Client {PID: 4267, Context ID: 0} connected`; the server's own number has no such word.
_CLIENT = re.compile(r"\bPID:? *([0-9]+)")


def named_in_faults(log: str) -> frozenset[int]:
    """The clients in those lines that speak of a fault.

    Such a line may also name a victim of the fault: only a job that is named alone caused it.
    """
    return frozenset(
        int(client[1])
        for line in log.splitlines()
        if _FAULT_LINE.search(line)
        for client in _CLIENT.finditer(line)
    )
