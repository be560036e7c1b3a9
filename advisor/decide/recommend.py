"""Two profiles, a predictor and limits to a recommendation: which way does the most? Pure.

Everything is symmetric: with the jobs swapped, the answer is swapped. Only of a job next to itself,
where mirror images are the same, the smaller share comes first.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

from advisor.core.gpu import UNIT_NAMES, vendor_of
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
    NINE,
    TIME_SLICED,
    UNCAPPED,
    Split,
    check_advised,
    fine_splits,
)
from advisor.decide.limits import check_jobs_fit, check_limits, violations, with_card_memory
from advisor.decide.reasons import no_gain, no_way, reasons, saves_nothing, warnings, why_unsure
from advisor.decide.recommendation import (
    TO_THE_END,
    Decision,
    RatedSplit,
    Request,
    choose,
    gain_to_the_end,
    their_call,
)
from advisor.errors import InputError
from advisor.predict.predictions import (
    Prediction,
    Predictor,
    are_mirrored,
    is_within,
    predict_exclusive,
    safe_splits_of,
)
from advisor.predict.profiles import Profile
from advisor.validity.safe_counts import CheckedCounts, avoided_texts


class Outlook:
    """Ways of running two jobs and what they would do, each worked out once for all requests.

    Args:
        profiles: Of two jobs on one GPU model; the second may be the first one again.
        predictor: Says what to expect of splits, and of turns.
        checked: What the check of this GPU model found; no split has a count that is unsafe.

    Raises:
        InputError: not two profiles.
    """

    def __init__(
        self,
        profiles: Sequence[Profile],
        predictor: Predictor,
        checked: CheckedCounts | None = None,
    ) -> None:
        check_advised(len(profiles))
        self.profiles, self.checked, self._predictor = tuple(profiles), checked, predictor
        # Two threads that ask at once both work it out.
        self.splits = functools.cache(self._splits)
        self.avoided = functools.cache(self._avoided)
        self._predicted = functools.cache(self._predict)

    def _splits(self, *, fine: bool) -> tuple[Split, ...]:
        return _candidate_splits(self.profiles, self.checked, fine=fine)

    def _avoided(self, *, fine: bool) -> tuple[str, ...]:
        """Counts of all splits that are not used, since results are wrong there."""
        wanted, names = _wanted_splits(self.profiles, fine=fine), [p.job for p in self.profiles]
        safeties = [profile.safety(self.checked) for profile in self.profiles]
        return tuple(dict.fromkeys(avoided_texts(wanted, names, safeties)))

    def expected(self, splits: Iterable[Split], turns: Sequence[Split] = ()) -> list[Prediction]:
        """Predictions of these splits, of no limits, of turns, and of one job after the other."""
        return self._predicted((*sorted(splits), UNCAPPED, *turns))

    def _predict(self, splits: tuple[Split, ...]) -> list[Prediction]:
        found = self._predictor.predict(self.profiles, splits)
        return [*found, predict_exclusive(self.profiles)]


def _candidate_splits(
    profiles: Sequence[Profile], checked: CheckedCounts | None = None, *, fine: bool = False
) -> tuple[Split, ...]:
    """The nine splits, or all in steps of the GPU's quantum, as far as the profiles reach.

    In the place of a split with an unsafe count stands the nearest safe one.

    Raises:
        InputError: steps of units on a GPU whose number of units is not known.
    """
    splits = safe_splits_of(profiles, _wanted_splits(profiles, fine=fine), checked)
    reached = (split for split in splits if split and is_within(split, profiles))
    return tuple(sorted(dict.fromkeys(reached), key=lambda s: (s.shares[0], -s.shares[1])))


def _wanted_splits(profiles: Sequence[Profile], *, fine: bool) -> tuple[Split, ...]:
    """The nine, or those in steps of units as well, before any is replaced or left out."""
    return (*NINE, *_unit_splits(profiles)) if fine else NINE


def _unit_splits(profiles: Sequence[Profile]) -> tuple[Split, ...]:
    gpu_model = profiles[0].gpu_model
    vendor = vendor_of(gpu_model)
    total = next((p.units_total for p in profiles if p.units_total), None)
    if total is None:
        raise InputError(
            f"the number of {UNIT_NAMES[vendor]} of {gpu_model} is not known",
            why="no point of the profiles has units_total",
            fix="leave out the fine splits",
        )
    return fine_splits(total, vendor)


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
    """As `recommend`, for jobs about which more than this is asked."""
    profiles, fine = outlook.profiles, request.fine
    request = with_card_memory(request, profiles[0].gpu_model)
    objective = priced(find_objective(request.objective), request.prices)
    check_request(profiles, request)
    splits = outlook.splits(fine=fine)

    def pick(by: Objective, of: Sequence[Prediction]) -> Prediction:
        return choose(
            of,
            lambda p: _gain(p, profiles, by, request)(p.result),
            request.tie,
            mirrored=are_mirrored(profiles),
        )

    # A fault must stay alone, which MPS does not keep.
    turns = (
        (TIME_SLICED,) if request.isolate and vendor_of(profiles[0].gpu_model) == "nvidia" else ()
    )
    options = {
        p.split: rated(p, profiles, objective, request) for p in outlook.expected(splits, turns)
    }
    candidates = [options[split] for split in (*splits, UNCAPPED, *turns, EXCLUSIVE)]
    feasible = [o.prediction for o in candidates if not o.violations]
    if not feasible:
        raise no_way(candidates, profiles, request)
    shown = dict.fromkeys((objective.name, *SHOWN))
    picks = {
        name: options[pick(priced(ADVISED[name], request.prices), feasible).split] for name in shown
    }
    apart, enough = options[EXCLUSIVE], feasible
    if request.min_gain and not apart.violations:
        enough = [
            p
            for p in feasible
            if p is apart.prediction or options[p.split].gain_over(apart) >= request.min_gain
        ]
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
    return dataclasses.replace(
        answer,
        reasons=(*reasons(answer), *outlook.avoided(fine=fine)),
        warnings=(*warnings(answer), *why_unsure(answer, outlook.checked)),
    )


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
    """Refuse profiles of several GPU models, and limits that are for none of these jobs."""
    if len({profile.gpu_model for profile in profiles}) > 1:
        raise InputError(
            f"the profile of {', that of '.join(f'{p.job} is of {p.gpu_model}' for p in profiles)}",
            why="jobs that share a GPU run on the same one",
            fix="give profiles of one GPU model",
        )
    check_limits(request, profiles)
    check_jobs_fit(profiles, request.memory_mib)
