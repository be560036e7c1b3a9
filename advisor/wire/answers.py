"""What answers say of jobs on one GPU, of placements, measurements, models and the audit log.

docs/recommend.md and docs/place.md explain each key.
"""

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from advisor.core.gpu import Sharing
from advisor.core.objectives import NORMAL_90, Finish, Interval
from advisor.core.records import Observation, PairPoint, SoloPoint
from advisor.core.wording import count_of, folded, listed
from advisor.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


# Last words of a column name, which stay last when `column` adds a word.
_UNITS = {"percent", "mib", "ms", "w", "stderr", "hash"}


class Tabular(ABC):
    """An answer with one row for each way, copy count, partner or point."""

    __slots__ = ()

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of the frame, as cells by column name."""

    def to_frame(self) -> "pd.DataFrame":
        """The rows as a pandas frame.

        Raises:
            InputError: pandas is not installed.
        """
        return frame(self.rows())


def frame(rows: Iterable[Mapping[str, Any]]) -> "pd.DataFrame":
    """Rows as a pandas frame.

    Raises:
        InputError: pandas is not installed.
    """
    with InputError.instead_of(
        ImportError, "a data frame needs pandas, which is not installed", fix="pip install pandas"
    ):
        pandas: Any = importlib.import_module("pandas")
    return pandas.DataFrame.from_records(list(rows))


def _row_of(value: Any) -> dict[str, Any]:
    """A dataclass as a row; mappings are left out, since they are no cells."""
    row: dict[str, Any] = {}
    for field in fields(value):
        name, cell = field.name, getattr(value, field.name)
        if isinstance(cell, Interval):
            row[name] = cell.value
            row |= {column(name, "low"): cell.low, column(name, "high"): cell.high}
        elif name == "jobs":
            for number, part in enumerate(cell, start=1):
                row |= {column(word, str(number)): v for word, v in _row_of(part).items()}
        elif isinstance(cell, tuple):
            row[name] = "; ".join(cast("tuple[str, ...]", cell))
        elif is_dataclass(cell):
            row[name] = getattr(cell, "text", None)
        elif not isinstance(cell, Mapping):
            row[name] = cell
    return row


def column(name: str, word: str) -> str:
    """A name with one more word before its unit: `share_1_percent` of `share_percent`."""
    head, _, end = name.rpartition("_")
    return f"{head}_{word}_{end}" if end in _UNITS else f"{name}_{word}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareParts:
    """Power of one job alone at a share: total, memory as read, and headroom.

    Attributes:
        power_w: Of the whole GPU, measured.
        headroom_w: What is left to the power limit; None: the limit is not known.
        memory_w: Of the memory, as its own sensor read over the same time; None: it was not read.
        clock_mhz: Mean clock of the SMs; None: not known.
    """

    share_percent: float
    power_w: float
    headroom_w: float | None
    memory_w: float | None
    clock_mhz: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsOfJob:
    """One job alone at each share of its profile.

    Attributes:
        floor_w: Power with jobs open on the GPU and none at work.
        floor_is_measured: Else it is that of the empty GPU and what contexts add on others.
    """

    job: str
    gpu_model: str
    power_limit_w: float | None
    floor_w: float
    floor_is_measured: bool
    shares: tuple[ShareParts, ...]


DriftQuantity: TypeAlias = Literal["rate", "power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPower:
    """What a card draws, for each watt of what others of its model do.

    Attributes:
        power_factor: With bounds that hold it in 90 % of cards.
        references: Jobs alone on the whole GPU that it was learned from.
        observations: Pairs of jobs that it was learned from.
    """

    gpu_uuid: str
    power_factor: Interval
    references: int
    observations: int

    @property
    def log_stderr(self) -> float:
        """Standard error of the natural logarithm of the factor."""
        return math.log(self.power_factor.high / self.power_factor.value) / NORMAL_90

    @property
    def text(self) -> str:
        """In words."""
        percent = 100 * (self.power_factor.value - 1)
        return (
            f"this card ({self.gpu_uuid}) draws {abs(percent):.1f} ± {100 * self.log_stderr:.1f} % "
            f"{'less' if percent < 0 else 'more'} than others of its model: power is corrected for "
            "it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTogether:
    """What was measured of the very jobs on the GPU model, and is in the answer.

    Attributes:
        launches: Of these jobs, observed here.
        windows: Of `advisor colocate` here.
        bundled: Windows that come with advisor.
        at_choice: How many of all these are at the split of the answer.
    """

    launches: int
    windows: int
    bundled: int
    at_choice: int

    @property
    def text(self) -> str:
        """In words, such as "measured here, 3 launches"."""
        kinds = {"launch": self.launches, "window": self.windows}
        here = listed(count_of(n, kind) for kind, n in kinds.items() if n)
        bundled = f": {count_of(self.bundled, 'bundled window')}"
        return f"measured{f' here, {here}' if here else bundled}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftedJob:
    """A job on a card that does other than expected, and did not before.

    Attributes:
        gpu_uuid: The card; None: not known.
        quantity: What drifted: the job's rate, or the power of the GPU beside it.
        ratio: Observed over expected since then.
        since: Start of the first launch that was off, ISO 8601, UTC.
        observations: Launches since then.
        software: Versions seen since then and never before.
    """

    job: str
    gpu_model: str
    gpu_uuid: str | None
    quantity: DriftQuantity
    ratio: float
    since: str
    observations: int
    software: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In words."""
        unit = "power beside" if self.quantity == "power" else "rate of"
        card = f" on card {self.gpu_uuid}" if self.gpu_uuid else ""
        changed = f", since {', '.join(self.software)}" if self.software else ""
        return (
            f"{unit} {self.job}{card} has drifted: {100 * abs(self.ratio - 1):.0f} % "
            f"{'less' if self.ratio < 1 else 'more'} than expected in {self.observations} launches "
            f"since {self.since}{changed}"
        )


SharingVerdict: TypeAlias = Literal["share", "your call", "do not share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer in words, as the command line prints it.

    Attributes:
        lines: Name and text of each.
    """

    headline: str
    lines: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        rows = (folded(text, 80, f"  {name:<8}") for name, text in self.lines)
        return "\n".join((folded(self.headline, 80), *rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelName:
    """The model that an answer is by, and the GPU models it has seen."""

    version: str
    gpu_models: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """One job alone on the whole GPU.

    Attributes:
        rate: Progress per second, in the job's unit.
        power_w: Power of the GPU.
        memory_used_mib: None: not known.
        latency_p99_ms: Of a job that answers requests; None: not known.
    """

    rate: float
    power_w: float
    memory_used_mib: float | None
    latency_p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPerUnit:
    """Joules of a unit of a job's progress; those of a shared GPU go by what each would take alone.

    Attributes:
        alone_j: On the whole GPU.
        shared_j: As advised; None: it is not shared.
        lower_limit_j: As advised, under the power limit of `lower_limits`; None: there is none.
    """

    alone_j: float
    shared_j: float | None
    lower_limit_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedJob:
    """One of the jobs that were asked about.

    Attributes:
        rate_unit: Unit of its progress, such as images.
        energy: Of a unit of it; None: its rate alone is 0.
        one_window: It was seen on the whole GPU alone: what it does at other shares is estimated.
    """

    job: str
    rate_unit: str
    alone: Alone
    energy: EnergyPerUnit | None = None
    one_window: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShare:
    """What one job gets of the GPU, and does with it.

    Attributes:
        share_percent: 100 where there are no limits.
        units: SMs or CUs that its share comes to; None: those of the GPU are not known.
        rate: Progress per second, in the job's unit.
        speed: Relative speed: 1 is as fast as alone on the whole GPU.
        latency_p99_ms: Of a job that answers requests, while it meets its demand; None: not known.
        environment: Variables that limit the job or bound its memory; none without either.
    """

    job: str
    share_percent: float
    units: int | None
    rate: Interval
    speed: Interval
    environment: Mapping[str, str]
    latency_p99_ms: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way of running jobs on one GPU, and what is expected of it.

    Parts saved are for the same work, against a GPU for each job; 0.1 is a tenth less. Of jobs that
    can wait, one after the other takes the same energy and the same GPU hours.

    Attributes:
        split: Shares as people write them (`30/70`, 100 where a job has no limit, `:low` behind
            one below normal priority); else the sharing.
        sharing: How the jobs use the GPU: `limited` has a share for each.
        isolates: Whether a fault of one job leaves the others running.
        jobs: In the order that was asked.
        power_w: Power of the GPU, W.
        memory_power_w: The part of it that its memory draws, W; None: the model has not learned it.
        energy_saved: Where the GPUs that become free are switched off; with the watts of the
            server, where they are set; of the work until all have ended, where it was given.
        energy_saved_idle: The same where they idle.
        gpu_time_saved: Of the hours that GPUs are held.
        cost_saved: Of what hours and energy cost; None: no prices are set.
        stp: Sum of relative speeds: how much more is done in an hour than one after the other.
        objectives: Values by name of the objective that decides, and with `every` of those that
            are shown beside it.
        violations: Limits that are not kept, in words.
    """

    split: str
    sharing: Sharing
    isolates: bool
    jobs: tuple[JobShare, ...]
    power_w: Interval
    memory_power_w: Interval | None
    energy_saved: Interval
    energy_saved_idle: Interval
    gpu_time_saved: Interval
    cost_saved: Interval | None
    stp: Interval
    objectives: Mapping[str, Interval]
    violations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SameWork:
    """One amount of work in several ways; None is what never ends.

    Attributes:
        work_s: What each job has to do, in seconds that it takes alone.
        choice: In the recommended way.
        restarted: The same, the job that is left restarted without a limit.
        baselines: One job after the other, by the name `exclusive`.
    """

    work_s: tuple[float, ...]
    choice: Finish | None
    restarted: Finish | None
    baselines: Mapping[str, Finish | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerLimit:
    """The power limit of a GPU with the least energy for the same work; not measured, but expected.

    Attributes:
        jobs: On the GPU, in the way that is advised.
        power_limit_w: The limit.
        energy_saved: Part of the energy, against the limit that the jobs were profiled under.
        longer: Part of the time that the work takes longer.
    """

    jobs: tuple[str, ...]
    power_limit_w: float
    energy_saved: Interval
    longer: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the jobs take beside SMs and power, and what there is; None: not known.

    Attributes:
        host_cores: That the jobs keep busy, alone.
    """

    memory_mib: float | None
    memory_of_mib: float | None
    host_cores: float | None
    mps_clients: int
    mps_clients_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """A number of copies of one job on a GPU; figures as in an answer for that many jobs.

    Attributes:
        verdict: None: one copy.
        split: Of the option with these figures; None: one copy.
        rate: Of all together, per second, in the job's unit.
        speed: Relative speed of the slowest.
        power_w: Of the GPU.
        joules: For each unit of progress, such as a request.
        energy_saved: This and the next are as those of an option.
        latency_p99_ms: Of the slowest; None: the job answers no requests, or none was timed.
        measured: Of so many copies together, which the numbers take in; None: nothing was.
    """

    number: int
    verdict: SharingVerdict | None
    split: str | None
    rate: Interval
    speed: Interval
    power_w: Interval
    joules: Interval
    energy_saved: Interval
    energy_saved_idle: Interval
    latency_p99_ms: Interval | None
    measured: MeasuredTogether | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How many copies of a job one GPU holds.

    Attributes:
        best: Number of copies to run.
        copies: From one to `best`; each keeps every limit, and adds work. Then one more, which does
            not, where more were asked for.
        ended_by: What one more breaks (speed is that of `SMs`, `DRAM` or `power`) or lacks: one of
            these, `memory`, `tail` or `host cores`; None: no more were asked for.
        why: The same in words.
    """

    best: int
    copies: tuple[Copies, ...]
    ended_by: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation(Tabular):
    """The answer for one to seven jobs: the best option that keeps every limit, or separate GPUs.

    Of one job alone it is the answer about as many copies of it as one GPU holds (two, where it
    holds one).

    Attributes:
        jobs: In the order that was asked.
        objective: What was maximised.
        verdict: Whether to share. Your call: sharing costs a little more energy and saves GPU time.
        choice: The recommended option; None: separate GPUs.
        call: The option of the verdict `your call`.
        candidates: The best of each sharing; where none keeps the limits, the nearest. With `every`
            all ways that were looked at.
        searched: How many options were compared.
        needs: Beside SMs and power.
        same_work: In the way that is advised.
        lower_limits: Of the GPU that the jobs share, or of that of each job; empty where none saves
            3 % of the energy at 95 % of the speed.
        picks: Split that each objective would choose; None: `every` was not asked for.
        near: A better way that fails by the low ends of speeds or by tails alone, and the options
            that accept it; None: there is none.
        gpus: Where three jobs or more do not share one GPU, what each of the fewest GPUs runs, as
            `advisor launch` takes it; empty: each job needs one, or HTTP was not asked for `words`.
        replicas: Of one job alone; None: there are more.
        reasons: Sentences on why.
        warnings: Sentences on what may go wrong.
        model: None: the jobs are predicted by physics fitted to measured sets.
        coverage: Part of measured values that the intervals are to hold.
        card: What the power was corrected by; None: nothing was seen of the card, or it is not
            known.
        drifts: Of the jobs that were asked for; intervals are wider for them.
        measured: What was measured of these jobs together, which the answer takes in; None: nothing
            was.
        said: In words; None: not asked for.
    """

    jobs: tuple[RequestedJob, ...]
    gpu_model: str
    objective: str
    verdict: SharingVerdict
    choice: Option | None
    call: Option | None
    candidates: tuple[Option, ...]
    searched: int
    needs: Needs
    same_work: SameWork
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    coverage: float
    lower_limits: tuple[LowerLimit, ...] = ()
    model: ModelName | None = None
    picks: Mapping[str, str] | None = None
    near: str | None = None
    gpus: tuple[str, ...] = ()
    replicas: Replicas | None = None
    card: CardPower | None = None
    drifts: tuple[DriftedJob, ...] = ()
    measured: MeasuredTogether | None = None
    said: Said | None = None

    def __str__(self) -> str:
        """Its words, where it has them; a cell that ends with it shows them as well."""
        return str(self.said or repr(self))

    def _repr_pretty_(self, printer: Any, _cycle: object) -> None:
        printer.text(str(self))

    @property
    def sharing_option(self) -> Option | None:
        """The sharing of `choice`, or of `call`."""
        return self.choice or self.call

    def rows(self) -> Iterator[dict[str, Any]]:
        """The candidates; of one job alone the numbers of its copies."""
        if of := self.replicas:
            return ({"is_choice": c.number == of.best, **_row_of(c)} for c in of.copies)
        chosen = self.choice.split if self.choice else "exclusive"
        return ({"is_choice": o.split == chosen, **_row_of(o)} for o in self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemError:
    """Why one request of a batch has no answer; `code` is the stable name of the kind of error."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """The answer to one request of a batch, or its error."""

    answer: Recommendation | None = None
    error: ItemError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswer:
    """One item for each request, in their order."""

    answers: tuple[BatchItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """One other job, and the best way of sharing with it; parts are against one after the other.

    Attributes:
        split: Shares of the job and of the other, or `uncapped`.
        speed: Relative speed of the job; `partner_speed` is the other's.
        cost_saved: None: no prices are set.
    """

    partner: str
    verdict: SharingVerdict
    split: str
    speed: Interval
    partner_speed: Interval
    gpu_time_saved: Interval
    energy_saved: Interval
    cost_saved: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The smallest measured share at which a job alone keeps nearly all of its speed.

    Attributes:
        speed: Relative to the whole GPU.
        latency_p99_ms: Of a job that answers requests; None: not known.
    """

    share_percent: float
    speed: float
    latency_p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partners(Tabular):
    """The best partners of a job, the best first.

    Attributes:
        looked_at: How many jobs were looked at.
        size: None: no share below the whole GPU keeps enough.
        copies_by_memory: How many of the job fit into the memory of the card; None: not known.
    """

    job: str
    gpu_model: str
    looked_at: int
    partners: tuple[Partner, ...]
    size: Size | None
    copies_by_memory: int | None

    def rows(self) -> Iterator[dict[str, Any]]:
        """The partners, the best first."""
        return map(_row_of, self.partners)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCurve:
    """A job alone on a GPU model: what it draws, and how its speed follows its share.

    Attributes:
        rate: On the whole GPU, per second, in its unit.
        shares: Measured, percent, ascending.
        speeds: At these shares, relative to the whole GPU.
        size: None: it fills the GPU, as no smaller share keeps enough of its speed.
        bundled: Its profile came with advisor.
    """

    job: str
    rate_unit: str
    rate: float
    power_w: float
    shares: tuple[float, ...]
    speeds: tuple[float, ...]
    size: Size | None
    bundled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """What pairs of jobs gain on a GPU model, in columns: of hundreds of pairs it is one answer.

    Each of the columns has a value for each pair: of `beside` with each of `jobs`, in their order;
    without it, of the first with itself and all after it, of the second with itself and all after
    it, and so on. Parts saved are against one after the other.

    Attributes:
        jobs: By name; those measured here, then those that came with advisor, as many as are told.
        left_out: How many more jobs there are on this GPU model.
        verdicts: None: nothing keeps every limit.
        splits: Of the way that the verdict is about; None: they do not share.
        speeds: Relative, of both jobs there.
    """

    gpu_model: str
    objective: str
    beside: str | None
    jobs: tuple[JobCurve, ...]
    left_out: int
    verdicts: tuple[SharingVerdict | None, ...]
    splits: tuple[str | None, ...]
    gpu_time_saved: tuple[float | None, ...]
    energy_saved: tuple[float | None, ...]
    speeds: tuple[tuple[float, float] | None, ...]


QueueGain: TypeAlias = Literal["yes", "barely", "no"]
"""Whether a queue gains by sharing: 5 % of its GPU time or energy, less, or no job shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """When and where one job of the queue runs.

    Attributes:
        gpu: Index of the GPU, from 0.
        number: Its place in the queue, from 1.
        share_percent: Of the GPU; 100 without a limit.
        below_normal: Whether it runs below normal priority.
        speed: Mean relative speed from start to end.
        beside: Number of the job that it shares the GPU with; None: it is alone.
    """

    gpu: int
    start_s: float
    end_s: float
    number: int
    job: str
    work_s: float
    share_percent: float
    below_normal: bool = False
    speed: float
    beside: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a whole queue takes to its end.

    Attributes:
        energy_j: Of all GPUs until the last job has ended, idle ones among them.
        idle_j: What idle GPUs have of it.
        makespan_s: Until the last job has ended.
        gpu_time_s: In which GPUs run something, added up.
        mean_completion_s: Until a job has ended, the mean of all.
        slowest_speed: Of the job with the lowest mean relative speed while it runs.
    """

    energy_j: float
    idle_j: float
    makespan_s: float
    gpu_time_s: float
    mean_completion_s: float
    slowest_job: str
    slowest_speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimplerSchedule(Totals):
    """What a simpler way takes, and what part of it the plan saves.

    Attributes:
        name: What it does, such as `one after the other`.
    """

    name: str
    energy_saved: float
    time_saved: float
    gpu_time_saved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(Totals):
    """When and where each job of a queue runs.

    Attributes:
        worth: Whether sharing pays, against one after the other.
        filling_jobs: Names of jobs that fill the GPU; the others are what sharing pays for.
        idle_power_w: Of one GPU.
        schedule: One for each job, in the order of the starts.
        baselines: What simpler ways take.
    """

    worth: QueueGain
    filling_jobs: tuple[str, ...]
    idle_power_w: float
    schedule: tuple[PlacedJob, ...]
    baselines: tuple[SimplerSchedule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedJob:
    """One job of a set.

    Attributes:
        share_percent: Its limit; 100: none.
        speed: Relative to its own alone on that GPU, while all jobs of the set run.
        p99_ms: The most that is expected of a server, where it is known.
        environment: Variables that limit it.
        one_window: As of jobs that are asked about (`advisor.wire.answers`).
        work_s: Of a queue, in seconds that it takes alone; None: it runs from now on.
        time_s: Of a queue: from the start until it has ended.
    """

    job: str
    share_percent: float
    speed: float
    p99_ms: float | None
    environment: Mapping[str, str]
    one_window: bool = False
    work_s: float | None = None
    time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedSet:
    """Jobs that share a GPU, or one alone; a set of a queue has its GPU until all have ended.

    Attributes:
        launch: What `advisor launch` is given, `'a*3' b --split 100/100/100/50`; the name of a job
            alone, which it does not run.
        count: How many cards have it; of a queue how often it runs.
        gpus: Numbers of the cards that have it, from 0, counted through all GPU models; of a queue
            its schedule says.
        power_w: Of one card while all jobs run.
        energy_saved: Part of the energy of one after the other, for the same work.
        gpu_time_saved: Part of the GPU's time of one after the other.
        energy_j: Of a queue: until all have ended.
    """

    launch: str
    gpu_model: str
    count: int
    gpus: tuple[int, ...]
    jobs: tuple[SeatedJob, ...]
    power_w: float
    energy_saved: float
    gpu_time_saved: float
    energy_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedGpus:
    """Cards of one GPU model: how many there are, and how many the plan uses."""

    gpu_model: str
    gpus: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJobs:
    """Jobs without a card: none is left, or none on which they keep the limits."""

    job: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which jobs share a GPU: those that run from now on, or a queue of work to its end.

    Attributes:
        cards: GPUs in use; separate GPUs would be as many as `seated`.
        cost: Of the plan: cards, GPUs, W or money an hour, as `objective` counts, jobs that wait
            and work that lags behind among it; of a queue GPU hours, Wh or money to its end.
        waiting_cost: What of it jobs that wait are counted with.
        bound: No plan of the sets that the search knows costs less; None: of a queue.
        gap: By which part of its cost such a plan could be better; None: of a queue.
        energy_saved: Of the same work on separate GPUs, with freed GPUs switched off.
        energy_saved_idle: The same where they idle; of a queue until its last job has ended.
        gpu_time_saved: Of the hours that cards are held for the same work.
        sets: Those with the most jobs first.
        queue: When and where each job runs; None: the jobs run from now on.
        timed_out: The time was up before the search had ended.
        bundled_profiles: Jobs whose profile came with advisor.
        warnings: What may be less certain than it looks.
        risks: Of the warnings those of limits that plans like this one broke when measured.
        card: What the power was corrected by; None: it was not.
        power_limit_w: Of each card, W, asked for or to keep `rack_power_w`; None: as it is.
    """

    objective: str
    gpus: tuple[UsedGpus, ...]
    queued: int
    seated: int
    waiting: tuple[WaitingJobs, ...]
    cards: int
    cost: float
    waiting_cost: float = 0.0
    bound: float | None
    gap: float | None
    energy_saved: float
    energy_saved_idle: float
    gpu_time_saved: float
    sets: tuple[SeatedSet, ...]
    queue: Queue | None
    timed_out: bool
    bundled_profiles: tuple[str, ...]
    warnings: tuple[str, ...]
    risks: tuple[str, ...] = ()
    model: ModelName
    card: CardPower | None = None
    power_limit_w: float | None = None


PointsOrigin = Literal["stored", "bundled"]
"""Measured here, or came with advisor."""

Action = Literal["promote", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job on one GPU model; a job that was never measured has none.

    Attributes:
        shares: Measured, percent.
        points: How many.
        measured_at: When the last one was, ISO 8601, UTC.
        flags: Of any of them.
        launchable: There is a job file of that name.
    """

    job: str
    gpu_model: str | None = None
    shares: tuple[float, ...] = ()
    points: int = 0
    measured_at: str | None = None
    flags: tuple[str, ...] = ()
    source: PointsOrigin | None = None
    launchable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """The jobs that are defined or measured, by name."""

    jobs: tuple[JobRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePoints:
    """The solo points that a job's profile is made of, the newest first.

    Attributes:
        gpu_models: All that it was measured on.
        next: The `cursor` of the next page; None: this is the last one.
    """

    job: str
    gpu_models: tuple[str, ...]
    source: PointsOrigin
    points: tuple[SoloPoint, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPoints:
    """What was measured of jobs together, the newest first.

    Attributes:
        jobs: Their names, in order.
        stored: Measured here.
        bundled: Came with advisor.
        next: The `cursor` of the next page; None: this is the last one.
    """

    jobs: tuple[str, ...]
    stored: tuple[PairPoint, ...]
    bundled: tuple[PairPoint, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What launched jobs really did, the newest first.

    Attributes:
        next: The `cursor` of the next page; None: this is the last one.
    """

    observations: tuple[Observation, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How many points are stored now."""

    stored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """How many points are gone."""

    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """How many records came, and how many of them were new."""

    read: int
    new: int

    def __add__(self, other: "TakenIn") -> "TakenIn":
        return TakenIn(read=self.read + other.read, new=self.new + other.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointsTakenIn(TakenIn):
    """The same of each kind."""

    solo: TakenIn
    pairs: TakenIn


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model.

    Attributes:
        model: What it is called in requests; `bundled` came with advisor.
        champion: Predictions are made with it.
        pairs: How many it was learned from.
        figures: How good it is on jobs that it has not seen.
        error: What is wrong with a damaged one.
    """

    model: str
    champion: bool
    version: str | None = None
    created_at: str | None = None
    gpu_models: tuple[str, ...] = ()
    pairs: int | None = None
    figures: Mapping[str, float]
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChampionChange:
    """One change of the champion: a promotion, or its taking back.

    Attributes:
        at: ISO 8601, UTC.
        version: The champion since; `replaced` is the one before.
        figures: Of the champion since.
    """

    at: str
    action: Action
    version: str
    replaced: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """The models, the champion first, and what became of them, the newest first."""

    models: tuple[ModelRow, ...]
    history: tuple[ChampionChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDetails:
    """All that is known of one model; docs/models.md explains the manifest."""

    model: str
    champion: bool
    manifest: Mapping[str, Any]
    history: tuple[ChampionChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """The model that predictions are made with from now on, and the one before."""

    champion: str
    replaced: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Something that was begun, or how it ended. None of it may hold a secret.

    Attributes:
        at: ISO 8601, UTC.
        who: Name of a token, or of a user of the host.
        action: What was asked for, such as `profile.replace`.
        subject: What it was done to, such as a job or a launch.
        outcome: `begun`, `done`, or the code of the error.
        request_id: As in the log of the service; empty at the command line.
        client: Address that the request came from; empty at the command line.
        number: Place in the log, from 1; the log gives it.
    """

    at: str
    who: str
    action: str
    subject: str
    outcome: str
    request_id: str = ""
    client: str = ""
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLog:
    """The newest first."""

    entries: tuple[AuditEntry, ...]
