"""The same work in the recommended way and in simpler ones, by hand."""

import pytest
from made_up_profiles import Scripted, profile

from advisor.core.finish import Work, finish, one_after_the_other
from advisor.core.objectives import OBJECTIVES
from advisor.core.split import EQUAL, UNCAPPED, Split
from advisor.decide.recommend import Request, recommend
from advisor.decide.recommendation import Decision
from advisor.decide.same_work import gain_to_the_end, same_work, to_the_end
from advisor.predict.predictions import Prediction, predict_exclusive

A, B = profile("a"), profile("b")
WORK = Work((600.0, 1200.0))
KNOWN = {EQUAL: (0.6, 0.6, 350.0), UNCAPPED: (0.9, 0.9, 380.0)}


def recommended(known: dict[Split, tuple[float, ...]], work: Work | None = WORK) -> Decision:
    by = Scripted({split: (one, two, w) for split, (one, two, w) in known.items()}, off=0.0)
    return recommend((A, B), by, Request(default_min_speed=0.0, work=work))


def prediction(split: Split) -> Prediction:
    return Scripted(KNOWN).predict((A, B), [split])[0]


def test_the_job_that_goes_on_keeps_its_limit() -> None:
    """1000 s together at 350 W, then 600 s of work at half of the rate and 250 W."""
    result = prediction(EQUAL).result
    found = to_the_end(prediction(EQUAL), result, (A, B), WORK)
    assert (found.time_s, found.shared_s) == (pytest.approx(1000 + 1200), pytest.approx(1000))
    assert found.energy_j == pytest.approx(1000 * 350 + 1200 * 250)


def test_without_limits_it_has_the_whole_gpu() -> None:
    free = prediction(UNCAPPED)
    found = to_the_end(free, free.result, (A, B), WORK)
    assert found == finish(free.result, WORK)
    assert found.time_s == pytest.approx(600 / 0.9 + 600)


def test_one_after_the_other_shares_nothing() -> None:
    apart = predict_exclusive((A, B))
    found = to_the_end(apart, apart.result, (A, B), WORK)
    assert (found.time_s, found.energy_j, found.shared_s) == (1800, 1800 * 400, 0)


@pytest.mark.parametrize(
    ("objective", "gain"),
    [
        ("energy-efficiency", 1800 * 400 / (1000 * 350 + 1200 * 250)),
        ("throughput", 1800 / 2200),
    ],
)
def test_the_gain_is_energy_or_time_over_one_after_the_other(objective: str, gain: float) -> None:
    p = prediction(EQUAL)
    assert gain_to_the_end(p, (A, B), WORK, OBJECTIVES[objective])(p.result) == pytest.approx(gain)


def test_a_restart_is_told_where_a_limit_stays() -> None:
    """Not without limits, and not where nobody has said how much work there is."""
    limited = recommended({EQUAL: (0.8, 0.8, 350.0)}, Work((600.0, 700.0)))
    assert limited.choice.name == "50/50"
    found = same_work(limited)
    assert found.restarted == finish(limited.choice.prediction.result, found.work)
    assert found.restarted != found.choice
    free = recommended({UNCAPPED: (0.9, 0.9, 380.0)})
    assert free.choice.name == "uncapped"
    assert same_work(free).restarted is None
    assert same_work(recommended({EQUAL: (0.8, 0.8, 350.0)}, None)).restarted is None


def test_without_work_it_is_that_of_an_hour() -> None:
    found = same_work(recommended({EQUAL: (0.8, 0.7, 350.0)}, None))
    assert found.work.alone_s == (pytest.approx(2880), pytest.approx(2520))
    assert found.choice.time_s == pytest.approx(3600)


def test_same_work_one_job_after_the_other() -> None:
    r = recommended(KNOWN)
    apart = predict_exclusive((A, B))
    assert same_work(r).exclusive == one_after_the_other(apart.result, WORK)
