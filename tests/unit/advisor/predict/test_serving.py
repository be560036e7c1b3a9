"""Jobs that answer requests: all of the demand is served, and latency is held as far as it can."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import SHARES, Scripted, profile
from store_points import point

from advisor.core.split import NINE, UNCAPPED
from advisor.decide.recommend import Request, recommend
from advisor.errors import InputError, NoSplitError
from advisor.predict.profiles import make_profiles
from advisor.predict.serving import LEAST_TOLERANCE, MOST_TOLERANCE, Serving, serving_of
from advisor_advice.options import longest_p99_ms

P99_MS = {10: 200.0, 20: 60.0, 50: 20.0, 100: 8.0}


def serving(**fields: Any) -> Serving:
    """100 requests per second."""
    latencies = tuple((float(share), ms) for share, ms in P99_MS.items())
    known: dict[str, Any] = {
        "offered_rate": 100.0, "rate_noise": None, "latency_p99_ms": latencies
    }  # fmt: skip
    return Serving(**(known | fields))


SERVER, TRAINING = profile("server", [100.0] * 10, serving=serving()), profile("training")
"""The server keeps up at every share."""


def test_a_profile_knows_its_demand() -> None:
    """From its points, with latencies by share."""
    points = [
        point(
            number, share_percent=float(share), rate=99.0, rate_stderr=0.99, power_w=300.0,
            offered_rate=100.0, latency_p50_ms=1.0, latency_p99_ms=P99_MS.get(share),
        )
        for number, share in enumerate(SHARES)
    ]  # fmt: skip
    (found,) = make_profiles(points).values()
    assert found.serving == serving(rate_noise=pytest.approx(0.01))
    assert "latency_p99_ms" not in found.missing


def test_other_jobs_have_none() -> None:
    assert serving_of([point(0), point(1)]) is None


@given(st.floats(10, 100))
def test_latency_between_two_shares_is_between_theirs(share: float) -> None:
    found = serving().p99_alone_ms(share)
    below = max(s for s in P99_MS if s <= share)
    above = min(s for s in P99_MS if s >= share)
    assert found is not None
    assert P99_MS[above] - 1e-9 <= found <= P99_MS[below] + 1e-9


@pytest.mark.parametrize("share", [5.0, 9.99, 100.5])
def test_latency_outside_of_the_measured_shares_is_not_known(share: float) -> None:
    assert serving().p99_alone_ms(share) is None
    assert serving(latency_p99_ms=()).p99_alone_ms(50.0) is None


@given(st.none() | st.floats(0, 10))
def test_tolerance_is_bounded(noise: float | None) -> None:
    """A noisy profile is no excuse to starve a server."""
    assert LEAST_TOLERANCE <= serving(rate_noise=noise).tolerance <= MOST_TOLERANCE


def test_tolerance_holds_for_servers_that_serve_everything() -> None:
    """Poisson arrivals in two windows: their ratio is short by more in about 1 of 40."""
    arrived = np.random.default_rng(0).poisson(10_000, size=(2, 20_000))
    tolerance = serving(rate_noise=0.01).tolerance
    assert tolerance == pytest.approx(0.0283, abs=1e-4)
    assert 0.015 < np.mean(arrived[0] / arrived[1] < 1 - tolerance) < 0.035


@given(
    st.lists(st.tuples(st.floats(0.1, 1.1), st.floats(0.1, 1.1), st.floats(150, 700)), min_size=10,
             max_size=10),
    st.sampled_from([0.0, 0.4]),
    st.none() | st.floats(5, 300),
)  # fmt: skip
def test_no_answer_breaks_what_a_server_needs(
    values: list[tuple[float, float, float]], least: float, most_ms: float | None
) -> None:
    """Never one after the other, never less than its demand, never too slow alone; either order."""
    table = dict(zip([*NINE, UNCAPPED], values, strict=True))
    mirror = {split.turned(): (y, x, w) for split, (x, y, w) in table.items()}
    request = Request(default_min_speed=least, default_max_p99_ms=most_ms)
    try:
        answer = recommend((SERVER, TRAINING), Scripted(table, off=0.0), request)
    except NoSplitError:
        with pytest.raises(NoSplitError):
            recommend((TRAINING, SERVER), Scripted(mirror, off=0.0), request)
        return
    p = answer.choice.prediction
    assert p.split.sharing != "exclusive"
    assert p.parts[0].speed.low >= 0.98
    alone_ms = serving().p99_alone_ms(p.split.shares[0])
    assert most_ms is None or (alone_ms is not None and alone_ms <= most_ms)
    swapped = recommend((TRAINING, SERVER), Scripted(mirror, off=0.0), request).choice.prediction
    assert swapped.split == p.split.turned()


def test_the_option_has_names_and_units() -> None:
    options = ("a=50ms", "20 ms", "b=0.5s", "a=60ms")
    assert longest_p99_ms(options, ("a", "b")) == ({"a": 60.0, "b": 500.0}, 20.0)
    assert longest_p99_ms((), ("a", "b")) == ({}, None)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("a=50", "no time with a unit"),
        ("50", "no time with a unit"),
        ("a=ms", "no time with a unit"),
        ("a=-5ms", "no time with a unit"),
        ("c=50ms", "for a job that is not there"),
    ],
)
def test_options_that_cannot_be_meant(option: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        longest_p99_ms((option,), ("a", "b"))
