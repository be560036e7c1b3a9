"""Whether the limit of a job holds, as far as it can be seen from outside of the job.

MPS has no command that tells the SMs of one client that runs, only the percentage of its server. So
three things are looked at, as a launch does it for its own jobs:

1. A probe is started on the same daemon, as the same user and with the same variables, and reads
   back from the driver how many SMs it gets.
2. Every process of the job that uses the GPU was started with these variables and no others that
   lift a limit (`/proc/PID/environ`).
3. Each of them is a client of the daemon; none computes outside of MPS.

A process that changes its own environment before it calls CUDA is not seen by this.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from advisor.core.gpu import Share
from advisor.errors import AdvisorError, LimitNotProvenError
from advisor.runtime.backend import Sight, check_environments, check_granted, look
from advisor.runtime.mps import MpsBackend
from advisor.runtime.processes import owner_of

TenantOf = Callable[[int], str | None]
"""The uid of the pod or batch job of a process; None: of none."""

Probe = Callable[[Share, int | None], int | None]
"""The SMs that the driver gives to a process under a share, of a user by number; raises a
`LimitNotProvenError`."""


@dataclass(frozen=True, slots=True)
class TenantProof:
    """What was found of a job's limit.

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
    """The processes of one job that use a GPU.

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


def users_by_tenant(sight: Sight, tenant_of: TenantOf) -> dict[str, GpuUsers]:
    """The processes on a GPU, by the uid of their pod or batch job; those of none are left out."""
    clients = sight.clients or frozenset()
    found: dict[str, GpuUsers] = {}
    for pid in clients | sight.computing:
        if uid := tenant_of(pid):
            known = found.get(uid, GpuUsers())
            found[uid] = (
                GpuUsers(known.clients | {pid}, known.outside)
                if pid in clients
                else GpuUsers(known.clients, known.outside | {pid})
            )
    return found


def strangers(sight: Sight, tenant_of: TenantOf, uids: Collection[str]) -> frozenset[int]:
    """Processes that compute on a GPU and are of none of these."""
    return frozenset(pid for pid in sight.computing if tenant_of(pid) not in uids)


def prove(
    share: Share, wanted: Mapping[str, str], users: GpuUsers, probe: Probe, known: TenantProof
) -> TenantProof:
    """Look at a job's limit once.

    Args:
        share: That it must have.
        wanted: Variables of its limit, exactly as its processes must have them.
        users: Its processes on the GPU now.
        probe: Reads a share back on the daemon of that GPU.
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
                fix="end them, and start them again",
            )
        check_environments(share, wanted, lambda: users.all)
        if units is None:
            units = probe(share, owner_of(min(users.clients)))
    except AdvisorError as error:
        return TenantProof(False, units, str(error))
    return TenantProof(True, units)


def granted_units(
    backend: MpsBackend, share: Share, variables: Mapping[str, str], user: int | None
) -> int | None:
    """The SMs that the driver grants now to a process under `share` on a daemon.

    The process has these variables and no others; without a user it is the agent's.

    Raises:
        LimitNotProvenError: it is not under MPS, or gets another number than the share's.
    """
    seen = next((one for one in look(variables, user) if one.uuid == backend.gpu.uuid), None)
    return check_granted(backend.gpu, share, seen, backend.control.pipe_dir).units
