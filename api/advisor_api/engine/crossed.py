"""What all pairs of a GPU model's jobs gain, worked out pair by pair while others are answered."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence

from advisor.errors import InputError, NoSplitError
from advisor.predict.profiles import Profile
from advisor.wire.lists import JobRow
from advisor.wire.partners import Gains, Partner
from advisor.wire.recommendation import SharingVerdict
from advisor.wire.requests import MOST_CROSSED, GainsRequest, JobRequest, RecommendationRequest
from advisor_advice.answers import ModelAdvice, verdict_of
from advisor_advice.partners import DIGITS, curve_of, partner_of
from advisor_advice.profiles import ProfileSet
from advisor_data.files.bundled import GPU_MODEL as BUNDLED_MODEL

_Found = Callable[[Sequence[str], str], Awaitable[ProfileSet]]
Answered = Callable[[RecommendationRequest], Awaitable[ModelAdvice]]

_Cell = tuple[SharingVerdict | None, Partner | None]


async def crossed(
    asked: GainsRequest, rows: Sequence[JobRow], found: _Found, answered: Answered
) -> Gains:
    """The gains of jobs that are named, or of those that are measured on the GPU model.

    Raises:
        InputError: a job that is named has no profile there.
        ModelError: as for a recommendation.
        StoreError: likewise.
    """
    gpu_model = asked.gpu_model or BUNDLED_MODEL
    names = list(dict.fromkeys(asked.jobs)) or _measured(rows, gpu_model)
    kept = sorted(names[:MOST_CROSSED])
    profiles = [await _profile(name, gpu_model, found, is_named=bool(asked.jobs)) for name in kept]
    known = [one for one in profiles if one]
    jobs = [one.a for one in known]
    cells = [await _cell(request, answered) for request in _requests(asked, gpu_model, jobs)]
    partners = [partner for _, partner in cells]
    return Gains(
        gpu_model=gpu_model,
        objective=asked.objective,
        beside=asked.beside,
        jobs=tuple(curve_of(one.a, bundled=bool(one.bundled)) for one in known),
        left_out=max(0, len(names) - MOST_CROSSED),
        verdicts=tuple(verdict for verdict, _ in cells),
        splits=tuple(p and p.split for p in partners),
        gpu_time_saved=tuple(p and round(p.gpu_time_saved.value, DIGITS) for p in partners),
        energy_saved=tuple(p and round(p.energy_saved.value, DIGITS) for p in partners),
        speeds=tuple(
            p and (round(p.speed.value, DIGITS), round(p.partner_speed.value, DIGITS))
            for p in partners
        ),
    )


def _measured(rows: Sequence[JobRow], gpu_model: str) -> list[str]:
    """Names of those with a profile, those measured here first."""
    own = [row for row in rows if row.gpu_model == gpu_model]
    return [row.job for row in sorted(own, key=lambda row: (row.source == "bundled", row.job))]


async def _profile(
    name: str, gpu_model: str, found: _Found, *, is_named: bool
) -> ProfileSet | None:
    try:
        return await found([name], gpu_model)
    except InputError:  # a list may have jobs with too few points for a profile
        if is_named:
            raise
        return None


def _requests(
    asked: GainsRequest, gpu_model: str, jobs: Sequence[Profile]
) -> Iterator[RecommendationRequest]:
    names = [profile.job for profile in jobs]
    pairs = (
        ((asked.beside, name) for name in names)
        if asked.beside
        else itertools.combinations_with_replacement(names, 2)
    )
    for pair in pairs:
        yield RecommendationRequest(
            jobs=tuple(JobRequest(job=name) for name in pair),
            gpu_model=gpu_model,
            objective=asked.objective,
            min_speed=asked.min_speed,
            max_power_w=asked.max_power_w,
            memory_mib=asked.memory_mib,
            min_gain=asked.min_gain,
        )


async def _cell(request: RecommendationRequest, answered: Answered) -> _Cell:
    await asyncio.sleep(0)  # others are answered between two pairs
    try:
        decision = (await answered(request)).recommendation
    except NoSplitError:
        return None, None
    return verdict_of(decision), next(partner_of(decision), None)
