"""The MPS control program: one command in, one text out.

Its exit code only says that a daemon was reached, not that the command worked, so every reply is
read (NVIDIA MPS documentation, "nvidia-cuda-mps-control").
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import PartitionError
from advisor.runtime.host.beats import beat, beating
from advisor.runtime.host.processes import of_user

BINARY = "nvidia-cuda-mps-control"

_TIMEOUT_S = 10


class NoDaemonError(PartitionError):
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
            raise NoDaemonError(
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

    def create_server(self) -> None:
        """Start a server of our own."""
        self.ask(f"start_server -uid {os.getuid()}")

    def terminate(self, server: int, client: int) -> None:
        """End what a client does on the GPU; the process stays."""
        self.ask(f"terminate_client {server} {client}")

    def quit(self) -> None:
        """End the daemon and its servers."""
        self.ask("quit -t 5")

    def default_percentage(self) -> float:
        """Percentage that the daemon gives to its next server."""
        return parse_percentage(self.ask("get_default_active_thread_percentage"))

    def answers(self) -> bool:
        """Whether a daemon listens there.

        Raises:
            PartitionError: one does, and does not answer as it should.
        """
        try:
            self.default_percentage()
        except NoDaemonError:
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
        return parse_percentage(self.ask(f"get_active_thread_percentage {server}"))

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


def parse_percentage(reply: str) -> float:
    """A percentage.

    Raises:
        PartitionError: the reply is something else.
    """
    try:
        return float(reply)
    except ValueError as error:
        raise PartitionError(
            f"the MPS daemon answered '{reply}' where a percentage was due",
            fix=f"quit it with: echo quit | {BINARY}",
        ) from error


def run(
    arguments: list[str], environment: Mapping[str, str], text: str = "", user: int | None = None
) -> str:
    """Run the control program; return its output and errors.

    Raises:
        PartitionError: it is not there, or hangs.
    """
    command = text or " ".join(arguments[1:])
    beat()
    try:
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
    except FileNotFoundError as error:
        raise PartitionError(
            f"{BINARY} is not on the PATH",
            why="it comes with the NVIDIA driver (Debian package nvidia-cuda-mps)",
            fix="install it, or add its folder to PATH",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PartitionError(
            f"the MPS daemon did not answer '{command}' within {_TIMEOUT_S} s",
            why="it hangs, often after a client was killed with work under way",
            fix=f"stop it with: pkill -9 -f {BINARY}; then try again",
        ) from error
    return (done.stdout + done.stderr).strip()
