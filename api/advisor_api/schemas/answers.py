"""What answers hold, for OpenAPI; docs/recommend.md and docs/place.md explain each key.

Answers are made by the code that the command line uses and sent as they are: these models describe
them, and a test compares.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Way = Literal["split", "uncapped", "exclusive"]


class Answer(BaseModel):
    """Has the keys that it names, and no other."""

    model_config = ConfigDict(extra="forbid")


class Number(Answer):
    """An expected value, and the bounds that hold it with the model's coverage."""

    value: float
    low: float
    high: float


class OptionAnswer(Answer):
    """One way of running two jobs on one GPU; rates in steps per second, power in W.

    `energy_saved` is for the same work against one after the other, `stp` the sum of speeds.
    """

    name: str
    way: Way
    share_a_percent: float
    share_b_percent: float
    environment_a: dict[str, str]
    environment_b: dict[str, str]
    rate_a: Number
    rate_b: Number
    speed_a: Number
    speed_b: Number
    power_w: Number
    energy_saved: Number
    stp: Number
    worth: dict[str, Number]
    misses: list[str]


class RuleAnswer(Answer):
    """What a simple rule would choose; null where the profiles do not reach."""

    rule: str
    meaning: str
    option: OptionAnswer | None


class AloneAnswer(Answer):
    """One job alone on the whole GPU; steps per second, W and MiB."""

    rate: float
    power_w: float
    memory_used_mib: float | None


class FinishAnswer(Answer):
    """Both jobs until they are done: s and J; `shared_s` is until the first one is done."""

    time_s: float
    energy_j: float
    shared_s: float


class SameWorkAnswer(Answer):
    """One amount of work in several ways; null is what never ends or is out of reach."""

    work_a_s: float
    work_b_s: float
    choice: FinishAnswer | None
    restarted: FinishAnswer | None
    rules: dict[str, FinishAnswer | None]


class ModelName(Answer):
    """The model that predicted, and what it has seen."""

    version: str
    gpu_models: list[str]


class RecommendationAnswer(Answer):
    """The way that does the most and keeps every limit, and all others."""

    job_a: str
    job_b: str
    gpu_model: str
    rate_unit_a: str
    rate_unit_b: str
    alone_a: AloneAnswer
    alone_b: AloneAnswer
    objective: str
    choice: OptionAnswer
    candidates: list[OptionAnswer]
    rules: list[RuleAnswer]
    same_work: SameWorkAnswer
    picks: dict[str, str]
    reasons: list[str]
    warnings: list[str]
    model: ModelName
    coverage: float


class ItemError(Answer):
    """Why one request of a batch has no answer."""

    code: str
    message: str


class BatchItem(Answer):
    """The answer to one request of a batch, or its error."""

    answer: RecommendationAnswer | None = None
    error: ItemError | None = None


class BatchAnswer(Answer):
    """One item for each request, in their order."""

    answers: list[BatchItem]


class GroupAnswer(Answer):
    """One or two jobs that have a GPU until both have ended, `count` times."""

    count: int
    jobs: list[str]
    work_s: list[float]
    split: str
    shares_percent: list[float] | None
    environments: list[dict[str, str]]
    speeds: list[float]
    times_s: list[float]
    power_w: float
    energy_j: float
    energy_saved: float
    time_saved: float


class ScheduleRow(Answer):
    """One job of the queue: which GPU, when, at which share, beside which other one."""

    gpu: int
    start_s: float
    end_s: float
    number: int
    job: str
    work_s: float
    share_percent: float
    speed: float
    beside: int | None


class Totals(Answer):
    """A whole queue to its end; energy is of all GPUs, idle ones too."""

    energy_j: float
    idle_j: float
    makespan_s: float
    mean_completion_s: float
    slowest_job: str
    slowest_speed: float


class OtherSchedule(Totals):
    """What a simpler way takes, and what part of it the plan saves."""

    way: str
    energy_saved: float
    time_saved: float


class PlacementAnswer(Totals):
    """Who shares a GPU with whom, when and where each job runs."""

    gpu_model: str
    objective: str
    gpus: int
    jobs: int
    idle_power_w: float
    groups: list[GroupAnswer]
    schedule: list[ScheduleRow]
    others: list[OtherSchedule]
    timed_out: bool
    bundled_profiles: list[str]
    warnings: list[str]
    model: ModelName


class JobRow(Answer):
    """One job on one GPU model; `launchable`: there is a job file of that name."""

    job: str
    gpu_model: str | None
    shares: list[float]
    points: int
    measured_at: str | None
    flags: list[str]
    source: Literal["stored", "bundled"] | None
    launchable: bool


class JobsAnswer(Answer):
    """The jobs that are defined or measured, by name."""

    jobs: list[JobRow]


class ProfileAnswer(Answer):
    """The solo points that a job's profile is made of, the newest first."""

    job: str
    gpu_models: list[str]
    source: Literal["stored", "bundled"]
    points: list[dict[str, Any]]
    next: str | None


class Written(Answer):
    """How many points are stored now."""

    stored: int


class Deleted(Answer):
    """How many points are gone."""

    deleted: int


class TakenIn(Answer):
    """How many records came, and how many of them were new."""

    read: int
    new: int


class PointsTakenIn(TakenIn):
    """The same of each kind."""

    solo: TakenIn
    pairs: TakenIn


class PairPointsAnswer(Answer):
    """What was measured of two jobs together, the newest first; here, and with advisor."""

    jobs: list[str]
    stored: list[dict[str, Any]]
    bundled: list[dict[str, Any]]
    next: str | None


class ModelRow(Answer):
    """A model of this host; `error` says what is wrong with a damaged one."""

    model: str
    champion: bool
    version: str | None
    created_at: str | None
    gpu_models: list[str]
    pairs: int | None
    figures: dict[str, float]
    error: str | None


class ChangeAnswer(Answer):
    """One change of the champion."""

    at: str
    action: Literal["promote", "rollback"]
    version: str
    replaced: str
    figures: dict[str, float]


class ModelsAnswer(Answer):
    """The models of this host, and when which of them became the champion, the newest first."""

    models: list[ModelRow]
    history: list[ChangeAnswer]


class ModelAnswer(Answer):
    """All that is known of one model: its manifest, and the changes that it had a part in."""

    model: str
    champion: bool
    manifest: dict[str, Any]
    history: list[ChangeAnswer]


class ChampionAnswer(Answer):
    """The model in use now, and the one before."""

    champion: str
    replaced: str


class ObservationsAnswer(Answer):
    """What launched pairs did, the newest first."""

    observations: list[dict[str, Any]]
    next: str | None


class AuditRow(Answer):
    """One thing that was begun, or how it ended: `done`, or the code of an error."""

    number: int | None
    at: str
    who: str
    action: str
    subject: str
    outcome: str
    request_id: str
    client: str


class AuditAnswer(Answer):
    """The audit log, the newest first."""

    entries: list[AuditRow]
