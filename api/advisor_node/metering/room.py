"""One GPU of the node and those who share it: what they do, and what they did together."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol

from advisor.core.gpu import Gpu, Share
from advisor.core.records import Observation
from advisor.core.telemetry import TelemetrySource
from advisor.errors import AdvisorError
from advisor.launch.meter import timed
from advisor.runtime.backend import Sight
from advisor_node.metering.meters import GpuMeter, T, TenantMeter
from advisor_node.metering.overlaps import Overlaps
from advisor_node.metering.progress_files import ProgressReading, read_progress
from advisor_node.metering.proof import (
    GpuUsers,
    TenantOf,
    TenantProof,
    prove,
    strangers,
    users_by_tenant,
)
from advisor_node.metering.references import ReferenceCache

LOG = logging.getLogger("advisor.node")

_UNSEEN = (
    "it makes progress, and none of its processes is seen on its GPU: it computes elsewhere, or "
    "the agent does not share the process namespace of the node (hostPID)"
)


class Daemon(Protocol):
    """The MPS daemon of the GPU, whoever owns it."""

    @property
    def gpu(self) -> Gpu:
        """The GPU; its `units_total` is known."""
        ...

    def sight(self, *, used: bool) -> Sight | None:
        """Who uses the GPU; None: nobody says.

        Args:
            used: Whether a tenant is there.
        """
        ...

    def prove(self, share: Share, user: int | None) -> int | None:
        """The SMs that it gives to a process of a user under a share; see `proof.Probe`."""
        ...

    def meet_strangers(self, pids: Sequence[int]) -> bool:
        """Take note of who computes there and is no tenant; whether limits are in doubt by it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy(Generic[T]):
    """What a scheduler's agent knows of the tenants of a GPU.

    Attributes:
        scheduler: Its name in the ids of observations.
        node: Name of the host.
        tenant_of: The tenant of a process.
        progress_file: Where a tenant counts.
        wanted: Variables of a tenant's limit, exactly as its processes must have them.
        gone: A tenant that is there no more, as it ended.
        warn: Takes what is wrong with a tenant: a reason in one word, a message.
    """

    scheduler: str
    node: str
    tenant_of: TenantOf
    progress_file: Callable[[T], Path]
    wanted: Callable[[T], Mapping[str, str]]
    gone: Callable[[T], T]
    warn: Callable[[T, str, str], None]


class Room(Generic[T]):
    """One GPU; without a source nothing is said of its energy. The clock counts seconds."""

    def __init__(
        self,
        daemon: Daemon,
        source: TelemetrySource | None,
        tenancy: Tenancy[T],
        references: ReferenceCache,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._clock = source, clock
        self.energy = GpuMeter(source, daemon.gpu.units_total or 0)
        self._daemon, self._tenancy, self._references = daemon, tenancy, references
        self._meters: dict[str, TenantMeter[T]] = {}
        self._overlaps = Overlaps[T](daemon.gpu, tenancy.node, tenancy.scheduler)
        self._strangers = frozenset[int]()

    @property
    def meters(self) -> Sequence[TenantMeter[T]]:
        """Of its tenants, and of those of whom something is still to be reported."""
        return tuple(self._meters.values())

    @property
    def living(self) -> Sequence[TenantMeter[T]]:
        """Of those that run or will run."""
        return [meter for meter in self.meters if not meter.tenant.over]

    def look(self, tenants: Sequence[T]) -> list[Observation]:
        """Look at everything once; gives what has come to its end."""
        present = self._take_in(tenants)
        # Before all else: to prove a limit takes seconds, and so may a daemon that is asked.
        (progress, drawn), now = timed(lambda: (self._progress(), self.energy.read()), self._clock)
        sight = self._daemon.sight(used=bool(self.living))
        users = sight and users_by_tenant(sight, self._tenancy.tenant_of)
        self._look_at_tenants(now.at_s, progress if now.is_known else {}, users)
        if sight is not None:
            self._look_for_strangers(sight, present)
        self.energy.look(drawn, now, [meter for meter in self.meters if meter.working])
        ended = list(self._overlaps.follow(now.at_s, self.meters, present, self.energy.metered))
        self._forget(present)
        return ended

    def doubt(self) -> None:
        """The limits of those that are there do not hold, or not for sure."""
        for meter in self.living:
            meter.limit_broken = True

    def close(self) -> None:
        """Let go of the driver."""
        if self._source is not None:
            self._source.close()

    def _take_in(self, tenants: Sequence[T]) -> frozenset[str]:
        present = frozenset(tenant.uid for tenant in tenants)
        for tenant in tenants:
            self._meters.setdefault(tenant.uid, TenantMeter(tenant)).tenant = tenant
        for meter in self.living:
            if meter.tenant.uid not in present:
                meter.tenant = self._tenancy.gone(meter.tenant)
        return present

    def _progress(self) -> dict[str, ProgressReading | None]:
        tenants = [meter.tenant for meter in self.living]
        return {one.uid: read_progress(self._tenancy.progress_file(one)) for one in tenants}

    def _look_at_tenants(
        self,
        now_s: float,
        progress: Mapping[str, ProgressReading | None],
        users: Mapping[str, GpuUsers] | None,
    ) -> None:
        for meter in self.living:
            own = (users or {}).get(meter.tenant.uid, GpuUsers())
            meter.reference = self._references.of(meter.tenant.job, self._daemon.gpu.model)
            was_read = not meter.unread
            meter.look(now_s, progress.get(meter.tenant.uid), own)
            if meter.unread and was_read:
                self._tenancy.warn(meter.tenant, "ProgressUnread", meter.unread)
            if users is not None and meter.take_proof(self._proof(meter, own)):
                self._tenancy.warn(meter.tenant, "LimitNotProven", meter.proof.why)
            if meter.take_memory(self._memory_mib(own)):
                self._tenancy.warn(meter.tenant, "MemoryLimitMet", _at_bound(meter))
        for meter in self.meters:
            meter.working = meter.working and not meter.tenant.over

    def _memory_mib(self, own: GpuUsers) -> float | None:
        try:
            return self._source.processes_memory_mib(own.all) if self._source and own.all else None
        except AdvisorError:
            return None

    def _proof(self, meter: TenantMeter[T], own: GpuUsers) -> TenantProof:
        if meter.unseen:
            return TenantProof(False, meter.proof.units, _UNSEEN)
        wanted = self._tenancy.wanted(meter.tenant)
        return prove(meter.tenant.share, wanted, own, self._daemon.prove, meter.proof)

    def _look_for_strangers(self, sight: Sight, present: frozenset[str]) -> None:
        found = strangers(sight, self._tenancy.tenant_of, present)
        # A process that starts on one GPU shows on all GPUs of the host for a moment.
        staying = sorted(found & self._strangers)
        self._strangers = found
        if staying and self._daemon.meet_strangers(staying):
            self.doubt()

    def _forget(self, present: frozenset[str]) -> None:
        """Those that the node has no more, once nothing of them is still to be reported."""
        for uid in self._meters.keys() - present - self._overlaps.uids:
            meter = self._meters.pop(uid)
            if not meter.steps:
                why = "it reported no progress (docs/progress.md), so nothing could be observed"
                LOG.info("job %s (%s): %s", uid, meter.tenant.job, why)


def _at_bound(meter: TenantMeter[T]) -> str:
    return (
        f"it has taken {meter.memory_mib:,.0f} MiB, and its memory is bounded at "
        f"{meter.tenant.share.memory_mib:,} MiB for those who share the GPU: what it asks for "
        "beyond that fails as out of memory. Profile the job as it runs now, or give it a GPU of "
        "its own"
    )
