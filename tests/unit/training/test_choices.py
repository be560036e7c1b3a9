"""Choices by hand: what is chosen of what is expected, and what that is worth as measured."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_profiles import profile
from made_up_results import pair_result
from made_up_rows import as_held_out, solo_points, training_set

from advisor.core.gpu import EQUAL, NINE, UNCAPPED, Split
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, Interval, SplitResult
from advisor.predict.profiles import Serving
from advisor_models.registry import UNCAPPED as UNCAPPED_STRATUM
from advisor_models.registry import LogBounds
from advisor_training.learners import HeldOut, as_predicted, joined
from advisor_training.rows import Data, Rows, make_data
from advisor_training.scoring import (
    RULES,
    Choice,
    ChoiceQuestion,
    bounds_without,
    choose,
    choose_by_rule,
    keys_of,
    speed_around,
)

EFFICIENCY = OBJECTIVES[DEFAULT_OBJECTIVE]
NINE_ONLY = ChoiceQuestion(EFFICIENCY)
EVERY = ChoiceQuestion(EFFICIENCY, "every way")


def data_of(*pairs: tuple[Any, Any], leave: Sequence[float] = ()) -> Data:
    """Made-up pairs as measured; without points at some shares of the first job."""
    points = [
        p
        for p in made_up.pair_points(pairs)
        if not (p.mode == "mps" and p.shares_percent[0] in leave)
    ]
    return make_data(points, solo_points())


DATA = data_of((made_up.CLIMBER, made_up.SITTER), (made_up.CLIMBER, made_up.MIDDLE))


def with_results(results: Mapping[Split, tuple[float, float, float]], data: Data = DATA) -> Data:
    """The same, where ways of the first measurement were measured otherwise, alone at 400 W."""

    def result(speed_a: float, speed_b: float, power_w: float) -> SplitResult:
        return pair_result(
            rate_a=speed_a, rate_b=speed_b, solo_power_a_w=400.0, solo_power_b_w=400.0,
            power_w=power_w,
        )  # fmt: skip

    first = data.measurements[0]
    made = {split: result(*values) for split, values in results.items()}
    nine = {split: made.get(split, result(0.1, 0.1, 400.0)) for split in first.nine}
    free = {UNCAPPED: made.get(UNCAPPED, result(0.1, 0.1, 400.0))}
    changed = dataclasses.replace(
        first,
        exclusive=result(0.5, 0.5, 400.0),
        splits={**first.splits, "nine": nine, "uncapped": free},
    )
    return dataclasses.replace(data, measurements=(changed, *data.measurements[1:]))


def with_first(**changes: Any) -> Data:
    """The same, with other fields of the first measurement."""
    first, *others = DATA.measurements
    return dataclasses.replace(DATA, measurements=(dataclasses.replace(first, **changes), *others))


def without_ways(*ways: str) -> Data:
    """Of the first measurement."""
    nothing: dict[str, dict[Split, SplitResult]] = {way: {} for way in ways}
    return with_first(splits={**DATA.measurements[0].splits, **nothing})


def expects(
    ways: Mapping[Split, tuple[float, float, float]],
    number: int = 0,
    left_out: str = "x",
    data: Data = DATA,
) -> HeldOut:
    """What was expected of the ways of a measurement: of those not named, little."""
    row = np.flatnonzero(data.rows.measurement == number)
    known = [ways.get(_split(data, int(n)), (0.1, 0.1, 400.0)) for n in row]
    speed = np.array([[a, b] for a, b, _ in known])
    power = np.array([w for _, _, w in known])
    return as_held_out(np.full(len(row), left_out), row, as_predicted(speed, power))


def _split(data: Data, row: int) -> Split:
    if data.rows.kind[row] == "uncapped":
        return UNCAPPED
    return Split((float(data.rows.share_a[row]), float(data.rows.share_b[row])))


def only(choices: list[Choice]) -> Choice:
    (choice,) = choices
    return choice


THIRTY, SEVENTY = Split((30.0, 70.0)), Split((70.0, 30.0))


def test_a_choice_is_worth_what_was_measured() -> None:
    data = with_results({THIRTY: (0.8, 0.7, 400.0), SEVENTY: (0.9, 0.9, 400.0)})
    choice = only(choose(data, expects({THIRTY: (1.0, 1.0, 300.0)}), NINE_ONLY, 0.0))
    baselines = {"equal": 7.5, "uncapped": 7.5, "exclusive": 1.5}
    timed = choice.over["time-sliced"]
    assert dataclasses.asdict(choice) == {
        "left_out": "x", "number": 0, "jobs": data.measurements[0].jobs, "chosen": "30/70",
        "oracle": "70/30", "fraction": pytest.approx(1.5 / 1.8),
        "energy_saved": pytest.approx(1 - 1 / 1.5), "stp": pytest.approx(1.5),
        "slower_speed": 0.7, "missed": None,
        "over": pytest.approx(baselines | {"time-sliced": timed}),
    }  # fmt: skip


def test_ways_of_the_scope_are_chosen_from() -> None:
    free = expects({UNCAPPED: (1.0, 1.0, 300.0), EQUAL: (0.6, 0.6, 400.0)})
    poor = expects({UNCAPPED: (1.0, 1.0, 300.0)})

    def chosen(held_out: HeldOut) -> list[str]:
        asked = [ChoiceQuestion(EFFICIENCY, s) for s in ("nine", "nine or exclusive", "every way")]
        return [only(choose(DATA, held_out, one, 0.0)).chosen for one in asked]

    assert chosen(free) == ["50/50", "50/50", "uncapped"]
    assert chosen(poor)[1:] == ["exclusive", "uncapped"]
    assert chosen(poor)[0] != "exclusive"


def test_the_oracle_is_of_the_scope_of_who_judges() -> None:
    data = with_results({UNCAPPED: (0.9, 0.9, 300.0), THIRTY: (0.9, 0.9, 400.0)})
    held_out = expects({UNCAPPED: (1.0, 1.0, 200.0)})
    for judge, oracle, fraction in ((EVERY, "uncapped", 1.0), (NINE_ONLY, "30/70", 4 / 3)):
        found = only(choose(data, held_out, EVERY, 0.0, judge))
        assert (found.chosen, found.oracle) == ("uncapped", oracle)
        assert found.fraction == pytest.approx(fraction)


def test_measurements_with_too_few_splits_are_no_oracle() -> None:
    few = data_of((made_up.CLIMBER, made_up.SITTER), (made_up.CLIMBER, made_up.MIDDLE),
                  leave=(10.0, 20.0, 30.0))  # fmt: skip
    assert choose(few, expects({}, data=few), EVERY, 0.0) == []
    mixed = joined([expects({}), expects({}, 1)])
    found = choose(with_first(observed=True), mixed, NINE_ONLY, 0.0)
    assert [choice.number for choice in found] == [1]


def test_each_thing_left_out_and_measurement_is_one_choice() -> None:
    parts = (
        expects({EQUAL: (1, 1, 300)}, 1, "y"), expects({EQUAL: (1, 1, 300)}, 0, "y"),
        expects({THIRTY: (1, 1, 300)}, 0, "x"),
    )  # fmt: skip
    found = choose(DATA, joined(parts), NINE_ONLY, 0.0)
    assert keys_of(found) == [("x", 0), ("y", 0), ("y", 1)]
    assert [c.chosen for c in found] == ["30/70", "50/50", "50/50"]


def test_where_nothing_is_worth_anything_there_is_no_choice() -> None:
    still = with_results(dict.fromkeys(NINE, (0.0, 0.0, 400.0)))
    assert choose(still, expects({}), NINE_ONLY, 0.0) == []
    assert choose(still, expects({EQUAL: (1, 1, 100)}), EVERY, 0.0) != []


def test_a_way_that_was_not_measured_has_no_score() -> None:
    gone = without_ways("uncapped", "time-sliced")
    assert choose(gone, expects({UNCAPPED: (1, 1, 100)}), EVERY, 0.0) == []
    at_equal = only(choose(gone, expects({EQUAL: (1, 1, 300)}), NINE_ONLY, 0.0))
    assert at_equal.over.keys() == {"equal", "exclusive"}


# minimum speeds


def test_a_minimum_speed_holds_where_jobs_share() -> None:
    jobs = (profile("a"), profile("b"))
    serving = Serving(offered_rate=1.0, rate_noise=None, latency_p99_ms=())
    served = (jobs[0], profile("b", serving=serving))
    kept = ChoiceQuestion(EFFICIENCY, min_speed=0.5)
    for question, way, slower, of, allowed in (
        (kept, "50/50", 0.5, jobs, True),
        (kept, "50/50", 0.49, jobs, False),
        (kept, "uncapped", 0.49, jobs, False),
        (kept, "exclusive", 0.49, jobs, True),
        (NINE_ONLY, "50/50", 0.0, jobs, True),
        (kept, "50/50", 0.9, served, False),
        (kept, "50/50", 0.98, served, True),
    ):
        watts = {"solo_power_a_w": 1, "solo_power_b_w": 1, "power_w": 1}
        result = pair_result(rate_a=0.9, rate_b=slower, **watts)
        assert question.allows(way, result, of) == allowed


def test_expected_speeds_keep_the_minimum_speed() -> None:
    kept = ChoiceQuestion(EFFICIENCY, "every way", 0.4, kept="expected")
    ways = {THIRTY: (0.39, 1.0, 200.0), EQUAL: (0.6, 0.6, 300.0), SEVENTY: (0.4, 0.7, 320.0)}
    slow = with_results({EQUAL: (0.3, 0.9, 300.0), SEVENTY: (0.5, 0.5, 300.0)})
    found = only(choose(slow, expects(ways), kept, 0.0))
    assert (found.chosen, found.missed, found.oracle) == ("50/50", True, "70/30")
    assert found.fraction == pytest.approx(1.2)
    fast = with_results({EQUAL: (0.4, 0.9, 300.0)})
    assert only(choose(fast, expects(ways), kept, 0.0)).missed is False
    for min_speed, missed in ((0.0, None), (0.3, True), (0.05, False)):
        other = dataclasses.replace(kept, min_speed=min_speed)
        found = only(choose(slow, expects(ways), other, 0.0))
        assert (found.chosen, found.missed) == ("30/70", missed)


def test_nearly_equal_ways_are_a_tie() -> None:
    """Then the more even split is taken."""
    ways = {THIRTY: (1.0, 1.0, 400.0), EQUAL: (0.999, 0.999, 400.0)}
    for tie, chosen in ((0.0, "30/70"), (0.005, "50/50")):
        assert only(choose(DATA, expects(ways), NINE_ONLY, tie)).chosen == chosen


def test_where_nothing_keeps_the_minimum_speed() -> None:
    kept = ChoiceQuestion(EFFICIENCY, "every way", 0.4, kept="expected")
    found = only(choose(DATA, expects({}), kept, 0.0))
    assert (found.chosen, found.missed) == ("exclusive", None)
    kept = ChoiceQuestion(EFFICIENCY, "nine", 0.9, kept="expected")
    data = with_results({THIRTY: (0.5, 0.5, 300.0), SEVENTY: (0.5, 0.8, 300.0)})
    found = only(choose(data, expects({THIRTY: (0.6, 0.6, 300.0)}), kept, 0.0))
    assert (found.chosen, found.oracle, found.missed) == ("30/70", "70/30", True)


def test_who_is_to_be_sure_asks_the_errors_of_other_pairs() -> None:
    """Where those were off by half, a speed just above the minimum is not sure.

    What another pair with one of the jobs was off by does not count.
    """
    four = data_of(
        (made_up.CLIMBER, made_up.SITTER), (made_up.HOG, made_up.MIDDLE),
        (made_up.SLOW, made_up.MIDDLE), (made_up.SLOW, made_up.HOG),
        (made_up.CLIMBER, made_up.HOG),
    )  # fmt: skip
    number = next(n for n, m in enumerate(four.measurements) if m.jobs == ("climber", "sitter"))
    rows = np.flatnonzero(four.rows.measurement != number)
    speed = np.column_stack([four.rows.speed_a, four.rows.speed_b])[rows]
    factor = np.where(four.rows.job_a[rows] == "climber", 8.0, 2.0)
    others = as_held_out(
        np.array([four.rows.job_a[n] for n in rows]), rows,
        as_predicted(speed * factor[:, None], four.rows.power_w[rows]),
    )  # fmt: skip
    hopes = joined([expects({EQUAL: (0.5, 0.5, 100.0)}, number, data=four), others])
    sure = ChoiceQuestion(EFFICIENCY, "every way", 0.4, "low end")

    def chosen(question: ChoiceQuestion) -> str:
        found = choose(four, hopes, question, 0.0)
        return next(c.chosen for c in found if c.left_out == "x")

    assert chosen(sure) == "exclusive"
    assert chosen(dataclasses.replace(sure, kept="expected")) == "50/50"
    assert chosen(dataclasses.replace(sure, kept="as advised")) == "exclusive"
    assert chosen(dataclasses.replace(sure, kept="as advised", min_speed=0.35)) == "50/50"
    assert chosen(dataclasses.replace(sure, min_speed=0.35)) == "exclusive"
    assert chosen(dataclasses.replace(sure, min_speed=0.3)) == "50/50"
    assert chosen(dataclasses.replace(sure, min_speed=0.0)) == "50/50"


def test_a_server_is_held_to_its_demand() -> None:
    """Its tail is no part of the question."""
    first = DATA.measurements[0]
    key = first.jobs[0], first.gpu_model
    kept = ChoiceQuestion(EFFICIENCY, "every way", 0.4, kept="expected")
    tail = ((50.0, 9.0), (100.0, 4.0))
    serving = Serving(offered_rate=1e9, rate_noise=None, latency_p99_ms=tail)
    server = dataclasses.replace(DATA.profiles[key], serving=serving)
    served = dataclasses.replace(DATA, profiles={**DATA.profiles, key: server})
    for speed, question, chosen in (
        (0.9, kept, "exclusive"),
        (0.9, EVERY, "50/50"),
        (1.0, kept, "50/50"),
    ):
        held_out = expects({EQUAL: (speed, 0.9, 300.0)})
        assert only(choose(served, held_out, question, 0.0)).chosen == chosen


# who knows, and who does not ask


def test_rules_need_no_model() -> None:
    data = with_results({EQUAL: (0.8, 0.8, 400.0)})
    keys = [("x", 0), ("y", 1)]
    for rule, name in (
        ("equal", "50/50"), ("uncapped", "uncapped"), ("time-sliced", "time-sliced"),
        ("exclusive", "exclusive"),
    ):  # fmt: skip
        found = choose_by_rule(data, keys, rule, NINE_ONLY)
        assert ([c.chosen for c in found], keys_of(found)) == ([name, name], keys)
    assert choose_by_rule(data, keys, "equal", NINE_ONLY)[0].fraction == 1.0


def test_the_larger_rate_gets_most() -> None:
    data = data_of((made_up.HOG, made_up.SLOW), (made_up.HOG, made_up.HOG),
                   (made_up.CLIMBER, made_up.SITTER))  # fmt: skip
    taken = {m.jobs: RULES["larger-rate"](data, m) for m in data.measurements}
    assert taken == {
        ("climber", "sitter"): "10/90", ("hog", "slow"): "90/10", ("hog", "hog"): "50/50"
    }  # fmt: skip


pytestmark = pytest.mark.figures

ROWS = training_set().rows
A = profile("training", columns={"sm_active_percent": [90.0] * 10})


def too_high(rows: Rows, jobs: tuple[str, str], factor: float) -> HeldOut:
    """Speeds as measured, and that much too high in all pairs with one of two jobs."""
    row = np.arange(len(rows))
    far = np.isin(rows.job_a, jobs) | np.isin(rows.job_b, jobs)
    by = np.where(far, factor, 1.0)
    speeds = rows.speed_a * by, rows.speed_b * by
    return as_held_out(rows.job_a, row, as_predicted(np.column_stack(speeds), rows.power_w))


def test_errors_of_neither_job_are_in_the_bounds() -> None:
    jobs = (ROWS.jobs[0], ROWS.jobs[1])
    held_out = too_high(ROWS, jobs, 2.0)
    found = bounds_without(ROWS, held_out, jobs[0], jobs)
    assert {(b.low, b.high) for b in found.values()} <= {(0.0, 0.0)}
    others = (ROWS.jobs[-1], ROWS.jobs[-2])
    wide = bounds_without(ROWS, held_out, others[0], others)
    assert min(b.low for b in wide.values()) == pytest.approx(-np.log(2))


def test_errors_of_the_same_fit_are_not_in_the_bounds() -> None:
    held_out = dataclasses.replace(
        too_high(ROWS, (ROWS.jobs[0], ""), 2.0), left_out=np.full(len(ROWS), "all of a run")
    )
    assert not bounds_without(ROWS, held_out, "all of a run", ("x", "y"))


def test_a_speed_is_as_unsure_as_its_situation() -> None:
    """One that no other pair was in is as unsure as the most unsure one; none is above alone."""
    half = float(np.log(2))
    known = {
        "split, filling beside filling": LogBounds(-half, half),
        "split, server": LogBounds(-3 * half, 0.0),
        UNCAPPED_STRATUM: LogBounds(-2 * half, 0.0),
    }
    found = speed_around(known, 0.6, EQUAL, 0, (A, A))
    assert (found.value, found.low, found.high) == pytest.approx((0.6, 0.3, 1.0))
    assert speed_around(known, 0.6, UNCAPPED, 0, (A, A)).low == pytest.approx(0.15)
    waiting = profile("waiting", flags=("cpu-bound",))
    assert speed_around(known, 0.6, EQUAL, 0, (waiting, A)).low == pytest.approx(0.075)


def test_bounds_are_put_to_what_a_server_could_do() -> None:
    """It could do twice its demand, so a third less is still all of it."""
    serving = Serving(offered_rate=100.0, rate_noise=None, latency_p99_ms=())
    bounds = {"split, server": LogBounds(-0.4, 0.4)}
    found = speed_around(bounds, 2.0, EQUAL, 0, (profile("server", serving=serving), A))
    assert found == Interval(1.0, 0.98, 1.02)
