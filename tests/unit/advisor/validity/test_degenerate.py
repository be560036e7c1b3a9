"""The flag for points whose power betrays wrong results."""

import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launched_pairs import launched
from reading import some
from simple_pairs import pair, solo
from unsafe_counts import checked_132

from advisor.core.records import (
    BACKLOG,
    DEGENERATE,
    DOUBTFUL,
    SLOW_ALONE,
    UNREAD,
    PairPoint,
    Record,
    SoloPoint,
    is_catching_up,
)
from advisor.predict.profiles import make_profiles
from advisor.validity.points import (
    FASTEST,
    LARGEST_DROP,
    SAME_ARITHMETIC,
    SAME_CLOCK,
    energy_above_j,
    expected_energy_j,
    undisputed,
    with_flags,
    with_pair_flags,
    with_solo_flags,
)
from advisor_data.bundled import bundled_pair_points, bundled_reference_points, bundled_solo_points

IDLE_W = 75.0


def at(share: float, energy_j: float = 2.0, /, **fields: Any) -> SoloPoint:
    """A job that does `share` steps a second, for so many joules above idle each."""
    rate = fields.get("rate", share)
    values: dict[str, Any] = {
        "share_percent": float(share),
        "rate": float(rate),
        "power_w": IDLE_W + energy_j * rate,
        "idle_power_w": IDLE_W,
        "sm_clock_mhz": 1980.0,
        "tensor_active_percent": 0.4 * rate,
    }
    return solo(**{**values, **fields})


def flagged(points: list[SoloPoint]) -> list[float]:
    return [p.share_percent for p in with_solo_flags(points) if DEGENERATE in p.flags]


def test_less_energy_for_the_same_work_is_flagged() -> None:
    points = [at(100), at(10, 3.0), at(80, 1.6), at(50, 2.2)]
    assert flagged(points) == [80]
    assert [p.share_percent for p in with_solo_flags(points)] == [100, 10, 80, 50]


def test_job_of_zeros_is_not_judged_by_a_run_with_other_data() -> None:
    """Zeros honestly draw less: only shares of the same run, so of the same data, are compared."""
    zeros = [at(share, 0.9, run="zeros", input_fingerprint="zeros") for share in (10, 50, 100)]
    random = [at(share, 2.0, run="random", input_fingerprint="random") for share in (10, 50, 100)]
    assert flagged([*zeros, *random]) == []
    assert flagged([*random, *zeros, at(80, 0.7, run="zeros", input_fingerprint="zeros")]) == [80]


def test_a_drop_within_the_error_of_power_is_none() -> None:
    assert flagged([at(50, rate=1.0, power_w=77.0), at(100, rate=1.0, power_w=79.0)]) == []


def test_a_lower_clock_takes_less_honestly() -> None:
    slow = at(50, 1.6, sm_clock_mhz=1980 / (1 + 2 * SAME_CLOCK))
    assert flagged([slow, at(100)]) == []
    assert flagged([dataclasses.replace(slow, sm_clock_mhz=1980.0), at(100)]) == [50]


@pytest.mark.parametrize("pipe", ["tensor", "fp32", "fp64"])
def test_another_kernel_takes_another_energy(pipe: str) -> None:
    """Twice the cycles of a pipe per unit of work: the library chose something else."""
    name = f"{pipe}_active_percent"
    one, other = at(50, 1.6), at(100)
    same = [dataclasses.replace(p, **{name: 0.4 * p.rate}) for p in (one, other)]
    more = 0.4 * one.rate * (1 + 2 * SAME_ARITHMETIC)
    assert flagged(same) == [50]
    assert flagged([dataclasses.replace(same[0], **{name: more}), same[1]]) == []


def test_a_pipe_that_is_hardly_busy_tells_nothing() -> None:
    """0.1 % and 0.6 % of the time are rounding."""
    points = [at(50, 1.6, fp64_active_percent=0.1), at(100, fp64_active_percent=0.6)]
    assert flagged(points) == [50]


def test_a_doubtful_point_is_no_measure() -> None:
    high = at(80, 3.0)
    assert flagged([at(50, 2.0), high, at(100)]) == [50]
    for flag in DOUBTFUL - {DEGENERATE, UNREAD}:
        doubtful = dataclasses.replace(high, flags=(flag,))
        assert flagged([at(50, 2.0), doubtful, at(100)]) == []
    unread = dataclasses.replace(high, flags=(UNREAD,))
    assert flagged([at(50, 2.0), unread, at(100)]) == [50], "wrong results take less, never more"


@pytest.mark.parametrize("missing", ["power_w", "idle_power_w"])
def test_a_missing_reading_is_no_reason(missing: str) -> None:
    assert flagged([at(50, 1.0, **{missing: None}), at(100)]) == []
    assert flagged([at(50, 1.0), at(100, **{missing: None})]) == []


@pytest.mark.parametrize("field", ["run", "gpu_uuid", "job"])
def test_sweeps_are_judged_by_themselves(field: str) -> None:
    assert flagged([at(50, 1.0), at(100, **{field: "another"})]) == []


def test_one_slow_window_of_a_launch_bound_job_condemns_no_other() -> None:
    bound = {"flags": ("cpu-bound",)}
    slow = at(80, 3.0, **bound)
    points = [at(30, 2.1, **bound), at(50, 2.0, **bound), slow, at(100, 2.0, **bound)]
    assert flagged(points) == []
    assert flagged([*points, at(90, 3.0, **bound)]) == flagged([*points, at(90, 3.0)]) == [30, 50]
    assert flagged([*points[:2], dataclasses.replace(slow, flags=()), points[3]]) == [30, 50]
    assert flagged([*points, slow]) == [], "the same point twice is one"


def waiting(share: float, rate: float, energy_j: float = 0.1, **fields: Any) -> SoloPoint:
    """A job that waits for its host at active idle power, and takes so much for a step itself."""
    power_w = {"power_w": IDLE_W + 45 + energy_j * rate, "active_idle_power_w": IDLE_W + 45}
    return at(share, rate=rate, flags=("cpu-bound",), **{**power_w, **fields})


def test_a_host_that_was_faster_for_one_window_accuses_nobody() -> None:
    sweep = [waiting(10, 74), waiting(26, 111), waiting(50, 77), waiting(90, 96), waiting(100, 62)]
    assert flagged(sweep) == []
    unknown = [dataclasses.replace(point, active_idle_power_w=None) for point in sweep]
    assert flagged(unknown) == [26], "no active idle power: the time counts as work"
    wrong = [waiting(26, 77, 0.5), *(waiting(*of, 1.0) for of in ((50, 77), (90, 96), (100, 62)))]
    assert flagged(wrong) == [26]


def test_a_difference_within_two_standard_errors_accuses_nobody() -> None:
    assert flagged([at(50, 1.6, rate_stderr=2.0), at(100)]) == [50]
    assert flagged([at(50, 1.6, rate_stderr=8.0), at(100)]) == []
    assert flagged([at(50, 1.6), at(100, power_stderr_w=25.0)]) == []


ENERGIES = st.lists(st.floats(0.1, 10), min_size=2, max_size=10)


@given(ENERGIES)
def test_energy_that_falls_with_the_share_is_never_flagged(energies: list[float]) -> None:
    falling = sorted(energies, reverse=True)
    assert flagged([at(10 * n, energy) for n, energy in enumerate(falling, start=1)]) == []


@given(ENERGIES, st.randoms())
def test_every_flag_has_a_reason_and_a_second_look_changes_nothing(
    energies: list[float], random: Any
) -> None:
    points = [at(10 * n, energy) for n, energy in enumerate(energies, start=1)]
    random.shuffle(points)
    once = with_solo_flags(points)
    assert with_solo_flags(once) == once
    for point in once:
        own, expected = energy_above_j(point), expected_energy_j(point, points)
        if DEGENERATE in point.flags:
            assert some(own)[0] < (1 - LARGEST_DROP) * some(expected)[0]


@given(ENERGIES, st.floats(0.01, 100), st.data())
def test_one_outlier_of_a_launch_bound_sweep_flags_itself_at_most(
    energies: list[float], outlier: float, data: Any
) -> None:
    """Wherever it lies and however far off it is."""
    place = data.draw(st.integers(1, len(energies)))
    falling = [*sorted(energies, reverse=True)]
    points = [
        at(10 * n, outlier if n == place else energy, flags=("cpu-bound",))
        for n, energy in enumerate(falling, start=1)
    ]
    assert set(flagged(points)) <= {10.0 * place}


SWEEP = [at(10, 3.0), at(30, 2.6), at(50, 1.2), at(70, 1.2), at(90), at(100)]


def flags_of(*points: PairPoint) -> list[bool]:
    return [DEGENERATE in p.flags for p in with_pair_flags(points, with_solo_flags(SWEEP))]


def test_a_pair_is_flagged_where_one_of_its_jobs_is() -> None:
    assert flags_of(pair(50, 50), pair(30, 70), pair(90, 10), pair(100, 100, mode="uncapped")) == [
        True, False, False, False,
    ]  # fmt: skip
    other = {"job_1": "0", "job_2": "a"}
    assert flags_of(pair(50, 50, **other), pair(70, 30, **other)) == [True, False]
    assert flags_of(pair(50, 50, gpu_model="Another")) == [False]


def test_between_two_shares_the_worse_one_counts() -> None:
    between = (pair(share, 5) for share in (5, 20, 40, 60, 80, 95))
    assert flags_of(*between) == [False, False, True, True, True, False]


def test_records_of_all_kinds_keep_their_order() -> None:
    records = [pair(50, 10), *SWEEP, pair(90, 10)]
    kept = with_flags(records)
    assert [r.point_id for r in kept] == [r.point_id for r in records]
    assert [DEGENERATE in r.flags for r in kept] == [True, *[False] * 2, *[True] * 2, *[False] * 3]


def test_a_profile_lacks_shares_with_wrong_results() -> None:
    profile = make_profiles(SWEEP)["a", "Card"]
    assert profile.shares.tolist() == [10, 30, 90, 100]
    assert DEGENERATE not in profile.flags
    again = [dataclasses.replace(p, run="again") for p in (at(50, 2.4), at(100))]
    assert make_profiles([*SWEEP, *again])["a", "Card"].shares.tolist() == [10, 30, 50, 90, 100]


def test_other_doubtful_points_stand_where_there_are_no_others() -> None:
    points = [at(50, flags=("counter-mismatch",)), at(100)]
    assert make_profiles(points)["a", "Card"].shares.tolist() == [50, 100]


def test_the_bundled_points_carry_the_flag_already() -> None:
    solos = bundled_solo_points()
    assert with_solo_flags(solos) == solos
    assert with_pair_flags(bundled_pair_points(), solos) == bundled_pair_points()
    assert with_solo_flags(bundled_reference_points()) == bundled_reference_points()


def backlogs(*points: SoloPoint) -> list[float]:
    return [p.share_percent for p in with_solo_flags(points) if BACKLOG in p.flags]


def server(share: float, rate: float, p50_ms: float, p99_ms: float, /, **fields: Any) -> SoloPoint:
    latencies = {"latency_p50_ms": p50_ms, "latency_p99_ms": p99_ms}
    values: dict[str, Any] = {"offered_rate": 60.0, **latencies, **fields}
    return solo(share_percent=share, rate=rate, **values)


def test_more_answers_than_arrive_have_waited_in_a_queue() -> None:
    assert backlogs(server(100, 76.5, 900, 1375)) == [100]
    assert backlogs(server(100, 70, 900, 1375)) == [], "within chance of 300 requests"
    assert backlogs(server(50, 76.5, 5, 20)) == [50], "a burst, or more arrives than is declared"
    assert is_catching_up(76.5, 60, 5, 900)
    assert not is_catching_up(76.5, 60, 5, 5), "nothing waited"


@pytest.mark.parametrize("offered_rate", [60.0, None])
def test_a_tail_on_the_whole_gpu_that_is_far_above_that_at_half_is_a_doubt(
    offered_rate: float | None,
) -> None:
    halves = [server(share, 60, 60, ms) for share, ms in ((20, 2000), (47, 180), (90, 1375))]
    whole = server(100, 60, 60, 1375, offered_rate=offered_rate)
    assert backlogs(*halves, whole) == [100]
    assert backlogs(*halves, replace(whole, latency_p99_ms=260.0)) == []
    assert backlogs(*halves[::2], whole) == [], "nearest to half is the one at 20 %"
    assert backlogs(replace(halves[1], flags=("heat",)), whole) == []


def sweep(*rates: float) -> list[SoloPoint]:
    shares = (*range(10, 10 * len(rates), 10), 100)
    return [
        solo(share_percent=float(share), rate=rate, power_w=None)
        for share, rate in zip(shares, rates, strict=True)
    ]


def slow(points: list[SoloPoint]) -> list[float]:
    return [p.share_percent for p in with_solo_flags(points) if SLOW_ALONE in p.flags]


def test_a_whole_gpu_that_is_slower_than_a_part_of_it_is_flagged() -> None:
    assert slow(sweep(50, 100, 80)) == [100]
    assert slow(sweep(50, 90, 80)) == slow(sweep(50, 70, 80)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"run": "other"},
        {"gpu_uuid": "GPU-other"},
        {"job": "other"},
        *({"flags": (flag,)} for flag in sorted(DOUBTFUL)),
    ],
)
def test_another_sweep_and_a_point_that_failed_a_check_say_nothing(change: dict[str, Any]) -> None:
    fast, whole = sweep(100, 80)
    assert slow([replace(fast, **change), whole]) == []


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=9))
def test_the_bound_of_slow_alone(rates: list[float]) -> None:
    """Flagged is what any share beats by more than two undisturbed runs differ."""
    assert bool(slow(sweep(*rates))) == (max(rates) > FASTEST * rates[-1])


def point(share: float, units: int, results: str | None, flags: tuple[str, ...] = ()) -> SoloPoint:
    return solo(
        share_percent=share, units_granted=units, units_total=132, rate=share, results=results,
        flags=flags,
    )  # fmt: skip


POINTS = [
    point(70, 92, "right"),
    point(50, 66, "wrong", flags=("not-settled",)),
    point(50, 66, "right"),
    point(40, 52, "differ"),
    point(40, 52, "right"),
    point(30, 38, None),
    point(100, 132, "right"),
]


def test_a_profile_knows_its_own_results_before_the_check() -> None:
    (found,) = make_profiles(POINTS).values()
    safety = found.safety(checked_132())
    assert 92 not in safety.unsafe
    assert {38, 52, 66} <= safety.unsafe
    assert found.safety(None).unsafe == {52, 66}


RECORDS: list[Record] = [
    bundled_solo_points({"fft"})[0],
    bundled_pair_points()[0],
    launched([1])[0],
]


KINDS = [type(record).__name__ for record in RECORDS]


@pytest.mark.parametrize("true", RECORDS, ids=KINDS)
@pytest.mark.parametrize("forger", ["a", "z"])
def test_of_unlike_copies_none_counts(true: Record, forger: str) -> None:
    same = true.started_at.replace("Z", "+00:00")
    forged = replace(true, written_by=forger, started_at=same, power_w=(true.power_w or 0) * 0.7)
    other = replace(true, started_at="2026-01-02T03:04:05Z")
    assert (undisputed([true, other, forged]), undisputed([forged, true])) == ([other], [])


@pytest.mark.parametrize("true", RECORDS, ids=KINDS)
def test_what_is_sent_again_as_it_was_still_counts(true: Record) -> None:
    again = replace(true, written_by="a")
    assert undisputed([true, again]) == [true, again]


def test_what_was_measured_at_one_moment_elsewhere_is_no_copy() -> None:
    true = bundled_solo_points({"fft"})[0]
    others = [replace(true, gpu_uuid="GPU-2", rate=1.0), replace(true, job="b", rate=1.0)]
    assert undisputed([true, *others]) == [true, *others]
