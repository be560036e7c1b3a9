"""Reads the progress files of jobs on the node (docs/job-file.md).

The owner of a job can write what he likes into its file, and put other things in its place, so
nothing is followed: a link, a pipe or a device there is no progress.
"""

import os
import stat
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Generic, TypeVar

from advisor.client import ClientError, ProfilePoints
from advisor.core.gpu import WHOLE, Share
from advisor.core.job import TOLERANCE, Reported, Verdict, judge
from advisor.core.records import DOUBTFUL, JobLoad, SoloPoint, divide_energy
from advisor.core.telemetry import TelemetrySource
from advisor.errors import AdvisorError, LimitNotProvenError
from advisor.launch.job_monitor import RECENT_S, relative
from advisor.launch.meter import CardMeter, CardReading, Metered, Moment, RateMeter
from advisor.launch.status import OVER, State
from advisor.progress import LATENCIES_AT
from advisor.runtime.backend import Sight, check_environments, check_granted, look
from advisor.runtime.counting import Tally, parse_fault, parse_reported
from advisor.runtime.mps import MpsBackend
from advisor.runtime.processes import loaded_libraries, owner_of
from advisor.validity.points import is_usable

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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


def read_progress(path: Path) -> ProgressReading | None:
    """How far a job is; None where it has no such file, or something else in its place."""
    data = read_plain(path, LATENCIES_AT)
    return None if data is None else parse_progress(data)


def read_plain(path: Path, most_bytes: int, owner: int | None = None) -> bytes | None:
    """The beginning of a file that another user may have put there.

    Args:
        path: Its last part may be anything; the folders before it must be ours.
        most_bytes: Of it.
        owner: Number of the user whose file it must be; None: anybody's.

    Returns:
        None where there is none, or it is no plain file, or not that user's.
    """
    try:
        file = os.open(path, _READ)
    except OSError:
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or owner not in (None, found.st_uid):
            return None
        return os.read(file, most_bytes)
    except OSError:
        return None
    finally:
        os.close(file)


def parse_progress(data: bytes) -> ProgressReading | None:
    """The beginning of a progress file; None of fewer bytes than a count has."""
    if len(data) < 8:
        return None
    (steps,) = struct.unpack_from("<q", data)
    return ProgressReading(steps, parse_reported(data), parse_fault(data))


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


UNSEEN_S = 15.0
"""A job that has made progress for so long without being seen on its GPU computes somewhere else,
or where nobody can see its limit."""

AT_BOUND = 0.95
"""Of the memory at which a job is bounded: its next larger allocation fails."""


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
        self.memory_mib: float | None = None
        self._met_memory = False
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
            self.results = judge(progress.reported, None, TOLERANCE)
        self.working = bool(users.all) and bool(self.steps) and not self.tenant.over
        if self.working and self.libraries is None:
            self.libraries = loaded_libraries(users.all)

    def take_proof(self, proof: TenantProof) -> bool:
        """Take note of what was found of its limit; whether it is broken, for the first time."""
        self.proof = proof
        new = proof.proven is False and not self.limit_broken
        self.limit_broken = self.limit_broken or proof.proven is False
        return new

    def take_memory(self, memory_mib: float | None) -> bool:
        """Take note of its GPU memory; whether it has come to its bound, for the first time."""
        self.memory_mib, most_mib = memory_mib, self.tenant.share.memory_mib
        met = bool(memory_mib and most_mib and memory_mib >= AT_BOUND * most_mib)
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


class GpuMeter:
    """The energy of one GPU, and whose it is.

    Attributes:
        metered: Energy since the first reading; None before anything could be read.
    """

    def __init__(self, source: TelemetrySource | None, units_total: int) -> None:
        self._energy = None if source is None else CardMeter(source)
        self._units_total = units_total
        self.metered: Metered | None = None

    def read(self) -> CardReading:
        """What its source says now, for `look`."""
        return self._energy.read() if self._energy else CardReading()

    def look(self, drawn: CardReading, now: Moment, meters: Sequence[TenantMeter[T]]) -> None:
        """Divide the energy since the last reading among those that use the GPU."""
        before = self.metered
        self.metered = self._energy and self._energy.add(drawn, now)
        if before is None or self.metered is None or self.metered.seconds == before.seconds:
            return
        grown, loads = self.metered.since(before), [one.load(self._units_total) for one in meters]
        parts = divide_energy(grown.joules, grown.seconds, idle_power_w(meters), loads)
        for meter, part in zip(meters, parts, strict=True):
            meter.energy_j = (meter.energy_j or 0.0) + part.value


def idle_power_w(meters: Iterable[TenantMeter[T]]) -> float | None:
    """Of the GPU that these use, as their profiles know it; the least, since none is below it."""
    known = [meter.reference.idle_power_w for meter in meters]
    return min((power_w for power_w in known if power_w is not None), default=None)


_Profiles = Callable[[str, str], ProfilePoints]
"""Asks the service for the points of a job on a GPU model; raises a `ClientError`."""

ASK_AGAIN_S = 60.0
"""A profile that was not to be had, or was, is asked for again after this time: it may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A job alone on the whole GPU, medians of its points; None of what is not known.

    Attributes:
        rate: Steps per second.
        power_w: Of the GPU while it runs.
        idle_power_w: Of the GPU before it started.
        rates: Its rates at the shares that were measured, ascending by share, percent.
    """

    rate: float | None = None
    rate_unit: str = "steps"
    power_w: float | None = None
    idle_power_w: float | None = None
    rates: tuple[tuple[float, float], ...] = ()

    def rate_at(self, percent: float) -> float | None:
        """Its rate alone at a share, linear between measured ones; None outside of them."""
        for (low, slow), (high, fast) in pairwise(self.rates):
            if low <= percent <= high:
                return slow + (fast - slow) * (percent - low) / (high - low)
        return None


class ReferenceCache:
    """Asked of the service once a minute at most for each job; what was known stays known."""

    def __init__(self, profiles: _Profiles) -> None:
        self._profiles = profiles
        self._known: dict[tuple[str, str], tuple[float, Reference]] = {}

    def of(self, job: str, gpu_model: str) -> Reference:
        """The job on this GPU model; nothing but None where the service knows or says nothing."""
        asked_s, known = self._known.get((job, gpu_model), (None, Reference()))
        now_s = time.monotonic()
        if asked_s is None or now_s - asked_s > ASK_AGAIN_S:
            # Metrics without relative speeds are better than an agent that stops.
            with suppress(ClientError):
                known = reference_of(self._profiles(job, gpu_model).points)
            self._known[job, gpu_model] = now_s, known
        return known


def reference_of(points: Iterable[SoloPoint]) -> Reference:
    """The reference in the points of one job on one GPU model."""
    good = [p for p in points if is_usable(p) and not DOUBTFUL & set(p.flags)]
    whole = [point for point in good if point.share_percent == WHOLE]
    if not whole:
        return Reference()
    return Reference(
        rate=_median(point.rate for point in whole),
        rate_unit=whole[0].rate_unit,
        power_w=_median(point.power_w for point in whole),
        idle_power_w=_median(point.idle_power_w for point in whole),
        rates=tuple(
            (share, median(point.rate for point in good if point.share_percent == share))
            for share in sorted({point.share_percent for point in good})
        ),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
