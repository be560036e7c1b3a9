"""Profiles: solo points as arrays over shares, and gaps in them."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import small_model
from hypothesis import given, strategies as st
from made_up_profiles import SHARES, Scripted, profile
from reading import some
from simple_pairs import solo
from store_points import point

from advisor.core.gpu import NINE, UNCAPPED
from advisor.core.objectives import Policy
from advisor.core.records import BACKLOG, JOB_CHANGED, WATCHED, SoloPoint
from advisor.decide.decision import Outlook, decide
from advisor.decide.limits import Request
from advisor.errors import InputError
from advisor.launch.account import relative
from advisor.predict.kernels import Kernels, computes_in_bursts
from advisor.predict.profiles import (
    COLUMNS,
    LEAST_TOLERANCE,
    MOST_TOLERANCE,
    NEEDED,
    Profile,
    Serving,
    filled,
    make_profile,
    make_profiles,
    non_decreasing_rates,
    relative_capacity,
    with_rate,
)
from advisor_data.bundled import bundled_set_references


def points(**fields: Any) -> list[SoloPoint]:
    return [
        solo(share_percent=share, rate=share, started_at=f"2026-01-31T12:00:0{n}Z", **fields)
        for n, share in enumerate((50.0, 10.0, 100.0))
    ]


def test_shares_ascend_whatever_the_order() -> None:
    made = make_profile(points(dram_active_percent=5.0))
    assert (made.shares.tolist(), made.values["rate"].tolist()) == ([10, 50, 100], [10, 50, 100])
    assert (made.whole_gpu_rate, made.whole_gpu_power_w) == (100, 100)
    assert made.values["dram_active_percent"].tolist() == [5, 5, 5]
    assert set(made.values) == set(COLUMNS)


def of_program(job_hash: str | None, day: int, rate: float, **fields: Any) -> list[SoloPoint]:
    return [
        solo(
            share_percent=share,
            rate=rate * share,
            job_hash=job_hash,
            started_at=f"2026-02-{day:02}T12:00:00Z",
            run=f"r{day}",
            **fields,
        )
        for share in (50.0, 100.0)
    ]


@pytest.mark.parametrize(
    ("points", "rate"),
    [
        ([*of_program("old", 1, 1.0), *of_program("new", 2, 5.0)], 500),
        ([*of_program("new", 3, 5.0), *of_program("old", 1, 1.0), *of_program("old", 2, 1.0)], 500),
        # As it was before once more.
        ([*of_program("a", 1, 1.0), *of_program("b", 2, 5.0), *of_program("a", 3, 3.0)], 200),
        # Without a hash it may be of any.
        (
            [*of_program("old", 1, 1.0), *of_program(None, 2, 3.0), *of_program("new", 3, 5.0)],
            400,
        ),
        # What was never right, or was only seen, is no program to go by.
        (
            [
                *of_program("old", 1, 1.0),
                *of_program("wrong", 2, 5.0, flags=("wrong-results",)),
                *of_program("seen", 3, 5.0, flags=(WATCHED,)),
            ],
            100,
        ),
    ],
)
def test_only_points_of_the_newest_program_count(points: list[SoloPoint], rate: float) -> None:
    (made,) = make_profiles(points).values()
    assert (made.whole_gpu_rate, JOB_CHANGED in made.flags) == (rate, True)


def test_kernels_that_another_gpu_model_counted_are_told_apart() -> None:
    counted = {"kernels_per_unit": 4.0, "kernel_hold_s": 1e-3, "kernels_per_unit_stderr": 0.1}
    there = of_program("one", 1, 1.0, gpu_model="Other", **counted)
    made = make_profiles([*of_program("one", 2, 1.0), *there])
    sources = {
        model: profile.kernels.source for (_, model), profile in made.items() if profile.kernels
    }
    assert sources == {"Card": "elsewhere", "Other": "probe"}


def test_points_of_one_program_or_none_are_all_used() -> None:
    """On another GPU model the older program is the newest, and its kernels are others."""
    both = [*of_program("one", 1, 1.0), *of_program("one", 2, 3.0)]
    fewer = of_program("two", 3, 7.0, gpu_model="Other", kernels_per_unit=4.0)
    made = make_profiles([*both, *fewer])
    here, there = made["a", "Card"], made["a", "Other"]
    assert (here.whole_gpu_rate, here.kernels, there.whole_gpu_rate) == (200, None, 700)
    assert not {JOB_CHANGED} & {*here.flags, *there.flags}


def test_repeated_shares_take_the_median() -> None:
    more = [
        solo(share_percent=10.0, rate=rate, dram_active_percent=dram, run=f"r{rate}")
        for rate, dram in ((20.0, 7.0), (90.0, None))
    ]
    made = make_profile([*points(), *more])
    assert (made.values["rate"][0], made.values["dram_active_percent"][0]) == (20, 7)
    assert np.isnan(made.values["dram_active_percent"][1])


def test_missing_columns_are_those_that_nothing_tells() -> None:
    first, *rest = points()
    made = make_profile([dataclasses.replace(first, sm_clock_mhz=1500), *rest])
    assert "sm_clock_mhz" not in made.missing
    assert "dram_active_percent" in made.missing
    assert not set(NEEDED) & set(made.missing)


def test_what_belongs_to_the_job() -> None:
    first, second, third = points()
    made = make_profile(
        [
            dataclasses.replace(first, memory_used_mib=100, flags=("throttled",)),
            dataclasses.replace(second, memory_used_mib=300, flags=("throttled", "cpu-bound")),
            dataclasses.replace(third, power_limit_w=600.0, rate_unit="image"),
        ]
    )
    assert (made.memory_used_mib, made.flags) == (300, ("cpu-bound", "throttled"))
    assert (made.rate_unit, made.power_limit_w) == ("image", 600)


def test_kernels_are_those_of_points_on_the_whole_gpu() -> None:
    *rest, whole = points()
    told = {"kernels_per_unit_stderr": 0.1, "kernel_hold_s": 2e-4, "kernel_hold_stderr_s": 1e-5}
    counted = [dataclasses.replace(whole, kernels_per_unit=n, **told) for n in (4.0, 5.0, 9.0)]
    wrong = dataclasses.replace(rest[0], kernels_per_unit=100.0)
    kernels = make_profile([wrong, *rest[1:], whole, *counted]).kernels
    assert kernels == Kernels(per_unit=5, hold_s=2e-4, source="probe")
    assert make_profile(points()).kernels is None


@pytest.mark.parametrize(
    ("made_of", "why"),
    [
        ([], "shares none make no profile"),
        (points()[:2], "shares 10, 50 make no profile"),
        (points()[2:], "shares 100 make no profile"),
        ([*points(), solo(job="b")], "not of"),
        ([dataclasses.replace(p, power_w=None) for p in points()], "shares none"),
    ],
)
def test_no_profile(made_of: list[SoloPoint], why: str) -> None:
    with pytest.raises(InputError, match=why):
        make_profile(made_of)


def test_between_shares_it_is_linear() -> None:
    made = make_profile(points())
    assert made.at([100, 10, 50])["rate"].tolist() == [100, 10, 50]
    assert made.at([30, 75])["rate"].tolist() == [30, 75]
    assert (made.at([30])["power_w"].tolist(), made.at([])["rate"].tolist()) == ([100], [])


@pytest.mark.parametrize("share", [9.99, 100.01, 0.0])
def test_beyond_the_shares_there_is_nothing(share: float) -> None:
    with pytest.raises(InputError, match="was not measured at"):
        make_profile(points()).at([50, share])


def gappy() -> Profile:
    made = small_model.make_profile()
    values = np.full_like(made.shares, np.nan)
    values[[1, 3, 4]] = 20.0, 40.0, 30.0
    nothing = np.full_like(made.shares, np.nan)
    return dataclasses.replace(
        made,
        values={**made.values, "dram_active_percent": values, "sm_clock_mhz": nothing},
        missing=("sm_clock_mhz",),
    )


def test_gaps_are_filled_from_their_neighbours() -> None:
    found = filled(gappy(), {"sm_clock_mhz": 1500.0})
    assert found.values["dram_active_percent"].tolist() == [20, 20, 30, 40, 30, 30, 30, 30, 30, 30]
    assert found.values["sm_clock_mhz"].tolist() == [1500] * 10
    assert (found.missing, list(found.values)) == (("sm_clock_mhz",), list(gappy().values))
    assert found.values["rate"].tolist() == gappy().values["rate"].tolist()


def test_nothing_is_made_up_for_an_unknown_column() -> None:
    with pytest.raises(InputError, match="lacks sm_clock_mhz"):
        filled(gappy(), {})


def test_profiles_have_no_dips() -> None:
    """A lower rate at a larger share is noise: both get what lies between, the others stay."""
    rates = {10.0: 40.0, 50.0: 100.0, 100.0: 98.0}
    dipped = [dataclasses.replace(p, rate=rates[p.share_percent]) for p in points()]
    (profile,) = make_profiles(dipped).values()
    assert profile.values["rate"].tolist() == pytest.approx([40, 98.995, 98.995], abs=1e-3)
    assert make_profile(dipped).values["rate"].tolist() == [40, 100, 98]


def test_no_job_in_bursts_draws_less_for_its_work_under_a_limit() -> None:
    """The window at 50 % met few bursts; else two copies would draw less than one alone."""
    bursts = {"gpu_busy_percent": 30.0, "sm_active_percent": 25.0, "idle_power_w": 60.0}
    found = {10.0: (70.0, 95.0), 50.0: (90.0, 94.0), 100.0: (100.0, 100.0)}
    seen = [
        dataclasses.replace(p, rate=found[p.share_percent][0], power_w=found[p.share_percent][1])
        for p in points(**bursts)
    ]
    (profile,) = make_profiles(seen).values()
    assert profile.in_bursts
    assert profile.values["power_w"].tolist() == pytest.approx([95, 96, 100])
    steady = [dataclasses.replace(p, gpu_busy_percent=90.0) for p in seen]
    assert next(iter(make_profiles(steady).values())).values["power_w"][1] == 94


@pytest.fixture(scope="module")
def whole() -> list[SoloPoint]:
    return [point for point in bundled_set_references() if point.share_percent == 100]


def test_notebooks_and_what_waits_for_input_do(whole: list[SoloPoint]) -> None:
    """By how busy the GPU is, and where that was not read by the noise of the watts."""
    busy = {p.job: computes_in_bursts(p) for p in whole if p.gpu_busy_percent is not None}
    assert {name for name, found in busy.items() if found} == {
        name for name in busy if name.startswith("notebook") or name.endswith("-waiting")
    }
    older = [p for p in whole if p.gpu_busy_percent is None]
    found = [(p.job.startswith("notebook") or p.job.endswith("-waiting")) for p in older]
    said = [computes_in_bursts(p) for p in older]
    wrong = [p.job for p, one, other in zip(older, said, found, strict=True) if one != other]
    assert len(wrong) < 0.05 * len(older), wrong


@given(st.lists(st.tuples(st.floats(0.1, 1e6), st.floats(0, 0.1)), min_size=1, max_size=12))
def test_no_rate_falls_and_none_leaves_the_measured_ones(found: list[tuple[float, float]]) -> None:
    rates = [rate for rate, _ in found]
    made = non_decreasing_rates(rates, [part * rate for rate, part in found])
    assert len(made) == len(rates)
    assert all(one <= other * (1 + 1e-12) for one, other in itertools.pairwise(made))
    assert min(rates) * (1 - 1e-9) <= min(made)
    assert max(made) <= max(rates) * (1 + 1e-9)
    if rates == sorted(rates):
        assert made == rates
    assert non_decreasing_rates(made, [0.0] * len(made)) == pytest.approx(made)


def test_a_dip_goes_to_what_is_known_better() -> None:
    """Equally sure: the geometric mean. The second one unsure: near the first one."""
    equal = math.sqrt(100 * 90)
    assert non_decreasing_rates([50, 100, 90, 120], [0, 0, 0, 0]) == pytest.approx(
        [50, equal, equal, 120]
    )
    unsure = non_decreasing_rates([50, 100, 90, 120], [0, 0, 9, math.nan])
    assert unsure[1] == unsure[2] == pytest.approx(100, rel=0.001)


P99_MS = {10: 200.0, 20: 60.0, 50: 20.0, 100: 8.0}


def serving(**fields: Any) -> Serving:
    latencies = tuple((float(share), ms) for share, ms in P99_MS.items())
    known: dict[str, Any] = {
        "offered_rate": 100.0, "rate_noise": None, "latency_p99_ms": latencies
    }  # fmt: skip
    return Serving(**(known | fields))


SERVER, TRAINING = profile("server", [100.0] * 10, serving=serving()), profile("training")


"""The server keeps up at every share."""


def test_a_profile_knows_its_demand() -> None:
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


def test_a_queue_at_the_start_is_neither_demand_nor_tail() -> None:
    """76.5 of 60 a second, p99 1,375 ms; a launch that serves all 60 has its whole speed."""
    known = {"offered_rate": 60.0, "latency_p50_ms": 900.0, "power_w": 300.0}
    half = point(1, share_percent=50.0, rate=60.0, latency_p99_ms=180.0, **known)
    whole = point(2, share_percent=100.0, rate=76.5, latency_p99_ms=1375.0, **known)
    (found,) = make_profiles([half, whole]).values()
    assert (found.whole_gpu_rate, found.whole_gpu_p99_ms) == (60.0, 180.0)
    assert relative(60.0, found.whole_gpu_rate) == 1.0
    assert BACKLOG in found.flags
    undeclared = [dataclasses.replace(one, offered_rate=None) for one in (half, whole)]
    assert [p.whole_gpu_rate for p in make_profiles(undeclared).values()] == [60.0]
    assert serving().rate_alone(90.0) == 90.0, "what falls short of its demand is behind"


@pytest.mark.parametrize(
    ("rate", "served", "power_w", "tails"),
    [(25.0, [25, 25, 25], [125, 125, 125], 4), (400.0, [60, 300, 400], [160, 400, 500], 0)],
)
def test_a_server_at_another_demand(
    rate: float, served: list[float], power_w: list[float], tails: int
) -> None:
    """60 of 100 requests/s served at 10 %, so 300 at half, if they came; each takes 1 J."""
    known: dict[str, Any] = {"offered_rate": 100.0, "idle_power_w": 100.0, "power_limit_w": 500.0}
    points = [
        point(n, share_percent=share, rate=rate, power_w=100 + rate, **known)
        for n, (share, rate) in enumerate(((10.0, 60.0), (50.0, 100.0), (100.0, 100.0)))
    ]
    (at_100,) = make_profiles(points).values()
    found = with_rate(dataclasses.replace(at_100, serving=serving()), rate)
    assert found.serving is not None
    assert (found.serving.offered_rate, len(found.serving.latency_p99_ms)) == (rate, tails)
    assert found.values["rate"].tolist() == pytest.approx(served)
    assert found.values["power_w"].tolist() == pytest.approx(power_w)


def test_a_job_on_a_host_that_is_faster() -> None:
    """What it draws and keeps busy goes with its rate; a hundredth is no other rate."""
    rate = TRAINING.whole_gpu_rate
    assert with_rate(TRAINING, 1.009 * rate) is TRAINING
    found = with_rate(TRAINING, 1.4 * rate)
    assert found.whole_gpu_rate == pytest.approx(1.4 * rate)
    above_w = TRAINING.whole_gpu_power_w - TRAINING.idle_power_w
    assert found.whole_gpu_power_w - TRAINING.idle_power_w == pytest.approx(1.4 * above_w)
    assert found.values["sm_active_percent"].tolist() == pytest.approx(
        [min(100.0, 1.4 * percent) for percent in TRAINING.values["sm_active_percent"]]
    )
    assert found.shares is TRAINING.shares


@given(st.floats(10, 100))
def test_latency_between_two_shares_is_between_theirs(share: float) -> None:
    found = serving().p99_alone_ms(share)
    below = max(s for s in P99_MS if s <= share)
    above = min(s for s in P99_MS if s >= share)
    assert P99_MS[above] - 1e-9 <= some(found) <= P99_MS[below] + 1e-9


@pytest.mark.parametrize("share", [5.0, 9.99, 100.5])
def test_latency_outside_of_the_measured_shares_is_not_known(share: float) -> None:
    assert serving().p99_alone_ms(share) is serving(latency_p99_ms=()).p99_alone_ms(50.0) is None


@given(st.none() | st.floats(0, 10))
def test_tolerance_is_bounded(noise: float | None) -> None:
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
    st.none() | st.floats(8, 300),
)  # fmt: skip
def test_no_answer_breaks_what_a_server_needs(
    values: list[tuple[float, float, float]], least: float, most_ms: float | None
) -> None:
    by = Scripted(dict(zip([*NINE, UNCAPPED], values, strict=True)), off=0.0)
    request = Request(policy=Policy(min_speed=least), default_max_p99_ms=most_ms)
    if (choice := decide(Outlook((SERVER, TRAINING), by), request).choice) is None:
        return
    p = choice.prediction
    assert p.split.sharing != "exclusive"
    assert p.parts[0].speed.low >= 0.98
    assert some(serving().p99_alone_ms(p.split.shares[0])) <= (most_ms or 5 * 8.0)


DEMAND = 100.0


SERVING = Serving(offered_rate=DEMAND, rate_noise=None, latency_p99_ms=())


def server(per_percent: float) -> Profile:
    rates = [min(DEMAND, per_percent * share) for share in SHARES]
    columns = {"sm_active_percent": [min(50.0, share) for share in SHARES]}
    return profile("server", rates, serving=SERVING, columns=columns)


def seen_at(active_percent: float) -> Profile:
    """It served all at half of the GPU, and at the whole."""
    columns = {"sm_active_percent": [1.2 * active_percent, active_percent]}
    return profile("server", [DEMAND] * 2, [50.0, 100.0], serving=SERVING, columns=columns)


HALF_IDLE = {"sm_active_percent": [share / 2 for share in SHARES]}
TIMED = Serving(offered_rate=None, rate_noise=None, latency_p99_ms=((100.0, 5.0),))


BEHIND = profile("server", [10.0 + share / 2 for share in SHARES], serving=SERVING)


@pytest.mark.parametrize(
    ("job", "shares", "capacity"),
    [
        # At 10 % it serves 40 of 100; at 50 % it could serve 200, though only 100 arrive.
        (server(4.0), [10.0, 20.0, 30.0, 50.0, 100.0], [0.4, 0.8, 1.2, 2.0, 4.0]),
        # All that is known is that 10 % of the GPU served everything.
        (server(50.0), [10.0, 35.0], [1.0, 3.5]),
        # Half served everything, but the job was active on a tenth of the SMs at most.
        (seen_at(10.0), [50.0, 100.0], [5.0, 10.0]),
        (seen_at(math.nan), [50.0, 100.0], [1.0, 2.0]),
        # The whole GPU cannot serve it: its rate is its capacity.
        (BEHIND, SHARES, (BEHIND.values["rate"] / BEHIND.whole_gpu_rate).tolist()),
        (profile("training"), [25.0, 100.0], [0.25, 1.0]),
        # Latencies alone are no demand.
        (profile("training", serving=TIMED), [25.0, 100.0], [0.25, 1.0]),
    ],
)
def test_what_a_job_could_do(job: Profile, shares: list[float], capacity: list[float]) -> None:
    assert relative_capacity(job, shares).tolist() == pytest.approx(capacity)


@given(
    st.lists(st.floats(0.1, 200), min_size=10, max_size=10).map(sorted),
    st.lists(st.floats(10, 100), min_size=1),
)
def test_a_job_could_do_what_it_does(rates: list[float], shares: list[float]) -> None:
    job = profile("server", rates, serving=SERVING)
    did = job.at(shares)["rate"] / job.whole_gpu_rate
    assert bool((relative_capacity(job, shares) >= did * (1 - 1e-12)).all())


@pytest.mark.parametrize(
    ("job", "needed"),
    [
        # 4 for each percent: 400 on the whole GPU, of which 100 arrive.
        (server(4.0), 0.25),
        # 40 at 10 %, 60 at 20 %, all at 30 %: no more than 300.
        (profile("server", [40.0, 60.0, *[DEMAND] * 8], serving=SERVING), 1 / 3),
        # From 20 % on something else than SMs keeps it at 60.
        (profile("server", [40.0, *[60.0] * 8, DEMAND], serving=SERVING), 0.25),
        # It leaves half of its SMs idle: it waits for something else.
        (profile("server", [40.0, 80.0, *[DEMAND] * 8], serving=SERVING, columns=HALF_IDLE), 0.0),
        (server(50.0), 0.0),
        (dataclasses.replace(server(4.0), doubt=np.full((2, 10), 0.1)), 0.0),
        (profile("training"), 0.0),
    ],
)
def test_what_a_server_needs_of_the_whole_gpu(job: Profile, needed: float) -> None:
    assert job.whole_gpu_needed == pytest.approx(needed)
    if needed:  # ten times the requests are not answered
        found = with_rate(job, 10 * DEMAND)
        assert found.whole_gpu_rate == pytest.approx(DEMAND / needed)
        assert found.whole_gpu_needed == pytest.approx(1.0)


def test_what_is_served_ends_at_the_demand() -> None:
    could = np.array([[1.5, 1.1, 0.5], [1.2, 0.9, 0.4], [1.8, 1.3, 0.6]])
    assert SERVING.served(could).tolist() == [[1.0, 1.0, 0.5], [0.98, 0.9, 0.4], [1.02, 1.02, 0.6]]


@given(st.floats(0, 3), st.floats(0, 1), st.floats(0, 1), st.none() | st.floats(0, 0.2))
def test_bounds_of_what_is_served_hold_it(
    value: float, below: float, above: float, noise: float | None
) -> None:
    serving = Serving(offered_rate=DEMAND, rate_noise=noise, latency_p99_ms=())
    could = np.array([[value], [value * (1 - below)], [value * (1 + above)]])
    [[found], [low], [high]] = serving.served(could).tolist()
    assert low <= found <= high
    assert found <= 1


served = st.lists(st.floats(0.95, 1.05), min_size=10, max_size=10).map(
    lambda factors: [120.0 * factor for factor in factors]
)


"""Rates at ten shares of a server that meets its demand at all of them."""
