"""How sets of jobs are to run: candidates, the choice, and what it does not depend on."""

import dataclasses
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from advisor.decide.recommendation import Request, environments
from advisor.decide.ways import (
    MOST_WAYS,
    Running,
    SetDecision,
    candidate_ways,
    recommend_set,
    without_one,
    worth,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_profiles import active_job as job
from made_up_profiles import profile

from advisor.core.gpu import WHOLE
from advisor.core.interval import Interval
from advisor.core.split import ISOLATING, Split
from advisor.decide.filling import Beside, alone, best_beside
from advisor.decide.limits import violations
from advisor.decide.replicas import replicas
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import Prediction, predict_exclusive, predicted_part
from advisor.predict.profiles import Profile, Serving
from advisor.predict.sets import SetPredictor
from advisor.validity.safe_counts import CheckedCounts

SMALL, HALF, BIG = job("small"), job("half", 55.0, 400.0), job("big", 97.0, 690.0)


SERVER = job(
    "server",
    serving=Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=((10.0, 4.0), (100.0, 4.0))),
)


def recommended(profiles: Sequence[Profile], **wanted: Any) -> SetDecision:
    return recommend_set(profiles, SetPredictor(), Request(**wanted))


jobs = st.builds(
    job,
    st.sampled_from("abcde"),
    st.floats(2, 99),
    st.floats(120, 700),
    memory_used_mib=st.floats(1, 4e4),
)


sets = st.lists(jobs, min_size=3, max_size=5, unique_by=lambda p: p.job)


requests = st.builds(
    Request,
    default_min_speed=st.sampled_from([0.0, 0.4]),
    max_power_w=st.none() | st.floats(300, 800),
    isolate=st.booleans(),
    min_gain=st.sampled_from([0.0, 0.03]),
)


def answered(profiles: Sequence[Profile], request: Request) -> SetDecision | None:
    try:
        return recommend_set(profiles, SetPredictor(), request)
    except NoSplitError:
        return None


def value(found: SetDecision | None) -> float:
    if found is None:
        return 0.0
    return worth(found.choice) if found.choice else 1.0


few = settings(max_examples=settings().max_examples // 3)


"""Each example answers for sets of up to five jobs."""


@pytest.mark.slow
@few
@given(sets, requests, st.randoms())
def test_order_of_the_jobs_does_not_matter(
    profiles: list[Profile], request: Request, chance: random.Random
) -> None:
    mixed = list(profiles)
    chance.shuffle(mixed)
    there, back = answered(profiles, request), answered(mixed, request)
    assert value(there) == pytest.approx(value(back), rel=1e-9)
    if there and back and there.choice and back.choice:
        one, other = there.choice.prediction.split, back.choice.prediction.split
        assert one.sharing == other.sharing
        shares = dict(zip((p.job for p in mixed), other.shares, strict=True))
        assert shares == dict(zip((p.job for p in profiles), one.shares, strict=True))


@pytest.mark.slow
@few
@given(sets, requests, st.floats(0, 1), st.floats(0.3, 1))
def test_a_stricter_limit_gives_no_better_answer(
    profiles: list[Profile], request: Request, speed: float, part: float
) -> None:
    loose = dataclasses.replace(request, tie=0.0, min_gain=0.0)
    stricter = (
        dataclasses.replace(loose, default_min_speed=max(speed, loose.default_min_speed)),
        dataclasses.replace(loose, max_power_w=part * (loose.max_power_w or 700)),
        dataclasses.replace(loose, isolate=True),
    )
    most = value(answered(profiles, loose)) + 1e-9
    assert all(value(answered(profiles, strict)) <= most for strict in stricter)


def test_a_way_that_alone_keeps_the_limits_need_not_gain() -> None:
    profiles = [job("hot", 93.0, 652.0), job("one", 45.0, 129.0), job("two", 43.0, 139.0)]
    found = recommended(profiles, max_power_w=632.0)
    assert found.choice is not None
    assert worth(found.choice) < 1
    assert not found.choice.violations


@few
@given(sets, requests)
def test_what_is_chosen_keeps_every_limit(profiles: list[Profile], request: Request) -> None:
    found = answered(profiles, request)
    if found and found.choice:
        assert not violations(found.choice.prediction, profiles, found.request)
        assert found.choice in found.ways
        assert not request.isolate or found.choice.sharing in ISOLATING


@pytest.mark.parametrize("filling", range(8))
def test_search_of_seven_jobs_stays_small(filling: int) -> None:
    """How many ways are looked at bounds the time; docs/measurements/sets.md says it."""
    found = candidate_ways([BIG] * filling + [SMALL] * (7 - filling))
    assert len(found) == len(set(found)) <= MOST_WAYS + 3
    assert (len(found) > 3) == (filling > 0)


def test_one_job_that_fills_is_looked_at_under_every_safe_count() -> None:
    """And under no other; small jobs never have a limit."""
    host = CheckedCounts(
        gpu_model="NVIDIA H200",
        units_total=132,
        checked=frozenset(range(8, 133, 2)),
        wrong=dict.fromkeys(range(40, 110, 2), ("gemm",)),
    )
    limited = [w for w in candidate_ways([SMALL, BIG, SMALL], host) if w.is_limited]
    assert {(w.shares[0], w.shares[2]) for w in limited} == {(WHOLE, WHOLE)}
    counts = {int(w.shares[1] * 132 / 100) // 2 * 2 for w in limited}
    assert not counts & set(range(40, 110, 2))
    assert {14, 38, 110, 130} <= counts


def test_small_jobs_share_without_limits() -> None:
    found = recommended([SMALL] * 5)
    assert found.choice is not None
    assert found.choice.name == "uncapped"
    assert found.choice.prediction.energy_saved.value > 0.4


def test_a_fault_that_must_stay_alone_takes_turns() -> None:
    found = recommended([SMALL, HALF, HALF], isolate=True, default_min_speed=0.1)
    assert found.choice is not None
    assert found.choice.name == "time-sliced"


def test_turns_are_not_sure_of_the_least_speed_unless_that_is_low() -> None:
    """Jobs kept little more than half of what was said of them in turns."""
    found = recommended([SMALL, SMALL], isolate=True)
    assert found.choice is None
    (turns,) = (way for way in found.ways if way.sharing == "time-sliced")
    assert all(job.speed.low < 0.4 < job.speed.value for job in turns.prediction.parts)


def test_a_limit_for_the_job_that_fills_lets_a_server_keep_its_tail() -> None:
    free = recommended([SERVER, SMALL, BIG], default_min_speed=0)
    held = recommended([SERVER, SMALL, BIG], default_min_speed=0, max_p99_ms={"server": 45.0})
    assert held.choice is not None
    split = held.choice.prediction.split
    assert split.is_limited
    assert split.shares[2] < WHOLE
    assert split.shares[:2] == (WHOLE, WHOLE)
    assert value(held) <= value(free)


def test_the_job_without_which_the_others_share_is_found() -> None:
    profiles = [SMALL, SMALL, SMALL, BIG]
    found = recommended(profiles, default_min_speed=0.0, min_speed={"big": 0.9})
    assert found.choice is None
    left = without_one(found, SetPredictor())
    assert left is not None
    assert (left[0], left[1].name) == ("big", "uncapped")
    assert without_one(recommended(profiles[1:], min_speed={"big": 0.9}), SetPredictor()) is None
    assert without_one(recommended([BIG] * 4), SetPredictor()) is None


def test_what_no_card_keeps_is_said() -> None:
    with pytest.raises(NoSplitError, match="within these limits"):
        recommended([BIG] * 3, max_power_w=500)


def test_eight_jobs_are_refused() -> None:
    with pytest.raises(InputError, match="8 jobs"):
        recommended([SMALL] * 8)


def test_only_limited_jobs_get_a_variable() -> None:
    found = recommended([SMALL, BIG, SMALL], default_min_speed=0)
    way = next(way for way in found.ways if way.sharing == "limited")
    assert [bool(variables) for variables in environments(found.profiles, way)] == [
        False,
        True,
        False,
    ]
    assert Split(way.prediction.split.shares).is_limited


@pytest.mark.parametrize(("low", "kept"), [(0.3, True), (0.2, False)])
def test_a_low_end_decides_where_the_range_is_wide(low: float, kept: bool) -> None:
    scripted = Expecting(Interval(0.45, low, 0.9))
    ways = [
        recommend_set([SMALL] * 3, scripted, Request(default_min_speed=0.4, min_speed=named)).ways
        for named in ({}, {"small": 0.4})
    ]
    uncapped = [next(way for way in of if way.sharing == "uncapped") for of in ways]
    assert [not way.violations for way in uncapped] == [kept, False]


@dataclasses.dataclass(frozen=True)
class Expecting:
    speed: Interval

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        found = SetPredictor().predict(profiles, splits)
        return [p if p.split.sharing == "exclusive" else self._so(p) for p in found]

    def _so(self, p: Prediction) -> Prediction:
        parts = tuple(dataclasses.replace(part, speed=self.speed) for part in p.parts)
        return dataclasses.replace(p, parts=parts)


def test_who_joins_gets_a_share_beside_those_that_stay() -> None:
    running = Running(shares=(30.0, 50.0), sharing="limited", cap_percent=50.0)
    found = recommend_set([SMALL, SMALL, BIG], SetPredictor(), running=running)
    ways = [way.prediction.split for way in found.ways]
    joined = [split for split in ways if split.sharing != "exclusive"]
    assert joined
    assert all(split.shares[:2] == (30.0, 50.0) for split in joined)
    assert all(split.shares[2] <= 50 for split in joined)


def test_who_joins_at_a_promise_that_cannot_be_kept_gets_no_share() -> None:
    running = Running(shares=(30.0, 50.0), sharing="limited", cap_percent=50.0)
    request = Request(min_speed={"big": 0.9})
    found = recommend_set([SMALL, SMALL, BIG], SetPredictor(), request, running=running)
    assert found.choice is None
    (way,) = [way for way in found.ways if way.sharing == "limited"]
    assert any("big" in one.text for one in way.violations)


A, B, C = profile("a"), profile("b"), profile("c")


WEB = profile("server", serving=Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=()))


@dataclass(frozen=True)
class Said:
    known: dict[str, tuple[Sequence[float], float]]

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        speeds, power_w = self.known[profiles[-1].job]
        together = tuple(
            predicted_part(one, Interval(speed, speed, speed))
            for one, speed in zip(profiles, speeds, strict=True)
        )
        return [
            predict_exclusive(profiles)
            if split.sharing == "exclusive"
            else Prediction(
                split=split, parts=together, power_w=Interval(power_w, power_w, power_w)
            )
            for split in splits
        ]


def beside(
    there: Profile, waiting: Sequence[Profile], **known: tuple[Sequence[float], float]
) -> Beside | None:
    def ask(profiles: Sequence[Profile], running: Running | None) -> SetDecision | None:
        try:
            return recommend_set(profiles, Said(known), running=running)
        except NoSplitError:
            return None

    return best_beside([there], alone(there), waiting, ask)


def test_nobody_alone_is_faster_than_alone() -> None:
    """In the window of a server some more requests can arrive than its users ask for."""
    serving = Serving(offered_rate=100.0, rate_noise=0.02, latency_p99_ms=())
    rates = 1.015 * WEB.values["rate"]
    busy = replace(WEB, serving=serving, values={**WEB.values, "rate": rates})
    assert busy.at([100.0])["rate"][0] > busy.whole_gpu_rate
    assert alone(busy).parts[0].speed.value == 1.0


def test_what_is_saved_is_of_the_same_work() -> None:
    """In an hour together as in 0.9 h of one alone and 0.8 h of the other, which draw 400 W."""
    found = beside(A, [B], b=((0.9, 0.8), 500.0))
    assert found is not None
    assert found.time_saved == pytest.approx(1 - 1 / 1.7)
    assert found.energy_saved == pytest.approx(1 - 500 / (1.7 * 400))


@pytest.mark.parametrize(
    ("speeds", "power_w"),
    [
        ((0.5, 0.5), 400.0),  # nothing is saved
        ((0.7, 0.5), 500.0),  # a sixth of the time, for more energy
        ((0.45, 0.5), 300.0),  # energy, for more time
        ((0.9, 0.1), 300.0),  # the newcomer starves
    ],
)
def test_it_waits_where_nothing_is_saved(speeds: tuple[float, float], power_w: float) -> None:
    assert beside(A, [B], b=(speeds, power_w)) is None


def test_beside_a_server_nobody_gains_by_waiting() -> None:
    assert beside(WEB, [B], b=((1.0, 0.5), 690.0)) is not None
    assert beside(WEB, [B], b=((0.9, 0.5), 400.0)) is None


SERVING = Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=((10.0, 4.0), (100.0, 4.0)))


def copied_job(sm: float = 10.0, dram: float = 5.0, **fields: Any) -> Profile:
    columns = {
        "sm_active_percent": np.full(10, sm),
        "dram_active_percent": np.full(10, dram),
        "job_cpu_percent": np.full(10, 100.0),
        "power_w": np.full(10, 180.0),
    }
    return profile("job", [100.0] * 10, columns=columns, **fields)


FREE = Request(default_min_speed=0.0)


@given(st.floats(1, 99), st.floats(1, 99), st.floats(0, 0.8), st.integers(1, 20))
def test_each_copy_adds_work_and_keeps_every_limit(
    sm: float, dram: float, speed: float, most: int
) -> None:
    found = replicas(
        copied_job(sm, dram), Request(default_min_speed=speed, min_gain=0.03), most=most
    )
    assert [copies.number for copies in found.copies] == list(range(1, found.best + 1))
    rates = [copies.rate.value for copies in found.copies]
    assert all(more >= 1.03 * fewer for fewer, more in itertools.pairwise(rates))
    assert all(copies.speed.value >= speed for copies in found.copies)
    for fewer, more in itertools.pairwise(found.copies):
        assert more.speed.value <= fewer.speed.value
        assert more.power_w.value >= fewer.power_w.value
    assert (found.beyond is None) == (found.ended_by is None) == (found.best == most)


@pytest.mark.parametrize(
    ("one", "wanted", "ended_by", "best"),
    [
        (copied_job(memory_used_mib=4e4), {"memory_mib": 1e5}, "memory", 2),
        (copied_job(), {"host_cores": 3.5}, "host cores", 3),
        (copied_job(serving=SERVING), {"max_p99_ms": {"job": 14.0}}, "tail", 4),
        (copied_job(), {"max_power_w": 300.0}, "power", 3),
        (copied_job(70.0), {"min_gain": 0.2}, "SMs", 2),
        (copied_job(20.0, 70.0), {"min_gain": 0.2}, "DRAM", 2),
        (copied_job(97.0), {"default_min_speed": 0.4}, "SMs", 1),
        (copied_job(5.0), {}, None, 7),
    ],
)
def test_what_ends_the_number(
    one: Profile, wanted: dict[str, Any], ended_by: str | None, best: int
) -> None:
    request = dataclasses.replace(FREE, **wanted)
    found = replicas(one, request)
    assert (found.ended_by, found.best) == (ended_by, best), found.why
    assert found.why


def test_not_even_one_is_an_error() -> None:
    with pytest.raises(NoSplitError, match="not even one"):
        replicas(copied_job(), Request(max_power_w=100.0))
    with pytest.raises(InputError, match=r"49 copies.*from 1 to 48"):
        replicas(copied_job(), FREE, most=49)


def test_copies_do_what_is_predicted_of_the_set() -> None:
    """So `replicas A` and `recommend A*3` say the same of three: nothing is bounded here again."""

    class LessOfThree:
        def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
            found = SetPredictor().predict(profiles, splits)
            watts = Interval(*[400.0 - 10 * len(profiles)] * 3)
            return [dataclasses.replace(p, power_w=watts) for p in found]

    _, two, three = replicas(copied_job(5.0), FREE, most=3, predictor=LessOfThree()).copies
    assert (two.power_w.value, three.power_w.value) == (380.0, 370.0)
