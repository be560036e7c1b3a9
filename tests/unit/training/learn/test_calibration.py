"""Intervals for other runs, other cards and profiles without counters."""

import dataclasses

import numpy as np
from made_up_rows import as_measured, solo_points, spy, training_set
from synthetic_pairs import GPU_MODEL

from advisor.predict.profiles import make_profiles
from advisor_models.intervals import LIMITED, SPLIT, UNCAPPED, LogBounds, on_gpu_model
from advisor_training.held_out import BY_RUN, BY_WORKLOAD, leave_one_job_out
from advisor_training.intervals import (
    calibrate,
    efficiency_residuals,
    left_out,
    strictest,
    with_card_term,
    without_counters,
)
from advisor_training.learners import HEAD_LEARNERS, LEARNERS, Predicted
from advisor_training.rows import Rows

SET = training_set()
ROWS = SET.rows


def test_a_card_that_draws_more_for_everything_saves_the_same() -> None:
    """Pairs and jobs alone 5 % above the profiles: expected 5 % too low, and saved as expected."""
    hot = ROWS.assign(
        power_w=1.05 * ROWS.power_w,
        solo_power_a_w=1.05 * ROWS.profile_power_a_w,
        solo_power_b_w=1.05 * ROWS.profile_power_b_w,
    )
    found = efficiency_residuals(hot, as_measured(hot, power=1 / 1.05))
    np.testing.assert_allclose(found.values, 0, atol=1e-12)


def test_the_card_term_is_in_watts_below_the_limit_only() -> None:
    bounds = {
        SPLIT: LogBounds(-0.03, 0.04), UNCAPPED: LogBounds(-0.2, 0.1),
        LIMITED: LogBounds(-0.01, 0.01)
    }  # fmt: skip
    wide = with_card_term(bounds, 0.04)
    assert wide[SPLIT].low < -0.08
    assert wide[SPLIT].high > 0.08
    assert {**wide, SPLIT: bounds[SPLIT]} == bounds
    assert with_card_term(bounds, 0.0) == bounds
    here = {**bounds, on_gpu_model(SPLIT, "Card"): LogBounds(-0.01, 0.02)}
    assert with_card_term(here, 0.04)[on_gpu_model(SPLIT, "Card")].low < -0.08
    assert [each.card_spread for each in HEAD_LEARNERS] == [0.0, 0.04]


def test_several_runs_are_left_out_one_run_gets_the_card_term() -> None:
    assert strictest(ROWS) == BY_WORKLOAD
    number = np.arange(len(ROWS)) % 2
    two = ROWS.assign(run=np.where(number, "x", "y"), card=np.where(number, "GPU-x", "GPU-y"))
    assert strictest(two) == BY_RUN
    learner = LEARNERS["linear"]
    one_run = calibrate(ROWS, left_out(ROWS, learner))
    assert one_run.intervals["power"][SPLIT].low < -0.08
    assert set(one_run.held) == {"speed", "power", "efficiency"}
    assert one_run.no_counters is None


def test_profiles_without_counters_make_intervals_wider() -> None:
    """A learner that is far off on them; what it learns from has every counter."""
    seen: list[tuple[Rows, Rows]] = []
    asked = leave_one_job_out(ROWS, spy(seen), asked=SET.blind)
    assert len(seen) == len(ROWS.jobs)
    assert not any(set(learned.jobs) & {str(name)} for (learned, _), name in zip(
        seen, ROWS.jobs, strict=True))  # fmt: skip
    heads = {"speed": [10, 1] * asked.heads["speed"], "power": 3 * asked.heads["power"]}
    off = dataclasses.replace(asked, predicted=Predicted(asked.speed, heads))
    held_out = left_out(ROWS, LEARNERS["extra-trees"])
    exact = calibrate(ROWS, held_out, asked).no_counters
    found = calibrate(ROWS, held_out, off).no_counters
    assert exact
    assert found
    assert exact == {"speed": 1, "power": 1}
    assert found["speed"] > 1
    assert found["power"] > 1


def test_what_a_profile_keeps_without_counters() -> None:

    profile = make_profiles(solo_points())["hog", GPU_MODEL]
    blind = without_counters(profile)
    assert np.isnan(blind.values["dram_active_percent"]).all()
    np.testing.assert_array_equal(blind.values["rate"], profile.values["rate"])
    assert set(blind.missing) == set(blind.values) - {"rate", "power_w"}
