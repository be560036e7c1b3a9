"""What a placement says. docs/place.md explains each key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor.wire.answers import CardPower, ModelName

QueueWorth: TypeAlias = Literal["yes", "barely", "no"]
"""Whether sharing pays for a queue: a twentieth of its GPU time or energy or more, less, or nobody
shares."""


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
        filling_jobs: Names of jobs that need the whole GPU for nearly all of their speed; the
            others are what sharing pays for.
        idle_power_w: Of one GPU.
        schedule: One for each job, in the order of the starts.
        baselines: What simpler ways take.
    """

    worth: QueueWorth
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
    """Jobs that share a card, or one alone; a set of a queue has its card until all have ended.

    Attributes:
        launch: What `advisor launch` is given, `a*3 b --split 100/100/100/50`; the name of a job
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
    """Which jobs share a card: those that run from now on, or a queue of work to its end.

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
        card: What the power was corrected by; None: it was not.
        power_limit_w: That each card is to have, W, to keep `rack_power_w`; None: as it is.
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
    model: ModelName
    card: CardPower | None = None
    power_limit_w: float | None = None
