"""What each job on a GPU does: its rate, its speed, its part of the energy, its limit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from advisor.core.gpu import Share
from advisor.core.job import TOLERANCE, Verdict, judge
from advisor.core.records import JobLoad, divide_energy
from advisor.core.telemetry import TelemetrySource
from advisor.launch.job_monitor import RECENT_S, relative
from advisor.launch.meter import CardMeter, CardReading, Metered, Moment, RateMeter
from advisor.launch.status import OVER, State
from advisor.runtime.counting import Tally
from advisor.runtime.processes import loaded_libraries
from advisor_node.metering.progress_files import ProgressReading
from advisor_node.metering.proof import GpuUsers, TenantProof
from advisor_node.metering.references import Reference

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
