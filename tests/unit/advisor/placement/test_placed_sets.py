"""Running jobs in sets: limits are kept, every job has a seat, and the bound is below any plan."""

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from made_up_profiles import Physics as Unlearned
from made_up_profiles import active_job as job

from advisor.core.gpu import MOST_JOBS
from advisor.core.objectives import AIMS, Policy, Prices, Work
from advisor.decide.decision import Decision
from advisor.decide.limits import Request, is_served, violations
from advisor.errors import InputError, NoSplitError
from advisor.placement import search, solver
from advisor.placement.bound import SetBound
from advisor.placement.placing import (
    LEVELS,
    NINE_SPLITS,
    Kind,
    PlacedSet,
    Placing,
    Pool,
    SetAnswers,
    Sets,
    make_placing,
    many_alone,
    set_answers,
)
from advisor.placement.search import SetSearch
from advisor.placement.solver import Plan, place
from advisor.predict.predictions import AskedPair, ExpectedPair, Prediction, Predictions
from advisor.predict.profiles import Profile, Serving
from advisor.predict.sets import SetPredictor

few = settings(max_examples=settings().max_examples // 5)
"""Each example solves several programs."""


class Physics(Unlearned):
    """With what a placement asks of pairs."""

    def expected(self, asked: Sequence[AskedPair]) -> list[ExpectedPair]:
        return [_expected(self.predict(*of_pair)) for of_pair in asked]


def _expected(found: Iterable[Prediction]) -> ExpectedPair:
    speeds = [[part.speed.value for part in p.parts] for p in found]
    return ExpectedPair(np.array(speeds).T, np.array([p.power_w.value for p in found]))


def server(name: str, sm: float = 10.0, **fields: Any) -> Profile:
    """Answers 100 requests a second, with a p99 of 4 ms alone."""
    tails_ms = ((10.0, 4.0), (100.0, 4.0))
    serving = Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=tails_ms)
    return job(name, sm, serving=serving, **fields)


def placing_of(
    jobs: Sequence[tuple[Profile, int]],
    gpus: int,
    aim: str = "energy-efficiency",
    limits: Request | None = None,
    **pool: Any,
) -> Placing:
    profiles = tuple(profile for profile, _ in jobs)
    kinds = [Kind(name=p.job, count=count, is_server=is_served(p)) for p, count in jobs]
    cards = Pool(
        gpu_model=profiles[0].gpu_model,
        gpus=gpus,
        profiles=profiles,
        limits=limits or Request(),
        idle_power_w=70.0,
        **pool,
    )
    return make_placing(kinds, [cards], aim, Prices(gpu_hour=2.0, kwh=0.1))


@some.composite
def placings(
    draw: some.DrawFn, most: int = 8, of_pairs: Sequence[Physics | None] = (None, Physics())
) -> Placing:
    dice = np.random.default_rng(draw(some.integers(0, 10_000)))
    servers = [draw(some.booleans()) for _ in range(draw(some.integers(1, 4)))]
    jobs = [
        (
            server(f"s{n}", dice.uniform(3, 60), dram=dice.uniform(1, 50))
            if serves
            else job(f"j{n}", dice.uniform(3, 99), dice.uniform(150, 690), dice.uniform(1, 50)),
            draw(some.integers(1, most // 2)),
        )
        for n, serves in enumerate(servers)
    ]
    limits = Request(
        policy=Policy(min_speed=draw(some.sampled_from([0.2, 0.4, 0.8]))),
        default_max_p99_ms=10.0 if any(servers) and draw(some.booleans()) else None,
        min_speed={"s0": 0.0} if servers[0] and draw(some.booleans()) else {},
        # Below what some draw alone, and not beside another job under a limit.
        max_power_w=draw(some.sampled_from([None, 450.0, 600.0])),
    )
    cards, aim = draw(some.integers(1, most)), draw(some.sampled_from(AIMS))
    return placing_of(jobs, cards, aim, limits, of_pairs=draw(some.sampled_from(of_pairs)))


@pytest.mark.slow
@few
@given(placings())
def test_plan_keeps_every_limit_and_the_bound_is_below_it(placing: Placing) -> None:
    try:
        plan = place(placing, time_limit_s=60.0)  # reached on no machine
    except NoSplitError:
        return
    seated = Counter(
        kind for one, count in plan.sets.items() for kind in one.kinds for _ in range(count)
    )
    for n, kind in enumerate(placing.kinds):
        assert seated[n] + plan.waiting.get(n, 0) == kind.count
    assert plan.cards <= placing.pools[0].gpus
    assert plan.bound <= plan.cost * (1 + 1e-9)
    for one in plan.sets:
        check_set(placing, one)


def check_set(placing: Placing, one: PlacedSet) -> None:
    """As `decide` says of its jobs."""
    if one.split is None:
        return
    pool = placing.pools[one.pool]
    profiles = [found for kind in one.kinds if (found := pool.profiles[kind])]
    decision = pool.asked(profiles, None)
    assert decision
    assert decision.choice
    found = decision.choice.prediction
    (broken,) = violations(Predictions.of([found]), profiles, pool.limits.of(profiles))
    assert not broken
    assert one.split == found.split
    assert one.speeds == tuple(part.speed.value for part in found.parts)
    assert one.power_w == found.power_w.value


@pytest.mark.slow
@few
@given(placings(most=6))
def test_no_plan_of_all_is_below_the_bound_and_few_are_better(placing: Placing) -> None:
    """All partitions of a few jobs into sets, tried one by one.

    The bound is of the sets as the search knows them. Decisions look at more options, of which the
    best plan may be made.
    """
    if sum(kind.count for kind in placing.kinds) > 8:
        return
    try:
        plan = place(placing, time_limit_s=60.0)  # reached on no machine
    except NoSplitError:
        return
    answers = set_answers(placing, 0)
    assert plan.bound <= brute_force(answers, searched) * (1 + 1e-9)
    if not plan.waiting:
        best = brute_force(answers, lambda answers, kinds: [answers.of(kinds)])
        assert best <= plan.cost * (1 + 1e-9) <= best * 1.1 + 1e-6


def searched(answers: SetAnswers, kinds: tuple[int, ...]) -> list[PlacedSet | None]:
    """What a search says of a set, at each level; of one job what it does alone."""
    if len(kinds) == 1:
        return [answers.of(kinds)]
    if not answers.is_of_law(len(kinds)):
        return [answers.by_law(kinds, NINE_SPLITS)]
    return [answers.by_law(kinds, level) for level in range(len(LEVELS))]


def brute_force(
    answers: SetAnswers, found: Callable[[SetAnswers, tuple[int, ...]], list[PlacedSet | None]]
) -> float:
    placing = answers.placing

    @functools.cache
    def cost(kinds: tuple[int, ...]) -> float:
        return min((one.cost for one in found(answers, kinds) if one), default=math.inf)

    @functools.cache
    def least(left: tuple[int, ...], cards: int) -> float:
        if not any(left):
            return 0.0
        if not cards:
            return math.inf
        first = next(n for n, count in enumerate(left) if count)
        best = math.inf
        for taken in itertools.product(*(range(count + 1) for count in left)):
            if taken[first] and sum(taken) <= MOST_JOBS:
                kinds = tuple(n for n, count in enumerate(taken) for _ in range(count))
                rest = tuple(a - b for a, b in zip(left, taken, strict=True))
                best = min(best, cost(kinds) + least(rest, cards - 1))
        return best

    return least(tuple(kind.count for kind in placing.kinds), placing.pools[0].gpus)


@few
@given(
    placings(of_pairs=[None]), some.integers(0, 100_000), some.sampled_from([1, 5]), some.booleans()
)
def test_no_set_gains_more_than_a_search_says(
    placing: Placing, seed: int, many: int, closely: bool
) -> None:
    """However few sets it looks at, and whatever jobs are worth; every set is tried.

    Nor does any gain more than was said of each set that it grew from.
    """
    answers = set_answers(placing, 0)
    worth = np.random.default_rng(seed).uniform(0.0, 2.0, len(placing.kinds)) * placing.lag.clip(1)
    card_worth = -0.3 * float(worth.max())
    looking = SetSearch(answers, worth, card_worth, closely=closely)
    with mock.patch.multiple(search, FEW_HEADS=many, MANY_HEADS=many, MANY=many, TURNS=2):
        _, most = looking.all(1e-6, 1e-6)
    counts = [range(min(kind.count, 2) + 1) for kind in placing.kinds]
    for taken in itertools.product(*counts):
        kinds = tuple(n for n, count in enumerate(taken) for _ in range(count))
        if not 2 <= len(kinds) <= MOST_JOBS:
            continue
        for level in range(len(LEVELS)):
            if one := answers.by_law(kinds, level):
                gain = sum(worth[kind] for kind in kinds) + card_worth - one.cost
                assert gain <= most + 1e-6 * one.cost
                assert gain <= min(said(looking.bound, kinds, level)) + 1e-6 * one.cost


def said(bound: SetBound, kinds: tuple[int, ...], level: int) -> list[float]:
    """Of a set while it grew: of jobs that fill the GPU, then with servers, then with others."""
    order = sorted(kinds, key=lambda kind: (kind in bound.light, kind in bound.servers))
    found = list[float]()
    for joined in range(len(order) + 1):
        rows = np.array([order[:joined] + [len(bound.own) - 1] * (MOST_JOBS - joined)])
        known = Sets(
            rows=rows, level=np.array([level]), size=np.array([joined]), last=np.zeros(1, dtype=int)
        )
        own, rest = order[:joined], order[joined:]
        if all(kind in bound.light for kind in rest):
            found += bound.of(known).tolist()
        if all(kind in (*bound.light, *bound.servers) for kind in rest) and not any(
            kind in bound.light for kind in own
        ):
            found += bound.with_servers(known).tolist()
    return found or [math.inf]


@given(some.integers(0, 100_000), some.integers(2, MOST_JOBS), some.integers(0, len(LEVELS) - 1))
def test_many_sets_at_once_are_as_the_predictor_says(seed: int, jobs: int, level: int) -> None:
    dice = np.random.default_rng(seed)
    profiles = [
        server(f"s{n}", dice.uniform(5, 60))
        if dice.random() < 0.3
        else job(f"j{n}", dice.uniform(3, 99), dice.uniform(150, 690))
        for n in range(4)
    ]
    many = many_alone(profiles)
    kinds: list[int] = sorted(dice.integers(0, 4, jobs).tolist())
    seats = np.array([kinds + [4] * (MOST_JOBS - jobs)])
    speed, low_end, watts = many.at(seats, np.array([level]))
    placing = placing_of(
        [(p, 7) for p in profiles], 1, limits=Request(policy=Policy(min_speed=0.0))
    )
    answers = SetAnswers(placing, 0, (0, 1, 2, 3), many)
    (cost,) = answers.costs(
        Sets(
            rows=seats,
            level=np.array([level]),
            size=np.array([jobs]),
            last=np.array([0]),
        )
    )
    split = answers.way(tuple(kinds), level)
    (wanted,) = SetPredictor().predict([profiles[k] for k in kinds], [split])
    speeds = [part.speed.value for part in wanted.parts]
    assert np.minimum(speed[0, :jobs], 1) == pytest.approx(speeds)
    assert watts[0] == pytest.approx(wanted.power_w.value)
    assert cost <= placing.cost(0, kinds, speeds, wanted.power_w.value) * (1 + 1e-9)
    low = [part.speed.low for part in wanted.parts]
    assert (low_end[0, :jobs] >= np.array(low) - 1e-9).all()


@few
@given(placings(of_pairs=[Physics()]))
def test_what_pairs_cost_at_least(placing: Placing) -> None:
    answers = set_answers(placing, 0)
    pairs = np.argwhere(answers.two.roughly)
    answers.two.look_at(pairs)
    assert not answers.two.roughly.any()
    for a, b in pairs.tolist():
        if one := answers.pair(a, b):
            assert answers.two.costs[a, b] <= one.cost


def solved(*jobs: tuple[Profile, int], gpus: int = 20, **fields: Any) -> Plan:
    # A limit that no machine is too slow for: what is found by then is good enough to end.
    return place(placing_of(jobs, gpus, **fields), time_limit_s=60.0)


def test_small_jobs_share_in_sevens_and_the_bound_meets_the_plan() -> None:
    """Fourteen jobs that need a tenth each are on two cards, and no fewer can be."""
    plan = solved((job("small"), 14), aim="fewest-cards")
    assert (plan.cards, plan.bound, plan.waiting) == (2, 2, {})
    assert plan.same_work_cards > 2


def test_where_cards_are_short_servers_have_them() -> None:
    plan = solved((job("big", 97.0, 690.0), 9), (server("web", 30.0), 3), gpus=2)
    assert plan.waiting[0] > 0
    assert 1 not in plan.waiting


@pytest.mark.slow
def test_every_job_of_a_large_queue_has_a_seat_or_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [(job(f"j{n}", 5.0 + 8 * n, 150.0 + 40 * n), 25) for n in range(12)]
    plan = solved(*jobs, gpus=200)
    assert plan.seated == 300
    assert plan.bound <= plan.cost <= 1.05 * plan.bound
    monkeypatch.setattr(solver, "LAST_S", math.inf)
    few = solved(*jobs, gpus=200)
    assert few.seated + sum(few.waiting.values()) == 300
    assert few.cost >= plan.bound


HOT, COOL = job("hot", 97.0, 690.0), job("cool", 5.0, 150.0)
CEILING = Request(max_power_w=450.0, policy=Policy(min_speed=0.3))
"""Less than hot draws alone, and more than it draws under a limit beside cool."""


def test_a_job_that_may_not_be_alone_waits_where_it_has_no_neighbour() -> None:
    plan = solved((HOT, 2), (COOL, 1), limits=CEILING, of_pairs=Physics())
    assert (plan.waiting, [one.kinds for one in plan.sets]) == ({0: 1}, [(0, 1)])
    assert plan.bound <= plan.cost


def test_sets_that_are_refused_leave_the_plan() -> None:
    """The search thinks of sevens; where three and more are refused, pairs are left."""
    placing = placing_of([(job("small"), 14)], 20, of_pairs=Physics())
    (pool,) = placing.pools

    def ask(profiles: Sequence[Profile], work: Work | None) -> Decision | None:
        return pool.asked(profiles, work) if len(profiles) == 2 else None

    assert {len(one.kinds) for one in place(placing).sets} == {7}
    pools = (dataclasses.replace(pool, ask=ask),)
    plan = place(dataclasses.replace(placing, pools=pools))
    assert {len(one.kinds) for one in plan.sets} <= {1, 2}
    assert (plan.seated, plan.waiting) == (14, {})


def test_the_search_knows_a_ceiling_of_watts() -> None:
    """Nothing is cut off below the power limit; so sets under a ceiling come near their bound."""
    jobs = [(job(f"j{n}", 5.0 + 6 * n, 200.0 + 40 * n), 6) for n in range(8)]
    plan = solved(*jobs, gpus=30, limits=Request(max_power_w=650.0))
    assert max(one.power_w for one in plan.sets) <= 650
    assert plan.gap < 0.3


@pytest.mark.parametrize(
    ("aim", "prices"), [("fewest-cards", None), ("cost", Prices(gpu_hour=2.5))]
)
def test_a_job_that_one_gpu_model_cannot_run(aim: str, prices: Prices | None) -> None:
    """It runs on the other one, also where watts count nothing (nothing times no bound is NaN)."""
    one, both = job("a", 97.0, 600.0), job("b", 97.0, 600.0)
    pools = [
        Pool(gpu_model=model, gpus=2, profiles=of, limits=Request(), idle_power_w=70.0)
        for model, of in (("new", (None, both)), (one.gpu_model, (one, both)))
    ]
    kinds = [Kind(name="a", count=2), Kind(name="b", count=2)]
    placing = make_placing(kinds, pools, aim, prices)
    assert np.isfinite(placing.lag).all()
    plan = place(placing)
    assert plan.seated == 4
    assert math.isfinite(plan.cost)


def test_what_cannot_be_placed_is_refused() -> None:
    kinds, small = [Kind(name="a", count=1)], job("a")
    pool = Pool(
        gpu_model="x",
        gpus=1,
        profiles=(small,),
        limits=Request(max_power_w=50.0),
        idle_power_w=70.0,
    )
    with pytest.raises(InputError, match="not placed by max-min"):
        make_placing(kinds, [pool], "max-min")
    with pytest.raises(InputError, match="no prices"):
        make_placing(kinds, [pool], "cost")
    with pytest.raises(InputError, match="no profile"):
        make_placing(kinds, [dataclasses.replace(pool, profiles=(None,))], "energy-efficiency")
    with pytest.raises(NoSplitError, match="a cannot be placed"):
        place(make_placing(kinds, [pool], "energy-efficiency"))
