"""Intervals that hold a stated part of the measured values of workloads that were not seen."""

import dataclasses
import math
import statistics

import numpy as np
import pytest
import synthetic_pairs as made_up
from hypothesis import given, strategies as st
from made_up_rows import as_measured, solo_points, spy, training_set
from simple_pairs import SOLOS, nine, pair
from synthetic_pairs import GPU_MODEL

from advisor.core.objectives import OBJECTIVES
from advisor.core.records import PairPoint
from advisor.errors import InputError
from advisor.predict.profiles import make_profiles
from advisor_models.registry import LIMITED, SPLIT, UNCAPPED, LogBounds, on_gpu_model, place_of
from advisor_training.learners import (
    BY_RUN,
    BY_WORKLOAD,
    HEAD_LEARNERS,
    LEARNERS,
    POWER_LEARNER,
    SPEED_LEARNER,
    learned_from,
    leave_job_out,
)
from advisor_training.rows import Names, Rows, make_measurements
from advisor_training.scoring import (
    Resamples,
    Residuals,
    bounds_of,
    calibrate,
    efficiency_residuals,
    intervals,
    left_out,
    measured_coverage,
    noise_scores,
    residuals_of,
    strictest,
    with_card_term,
    without_counters,
)

ROWS = training_set().rows


def residuals(by_job: dict[str, list[float]], stratum: str = "50") -> Residuals:
    jobs = [job for job, values in by_job.items() for _ in values]
    values = np.array([value for values in by_job.values() for value in values])
    others, strata = (np.full(len(values), name) for name in ("other", stratum))
    return Residuals(values, np.array(jobs), others, strata)


def test_bounds_by_hand() -> None:
    """40 % of 20 workloads, raised by a twentieth, are 42 %: from the 29th to the 71st part."""
    values = [float(value) for value in range(100)]
    dealt = {f"job-{number:02}": values[number::20] for number in range(20)}
    bounds = bounds_of(residuals(dealt), coverage=0.4)["50"]
    assert (bounds.low, bounds.high) == (29, 70)


@given(st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=5), min_size=1, max_size=30))
def test_bounds_hold_the_raised_level(jobs: list[list[float]]) -> None:
    """The average workload has at least coverage x (1 + 1 / workloads) of its rows inside."""
    made = residuals({str(number): values for number, values in enumerate(jobs)})
    bounds = bounds_of(made, coverage=0.8)["50"]
    inside = [statistics.mean(bounds.low <= v <= bounds.high for v in values) for values in jobs]
    assert statistics.mean(inside) >= min(1, 0.8 * (1 + 1 / len(jobs))) - 1e-6
    assert min(map(min, jobs)) <= bounds.low <= bounds.high <= max(map(max, jobs))


def joined(*parts: Residuals, gpu_model: Names | None = None) -> Residuals:
    columns = ("values", "left_out", "beside", "stratum")
    made = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    return Residuals(**made, gpu_model=gpu_model)


def of_gpu_models(by_model: dict[str, dict[str, list[float]]]) -> Residuals:
    """Residuals at splits of jobs on GPU models, whose bounds are made by GPU model."""
    parts = [residuals(jobs, "split") for jobs in by_model.values()]
    names = [np.full(len(its), model) for model, its in zip(by_model, parts, strict=True)]
    return joined(*parts, gpu_model=np.concatenate(names))


def test_a_gpu_model_with_enough_jobs_has_bounds_of_its_own() -> None:
    """Nine for 90 %; one with fewer, and the only one that there is, have those of all."""
    many = {f"job-{n}": [0.01 * n, -0.01 * n] for n in range(9)}
    bounds = bounds_of(of_gpu_models({"many": many, "few": {job: [5.0] for job in [*many][:8]}}))
    assert set(bounds) == {"split", on_gpu_model("split", "many")}
    own = bounds[on_gpu_model("split", "many")]
    assert (own.low, own.high, bounds["split"].high) == (-0.08, 0.08, 5)
    assert set(bounds_of(of_gpu_models({"many": many}))) == {"split"}


def test_coverage_is_measured_by_the_bounds_that_are_served() -> None:
    """Ten jobs of a rare GPU model, all off by as much, are a tail of all jobs together.

    Left out, a job is held by the bounds of the other nine, but for the lowest.
    """
    usual = {f"job-{n}": [0.01, -0.01] for n in range(200)}
    made = of_gpu_models({"usual": usual, "rare": {f"rare-{n}": [-0.5 - n] for n in range(10)}})
    own = measured_coverage(made)
    pooled = measured_coverage(dataclasses.replace(made, gpu_model=None))
    assert own.strata == {"split": pytest.approx(209 / 210)}
    assert pooled.overall < own.overall


def test_measured_coverage_leaves_out_rows_beside_the_workload() -> None:
    """What the tested job did to its neighbours would give away how the job behaves."""
    # Nine jobs are off by far next to "far" alone, and "far" is off as far.
    jobs = [f"job-{n}" for n in range(9)]
    values = np.array([-0.1, 0.1, 9.0] * 9 + [9.0])
    left_out = np.array([*np.repeat(jobs, 3), "far"])
    beside = np.array(["other", "other", "far"] * 9 + ["other"])
    coverage = measured_coverage(Residuals(values, left_out, beside, np.full(28, "50")))
    assert (coverage.least, coverage.overall) == (0, pytest.approx(9 / 10))


def test_coverage_needs_rows_without_the_tested_job() -> None:
    """A job that is next to all others in all their rows is not counted; one job is too few."""
    made = residuals({"a": [-1.0, 1.0], "b": [-1.0, 1.0], "c": [0.5]})
    beside = Residuals(made.values, made.left_out, np.array(["c"] * 4 + ["a"]), made.stratum)
    assert measured_coverage(beside).overall == 1
    with pytest.raises(InputError, match="cannot be measured with 1 job"):
        measured_coverage(residuals({"a": [0.0]}))


def test_residuals_of_rows() -> None:
    found = residuals_of(ROWS, as_measured(ROWS, 0.5, 0.5), SPEED_LEARNER)
    np.testing.assert_allclose(found.values, math.log(2))
    names = set(found.stratum.tolist())
    assert {"split, filling beside filling", "split, filling beside filling, below 35 %"} <= names
    assert {place_of(name) for name in names} == {SPLIT, UNCAPPED}
    jobs = set(zip(found.left_out.tolist(), found.beside.tolist(), strict=True))
    assert {("hog", "hog"), ("hog", "slow"), ("slow", "hog")} <= jobs
    power = residuals_of(ROWS, as_measured(ROWS, 2, 2), POWER_LEARNER)
    np.testing.assert_allclose(power.values, -math.log(2))
    assert {place_of(n) for n in power.stratum.tolist()} <= {SPLIT, LIMITED, UNCAPPED}


def test_without_uncapped_points_there_are_no_intervals() -> None:
    nine = ROWS.take(ROWS.kind == "nine")
    held_out = as_measured(nine)
    for each in HEAD_LEARNERS:
        with pytest.raises(InputError, match="no pair was measured uncapped"):
            intervals(residuals_of(nine, held_out, each))


def test_a_situation_with_few_jobs_has_none_of_its_own() -> None:
    """Two servers say nothing of a third; all of them are in the bounds of the place."""
    parts = (
        residuals({str(n): [0.1 * n, -0.1 * n] for n in range(9)}, "split, launch-bound"),
        residuals({"x": [2.0], "y": [-3.0]}, "split, server"),
    )
    found = bounds_of(joined(*parts))
    assert set(found) == {"split", "split, launch-bound"}
    assert found["split, launch-bound"].high == pytest.approx(0.8)
    assert (found["split"].low, found["split"].high) == (-3, 2)


def test_a_job_that_was_faster_than_alone_was_as_fast() -> None:
    """It had been slow alone: neither an error is told by that, nor is more learned than 1."""
    rows = ROWS.assign(speed_a=np.full(len(ROWS), 1.1))
    found = residuals_of(rows, as_measured(rows, 0.5, 1.0), SPEED_LEARNER)
    np.testing.assert_allclose(found.values[: len(rows)], -math.log(0.55))
    np.testing.assert_array_equal(learned_from(SPEED_LEARNER, rows)[1][: len(rows)], 1)


def test_errors_of_servers_are_of_what_they_could_do() -> None:
    """Where all was expected and served there is nothing to see; else the capacity was off."""
    ones = np.ones(len(ROWS))
    rows = ROWS.assign(
        speed_a=ones, speed_b=0.8 * ones, all_served_a=0.98 * ones, all_served_b=0.98 * ones
    )

    def found(rows: Rows, expected: float) -> Residuals:
        return residuals_of(rows, as_measured(rows, expected, expected), SPEED_LEARNER)

    count = len(as_measured(rows).row)
    np.testing.assert_allclose(found(rows, 1.6).values, np.full(count, -np.log(1.6)))
    # Short by less than twice what chance makes: nothing to see either.
    assert len(found(rows.assign(speed_b=0.965 * ones), 1.6)) == 0
    # Served, though it was not expected: it could do that at least.
    assert len(found(rows, 0.5)) == 2 * count


def test_a_card_that_draws_more_for_everything_saves_the_same() -> None:
    hot = ROWS.assign(
        power_w=1.05 * ROWS.power_w,
        solo_power_a_w=1.05 * ROWS.profile_power_a_w,
        solo_power_b_w=1.05 * ROWS.profile_power_b_w,
    )
    found = efficiency_residuals(hot, as_measured(hot, power=1 / 1.05))
    np.testing.assert_allclose(found.values, 0, atol=1e-12)


def test_the_card_term_is_in_watts_below_the_limit_only() -> None:
    here = on_gpu_model(SPLIT, "Card")
    bounds = {
        SPLIT: LogBounds(-0.03, 0.04), UNCAPPED: LogBounds(-0.2, 0.1),
        LIMITED: LogBounds(-0.01, 0.01), here: LogBounds(-0.01, 0.02),
    }  # fmt: skip
    wide = with_card_term(bounds, 0.04)
    assert wide[SPLIT].low < -0.08 < 0.08 < wide[SPLIT].high
    assert wide[here].low < -0.08
    assert {**wide, SPLIT: bounds[SPLIT], here: bounds[here]} == bounds
    assert with_card_term(bounds, 0.0) == bounds


def test_several_runs_are_left_out_one_run_gets_the_card_term() -> None:
    assert strictest(ROWS) == BY_WORKLOAD
    number = np.arange(len(ROWS)) % 2
    two = ROWS.assign(run=np.where(number, "x", "y"), card=np.where(number, "GPU-x", "GPU-y"))
    assert strictest(two) == BY_RUN
    one_run = calibrate(ROWS, left_out(ROWS, LEARNERS["linear"]))
    assert one_run.intervals["power"][SPLIT].low < -0.08
    assert (set(one_run.held), one_run.no_counters) == ({"speed", "power", "efficiency"}, None)


def test_profiles_without_counters_make_intervals_wider() -> None:
    seen: list[tuple[Rows, Rows]] = []
    asked = leave_job_out(ROWS, spy(seen), wanted=training_set().blind)
    # Fits run side by side, in any order.
    assert sorted(sorted(set(ROWS.jobs) - set(learned.jobs)) for learned, _ in seen) == [
        [name] for name in ROWS.jobs
    ]
    heads = {"speed": [10, 1] * asked.heads["speed"], "power": 3 * asked.heads["power"]}
    off = dataclasses.replace(asked, heads=heads)
    held_out = left_out(ROWS, LEARNERS["extra-trees"])
    exact, found = (calibrate(ROWS, held_out, each).no_counters for each in (asked, off))
    assert exact == {"speed": 1, "power": 1}
    assert found
    assert min(found.values()) > 1


def test_what_a_profile_keeps_without_counters() -> None:
    profile = make_profiles(solo_points())["hog", GPU_MODEL]
    blind = without_counters(profile)
    assert set(blind.missing) == set(blind.values) - {"rate", "power_w"}
    np.testing.assert_array_equal(blind.values["rate"], profile.values["rate"])


# How sure figures are: takes of one pair, and intervals by drawing jobs again.


def ceiling(points: list[PairPoint], name: str = "throughput") -> list[float]:
    return noise_scores(make_measurements(points, SOLOS)[0], OBJECTIVES[name])


@pytest.mark.figures
@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_without_noise_the_ceiling_is_exactly_one(name: str) -> None:
    points = made_up.pair_points(run="first") + made_up.pair_points(run="second")
    found = noise_scores(make_measurements(points, made_up.solo_points())[0], OBJECTIVES[name])
    assert found == [1.0] * 30


@pytest.mark.figures
def test_a_ceiling_by_hand() -> None:
    """Each take's choice is scored on the other, as a part of the other's best."""
    flat = dict.fromkeys(range(10, 100, 10), 0.8)
    half = dict.fromkeys(flat, 0.4)  # a slower card, which changes no comparison within it
    points = [
        *nine({**flat, 30: 1.6, 70: 1.44}, run="r1"),
        *nine({**half, 30: 0.6, 70: 1.0}, run="r2", gpu_uuid="GPU-2"),
        *nine(job_2="a"),  # taken once
    ]
    # r1 chooses 30/70, worth 0.6 of 1.0 in r2; r2 chooses 70/30, worth 1.44 of 1.6 in r1.
    assert ceiling(points) == pytest.approx([0.6, 0.9])


@pytest.mark.figures
def test_it_takes_two_takes_that_can_be_compared() -> None:
    """Three in one run give six choices.

    A second take of four splits cannot score a choice among nine, nor one worth nothing.
    """
    assert len(ceiling([point for n in range(3) for point in nine(repeat=n)])) == 6
    nothing = [p for n in range(2) for p in nine(rate_1=0.0, repeat=n)]
    few = (nine(), [*nine(), *nine(repeat=1)[2:6]], nothing)
    assert [ceiling(points, "max-min") for points in few] == [[]] * 3


@pytest.mark.figures
def test_a_starved_job_does_not_break_the_ceiling() -> None:
    """Where 50/50 starves a job, max-min is 0 there."""
    one = nine(repeat=0)
    other = [p for p in nine(repeat=1) if p.shares_percent[0] != 50] + [pair(rate_1=0.0, repeat=1)]
    assert ceiling([*one, *other], "max-min") == pytest.approx([0, 0.8])


JOBS = st.sampled_from(["a", "b", "c", "d"])


@pytest.mark.figures
@given(st.lists(st.tuples(JOBS, JOBS, st.floats(-10, 10)), min_size=1, max_size=20))
def test_intervals_lie_within_the_values(found: list[tuple[str, str, float]]) -> None:
    drawn = Resamples([(a, b) for a, b, _ in found])
    values = [value for _, _, value in found]
    for estimate in (drawn.mean(values), drawn.median(values)):
        assert min(values) - 1e-9 <= estimate.low <= estimate.high <= max(values) + 1e-9
    assert drawn.mean(values).value == pytest.approx(np.mean(values))
    assert drawn.median(values).value == pytest.approx(np.median(values))


@pytest.mark.figures
def test_pairs_of_one_job_hang_together() -> None:
    """Ten pairs that all have one odd job tell less than ten that share none."""
    values = [1.0] * 10 + [0.0] * 10
    others = [(f"a{n}", f"b{n}") for n in range(10)]
    firsts = ([f"c{n}" for n in range(10)], ["odd"] * 10)
    pairs = [[*((job, f"d{n}") for n, job in enumerate(jobs)), *others] for jobs in firsts]
    apart, together = (Resamples(each).mean(values) for each in pairs)
    assert together.high - together.low > apart.high - apart.low
