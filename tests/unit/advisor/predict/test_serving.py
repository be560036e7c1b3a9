"""Jobs that answer requests: all of the demand is served, and latency is held as far as it can."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_profiles import SHARES, Physics, Scripted, profile
from store_points import point

from advisor.core.split import NINE, UNCAPPED, Split
from advisor.decide.constraints import Limits, floor
from advisor.decide.recommend import Request, recommend
from advisor.errors import InputError, NoSplitError
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.serving import LEAST_TOLERANCE, MOST_TOLERANCE, Serving, serving_of
from advisor_cli.advise.job_requests import longest_p99_ms

P99_MS = {10: 200.0, 20: 60.0, 50: 20.0, 100: 8.0}


def serving(**fields: Any) -> Serving:
    """100 requests per second."""
    latencies = tuple((float(share), ms) for share, ms in P99_MS.items())
    known: dict[str, Any] = {
        "offered_rate": 100.0, "rate_noise": None, "latency_p99_ms": latencies
    }  # fmt: skip
    return Serving(**(known | fields))


def server(rates: list[float] | None = None, **fields: Any) -> Profile:
    """It keeps up at every share."""
    return profile("server", rates or [100.0] * 10, serving=serving(**fields))


TRAINING = profile("training")


def scripted(**speeds: float) -> Scripted:
    """What the server serves at its share of 20, 50 and 80 %; little elsewhere."""
    shares = {float(name[1:]): speed for name, speed in speeds.items()}
    known = {Split((s, 100.0 - s)): (speed, 0.5, 400.0) for s, speed in shares.items()}
    return exact({**dict.fromkeys([*NINE, UNCAPPED], (0.5, 0.5, 400.0)), **known})


def exact(known: Mapping[Split, tuple[float, float, float]]) -> Scripted:
    """Bounds that are the values."""
    return Scripted(known, off=0.0)


def said(answer: Any) -> str:
    """Reasons and warnings as one text."""
    return "\n".join((*answer.reasons, *answer.warnings))


# what points tell


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
    """Neither a demand nor a latency."""
    assert serving_of([point(0), point(1)]) is None


@given(st.floats(10, 100))
def test_latency_between_two_shares_is_between_theirs(share: float) -> None:
    """And at a measured share it is the measured one."""
    found = serving().p99_alone_ms(share)
    below = max(s for s in P99_MS if s <= share)
    above = min(s for s in P99_MS if s >= share)
    assert found is not None
    assert P99_MS[above] - 1e-9 <= found <= P99_MS[below] + 1e-9


@pytest.mark.parametrize("share", [5.0, 9.99, 100.5])
def test_latency_outside_of_the_measured_shares_is_not_known(share: float) -> None:
    """It is not made up."""
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


# what is recommended


def test_all_of_the_demand_is_the_floor() -> None:
    """A number by name replaces it, the default for all jobs does not."""
    assert floor(server(), Limits(default_min_speed=0.4)) == pytest.approx(0.98)
    assert floor(server(), Limits(default_min_speed=0.0)) == pytest.approx(0.98)
    assert floor(server(), Limits(min_speed={"server": 0.7})) == 0.7
    assert floor(TRAINING, Limits(default_min_speed=0.4)) == 0.4
    # Latencies alone are no demand.
    assert floor(server(offered_rate=None), Limits()) == 0.4


def test_a_split_that_drops_requests_is_out() -> None:
    """Though it would save more."""
    predictor = exact(
        {
            **dict.fromkeys([*NINE, UNCAPPED], (0.5, 0.4, 600.0)),
            Split((20.0, 80.0)): (0.9, 0.9, 400.0),
            Split((50.0, 50.0)): (0.99, 0.5, 400.0),
        }
    )
    answer = recommend((server(), TRAINING), predictor)
    assert answer.choice.name == "50/50"
    assert "server may serve as little as 90 % of its demand, below 98 %" in said(answer)


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
        answer = recommend((server(), TRAINING), exact(table), request)
    except NoSplitError:
        with pytest.raises(NoSplitError):
            recommend((TRAINING, server()), exact(mirror), request)
        return
    p = answer.choice.prediction
    assert p.split.sharing != "exclusive"
    assert p.parts[0].speed.low >= 0.98
    alone_ms = serving().p99_alone_ms(p.split.shares[0])
    assert most_ms is None or (alone_ms is not None and alone_ms <= most_ms)
    swapped = recommend((TRAINING, server()), exact(mirror), request).choice.prediction
    assert swapped.split == p.split.turned()


def test_two_servers_that_need_the_whole_gpu_do_not_share() -> None:
    """Nor do they take turns: each needs a GPU."""
    with pytest.raises(NoSplitError) as failed:
        recommend((server(), server()), scripted())
    assert "may serve as little as 50 % of its demand, below 98 %" in str(failed.value)
    assert "or give each job a GPU of its own" in str(failed.value)


def test_a_speed_of_0_lets_a_server_be_off() -> None:
    """Who says so means it."""
    request = Request(min_speed={"server": 0.0}, default_min_speed=0.9)
    assert recommend((server(), TRAINING), scripted(), request).choice.name == "exclusive"


def test_a_server_does_not_share_where_that_costs_energy() -> None:
    """A GPU for each takes less; who asks for time gets it, with what it costs."""
    predictor = exact(dict.fromkeys([*NINE, UNCAPPED], (1.0, 0.4, 690.0)))
    with pytest.raises(NoSplitError, match="better off apart than on one NVIDIA H200") as failed:
        recommend((server(), TRAINING), predictor)
    assert "50/50 takes 23 % more energy for the same work" in str(failed.value)
    assert "--objective throughput" in str(failed.value)
    answer = recommend((server(), TRAINING), predictor, Request(objective="throughput"))
    assert answer.choice.sharing != "exclusive"
    assert "this takes 23.2 % more energy than the same work with a GPU for each job" in said(
        answer
    )


def test_a_server_that_its_gpu_cannot_serve_is_said() -> None:
    """It is held to what the whole GPU serves."""
    behind = profile("server", [80.0] * 10, serving=serving())
    physics = Physics(off=0.0)
    answer = recommend((behind, TRAINING), physics)
    assert "server serves 80 % of its demand alone on the whole GPU" in answer.warnings
    assert not [w for w in recommend((server(), TRAINING), physics).warnings if "whole GPU" in w]


# latency


def test_a_latency_that_the_share_alone_breaks_is_out() -> None:
    """Alone it is 60 ms at 20 % and 20 ms at 50 %."""
    table = scripted(_20=1.0, _50=1.0, _80=1.0)
    answer = recommend((server(), TRAINING), table, Request(max_p99_ms={"server": 30.0}))
    assert answer.choice.name == "50/50"
    texts = {o.name: [m.text for m in o.violations] for o in answer.candidates}
    assert texts["20/80"] == ["server alone at 20 % has a p99 latency of 60 ms, above 30 ms"]
    assert (
        "the p99 latency of server beside another job is not predicted: alone at 50 % it is 20 ms "
        "of 30 ms allowed, and a neighbour adds to it"
    ) in answer.warnings


def test_a_latency_that_the_whole_gpu_breaks() -> None:
    """The error says that another GPU of the kind is no help."""
    with pytest.raises(NoSplitError) as failed:
        recommend((server(), TRAINING), scripted(_50=1.0), Request(max_p99_ms={"server": 5.0}))
    assert "a GPU for each does not help: server alone at 100 % has a p99 latency of 8 ms" in str(
        failed.value
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"max_p99_ms": {"training": 50.0}}, "no latency of training was measured"),
        ({"max_p99_ms": {"severe": 50.0}}, "a latency was given for severe"),
    ],
)
def test_a_latency_of_which_nothing_is_known_is_refused(
    fields: Mapping[str, Any], text: str
) -> None:
    """Never taken as held."""
    with pytest.raises(InputError, match=text):
        recommend((server(), TRAINING), Physics(), Request(**fields))


def test_a_latency_for_all_needs_a_job_that_has_one() -> None:
    """A job that answers no requests is not meant by it."""
    request = Request(default_max_p99_ms=500.0)
    assert recommend((server(), TRAINING), Physics(off=0.0), request).choice
    with pytest.raises(InputError, match="no latency of training or other was measured"):
        recommend((TRAINING, profile("other")), Physics(), request)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_latencies_that_cannot_be_meant(value: float) -> None:
    """By name and for all."""
    with pytest.raises(InputError, match="max_p99_ms"):
        Limits(max_p99_ms={"server": value})
    with pytest.raises(InputError, match="max_p99_ms"):
        Limits(default_max_p99_ms=value)


# the option


def test_the_option_has_names_and_units() -> None:
    """The last one of each counts."""
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
    """With how to write one."""
    with pytest.raises(InputError, match=text):
        longest_p99_ms((option,), ("a", "b"))
