"""Two profiles, a predictor and limits to a recommendation: which way does the most? Pure.

Everything is symmetric: with the jobs swapped, the answer is swapped. Only of a job beside itself,
where mirror images are the same, the smaller share comes first.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from advisor.core.interval import Interval
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    OBJECTIVES,
    Objective,
    SplitResult,
    find_objective,
)
from advisor.core.split import fine_splits
from advisor.core.units import UNIT_NAMES, vendor_of
from advisor.decide.choice import choose
from advisor.decide.constraints import check_limits, misses, with_card_memory
from advisor.decide.memory import check_jobs_fit
from advisor.decide.no_way import no_gain, no_way, saves_nothing
from advisor.decide.reasons import reasons, warnings, why_avoided, why_unsure
from advisor.decide.recommendation import (
    TIE,
    TO_THE_END,
    Option,
    Recommendation,
    Request,
    is_mirrored,
)
from advisor.decide.same_work import gain_to_the_end
from advisor.errors import InputError
from advisor.predict.predictions import (
    NINE,
    UNCAPPED,
    Prediction,
    Predictor,
    Split,
    predict_exclusive,
    safe_pair_splits,
)
from advisor.predict.profiles import Profile
from advisor.predict.rules import Choice, rule_choices
from advisor.validity.safe_counts import CheckedCounts

__all__ = [
    "TIE",
    "Option",
    "Recommendation",
    "Request",
    "candidate_splits",
    "choose",
    "recommend",
]

SHOWN = (DEFAULT_OBJECTIVE, "throughput")
"""Energy and time: shown beside whatever was asked for."""


def recommend(
    a: Profile,
    b: Profile,
    predictor: Predictor,
    request: Request | None = None,
    checked: CheckedCounts | None = None,
) -> Recommendation:
    """The way of running two jobs on one GPU that is worth most and keeps every limit.

    Args:
        a: The first job.
        b: The second job, on the same GPU model; it may be the first one again.
        predictor: Says what to expect of splits.
        request: Objective and limits; the default is energy for the same work, each job at
            `advisor.settings.MIN_SPEED` at least.
        checked: What the check of this GPU model found; no split has a count that is unsafe.

    Raises:
        InputError: profiles of two GPU models, a limit for a job that is not there, a card too
            small for one job alone, an unknown objective, or steps of units on a GPU whose units
            are not known.
        NoSplitError: nothing keeps every limit, not even one after the other; or a job that cannot
            wait takes less energy on a GPU of its own.
    """
    request = with_card_memory(request or Request(), a.gpu_model)
    objective = find_objective(request.objective)
    _check(a, b, request)
    splits = candidate_splits(a, b, checked, fine=request.fine)

    def pick(predictions: Sequence[Prediction], by: Objective = objective) -> Prediction:
        def value(p: Prediction) -> float:
            return _gain(p, a, b, by, request)(p.result)

        return choose(predictions, value, request.tie, mirrored=is_mirrored(a, b))

    rules = rule_choices(a, b, splits, pick, checked)
    options = _options(a, b, predictor, request, {*splits, *_shares(rules)})
    candidates = [options[key] for key in _candidates(splits)]
    feasible = [o.prediction for o in candidates if not o.misses]
    if not feasible:
        raise no_way(candidates, a, b, request)
    choice = options[_key(pick(feasible))]
    if saves_nothing(choice, a, b, request):
        raise no_gain(choice, a, b)
    answer = Recommendation(
        a=a,
        b=b,
        request=request,
        objective=objective,
        choice=choice,
        candidates=tuple(candidates),
        rules={name: options[choice] if choice else None for name, choice in rules.items()},
        picks={
            name: options[_key(pick(feasible, OBJECTIVES[name]))]
            for name in dict.fromkeys((objective.name, *SHOWN))
        },
    )
    wanted = _wanted_splits(a, b, fine=request.fine)
    return dataclasses.replace(
        answer,
        reasons=(*reasons(answer), *why_avoided(a, b, wanted, checked)),
        warnings=(*warnings(answer), *why_unsure(answer, checked)),
    )


def candidate_splits(
    a: Profile, b: Profile, checked: CheckedCounts | None = None, *, fine: bool = False
) -> tuple[Split, ...]:
    """The nine splits, or all in steps of the GPU's quantum, as far as the profiles reach.

    In the place of a split with an unsafe count stands the nearest safe one.

    Raises:
        InputError: steps of units on a GPU whose number of units is not known.
    """
    splits = safe_pair_splits(a, b, _wanted_splits(a, b, fine=fine), checked)
    reached = (s for s in splits if s and s[0] >= a.shares[0] and s[1] >= b.shares[0])
    return tuple(sorted(dict.fromkeys(reached), key=lambda s: (s[0], -s[1])))


def _wanted_splits(a: Profile, b: Profile, *, fine: bool) -> tuple[Split, ...]:
    return (*NINE, *_unit_splits(a, b)) if fine else NINE


def _candidates(splits: Iterable[Split]) -> list[Choice]:
    return [
        *(("split", split) for split in splits),
        ("uncapped", UNCAPPED),
        ("exclusive", UNCAPPED),
    ]


def _shares(rules: Mapping[str, Choice | None]) -> set[Split]:
    """The splits that rules choose; with steps of units they may be no candidates."""
    return {choice[1] for choice in rules.values() if choice and choice[0] == "split"}


def _options(
    a: Profile, b: Profile, predictor: Predictor, request: Request, splits: Iterable[Split]
) -> dict[Choice, Option]:
    """What to expect of these splits, of no limits, and of one after the other."""
    objective = find_objective(request.objective)
    predictions = predictor.predict(a, b, [*sorted(splits), UNCAPPED])
    return {
        _key(p): Option(p, _worth(p, a, b, objective, request), misses(p, a, b, request))
        for p in (*predictions, predict_exclusive(a, b))
    }


def _gain(
    p: Prediction, a: Profile, b: Profile, by: Objective, request: Request
) -> Callable[[SplitResult], float]:
    """The objective as it stands, or for the work that is to be done."""
    if request.work and by.name in TO_THE_END:
        return gain_to_the_end(p, a, b, request.work, by)
    return by.value


def _worth(p: Prediction, a: Profile, b: Profile, by: Objective, request: Request) -> Interval:
    """With bounds; the default objective has some of its own."""
    gain = _gain(p, a, b, by, request)
    return p.worth(by) if gain is by.value else p.range_of(gain)


def _key(p: Prediction) -> Choice:
    return p.way, (p.share_a_percent, p.share_b_percent)


def _unit_splits(a: Profile, b: Profile) -> tuple[Split, ...]:
    total, vendor = a.units_total or b.units_total, vendor_of(a.gpu_model)
    if total is None:
        raise InputError(
            f"the number of {UNIT_NAMES[vendor]} of {a.gpu_model} is not known",
            why="no point of the profiles has units_total",
            fix="leave out the fine splits",
        )
    return tuple((s.shares[0], s.shares[1]) for s in fine_splits(total, vendor))


def _check(a: Profile, b: Profile, request: Request) -> None:
    if a.gpu_model != b.gpu_model:
        raise InputError(
            f"the profile of {a.job} is of {a.gpu_model}, that of {b.job} of {b.gpu_model}",
            why="two jobs that share a GPU run on the same one",
            fix="give profiles of one GPU model",
        )
    check_limits(request, (a, b))
    check_jobs_fit((a, b), request.memory_mib)
