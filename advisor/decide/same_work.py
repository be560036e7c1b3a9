"""What ways of running two jobs take in energy and time for the same work. Pure."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from advisor.core.finish import Finish, Rest, Work, finish, one_after_the_other, work_of
from advisor.core.objectives import DEFAULT_OBJECTIVE, Objective, SplitResult
from advisor.decide.recommendation import Decision
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkToTheEnd:
    """One amount of work, done in several ways.

    Attributes:
        work: What was asked for; else what the chosen way does in an hour.
        choice: The chosen way; where one job ends first, the other goes on under its limit.
        restarted: The same, the other restarted without a limit; None where both end together.
        exclusive: One job after the other.
    """

    work: Work
    choice: Finish
    restarted: Finish | None
    exclusive: Finish


def same_work(r: Decision) -> WorkToTheEnd:
    """The work of a recommendation, in the recommended way and one job after the other."""
    p = r.choice.prediction
    work = r.request.work or work_of(p.result, HOUR_S)
    chosen = to_the_end(p, p.result, r.profiles, work)
    restarted = finish(p.result, work) if p.split.is_limited and r.request.work else None
    return WorkToTheEnd(
        work=work,
        choice=chosen,
        restarted=restarted,
        exclusive=one_after_the_other(r.exclusive.prediction.result, work),
    )


def gain_to_the_end(
    p: Prediction, profiles: Sequence[Profile], work: Work, objective: Objective
) -> Callable[[SplitResult], float]:
    """Energy (or time) of the work one after the other, for each one that it takes this way."""

    def gain(result: SplitResult) -> float:
        this, alone = to_the_end(p, result, profiles, work), one_after_the_other(result, work)
        if objective.name == DEFAULT_OBJECTIVE:
            return alone.energy_j / this.energy_j
        return alone.time_s / this.time_s

    return gain


def to_the_end(
    p: Prediction, result: SplitResult, profiles: Sequence[Profile], work: Work
) -> Finish:
    """All jobs until they are done; the limit of the one that goes on stays."""
    if p.split.sharing == "exclusive":
        return one_after_the_other(result, work)
    if not p.split.is_limited:
        return finish(result, work)
    return finish(result, work, list(map(_alone, profiles, p.split.shares)))


@functools.lru_cache(maxsize=4096)
def _alone(profile: Profile, share: float) -> Rest:
    """A job alone under its limit, from its profile."""
    at = profile.at([share])
    return Rest(float(at["rate"][0]) / profile.whole_gpu_rate, float(at["power_w"][0]))
