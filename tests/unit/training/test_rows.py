"""Rows of measured pairs, and what stands in for readings that are missing."""

import dataclasses
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import retraining
import synthetic_pairs as made_up
from hypothesis import given, strategies as st
from made_up_profiles import profile
from made_up_rows import as_held_out, solo_points, training_set
from simple_pairs import pair, solo
from store_points import any_observation
from unsafe_counts import checked_with

from advisor import load_dataset
from advisor.core.gpu import EQUAL, Split
from advisor.core.objectives import PartResult, SplitResult
from advisor.core.records import (
    DOUBTFUL,
    OBSERVED_SOURCE,
    Observation,
    ObservedPart,
    PairPoint,
    PointPart,
    SoloPoint,
)
from advisor.errors import InputError
from advisor.predict.profiles import (
    ACTIVE_IDLE_ABOVE,
    Profile,
    Serving,
    Side,
    demanded_power_w,
    filled,
    is_launch_bound,
    make_profiles,
    matrix,
    physical_power_w,
    power_features,
    power_limit_w,
    prior_kept,
    side,
    speed_features,
    with_active_idle,
)
from advisor.validity.safe_counts import keep_check
from advisor_data.bundled import bundled_pair_points, bundled_reference_points, bundled_solo_points
from advisor_data.files import read_points
from advisor_training.learners import (
    POWER_LEARNER,
    SPEED_LEARNER,
    Fitted,
    Predicted,
    as_predicted,
    leave_job_out,
)
from advisor_training.rows import (
    LEAST_S,
    SOME,
    UNPROFILED,
    LeftOut,
    Measurement,
    PointSet,
    Rows,
    active_idle_above_w,
    active_idle_fill,
    flat,
    make_data,
    make_measurements,
    make_rows,
    profiles_that_lack,
    taught_here,
    teach,
)
from advisor_training.scoring import head_errors

SOLOS = solo_points()
PROFILES = make_profiles(SOLOS)


def rows_of(*pairs: tuple[made_up.MadeUpJob, made_up.MadeUpJob]) -> Rows:
    return make_rows(make_measurements(made_up.pair_points(pairs), SOLOS)[0], PROFILES)


def sides(rows: Rows, first: str, second: str) -> tuple[Side, Side]:
    a, b = (PROFILES[name, made_up.GPU_MODEL] for name in (first, second))
    return side(a, rows.share_a), side(b, rows.share_b)


def test_values_are_those_measured_and_those_alone() -> None:
    climber, sitter = made_up.CLIMBER, made_up.SITTER
    rows = rows_of((climber, sitter))
    assert rows.share_a.tolist() == [*range(10, 101, 10)]
    assert rows.kind.tolist() == ["nine"] * 9 + ["uncapped"]
    kept = prior_kept(sides(rows, "climber", "sitter"))
    nine = [(share, 100 - share) for share in range(10, 100, 10)]
    expected = [made_up.speeds_and_power(climber, sitter, "mps", *shares) for shares in nine]
    found = np.column_stack([rows.speed_a, rows.speed_b, rows.power_w])[:9]
    np.testing.assert_allclose(found, expected)
    alone = [[climber.speed(a), sitter.speed(b)] for a, b in nine]
    np.testing.assert_allclose(rows.heads["speed"][:9, :, 0], alone * kept[:9, None])
    both_w = 80 + 400 * climber.speed(10) + 60
    assert rows.heads["power"][0, 0, 0] == pytest.approx(both_w, rel=0.01)


def test_every_column_of_a_row() -> None:
    point = pair(
        30, 70, rate_1=1.2, rate_2=0.5, power_w=250.0, memory_power_w=60.0, source=OBSERVED_SOURCE
    )
    solos = [solo("a", rate=2.0, power_w=150.0), solo("b", rate=5.0, power_w=170.0)]
    asked = Serving(offered_rate=2.0, rate_noise=None, latency_p99_ms=())
    undemanding = dataclasses.replace(asked, offered_rate=None)
    profiles = {
        ("a", "Card"): profile("a", gpu_model="Card", serving=asked),
        ("b", "Card"): profile(
            "b", gpu_model="Card", serving=undemanding, columns={"power_w": [200.0] * 10}
        ),
    }
    rows = make_rows(make_measurements([point], solos, full=False)[0], profiles)
    assert {name: values.tolist() for name, values in rows.columns.items()} == {
        name: [value]
        for name, value in {
            "job_a": "a", "job_b": "b", "gpu_model": "Card", "card": "GPU-1", "run": "r1",
            "measurement": 0, "pair": 0, "kind": SOME, "share_a": 30, "share_b": 70,
            "situation": "split, with a server", "situation_a": "split, server",
            "situation_b": "split, launch-bound",
            "all_served_a": 0.98, "all_served_b": np.inf, "speed_a": 0.6, "speed_b": 0.1,
            "power_w": 250, "memory_power_w": 60, "solo_rate_a": 2, "solo_rate_b": 5,
            "solo_power_a_w": 150, "solo_power_b_w": 170, "profile_power_a_w": 400,
            "profile_power_b_w": 200, "power_limit_w": 700, "weight": 1.0,
        }.items()
    }  # fmt: skip


def test_features_are_seen_from_each_job() -> None:
    rows = rows_of((made_up.HOG, made_up.MIDDLE))
    hog, middle = (PROFILES[name, made_up.GPU_MODEL] for name in ("hog", "middle"))
    a, b = side(hog, rows.share_a), side(middle, rows.share_b)
    speed, power = (rows.heads[name][..., 1:] for name in ("speed", "power"))
    np.testing.assert_array_equal(speed[:, 0], matrix(speed_features(a, [b])))
    np.testing.assert_array_equal(speed[:, 1], matrix(speed_features(b, [a])))
    np.testing.assert_array_equal(power[:, 0], matrix(power_features([a, b])))
    np.testing.assert_array_equal(flat(speed), np.concatenate([speed[:, 0], speed[:, 1]]))


def test_rows_know_their_pair_and_measurement() -> None:
    points = [
        *made_up.pair_points([(made_up.CLIMBER, made_up.SITTER)], run="first"),
        *made_up.pair_points([(made_up.CLIMBER, made_up.SITTER)], run="second"),
        *made_up.pair_points([(made_up.HOG, made_up.HOG)], run="first"),
    ]
    rows = make_rows(make_measurements(points, SOLOS)[0], PROFILES)
    assert np.bincount(rows.pair).tolist() == [20, 6]
    assert np.bincount(rows.measurement).tolist() == [10, 10, 6]


def test_pairs_without_a_profile_are_no_rows() -> None:
    """A reference on the whole GPU is enough for a speed, but not for features below a profile."""
    pairs, _ = make_measurements(made_up.pair_points(), SOLOS)
    some = {key: profile for key, profile in PROFILES.items() if key[0] != "hog"}
    assert make_rows(pairs, some).jobs == ["climber", "middle", "sitter", "slow"]
    some["hog", made_up.GPU_MODEL] = profile("hog", None, (30, 100), gpu_model=made_up.GPU_MODEL)
    within = [p for p in made_up.pair_points(run="within") if min(p.shares_percent) >= 30]
    both = make_measurements([*made_up.pair_points(), *within], SOLOS, full=False)[0]
    rows = make_rows(both, some)
    assert set(rows.run[rows.of("hog")]) == {"within"}
    with pytest.raises(InputError, match="no measured pair has profiles of both"):
        make_rows(pairs, {})


SPLITS = [Split((10.0 * n, 100.0 - 10 * n)) for n in range(1, 10)]


@dataclasses.dataclass
class Made:
    """What is asked of a measurement."""

    jobs: tuple[str, str]
    gpu_model: str
    splits: dict[str, dict[Split, SplitResult]]


def pair_of(a: Profile, b: Profile, power_w: list[float]) -> Measurement:
    part = PartResult(1.0, 1.0, 1.0)
    nine = dict(zip(SPLITS, [SplitResult((part, part), p) for p in power_w], strict=True))
    return Made((a.job, b.job), a.gpu_model, {"nine": nine})  # pyright: ignore


def both(limit_w: float) -> tuple[Profile, Profile]:
    one = profile("a", power_limit_w=limit_w)
    return one, dataclasses.replace(one, job="b")


def test_what_two_jobs_share_is_found_again() -> None:
    """Both powers less 125 W, on cards that are 80 W empty; one window off changes nothing."""
    a, b = both(2000.0)
    alone = 2 * 100.0 + 3.0 * 100
    power_w = [alone - 125.0] * 8 + [alone - 300.0]
    known = {(p.job, p.gpu_model): p for p in (a, b)}
    above_w = active_idle_above_w([pair_of(a, b, power_w)], known)
    assert above_w == pytest.approx(45)
    sides = [side(with_active_idle(p, {ACTIVE_IDLE_ABOVE: above_w}), [30.0]) for p in (a, b)]
    assert demanded_power_w(sides)[0] == pytest.approx(2 * (100 + 90) - 125)


def test_each_gpu_model_has_its_own_where_pairs_tell() -> None:
    """One of which no pair tells has what all have; the same profile stays the same."""
    a, b = both(2000.0)
    c, d = (dataclasses.replace(p, gpu_model="Other") for p in (a, b))
    known = {(p.job, p.gpu_model): p for p in (a, b, c, d)}
    pairs = [pair_of(a, b, [500.0 - 125] * 9), pair_of(c, d, [500.0 - 85] * 9)]
    fill = active_idle_fill(pairs, known)
    drawn = [with_active_idle(p, fill).active_idle_power_w - 80 for p in (a, c)]
    assert drawn == pytest.approx([45, 5])
    third = dataclasses.replace(a, gpu_model="Third")
    assert with_active_idle(third, fill).active_idle_power_w == 80 + fill[ACTIVE_IDLE_ABOVE]
    assert with_active_idle(third, fill) is with_active_idle(third, fill)


def test_what_the_limit_hides_tells_nothing() -> None:
    """Nor does a pair that draws more than both alone: a card with jobs open draws no less."""
    for limit_w, drawn_w in ((300.0, 250.0), (2000.0, 900.0)):
        a, b = both(limit_w)
        known = {(p.job, p.gpu_model): p for p in (a, b)}
        assert active_idle_above_w([pair_of(a, b, [drawn_w] * 9)], known) == 0
    assert active_idle_above_w([], {}) == 0


def test_a_measured_active_idle_power_stays() -> None:
    """What is learned stands for profiles without; nobody's idle power is as before."""
    own = profile("a", active_idle_power_w=130.0)
    assert with_active_idle(own, {ACTIVE_IDLE_ABOVE: 45.0}).active_idle_power_w == 130
    assert filled(profile("a"), {ACTIVE_IDLE_ABOVE: 45.0}).active_idle_power_w == 125
    bare = profile("a")
    assert math.isnan(filled(bare, {}).active_idle_power_w)
    sides = [side(bare, [30.0]), side(bare, [70.0])]
    assert physical_power_w(sides)[0] == pytest.approx(min(190 + 310 - 80.0, power_limit_w(sides)))


POINTS, FULL_SOLOS = made_up.pair_points(), solo_points()
DATA = make_data(POINTS, FULL_SOLOS)


def test_jobs_without_a_profile_are_left_out_and_counted() -> None:
    """After what was left out before: each of the five pairs of one job has twelve points."""
    solos = [p for p in FULL_SOLOS if p.job != "slow" or p.share_percent == 100]
    before = LeftOut("flagged", 3)
    found = make_data([*POINTS, replace(POINTS[0], power_w=None)], solos, left_out=[before])
    assert "slow" not in found.rows.jobs
    assert len(found.measurements) == len(np.unique(found.rows.measurement)) == 10
    assert found.left_out == (
        before, LeftOut("no reading of power", 1), LeftOut(UNPROFILED, 60)
    )  # fmt: skip
    assert make_data(POINTS, solos[:-1], solos[-1:]).left_out == (LeftOut(UNPROFILED, 60),)


def test_pairs_of_a_job_that_has_changed_since_are_left_out() -> None:
    """Its points of then are no profile of the one that ran beside others."""
    old = [replace(p, job_hash="old") for p in FULL_SOLOS]
    new = [
        replace(p, job_hash="new", run="later", started_at="2027-01-01T00:00:00Z")
        for p in FULL_SOLOS
        if p.job == "slow"
    ]
    pairs = [
        replace(p, parts=tuple(replace(part, job_hash="old") for part in p.parts)) for p in POINTS
    ]
    assert "slow" in make_data(pairs, old).rows.jobs
    assert "slow" not in make_data(pairs, [*old, *new]).rows.jobs


def test_without_any_pair_it_is_said_why() -> None:
    with pytest.raises(InputError) as refused:
        make_data(
            [replace(p, power_w=None) for p in POINTS[:2]], FULL_SOLOS, (), [LeftOut("late", 3)]
        )
    assert (refused.value.what, refused.value.why) == (
        "none of 2 pair points can be learned from", "3: late; 2: no reading of power",
    )  # fmt: skip


def test_measurements_with_a_launch_bound_job_are_told() -> None:
    with_sitter = ["sitter" in m.jobs for m in DATA.measurements]
    assert DATA.with_launch_bound().tolist() == with_sitter
    assert sum(with_sitter) == 5


def test_a_card_at_97_percent_of_its_limit_is_held_back() -> None:
    """As H200 cards at their limit read."""
    measured = {"power_w": [96.9, 97.0, 101.0], "power_limit_w": [100.0] * 3}
    rows = DATA.rows.take(np.arange(3)).assign(**{k: np.array(w) for k, w in measured.items()})
    assert replace(DATA, rows=rows).at_power_limit().tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("active_percent", "flags", "bound"),
    [(49.9, (), True), (50.0, (), False), (99.0, ("cpu-bound",), True)],
)
def test_a_job_that_leaves_the_gpu_idle_is_launch_bound(
    active_percent: float, flags: tuple[str, ...], bound: bool
) -> None:
    columns = {"sm_active_percent": [99.0 - active_percent, active_percent]}
    assert is_launch_bound(profile("a", shares=(10, 100), flags=flags, columns=columns)) == bound


# Points as data frames.


def test_the_data_set_is_a_frame(tmp_path: Path) -> None:
    """One row for each point with flat columns; what comes out of a frame is read again."""
    frame = load_dataset(relative=False)
    assert len(frame) == len(bundled_pair_points())
    assert {"job_1", "job_2", "share_1_percent", "rate_2", "power_w"} <= set(frame.columns)
    assert frame.loc[0, "job_1"] == bundled_pair_points()[0].parts[0].job
    frame.head(50).to_parquet(tmp_path / "p.parquet")
    assert read_points(tmp_path / "p.parquet") == bundled_pair_points()[:50]
    assert len(load_dataset("solo")) == len(bundled_solo_points())
    assert len(load_dataset(tmp_path / "p.parquet")) == 50
    with pytest.raises(InputError, match=r"no data set paris. pairs, sets, solo, references"):
        load_dataset("paris")


def test_speeds_are_those_that_training_learns() -> None:
    """Of another reference, or one of another run, analyses and model would not agree."""
    points = bundled_pair_points(["bert-infer", "fft"])
    pairs, _ = make_measurements(points, [*bundled_reference_points(), *bundled_solo_points()])
    frame = load_dataset()
    for measurement in (each for each in pairs if each.jobs == ("bert-infer", "fft")):
        ours = frame[
            (frame["job_1"] == "bert-infer")
            & (frame["job_2"] == "fft")
            & (frame["run"] == measurement.run)
            & (frame["gpu_uuid"] == measurement.gpu_uuid)
            & (frame["share_1_percent"] == 50)
            & (frame["share_2_percent"] == 50)
        ]
        expected = [measurement.nine[EQUAL].speeds, (measurement.nine[EQUAL].energy_saved,)]
        for columns, each in zip((["speed_1", "speed_2"], ["energy_saved"]), expected, strict=True):
            np.testing.assert_allclose(ours[columns].median(), each, rtol=1e-9)


def test_a_set_has_a_speed_for_each_job() -> None:
    frame = load_dataset("sets")
    seven = frame[frame["job_7"].notna()].iloc[0]
    assert 0 < seven["speed_7"] < 1.2
    assert seven["energy_saved"] > 0


def test_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        load_dataset()


# Predictions of rows that the learner was not fitted to, and how they are scored.


ROWS = training_set().rows


def knowing(rows: Rows) -> Fitted:
    """A learner that knows what was measured, and tells how many rows it was fitted to."""

    def predict(asked: Rows) -> Predicted:
        speeds = np.column_stack([asked.speed_a, asked.speed_b])
        return as_predicted(speeds, asked.power_w + len(rows))

    return predict


def test_no_row_of_the_job_is_learned_from() -> None:
    told: list[tuple[str, int, int]] = []

    def tell(job: str, done: int, total: int) -> None:
        told.append((job, done, total))

    held_out = leave_job_out(ROWS, knowing, progress=tell)
    assert told == [(job, number, 5) for number, job in enumerate(ROWS.jobs, 1)]
    for job in ROWS.jobs:
        tests = held_out.left_out == job
        np.testing.assert_array_equal(held_out.row[tests], np.flatnonzero(ROWS.of(job)))
        others = held_out.power_w[tests] - ROWS.power_w[held_out.row[tests]]
        np.testing.assert_allclose(others, np.count_nonzero(~ROWS.of(job)))


def test_a_job_of_every_row_cannot_be_left_out() -> None:
    only = ROWS.take((ROWS.job_a == "climber") & (ROWS.job_b == "hog"))
    with pytest.raises(InputError, match="climber cannot be left out"):
        leave_job_out(only, knowing)


def test_errors_are_relative_and_of_one_kind_of_split() -> None:
    factor, n = np.where(ROWS.share_a == 50, 1.5, 1.0), len(ROWS)
    speeds = np.column_stack([ROWS.speed_a * factor, ROWS.speed_b * factor])
    found = as_held_out(np.full(n, "any"), np.arange(n), as_predicted(speeds, ROWS.power_w))
    errors, count = head_errors(ROWS, found, SPEED_LEARNER), np.count_nonzero(ROWS.kind == "nine")
    assert dict(zip(*np.unique(errors.round(9), return_counts=True), strict=True)) == {
        0: 2 * count - 30, 0.5: 30
    }  # fmt: skip
    assert head_errors(ROWS, found, SPEED_LEARNER, "uncapped").max() == 0
    assert head_errors(ROWS, found, POWER_LEARNER).max() == 0


# What launches teach, and which of them teach nothing.


CARD = "GPU-of-launches"


def launched(point: PairPoint, number: int = 0, **changes: Any) -> Observation:
    fields = {"gpu_uuid": CARD, "started_at": "2026-02-01T12:00:00+00:00", **changes}
    return replace(retraining.launched(point, number), **fields)


def pairs(*jobs: made_up.MadeUpJob) -> list[PairPoint]:
    return made_up.pair_points([(jobs[0], jobs[1])])


EVEN = pairs(made_up.CLIMBER, made_up.MIDDLE)[4]
GOOD = launched(EVEN)


def with_part(**changes: Any) -> Observation:
    first, second = GOOD.parts
    return replace(GOOD, parts=(replace(first, **changes), second))


def test_a_good_launch_teaches_what_a_measured_point_does() -> None:
    found = teach([GOOD, GOOD], SOLOS)
    assert not found.left_out
    profiles = make_profiles(SOLOS)
    row = make_rows(make_measurements(found.pairs, SOLOS, full=False)[0], profiles)
    measured = make_rows(make_measurements([EVEN], SOLOS, full=False)[0], profiles)
    assert (row.speed_a, row.speed_b, row.power_w) == (
        measured.speed_a, measured.speed_b, measured.power_w
    )  # fmt: skip
    assert row.kind.tolist() == [SOME]
    assert (row.weight.tolist(), measured.weight.tolist()) == ([1.0], [1.0])


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (replace(GOOD, settled_s=LEAST_S - 0.1), "less than 8 s"),
        (replace(GOOD, settled_s=None, overlap_s=7.9), "less than 8 s"),
        (replace(GOOD, state="failed"), "failed"),
        (replace(GOOD, power_w=None), "without a rate or the power"),
        (with_part(rate=None), "without a rate or the power"),
        (with_part(rate=0.0), "without a rate or the power"),
        (with_part(units=None), "limits were not read back"),
        (with_part(results="wrong"), "results were wrong"),
        (with_part(results="differ"), "results were wrong"),
        (with_part(job_hash="of-another"), "not the one that was profiled"),
        (replace(GOOD, mode="time-sliced"), "time-sliced"),
        (launched(pairs(made_up.CLIMBER, made_up.MIDDLE)[-1]), "over-subscribed"),
        (
            replace(GOOD, parts=(*GOOD.parts, replace(GOOD.parts[0], job="third"))),
            "more than two jobs",
        ),
        *((replace(GOOD, flags=(flag,)), f"flagged {flag}") for flag in sorted(DOUBTFUL)),
    ],
)
def test_what_is_in_doubt_teaches_nothing(seen: Observation, reason: str) -> None:
    before = [replace(p, job_hash="of-another", started_at="2025") for p in SOLOS]
    solos = [*(replace(p, job_hash="profiled") for p in SOLOS), *before]
    found = teach([seen, replace(GOOD, launch_id="good")], solos)
    assert len(found.pairs) == 1
    (item,) = found.left_out
    assert reason in item.reason
    assert item.points == 1


def test_results_that_nobody_read_teach_at_safe_counts_only() -> None:
    """A check says which these are; what a job said of its own results alone goes before it."""
    units, job, model = GOOD.parts[0].units, GOOD.parts[0].job, GOOD.gpu_model
    assert units
    unread = replace(GOOD, parts=tuple(replace(p, results=None) for p in GOOD.parts))
    unsafe = checked_with(made_up.UNITS, {units}, checked={units}, gpu_model=model)
    none = checked_with(made_up.UNITS, (), checked=(), gpu_model=model)
    assert teach([unread], SOLOS).pairs == teach([unread], SOLOS, {model: none}).pairs
    found = teach([unread], SOLOS, {model: unsafe})
    assert "not safe" in found.left_out[0].reason
    both = {part.job for part in GOOD.parts}
    read = [replace(p, results="right") if p.job in both else p for p in SOLOS]
    wrong = [replace(p, results="wrong") if p.job == job else p for p in SOLOS]
    taught = (
        teach([GOOD], SOLOS, {model: unsafe}), found, teach([unread], read, {model: unsafe}),
        teach([replace(unread, units_total=None)], wrong),
    )  # fmt: skip
    assert [bool(each.pairs) for each in taught] == [True, False, True, False]


def test_a_site_teaches_by_the_checks_that_it_keeps(tmp_path: Path) -> None:
    unread = replace(GOOD, parts=tuple(replace(p, results=None) for p in GOOD.parts))
    assert taught_here([unread], SOLOS, tmp_path) == teach([unread], SOLOS)
    keep_check(checked_with(made_up.UNITS, {66}, gpu_model=made_up.GPU_MODEL), tmp_path)
    assert not taught_here([unread], SOLOS, tmp_path).pairs
    assert taught_here([GOOD], SOLOS, tmp_path).pairs
    lacking = profiles_that_lack([GOOD], [p for p in SOLOS if p.job != "middle"], SOLOS)
    assert lacking == [p for p in SOLOS if p.job == "middle"]


@pytest.mark.slow
@given(st.lists(any_observation, max_size=4))
def test_every_observation_is_a_point_or_has_a_reason(seen: list[Observation]) -> None:
    found = teach(seen, [])
    different = {one.point_id for one in seen}
    assert len(found.pairs) + sum(item.points for item in found.left_out) == len(different)
    for point in found.pairs:
        assert DOUBTFUL.isdisjoint(point.flags)
        assert point.power_w
        assert all(part.rate for part in point.parts)


def test_percentages_that_were_rounded_up_are_not_over_subscribed() -> None:
    """62 and 70 of 132 SMs are 47 % and 54 %; an older launch kept no units of its GPU."""
    first, second = GOOD.parts
    parts = (
        replace(first, share_percent=47.0, units=62),
        replace(second, share_percent=54.0, units=70),
    )
    seen = replace(GOOD, parts=parts, units_total=None)
    assert not teach([seen], SOLOS).pairs
    assert teach([seen], SOLOS, {seen.gpu_model: checked_with(made_up.UNITS, (), checked=())}).pairs


def test_a_pair_launched_often_is_one_row() -> None:
    """The median of its launches: a pair that runs every night does not drown the others."""
    seen = [
        replace(launched(EVEN, n), parts=tuple(
            replace(p, rate=(p.rate or 0) * factor) for p in GOOD.parts
        ))
        for n, factor in enumerate((0.9, 1.0, 1.2))
    ]  # fmt: skip
    rows = make_data(teach(seen, SOLOS).pairs, SOLOS).rows
    assert rows.speed_a.tolist() == pytest.approx(make_data([EVEN], SOLOS).rows.speed_a.tolist())


ALIKE: dict[str, Any] = {
    "gpu_model": "Card", "gpu_uuid": CARD, "units_total": 132, "mode": "uncapped", "driver": "580",
    "power_limit_w": 600.0, "started_at": "2026-02-01T12:00Z", "host": "node", "tool_version": "1",
}  # fmt: skip
ONE: dict[str, Any] = {"job": "a", "rate_unit": "frames", "job_hash": "0a", "results": "right"}
OTHER: dict[str, Any] = ONE | {"job": "b", "job_hash": "0b"}
UNCAPPED: dict[str, Any] = {"share_percent": 100.0, "units": 132, "rate": 50.0}
WENT_ON = Observation(
    launch_id="one", state="finished", power_w=500.0, overlap_s=60.0, settled_s=LEAST_S,
    parts=(
        ObservedPart(**ONE, **UNCAPPED, rest_rate=200.0),
        ObservedPart(**OTHER, **UNCAPPED, ended_first=True),
    ),
    rest_s=8.0, rest_energy_j=3200.0, flags=("uneven",), **ALIKE,
)  # fmt: skip


def test_a_launch_with_a_job_below_normal_priority_teaches_nothing_of_others() -> None:
    """A model that took it for one without limits would expect too much of these."""
    low = tuple(replace(part, below_normal=part.job == "a") for part in WENT_ON.parts)
    found = teach([replace(WENT_ON, parts=low)], [])
    assert (found.pairs, found.references) == ((), ())
    assert [why for why in map(str, found.left_out) if "below normal priority" in why]


def test_every_column_of_a_launch_is_kept() -> None:
    made: dict[str, Any] = ALIKE | {"run": f"launches on {CARD}", "source": OBSERVED_SOURCE}
    together = PairPoint(
        parts=(PointPart(**ONE, **UNCAPPED), PointPart(**OTHER, **UNCAPPED)),
        power_w=500.0, window_s=LEAST_S, flags=("uneven",), **made,
    )  # fmt: skip
    alone = SoloPoint(
        **ONE, share_percent=100.0, units_granted=132, rate=200.0, power_w=400.0, window_s=8.0,
        **made,
    )  # fmt: skip
    assert teach([WENT_ON], []) == PointSet(pairs=(together,), references=(alone,))


@pytest.mark.parametrize(
    "seen",
    [
        replace(
            WENT_ON,
            mode="mps",
            parts=tuple(replace(p, share_percent=50.0, units=66) for p in WENT_ON.parts),
        ),
        replace(WENT_ON, rest_s=7.9),
        replace(WENT_ON, rest_s=None),
        replace(WENT_ON, rest_energy_j=None),
        replace(WENT_ON, parts=tuple(replace(p, ended_first=False) for p in WENT_ON.parts)),
        replace(WENT_ON, parts=tuple(replace(p, rest_rate=None) for p in WENT_ON.parts)),
    ],
)
def test_one_that_kept_its_limit_or_went_on_for_a_moment_is_no_reference(seen: Observation) -> None:
    found = teach([seen], SOLOS)
    assert (len(found.pairs), found.references) == (1, ())
