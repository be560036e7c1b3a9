"""Shares of an NVIDIA GPU through MPS, by its control program.

Its exit code only says that a daemon was reached, not that the command worked, so every reply is
read (NVIDIA MPS documentation, "nvidia-cuda-mps-control").

The percentage is read by a client when it starts, and the lower of the server's and the client's
wins. A client that finds no daemon runs on the WHOLE GPU without a word (man page of
nvidia-cuda-mps-control), so nothing is believed that was not read back.
"""

import os
import re
import subprocess
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from advisor.core.gpu import MPS_CLIENTS, Gpu, Share, share_environment
from advisor.errors import LimitNotProvenError, PartitionError
from advisor.files import check_parents, private_folder
from advisor.runtime.backend import (
    PIPE_DIRECTORY,
    ComputingPids,
    Granted,
    Server,
    Sight,
    check_granted,
    look,
)
from advisor.runtime.beats import beat, beating
from advisor.runtime.processes import of_user, owner_of, wait_until

BINARY = "nvidia-cuda-mps-control"

_TIMEOUT_S = 10


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

    def start_daemon(self, gpu_uuid: str, log_dir: Path) -> None:
        """Start a daemon for one GPU; it goes to the background by itself.

        Raises:
            PartitionError: the program is missing or refused to start.
        """
        variables = {
            **self.variables(),
            "CUDA_MPS_LOG_DIRECTORY": str(log_dir),
            "CUDA_VISIBLE_DEVICES": gpu_uuid,
        }
        reply = run([BINARY, "-d"], variables)
        if reply and "already running" not in reply:
            raise PartitionError(
                f"the MPS daemon did not start: {reply}",
                fix=f"read {log_dir}/control.log",
            )

    def variables(self) -> dict[str, str]:
        """Of the control program."""
        # A driver of release 615 or newer also has protocol 3, whose commands differ.
        ours = {"CUDA_MPS_PROTOCOL_VERSION": "2", "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_dir)}
        return {**self.environment, **ours}


def binary_version(environment: Mapping[str, str]) -> str:
    """Version text of the control program, such as "13000"."""
    reply = run([BINARY, "-v"], environment)
    return reply.partition("Binary version:")[2].split()[0] if "Binary version:" in reply else reply


def daemon_pid(pipe_dir: Path) -> int | None:
    """The number that a daemon left in its folder; None: none is there."""
    try:
        return int((pipe_dir / "nvidia-cuda-mps-control.pid").read_text())
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
    command = text or " ".join(arguments[1:])
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
            f"the MPS daemon did not answer '{command}' within {_TIMEOUT_S} s",
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
                timeout=_TIMEOUT_S,
                check=False,
                **of_user(user),
            )
        )
    return (done.stdout + done.stderr).strip()


_OURS = re.compile(r"[0-9A-Za-z-]{1,12}")
"""What is in a runtime folder: `locks`, and a folder for each GPU."""

_START_S = 10
_CLIENT_S, _POLL_S = 10, 0.1

_LEAVE_S = 1
"""A client with work under way is off within 0.5 s of the answer to `terminate_client`; one without
stays on the list until it ends, however long (docs/measurements/profiles.md, on an H100)."""


@dataclass(frozen=True, slots=True)
class MpsBackend(Server):
    """MPS on one GPU.

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
        return {
            PIPE_DIRECTORY: str(self.control.pipe_dir),
            **share_environment(share, self.gpu.units_total, "nvidia"),
            # By UUID: the daemon renumbers its devices, so an index could miss.
            "CUDA_VISIBLE_DEVICES": self.gpu.uuid,
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
        servers = self.control.servers() if self.owned else []
        return max(map(self.control.percentage, servers), default=None)

    def holds(self, percent: float) -> bool:
        """Our own server holds the largest share of those that it was set to."""
        given = self.given_percent()
        return percent >= 100 or (given is not None and given <= percent)

    def prove(self, share: Share, environment: Mapping[str, str]) -> Granted:
        """Read MPS and the SM count back from inside `environment`."""
        self.check_alive()
        # Wait until no server is in a fault; it recovers when all its clients have ended.
        if not wait_until(lambda: not self._faulty(), _CLIENT_S):
            raise PartitionError(
                f"MPS server {self._faulty()[0]} is in a fault",
                why="a client crashed on the GPU and took its neighbours with it",
                fix="end all clients of this GPU; the server then recovers",
            )
        seen = next((gpu for gpu in look(environment) if gpu.uuid == self.gpu.uuid), None)
        return check_granted(self.gpu, share, seen, self.control.pipe_dir)

    def sight(self) -> Sight:
        """Who computes, and who is a client."""
        # In this order: a client that has just ended computes no more.
        computing = frozenset(self.computing())
        servers = self.control.servers()
        clients = frozenset(pid for server in servers for pid in self.control.clients(server))
        return Sight(computing - frozenset(servers), clients)

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
        newest = b""
        file = self.control.pipe_dir.with_name("log") / "server.log"
        with suppress(OSError), file.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _READ_BYTES))
            newest = log.read()
        return named_in_faults(newest.decode(errors="replace")) if self.owned else frozenset()

    def release(self, pids: Collection[int]) -> None:
        """End the processes' GPU work by `terminate_client`, and wait for those that were at work.

        NVIDIA's documentation asks for this before any signal: a client killed with work under
        way can hang the server and its neighbours.
        """
        for server in self.control.servers():
            for pid in set(pids) & set(self.control.clients(server)):
                self.control.ask(f"terminate_client {server} {pid}")
        wait_until(lambda: not set(pids) & set(self.clients()), _LEAVE_S)

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
    control = Control(pipe_dir or own_pipe_dir(gpu, runtime_dir), environment)
    if owned:
        _open_own_daemon(gpu, runtime_dir, control)
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


def own_pipe_dir(gpu: Gpu, runtime_dir: Path) -> Path:
    """Where a daemon of our own listens."""
    return runtime_dir / gpu.uuid[-12:] / "mps"


def _open_own_daemon(gpu: Gpu, runtime_dir: Path, control: Control) -> None:
    """Start a daemon of our own, in the place of one that a killed advisor left.

    Raises:
        PartitionError: it does not start, or that of somebody else is there.
    """
    check_parents(runtime_dir)
    pipe_dir, log_dir = control.pipe_dir, control.pipe_dir.with_name("log")
    for name in (pipe_dir.name, "log"):
        private_folder(runtime_dir, pipe_dir.parent.name, name, ours=_OURS)
    if control.answers():
        _end_daemon(MpsBackend(gpu, control, owned=True))
    control.start_daemon(gpu.uuid, log_dir)
    if not wait_until(control.answers, _START_S):
        raise PartitionError(
            f"the MPS daemon for {gpu.uuid} did not answer within {_START_S} s",
            fix=f"read {log_dir}/control.log",
        )
    _check_ours(control)


def _check_ours(control: Control) -> None:
    """Refuse a daemon of somebody else that listens in our folder."""
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
        PartitionError: it is somebody else's, or does not end.
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
_CLIENT = re.compile(r"\bPID:? *([0-9]+)")
"""As in `Client {PID: 4267, Context ID: 0} connected`; the server's own number has no such word."""

_READ_BYTES = 64 << 10


def named_in_faults(log: str) -> frozenset[int]:
    """The clients in those lines that speak of a fault.

    Such a line may also be of one that a fault takes along: who is named alone is guilty.
    """
    lines = (line for line in log.splitlines() if _FAULT_LINE.search(line))
    return frozenset(int(found[1]) for line in lines for found in _CLIENT.finditer(line))
