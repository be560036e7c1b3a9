"""What a request for a launch may say: names of jobs, never a command, a variable or a path."""

from collections.abc import Mapping
from typing import Annotated, Self, TypeAlias

from fastapi import Header, Path, Query
from pydantic import AfterValidator, Field, model_validator

from advisor.advice.launching import parse_launch_split
from advisor.advice.wanted import WantedLaunch, WantedPair
from advisor.core.gpu import Gpu
from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.errors import InputError
from advisor.launch.records.spec import HANG_S, WhenOneEnds
from advisor_api.schemas.requests import LAUNCH_ID, JobName, Objective, PairConstraints, Strict

MOST_PAIRS = 100
"""Pairs that wait behind the first one."""

_DAY_S = 86400.0


def _split(text: str) -> str:
    try:
        parse_launch_split(text)
    except InputError as error:
        raise ValueError(str(error)) from error
    return text


PairOfJobs: TypeAlias = Annotated[list[JobName], Field(min_length=2, max_length=2)]
GpuName: TypeAlias = (
    Annotated[int, Field(ge=0, le=4095)] | Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{1,64}$")]
)
SplitText: TypeAlias = Annotated[
    str,
    Field(
        max_length=40,
        # What OpenAPI says; the words and the numbers are checked where splits are read.
        pattern=r"^(uncapped|time-sliced|[0-9]{1,3}(\.[0-9]{1,9})?/[0-9]{1,3}(\.[0-9]{1,9})?)$",
    ),
    AfterValidator(_split),
]
LaunchInPath: TypeAlias = Annotated[str, Path(pattern=LAUNCH_ID, description="id of a launch")]
LaunchInQuery: TypeAlias = Annotated[
    str | None, Query(pattern=LAUNCH_ID, description="only launches before this one")
]
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,200}$",
        description="the same key with the same body is the same launch, however often it is sent",
    ),
]


class LaunchRequest(Strict):
    """Two jobs to run together on one GPU, and pairs that follow them."""

    jobs: PairOfJobs = Field(description="names of two jobs with a job file on the server")
    gpu: GpuName = Field(0, description="index or UUID of a GPU of the server")
    split: SplitText | None = Field(
        None, description="30/70, uncapped or time-sliced; left out, the recommended one"
    )
    objective: Objective | None = Field(None, description="of a recommended split")
    constraints: PairConstraints | None = Field(None, description="of a recommended split")
    allow_unsafe: bool = Field(
        default=False, description="launch `split` also at counts of SMs at which results are wrong"
    )
    stop_on_wrong_results: bool | None = Field(
        None,
        description="stop a pair when a job reports a wrong result; left out: if recommended",
    )
    when_one_ends: WhenOneEnds = Field(
        "keep", description="the other job goes on under its limit, or is stopped"
    )
    duration_s: Annotated[float, Field(gt=0, le=400 * _DAY_S)] | None = Field(
        None, description="each pair is stopped after this time, s"
    )
    hang_s: Annotated[float, Field(gt=0, le=30 * _DAY_S)] = Field(
        HANG_S, description="a job that makes no progress for so long hangs, s"
    )
    then: Annotated[list[PairOfJobs], Field(max_length=MOST_PAIRS)] = Field(
        default=[], description="pairs that run afterwards, one after the other"
    )
    dry_run: bool = Field(False, description="say what would run, and start nothing")

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        if self.split is not None and (self.objective or self.constraints):
            raise ValueError("a split is given or recommended: leave out split, or what it is for")
        return self

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of the jobs of all pairs, in their order."""
        return [(a, b) for a, b in (self.jobs, *self.then)]

    def wanted(self, gpu: Gpu, asked_by: str) -> WantedLaunch:
        """As the launcher takes it.

        Raises:
            InputError: a limit for a job that is not there.
        """
        limits = self.constraints or PairConstraints()
        by_job_ms, for_all_ms = limits.longest_p99_ms
        self._check_names(by_job_ms, "latency")
        return WantedLaunch(
            pairs=tuple(WantedPair(jobs=jobs, split=self.split) for jobs in self.pairs),
            gpu=gpu.uuid,
            gpu_model=gpu.model,
            units_total=gpu.units_total,
            objective=self.objective or DEFAULT_OBJECTIVE,
            min_speed=self._least_speeds(limits),
            max_p99_ms=by_job_ms,
            default_max_p99_ms=for_all_ms,
            max_power_w=limits.max_power_w,
            memory_mib=_smaller(limits.memory_mib, gpu.memory_mib),
            allow_unsafe=self.allow_unsafe,
            stop_on_wrong_results=self.stop_on_wrong_results,
            when_one_ends=self.when_one_ends,
            duration_s=self.duration_s,
            hang_s=self.hang_s,
            asked_by=asked_by,
        )

    def _least_speeds(self, limits: PairConstraints) -> Mapping[str, float]:
        least = limits.min_speed
        if least is None or isinstance(least, float | int):
            jobs = {name for pair in self.pairs for name in pair}
            return {} if least is None else dict.fromkeys(jobs, least)
        self._check_names(least, "minimum speed")
        return least

    def _check_names(self, limits: Mapping[str, float], what: str) -> None:
        if strangers := sorted(set(limits) - {name for pair in self.pairs for name in pair}):
            raise InputError(
                f"a {what} was given for {strangers[0]}", why="no such job is to be launched"
            )


def _smaller(asked: float | None, real: float | None) -> float | None:
    return min((value for value in (asked, real) if value is not None), default=None)


ActiveInQuery: TypeAlias = Annotated[bool, Query(description="only launches that are not over")]
