"""What command line and Python ask, with the same options by the same names."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec

from advisor.core.gpu import ADVISED_JOBS, MOST_JOBS, parse_memory_mib
from advisor.core.objectives import read_gain
from advisor.core.wording import option_words
from advisor.decide.limits import Request
from advisor.errors import InputError
from advisor.settings import Settings, read_settings
from advisor.wire.answers import Partners, Recommendation
from advisor.wire.requests import RecommendationRequest
from advisor_advice.answers import (
    ModelAdvice,
    SetAdvisor,
    best_partners,
    request_of,
)
from advisor_advice.conditions import AdvisorInputs, find_profiles
from advisor_advice.options import (
    ByJob,
    every_job,
    job_requests,
    longest_p99_ms,
    min_speeds,
    read_works,
    words,
)
from advisor_advice.words import recommendation, said

P = ParamSpec("P")


# An answer as it was worked out, and as JSON has it.
_Advice = tuple[ModelAdvice, Recommendation]


def advise(
    *jobs: str,
    objective: str | None = None,
    min_speed: ByJob = None,
    max_p99: ByJob = None,
    max_power: float | None = None,
    memory: float | str | None = None,
    min_gain: float | None = None,
    isolate: bool = False,
    cores: float | None = None,
    work: ByJob = None,
    gpu_model: str | None = None,
    gpu_uuid: str | None = None,
    power_limit: float | None = None,
    fine: bool = False,
    every: bool = False,
    profiles: str | Path | None = None,
) -> _Advice | Partners:
    """How jobs share one GPU with the least energy for the same work.

    Two to seven jobs get a `Recommendation`, one job its best `Partners`. A limit of jobs is
    one value for all, or a dict by name.

    Args:
        jobs: Names of profiled jobs, `A*3` for three of A.
        objective: What is maximised; cost where prices are set, else energy, if not given.
        min_speed: Minimum speed; 1 is as alone; 0.4 if not given, 0 lifts it.
        max_p99: Longest p99 latency of jobs that answer requests, such as `50ms`.
        max_power: Most power of the GPU, W.
        memory: Of the GPU, in MiB or as `80GiB`; that of its model if not given.
        min_gain: Least gain for which jobs share, as a part: a fault of one can end all.
        isolate: Whether a fault of one job must leave the others running.
        cores: Host cores for all jobs together; not looked at if not given.
        work: What is to be done, as the time that it takes alone, such as `3h`; of two jobs.
        gpu_model: Such as `NVIDIA H200`; for jobs with profiles of several.
        gpu_uuid: The card: power is corrected for what is known of it.
        power_limit: Of the card, W, where it is lower than that of the profiles.
        fine: Every split in steps of two SMs; of two jobs.
        every: Tell every way that was looked at, and what each objective would choose.
        profiles: A file of solo points that go before the stored and bundled ones.

    Raises:
        InputError: a job without profile, or an option that cannot be meant.
        ModelError: there is no model, or it is damaged.
        NoSplitError: nothing keeps every limit.
        StoreError: what was measured here cannot be read.
    """
    settings, names, min_gain = read_settings(), every_job(jobs), min_gain and read_gain(min_gain)
    if not names:
        raise InputError("no job was named", fix="name one to seven profiled jobs")
    memory_mib = None if memory is None else parse_memory_mib(str(memory))
    least = words(min_speed)
    by_job_ms, for_all_ms = longest_p99_ms(words(max_p99), names)
    if len(names) == 1:
        of_several = {
            "--work": work,
            "--isolate": isolate,
            "--cores": cores,
            "--fine": fine,
            "--power-limit": power_limit,
            "--gpu-uuid": gpu_uuid,
            "--profiles": profiles,
        }
        if given := [name for name, value in of_several.items() if value]:
            raise InputError(
                f"{given[0]} does not apply to 1 job",
                why="the best partners of one were asked for",
                fix="name the other job, too",
            )
        limits = Request(
            policy=settings.policy.with_(objective, min_gain),
            min_speed=min_speeds(least, names),
            max_p99_ms=by_job_ms,
            default_max_p99_ms=for_all_ms,
            max_power_w=max_power,
            memory_mib=memory_mib,
        )
        return best_partners(names[0], settings, limits, gpu_model)
    request = RecommendationRequest.of(
        *job_requests(names, names, least, by_job_ms, read_works(words(work), names)),
        objective=objective,
        max_p99_ms=for_all_ms,
        max_power_w=max_power,
        memory_mib=memory_mib,
        min_gain=min_gain,
        gpu_model=gpu_model,
        gpu_uuid=gpu_uuid,
        power_limit_w=power_limit,
        isolate=isolate,
        host_cores=cores,
        fine=fine,
        every=every,
    )
    return _answer(request, settings, profiles)


def _wrapped(ask: Callable[P, _Advice | Partners]) -> Callable[P, Any]:
    """The same function with the answer for programs, which has its words for people.

    How many jobs are named decides its type, which no annotation can express.
    """

    @functools.wraps(ask)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
        result = ask(*args, **kwargs)
        if isinstance(result, Partners):
            return result
        given, answer = result
        return replace(answer, said=said(given))

    wrapper.__name__ = wrapper.__qualname__ = "recommend"
    return wrapper


recommend = _wrapped(advise)


def _answer(
    wire_request: RecommendationRequest, settings: Settings, profiles: str | Path | None
) -> _Advice:
    request, file = request_of(wire_request, settings), None if profiles is None else Path(profiles)
    profile_set = find_profiles(
        wire_request.looked_at,
        settings,
        wire_request.gpu_model,
        file,
        several_gpus=len(wire_request.names) > 1,
        power_limit_w=wire_request.power_limit_w,
    )
    set_advisor = SetAdvisor.of(AdvisorInputs.read(profile_set, settings, wire_request.gpu_uuid))
    if len(wire_request.names) > ADVISED_JOBS:
        # It loads a solver, which two jobs do without.
        from advisor_advice.placing import advised

        given = advised(set_advisor, wire_request, request)
    else:
        given = set_advisor.advise(wire_request, request)
    given = replace(given, options=option_words({"profiles": file, "gpu": wire_request.gpu_uuid}))
    return given, recommendation(given, wire_request)


def replicas(
    job: str,
    *,
    most: int = MOST_JOBS,
    min_speed: ByJob = None,
    max_p99: ByJob = None,
    max_power: float | None = None,
    memory: float | str | None = None,
    cores: float | None = None,
    min_gain: float | None = None,
    isolate: bool = False,
    gpu_model: str | None = None,
    gpu_uuid: str | None = None,
    power_limit: float | None = None,
    profiles: str | Path | None = None,
) -> Recommendation:
    """How many copies of a job run on one GPU, and what ends their number: `replicas` of it.

    Args:
        job: Name of a profiled job.
        most: Copies that are looked at, two to seven.
        min_speed: As of `recommend`, with all that follow.
        max_p99: Such as `50ms`.
        max_power: W.
        memory: In MiB or as `80GiB`.
        cores: Host cores for all copies together.
        min_gain: Least gain of one more copy, as a part.
        isolate: Whether a fault of one copy must leave the others running.
        gpu_model: Such as `NVIDIA H200`.
        gpu_uuid: The card.
        power_limit: Of the card, W, where it is lower than that of the profile.
        profiles: A file of solo points.

    Raises:
        InputError: no profile, or an option that cannot be meant.
        ModelError: there is no model, or it is damaged.
        NoSplitError: not even one copy keeps its limits.
        StoreError: what was measured here cannot be read.
    """
    by_job_ms, for_all_ms = longest_p99_ms(words(max_p99), [job])
    request = RecommendationRequest.of(
        *job_requests([job], [job], words(min_speed), by_job_ms),
        most=most,
        max_p99_ms=for_all_ms,
        max_power_w=max_power,
        memory_mib=None if memory is None else parse_memory_mib(str(memory)),
        min_gain=min_gain and read_gain(min_gain),
        gpu_model=gpu_model,
        gpu_uuid=gpu_uuid,
        power_limit_w=power_limit,
        isolate=isolate,
        host_cores=cores,
        words=True,
    )
    return _answer(request, read_settings(), profiles)[1]
