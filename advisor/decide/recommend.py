"""Two profiles, a predictor and limits to a recommendation: which way does the most? Pure.

Everything is symmetric: with the jobs swapped, the answer is swapped. Only of a job next to itself,
where mirror images are the same, the smaller share comes first.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from advisor.core.gpu import UNIT_NAMES, vendor_of
from advisor.core.interval import Interval
from advisor.core.objectives import (
    ADVISED,
    DEFAULT_OBJECTIVE,
    Objective,
    SplitResult,
    find_objective,
    priced,
)
from advisor.core.split import (
    EQUAL,
    EXCLUSIVE,
    NINE,
    TIME_SLICED,
    UNCAPPED,
    Split,
    check_advised,
    fine_splits,
    without_limits,
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
from advisor.predict.features import physical_power_w, side
from advisor.predict.predictions import (
    Prediction,
    Predictor,
    are_mirrored,
    is_within,
    predict_exclusive,
    predicted_part,
    safe_splits_of,
)
from advisor.predict.profiles import Floats, Profile
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
        self.profiles, self.checked = tuple(profiles), checked
        self._predictor = predictor
        # Several threads may ask: then the same is worked out twice, and kept once.
        self._splits = dict[bool, tuple[Split, ...]]()
        self._physical = dict[tuple[Split, ...], list[Prediction]]()
        self._expected = dict[tuple[Split, ...], list[Prediction]]()
        self._avoided = dict[bool, tuple[str, ...]]()
        self._simple: Mapping[str, Split | None] | None = None

    def splits(self, *, fine: bool) -> tuple[Split, ...]:
        """`candidate_splits` of them.

        Raises:
            InputError: as that says.
        """
        if fine not in self._splits:
            self._splits[fine] = candidate_splits(self.profiles, self.checked, fine=fine)
        return self._splits[fine]

    def physical(self, *, fine: bool) -> list[Prediction]:
        """By rates alone and added powers, of each of these splits."""
        splits = self.splits(fine=fine)
        if splits not in self._physical:
            self._physical[splits] = physical_predictions(self.profiles, splits)
        return self._physical[splits]

    def avoided(self, *, fine: bool) -> tuple[str, ...]:
        """Which counts of all splits are not used, since results are wrong there."""
        if fine not in self._avoided:
            wanted, names = _wanted_splits(self.profiles, fine=fine), [p.job for p in self.profiles]
            safeties = [profile.safety(self.checked) for profile in self.profiles]
            self._avoided[fine] = tuple(dict.fromkeys(avoided_texts(wanted, names, safeties)))
        return self._avoided[fine]

    @property
    def simple(self) -> Mapping[str, Split | None]:
        """What rules choose that look at nothing but the jobs."""
        if self._simple is None:
            self._simple = simple_choices(self.profiles, self.checked)
        return self._simple

    def expected(self, splits: Iterable[Split], turns: Sequence[Split] = ()) -> list[Prediction]:
        """Of these splits, of no limits, of turns where wanted, and of one after the other.

        Raises:
            InputError: as the predictor does.
        """
        key = (*sorted(splits), UNCAPPED, *turns)
        if key not in self._expected:
            found = self._predictor.predict(self.profiles, key)
            self._expected[key] = [*found, predict_exclusive(self.profiles)]
        return self._expected[key]


def candidate_splits(
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
    """The nine, or those in steps of units as well, before any is replaced or left out.

    Raises:
        InputError: as for `candidate_splits`.
    """
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
    physical = outlook.physical(fine=fine)
    by_physics = pick(objective, physical).split if physical else None
    rules = {**outlook.simple, "physical": by_physics}
    # With steps of units what a rule chooses may be no candidate.
    limited = {split for split in (*splits, *rules.values()) if split and split.is_limited}
    options = _options(outlook, request, limited)
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
        rules={name: options[split] if split else None for name, split in rules.items()},
        picks=picks,
        call=their_call(candidates, request.prices, ("limited",))
        if choice.sharing == "exclusive"
        else None,
    )
    return _explained(answer, outlook)


def _enough_gained(
    candidates: Iterable[RatedSplit], apart: RatedSplit, request: Request
) -> list[Prediction]:
    least, kept = request.min_gain, [o for o in candidates if not o.violations]
    if least and not apart.violations:
        kept = [o for o in kept if o is apart or o.gain_over(apart) >= least]
    return [o.prediction for o in kept]


def _pick(
    profiles: Sequence[Profile], request: Request, by: Objective, of: Sequence[Prediction]
) -> Prediction:

    def value(p: Prediction) -> float:
        return _gain(p, profiles, by, request)(p.result)

    return choose(of, value, request.tie, mirrored=are_mirrored(profiles))


def _explained(answer: Decision, outlook: Outlook) -> Decision:
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


MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "equal": "half of the GPU for each",
        "uncapped": "MPS without limits",
        "exclusive": "one after the other",
        "larger-rate": "90 % for the job with more steps per second",
        "physical": "the best by rates alone and added powers; no learning",
    }
)
"""Every rule by name."""


def simple_choices(
    profiles: Sequence[Profile], checked: CheckedCounts | None = None
) -> dict[str, Split | None]:
    """What each rule of `MEANINGS` but physics chooses; None: a split that is not reached.

    In the place of a split with an unsafe count stands the nearest safe one.
    """
    equal, larger = safe_splits_of(profiles, [EQUAL, _larger_rate(profiles)], checked)
    return {
        "equal": _within(profiles, equal),
        "uncapped": without_limits("uncapped", len(profiles)),
        "exclusive": without_limits("exclusive", len(profiles)),
        "larger-rate": _within(profiles, larger),
    }


def physical_predictions(profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
    """Rates alone at the shares; all powers less the active idle power shared, up to the limit.

    It is no measure of its own error: the bounds are the values.
    """
    sides = [side(p, [split.shares[i] for split in splits]) for i, p in enumerate(profiles)]
    speeds = zip(*(_exact(one.alone["relative_rate"]) for one in sides), strict=True)
    return [
        Prediction(
            split=split,
            parts=tuple(map(predicted_part, profiles, of_split)),
            power_w=power_w,
        )
        for split, of_split, power_w in zip(
            splits, speeds, _exact(physical_power_w(sides)), strict=True
        )
    ]


def _exact(values: Floats) -> list[Interval]:
    return [Interval(value, value, value) for value in values.tolist()]


def _larger_rate(profiles: Sequence[Profile]) -> Split:
    one, other = (profile.whole_gpu_rate for profile in profiles)
    if one == other:
        return EQUAL
    return Split((90.0, 10.0) if one > other else (10.0, 90.0))


def _within(profiles: Sequence[Profile], split: Split | None) -> Split | None:
    return split if split and is_within(split, profiles) else None
