"""Intervals of an evaluation: made of pairs that have nothing to do with the pair asked for."""

import dataclasses

import numpy as np
import pytest
from made_up_profiles import profile
from made_up_rows import training_set

from advisor.core.interval import Interval
from advisor.core.split import EQUAL as EVEN
from advisor.core.split import UNCAPPED as FREE
from advisor.predict.serving import Serving
from advisor_models.intervals import UNCAPPED, LogBounds
from advisor_training.choices import NO_BOUNDS, SpeedBounds, bounds_without
from advisor_training.held_out import HeldOut
from advisor_training.learners import as_predicted
from advisor_training.rows import Rows

pytestmark = pytest.mark.figures

ROWS = training_set().rows
A = profile("training", columns={"sm_active_percent": [90.0] * 10})


def too_high(rows: Rows, jobs: tuple[str, str], factor: float) -> HeldOut:
    """Speeds as measured, and that much too high in all pairs with one of two jobs."""
    row = np.arange(len(rows))
    far = np.isin(rows.job_a, jobs) | np.isin(rows.job_b, jobs)
    by = np.where(far, factor, 1.0)
    speeds = rows.speed_a * by, rows.speed_b * by
    return HeldOut(rows.job_a, row, as_predicted(np.column_stack(speeds), rows.power_w))


def test_errors_of_neither_job_are_in_the_bounds() -> None:
    """Wrong for two jobs only, they look sure to the pair of these, and to no other."""
    jobs = (ROWS.jobs[0], ROWS.jobs[1])
    held_out = too_high(ROWS, jobs, 2.0)
    found = bounds_without(ROWS, held_out, jobs[0], jobs)
    assert {(b.low, b.high) for b in found.known.values()} <= {(0.0, 0.0)}
    others = (ROWS.jobs[-1], ROWS.jobs[-2])
    wide = bounds_without(ROWS, held_out, others[0], others)
    assert min(b.low for b in wide.known.values()) == pytest.approx(-np.log(2))


def test_errors_of_the_same_fit_are_not_in_the_bounds() -> None:
    """What was left out together is known together."""
    held_out = dataclasses.replace(
        too_high(ROWS, (ROWS.jobs[0], ""), 2.0), left_out=np.full(len(ROWS), "all of a run")
    )
    assert not bounds_without(ROWS, held_out, "all of a run", ("x", "y")).known


def test_a_speed_is_as_unsure_as_its_situation() -> None:
    """One that no other pair was in is as unsure as the most unsure one; none is above alone."""
    half = float(np.log(2))
    known = {
        "split, filling beside filling": LogBounds(-half, half),
        "split, server": LogBounds(-3 * half, 0.0),
        UNCAPPED: LogBounds(-2 * half, 0.0),
    }
    bounds = SpeedBounds(known)
    found = bounds.around(0.6, EVEN, 0, (A, A))
    assert (found.value, found.low, found.high) == pytest.approx((0.6, 0.3, 1.0))
    assert bounds.around(0.6, FREE, 0, (A, A)).low == pytest.approx(0.15)
    waiting = profile("waiting", flags=("cpu-bound",))
    assert bounds.around(0.6, EVEN, 0, (waiting, A)).low == pytest.approx(0.075)


def test_nothing_is_sure_where_no_error_is_known() -> None:
    """And everything where none is asked for."""
    assert SpeedBounds({}).around(0.6, EVEN, 0, (A, A)).low == 0
    assert NO_BOUNDS.around(0.6, EVEN, 0, (A, A)) == Interval(0.6, 0.6, 0.6)


def test_bounds_are_put_to_what_a_server_could_do() -> None:
    """It could do twice its demand, so a third less is still all of it."""
    serving = Serving(offered_rate=100.0, rate_noise=None, latency_p99_ms=())
    bounds = SpeedBounds({"split, server": LogBounds(-0.4, 0.4)})
    found = bounds.around(2.0, EVEN, 0, (profile("server", serving=serving), A))
    assert found == Interval(1.0, 0.98, 1.02)
