"""The MPS control program that speaks protocol 3: a named server, a namespace for each job.

Commands, options, columns and fields are those of NVIDIA's "MPS v3 Interface", "MPS v3 Namespaces"
and "Appendix: Environment Variables" (release 615). Not documented are the exit codes and the words
of errors, any status of a server but `Ready`, and the columns of `client list` but by one example.
Others have used it with driver 615 (kai-scheduler/kai-gpu-fractioning, `mpsctl` and `mpsns`): there
a refusal has an exit code above 0, the namespace of a client is written `SERVER/NAME (0)`, and a
namespace with clients is neither changed nor deleted without force. So whatever is set is read
back, a status other than `Ready` serves nobody, and a reply of another form is an error. Tried here
against fakes only: no driver with it was at hand.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from advisor.core.gpu import Share
from advisor.errors import PartitionError, undone_by
from advisor.runtime.backends.mps_control import BINARY, PROTOCOL, Control, parse_percentage, run

SERVER = "gpu"
"""A daemon of ours serves one GPU, and one user."""

PIPES = "mps3"
"""Name of the folder where such a daemon of ours listens; by it a front end knows the protocol."""

_ROWS = "--format=csv,noheader"
_COLUMNS = 7
_CLIENT = re.compile(rf"([0-9]+),{SERVER},[^,]*,(?:{SERVER}/)?([a-z0-9_]+)(?: \([0-9]+\))?(?:,|$)")
"""Process, server, device, namespace, command: as documented by an example, or as others saw it."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMG])")
_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}

_LEAST = 1
"""Percent for whoever connects without a namespace: nobody of ours. 0 is refused."""

_NEAR = 0.01
"""Percentages are shown with two places (`30.00`)."""


@dataclass(frozen=True, slots=True)
class Control3(Control):
    """Front end of a daemon that speaks protocol 3.

    Attributes:
        gpu_uuid: For which a server is created.
    """

    gpu_uuid: str = ""
    protocol: ClassVar[str] = "3"
    server_log: ClassVar[str] = f"{SERVER}/server.log"

    def ask(self, command: str) -> str:
        """Send one command and return the reply.

        Raises:
            NoDaemonError: no daemon answers.
            PartitionError: it hangs, or refuses the command.
        """
        reply, status = run([BINARY, *command.split()], self.variables(), "", self.user)
        self.check_found(reply)
        if status:
            raise PartitionError(f"the MPS daemon refused '{command}'", why=reply)
        return reply

    def servers(self) -> list[int]:
        """Process number of our server; nothing where it has died, or was not created."""
        return [int(row[2]) for row in self._rows() if row[2].isdigit()]

    def status(self, server: int) -> str:
        """ACTIVE, as protocol 2 calls what is ready; else what the daemon says, in capitals."""
        found = next((row[3] for row in self._rows() if row[2] == str(server)), "gone").upper()
        return "ACTIVE" if found == "READY" else found

    def clients(self, server: int) -> list[int]:
        """Process numbers of the clients."""
        return list(self.namespaces())

    def namespaces(self) -> dict[int, str]:
        """The namespace of each client.

        A command line is shown as it is, so with line breaks in it, which are no rows of ours.
        """
        reply = self.ask(f"client list --server={SERVER} {_ROWS}")
        found = [row for line in reply.splitlines() if (row := _CLIENT.match(line))]
        if reply and not found:
            raise PartitionError(f"the MPS daemon answered '{reply}' where clients were due")
        return {int(row[1]): row[2] for row in found}

    def answers(self) -> bool:
        """Whether a daemon listens there; what it says where none does is not documented."""
        try:
            self.servers()
        except PartitionError:
            return False
        return True

    def create_server(self) -> None:
        """Start our server; one for a GPU that is not there is created, too, and dies."""
        devices = f"--allowed-devices={self.gpu_uuid}"
        self.ask(f"server create {SERVER} --uid={os.getuid()} {devices}")
        # What a named namespace has is its own: this is for the one that is called default.
        self.ask(f"server set {SERVER} --active-thread-percentage={_LEAST}")

    def terminate(self, server: int, client: int) -> None:
        """End what a client does on the GPU; the process stays."""
        self.ask(f"client terminate {client}")

    def quit(self) -> None:
        """End the daemon and its servers."""
        self.ask("-q")

    def create(self, namespace: str, share: Share) -> None:
        """Make a namespace whose clients have a share; none is left where that fails.

        Raises:
            PartitionError: it is refused, or gives something else.
        """
        memory = "" if share.memory_mib is None else f"--pinned-memory-limit={share.memory_mib}M"
        self.ask(f"namespace create {namespace} --server={SERVER}")
        # Without limits it would give the whole GPU.
        with undone_by(lambda: self.delete(namespace)):
            limits = f"--active-thread-percentage={share} {memory}"
            self.ask(f"namespace set {namespace} --server={SERVER} {limits}")
            if wrong := self.differs(namespace, share):
                raise PartitionError(wrong, why="the daemon has taken another limit than was set")

    def delete(self, namespace: str) -> None:
        """Remove a namespace, whoever is in it; one whose server is gone has ended with that."""
        with suppress(PartitionError):
            self.ask(f"namespace delete {namespace} --server={SERVER} --force")

    def differs(self, namespace: str, share: Share) -> str:
        """How what the daemon gives there differs from a share; empty: it does not."""
        given = self.percent(namespace)
        if abs(given - share.percent) > _NEAR:
            return f"the MPS namespace {namespace} gives {given:g} %, and {share} % was set"
        if share.memory_mib is None:
            return ""
        reply = self._field(namespace, "pinned-memory-limit")
        size = _SIZE.fullmatch(reply)
        if size and 0 < float(size[1]) * _MIB[size[2]] <= share.memory_mib:
            return ""
        return f"the MPS namespace {namespace} bounds memory at {reply}, not {share.memory_mib}M"

    def percent(self, namespace: str) -> float:
        """What its clients have at most."""
        return parse_percentage(self._field(namespace, "active-thread-percentage"))

    def _field(self, namespace: str, field: str) -> str:
        return self.ask(f"namespace get {namespace} {SERVER} {field}")

    def _rows(self) -> list[list[str]]:
        """Of our server: name, user, process, status, pipe directory, devices, contexts."""
        reply = self.ask(f"server list {_ROWS}")
        rows = [line.split(",") for line in reply.splitlines()]
        if any(len(row) < _COLUMNS for row in rows):
            raise PartitionError(f"the MPS daemon answered '{reply}' where servers were due")
        return [row for row in rows if row[0] == SERVER]


def speaks_v3(environment: Mapping[str, str]) -> bool:
    """Whether the installed control program knows protocol 3, and nobody has chosen 2.

    One that does lists its modules as help (NVIDIA, "Per-GPU Compute and Memory Limits with MPS").
    """
    if environment.get(PROTOCOL) == "2":
        return False
    try:
        reply, _ = run([BINARY, "-p", "3", "-h"], environment)
    except PartitionError:
        return False
    return {"server", "namespace"} <= set(re.findall(r"[a-z-]+", reply))


def control_at(pipe_dir: Path, environment: Mapping[str, str]) -> Control:
    """Front end of a daemon that may be ours."""
    return (Control3 if pipe_dir.name == PIPES else Control)(pipe_dir, environment)
