"""Pair points put together into measurements."""

import dataclasses
from typing import Any

import pytest
from simple_pairs import SHARES, SOLOS, nine, pair, solo

from advisor.core.objectives import PartResult, SplitResult
from advisor.core.records import REPLAY_SOURCE, PairPoint, PointPart
from advisor.core.split import NINE, Split
from advisor_training.pairs import BASELINES, DISTURBED, LeftOut, MeasuredPair, kinds_of, make_pairs


def only(points: list[PairPoint], **fields: Any) -> MeasuredPair:
    pairs, left_out = make_pairs(points, fields.get("solos", SOLOS))
    assert left_out == []
    assert len(pairs) == 1
    return pairs[0]


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
    """A window that went wrong once decides no split, nor does what cannot be the memory's."""
    watts = ((100.0, 30.0), (102.0, 40.0), (500.0, 500.0), (90.0, 0.0), (103.0, None))
    points = [
        point
        for repeat, (power_w, memory_power_w) in enumerate(watts)
        for point in nine(power_w=power_w, memory_power_w=memory_power_w, repeat=repeat)
    ]
    measurement = only(points).main
    assert measurement.points == 45
    half = PartResult(0.5, 1.0, 100.0)
    assert measurement.equal == SplitResult((half, half), power_w=102.0, memory_power_w=35.0)
    assert [sorted(results) for results in measurement.repeats] == [list(NINE)] * 5


def test_cards_and_runs_stay_apart() -> None:
    """Values of two cards or two runs never meet in one measurement; the fullest comes first."""
    points = [
        *nine(run="r1", power_w=100),
        *nine(run="r2", power_w=200),
        pair(100, 100, mode="uncapped", run="r2", power_w=150),
        pair(100, 100, mode="time-sliced", run="r2", power_w=90),
        *nine(run="r2", gpu_uuid="GPU-2", power_w=300),
    ]
    found = only(points)
    assert [(m.run, m.gpu_uuid, m.equal.power_w) for m in found.measurements] == [
        ("r2", "GPU-1", 200),
        ("r1", "GPU-1", 100),
        ("r2", "GPU-2", 300),
    ]
    assert [
        {name: result.power_w for name, of in BASELINES.items() if (result := of(measurement))}
        for measurement in found.measurements[:2]
    ] == [
        {"equal": 200, "uncapped": 150, "time-sliced": 90, "exclusive": 100},
        {"equal": 100, "exclusive": 100},
    ]
    models = ("Other", "Card")
    alone = [solo(job, gpu_model=model) for job in "ab" for model in models]
    of_models, _ = make_pairs([p for m in models for p in nine(gpu_model=m)], alone)
    assert [(pair.gpu_model, pair.main.points) for pair in of_models] == [("Card", 9), ("Other", 9)]


def test_jobs_in_any_order_are_one_pair() -> None:
    """Job b next to a is a next to b, with shares and rates that follow their job."""
    points = [
        pair(share, 100 - share, job_1="b", job_2="a", rate_1=share / 100, rate_2=0.25)
        for share in SHARES
    ]
    measurement = only(points).main
    assert measurement.jobs == ("a", "b")
    result = measurement.nine[Split((30.0, 70.0))]
    assert tuple(part.rate for part in result.parts) == (0.25, 0.7)


def test_a_job_beside_itself_has_five_splits() -> None:
    """30/70 and 70/30 of one job are the same measurement, mirrored."""
    points = nine(job_2="a")
    measurement = only(points).main
    assert tuple(measurement.nine) == NINE[:5]
    assert measurement.nine[Split((30.0, 70.0))].parts[0].rate == pytest.approx(0.3)
    half = only([point for point in points if point.shares_percent[0] <= 50]).main
    assert half.nine == measurement.nine


def test_exclusive_comes_from_the_solo_points() -> None:
    """Half of each rate at the mean of the powers."""
    solos = [solo("a", rate=4, power_w=300), solo("b", rate=10, power_w=500)]
    turns = only(nine(), solos=solos).main.exclusive
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
    pairs, left_out = make_pairs(points, SOLOS)
    assert [(p.jobs, len(p.measurements)) for p in pairs] == [(("a", "b"), 1)]
    assert left_out == [
        LeftOut("no rates: a job of the pair failed", 2),
        LeftOut("no reading of power", 1),
        LeftOut("no solo point of c on the whole Card", 9),
        LeftOut("without 50/50, or with too few of the nine splits in one run", 8),
    ]
    assert sum(item.points for item in left_out) + 9 == len(points)


def test_a_starved_job_is_no_failed_one() -> None:
    assert only(nine(rate_1=0.0)).main.equal.parts[0].rate == 0


@pytest.mark.parametrize(("source", "fits"), [("nvml", False), (REPLAY_SOURCE, True)])
def test_a_replay_is_compared_with_the_job_that_it_replays(source: str, fits: bool) -> None:
    """Its own hash is of a record of the job; a measured job of another hash is another job."""
    solos = [solo("a", job_hash="measured"), solo("b")]
    points = nine(job_1_hash="of a record", source=source)
    assert bool(make_pairs(points, solos)[0]) == fits


@pytest.mark.parametrize(("rate", "fits"), [(89.0, True), (87.0, False)])
def test_a_disturbed_run_is_left_out(rate: float, fits: bool) -> None:
    """A job that runs slower alone than it can does not tell how the pair shares the GPU."""
    fast = solo("a", rate=100.0, gpu_uuid="GPU-2", run="other")
    solos = [solo("a", rate=rate), fast, solo("b")]
    pairs, left_out = make_pairs(nine(), solos)
    assert [bool(pairs), *left_out] == ([True] if fits else [False, LeftOut(DISTURBED, 9)])


@pytest.mark.parametrize(("rate", "fits"), [(113.0, True), (114.0, False)])
def test_a_job_that_is_faster_beside_another_was_slow_alone(rate: float, fits: bool) -> None:
    """Nothing speeds up by sharing: its relative speeds would count work that nobody did."""
    points = [*nine()[:-1], dataclasses.replace(nine()[-1], parts=_at(nine()[-1], rate))]
    pairs, left_out = make_pairs(points, [solo("a", rate=100.0), solo("b", rate=1000.0)])
    assert [bool(pairs), *left_out] == ([True] if fits else [False, LeftOut(DISTURBED, 9)])


def _at(point: PairPoint, rate: float) -> tuple[PointPart, ...]:
    return (dataclasses.replace(point.parts[0], rate=rate), *point.parts[1:])


def test_a_measurement_with_few_splits_is_there_where_it_is_asked_for() -> None:
    """Each of its splits is as good as any other to learn from."""
    few = [p for p in nine() if p.shares_percent[0] in (10, 50, 90)]
    pairs, left_out = make_pairs(few, SOLOS, full=False)
    assert left_out == []
    assert not pairs[0].main.is_full
    assert sorted(pairs[0].main.nine) == [NINE[0], NINE[4], NINE[8]]
    assert make_pairs(few, SOLOS)[0] == []
