"""One GPU of the node and the jobs on it: their shares, and records of their windows.

What was observed goes to the service, again and again until it has it.

How far jobs are is read from their progress files (docs/job-file.md). The owner of a job can write
what he likes into its file, and put other things in its place, so nothing is followed: a link, a
pipe or a device there is no progress.
"""

import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Generic, Protocol, TypeVar

from advisor.client import ApiError, Client, ClientError, ProfilePoints
from advisor.core.gpu import WHOLE, Gpu, Share
from advisor.core.job import TOLERANCE, Job, ProgressSettings, Reported, Verdict
from advisor.core.records import (
    BACKLOG,
    DOUBTFUL,
    LIMIT_BROKEN,
    SETTLE_S,
    UNCOUNTED,
    UNCOUNTED_UNIT,
    WATCHED,
    JobLoad,
    Observation,
    ObservedPart,
    Record,
    SoloPoint,
    divide_energy,
    grouped,
)
from advisor.core.telemetry import TelemetrySource
from advisor.errors import AdvisorError, LimitNotProvenError, SourceError
from advisor.files import read_plain
from advisor.formats.moments import to_exact_text
from advisor.launch.account import CATCHING_UP_S, RECENT_S, is_behind, relative
from advisor.launch.meter import CardMeter, Drawn, Metered, Moment, RateMeter, timed
from advisor.launch.observe import observed
from advisor.launch.spec import OVER, State
from advisor.progress import LATENCIES_AT
from advisor.runtime.backend import MpsBackend, Sight, check_environments, check_granted, look
from advisor.runtime.counting import Tally, parse_fault, parse_reported
from advisor.runtime.processes import loaded_libraries, owner_of
from advisor.settings import Settings
from advisor.validity.points import is_usable
from advisor_profiling.attached import GpuLook, ProgressSource, SoloWatch, read_means
from advisor_profiling.testbed import open_source


@dataclass(frozen=True, slots=True)
class ProgressReading:
    """The content of a job's progress file.

    Attributes:
        steps: As counted by the job, which may start again.
        fault: Why it cannot be counted now; empty while it is.
    """

    steps: int
    reported: Reported
    fault: str = ""

    @classmethod
    def read(cls, path: Path) -> "ProgressReading | None":
        """How far a job is; None where it has no such file, or something else in its place."""
        return cls.parse(read_plain(path, LATENCIES_AT) or b"")

    @classmethod
    def parse(cls, data: bytes) -> "ProgressReading | None":
        """The beginning of a progress file; None of fewer bytes than a count has."""
        if len(data) < 8:
            return None
        (steps,) = struct.unpack_from("<q", data)
        return cls(steps, parse_reported(data), parse_fault(data))


TenantOf = Callable[[int], str | None]
"""The uid of the pod or batch job of a process; None: of none."""


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


def _users_by_tenant(sight: Sight, tenant_of: TenantOf) -> dict[str, GpuUsers]:
    """The processes on a GPU, by the uid of their pod or batch job; those of none are left out."""
    clients = sight.clients or frozenset()
    return {
        uid: GpuUsers(clients.intersection(p), frozenset(p) - clients)
        for uid, p in grouped(clients | sight.computing, tenant_of).items()
        if uid
    }


def granted_units(
    backend: MpsBackend, share: Share, variables: Mapping[str, str], user: int | None
) -> int | None:
    """The SMs that the driver grants now to a process under `share` on a daemon.

    The process has these variables and no others; without a user it is the agent's.

    Raises:
        LimitNotProvenError: it is not under MPS, or gets another number than the share's.
    """
    visible = next(
        (candidate for candidate in look(variables, user) if candidate.uuid == backend.gpu.uuid),
        None,
    )
    return check_granted(backend.gpu, share, visible, backend.control.pipe_dir).units


UNSEEN_S = 15.0
"""A job that has made progress for so long without being seen on its GPU computes somewhere else,
or where its limit cannot be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A pod or a batch job that has part of a GPU, as it is at one moment.

    Attributes:
        uid: What its scheduler calls it; no other one on the node has the same.
        job: Name of the profiled job that it says it runs.
        share_text: The percentage exactly as its processes have it in their environment.
        memory_mib: At how much the memory of its processes is bounded; None: at nothing.
        state: How it ended, where it has.
    """

    uid: str
    job: str
    share_text: str
    memory_mib: int | None = None
    state: State = "running"

    @property
    def share(self) -> Share:
        """Its part of the SMs, and of the memory."""
        return Share(float(self.share_text), memory_mib=self.memory_mib)

    @property
    def over(self) -> bool:
        """Whether it will run no more."""
        return self.state in OVER


T = TypeVar("T", bound=Tenant)
"""Pods or batch jobs; those of one node are of one kind."""


class TenantMeter(Generic[T]):
    """A pod or a batch job, from the moment at which it was first seen on this node.

    Attributes:
        tenant: As it is now.
        reference: Its job alone.
        proof: What was found of its limit.
        limit_broken: It was not under its limit at some moment.
        steps: By its progress file, starts of its count added up; None: it has none.
        unread: Why its progress cannot be read now; empty while it can.
        energy_j: Its part of the GPU's energy so far; None: no power could be read.
        results: What its own results were found to be; only wrong ones can be seen from here.
        libraries: Versions of the GPU libraries that it has loaded; None: not known.
        memory_mib: GPU memory of its processes; None: not known.
        working: It uses the GPU now and has made progress.
        unseen: Its count grows, and yet none of its processes was seen on the GPU for a while.
    """

    def __init__(self, tenant: T) -> None:
        self.tenant, self.reference, self.proof = tenant, Reference(), TenantProof()
        self.limit_broken = self.working = self.unseen = False
        self._met_memory = False
        self.memory_mib: float | None = None
        self._unseen_from_s: float | None = None
        self.steps: float | None = None
        self.unread, self._tally = "", Tally()
        self.energy_j: float | None = None
        self.results: Verdict | None = None
        self.libraries: str | None = None
        self._recent = RateMeter(RECENT_S)

    def look(self, now_s: float, progress: ProgressReading | None, users: GpuUsers) -> None:
        """Take note of what its file says, and of its processes on the GPU."""
        if users.all:
            self._unseen_from_s, self.unseen = None, False
        elif progress is not None and progress.steps != self._tally.total:
            from_s = self._unseen_from_s = self._unseen_from_s or now_s
            self.unseen = now_s - from_s > UNSEEN_S
        if progress is not None:
            self._tally.add(progress.steps)
            self.steps, self.unread = self._tally.total, progress.fault
            self._recent.add(Moment(now_s), self.steps)
            # Its profile may be of another seed or version, so only what is not finite is wrong.
            self.results = progress.reported.judge(None, TOLERANCE)
        self.working = bool(users.all) and bool(self.steps) and not self.tenant.over
        if self.working and self.libraries is None:
            self.libraries = loaded_libraries(users.all)

    def take_proof(self, proof: TenantProof) -> bool:
        """Take note of what was found of its limit; whether it is broken, for the first time."""
        self.proof = proof
        is_broken, before = proof.proven is False, self.limit_broken
        self.limit_broken = before or is_broken
        return is_broken and not before

    def take_memory(self, memory_mib: float | None) -> bool:
        """Take note of its GPU memory; whether it has come to its bound, for the first time."""
        self.memory_mib, most_mib = memory_mib, self.tenant.share.memory_mib
        # Its next larger allocation fails.
        met = bool(memory_mib and most_mib and memory_mib >= 0.95 * most_mib)
        new = met and not self._met_memory
        self._met_memory = self._met_memory or met
        return new

    def rate(self) -> float | None:
        """Steps per second over the last seconds; None while they cannot be read."""
        return None if self.tenant.over or self.unread else self._recent.rate()

    def relative_speed(self) -> float | None:
        """`rate` over its rate alone on the whole GPU."""
        return relative(self.rate(), self.reference.rate)

    def load(self, units_total: int) -> JobLoad:
        """Of the GPU, for the division of its energy."""
        units = self.proof.units or self.tenant.share.percent / 100 * units_total
        return JobLoad(
            units=units, relative_speed=self.relative_speed(), solo_power_w=self.reference.power_w
        )


def _idle_power_w(meters: Iterable[TenantMeter[T]]) -> float | None:
    """Of the GPU that these use, as their profiles know it; the least, since none is below it."""
    idles_w = [meter.reference.idle_power_w for meter in meters]
    return min((power_w for power_w in idles_w if power_w is not None), default=None)


ASK_AGAIN_S = 60.0
"""A profile, or its absence, is asked for again after this time: it may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A job alone on the whole GPU, medians of its points; None of what is not known.

    Attributes:
        rate: Steps per second.
        power_w: Of the GPU while it runs.
        idle_power_w: Of the GPU before it started.
        offered_rate: Requests per second that arrived; None: it is no server.
        rates: Its rates at the shares that were measured, ascending by share, percent.
    """

    rate: float | None = None
    rate_unit: str = "steps"
    power_w: float | None = None
    idle_power_w: float | None = None
    offered_rate: float | None = None
    rates: tuple[tuple[float, float], ...] = ()

    def rate_at(self, percent: float) -> float | None:
        """Its rate alone at a share, linear between measured ones; None outside of them."""
        return next(
            (
                slow + (fast - slow) * (percent - low) / (high - low)
                for (low, slow), (high, fast) in pairwise(self.rates)
                if low <= percent <= high
            ),
            None,
        )

    @classmethod
    def of(cls, points: Iterable[SoloPoint]) -> "Reference":
        """The reference in the points of one job on one GPU model."""
        read = [p for p in points if is_usable(p) and not (p.gpus or DOUBTFUL & set(p.flags))]
        counted = [point for point in read if point.rate_unit != UNCOUNTED_UNIT]
        # What was seen on any host goes behind a profile, as elsewhere.
        good = [point for point in counted if WATCHED not in point.flags] or counted
        if not (whole := [point for point in good if point.share_percent == WHOLE]):
            return cls()
        return cls(
            rate=_median(point.rate for point in whole),
            rate_unit=whole[0].rate_unit,
            power_w=_median(point.power_w for point in whole),
            idle_power_w=_median(point.idle_power_w for point in whole),
            offered_rate=_median(point.offered_rate for point in whole),
            rates=tuple(
                (share, median(point.rate for point in good if point.share_percent == share))
                for share in sorted({point.share_percent for point in good})
            ),
        )


class ReferenceCache:
    """Asked of the service once a minute at most for each job; what was known stays known.

    `profiles` asks it for the points of a job on a GPU model, and raises a `ClientError`.
    """

    def __init__(self, profiles: Callable[[str, str], ProfilePoints]) -> None:
        self._profiles = profiles
        self._references: dict[tuple[str, str], tuple[float, Reference]] = {}

    def of(self, job: str, gpu_model: str) -> Reference:
        """The job on this GPU model; nothing but None where the service knows or says nothing."""
        read_at_s, reference = self._references.get((job, gpu_model), (None, Reference()))
        now_s = time.monotonic()
        if read_at_s is None or now_s - read_at_s > ASK_AGAIN_S:
            # Metrics without relative speeds are better than an agent that stops.
            with suppress(ClientError):
                reference = Reference.of(self._profiles(job, gpu_model).points)
            self._references[job, gpu_model] = now_s, reference
        return reference


def _median(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return median(present) if present else None


LOG = logging.getLogger("advisor.node")


class _Daemon(Protocol):
    """The MPS daemon of the GPU, of any user."""

    @property
    def gpu(self) -> Gpu:
        """The GPU; its `units_total` is known."""
        ...

    def sight(self, *, used: bool) -> Sight | None:
        """The processes on the GPU; None: unknown.

        Args:
            used: Whether a tenant is there.
        """
        ...

    def prove(self, share: Share, user: int | None) -> int | None:
        """The SMs that it gives to a process of a user under a share.

        Raises:
            LimitNotProvenError: it gives others, or does not say.
        """
        ...

    def meet_strangers(self, pids: Sequence[int]) -> bool:
        """Take note of processes of no tenant; whether they put limits in doubt."""
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
    """One GPU; without a source nothing is said of its energy. The clock counts seconds.

    Attributes:
        metered: Energy since the first reading; None before anything could be read.
    """

    def __init__(
        self,
        daemon: _Daemon,
        source: TelemetrySource | None,
        tenancy: Tenancy[T],
        references: ReferenceCache,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._clock = source, clock
        self._card = None if source is None else CardMeter(source)
        self.metered: Metered | None = None
        self._daemon, self._tenancy, self._references = daemon, tenancy, references
        self._meters: dict[str, TenantMeter[T]] = {}
        self._overlaps = Overlaps[T](daemon.gpu, tenancy.node, tenancy.scheduler)
        self._strangers = frozenset[int]()
        self._alone: SoloWatch | None = None
        self._points = list[Record]()

    @property
    def meters(self) -> Sequence[TenantMeter[T]]:
        """Of its tenants, and of ended ones with something left to report."""
        return tuple(self._meters.values())

    @property
    def living(self) -> Sequence[TenantMeter[T]]:
        """Of those that run or will run."""
        return [meter for meter in self.meters if not meter.tenant.over]

    def look(self, tenants: Sequence[T]) -> list[Record]:
        """Look at everything once; gives what has come to its end, and what is seen of one alone.

        What is seen alone takes the place of what was seen of its beginning.
        """
        present = frozenset(tenant.uid for tenant in tenants)
        for tenant in tenants:
            self._meters.setdefault(tenant.uid, TenantMeter(tenant)).tenant = tenant
        for meter in self.living:
            if meter.tenant.uid not in present:
                meter.tenant = self._tenancy.gone(meter.tenant)
        # Before all else: to prove a limit takes seconds, and so may a daemon that is asked.
        (progress, drawn), now = timed(
            lambda: (
                {
                    meter.tenant.uid: ProgressReading.read(
                        self._tenancy.progress_file(meter.tenant)
                    )
                    for meter in self.living
                },
                self._card.read() if self._card else (None, None),
            ),
            self._clock,
        )
        sight = self._daemon.sight(used=bool(self.living))
        users = sight and _users_by_tenant(sight, self._tenancy.tenant_of)
        self._look_at_tenants(now.at_s, progress if now.is_reliable else {}, users)
        if sight is not None:
            self._look_for_strangers(sight, present)
        self._divide(drawn, now)
        with suppress(AdvisorError):
            self._look_at_only(now.at_s, sight)
        self._points, points = [], self._points
        ended = list(self._overlaps.follow(now.at_s, self.meters, present, self.metered))
        # Those that the node has no more, once nothing of them is still to be reported.
        for uid in self._meters.keys() - present - self._overlaps.uids:
            meter = self._meters.pop(uid)
            if not meter.steps:
                why = "it reported no progress (docs/progress.md), so nothing could be observed"
                LOG.info("job %s (%s): %s", uid, meter.tenant.job, why)
        return [*points, *ended]

    def doubt(self) -> None:
        """The limits of those that are there do not hold, or not for sure."""
        for meter in self.living:
            meter.limit_broken = True

    def close(self) -> None:
        """Let go of the driver."""
        if self._source is not None:
            self._source.close()

    def _look_at_tenants(
        self,
        now_s: float,
        progress: Mapping[str, ProgressReading | None],
        users: Mapping[str, GpuUsers] | None,
    ) -> None:
        for meter in self.living:
            users_of_tenant = (users or {}).get(meter.tenant.uid, GpuUsers())
            meter.reference = self._references.of(meter.tenant.job, self._daemon.gpu.model)
            was_read = not meter.unread
            meter.look(now_s, progress.get(meter.tenant.uid), users_of_tenant)
            if meter.unread and was_read:
                self._tenancy.warn(meter.tenant, "ProgressUnread", meter.unread)
            if users is not None and meter.take_proof(self._proof(meter, users_of_tenant)):
                self._tenancy.warn(meter.tenant, "LimitNotProven", meter.proof.why)
            if meter.take_memory(self._memory_mib(users_of_tenant)):
                self._tenancy.warn(
                    meter.tenant,
                    "MemoryLimitMet",
                    f"it has taken {meter.memory_mib:,.0f} MiB, and its memory is bounded at "
                    f"{meter.tenant.share.memory_mib:,} MiB on a shared GPU: more than that fails "
                    "as out of memory. Profile the job as it runs now, or give it a GPU of its own",
                )
        for meter in self.meters:
            meter.working = meter.working and not meter.tenant.over

    def _look_at_only(self, now_s: float, sight: Sight | None) -> None:
        """Take note of what the only job does with the whole GPU, as `advisor watch` does.

        Raises:
            SourceError: the GPU does not answer.
        """
        pids = sorted(sight.computing | (sight.clients or frozenset[int]())) if sight else []
        uids = {self._tenancy.tenant_of(pid) for pid in pids}
        meter = self._meters.get(uids.pop() or "") if len(uids) == 1 else None
        # A profiled job is known better, and each point makes the service read its profiles anew.
        is_meant = meter and meter.tenant.share.percent == WHOLE and len(meter.reference.rates) < 2
        if self._source is None or meter is None or not is_meant:
            self._alone = None
            return
        if self._alone is None or self._alone.pid != pids[0]:
            job = Job(name=meter.tenant.job, command=())
            self._alone = SoloWatch(
                pids[0],
                job,
                None,
                lambda _pid, _job, point: self._points.append(
                    replace(point, host=self._tenancy.node)
                ),
            )
        if meter.steps and not self._alone.source:
            settings = ProgressSettings(unit=meter.reference.rate_unit)
            self._alone.count_by(ProgressSource(settings, lambda: meter.steps))
        means = {name: of for name, of in read_means(self._source).items() if of is not None}
        is_sound = meter.proof.proven is True and not (meter.limit_broken or meter.unread)
        look = GpuLook(
            gpu=self._daemon.gpu,
            means=means,
            pids=tuple(pids),
            is_whole=is_sound,
            process_memory_mib=meter.memory_mib,
        )
        self._alone.add(now_s, look, meter.steps, meter.reference.idle_power_w)

    def _memory_mib(self, gpu_users: GpuUsers) -> float | None:
        try:
            return (
                self._source.processes_memory_mib(gpu_users.all)
                if self._source and gpu_users.all
                else None
            )
        except AdvisorError:
            return None

    def _proof(self, meter: TenantMeter[T], gpu_users: GpuUsers) -> TenantProof:
        """Look at a job's limit once; `gpu_users` are its processes on the GPU now."""
        if meter.unseen:
            return TenantProof(
                proven=False,
                units=meter.proof.units,
                why="it makes progress, and none of its processes is seen on its GPU: it computes "
                "elsewhere, or the agent does not share the process namespace of the node "
                "(hostPID)",
            )
        wanted = self._tenancy.wanted(meter.tenant)
        if not gpu_users.all:
            return meter.proof
        share, units = meter.tenant.share, meter.proof.units
        try:
            if gpu_users.outside:
                raise LimitNotProvenError(
                    f"processes {sorted(gpu_users.outside)} compute on the whole GPU, without MPS",
                    why="CUDA_MPS_PIPE_DIRECTORY was changed, or no daemon answered when they "
                    "started",
                    fix="end them, and start them again",
                )
            check_environments(share, wanted, lambda: gpu_users.all)
            # A share that was read back is not probed again.
            if units is None:
                units = self._daemon.prove(share, owner_of(min(gpu_users.clients)))
        except AdvisorError as error:
            return TenantProof(False, units, str(error))
        return TenantProof(True, units)

    def _divide(self, drawn: Drawn, now: Moment) -> None:
        """Divide the energy since the last reading among those that use the GPU."""
        before, meters = self.metered, [meter for meter in self.meters if meter.working]
        self.metered = self._card and self._card.add(drawn, now)
        if before is None or self.metered is None or self.metered.seconds == before.seconds:
            return
        units_total = self._daemon.gpu.units_total or 0
        grown, loads = self.metered.since(before), [meter.load(units_total) for meter in meters]
        parts = divide_energy(grown.joules, grown.seconds, _idle_power_w(meters), loads)
        for meter, part in zip(meters, parts, strict=True):
            meter.energy_j = (meter.energy_j or 0.0) + part.value

    def _look_for_strangers(self, sight: Sight, present: frozenset[str]) -> None:
        tenant_of = self._tenancy.tenant_of
        strangers = frozenset(pid for pid in sight.computing if tenant_of(pid) not in present)
        # A process that starts on one GPU shows on all GPUs of the host for a moment.
        staying = sorted(strangers & self._strangers)
        self._strangers = strangers
        if staying and self._daemon.meet_strangers(staying):
            self.doubt()


GONE_S = 15.0
"""A job that uses the GPU no more has ended for its neighbour after this time, whatever its
scheduler says of it, which learns of the end of a process seconds later."""


class Overlap(Generic[T]):
    """Jobs that work together on one GPU, from the moment at which they were seen to do so.

    They have been `before` so often: others had joined them, and left.
    """

    def __init__(
        self,
        gpu: Gpu,
        meters: Sequence[TenantMeter[T]],
        now_s: float,
        metered: Metered | None,
        before: int = 0,
    ) -> None:
        self.meters = tuple(sorted(meters, key=lambda meter: meter.tenant.uid))
        self._gpu, self._last_s, self._before = gpu, now_s, before
        self._started_at = to_exact_text(datetime.now(UTC))
        self._first = self._last = metered
        self._overlap_s = self._settles_s = 0.0
        self._first_steps = [meter.steps for meter in self.meters]
        self._begin()
        self._flags, self._behind = set[str](), [False] * len(self.meters)

    def _begin(self) -> None:
        """Forget what means are of."""
        self._steps, self._joules = [RateMeter() for _ in self.meters], RateMeter()

    @property
    def uids(self) -> frozenset[str]:
        """Of its jobs."""
        return frozenset(meter.tenant.uid for meter in self.meters)

    def add(self, now_s: float, metered: Metered | None) -> None:
        """Count the time since the last look; the time in which one of them is gone is in no mean.

        All of them work now; `metered` is the energy of the GPU so far, None where none was read.
        """
        self._overlap_s += now_s - self._last_s
        self._last_s, self._last = now_s, metered
        self._first = self._first or metered
        self._flags |= {UNCOUNTED for meter in self.meters if meter.unread}
        for n, (tenant_meter, rate_meter) in enumerate(zip(self.meters, self._steps, strict=True)):
            offered_rate, silent = (
                tenant_meter.reference.offered_rate,
                tenant_meter.steps == self._first_steps[n],
            )
            self._behind[n] = is_behind(
                offered_rate, tenant_meter.rate(), rate_meter, silent=silent, again=self._behind[n]
            )
        if any(self._behind) and self._overlap_s < CATCHING_UP_S:
            self._settles_s = self._overlap_s
            self._begin()
        if self._overlap_s - self._settles_s < SETTLE_S:
            return
        self._flags |= {BACKLOG} if any(self._behind) else set()
        for meter, steps in zip(self.meters, self._steps, strict=True):
            steps.add(Moment(now_s), meter.steps or 0)
        if metered is not None:
            self._joules.add(*metered.of_rate)

    def has_ended(self, now_s: float, present: frozenset[str]) -> bool:
        """Whether one of its jobs works no more, for good; `present` are those of the node."""
        gone = [meter for meter in self.meters if not meter.working]
        return any(meter.tenant.over or meter.tenant.uid not in present for meter in gone) or (
            bool(gone) and now_s - self._last_s > GONE_S
        )

    def observe(self, node: str, scheduler: str) -> Observation:
        """What they did, as the service takes it in; its id begins with the scheduler."""
        parts = tuple(
            ObservedPart(
                job=meter.tenant.job,
                share_percent=meter.tenant.share.percent,
                units=meter.proof.units,
                rate=steps.rate(),
                rate_unit=meter.reference.rate_unit,
                solo_rate=meter.reference.rate,
                solo_power_w=meter.reference.power_w,
                results=meter.results,
                libraries=meter.libraries,
                ended_first=meter.tenant.over,
            )
            for meter, steps in zip(self.meters, self._steps, strict=True)
        )
        states = {meter.tenant.state for meter in self.meters}
        who = [scheduler, *(meter.tenant.uid[:8] for meter in self.meters)]
        whole = self._first and self._last and self._last.since(self._first)
        not_proven = any(m.limit_broken or m.proof.proven is not True for m in self.meters)
        return observed(
            self._gpu,
            parts,
            [meter.reference.rate_at(meter.tenant.share.percent) for meter in self.meters],
            _idle_power_w(self.meters),
            (*((LIMIT_BROKEN,) if not_proven else ()), *sorted(self._flags)),
            launch_id="-".join([*who, *([f"again{self._before}"] if self._before else [])]),
            power_w=self._joules.rate(),
            energy_j=whole and whole.whole_j(self._overlap_s),
            overlap_s=self._overlap_s,
            settled_s=max(steps.span_s for steps in self._steps),
            state=next((s for s in ("failed", "finished") if s in states), "stopped"),
            started_at=self._started_at,
            host=node,
        )


class Overlaps(Generic[T]):
    """The overlap on one GPU, if there is one now."""

    def __init__(self, gpu: Gpu, node: str, scheduler: str) -> None:
        self._gpu, self._node, self._scheduler = gpu, node, scheduler
        self._now: Overlap[T] | None = None
        self._before: dict[frozenset[str], int] = {}

    @property
    def uids(self) -> frozenset[str]:
        """Of the jobs of which something is still to be reported."""
        return self._now.uids if self._now else frozenset()

    def follow(
        self,
        now_s: float,
        meters: Sequence[TenantMeter[T]],
        present: frozenset[str],
        metered: Metered | None,
    ) -> Iterator[Observation]:
        """Follow the jobs that work together; gives what they did when one of them has ended."""
        working = [meter for meter in meters if meter.working and meter.tenant.uid in present]
        uids = frozenset(meter.tenant.uid for meter in working)
        if self._now is not None:
            if uids == self._now.uids:
                self._now.add(now_s, metered)
            elif uids > self._now.uids or self._now.has_ended(now_s, present):
                yield self._now.observe(self._node, self._scheduler)
                self._now = None
        self._before = {them: n for them, n in self._before.items() if them <= present | uids}
        if self._now is None and len(working) > 1:
            before = self._before.get(uids, 0)
            self._before[uids] = before + 1
            self._now = Overlap(self._gpu, working, now_s, metered, before)
            names = ", ".join(f"{meter.tenant.uid} ({meter.tenant.job})" for meter in working)
            LOG.info("%s work together on %s", names, self._gpu.uuid)


# Observations kept for a service that is down; then the oldest go.
_MOST_WAITING = 1000

AGAIN_S = 30.0


class ObservationQueue:
    """What was observed, on its way to the service.

    Attributes:
        sent: How many it has taken.
        lost: How many it refused, or were too many to wait for it.
    """

    def __init__(self, service: Client) -> None:
        self._service, self._waiting = service, deque[Record]()
        self._tried_s: float | None = None
        self.sent = self.lost = 0

    @property
    def waiting(self) -> int:
        """How many the service does not have yet."""
        return len(self._waiting)

    def add(self, *records: Record) -> None:
        """Some more, to be sent at the next flush."""
        for record in records:
            if len(self._waiting) == _MOST_WAITING:
                self._waiting.popleft()
                self.lost += 1
            self._waiting.append(record)
            self._tried_s = None

    def flush(self) -> None:
        """Send what waits; after a failure not again for half a minute.

        One at a time, so that one that the service refuses does not hold up the others.
        """
        now_s = time.monotonic()
        if self._tried_s is not None and now_s - self._tried_s < AGAIN_S:
            return
        while self._waiting:
            self._tried_s = now_s
            try:
                if isinstance(record := self._waiting[0], Observation):
                    self._service.observe([record])
                else:
                    self._service.import_points([record])
                self.sent += 1
            except ClientError as error:
                LOG.warning("the service did not take an observation: %s", error)
                # Another would be refused again: it is no good. A token may yet be corrected.
                if not (isinstance(error, ApiError) and error.status in (400, 409, 413, 422)):
                    return
                self.lost += 1
            self._waiting.popleft()


LOOK_S = 2.0
"""Between two looks. Each asks the MPS daemon of each GPU a few questions, a process for each."""


def keep_looking(look: Callable[[], object], stop: threading.Event) -> Iterator[None]:
    """Look until `stop` is set; comes back after each look."""
    while not stop.wait(LOOK_S):
        try:
            look()
        except Exception:  # a fault of ours with one job must not blind us to all others
            LOG.exception("an internal error")
        yield


def power_source(gpu: Gpu, settings: Settings) -> TelemetrySource | None:
    """The telemetry of a GPU; None, and a line in the log, where there is none."""
    try:
        return open_source(gpu, None, settings)
    except SourceError as error:
        LOG.warning("no power of %s: %s", gpu.uuid, error)
        return None
