"""Pair points put together, and the references of their jobs."""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st
from reading import some
from simple_pairs import SHARES, SOLOS, nine, pair, solo

from advisor.core.gpu import EQUAL, NINE, Split
from advisor.core.objectives import PartResult, SplitResult
from advisor.core.records import REPLAY_SOURCE, PairPoint, PointPart, SoloPoint
from advisor_training.rows import (
    BASELINES,
    DISTURBED,
    MEMORY_COUNTERS,
    LeftOut,
    Measurement,
    SoloReference,
    is_full,
    job_classes,
    kinds_of,
    make_measurements,
    solo_reference,
    uses_the_gpu,
    whole_gpu,
)


def only(points: list[PairPoint], solos: Sequence[SoloPoint] = SOLOS) -> Measurement:
    [found], left_out = make_measurements(points, solos)
    assert left_out == []
    return found


@pytest.mark.parametrize(
    ("point", "kind"),
    [
        (pair(10, 90, units_1=12, units_2=118), "nine"),
        (pair(50, 50, units_1=66, units_2=66), "nine"),
        (pair(10, 91, units_1=12, units_2=120), "grid"),
        (pair(11, 90, units_1=14, units_2=118), "grid"),
        (pair(31, 70, units_1=41, units_2=92), "over-subscribed"),
        (pair(100, 30, units_1=132, units_2=38), "over-subscribed"),
        (pair(55, 45, units_1=None, units_2=None), "other"),
        (pair(30, 30, units_1=38, units_2=38), "other"),
        (pair(100, 100, mode="uncapped", units_1=132, units_2=132), "uncapped"),
        (pair(100, 100), "uncapped"),
        (pair(100, 100, mode="time-sliced"), "time-sliced"),
        (pair(30, 70, mode="cu_mask"), "nine"),
    ],
)
def test_kinds_of_splits_are_told_apart(point: PairPoint, kind: str) -> None:
    """Each split is compared with the right ones only; alone, a safe split is one of a grid."""
    assert kinds_of([point]) == [kind]


def test_repeats_give_medians() -> None:
    watts = ((100.0, 30.0), (102.0, 40.0), (500.0, 500.0), (90.0, 0.0), (103.0, None))
    points = [
        point
        for repeat, (power_w, memory_power_w) in enumerate(watts)
        for point in nine(power_w=power_w, memory_power_w=memory_power_w, repeat=repeat)
    ]
    measurement = only(points)
    assert measurement.points == 45
    half = PartResult(0.5, 1.0, 100.0)
    assert measurement.nine[EQUAL] == SplitResult((half, half), power_w=102.0, memory_power_w=35.0)
    assert [sorted(results) for results in measurement.repeats] == [list(NINE)] * 5


def test_cards_and_runs_stay_apart() -> None:
    points = [
        *nine(run="r1", power_w=100),
        *nine(run="r2", power_w=200),
        pair(100, 100, mode="uncapped", run="r2", power_w=150),
        pair(100, 100, mode="time-sliced", run="r2", power_w=90),
        *nine(run="r2", gpu_uuid="GPU-2", power_w=300),
    ]
    found, _ = make_measurements(points, SOLOS)
    assert [(m.run, m.gpu_uuid, m.nine[EQUAL].power_w) for m in found] == [
        ("r2", "GPU-1", 200),
        ("r1", "GPU-1", 100),
        ("r2", "GPU-2", 300),
    ]
    assert [
        {name: result.power_w for name, of in BASELINES.items() if (result := of(measurement))}
        for measurement in found[:2]
    ] == [
        {"equal": 200, "uncapped": 150, "time-sliced": 90, "exclusive": 100},
        {"equal": 100, "exclusive": 100},
    ]
    models = ("Other", "Card")
    alone = [solo(job, gpu_model=model) for job in "ab" for model in models]
    of_models, _ = make_measurements([p for m in models for p in nine(gpu_model=m)], alone)
    assert [(pair.gpu_model, pair.points) for pair in of_models] == [
        ("Card", 9),
        ("Other", 9),
    ]


def test_jobs_in_any_order_are_one_pair() -> None:
    points = [
        pair(share, 100 - share, job_1="b", job_2="a", rate_1=share / 100, rate_2=0.25)
        for share in SHARES
    ]
    measurement = only(points)
    assert measurement.jobs == ("a", "b")
    assert tuple(part.rate for part in measurement.nine[Split((30.0, 70.0))].parts) == (0.25, 0.7)


def test_a_job_beside_itself_has_five_splits() -> None:
    points = nine(job_2="a")
    measurement = only(points)
    assert tuple(measurement.nine) == NINE[:5]
    assert measurement.nine[Split((30.0, 70.0))].parts[0].rate == pytest.approx(0.3)
    half = only([point for point in points if point.shares_percent[0] <= 50])
    assert half.nine == measurement.nine


def test_exclusive_comes_from_the_solo_points() -> None:
    solos = [solo("a", rate=4, power_w=300), solo("b", rate=10, power_w=500)]
    turns = only(nine(), solos=solos).exclusive
    assert ([part.rate for part in turns.parts], turns.power_w) == ([2, 5], 400)


def test_what_is_left_out_is_counted_with_its_reason() -> None:
    points = [
        *nine(),
        pair(rate_1=None, flags=("failed",), run="r2"),
        pair(rate_2=None, run="r2"),
        pair(power_w=None, run="r2"),
        *nine(job_2="c"),
        *[point for point in nine(run="r3") if point.shares_percent[0] != 50],
    ]
    pairs, left_out = make_measurements(points, SOLOS)
    assert [m.jobs for m in pairs] == [("a", "b")]
    assert left_out == [
        LeftOut("no rates: a job of the pair failed", 2),
        LeftOut("no reading of power", 1),
        LeftOut("no solo point of c on the whole Card", 9),
        LeftOut("without 50/50, or with too few of the nine splits in one run", 8),
    ]
    assert sum(item.points for item in left_out) + 9 == len(points)


def test_a_starved_job_is_no_failed_one() -> None:
    assert only(nine(rate_1=0.0)).nine[EQUAL].parts[0].rate == 0


@pytest.mark.parametrize(("source", "fits"), [("nvml", False), (REPLAY_SOURCE, True)])
def test_a_replay_is_compared_with_the_job_that_it_replays(source: str, fits: bool) -> None:
    """Its own hash is of a record of the job; a measured job of another hash is another job."""
    solos = [solo("a", job_hash="measured"), solo("b")]
    assert bool(make_measurements(nine(job_1_hash="of a record", source=source), solos)[0]) == fits


@pytest.mark.parametrize(("rate", "fits"), [(89.0, True), (87.0, False)])
def test_a_disturbed_run_is_left_out(rate: float, fits: bool) -> None:
    """A job that runs slower alone than it can does not tell how the pair shares the GPU."""
    fast = solo("a", rate=100.0, gpu_uuid="GPU-2", run="other")
    pairs, left_out = make_measurements(nine(), [solo("a", rate=rate), fast, solo("b")])
    assert [bool(pairs), *left_out] == ([True] if fits else [False, LeftOut(DISTURBED, 9)])


@pytest.mark.parametrize(("rate", "fits"), [(113.0, True), (114.0, False)])
def test_a_job_that_is_faster_beside_another_was_slow_alone(rate: float, fits: bool) -> None:
    """Nothing speeds up by sharing: its relative speeds would count work that nobody did."""
    points = [*nine()[:-1], dataclasses.replace(nine()[-1], parts=_at(nine()[-1], rate))]
    pairs, left_out = make_measurements(points, [solo("a", rate=100.0), solo("b", rate=1000.0)])
    assert [bool(pairs), *left_out] == ([True] if fits else [False, LeftOut(DISTURBED, 9)])


def _at(point: PairPoint, rate: float) -> tuple[PointPart, ...]:
    return (dataclasses.replace(point.parts[0], rate=rate), *point.parts[1:])


def test_a_measurement_with_few_splits_is_there_where_it_is_asked_for() -> None:
    few = [p for p in nine() if p.shares_percent[0] in (10, 50, 90)]
    [pair], left_out = make_measurements(few, SOLOS, full=False)
    assert (left_out, pair.is_full, sorted(pair.nine)) == (
        [],
        False,
        [NINE[0], NINE[4], NINE[8]],
    )
    assert make_measurements(few, SOLOS)[0] == []


HERE, CARD, ELSEWHERE = (
    solo(rate=6, power_w=100, run="r1"),
    solo(rate=7, power_w=110, run="r0"),
    solo(rate=8, power_w=120, run="r1", gpu_uuid="GPU-2"),
)
REPEATED = [solo(rate=r, power_w=w, run="r1") for r, w in ((10, 90), (11, 100), (99, 5))]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([ELSEWHERE, CARD, HERE], SoloReference(6, 100, 0.25)),
        ([ELSEWHERE, CARD], SoloReference(7, 110, 0.125)),
        ([ELSEWHERE], SoloReference(8, 120, 0.0)),
        ([*REPEATED, CARD], SoloReference(11, 90, 0.0)),
        ([HERE, *REPEATED], SoloReference(10.5, 95, 0.0)),
        ([], None),
    ],
)
def test_the_nearest_solo_points_count(
    points: list[SoloPoint], expected: SoloReference | None
) -> None:
    """By the median of their repeats, and with how much slower that is than the fastest run's."""
    assert solo_reference(points, None, "Card", "GPU-1", "r1") == expected


@pytest.mark.parametrize(
    ("of_pair", "of_solo", "fits"),
    [("x", "x", True), ("x", "y", False), (None, "y", True), ("x", None, True)],
)
def test_another_definition_of_the_job_is_no_reference(
    of_pair: str | None, of_solo: str | None, fits: bool
) -> None:
    found = solo_reference([solo(job_hash=of_solo)], of_pair, "Card", "GPU-1", "r1")
    assert (found is not None) == fits


@pytest.mark.parametrize(
    "fields", [{"share_percent": 90.0}, {"rate": 0.0}, {"power_w": None}, {"power_w": 0.0}]
)
def test_what_cannot_be_divided_by_is_no_reference(fields: dict[str, Any]) -> None:
    assert (whole_gpu([solo(**fields)]), len(whole_gpu([solo()]))) == ([], 1)


@pytest.mark.parametrize("counter", MEMORY_COUNTERS)
@pytest.mark.parametrize(
    ("compute", "memory", "code"),
    [(50, 50, "HH"), (99, 49.9, "HL"), (49.9, 80, "LH"), (3, 1, "LL"), (None, 80, None)],
)
def test_classes_are_cut_at_50_percent(
    compute: float | None, memory: float, code: str | None, counter: str
) -> None:
    """50 % or more is high, as in the paper; without a counter there is no class."""
    fields: dict[str, Any] = {"sm_active_percent": compute, counter: memory}
    assert job_classes([solo(**fields)]).get(("Card", "a")) == code


@pytest.mark.parametrize(
    ("busy", "active", "code"), [(60, 45, "HL"), (45, None, "HL"), (None, None, None)]
)
def test_bandwidth_counts_where_it_was_read_else_busy_time(
    busy: float | None, active: float | None, code: str | None
) -> None:
    """A missing counter is not 0 %."""
    counters: dict[str, Any] = {"memory_busy_percent": busy, "dram_active_percent": active}
    points = [solo(sm_active_percent=percent, **counters) for percent in (20.0, 80.0, 90.0)]
    assert job_classes([*points, solo("b")]).get(("Card", "a")) == code


@pytest.mark.parametrize(
    ("rate", "expected"), [(101.0, 100.0), (99.0, 100.0), (90.0, 90.0), (110.0, 100.0)]
)
def test_a_server_is_divided_by_what_arrives(rate: float, expected: float) -> None:
    """What was answered beyond it had waited; where it falls short, what was measured."""
    served = solo(rate=rate, offered_rate=100.0, rate_stderr=1.0)
    assert some(solo_reference([served], None, "Card", "GPU-1", "r1")).rate == expected


UNITS = {10: 12, 11: 14, 26: 34, 47: 62, 50: 66, 54: 70, 90: 118}
SAFE = ((10, 90), (11, 90), (26, 54), (47, 54), (50, 50), (54, 47), (54, 26), (90, 11), (90, 10))


def safe(**fields: object) -> list[PairPoint]:
    """The nine at safe counts of an H100."""
    return [pair(a, b, units_1=UNITS[a], units_2=UNITS[b], **fields) for a, b in SAFE]


def test_nine_safe_splits_are_the_nine_of_a_pair() -> None:
    """11/90 and 47/54 add up to 101 %, 26/54 leaves a fifth of the GPU idle."""
    points = [*safe(), pair(100, 100, mode="uncapped"), pair(70, 70, units_1=92, units_2=92)]
    assert kinds_of(points) == ["nine"] * 9 + ["uncapped", "over-subscribed"]
    pairs, left_out = make_measurements(points, SOLOS)
    assert left_out == []
    assert sorted(pairs[0].nine) == sorted(map(Split, SAFE))


@pytest.mark.parametrize(
    ("point", "uses"),
    [
        (pair(47, 54, units_1=62, units_2=70), True),
        (pair(47, 54), False),  # nobody knows of how many units
        (pair(47, 53, units_1=62), True),
        (pair(30, 45), True),
        (pair(30, 44), False),
        (pair(50, 50, units_1=49, units_2=49), False),
    ],
)
def test_a_split_of_the_nine_uses_about_the_whole_gpu(point: PairPoint, uses: bool) -> None:
    """In units where they were read back, else in percent: three quarters of it, and no more."""
    assert uses_the_gpu(point) == uses


def test_two_safe_splits_may_be_missing_three_not() -> None:
    points = safe()
    assert set(kinds_of([*points[:1], *points[2:6], *points[7:]])) == {"nine"}
    assert kinds_of([*points[:1], *points[3:6], *points[7:]]) == [
        "nine", "grid", "nine", "grid", "grid", "nine",
    ]  # fmt: skip
    assert kinds_of([*points[:1], *points[4:], pair(70, 30)])[2:4] == ["grid", "other"]


def test_what_flags_leave_of_a_grid_around_10_90_is_no_nine() -> None:
    """Eight splits, of which one gives the first job more: their best is no oracle."""
    left = [pair(s, 100.5 - s, units_1=u, units_2=132 - u) for s, u in ((7, 8), (8, 10), (11, 14))]
    points = [pair(10, 90), pair(50, 50), pair(90, 10), *left, pair(9, 91, units_1=12)]
    assert kinds_of(points)[:3] == ["nine"] * 3
    assert "grid" in kinds_of(points)
    assert make_measurements(points, SOLOS)[0] == []


@pytest.mark.parametrize("other", [{"run": "r2"}, {"gpu_uuid": "GPU-2"}, {"gpu_model": "Other"}])
def test_runs_and_cards_are_looked_at_by_themselves(other: dict[str, str]) -> None:
    assert {"grid", "other"} <= set(kinds_of([*safe()[:5], *safe(**other)[5:]]))
    assert kinds_of([*nine(), *safe(**other)]) == ["nine"] * 18


@given(st.sets(st.sampled_from([*SAFE, *((s, 100 - s) for s in SHARES)])))
def test_a_full_set_is_full_from_either_side_and_with_more_splits(
    splits: set[tuple[int, int]],
) -> None:
    found = set(map(Split, splits))
    full = is_full(found, beside_itself=False)
    assert (
        is_full({Split(split.shares[::-1], split.sharing) for split in found}, beside_itself=False)
        == full
    )
    assert is_full({*found, *map(Split, SAFE)}, beside_itself=False)
    if full:
        assert min(sum(a < b for a, b in splits), sum(a > b for a, b in splits)) >= 2
        assert not is_full({s for s in found if s.shares[0] >= s.shares[1]}, beside_itself=False)


@given(st.randoms(use_true_random=False), st.integers(0, 9))
def test_kinds_do_not_depend_on_the_order(random_: random.Random, kept: int) -> None:
    points = [*safe()[:kept], *nine(run="r2"), pair(30, 30)]
    shuffled = random_.sample(points, len(points))
    kinds = dict(zip(points, kinds_of(points), strict=True))
    assert kinds_of(shuffled) == [kinds[point] for point in shuffled]
