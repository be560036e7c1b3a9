"""The best way of running a set of jobs on one GPU, or that each gets a card. Pure.

Ways are generated from what is known of the jobs, and all of them are looked at: MPS without
limits, MPS with limits for those that fill the GPU, in turns, and one after the other. Limits for
small jobs cost speed and tails and save nothing (docs/measurements/sets.md).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from advisor.core.gpu import WHOLE, share_for_units, units_for_share, vendor_of
from advisor.core.objectives import Objective, find_objective, priced
from advisor.core.split import (
    ADVISED_JOBS,
    ISOLATING,
    MOST_JOBS,
    SHARINGS,
    Sharing,
    Split,
    best_within_tie,
    can_be_masked,
    without_limits,
)
from advisor.decide.limits import UNSURE_BELOW, violations_alone, with_card_memory
from advisor.decide.reasons import no_way
from advisor.decide.recommend import check_request, rated
from advisor.decide.recommendation import (
    TURNS_MARGIN,
    RatedSplit,
    Request,
    their_call,
    worst_violation,
)
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import Predictor
from advisor.predict.profiles import Profile
from advisor.predict.sets import fills
from advisor.validity.safe_counts import CheckedCounts

MOST_WAYS = 250
"""With limits: the levels of each job that fills are spread evenly, so that all of its ways
together are no more. One such job is looked at under each safe count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Jobs that run together and keep their shares, beside which another one is to run.

    Attributes:
        cap_percent: The largest share that the newcomer can get.
    """

    shares: tuple[float, ...]
    sharing: Sharing
    cap_percent: float


def candidate_ways(
    profiles: Sequence[Profile],
    checked: CheckedCounts | None = None,
    most_ways: int = MOST_WAYS,
) -> tuple[Split, ...]:
    """Every way that is looked at, one after the other among them.

    AMD GPUs have no turns to choose: without masks processes run side by side.
    """
    is_amd = vendor_of(profiles[0].gpu_model) == "amd"
    sharings: tuple[Sharing, ...] = ("uncapped", "exclusive") if is_amd else SHARINGS[1:]
    free = (without_limits(sharing, len(profiles)) for sharing in sharings)
    limited = (w for w in _limited(profiles, checked, most_ways) if not is_amd or can_be_masked(w))
    return (*free, *limited)


def _limited(
    profiles: Sequence[Profile], checked: CheckedCounts | None, most_ways: int
) -> Iterator[Split]:
    """Limits for some or all of those that fill the GPU; the others have none."""
    seats: dict[str, list[int]] = {}
    for seat, profile in enumerate(profiles):
        if fills(profile):
            seats.setdefault(profile.job, []).append(seat)
    if not seats:
        return
    most_levels = _most_levels([*map(len, seats.values())], most_ways)
    choices: list[Iterable[tuple[float, ...]]] = []
    for own in seats.values():
        limits = _limits(profiles[own[0]], checked)
        levels = (*_spread(limits, most_levels - 1), WHOLE)
        choices.append(itertools.combinations_with_replacement(levels, len(own)))
    for chosen in itertools.product(*choices):
        shares = [WHOLE] * len(profiles)
        for own, of_copies in zip(seats.values(), chosen, strict=True):
            for seat, share in zip(own, of_copies, strict=True):
                shares[seat] = share
        if min(shares) < WHOLE:
            yield Split(tuple(shares))


def _joining_ways(
    running: Running, profiles: Sequence[Profile], checked: CheckedCounts | None
) -> Iterator[Split]:
    """Every share that the last job can get, none among them where nothing bounds it."""
    limits = [*_limits(profiles[-1], checked), WHOLE] if running.sharing == "limited" else [WHOLE]
    ways = (
        Split((*running.shares, share), running.sharing)
        for share in limits
        if share <= running.cap_percent
    )
    is_amd = vendor_of(profiles[-1].gpu_model) == "amd"
    yield from (way for way in ways if not is_amd or can_be_masked(way))


def _most_levels(copies: Sequence[int], most_ways: int) -> int:
    """How many levels each job that fills may have, no limit among them; of copies, so many each.

    Which of several copies has which limit makes no difference.
    """
    return max(
        (
            levels
            for levels in range(2, most_ways + 1)
            if math.prod(math.comb(levels + n - 1, n) for n in copies) <= most_ways
        ),
        default=1,
    )


def _safe_ways(
    splits: Iterable[Split], profiles: Sequence[Profile], checked: CheckedCounts | None
) -> Iterator[Split]:
    """Those of the splits at which no job has an unsafe count."""
    safeties = [profile.safety(checked) for profile in profiles]
    for split in splits:
        seats = zip(split.shares, safeties, strict=True)
        if not any(
            share < WHOLE
            and s.units_total
            and units_for_share(share, s.units_total, s.vendor) in s.unsafe
            for share, s in seats
        ):
            yield split


def _limits(profile: Profile, checked: CheckedCounts | None) -> list[float]:
    """Limits of one job at safe counts, ascending, as far as its profile reaches."""
    safety, least = profile.safety(checked), float(profile.shares[0])
    total = safety.units_total
    if total is None:
        shares = [float(share) for share in range(10, 100, 10)]
    else:
        allowed = (units for units in safety.allowed if units < total)
        shares = [share_for_units(units, total, safety.vendor) for units in allowed]
    return [share for share in shares if least <= share < WHOLE]


def _spread(shares: Sequence[float], most: int) -> list[float]:
    if len(shares) <= most:
        return list(shares)
    return [shares[round((n + 0.5) * len(shares) / most - 0.5)] for n in range(most)]


FEW_WAYS = 40
"""The same of each set with one job less: up to seven of them are looked at for a hint."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SetDecision:
    """How a set of jobs is to run.

    Attributes:
        profiles: Of the jobs, in the order asked.
        choice: One of `ways`; None: a card each, or one after the other where none cannot wait.
        call: Where there is no choice, one of `ways` that saves GPU time for little more energy, so
            that prices decide; None: there is none.
        ways: The best of each sharing; where none keeps the limits, the nearest.
        looked_at: All ways that were looked at.
    """

    profiles: tuple[Profile, ...]
    request: Request
    objective: Objective
    choice: RatedSplit | None
    call: RatedSplit | None
    ways: tuple[RatedSplit, ...]
    looked_at: tuple[RatedSplit, ...]

    @property
    def searched(self) -> int:
        """How many ways were looked at."""
        return len(self.looked_at)


def recommend_set(
    profiles: Sequence[Profile],
    predictor: Predictor,
    request: Request | None = None,
    checked: CheckedCounts | None = None,
    measured: Iterable[Split] = (),
    *,
    most_ways: int = MOST_WAYS,
    running: Running | None = None,
) -> SetDecision:
    """The way that is worth most and keeps every limit; the answer does not depend on the order.

    Splits at which these jobs were measured are looked at, too, where their counts are safe. Where
    all but the last are `running`, only the share of that one is open.

    Raises:
        InputError: too many jobs, or as `advisor.decide.recommend.check_request`.
        NoSplitError: nothing keeps every limit, not even a card each.
    """
    profiles = tuple(profiles)
    check_set(len(profiles))
    request = with_card_memory(request or Request(), profiles[0].gpu_model)
    check_request(profiles, request)
    request = replace(request, unsure_below=UNSURE_BELOW)
    objective = priced(find_objective(request.objective), request.prices)
    own = candidate_ways(profiles, checked, most_ways)
    ways = (*own, *_safe_ways(measured, profiles, checked))
    if running is not None:
        ways = (
            without_limits("exclusive", len(profiles)),
            *_joining_ways(running, profiles, checked),
        )
    options = [
        rated(p, profiles, objective, request)
        for p in predictor.predict(profiles, list(dict.fromkeys(ways)))
    ]
    apart = next(o for o in options if o.sharing == "exclusive")
    kept = [o for o in options if not o.violations and o is not apart]
    least = apart.objective_value.value * (1 + request.min_gain)
    # Where a card each breaks a limit, too, a way that keeps all is the answer, whatever it gains.
    only_shared = any(violations_alone(profile, request) for profile in profiles)
    enough = [o for o in kept if only_shared or worth(o) >= least]
    if not enough and only_shared:
        raise no_way(options, profiles, request)
    # Turns save hours by a prediction that is less sure.
    calls: Sequence[Sharing] = ISOLATING if request.isolate else ("limited", "uncapped")
    call = None if enough else their_call(kept, request.prices, calls)
    shown = [*_best_of_each(options, profiles, request.tie)]
    return SetDecision(
        profiles=profiles,
        request=request,
        objective=objective,
        choice=_best(enough, profiles, request.tie) if enough else None,
        call=call,
        ways=(*shown, call) if call and call not in shown else tuple(shown),
        looked_at=tuple(options),
    )


def without_one(
    found: SetDecision, predictor: Predictor, checked: CheckedCounts | None = None
) -> tuple[str, RatedSplit] | None:
    """The job without which the others, three at least, share with most energy saved, and how.

    None: there is no such job; two jobs are for a model of pairs to say.
    """
    best: tuple[str, RatedSplit] | None = None
    for job in dict.fromkeys(p.job for p in found.profiles):
        seat = next(n for n, p in enumerate(found.profiles) if p.job == job)
        others = [p for n, p in enumerate(found.profiles) if n != seat]
        if len(others) <= ADVISED_JOBS:
            return None
        try:
            request = found.request.of(others)
            fewer = recommend_set(others, predictor, request, checked, most_ways=FEW_WAYS).choice
        except NoSplitError:
            continue
        saved = fewer and fewer.prediction.energy_saved.value
        if fewer and saved and (best is None or saved > best[1].prediction.energy_saved.value):
            best = job, fewer
    return best


def worth(option: RatedSplit) -> float:
    """Objective value divided by (1 + margin); time slicing has a margin of 5 %."""
    margin = TURNS_MARGIN if option.sharing == "time-sliced" else 0.0
    return option.objective_value.value / (1 + margin)


def check_set(jobs: int) -> None:
    """Refuse more jobs than sets were measured of, or fewer."""
    if not ADVISED_JOBS <= jobs <= MOST_JOBS:
        raise InputError(
            f"there is no advice for {jobs} jobs on one GPU",
            why=f"sets of two to {MOST_JOBS} were measured",
            fix="name fewer jobs; for a queue of jobs ask for a plan: advisor place",
        )


def _best(options: Sequence[RatedSplit], profiles: Sequence[Profile], tie: float) -> RatedSplit:
    """Of ways worth the same, that with the fewest and the loosest limits."""

    def rank(option: RatedSplit, value: float) -> tuple[object, ...]:
        split = option.prediction.split
        limits = [WHOLE - share for share in split.shares if share < WHOLE]
        jobs = sorted(zip([p.job for p in profiles], split.shares, strict=True))
        return len(limits), sum(limits), -value, SHARINGS.index(split.sharing), jobs

    return best_within_tie(options, worth, tie, rank)


def _best_of_each(
    options: Sequence[RatedSplit], profiles: Sequence[Profile], tie: float
) -> Iterator[RatedSplit]:
    for sharing in SHARINGS:
        own = [option for option in options if option.sharing == sharing]
        if kept := [option for option in own if not option.violations]:
            yield _best(kept, profiles, tie)
        elif own:
            least = min(worst_violation(option).by for option in own)
            yield _best([o for o in own if worst_violation(o).by == least], profiles, tie)
