"""Two profiles, a predictor and limits to a recommendation: which way does the most? Pure.

Everything is symmetric: with the jobs swapped, the answer is swapped. Only of a job next to itself,
where mirror images are the same, the smaller share comes first.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

from advisor.core.objectives import (
    ADVISED,
    DEFAULT_OBJECTIVE,
    Objective,
    SplitResult,
    find_objective,
    priced,
)
from advisor.core.split import (
    EXCLUSIVE,
    TIME_SLICED,
    UNCAPPED,
    Split,
)
from advisor.core.units import vendor_of
from advisor.decide.constraints import violations
from advisor.decide.limits import check_jobs_fit, check_limits, with_card_memory
from advisor.decide.no_way import no_gain, no_way, saves_nothing
from advisor.decide.outlook import Outlook, candidate_splits
from advisor.decide.reasons import reasons, warnings, why_unsure
from advisor.decide.recommendation import (
    TIE,
    TO_THE_END,
    Decision,
    RatedSplit,
    Request,
    choose,
)
from advisor.decide.same_work import gain_to_the_end
from advisor.decide.worth import their_call
from advisor.errors import InputError
from advisor.predict.predictions import (
    Prediction,
    Predictor,
    are_mirrored,
)
from advisor.predict.profiles import Profile
from advisor.validity.safe_counts import CheckedCounts

__all__ = [
    "TIE",
    "Decision",
    "RatedSplit",
    "Request",
    "candidate_splits",
    "recommend",
    "recommend_by",
]

SHOWN = (DEFAULT_OBJECTIVE, "throughput")
"""Energy and time: shown next to whatever was asked for."""


def recommend(
    profiles: Sequence[Profile],
    predictor: Predictor,
    request: Request | None = None,
    checked: CheckedCounts | None = None,
) -> Decision:
    """The way of running two jobs on one GPU that is worth most and keeps every limit.

    Args:
        profiles: Of two jobs on the same GPU model; the second may be the first one again.
        predictor: Says what to expect of splits, and of turns where the request is to isolate.
        request: Objective and limits; the default is energy for the same work, each job at
            `advisor.settings.MIN_SPEED` at least.
        checked: What the check of this GPU model found; no split has a count that is unsafe.

    Raises:
        InputError: not two profiles, profiles of two GPU models, a limit for a job that is not
            there, a card too small for one job alone, an unknown objective, or steps of units on a
            GPU whose units are not known.
        NoSplitError: nothing keeps every limit, not even one after the other; or a job that cannot
            wait takes less energy on a GPU of its own.
    """
    return recommend_by(Outlook(profiles, predictor, checked), request or Request())


def recommend_by(outlook: Outlook, request: Request) -> Decision:
    """As `recommend`, for jobs about which more than this is asked.

    Raises:
        InputError: as for `recommend`.
        NoSplitError: as for `recommend`.
    """
    profiles, fine = outlook.profiles, request.fine
    request = with_card_memory(request, profiles[0].gpu_model)
    objective = priced(find_objective(request.objective), request.prices)
    check_request(profiles, request)
    splits = outlook.splits(fine=fine)
    pick = functools.partial(_pick, profiles, request)
    options = _options(outlook, request, splits)
    free = (UNCAPPED, TIME_SLICED, EXCLUSIVE) if TIME_SLICED in options else (UNCAPPED, EXCLUSIVE)
    candidates = [options[split] for split in (*splits, *free)]
    feasible = [o.prediction for o in candidates if not o.violations]
    if not feasible:
        raise no_way(candidates, profiles, request)
    shown = dict.fromkeys((objective.name, *SHOWN))
    picks = {
        name: options[pick(priced(ADVISED[name], request.prices), feasible).split] for name in shown
    }
    enough = _enough_gained(candidates, options[EXCLUSIVE], request)
    choice = picks[objective.name] = options[pick(objective, enough).split]
    if saves_nothing(choice, profiles, request):
        raise no_gain(choice, profiles)
    answer = Decision(
        profiles=profiles,
        request=request,
        objective=objective,
        choice=choice,
        candidates=tuple(candidates),
        picks=picks,
        call=their_call(candidates, request.prices, ("limited",))
        if choice.sharing == "exclusive"
        else None,
    )
    return _explained(answer, outlook)


def _enough_gained(
    candidates: Iterable[RatedSplit], apart: RatedSplit, request: Request
) -> list[Prediction]:
    """What keeps the limits and gains what is asked for, beside one after the other."""
    least, kept = request.min_gain, [o for o in candidates if not o.violations]
    if least and not apart.violations:
        kept = [o for o in kept if o is apart or o.gain_over(apart) >= least]
    return [o.prediction for o in kept]


def _pick(
    profiles: Sequence[Profile], request: Request, by: Objective, of: Sequence[Prediction]
) -> Prediction:
    """The prediction that is worth most by an objective."""

    def value(p: Prediction) -> float:
        return _gain(p, profiles, by, request)(p.result)

    return choose(of, value, request.tie, mirrored=are_mirrored(profiles))


def _explained(answer: Decision, outlook: Outlook) -> Decision:
    """The same with its reasons and warnings."""
    return dataclasses.replace(
        answer,
        reasons=(*reasons(answer), *outlook.avoided(fine=answer.request.fine)),
        warnings=(*warnings(answer), *why_unsure(answer, outlook.checked)),
    )


def _options(
    outlook: Outlook, request: Request, splits: Iterable[Split]
) -> dict[Split, RatedSplit]:
    """What to expect of these splits, of no limits, and of one after the other.

    Of turns where a fault must stay alone, which MPS does not keep.
    """
    profiles = outlook.profiles
    is_nvidia = vendor_of(profiles[0].gpu_model) == "nvidia"
    turns = [TIME_SLICED] if request.isolate and is_nvidia else []
    objective = priced(find_objective(request.objective), request.prices)
    return {
        p.split: rated(p, profiles, objective, request) for p in outlook.expected(splits, turns)
    }


def _gain(
    p: Prediction, profiles: Sequence[Profile], by: Objective, request: Request
) -> Callable[[SplitResult], float]:
    """The objective as it stands, or for the work that is to be done."""
    if request.work and by.name in TO_THE_END:
        return gain_to_the_end(p, profiles, request.work, by)
    return by.value


def rated(
    p: Prediction, profiles: Sequence[Profile], by: Objective, request: Request
) -> RatedSplit:
    """What a way is worth, with bounds, and the limits that it breaks."""
    gain = _gain(p, profiles, by, request)
    # The default objective has bounds of its own.
    value = p.objective_value(by) if gain is by.value else p.range_of(gain)
    return RatedSplit(p, value, violations(p, profiles, request))


def check_request(profiles: Sequence[Profile], request: Request) -> None:
    """Refuse profiles of several GPU models, and limits that are for none of these jobs.

    Raises:
        InputError: as said, or a card too small for one job alone.
    """
    if len({profile.gpu_model for profile in profiles}) > 1:
        raise InputError(
            f"the profile of {', that of '.join(f'{p.job} is of {p.gpu_model}' for p in profiles)}",
            why="jobs that share a GPU run on the same one",
            fix="give profiles of one GPU model",
        )
    check_limits(request, profiles)
    check_jobs_fit(profiles, request.memory_mib)
