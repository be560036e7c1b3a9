"""What launches teach, and which of them teach nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import retraining
import synthetic_pairs as made_up
from hypothesis import given
from hypothesis import strategies as st
from made_up_rows import solo_points
from store_points import any_observation
from unsafe_counts import checked_with

from advisor.core.records import (
    DOUBTFUL,
    OBSERVED_SOURCE,
    Observation,
    ObservedPart,
    PairPoint,
    PointPart,
    SoloPoint,
)
from advisor.predict.profiles import make_profiles
from advisor.validity.safe_counts import keep_check
from advisor_training.rows import (
    LEAST_S,
    SOME,
    Teaching,
    make_data,
    make_pairs,
    make_rows,
    profiles_that_lack,
    taught_here,
    teach,
)

SOLOS = solo_points()
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
    row = make_rows(make_pairs(found.points, SOLOS, full=False)[0], profiles)
    measured = make_rows(make_pairs([EVEN], SOLOS, full=False)[0], profiles)
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
    assert len(found.points) == 1
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
    assert teach([unread], SOLOS).points == teach([unread], SOLOS, {model: none}).points
    found = teach([unread], SOLOS, {model: unsafe})
    assert "not safe" in found.left_out[0].reason
    both = {part.job for part in GOOD.parts}
    read = [replace(p, results="right") if p.job in both else p for p in SOLOS]
    wrong = [replace(p, results="wrong") if p.job == job else p for p in SOLOS]
    taught = (
        teach([GOOD], SOLOS, {model: unsafe}), found, teach([unread], read, {model: unsafe}),
        teach([replace(unread, units_total=None)], wrong),
    )  # fmt: skip
    assert [bool(each.points) for each in taught] == [True, False, True, False]


def test_a_site_teaches_by_the_checks_that_it_keeps(tmp_path: Path) -> None:
    unread = replace(GOOD, parts=tuple(replace(p, results=None) for p in GOOD.parts))
    assert taught_here([unread], SOLOS, tmp_path) == teach([unread], SOLOS)
    keep_check(checked_with(made_up.UNITS, {66}, gpu_model=made_up.GPU_MODEL), tmp_path)
    assert not taught_here([unread], SOLOS, tmp_path).points
    assert taught_here([GOOD], SOLOS, tmp_path).points
    lacking = profiles_that_lack([GOOD], [p for p in SOLOS if p.job != "middle"], SOLOS)
    assert lacking == [p for p in SOLOS if p.job == "middle"]


@pytest.mark.slow
@given(st.lists(any_observation, max_size=4))
def test_every_observation_is_a_point_or_has_a_reason(seen: list[Observation]) -> None:
    found = teach(seen, [])
    different = {one.point_id for one in seen}
    assert len(found.points) + sum(item.points for item in found.left_out) == len(different)
    for point in found.points:
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
    assert not teach([seen], SOLOS).points
    assert teach(
        [seen], SOLOS, {seen.gpu_model: checked_with(made_up.UNITS, (), checked=())}
    ).points


def test_a_pair_launched_often_is_one_row() -> None:
    """The median of its launches: a pair that runs every night does not drown the others."""
    seen = [
        replace(launched(EVEN, n), parts=tuple(
            replace(p, rate=(p.rate or 0) * factor) for p in GOOD.parts
        ))
        for n, factor in enumerate((0.9, 1.0, 1.2))
    ]  # fmt: skip
    rows = make_data(teach(seen, SOLOS).points, SOLOS).rows
    expected = make_data([EVEN], SOLOS).rows
    assert rows.speed_a.tolist() == pytest.approx(expected.speed_a.tolist())


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
    assert (found.points, found.references) == ((), ())
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
    assert teach([WENT_ON], []) == Teaching(points=(together,), references=(alone,), left_out=())


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
    assert (len(found.points), found.references) == (1, ())
