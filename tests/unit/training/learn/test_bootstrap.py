"""Intervals by drawing jobs again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor_training.noise import Resamples

pytestmark = pytest.mark.figures

JOBS = st.sampled_from(["a", "b", "c", "d"])


@given(st.lists(st.tuples(JOBS, JOBS, st.floats(-10, 10)), min_size=1, max_size=20))
def test_intervals_lie_within_the_values(found: list[tuple[str, str, float]]) -> None:
    drawn = Resamples([(a, b) for a, b, _ in found])
    values = [value for _, _, value in found]
    for estimate in (drawn.mean(values), drawn.median(values)):
        assert min(values) - 1e-9 <= estimate.low <= estimate.high <= max(values) + 1e-9
    assert drawn.mean(values).value == pytest.approx(np.mean(values))
    assert drawn.median(values).value == pytest.approx(np.median(values))


def test_pairs_of_one_job_hang_together() -> None:
    """Ten pairs that all have one odd job tell less than ten that share none."""
    values = [1.0] * 10 + [0.0] * 10
    others = [(f"a{n}", f"b{n}") for n in range(10)]
    apart = Resamples([*((f"c{n}", f"d{n}") for n in range(10)), *others]).mean(values)
    together = Resamples([*(("odd", f"d{n}") for n in range(10)), *others]).mean(values)
    assert together.high - together.low > apart.high - apart.low


def test_the_interval_is_about_that_of_the_mean() -> None:
    """Jobs next to themselves are independent: two standard errors on each side."""
    values = np.random.default_rng(1).normal(size=200)
    found = Resamples([(str(n), str(n)) for n in range(200)]).mean(values)
    wanted = 1.96 * values.std() / np.sqrt(200)
    assert found.high - found.value == pytest.approx(wanted, rel=0.15)
    assert found.value - found.low == pytest.approx(wanted, rel=0.15)
