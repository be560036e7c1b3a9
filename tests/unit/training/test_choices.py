"""Choices by hand: what is chosen of what is expected, and what that is worth as measured."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_profiles import profile
from made_up_results import pair_result
from made_up_rows import as_held_out, full_solo_points, measured, solo_points, spy, training_set
from reading import some
from sklearn import model_selection
from sklearn.linear_model import Ridge
from sklearn.utils import estimator_checks

import advisor
from advisor.core.gpu import EQUAL, NINE, UNCAPPED, Split
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    OBJECTIVES,
    PER_WATT_OBJECTIVE,
    Interval,
    SplitResult,
)
from advisor.errors import InputError, ModelError
from advisor.predict.profiles import Floats, Serving
from advisor_models.registry import UNCAPPED as UNCAPPED_STRATUM, LogBounds
from advisor_training import scoring
from advisor_training.evaluation import (
    TOLERANCES,
    Evaluation,
    FigureKind,
    ask,
    bundled_figures,
    by_job,
    check,
    checked_figures,
    limit_rows,
    planned_fits,
)
from advisor_training.learners import (
    BY_FAMILY,
    BY_PAIR,
    BY_RUN,
    BY_WORKLOAD,
    LEARNERS,
    LEAST_IN_LEAF,
    LEAST_SPEED,
    PROTOCOLS,
    RANDOM_ROWS,
    SPEED_LEARNER,
    Fitted,
    HeldOut,
    Predicted,
    PriorRegressor,
    as_predicted,
    draw_rows,
    extra_trees,
    fit,
    has_other_runs,
    joined,
    learned_from,
    leave_out,
    paper_features,
    paper_learner,
    physical,
)
from advisor_training.reports import said, write_evaluation
from advisor_training.rows import Data, Rows, flat, make_data
from advisor_training.scoring import (
    RULES,
    Choice,
    ChoiceQuestion,
    Error,
    bounds_without,
    choose,
    choose_by_rule,
    error,
    errors_of,
    figures_of,
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
    assert [(c.left_out, c.number) for c in found] == [("x", 0), ("y", 0), ("y", 1)]
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
        assert question.allows(way, pair_result(rate_a=0.9, rate_b=slower, **watts), of) == allowed


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
        return next(c.chosen for c in choose(four, hopes, question, 0.0) if c.left_out == "x")

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
    serving = Serving(offered_rate=1e9, rate_noise=None, latency_p99_ms=((50.0, 9.0), (100.0, 4.0)))
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
        assert [(c.left_out, c.number, c.chosen) for c in found] == [(*key, name) for key in keys]
    assert choose_by_rule(data, keys, "equal", NINE_ONLY)[0].fraction == 1.0


def test_the_larger_rate_gets_most() -> None:
    data = data_of((made_up.HOG, made_up.SLOW), (made_up.HOG, made_up.HOG),
                   (made_up.CLIMBER, made_up.SITTER))  # fmt: skip
    assert {m.jobs: RULES["larger-rate"](data, m) for m in data.measurements} == {
        ("climber", "sitter"): "10/90", ("hog", "slow"): "90/10", ("hog", "hog"): "50/50"
    }  # fmt: skip


pytestmark = pytest.mark.figures

ROWS = training_set().rows
A = profile("training", columns={"sm_active_percent": [90.0] * 10})


def too_high(rows: Rows, jobs: tuple[str, str], factor: float) -> HeldOut:
    """Speeds as measured, and that much too high in all pairs with one of two jobs."""
    row = np.arange(len(rows))
    by = np.where(np.isin(rows.job_a, jobs) | np.isin(rows.job_b, jobs), factor, 1.0)
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


# The evaluation: what is left out, choices and errors by hand, the check, the page.


OBJECTIVE = OBJECTIVES[PER_WATT_OBJECTIVE]
QUESTION = ChoiceQuestion(OBJECTIVE)


def knows_all(rows: Rows) -> Fitted:
    return measured


def answers_of(data: Data, protocol: str, learner: Callable[[Rows], Fitted]) -> HeldOut:
    return leave_out(data.rows, learner, PROTOCOLS[protocol].draws(data.rows))


def test_no_pair_is_on_both_sides(data: Data) -> None:
    seen: list[tuple[Rows, Rows]] = []
    found = answers_of(data, BY_PAIR, spy(seen))
    assert not any(set(learned.pair) & set(asked.pair) for learned, asked in seen)
    assert sorted(found.row) == list(range(len(data.rows)))


def test_random_rows_are_the_papers(data: Data) -> None:
    seen: list[tuple[Rows, Rows]] = []
    found = answers_of(data, RANDOM_ROWS, spy(seen))
    n = len(data.rows)
    assert [len(learned) / n for learned, _ in seen] == pytest.approx([0.7] * 10, abs=0.02)
    assert {len(asked) for _, asked in seen} == {n}
    assert found.tested.mean() == pytest.approx(0.3, abs=0.02)
    one, other = draw_rows(data.rows, 0.7, 2)
    assert (one.learned != other.learned).any()


def test_who_knows_all_reaches_the_oracle(data: Data) -> None:
    held_out = answers_of(data, BY_WORKLOAD, knows_all)
    for name in OBJECTIVES:
        for scope in ("nine", "every way"):
            found = choose(data, held_out, ChoiceQuestion(OBJECTIVES[name], scope), 0.0)
            assert min(choice.fraction for choice in found) == pytest.approx(1)


def made_choice(
    fraction: float, over_equal: float, job: str = "a", missed: bool | None = None
) -> Choice:
    return Choice(left_out=job, number=0, jobs=(job, "b"), chosen="50/50", oracle="10/90",
                  fraction=fraction, energy_saved=1 - 1 / over_equal, stp=over_equal,
                  slower_speed=0.5, missed=missed, over={"equal": over_equal})  # fmt: skip


def test_figures_of_choices() -> None:
    found = some(figures_of([made_choice(1.0, 1.5), made_choice(0.8, 0.8, "worst", missed=True)]))
    values = (found.fraction.value, found.worst_percent, found.p10_percent, found.saved.value,
              found.loses.value, found.stp.value, found.over["equal"]["mean_percent"])  # fmt: skip
    assert values == pytest.approx((90, 80, 82, 100 * (1 / 3 - 1 / 4) / 2, 50, 1.15, 15))
    assert set(found.over) == {"equal"}
    assert found.missed
    assert found.missed.value > 0
    without = figures_of([made_choice(1.0, 1.5)])
    assert without
    assert (without.missed, figures_of([])) == (None, None)


def test_errors_by_hand() -> None:
    found = some(error(np.array([1.1, 2.0, 5.0]), np.array([1.0, 4.0, 0.0])))
    assert dataclasses.astuple(found) == pytest.approx((30, 30))
    assert error(np.array([1.0]), np.array([0.0])) is None


def test_the_rate_as_served_includes_the_profile(data: Data) -> None:
    faster = {
        key: dataclasses.replace(p, values={**p.values, "rate": 1.1 * p.values["rate"]})
        for key, p in data.profiles.items()
    }
    answers = answers_of(data, BY_WORKLOAD, knows_all)
    which = np.full(len(data.rows), True)
    found = errors_of(dataclasses.replace(data, profiles=faster), answers, which)
    assert found.rate
    assert (found.rate.mean_percent, found.speed) == (pytest.approx(10), Error(0, 0))


def test_own_and_neighbours_errors_are_apart(data: Data) -> None:
    def learn(rows: Rows) -> Fitted:
        return lambda asked: as_predicted(
            np.column_stack([1.2 * asked.speed_a, asked.speed_b]), asked.power_w
        )

    held_out = answers_of(data, BY_WORKLOAD, learn)
    jobs = by_job(data, held_out, {PER_WATT_OBJECTIVE: choose(data, held_out, QUESTION, 0)})
    own = {job["job"]: job["own"] and job["own"].median_percent for job in jobs}
    # `climber` is the first of every pair by its name, `slow` the last but next to itself.
    assert (own["climber"], own["slow"]) == (pytest.approx(20), pytest.approx(0))
    busy = [job["sm_active_percent"] for job in jobs]
    assert busy == sorted(busy, reverse=True)


@pytest.mark.usefixtures("evaluation")
def test_planned_fits_are_the_fits_that_happen(
    data: Data, fits_made: list[tuple[str, str]]
) -> None:
    planned = planned_fits(data, quick=True)
    assert {step: fits_made.count(step) for step in planned} == planned
    assert len(fits_made) == sum(planned.values()) == 15


def worsened(
    figures: dict[FigureKind, dict[str, float]], kind: FigureKind, by: float
) -> tuple[str, Any]:
    """The figures with the first one of a kind worse by so many points."""
    name = next(iter(figures[kind]))
    step = by if kind == "error" else -by
    return name, {**figures, kind: {**figures[kind], name: figures[kind][name] + step}}


@pytest.mark.parametrize("kind", list(TOLERANCES))
def test_a_worse_report_fails_the_check(evaluation: Evaluation, kind: FigureKind) -> None:
    figures = checked_figures(evaluation)
    for by in (-20, TOLERANCES[kind] - 0.01):
        check(worsened(figures, kind, by)[1], figures)
    name, beyond = worsened(figures, kind, TOLERANCES[kind] + 0.01)
    with pytest.raises(ModelError, match=re.escape(f"{kind} of {name} is")) as caught:
        check(beyond, figures)
    bound = worsened(figures, kind, TOLERANCES[kind])[1][kind][name]
    assert all(f"{value:.2f} %" in str(caught.value) for value in (beyond[kind][name], bound))


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_missing_figure_fails_the_check(evaluation: Evaluation, value: float | None) -> None:
    figures = checked_figures(evaluation)
    name, *_ = errors = dict(figures["error"])
    errors |= {name: value}
    found: dict[FigureKind, dict[str, float]]
    found = {**figures, "error": {k: v for k, v in errors.items() if v is not None}}
    with pytest.raises(ModelError, match=re.escape(name)):
        check(found, figures)


def test_the_bundled_figures_are_of_the_same_names(evaluation: Evaluation) -> None:
    ours, bundled = checked_figures(evaluation), bundled_figures()
    assert {kind: list(found) for kind, found in ours.items()} == {
        kind: list(found) for kind, found in bundled.items()
    }


def test_the_page_needs_nothing_else(evaluation: Evaluation, tmp_path: Path) -> None:
    named = {**evaluation.basis, "gpu_models": ("<script>x</script>",)}
    strange = dataclasses.replace(evaluation, basis=named)
    page, *_ = write_evaluation(strange, tmp_path / "a")
    text = page.read_text()
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"|url\((?!#)[^)]*\)', text) == []
    identities = re.findall(r'\bid="([^"]*)"', text)
    assert len(identities) == len(set(identities))
    assert "<script>" not in text
    assert all(line in unescape(text) for line in said(strange))
    assert "prefers-color-scheme: dark" in text


def test_a_family_is_left_out_whole(data: Data) -> None:
    names = np.array(["bert-train", "bert-infer-b2", "triad", "gemm", "matmul-bf16", "fft"])
    jobs = dict(zip(data.rows.jobs, names, strict=False))
    rows = data.rows.assign(
        job_a=np.array([jobs[j] for j in data.rows.job_a.tolist()]),
        job_b=np.array([jobs[j] for j in data.rows.job_b.tolist()]),
    )
    seen: list[tuple[Rows, Rows]] = []
    draws = [*PROTOCOLS[BY_FAMILY].draws(rows)]
    leave_out(rows, spy(seen), draws)
    for twins in ({"bert-train", "bert-infer-b2"}, {"gemm", "matmul-bf16"}):
        for learned, asked in seen:
            pairs = zip(asked.job_a.tolist(), asked.job_b.tolist(), strict=True)
            assert not set(learned.jobs) & twins or not all(twins & {*pair} for pair in pairs)
    assert len(seen) == len(draws)


def test_a_run_is_left_out_with_its_cards(data: Data) -> None:
    assert not has_other_runs(data.rows.take(data.rows.run == data.rows.run[0]))
    number = np.arange(len(data.rows)) % 2
    rows = data.rows.assign(
        run=np.where(number, "second", "first"),
        card=np.where(number, "GPU-2", "GPU-1"),
    )
    assert has_other_runs(rows)
    seen: list[tuple[Rows, Rows]] = []
    draws = [*PROTOCOLS[BY_RUN].draws(rows)]
    leave_out(rows, spy(seen), draws)
    assert all(not set(learned.card) & set(asked.card) for learned, asked in seen)
    assert len(seen) == len(draws) == 2 * len(rows.jobs)


@pytest.mark.slow
def test_low_ends_share_no_more_often_than_expected_speeds(data: Data) -> None:
    results = ask("linear", LEARNERS["linear"], data, BY_WORKLOAD)
    rows = list(limit_rows(data, BY_WORKLOAD, results))
    ways = ["as advised", "low end", "expected"]
    assert [(row["min_speed"], row["kept"]) for row in rows] == [
        (least, kept) for least in (0.4, 0.5) for kept in ways
    ]
    shared = [row["shared"].value for row in rows]
    assert shared[1] <= shared[0] <= shared[2]


def test_choices_agree_with_the_training_scores(data: Data) -> None:
    """The same fractions as training reports, by an objective that knows no raw rates."""
    held_out = answers_of(data, BY_WORKLOAD, LEARNERS["linear"])
    ours = [c.fraction for c in choose(data, held_out, QUESTION, 0.005)]
    np.testing.assert_allclose(ours, scoring.fractions(data.rows, held_out, OBJECTIVE, 0.005))


def values(predicted: Predicted) -> Floats:
    return np.concatenate([flat(predicted.speed), predicted.power_w])


def test_a_starved_job_has_a_logarithm() -> None:
    starved = ROWS.assign(speed_a=np.zeros(len(ROWS)))
    np.testing.assert_array_equal(learned_from(SPEED_LEARNER, starved)[1][: len(ROWS)], LEAST_SPEED)


@pytest.mark.parametrize("name", [name for name in LEARNERS if name != "physical"])
def test_learners_learn(name: str) -> None:
    measured = np.concatenate([ROWS.speed_a, ROWS.speed_b, ROWS.power_w])
    learned = np.abs(values(LEARNERS[name](ROWS)(ROWS)) / measured - 1).mean()
    assert learned < 0.5 * np.abs(values(physical(ROWS)(ROWS)) / measured - 1).mean()


def test_a_server_is_learned_from_where_it_falls_short() -> None:
    """A row in which it served everything says only that it could do no less."""
    half = np.arange(len(ROWS)) < len(ROWS) // 2
    full = np.where(half, 0.98, np.inf)
    rows = ROWS.assign(all_served_a=full, speed_a=np.where(half, 1.0, ROWS.speed_a))
    told = rows.assign(speed_a=np.where(half, 1.05, ROWS.speed_a))
    learned, again = (fit(extra_trees, each)(rows) for each in (rows, told))
    np.testing.assert_array_equal(learned.speed, again.speed)


def test_a_server_serves_no_more_than_its_demand() -> None:
    """What it could do is known next to that; no other job is faster than alone."""
    speed = np.full((len(ROWS), 2, 1), 3.0)
    served = ROWS.assign(all_served_a=np.full(len(ROWS), 0.98))
    rows = dataclasses.replace(served, heads={**ROWS.heads, "speed": speed})
    found = physical(rows)(rows)
    assert [set(each[:, 0]) for each in (found.speed, found.heads["speed"])] == [{1.0}, {3.0}]
    assert set(found.speed[:, 1]) == {1.0}


def test_a_weight_changes_what_is_learned() -> None:
    noise = np.random.default_rng(0).normal(0, 0.2, len(ROWS))
    noisy = ROWS.assign(power_w=ROWS.power_w * np.exp(noise))
    half = noisy.assign(weight=np.where(ROWS.job_a == "climber", 0.1, 1.0))
    for name in ("extra-trees", "linear"):
        plain, weighed = (LEARNERS[name](rows)(ROWS).power_w for rows in (noisy, half))
        assert not np.array_equal(plain, weighed)


CHECKS, SELECTION = cast("Any", estimator_checks), cast("Any", model_selection)
"""They have no types."""

COUNTS_ROWS = {
    "check_sample_weight_equivalence_on_dense_data": f"a leaf has {LEAST_IN_LEAF} rows, whatever "
    "they weigh: ExtraTreesRegressor(min_samples_leaf=4) fails this by itself"
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("regressor", "expected"), [(None, COUNTS_ROWS), (Ridge(), {})], ids=["trees", "ridge"]
)
def test_scikit_learn_takes_it_for_its_own(regressor: Any, expected: dict[str, str]) -> None:
    found = CHECKS.check_estimator(
        PriorRegressor(regressor), expected_failed_checks=expected, on_fail=None, on_skip=None
    )
    failed = {each["check_name"]: each["exception"] for each in found if each["status"] == "failed"}
    assert failed == {}
    assert {each["check_name"] for each in found if each["status"] == "xfail"} == expected.keys()


def test_a_prior_is_no_feature() -> None:
    """What is learned is the distance to it: right everywhere, there is nothing to learn."""
    prior = np.linspace(1, 100, 50)
    X = np.column_stack([np.zeros(50), prior])  # noqa: N806
    fitted = PriorRegressor(Ridge(), prior_column=1).fit(X, 2 * prior)
    np.testing.assert_allclose(fitted.predict(X), 2 * prior, rtol=1e-5)
    with pytest.raises(ValueError, match="must be above 0"):
        fitted.fit(X, prior - 1)


@pytest.mark.slow
def test_another_regressor_can_be_left_out_job_by_job() -> None:
    """On the rows of the trainer, in the folds of the trainer, with the tools of scikit-learn."""
    data = advisor.training_data("power")
    assert data.X.columns[0] == "prior"
    assert not data.X.isna().any(axis=None)
    folds = list(data.folds())[:3]
    for train, test in folds:
        assert not {*data.jobs[train].ravel()} >= {*data.jobs[test].ravel()}
    estimator = advisor.PriorRegressor(Ridge(), prior_column=0)
    assert SELECTION.cross_val_score(estimator, data.X, data.y, cv=folds).min() > 0.5
    with pytest.raises(InputError, match="no head watts"):
        advisor.training_data("watts")


PAPER_DATA = make_data(
    made_up.pair_points([(made_up.CLIMBER, made_up.SITTER), (made_up.HOG, made_up.CLIMBER)]),
    full_solo_points(),
)


def test_features_of_the_paper_are_averaged_or_summed() -> None:
    """For a row whose jobs are known in closed form, and the slopes of both jobs."""
    rows, profiles = PAPER_DATA.rows, PAPER_DATA.profiles
    at = (rows.job_a == "climber") & (rows.job_b == "sitter") & (rows.share_a == 30)
    [found] = paper_features(rows.take(at), profiles).tolist()
    pair = [profiles[name, made_up.GPU_MODEL] for name in ("climber", "sitter")]
    slopes = [np.polyfit(p.shares, p.values["rate"], 1)[0] for p in pair]
    assert slopes[0] == pytest.approx(2, rel=0.01), "200 steps per second over 100 %"
    rates = 200 * made_up.CLIMBER.speed(30) + 900 * made_up.SITTER.speed(70)
    assert (found[0], found[2]) == pytest.approx(((95 * 0.3 + 15 * 0.7) / 2, 10))
    assert found[5:] == pytest.approx([20, 20, rates, sum(slopes)])


def test_the_papers_method_gives_back_the_sums_that_it_learned() -> None:
    nine = PAPER_DATA.rows.take(PAPER_DATA.rows.kind == "nine")
    found = paper_learner(PAPER_DATA.profiles)(PAPER_DATA.rows)(nine)
    rates = np.column_stack([nine.solo_rate_a, nine.solo_rate_b])
    measured = np.column_stack([nine.speed_a, nine.speed_b])
    np.testing.assert_allclose((found.speed * rates).sum(1), (measured * rates).sum(1))
    np.testing.assert_allclose(found.power_w, nine.power_w)
