"""What is said of sets of jobs by physics, of made-up jobs and of measured sets."""

import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from made_up_profiles import Scripted, profile

from advisor.core.gpu import ALL_GPUS, EQUAL, UNCAPPED, Split, without_limits
from advisor.core.objectives import Interval
from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import InputError
from advisor.predict.kernels import Kernels
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import MEASURED_ON, Profile, Serving, make_profiles, speed_left
from advisor.predict.sets import (
    BELOW_NORMAL,
    FULLER,
    P99_ERRORS,
    SLICING_KEPT,
    TAILS,
    TURN_MS,
    JobsAlone,
    OptionPredictor,
    SetPredictor,
    active_idle_w,
    alone_at,
    dealt,
    fills,
    why_not_below_normal,
)
from advisor_data.bundled import bundled_set_points, bundled_set_references, bundled_solo_points
from advisor_profiling.reports import LEFT_OUT

LIMIT_W = 700.0
SERVING = Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=())


def predicted(profiles: Sequence[Profile], split: Split) -> Prediction:
    return SetPredictor().predict(profiles, [split])[0]


def job(name: str, sm: float = 20.0, power_w: float = 200.0, **fields: Any) -> Profile:
    """As fast at any share; alone it keeps the SMs active so much of the time."""
    shares = np.arange(10.0, 101.0, 10.0)
    columns: dict[str, Any] = {
        "sm_active_percent": np.minimum(sm, shares),
        "dram_active_percent": np.full(10, 5.0),
        "power_w": np.full(10, power_w),
        **fields.pop("columns", {}),
    }
    return profile(name, [100.0] * 10, shares.tolist(), columns=columns, **fields)


jobs = st.builds(
    job,
    st.sampled_from("abcdefg"),
    st.floats(1, 99),
    st.floats(90, LIMIT_W),
)
sets = st.lists(jobs, min_size=2, max_size=7)


@given(sets, st.randoms(), st.sampled_from(["uncapped", "time-sliced", "exclusive"]))
def test_order_of_the_jobs_does_not_matter(
    profiles: list[Profile], chance: random.Random, sharing: str
) -> None:
    order = list(range(len(profiles)))
    chance.shuffle(order)
    split = without_limits(sharing, len(profiles))  # type: ignore[arg-type]
    there = predicted(profiles, split)
    back = predicted([profiles[n] for n in order], split)
    assert back.power_w.value == pytest.approx(there.power_w.value)
    for place, n in enumerate(order):
        assert back.parts[place].speed.value == pytest.approx(there.parts[n].speed.value)


@given(jobs, st.integers(2, 7))
def test_copies_never_draw_more_than_the_limit(one: Profile, copies: int) -> None:
    watts = [
        predicted([one] * n, without_limits("uncapped", n)).power_w for n in range(2, copies + 1)
    ]
    assert max(w.high for w in watts) <= LIMIT_W
    for fewer, more in itertools.pairwise(watts):
        assert more.value >= 0.99 * fewer.value


@given(sets)
def test_a_job_more_makes_nobody_faster(profiles: list[Profile]) -> None:
    more = [*profiles, job("more", 60.0)]
    for sharing in ("uncapped", "time-sliced"):
        before = predicted(profiles, without_limits(sharing, len(profiles)))
        after = predicted(more, without_limits(sharing, len(more)))
        for was, part in zip(before.parts, after.parts, strict=False):
            assert part.speed.value <= was.speed.value + 1e-9


def of_kernels(name: str, each_s: float, sm: float = 20.0, **fields: Any) -> Profile:
    """A hundred units a second; it always has a kernel on the GPU, or waits for its host."""
    each = Kernels(
        per_unit=0.01 / each_s,
        hold_s=each_s * sm / 100,
        source="probe",
    )
    return job(name, sm, kernels=each, **fields)


def speeds_of(*profiles: Profile, split: Split | None = None) -> list[float]:
    found = predicted(profiles, split or without_limits("uncapped", len(profiles)))
    return [part.speed.value for part in found.parts]


LOW = Split((100.0, 100.0), "uncapped", below_normal=(0,))


@pytest.mark.parametrize("each_s", [1e-4, 2e-3])
def test_beside_a_job_below_normal_kernels_of_others_wait_for_none_of_its_own(
    each_s: float,
) -> None:
    """However long they are; without priority they wait the longer, the longer these are."""
    occupied = {"sm_occupancy_percent": np.full(10, 60.0)}
    filling = of_kernels("filling", each_s, 95.0, columns=occupied)
    small = of_kernels("small", 4e-5)
    _, waits = speeds_of(filling, small)
    yields, does = speeds_of(filling, small, split=LOW)
    assert waits < 0.45
    assert does == pytest.approx(1 - BELOW_NORMAL.slowed * 0.05)
    # What the other keeps of the SMs it has no more.
    assert yields == pytest.approx((1 - BELOW_NORMAL.taken * 0.2 * does) / 0.95)


@given(st.floats(1, 40), st.floats(0, 90))
def test_a_busier_neighbour_takes_more_of_a_job_below_normal_and_its_memory_slows(
    sm: float, dram: float
) -> None:
    """The two that are varied are monotone, and all speeds lie within their ranges."""
    columns = {"sm_occupancy_percent": np.full(10, 60.0), "dram_active_percent": np.full(10, dram)}
    filling = of_kernels("filling", 1e-3, 95.0, columns=columns)
    less = {**columns, "dram_active_percent": np.full(10, dram / 2)}
    lighter = of_kernels("filling", 1e-3, 95.0, columns=less)
    of_sm = [speeds_of(filling, of_kernels("s", 4e-5, x), split=LOW) for x in (sm, sm + 5)]
    assert of_sm[0][0] >= of_sm[1][0] - 1e-9
    small = of_kernels("s", 4e-5, sm)
    assert speeds_of(lighter, small, split=LOW)[1] >= speeds_of(filling, small, split=LOW)[1]
    for part in predicted([filling, small], LOW).parts:
        assert part.speed.low <= part.speed.value <= part.speed.high


def test_a_priority_that_gives_nothing_changes_nothing() -> None:
    """Long blocks are waited for as kernels are."""
    long_blocks = {"sm_occupancy_percent": np.full(10, 14.0)}
    jobs = [of_kernels("filling", 1.5e-3, 97.0, columns=long_blocks), of_kernels("small", 4e-5)]
    assert predicted(jobs, LOW).parts == predicted(jobs, without_limits("uncapped", 2)).parts
    assert "few, long blocks (occupancy 14 %)" in why_not_below_normal(jobs, LOW)
    # Of three launched jobs two may be left that both run below normal.
    full = [of_kernels(x, 1e-3, 95.0, columns={"sm_occupancy_percent": [60.0] * 10}) for x in "ab"]
    assert (
        predicted(full, replace(LOW, below_normal=(0, 1))).parts
        == predicted(full, without_limits("uncapped", 2)).parts
    )


def test_kernels_are_dealt_one_each() -> None:
    """Counted on one H200: triad 448.6 and matmul-bf16 445.6 a second beside each other."""
    each_s = np.array([[0.73e-3], [1.57e-3], [40e-6]])
    two = dealt(1 / each_s[:2], each_s[:2], each_s[:2])
    assert two[:, 0].tolist() == pytest.approx([434.8, 434.8], rel=1e-3)
    seldom = dealt(np.array([[1370.0], [10.0]]), each_s[:2], each_s[:2])
    assert seldom[:, 0].tolist() == pytest.approx([1 / 0.73e-3 * (1 - 0.0157), 10.0])


times = st.lists(
    st.tuples(st.floats(1e-6, 1e-2), st.floats(0, 1), st.floats(0.1, 1)), min_size=1, max_size=7
)


@given(times)
def test_what_is_dealt_fills_the_time_and_no_more(jobs: list[tuple[float, float, float]]) -> None:
    own_s, of_own, of_time = np.array(jobs).T[:, :, None]
    made, hold_s = of_time / own_s, of_own * own_s
    found = dealt(made, own_s, hold_s)[:, 0]
    for n, rate in enumerate(found.tolist()):
        others = np.minimum(rate, found) @ hold_s[:, 0] - rate * hold_s[n, 0]
        time = rate * own_s[n, 0] + others
        assert time == pytest.approx(1.0) or (
            rate == pytest.approx(made[n, 0]) and time <= 1 + 1e-9
        )
    assert (dealt(made[1:], own_s[1:], hold_s[1:])[:, 0] >= found[1:] * (1 - 1e-9)).all()


def test_long_kernels_starve_a_job_of_short_ones() -> None:
    long, short = of_kernels("long", 1e-3, 99.0), of_kernels("short", 10e-6, 99.0)
    kept_long, kept_short = speeds_of(long, short)
    assert kept_long == pytest.approx(0.99, abs=0.01)
    # One for each of the long ones, and in the time that these leave.
    assert kept_short == pytest.approx(0.02, abs=0.001)
    assert speeds_of(long, long, long) == pytest.approx([1 / (1 + 2 * 0.99)] * 3)


@pytest.mark.parametrize(
    ("sm", "fields", "kept"),
    [
        (4.0, {"flags": ("cpu-bound",)}, 1.0),
        (4.0, {"flags": ("one-window",)}, 1.0),
        (4.0, {"columns": {"job_cpu_percent": np.full(10, np.nan)}}, 1.0),
        (4.0, {}, 40 / 49.9),
        (75.0, {"columns": {"job_cpu_percent": np.full(10, np.nan)}}, 40 / 49.9),
    ],
)
def test_a_job_that_waits_for_its_host_hides_the_kernels_of_others_there(
    sm: float, fields: dict[str, Any], kept: float
) -> None:
    """Known by one window or without its cores it is taken to, unless its SMs are mostly active."""
    pair = of_kernels("small", 40e-6, sm, **fields), of_kernels("filling", 10e-6, 99.0)
    assert speeds_of(*pair)[0] == pytest.approx(kept)


def in_turns(*profiles: Profile) -> list[float]:
    return speeds_of(*profiles, split=without_limits("time-sliced", len(profiles)))


@pytest.mark.parametrize(("busy", "taken"), [(np.nan, 0.2), (0.6, 0.4)])
def test_in_turns_no_job_gets_longer_than_it_takes(busy: float, taken: float) -> None:
    big, server = (
        of_kernels("big", 1e-3, 99.0),
        of_kernels("server", 1e-3, 20.0, serving=SERVING, busy=busy),
    )
    assert in_turns(big, big) == pytest.approx([SLICING_KEPT / 2] * 2)
    # It makes up in fuller batches for what changes of turns take.
    assert in_turns(big, server) == pytest.approx([SLICING_KEPT * (1 - taken), 1.0])


def test_what_turns_cost_is_less_sure_on_a_card_that_was_not_measured() -> None:
    big, split = of_kernels("big", 1e-3, 99.0), without_limits("time-sliced", 2)
    here, there = (
        predicted([replace(big, gpu_model=model)] * 2, split).parts[0].speed
        for model in (MEASURED_ON[0], "NVIDIA A30")
    )
    assert there.low < here.low < here.value == there.value < here.high < there.high


def test_in_turns_a_job_with_gaps_fills_half_of_them() -> None:
    """Its host goes on queueing kernels while others have their turns."""
    small, half_idle = (
        of_kernels("small", 1e-5, active, flags=("cpu-bound",)) for active in (4.0, 36.0)
    )
    assert in_turns(*[small] * 5) == pytest.approx([SLICING_KEPT] * 5)
    # Each of three wants the time of its kernels, 0.36, and half of that to 0.36 ** 0.5.
    assert in_turns(*[half_idle] * 3) == pytest.approx([SLICING_KEPT / 3 / 0.48] * 3)


def test_in_turns_a_job_that_pauses_waits_in_its_bursts() -> None:
    """As two in a closed network of queues; known by counters, or by a low GPU busy alone."""
    slower = 100 / (0.64 + 0.36 / np.arange(0.1, 1.01, 0.1))
    counted = of_kernels("small", 1e-5, 36.0, in_bursts=True, columns={"rate": slower})
    unread = job("unread", np.nan, busy=0.6, gpu_model="NVIDIA GeForce RTX 3090")
    big = of_kernels("big", 1e-3, 100.0)
    for paused, kept in ((counted, SLICING_KEPT), (unread, 1.0)):
        assert in_turns(paused, paused) == pytest.approx([kept / (1 + 0.36**2)] * 2)
        assert in_turns(paused, big) == pytest.approx([kept / 1.36, SLICING_KEPT / 1.36])


@pytest.mark.parametrize("way", ["time-sliced", "uncapped"])
def test_a_job_that_reads_ahead_loses_nothing_while_time_is_left(way: Any) -> None:
    """It is as fast on half of the GPU; one that pauses after its bursts is not."""
    big = of_kernels("big", 1e-5, 50.0, flags=("cpu-bound",))
    slower = 100 / (0.64 + 0.36 / np.arange(0.1, 1.01, 0.1))
    kept = [
        speeds_of(one, big, split=without_limits(way, 2))[0]
        for one in (
            of_kernels("ahead", 1e-5, 36.0, in_bursts=True),
            of_kernels("pauses", 1e-5, 36.0, in_bursts=True, columns={"rate": slower}),
        )
    ]
    assert kept[0] == pytest.approx(SLICING_KEPT if way == "time-sliced" else 1.0)
    assert kept[1] < kept[0] - 0.05


def test_in_turns_a_request_waits_for_the_turn_of_each_other_job() -> None:
    server, big = job("server", serving=TIMED), of_kernels("big", 1e-3, 99.0)
    for others in (1, 3):
        found = predicted([server, *[big] * others], without_limits("time-sliced", others + 1))
        latency_ms = found.parts[0].latency_p99_ms
        assert latency_ms is not None
        # Alone it takes 4 ms.
        said_ms = 4.0 * (1 + others) + others * TURN_MS
        assert latency_ms.value == pytest.approx(said_ms * P99_ERRORS["time-sliced"].value)


def test_a_server_saves_power_beside_others() -> None:
    """Not where it has SMs of its own."""
    server = of_kernels("server", 1e-4, 40.0, serving=SERVING, power_w=400.0)
    pair = [server, of_kernels("small", 1e-4, 30.0, flags=("cpu-bound",))]
    saved = alone_at(pair, np.array([[100.0, 50.0], [100.0, 50.0]])).saved()
    assert saved.tolist() == [pytest.approx([0.3 * FULLER, 0.0]), [0.0, 0.0]]
    idle_w = active_idle_w(server)
    # Changes of turns draw as work does.
    for sharing, kept in (("uncapped", 1.0), ("time-sliced", SLICING_KEPT)):
        found = predicted(pair, without_limits(sharing, 2))  # type: ignore[arg-type]
        own_w = found.parts[1].speed.value / kept * (200 - idle_w)
        server_w = (1 - 0.3 * FULLER) * (400 - idle_w)
        assert found.power_w.value == pytest.approx(idle_w + server_w + own_w)


def test_a_limit_protects_where_it_leaves_sms_of_their_own() -> None:
    small, big = of_kernels("small", 20e-6, 10.0), of_kernels("big", 1e-3, 99.0)
    free, ninety, half = (
        speeds_of(small, big, split=Split((100.0, share)))[0] for share in (100.0, 90.0, 50.0)
    )
    assert free == ninety < 0.05
    # Kernels under a limit leave others SMs.
    assert half > 0.2
    assert speeds_of(small, big, split=Split((50.0, 50.0)))[0] > 0.9


def test_without_counted_kernels_cores_say_how_many_there_are() -> None:
    """And the range is wider."""
    big = of_kernels("big", 1e-3, 99.0)
    busy, idle = (
        job(name, 95.0, columns={"job_cpu_percent": [percent] * 10})
        for name, percent in (("busy", 100.0), ("idle", 2.4))
    )
    assert speeds_of(busy, big)[0] < 0.1 < 0.4 < speeds_of(idle, big)[0]
    both = without_limits("uncapped", 2)
    guessed, known = (predicted([one, big], both).parts[1].speed for one in (idle, big))
    assert guessed.high / guessed.low > known.high / known.low


def test_ranges_of_jobs_that_fill_are_wider_beside_others_that_do() -> None:
    """And of a job beside several whose kernels are guessed; a server that fills waits, too."""
    small, big = of_kernels("small", 20e-6, 10.0), of_kernels("big", 1e-3, 99.0)
    server = replace(big, job="server", serving=SERVING)
    guessed = replace(big, kernels=None)

    def width(*profiles: Profile) -> float:
        jobs = alone_at(profiles, np.full((len(profiles), 1), 100.0))
        low, high = jobs.speed_ends(jobs.classes)[:, 0, 0]
        return float(high / low)

    assert width(big, small) < width(big, big) < width(small, big) == width(small, big, big)
    assert width(small, guessed) < width(small, guessed, guessed)
    assert width(server, small) == width(small, big)


TIMED = Serving(offered_rate=100.0, rate_noise=0.0, latency_p99_ms=((10.0, 8.0), (100.0, 4.0)))


def test_a_server_serves_its_demand_beside_small_jobs() -> None:
    server, small = job("server", serving=TIMED), job("small")
    for n in (1, 3):
        part = predicted([server, *[small] * n], without_limits("uncapped", n + 1)).parts[0]
        assert (part.speed.value, part.speed.low) == (1.0, pytest.approx(0.98))
        assert part.latency_p99_ms is not None


def test_a_tail_grows_with_what_the_others_want() -> None:
    longer = [tail_of_the_first(sm) for sm in [[0.2], [0.2, 0.2], [0.2, 0.2, 0.2], [0.2, 0.95]]]
    assert (longer[0], longer) == (pytest.approx(1.0), sorted(longer))
    beside_long = tail_of_the_first([0.2, 0.95], kernel_s=1e-3)
    assert beside_long == pytest.approx(1 / (1 - 0.95))
    seldom = tail_of_the_first([0.06, 0.95], kernel_s=1e-3)
    assert seldom == pytest.approx(1 + (beside_long - 1) * (0.06 / TAILS.held) ** 2)


def test_a_burst_is_a_whole_gpu_to_a_server_that_is_faster_than_it() -> None:
    """One that takes far longer meets its neighbour's mean, and of several the longest counts."""
    bursts = [0.0, 1.0, 1.0]
    fast, slow = (tail_of_the_first([0.2, 0.1, 0.1], bursts, alone_ms) for alone_ms in (1e-9, 1e9))
    assert slow == pytest.approx(tail_of_the_first([0.2, 0.1, 0.1]))
    in_a_burst = 1 + TAILS.crowd**2 * (1.3**2 - 0.2**2)
    assert fast == pytest.approx(in_a_burst)
    in_a_burst_itself = tail_of_the_first([0.2, 0.1], [1.0, 0.0], 1e-6)
    assert in_a_burst_itself == pytest.approx(tail_of_the_first([0.2, 0.1]))


def test_others_wait_for_small_batches_of_a_server() -> None:
    """They keep others off for two thirds of the time in which its SMs are active alone."""
    calm, busy = (
        replace(
            of_kernels("server", 1e-3, sm, serving=SERVING), kernels=of_kernels("x", 1e-3).kernels
        )
        for sm in (20.0, 90.0)
    )
    big = of_kernels("big", 1e-4, 99.0)
    assert speeds_of(big, calm)[0] == pytest.approx(0.8, abs=0.01)
    assert speeds_of(big, busy)[0] == pytest.approx(0.4, abs=0.01)


def test_with_sms_of_its_own_a_server_waits_for_the_memory() -> None:
    """Less where it had no SMs left alone: then its p99 is a queue that was there."""

    def longer(share: float, dram: float) -> float:
        columns = {"dram_active_percent": [dram] * 10}
        profiles = job("server", 40.0, serving=TIMED), job("other", 5.0, columns=columns)
        alone = alone_at(profiles, np.array([[share], [100 - share]]))
        return float(TAILS.longer(replace(alone, sm=np.array([[0.4], [0.05]])))[0, 0])

    assert 1 < longer(80.0, 0.0) < longer(80.0, 50.0) < longer(80.0, 90.0)
    assert longer(40.0, 90.0) == pytest.approx(1.0)


def tail_of_the_first(
    sm: list[float],
    in_bursts: list[float] | None = None,
    alone_ms: float = 1e9,
    kernel_s: float = 1e-9,
) -> float:
    lengths_s = [1e-9, *[kernel_s] * len(sm)]
    profiles = [of_kernels(str(n), lengths_s[n], 100 * own) for n, own in enumerate(sm)]
    alone = alone_at(profiles, np.full((len(sm), 1), 100.0))
    seen = {"in_bursts": in_bursts or [0.0] * len(sm), "p99_ms": [alone_ms] * len(sm)}
    columns = {name: np.array(own)[:, None] for name, own in seen.items()}
    jobs: JobsAlone = replace(alone, **columns)
    return float(TAILS.longer(jobs)[0, 0])


def test_servers_serve_no_more_together_than_the_card_can() -> None:
    server = of_kernels("server", 1e-3, 20.0, serving=SERVING)
    for copies, served in ((2, 1.0), (5, 1.0), (10, 0.5)):
        assert speeds_of(*[server] * copies)[0] == pytest.approx(served)


SERVERS = [p for p in make_profiles(bundled_solo_points()).values() if p.serving]
BERT = [p for p in SERVERS if p.job == "bert-serve-60"]


def most_of_curve(one: Profile) -> float:
    """No share does more for each SM than one where it falls short and its SMs are busy."""
    rates, active = one.values["rate"], one.values["sm_active_percent"]
    is_full = (rates < 0.9 * one.whole_gpu_rate) & (one.shares < 50) & (active > 0.7 * one.shares)
    return float(max((rates / one.shares)[is_full] * 100, default=np.inf))


@pytest.mark.parametrize("one", SERVERS, ids=lambda p: f"{p.job}, {p.gpu_model}")
def test_bundled_servers_serve_no_more_together_than_their_curves_allow(one: Profile) -> None:
    others = [other for other in SERVERS if other.gpu_model == one.gpu_model]
    for jobs in (
        *([one] * count for count in range(2, 8)),
        *([one, other] * 3 for other in others),
    ):
        count = len(jobs)
        ways = [without_limits("uncapped", count), without_limits("time-sliced", count)]
        for share in (50.0, 90.0):
            ways += [Split((share, *[100.0] * (count - 1))), Split((share,) * count)]
        speeds = SetPredictor().predict(jobs, ways).speeds[0]
        assert ([p.whole_gpu_rate / most_of_curve(p) for p in jobs] @ speeds).max() <= 1 + 1e-6


@pytest.mark.parametrize("one", BERT, ids=lambda p: p.gpu_model)
@pytest.mark.parametrize("copies", [2, 3, 7])
def test_copies_that_take_all_of_the_time_serve_what_the_power_limit_leaves(
    one: Profile, copies: int
) -> None:
    """Three served 8,577/s in all in a bundled window of an H200; 8,214/s is what an H100 does."""
    for sharing in ("uncapped", "time-sliced"):
        parts = predicted([one] * copies, without_limits(sharing, copies)).parts  # type: ignore[arg-type]
        served = one.whole_gpu_rate * sum(part.speed.value for part in parts)
        most = 8577 if "H200" in one.gpu_model else 8214
        assert 0.9 * most < served < 1.03 * most


def test_measured_active_idle_power_goes_before_the_fitted_one() -> None:
    assert active_idle_w(job("a", active_idle_power_w=126.0)) == 126.0
    assert active_idle_w(job("b")) == pytest.approx(125.0)  # of 80 W


def test_a_job_without_counters_is_taken_to_fill() -> None:
    assert fills(profile("x", columns={"sm_active_percent": np.full(10, np.nan)}))
    assert not fills(job("small", 49.0))


# measured sets


def measured(references: Sequence[SoloPoint] = ()) -> list[tuple[PairPoint, list[Profile]]]:
    profiles = make_profiles([*bundled_solo_points(), *references])
    found = list[tuple[PairPoint, list[Profile]]]()
    for point in bundled_set_points():
        known = [profiles.get((name, point.gpu_model)) for name in point.jobs]
        if not LEFT_OUT & set(point.flags) and all(known):
            found.append((point, [p for p in known if p]))
    return found


def split_of(point: PairPoint) -> Split:
    if point.mode == "mps":
        return Split(point.shares_percent)
    return without_limits(point.mode, len(point.parts))  # type: ignore[arg-type]


def test_small_jobs_in_turns_are_said_to_keep_what_they_kept() -> None:
    """In the mean, by profiles of other cards and hosts."""
    offs = list[float]()
    for point, profiles in measured(bundled_set_references()):
        if point.mode == "time-sliced":
            parts = predicted(profiles, split_of(point)).parts
            offs += [
                found.speed.value - (part.rate or 0.0) / own.whole_gpu_rate
                for found, part, own in zip(parts, point.parts, profiles, strict=True)
                if not (fills(own) or own.serving or own.in_bursts)
            ]
    assert len(offs) > 10
    assert abs(statistics.fmean(offs)) < 0.1


def test_measured_sets_are_met_by_profiles_of_other_runs() -> None:
    """Watts and speeds of the bundled sets, from profiles that were measured on other cards.

    Speeds hold what hosts differ by: small jobs of `sets-20` ran at 0.4 of their profiles alone.
    """
    watts, speeds, held = list[float](), list[float](), list[bool]()
    for point, profiles in measured():
        found = predicted(profiles, split_of(point))
        watts.append(abs(found.power_w.value / (point.power_w or 0.0) - 1))
        for part, said, own in zip(point.parts, found.parts, profiles, strict=True):
            speed = (part.rate or 0.0) / own.whole_gpu_rate
            speed = min(speed, 1.0) if own.serving else speed
            speeds.append(abs(said.speed.value - speed))
            held.append(said.speed.low <= speed <= said.speed.high)
    print(
        len(watts),
        statistics.fmean(watts),
        len(speeds),
        statistics.fmean(speeds),
        statistics.fmean(held),
    )
    assert len(watts) > 10
    assert statistics.fmean(watts) < 0.12
    assert statistics.fmean(speeds) < 0.21


def test_two_jobs_are_for_the_model_of_pairs_where_limits_give_each_its_own() -> None:
    """Not in turns, nor without limits, nor at limits that overlap."""
    free, turns_of_two = without_limits("uncapped", 2), without_limits("time-sliced", 2)
    known = Scripted({EQUAL: (0.6, 0.7, 500.0), free: (0.5, 0.5, 600.0)})
    two = [job("a"), job("c", 90.0)]
    first, second, third = OptionPredictor(known).predict(two, [turns_of_two, EQUAL, free])
    assert (first, second) == (predicted(two, turns_of_two), known.predict(two, [EQUAL])[0])
    assert third == predicted(two, free)
    overlap, of_three = Split((70.0, 60.0)), without_limits("uncapped", 3)
    assert [*OptionPredictor(known).predict(two, [overlap])] == [predicted(two, overlap)]
    three = [*two, job("d")]
    assert [*OptionPredictor(known).predict(three, [of_three])] == [predicted(three, of_three)]


def test_a_tail_is_by_the_law_at_every_split_of_two() -> None:
    """Beside a job that fills it is less sure; one after the other it is that alone."""
    server, other = job("server", serving=TIMED), job("c", 90.0)
    found = OptionPredictor(Scripted({EQUAL: (1.0, 0.7, 500.0)})).predict(
        [server, other], [EQUAL, without_limits("exclusive")]
    )
    limited, apart = (p.parts[0].latency_p99_ms for p in found)
    assert limited == predicted([server, other], EQUAL).parts[0].latency_p99_ms
    assert apart == Interval.sure(4.0)
    assert (found[0].parts[0].speed.value, found[0].parts[1].latency_p99_ms) == (1.0, None)
    calm = predicted([server, job("d")], EQUAL).parts[0].latency_p99_ms
    assert calm
    assert limited
    assert calm.high / calm.value < limited.high / limited.value


def test_ranges_hold_what_is_not_known_of_an_estimate() -> None:
    """Where its share was estimated; expected values, its partner and the whole GPU stay."""
    doubt = np.array([[0.3] * 9 + [0.0], [0.1] * 9 + [0.0]])
    known, sure = job("a"), job("b")
    splits = [Split((30.0, 70.0)), without_limits("uncapped", 2)]
    before, after = (
        OptionPredictor(SetPredictor()).predict([one, sure], splits)
        for one in (known, replace(known, doubt=doubt))
    )
    np.testing.assert_allclose(after.speeds[0], before.speeds[0])
    np.testing.assert_allclose(after.speeds[:, :, 1], before.speeds[:, :, 1])
    np.testing.assert_allclose(after.power_w[:, 1], before.power_w[:, 1])
    np.testing.assert_allclose(after.speeds[:, 1], before.speeds[:, 1])
    assert after.speeds[1, 0, 0] < 0.9 * before.speeds[1, 0, 0]
    assert after.speeds[2, 0, 0] == before.speeds[2, 0, 0] == 1, "no faster than alone"
    assert after.power_w[1, 0] < before.power_w[1, 0] < before.power_w[2, 0] < after.power_w[2, 0]
    assert after.efficiency_factors[0, 0] < before.efficiency_factors[0, 0]


def test_jobs_with_limits_of_sms_slow_down_with_the_clock_at_the_power_limit() -> None:
    """Less one that was as slow alone; without limits and in turns kernels tell all."""
    mhz = np.full(10, 1980.0)
    hungry = job("a", 40.0, 600.0, columns={"sm_clock_mhz": mhz})
    free = [replace(one, power_limit_w=None) for one in (hungry, replace(hungry, job="b"))]
    at_limit = [replace(one, power_limit_w=LIMIT_W) for one in free]
    for split in (EQUAL, UNCAPPED, without_limits("time-sliced")):
        was, found = (SetPredictor().predict(jobs, [split]) for jobs in (free, at_limit))
        left = speed_left(LIMIT_W, was.power_w[0, 0], LIMIT_W) if split == EQUAL else 1.0
        assert found.speeds[0] == pytest.approx(left * was.speeds[0])
    # At 0.9 of its clock alone at 50 %: it wants more than the limit there, and loses less beside.
    slowed = replace(
        at_limit[0],
        values={
            **hungry.values,
            "power_w": np.minimum(mhz, LIMIT_W),
            "sm_clock_mhz": np.where(hungry.shares < 50, mhz, 0.9 * mhz),
        },
    )
    jobs = alone_at([slowed, at_limit[1]], np.array([[50.0], [50.0]]))
    assert jobs.wanted_w[0] == pytest.approx(LIMIT_W * (0.35 + 0.65 / 0.9**4))
    own, other = (jobs.at_limit(jobs.could, LIMIT_W) / jobs.could)[:, 0]
    assert other == pytest.approx(0.9 * own)
    assert own < 1


ON_BOTH = Split((100.0,) * 3, "uncapped", (), (ALL_GPUS, 0, 1))
RANK = of_kernels("ranks", 50e-6, 95.0, power_w=500.0)
"""What a training on two GPUs that fills them is on one."""

RANKS = replace(RANK, gpus=2)
HEAVY = of_kernels("heavy", 1e-2, 90.0)
"""One kernel of 9 ms for each unit, 100 a second."""


def test_ranks_are_as_fast_as_on_the_gpu_where_they_keep_least() -> None:
    """Alike neighbours on both cost little more than one: both ranks wait at the same time."""
    light = of_kernels("light", 1e-2, 5.0)
    alone = [predicted([RANK, one], UNCAPPED) for one in (HEAVY, light)]
    least = min(p.parts[0].speed.value for p in alone)
    found = predicted([RANKS, HEAVY, light], ON_BOTH)
    assert 0.8 * least < found.parts[0].speed.value <= least
    # The waiting rank leaves its neighbour the time; the slower one's neighbour gets what it did.
    assert found.parts[2].speed.value >= alone[1].parts[1].speed.value
    assert found.parts[1].speed.value == pytest.approx(alone[0].parts[1].speed.value, rel=0.02)
    # What is drawn is that of both GPUs, with the waiting rank's less.
    assert found.power_w.value < sum(p.power_w.value for p in alone)


def test_chance_makes_ranks_later_where_each_meets_few_long_kernels() -> None:
    """Clark's maximum: two equal normal waits are later than either, by 0.56 of their spread."""
    first, second = (
        predicted([RANKS, HEAVY, of], ON_BOTH) for of in (HEAVY, replace(HEAVY, job="other"))
    )
    assert first.parts[0].speed == second.parts[0].speed
    assert first.parts[0].speed.value < predicted([RANK, HEAVY], UNCAPPED).parts[0].speed.value
    # Limits that leave each SMs of its own: no kernels are met, and the slower GPU decides.
    own = predicted([RANK, HEAVY], EQUAL)
    apart = predicted(
        [RANKS, HEAVY, HEAVY], replace(ON_BOTH, shares=(50.0,) * 3, sharing="limited")
    )
    assert apart.parts[0].speed.value == pytest.approx(own.parts[0].speed.value)
    assert apart.power_w.value == pytest.approx(2 * own.power_w.value)


@pytest.mark.parametrize(
    ("profiles", "split"),
    [
        ([RANKS, RANKS, job("a")], ON_BOTH),
        ([RANKS, job("a")], without_limits("time-sliced")),
        ([RANKS, job("a")], UNCAPPED),
    ],
)
def test_what_was_not_measured_of_two_gpus_is_refused(
    profiles: list[Profile], split: Split
) -> None:
    with pytest.raises(InputError):
        predicted(profiles, split)
