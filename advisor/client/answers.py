"""What the service answers, typed. `raw` is the JSON as it came, with keys that are newer, too."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from advisor.core.finish import Finish
from advisor.core.interval import Interval
from advisor.launch.records.spec import Forecast
from advisor.launch.records.status import LaunchStatus

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelName:
    """The model that an answer is by, and the GPU models it has seen."""

    version: str
    gpu_models: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way of running two jobs on one GPU, and what is expected of it.

    Attributes:
        name: Shares as people write them, `uncapped` or `exclusive`.
        way: `split`, `uncapped` or `exclusive`.
        environment_a: Variables that limit the first job under MPS; none without limits.
        rate_a: Progress of the first job per second, in its own unit.
        speed_a: Relative speed: 1 is as fast as alone on the whole GPU.
        power_w: Power of the GPU.
        energy_saved: For the same work, against one after the other; 0.1 is a tenth less.
        stp: Sum of relative speeds: how much more is done in an hour than one after the other.
        worth: By objective.
        misses: Limits that the expected values do not keep, in words.
    """

    name: str
    way: str
    share_a_percent: float
    share_b_percent: float
    environment_a: Mapping[str, str]
    environment_b: Mapping[str, str]
    rate_a: Interval
    rate_b: Interval
    speed_a: Interval
    speed_b: Interval
    power_w: Interval
    energy_saved: Interval
    stp: Interval
    worth: Mapping[str, Interval]
    misses: tuple[str, ...]

    @property
    def environments(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Of the first and of the second job."""
        return self.environment_a, self.environment_b


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a simple rule would choose, limits or not; None: it cannot be had."""

    rule: str
    meaning: str
    option: Option | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """One job alone on the whole GPU."""

    rate: float
    power_w: float
    memory_used_mib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SameWork:
    """One amount of work in several ways; None is what never ends or is out of reach.

    Attributes:
        work_a_s: What the first job has to do, in seconds that it takes alone.
        choice: In the recommended way.
        restarted: The same, the job that is left restarted without a limit.
        rules: By simple rule.
    """

    work_a_s: float
    work_b_s: float
    choice: Finish | None
    restarted: Finish | None
    rules: Mapping[str, Finish | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The way that does the most and keeps every limit.

    Attributes:
        choice: One of `candidates`.
        picks: Name of the option that each objective would choose.
        reasons: Sentences on why.
        warnings: Sentences on what may go wrong.
        coverage: Part of measured values that the intervals are to hold.
    """

    job_a: str
    job_b: str
    gpu_model: str
    rate_unit_a: str
    rate_unit_b: str
    alone_a: Alone
    alone_b: Alone
    objective: str
    choice: Option
    candidates: tuple[Option, ...]
    rules: tuple[Rule, ...]
    same_work: SameWork
    picks: Mapping[str, str]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    model: ModelName
    coverage: float
    raw: Json = field(repr=False)

    @property
    def environments(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """What to set for the first and for the second job."""
        return self.choice.environments


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One or two jobs that have a GPU until both have ended.

    Attributes:
        count: How often the queue has it.
        work_s: Of each job, in seconds that it takes alone.
        split: Shares as people write them, or `alone`.
        shares_percent: Of the jobs; None for a job alone.
        environments: Variables that limit each job under MPS.
        speeds: Relative speed of each while both run.
        times_s: From the start until each has ended.
        power_w: Of the GPU while both run.
        energy_j: Until both have ended.
        energy_saved: Part of the energy of one after the other.
        time_saved: Part of the GPU's time of one after the other.
    """

    count: int
    jobs: tuple[str, ...]
    work_s: tuple[float, ...]
    split: str
    shares_percent: tuple[float, ...] | None
    environments: tuple[Mapping[str, str], ...]
    speeds: tuple[float, ...]
    times_s: tuple[float, ...]
    power_w: float
    energy_j: float
    energy_saved: float
    time_saved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """When and where one job runs.

    Attributes:
        gpu: Index of the GPU, from 0.
        number: Its place in the queue, from 1.
        share_percent: Of the GPU; 100 without a limit.
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
    speed: float
    beside: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a whole queue takes to its end.

    Attributes:
        energy_j: Of all GPUs until the last job has ended, idle ones among them.
        idle_j: What idle GPUs have of it.
        makespan_s: Until the last job has ended.
        mean_completion_s: Until a job has ended, the mean of all.
        slowest_speed: Of the job with the lowest mean relative speed while it runs.
    """

    energy_j: float
    idle_j: float
    makespan_s: float
    mean_completion_s: float
    slowest_job: str
    slowest_speed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimplerWay(Totals):
    """What a simpler way takes, and what part of it the plan saves."""

    way: str
    energy_saved: float
    time_saved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement(Totals):
    """Who shares a GPU with whom, and when and where each job runs.

    Attributes:
        jobs: How many the queue has; all of them are placed.
        groups: The pair that saves most first, jobs alone last.
        schedule: One for each job, in the order of the starts.
        timed_out: The time was up before the search had ended.
        warnings: Which counts of SMs are not used and why, or that none was checked.
    """

    gpu_model: str
    objective: str
    gpus: int
    jobs: int
    idle_power_w: float
    groups: tuple[Group, ...]
    schedule: tuple[PlacedJob, ...]
    others: tuple[SimplerWay, ...]
    timed_out: bool
    bundled_profiles: tuple[str, ...]
    warnings: tuple[str, ...]
    model: ModelName
    raw: Json = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(LaunchStatus):
    """A launch at one moment, on the host of that name."""

    host: str
    raw: Json = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One job of a pair.

    Attributes:
        units: SMs or CUs that its share comes to; None: not known before it starts.
        environment: Variables that limit it.
    """

    job: str
    rate_unit: str
    share_percent: float
    units: int | None
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPair:
    """Two jobs and how they would share the GPU; `split` is as people write it."""

    split: str
    sharing: str
    jobs: tuple[PlannedJob, ...]
    forecast: Forecast | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What a launch would start; `notes` say what whoever asked should know."""

    gpu: str
    gpu_uuid: str
    gpu_model: str
    pairs: tuple[PlannedPair, ...]
    notes: tuple[str, ...]
    raw: Json = field(repr=False)
