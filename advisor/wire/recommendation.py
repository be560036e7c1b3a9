"""What a recommendation says. docs/recommend.md explains each key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Literal, TypeAlias

from advisor.core.finish import Finish
from advisor.core.interval import Interval
from advisor.core.split import Sharing
from advisor.wire.components import SplitParts
from advisor.wire.frames import Tabular, row_of
from advisor.wire.observed import CardPower, DriftedJob, MeasuredTogether

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
        rows = (_folded(text, f"  {name:<8}") for name, text in self.lines)
        return "\n".join((_folded(self.headline), *rows))


def _folded(text: str, name: str = "") -> str:
    rest = " " * len(name)
    return fill(text, 80, initial_indent=name, subsequent_indent=rest, break_on_hyphens=False)


class Told(Tabular):
    """An answer that shows its words, where it has them, when it is printed or ends a cell."""

    __slots__ = ()
    said: Said | None

    def __str__(self) -> str:
        return str(self.said or repr(self))

    def _repr_pretty_(self, printer: Any, _cycle: object) -> None:
        printer.text(str(self))


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
    """

    rate: float
    power_w: float
    memory_used_mib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedJob:
    """One of the jobs that were asked about.

    Attributes:
        rate_unit: Unit of its progress, such as images.
        one_window: It was seen on the whole GPU alone: what it does at other shares is estimated.
    """

    job: str
    rate_unit: str
    alone: Alone
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
        environment: Variables that limit the job; none without a limit.
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
    """One way of running two jobs on one GPU, and what is expected of it.

    Attributes:
        split: Shares as people write them (`30/70`), `uncapped` or `exclusive`.
        sharing: How the jobs use the GPU: `limited` has a share for each.
        jobs: In the order that was asked.
        power_w: Power of the GPU, W.
        memory_power_w: The part of it that its memory draws, W; None: the model has not learned it.
        energy_saved: For the same work, against one after the other; 0.1 is a tenth less. With the
            watts of the server, where they are set.
        stp: Sum of relative speeds: how much more is done in an hour than one after the other.
        gpu_time_saved: Part of the GPU hours for the same work, against one after the other.
        cost_saved: The same of what hours and energy cost; None: no prices are set.
        objectives: Values of objectives, by name.
        violations: Limits that the expected values do not keep, in words.
    """

    split: str
    sharing: Sharing
    jobs: tuple[JobShare, ...]
    power_w: Interval
    energy_saved: Interval
    stp: Interval
    objectives: Mapping[str, Interval]
    violations: tuple[str, ...]
    memory_power_w: Interval | None = None
    gpu_time_saved: Interval | None = None
    cost_saved: Interval | None = None


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
class Recommendation(Told):
    """The way of running two jobs on one GPU that does the most and keeps every limit.

    Attributes:
        jobs: In the order that was asked.
        objective: What was maximised.
        choice: One of `candidates`.
        verdict: Whether to share. Your call: sharing costs a little more energy and saves GPU time.
        call: Split of the way that the verdict is about, where it is a call; None: it is not.
        picks: Split of the option that each objective would choose.
        reasons: Sentences on why.
        warnings: Sentences on what may go wrong.
        coverage: Part of measured values that the intervals are to hold.
        card: What the power was corrected by; None: nothing was seen of the card, or it is not
            known.
        drifts: Of the jobs that were asked for; intervals are wider for them.
        measured: What was measured of these jobs together, which the answer takes in; None: nothing
            was.
        components: What the power at `choice` goes to; None: not asked for, or not known.
        components_unknown: Why `components` was asked for in vain; None: it was not.
        said: In words; None: not asked for.
    """

    jobs: tuple[AskedJob, ...]
    gpu_model: str
    objective: str
    choice: Option
    candidates: tuple[Option, ...]
    same_work: SameWork
    picks: Mapping[str, str]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    model: ModelName
    coverage: float
    verdict: SharingVerdict = "share"
    call: str | None = None
    card: CardPower | None = None
    drifts: tuple[DriftedJob, ...] = ()
    measured: MeasuredTogether | None = None
    components: SplitParts | None = None
    components_unknown: str | None = None
    said: Said | None = None

    def rows(self) -> Iterator[dict[str, Any]]:
        """The candidates."""
        for option in self.candidates:
            yield {"is_choice": option.split == self.choice.split, **row_of(option)}


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
