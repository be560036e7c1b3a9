"""Whether the limit of a pod holds, as far as it can be seen from outside of the pod.

MPS has no command that tells the SMs of one client that runs, only the percentage of its server. So
three things are looked at, as a launch does it for its own jobs:

1. A probe is started on the same daemon, as the same user and with the same variables, and reads
   back from the driver how many SMs it gets.
2. Every process of the pod that uses the GPU was started with these variables and no others that
   lift a limit (`/proc/PID/environ`).
3. Each of them is a client of the daemon; none computes outside of MPS.

A process that changes its own environment before it calls CUDA is not seen by this.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from advisor.core.gpu import PERCENTAGE
from advisor.errors import AdvisorError, LimitNotProvenError
from advisor.runtime.backends.backend import Sight, check_environments
from advisor.runtime.backends.mps import PIPE_DIRECTORY
from advisor.runtime.host.processes import owner_of
from advisor_kubernetes.agent.daemons import GpuDaemon
from advisor_kubernetes.agent.pods import SharedPod

PodOf = Callable[[int], str | None]
"""The uid of the pod of a process; None: of no pod."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found of a pod's limit.

    Attributes:
        proven: None: it does not use the GPU yet, so nothing can be said.
        units: SMs that the driver grants under its share; None: not read.
        why: Why the limit is not proven; else empty.
    """

    proven: bool | None = None
    units: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class GpuUsers:
    """The processes of one pod that use a GPU.

    Attributes:
        clients: Those that are clients of its MPS daemon.
        outside: Those that compute on it without MPS.
    """

    clients: frozenset[int] = frozenset()
    outside: frozenset[int] = frozenset()

    @property
    def all(self) -> frozenset[int]:
        """Both."""
        return self.clients | self.outside


def users_by_pod(sight: Sight, pod_of: PodOf) -> dict[str, GpuUsers]:
    """The processes on a GPU, by the uid of their pod; those of no pod are left out."""
    clients = sight.clients or frozenset()
    found: dict[str, GpuUsers] = {}
    for pid in clients | sight.computing:
        if uid := pod_of(pid):
            known = found.get(uid, GpuUsers())
            found[uid] = (
                GpuUsers(known.clients | {pid}, known.outside)
                if pid in clients
                else GpuUsers(known.clients, known.outside | {pid})
            )
    return found


def strangers(sight: Sight, pod_of: PodOf, uids: Collection[str]) -> frozenset[int]:
    """Processes that compute on a GPU and are of none of these pods."""
    return frozenset(pid for pid in sight.computing if pod_of(pid) not in uids)


UNSEEN = (
    "it makes progress, and none of its processes is seen on its GPU: it computes elsewhere, or "
    "the agent does not share the process namespace of the node (hostPID)"
)


def prove(
    pod: SharedPod, users: GpuUsers, daemon: GpuDaemon, pipe_mount: str, known: Proof
) -> Proof:
    """Look at a pod's limit once.

    Args:
        pod: Its annotations say what it must have.
        users: Its processes on the GPU now.
        daemon: Of the GPU that it was given.
        pipe_mount: What its processes must have as CUDA_MPS_PIPE_DIRECTORY.
        known: What was found before: a share that was read back is not probed again.
    """
    if not users.all:
        return known
    units = known.units
    try:
        if users.outside:
            raise LimitNotProvenError(
                f"processes {sorted(users.outside)} compute on the whole GPU, without MPS",
                why="CUDA_MPS_PIPE_DIRECTORY was changed, or no daemon answered when they started",
                fix="delete the pod",
            )
        wanted = daemon.backend.environment(pod.share) | {
            PIPE_DIRECTORY: pipe_mount,
            PERCENTAGE: pod.share_text,
        }
        check_environments(pod.share, wanted, lambda: users.all)
        if units is None:
            units = daemon.prove(pod.share, owner_of(min(users.clients)))
    except AdvisorError as error:
        return Proof(False, units, str(error))
    return Proof(True, units)
