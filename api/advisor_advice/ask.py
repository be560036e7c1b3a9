"""What command line and Python ask, with the same options by the same names."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec

from advisor.core.gpu import parse_memory_mib
from advisor.core.records import SoloPoint
from advisor.core.split import ADVISED_JOBS, MOST_JOBS
from advisor.decide.limits import Request
from advisor.decide.options import check_set
from advisor.errors import InputError
from advisor.settings import Settings, read_settings
from advisor.wire.answers import Partners, Recommendation, Replicas, SetAdvice
from advisor.wire.requests import RecommendationRequest, ReplicasRequest, SetRequest
from advisor_advice.answers import (
    ModelAdvice,
    advise_replicas,
    advise_set,
    answer,
    known_set,
    request_of,
    to_wire,
)
from advisor_advice.components import known_power_of, with_components
from advisor_advice.conditions import read_known
from advisor_advice.options import (
    ByJob,
    every_job,
    job_requests,
    longest_p99_ms,
    min_speeds,
    read_gain,
    read_works,
    words,
)
from advisor_advice.partners import best_partners
from advisor_advice.profiles import find_profiles
from advisor_advice.words import said
from advisor_data.files import read_points

P = ParamSpec("P")


PairAdvice = tuple[ModelAdvice, Recommendation]
"""The answer about two jobs: as it was worked out, and as JSON has it."""


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
    fine: bool = False,
    components: bool = False,
    profiles: str | Path | None = None,
) -> PairAdvice | SetAdvice | Partners:
    """How jobs share one GPU with the least energy for the same work.

    Two jobs have a `Recommendation`, three to seven a `SetAdvice`, and one its best `Partners`.
    What is said of jobs is one value for all, or a dict by name.

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
        fine: Every split in steps of two SMs; of two jobs.
        components: What the power of the chosen way goes to; of two jobs.
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
    file = None if profiles is None else Path(profiles)
    least = words(min_speed)
    by_job_ms, for_all_ms = longest_p99_ms(words(max_p99), names)
    of_pairs: dict[str, object] = {"--fine": fine, "--components": components}
    if len(names) == 1:
        _refuse({"--work": work, "--isolate": isolate, "--cores": cores} | of_pairs, *_ONE)
        limits = Request(
            policy=settings.policy.with_(objective, min_gain),
            min_speed=min_speeds(least, names),
            max_power_w=max_power,
            memory_mib=memory_mib,
        )
        return best_partners(names[0], settings, limits, gpu_model)
    of_any: dict[str, Any] = {
        "jobs": job_requests(names, names, least, by_job_ms, read_works(words(work), names)),
        "objective": objective,
        "max_p99_ms": for_all_ms,
        "max_power_w": max_power,
        "memory_mib": memory_mib,
        "min_gain": min_gain,
        "gpu_model": gpu_model,
        "gpu_uuid": gpu_uuid,
        "isolate": isolate,
        "host_cores": cores,
    }
    if len(names) == ADVISED_JOBS:
        asked = RecommendationRequest(**of_any, fine=fine, components=components)
        return _pair(asked, settings, file)
    check_set(len(names))
    _refuse(of_pairs, *_SET)
    asked = SetRequest(**of_any)
    request = request_of(asked, settings)
    found = find_profiles(asked.names, settings, asked.gpu_model, file)
    known = known_set(read_known(found, settings, asked.gpu_uuid))
    return advise_set(known, request)


_ONE = "1 job", "the best partners of one were asked for", "name the other job, too"
_SET = (
    "three jobs and more",
    "they are predicted by physics that does not know it",
    "name two jobs, or leave it out",
)
"""Who is meant, why an option says nothing of them, and what to do."""


def _told(ask: Callable[P, PairAdvice | SetAdvice | Partners]) -> Callable[P, Any]:
    """The same question with the answer as it is told, for programs, and in words for people.

    Which of the three kinds that is hangs on how many jobs are named, which no type can say.
    """

    @functools.wraps(ask)
    def told(*args: P.args, **kwargs: P.kwargs) -> Any:
        found = ask(*args, **kwargs)
        if isinstance(found, Partners):
            return found
        given, answer = found if isinstance(found, tuple) else (found, found)
        return replace(answer, said=said(given, read_settings().prices))

    told.__name__ = told.__qualname__ = "recommend"
    return told


recommend = _told(advise)


def _refuse(options: Mapping[str, object], of: str, why: str, fix: str) -> None:
    """Options that say nothing of so many jobs."""
    if given := [name for name, value in options.items() if value]:
        raise InputError(f"{given[0]} says nothing of {of}", why=why, fix=fix)


def _pair(asked: RecommendationRequest, settings: Settings, file: Path | None) -> PairAdvice:
    """The way that is worth most for two jobs."""
    found = find_profiles(asked.names, settings, asked.gpu_model, file)
    given = answer(read_known(found, settings, asked.gpu_uuid), request_of(asked, settings))
    told = to_wire(given)
    if asked.components:
        # By weights fitted now, to points of the file, too.
        more = [p for p in read_points(file) if isinstance(p, SoloPoint)] if file else []
        known = functools.partial(known_power_of, found, settings, more)
        told = with_components(told, given.decision, known)
    return given, told


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
    profiles: str | Path | None = None,
) -> Replicas:
    """How many copies of a job run on one GPU, and what ends their number.

    Args:
        job: Name of a profiled job.
        most: Copies that are looked at; beyond 7 nothing was measured.
        min_speed: As of `recommend`, with all that follow.
        max_p99: Such as `50ms`.
        max_power: W.
        memory: In MiB or as `80GiB`.
        cores: Host cores for all copies together.
        min_gain: Least gain of one more copy, as a part.
        isolate: Whether a fault of one copy must leave the others running.
        gpu_model: Such as `NVIDIA H200`.
        gpu_uuid: The card.
        profiles: A file of solo points.

    Raises:
        InputError: no profile, or an option that cannot be meant.
        ModelError: there is no model, or it is damaged.
        NoSplitError: not even one copy keeps its limits.
        StoreError: what was measured here cannot be read.
    """
    by_job_ms, for_all_ms = longest_p99_ms(words(max_p99), [job])
    asked = ReplicasRequest(
        jobs=job_requests([job], [job], words(min_speed), by_job_ms),
        most=most,
        max_p99_ms=for_all_ms,
        max_power_w=max_power,
        memory_mib=None if memory is None else parse_memory_mib(str(memory)),
        min_gain=min_gain and read_gain(min_gain),
        gpu_model=gpu_model,
        gpu_uuid=gpu_uuid,
        isolate=isolate,
        host_cores=cores,
    )
    settings, file = read_settings(), None if profiles is None else Path(profiles)
    found = find_profiles([job], settings, gpu_model, file)
    known = read_known(found, settings, gpu_uuid, any_of=True)
    return advise_replicas(known, request_of(asked, settings), most)
