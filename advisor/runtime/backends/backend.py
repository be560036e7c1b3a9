"""What every way of limiting a job to part of a GPU has in common."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from advisor.core.gpu import Gpu, Share
from advisor.errors import LimitNotProvenError
from advisor.runtime.host.processes import environment_of, lacking
from advisor.settings import LIMIT_VARIABLES


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

    def cap(self, percent: int) -> None:
        """Let no process that starts from now on have more, whatever it says itself.

        Raises:
            PartitionError: that cannot be set.
        """
        return

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
        return

    def spoiled(self) -> bool:
        """Whether a fault of one client has taken all of them down; they must end to go on."""
        return False

    def blamed(self) -> frozenset[int]:
        """Processes that what enforces the limits names where it tells of a fault."""
        return frozenset()

    def release(self, pids: Collection[int]) -> None:
        """Take the processes off the GPU, so that signals cannot hurt their neighbours."""
        return

    def close(self) -> None:
        """Stop what was started for this back-end."""
        return


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

    def check_clients(self, share: Share, pids: Callable[[], Collection[int]]) -> None:
        """Check that a running job is itself under the limit; `pids` lists its processes now.

        Raises:
            LimitNotProvenError: a process is not under it, or no process can be seen.
        """
        ...

    def sight(self) -> Sight | None:
        """Who uses the GPU now; None where nobody can tell.

        Raises:
            PartitionError: what enforces the limits does not answer.
        """
        ...
