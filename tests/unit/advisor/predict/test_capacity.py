"""What servers could do, and what of it they serve."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import SHARES, profile

from advisor.core.interval import Interval
from advisor.predict.profiles import Profile, Serving, relative_capacity

DEMAND = 100.0

SERVING = Serving(offered_rate=DEMAND, rate_noise=None, latency_p99_ms=())


def server(per_percent: float) -> Profile:
    """It can serve so many requests for each percent of the GPU, and 100 arrive."""
    rates = [min(DEMAND, per_percent * share) for share in SHARES]
    columns = {"sm_active_percent": [min(50.0, share) for share in SHARES]}
    return profile("server", rates, serving=SERVING, columns=columns)


def test_the_capacity_of_a_server_is_seen_where_it_falls_short() -> None:
    """At 10 % it serves 40 of 100; at 50 % it could serve 200, though only 100 arrive."""
    found = relative_capacity(server(4.0), [10.0, 20.0, 30.0, 50.0, 100.0])
    assert found.tolist() == pytest.approx([0.4, 0.8, 1.2, 2.0, 4.0])


def test_a_server_that_never_falls_short_could_do_at_least_in_proportion() -> None:
    """All that is known is that 10 % of the GPU served everything."""
    assert relative_capacity(server(50.0), [10.0, 35.0]).tolist() == pytest.approx([1.0, 3.5])


def test_a_server_that_nobody_saw_at_small_shares_takes_its_sm_activity_at_most() -> None:
    """It served all at half of the GPU, which says that it needs that; it was active on a tenth."""
    columns = {"sm_active_percent": [12.0, 10.0]}
    thin = profile("server", [DEMAND] * 2, [50.0, 100.0], serving=SERVING, columns=columns)
    assert relative_capacity(thin, [50.0, 100.0]).tolist() == pytest.approx([5.0, 10.0])
    unread = profile(
        "server",
        [DEMAND] * 2,
        [50.0, 100.0],
        serving=SERVING,
        columns={"sm_active_percent": [float("nan")] * 2},
    )
    assert relative_capacity(unread, [50.0, 100.0]).tolist() == pytest.approx([1.0, 2.0])


def test_a_server_that_the_whole_gpu_cannot_serve_has_no_more() -> None:
    """Its rate is its capacity at every share."""
    behind = profile("server", [10.0 + share / 2 for share in SHARES], serving=SERVING)
    found = relative_capacity(behind, SHARES)
    np.testing.assert_allclose(found, behind.values["rate"] / behind.whole_gpu_rate)


def test_the_capacity_of_any_other_job_is_its_rate() -> None:
    """Latencies alone are no demand."""
    timed = Serving(offered_rate=None, rate_noise=None, latency_p99_ms=((100.0, 5.0),))
    for job in (profile("training"), profile("training", serving=timed)):
        assert relative_capacity(job, [25.0, 100.0]).tolist() == [0.25, 1.0]


@given(
    st.lists(st.floats(0.1, 200), min_size=10, max_size=10).map(sorted),
    st.lists(st.floats(10, 100), min_size=1),
)
def test_a_job_could_do_what_it_does(rates: list[float], shares: list[float]) -> None:
    job = profile("server", rates, serving=SERVING)
    did = job.at(shares)["rate"] / job.whole_gpu_rate
    assert bool((relative_capacity(job, shares) >= did * (1 - 1e-12)).all())


def test_what_is_served_ends_at_the_demand() -> None:
    """Half as much again as arrives, give or take a fifth: all of it, but for chance."""
    assert SERVING.served(Interval(1.5, 1.2, 1.8)) == Interval(1.0, 0.98, 1.02)
    assert SERVING.served(Interval(1.1, 0.9, 1.3)) == Interval(1.0, 0.9, 1.02)
    assert SERVING.served(Interval(0.5, 0.4, 0.6)) == Interval(0.5, 0.4, 0.6)


def test_a_job_without_a_demand_does_what_it_can() -> None:
    """Some jobs run faster next to another one than alone."""
    timed = Serving(offered_rate=None, rate_noise=None, latency_p99_ms=())
    assert timed.served(Interval(1.5, 1.2, 1.8)) == Interval(1.5, 1.2, 1.8)


@given(st.floats(0, 3), st.floats(0, 1), st.floats(0, 1), st.none() | st.floats(0, 0.2))
def test_bounds_of_what_is_served_hold_it(
    value: float, below: float, above: float, noise: float | None
) -> None:
    serving = Serving(offered_rate=DEMAND, rate_noise=noise, latency_p99_ms=())
    found = serving.served(Interval(value, value * (1 - below), value * (1 + above)))
    assert found.low <= found.value <= found.high
    assert found.value <= 1
