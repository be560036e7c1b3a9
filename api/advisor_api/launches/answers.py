"""What answers about launches hold, for OpenAPI; `LaunchView` is one launch."""

from typing import Literal

from advisor.core.split import Sharing
from advisor.launch.records.spec import Forecast, WhenOneEnds
from advisor_api.launches.view import LaunchView
from advisor_api.schemas.answers import Answer


class LaunchesAnswer(Answer):
    """The newest first."""

    launches: list[LaunchView]


class PlannedJob(Answer):
    """One job; `environment` has the variables of its limit, `units` the SMs that it will get."""

    job: str
    rate_unit: str
    share_percent: float
    units: int | None
    environment: dict[str, str]


class MemoryFit(Answer):
    """Whether both jobs fit, MiB; null where that is not known."""

    needs_mib: list[int | None]
    most_mib: float | None
    fits: bool | None


class PlannedPair(Answer):
    """Two jobs, their split, and what is expected of them."""

    split: str
    sharing: Sharing
    jobs: list[PlannedJob]
    memory: MemoryFit
    forecast: Forecast | None


class PlanAnswer(Answer):
    """What a launch would run; nothing was started."""

    dry_run: Literal[True]
    gpu: str
    gpu_uuid: str
    gpu_model: str
    when_one_ends: WhenOneEnds
    duration_s: float | None
    hang_s: float
    pairs: list[PlannedPair]
    notes: list[str]
