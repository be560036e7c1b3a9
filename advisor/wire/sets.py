"""What is said of sets of jobs on one GPU, and of copies. docs/recommend.md explains each key."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from advisor.core.interval import Interval
from advisor.core.split import Sharing
from advisor.wire.frames import Tabular, row_of
from advisor.wire.observed import CardPower, DriftedJob, MeasuredTogether
from advisor.wire.recommendation import AskedJob, JobShare, Said, Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of running the set on one GPU, and what is expected of it.

    Parts saved are for the same work, against a card for each job; 0.1 is a tenth less.

    Attributes:
        name: Shares as people write them, 100 where a job has no limit; else the sharing.
        isolates: Whether a fault of one job leaves the others running.
        jobs: In the order that was asked.
        energy_saved: Where the cards that become free are switched off; with the watts of the
            server, where they are set.
        energy_saved_idle: The same where they idle.
        gpu_time_saved: Of the hours that GPUs are held.
        cost_saved: None: no prices are set.
        violations: Limits that are not kept, in words.
    """

    name: str
    sharing: Sharing
    isolates: bool
    jobs: tuple[JobShare, ...]
    power_w: Interval
    energy_saved: Interval
    energy_saved_idle: Interval
    gpu_time_saved: Interval
    cost_saved: Interval | None
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedAt:
    """A way that was looked at, in short: what is expected of it, without ranges.

    Attributes:
        shares: Percent, in the order of the jobs; 100 where one has no limit.
        speeds: Relative, likewise.
        p99_ms: Likewise; None: the job answers no requests, or it is not known.
        energy_saved: This and the next two are as those of `Way`.
        keeps: Whether it keeps every limit.
    """

    name: str
    sharing: Sharing
    shares: tuple[float, ...]
    speeds: tuple[float, ...]
    p99_ms: tuple[float | None, ...]
    power_w: float
    energy_saved: float
    energy_saved_idle: float
    gpu_time_saved: float
    keeps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the set takes beside SMs and power, and what there is; None: not known.

    Attributes:
        host_cores: That the jobs keep busy, alone.
    """

    memory_mib: float | None
    memory_of_mib: float | None
    host_cores: float | None
    mps_clients: int
    mps_clients_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewer:
    """What the others do without one job of a set that is not to share.

    Attributes:
        without: The job.
        way: Name of the way in which the others share.
        energy_saved: Of their work, with the cards that become free switched off.
    """

    without: str
    way: str
    energy_saved: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAdvice(Told):
    """How a set of jobs is to run.

    Attributes:
        choice: Name of one of `ways`; None: a card each.
        call: Name of the way that saves GPU time for little more energy, where prices decide; None:
            there is none, or the jobs are to share.
        ways: The best of each sharing; where none keeps the limits, the nearest.
        near: A better way that fails by the low ends of speeds alone, and the options that accept
            it; None: there is none.
        searched: How many ways were looked at.
        coverage: Part of measured values that the intervals held, job by job.
        card: What the power was corrected by; None: nothing was seen of the card, or it is not
            known.
        drifts: Of these jobs; intervals are wider for them.
        measured: Of these very jobs together, which the answer takes in; None: nothing was.
        fewer: Where the jobs are not to share, three or more of them that are; None: there are
            none.
        looked_at: Every way that was looked at, in short; none unless asked for.
        said: In words; None: not asked for.
    """

    jobs: tuple[AskedJob, ...]
    gpu_model: str
    objective: str
    verdict: Literal["share", "your call", "a card each"]
    choice: str | None
    call: str | None
    ways: tuple[Way, ...]
    needs: Needs
    near: str | None
    searched: int
    warnings: tuple[str, ...]
    coverage: float = 0.9
    card: CardPower | None = None
    drifts: tuple[DriftedJob, ...] = ()
    measured: MeasuredTogether | None = None
    fewer: Fewer | None = None
    looked_at: tuple[LookedAt, ...] = ()
    said: Said | None = None

    @property
    def chosen(self) -> Way | None:
        """The way that the answer is about: of `choice`, or of `call`."""
        return next((way for way in self.ways if way.name == (self.choice or self.call)), None)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The best way of each sharing."""
        for way in self.ways:
            yield {"is_choice": way.name == self.choice, **row_of(way)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """So many copies of a job on one GPU.

    Attributes:
        rate: Of all together, per second, in the job's unit.
        speed: Relative speed of each.
        power_w: Of the GPU.
        joules: For each unit of progress, such as a request.
        energy_saved: For the same work against a card each, where freed cards are switched off.
        energy_saved_idle: The same where they idle.
        latency_p99_ms: Of each; None: the job answers no requests, or none was timed.
        measured: Of so many copies together, which the numbers take in; None: nothing was.
    """

    number: int
    rate: Interval
    speed: Interval
    power_w: Interval
    joules: Interval
    energy_saved: Interval
    energy_saved_idle: Interval
    latency_p99_ms: Interval | None
    measured: MeasuredTogether | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas(Tabular):
    """How many copies of a job one GPU holds.

    Attributes:
        sharing: `uncapped`, or `time-sliced` where a fault of one must leave the others running.
        best: Number of copies to run.
        copies: From one to `best`; each keeps every limit, and adds work.
        beyond: One more, which does not; None: no more were asked for.
        ended_by: What one more breaks (speed is that of `SMs` or `DRAM`) or lacks: `SMs`, `DRAM`,
            `memory`, `tail`, `power` or `host cores`; None as `beyond`.
        why: The same in words.
        card: As of sets; `drifts` as well.
        one_window: As of jobs that are asked about.
    """

    job: str
    gpu_model: str
    rate_unit: str
    sharing: Sharing
    best: int
    copies: tuple[Copies, ...]
    beyond: Copies | None
    ended_by: str | None
    why: str
    warnings: tuple[str, ...] = ()
    card: CardPower | None = None
    drifts: tuple[DriftedJob, ...] = ()
    one_window: bool = False

    def rows(self) -> Iterator[dict[str, Any]]:
        """From one copy to the best number, and one more."""
        for copies in (*self.copies, *filter(None, [self.beyond])):
            yield {"is_choice": copies.number == self.best, **row_of(copies)}
