import math

from hypothesis import given
from hypothesis import strategies as st

from advisor_profiling.window.estimate import mean_estimate, rate_estimate

FINITE = st.floats(0.1, 1e4)


def test_no_readings_have_no_mean() -> None:
    assert mean_estimate([]) is None
    assert rate_estimate([]) is None
    assert rate_estimate([(1.0, 5.0)]) is None


@given(st.floats(0.5, 500), st.integers(2, 400))
def test_steady_steps_give_their_rate_exactly(rate: float, steps: int) -> None:
    """Counting from change to change has no error from the window's edges."""
    estimate = rate_estimate([(0.37 + step / rate, float(step)) for step in range(steps)])
    assert estimate is not None
    assert math.isclose(estimate.mean, rate, rel_tol=1e-9)
    assert estimate.stderr is None or estimate.stderr < 1e-6 * rate


@given(st.lists(FINITE, min_size=2, max_size=200))
def test_mean_is_between_the_extremes_and_its_error_is_positive(values: list[float]) -> None:
    estimate = mean_estimate([(0.05 * i, value) for i, value in enumerate(values)])
    assert estimate is not None
    assert min(values) * (1 - 1e-9) <= estimate.mean <= max(values) * (1 + 1e-9)
    assert estimate.stderr is None or estimate.stderr >= 0


def test_readings_that_repeat_do_not_make_the_mean_look_exact() -> None:
    once = [(float(i), 100.0 + 10 * (i % 2)) for i in range(10)]
    often = [(i + j / 10, value) for i, value in once for j in range(10)]
    single, repeated = mean_estimate(once), mean_estimate(often)
    assert single is not None
    assert repeated is not None
    assert single.stderr is not None
    assert repeated.stderr is not None
    assert repeated.stderr > 0.7 * single.stderr


def test_a_rate_that_changes_has_a_large_error() -> None:
    events = [(0.1 * i, float(i)) for i in range(20)]
    events += [(1.9 + 0.2 * i, 19.0 + i) for i in range(1, 20)]
    estimate = rate_estimate(events)
    assert estimate is not None
    assert estimate.relative is not None
    assert estimate.relative > 0.05
