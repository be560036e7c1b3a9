"""Whose part of a GPU's energy is whose: a rule whose parts sum to the whole, and its bounds."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from store_points import (
    FILES,
    any_observation,
    any_pair_point,
    any_point,
    observation,
    pair_point,
    point,
)

from advisor.core.job import TOLERANCE, Reported, relative_gap
from advisor.core.objectives import Interval
from advisor.core.records import (
    PARTS,
    JobLoad,
    Observation,
    ObservedPart,
    PairPoint,
    Record,
    SoloPoint,
    divide_energy,
    is_far,
)
from advisor.errors import InputError
from advisor.formats.rows import (
    column_types,
    flat,
    from_row,
    kind_of,
    to_row,
)
from advisor_data.bundled import bundled_pair_points
from advisor_data.files import IDENTITY, read_points


@given(any_point | any_pair_point | any_observation)
def test_any_record_survives_json_and_text(measured: Record) -> None:
    row = json.loads(json.dumps(to_row(measured)))
    read = from_row(kind_of(row), row)
    assert (read, read.point_id) == (measured, measured.point_id)
    row = {**flat(to_row(measured)), "flags": ";".join(measured.flags)}
    text = {k: "" if v is None else str(v) for k, v in row.items()}
    assert from_row(kind_of(text), text) == measured


def test_a_reading_that_is_not_there_is_none() -> None:
    """Empty and NaN mean "not available" and never become 0, in columns of any type."""
    for nothing in (None, "", math.nan, "nan", "NaN"):
        assert from_row(SoloPoint, {**to_row(point()), "power_w": nothing}).power_w is None
    for column in ("host", "units_total", "throttled", "flags"):
        read = from_row(SoloPoint, {**to_row(point()), column: math.nan})
        assert getattr(read, column) == (() if column == "flags" else None)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("rate", "fast"),
        ("rate", True),
        ("rate", [1]),
        ("rate", -1),
        ("rate", math.inf),
        ("power_w", "-3"),
        ("units_total", 131.5),
        ("units_total", math.inf),
        ("units_total", 2**31),
        ("repeat", -1),
        ("throttled", "maybe"),
        ("job", 7),
        ("job", "two\nlines"),
        ("host", "nul\0"),
        ("host", "\ud800"),
        ("share_percent", 0),
        ("share_percent", 100.5),
        ("started_at", "yesterday"),
        ("started_at", "2026-01-31T12:00:00"),
        ("started_at", "2026-01-31T12:00:00+02:00"),
        ("flags", 3),
        ("flags", ["a;b"]),
        ("flags", [1]),
        ("powr_w", 1),
    ],
)
def test_a_bad_value_or_column_is_refused_by_name(column: str, value: Any) -> None:
    said = "unknown column powr_w" if column == "powr_w" else column
    with pytest.raises(InputError, match=said):
        from_row(SoloPoint, {**to_row(point()), column: value})


def test_temperatures_and_what_is_saved_may_be_below_0() -> None:
    assert from_row(SoloPoint, {**to_row(point()), "temperature_c": -4}).temperature_c == -4
    lost = observation(
        energy_saved=-0.2, predicted_energy_saved=-0.1, rest_energy_saved=-0.3,
        energy_saved_to_end=-0.25,
    )  # fmt: skip
    assert from_row(Observation, to_row(lost)) == lost
    with pytest.raises(InputError, match="rest_energy_j is -1"):
        from_row(Observation, {**to_row(lost), "rest_energy_j": -1.0})


def test_all_missing_columns_are_named() -> None:
    needed = "gpu_model, gpu_uuid, window_s, started_at, run, job, share_percent, rate"
    with pytest.raises(InputError, match=needed):
        from_row(SoloPoint, {"rate": "", "host": "node1"})


@pytest.mark.parametrize("measured", [point(), pair_point(), observation()], ids=type)
def test_the_named_columns_and_no_others_make_the_id(measured: Record) -> None:
    other: dict[type, Any] = {str: "other", float: 51.0, int: 7, bool: True, tuple: ("noisy",)}
    changing = {
        name
        for name, (value_type, _) in column_types(type(measured)).items()
        if replace(measured, **{name: other[value_type]}).point_id != measured.point_id
    }
    if not isinstance(measured, SoloPoint):
        kept: tuple[Any, ...] = measured.parts
        for name, (value_type, _) in column_types(PARTS[type(measured)]).items():
            parts = (replace(kept[0], **{name: other[value_type]}), *kept[1:])
            if replace(measured, **{"parts": parts}).point_id != measured.point_id:
                changing.add(f"jobs.{name}")
    assert changing == set(IDENTITY[type(measured)])


def test_identities_are_those_of_every_version() -> None:
    """What was measured before has the id that it had, so importing it adds nothing."""
    assert [p.point_id for p in read_points(FILES / "pairs.parquet")] == [
        "676744deb5b03dd630440e7e5ed6c207",
        "19c0616ded8256518a116f99030336a9",
        "2d8b02d51cf6352b4fa254da98b783a7",
        "7ebba0fedbec51e45cdd84eee35eefa8",
        "f31988c66858cb320df95317d3a6e568",
    ]
    assert [o.point_id for o in read_points(FILES / "observations.parquet")] == [
        "f67f01546ca8f6cd9203618ca79e8cd0",
        "9425b361957f54951ec7b96cef535a84",
        "c9fa82bd5c0b85d5c061f746da392ed7",
    ]
    digest = hashlib.sha256("".join(p.point_id for p in bundled_pair_points()).encode())
    assert digest.hexdigest()[:16] == "620e921f08081c96"


@pytest.mark.parametrize("column", ["share_1_percent", "share_2_percent"])
@pytest.mark.parametrize("value", [0, 100.5])
def test_a_share_of_a_pair_that_cannot_be_is_refused(column: str, value: float) -> None:
    number = column.split("_")[1]
    with pytest.raises(InputError, match=f"job {number} of the row: share_percent is {value:g}"):
        from_row(PairPoint, {**flat(to_row(pair_point())), column: value})
    both = {**flat(to_row(pair_point())), "share_1_percent": 70, "share_2_percent": 70}
    assert from_row(PairPoint, both).shares_percent == (70.0, 70.0)


@pytest.mark.parametrize("make", [pair_point, observation])
def test_a_record_is_written_in_one_way_only(make: Callable[..., Any]) -> None:
    other = make(job_1="sort", job_2="gemm", rate_1=3.0, units_2=26)
    assert [(p.job, p.rate, p.units) for p in other.parts] == [
        ("gemm", make().parts[1].rate, 26),
        ("sort", 3.0, None),
    ]
    turned = {**to_row(other), "jobs": list(reversed(to_row(other)["jobs"]))}
    assert from_row(PairPoint if make is pair_point else Observation, turned) == other
    itself = make(job_2="gemm")
    assert (itself.jobs, [p.share_percent for p in itself.parts]) == (("gemm", "gemm"), [30, 70])


@given(any_pair_point | any_observation)
def test_any_order_is_one_record(measured: PairPoint | Observation) -> None:
    parts: tuple[Any, ...] = measured.parts
    turned = replace(measured, **{"parts": parts[::-1]})
    assert turned.jobs == measured.jobs == tuple(sorted(measured.jobs))
    if len(set(measured.jobs)) == len(measured.jobs):
        assert (turned, turned.point_id) == (measured, measured.point_id)


def test_one_job_is_no_pair() -> None:
    row = {**to_row(pair_point()), "jobs": [{"job": "gemm", "share_percent": 50}]}
    for jobs in (row["jobs"], [], None, "gemm", [1, 2]):
        with pytest.raises(InputError, match=r"not a list of two jobs or more|is not an object"):
            from_row(PairPoint, {**row, "jobs": jobs})
    with pytest.raises(ValueError, match="two parts or more"):
        replace(pair_point(), parts=pair_point().parts[:1])


def test_a_mistake_in_a_flat_row_is_named() -> None:
    row = flat(to_row(pair_point()))
    with pytest.raises(InputError, match="unknown column share_percent_1"):
        from_row(PairPoint, {**row, "share_percent_1": 1})
    with pytest.raises(InputError, match=r"job 3 of the row: missing .* share_percent"):
        from_row(PairPoint, {**row, "job_3": "sort"})


@pytest.mark.parametrize("column", ["mode", "state"])
def test_a_word_of_an_observation_that_is_none_is_refused(column: str) -> None:
    with pytest.raises(InputError, match=f"{column} is 'done'. one of .*(finished|mps)"):
        from_row(Observation, {**to_row(observation()), column: "done"})


LOADS = st.lists(
    st.builds(
        JobLoad,
        units=st.floats(1, 132),
        relative_speed=st.none() | st.floats(0, 2),
        solo_power_w=st.none() | st.floats(0, 1000),
    ),
    min_size=1,
    max_size=5,
)


STANDING = JobLoad(units=33, relative_speed=0.0, solo_power_w=480)


BUSY = JobLoad(units=99, relative_speed=0.5, solo_power_w=480)


@given(st.floats(0, 1e6), st.floats(0.1, 1e4), st.none() | st.floats(0, 500), LOADS)
def test_parts_of_the_energy_add_up(
    energy_j: float, duration_s: float, idle_w: float | None, loads: Sequence[JobLoad]
) -> None:
    parts = divide_energy(energy_j, duration_s, idle_w, loads)
    assert math.isclose(sum(p.value for p in parts), energy_j, rel_tol=1e-9, abs_tol=1e-9)
    slack = 1e-9 * (1 + energy_j)
    for part in parts:
        assert 0 <= part.low <= part.value <= part.high <= energy_j + slack
    if len(parts) == 1:
        assert parts[0].high - parts[0].low <= slack


def values(*loads: JobLoad, idle_w: float | None = 80) -> list[float]:
    return [part.value for part in divide_energy(3000, 10, idle_w, loads)]


def test_energy_is_divided_by_size_and_by_use() -> None:
    """80 W for 10 s by SMs, the rest by speed times power above idle."""
    assert values(STANDING, BUSY) == [200, 2800]
    assert values(STANDING, BUSY, idle_w=None) == values(JobLoad(units=33), BUSY) == [750, 2250]
    assert (values(BUSY), values()) == ([3000], [])


def test_bounds_say_how_far_the_jobs_are_from_what_they_draw_alone() -> None:
    """Alone they would draw 200 and 100 W above 80 W; together they draw 240 above, or 360."""
    loads = [
        JobLoad(units=66, relative_speed=0.5, solo_power_w=480),
        JobLoad(units=66, relative_speed=0.5, solo_power_w=280),
    ]
    assert divide_energy(3800, 10, 80, loads) == [
        Interval(2400, 2400, 2400),
        Interval(1400, 1400, 1400),
    ]
    saved, cost = divide_energy(3200, 10, 80, loads), divide_energy(4400, 10, 80, loads)
    assert saved == [Interval(2000, 1800, 2400), Interval(1200, 800, 1400)]
    assert cost == [Interval(2800, 2400, 3000), Interval(1600, 1400, 2000)]


def metered_observation(energy_j: float | None) -> Observation:
    part = ObservedPart(job="a", share_percent=50, units=66, rate=5, solo_rate=10, solo_power_w=480)
    other = ObservedPart(job="b", share_percent=50, rate=1, solo_rate=2, solo_power_w=280)
    return Observation(
        launch_id="x", parts=(part, other), gpu_model="H", gpu_uuid="GPU-1", units_total=132,
        energy_j=energy_j, overlap_s=10, state="finished", started_at="2026-01-01T00:00:00Z",
    )  # fmt: skip


def test_observation_has_the_part_of_each_job() -> None:
    a, b = metered_observation(3200).with_job_energy(80).parts
    assert (a.energy_j, a.energy_low_j, a.energy_high_j) == (2000, 1800, 2400)
    assert (b.energy_j, b.energy_low_j, b.energy_high_j) == (1200, 800, 1400)
    assert metered_observation(None).with_job_energy(80) == metered_observation(None)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, None),
        ({"state": "failed"}, "it failed"),
        ({"overlap_s": 7.9}, "under 8 s together"),
        ({"overlap_s": 8.0}, None),
        ({"results_2": "differ"}, "results were wrong"),
        ({"flags": ("noisy-rate", "limit-broken")}, "limit-broken"),
    ],
)
def test_what_makes_an_observation_doubtful(told: dict[str, Any], why: str | None) -> None:
    assert observation(**told).doubt == why


@pytest.mark.parametrize(
    ("told", "joules"),
    [
        ({"energy_j": 60.0, "energy_saved_to_end": 0.25}, 80.0),
        (
            {"energy_j": 50.0, "rest_s": 1.0, "rest_energy_j": 10.0, "energy_saved_to_end": 0.25},
            80.0,
        ),
        ({"energy_j": 50.0, "rest_s": 1.0, "energy_saved_to_end": 0.25}, None),
        ({"energy_j": 60.0, "energy_saved_to_end": 1.0}, None),
        ({"energy_j": 60.0}, None),
    ],
)
def test_energy_of_the_same_work_apart(told: dict[str, Any], joules: float | None) -> None:
    assert observation(**told).energy_apart_j == joules


@pytest.mark.parametrize(
    ("observed", "far"), [(10.0, False), (10.9, False), (11.0, False), (11.5, True), (8.5, True)]
)
def test_far_is_outside_of_the_range_and_over_a_tenth_off(observed: float, far: bool) -> None:
    assert is_far(observed, Interval(10, 9.8, 10.2)) == far


# Results that a job reports: judged against the full GPU's, and kept in a line.


FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


def reported(*values: float, counts: range | None = None) -> Reported:
    """Values after 1, 2, .. steps."""
    counts = counts or range(1, len(values) + 1)
    wrong = sum(not math.isfinite(value) for value in values)
    first = tuple(zip(counts, values, strict=True))
    return Reported(first, len(values), wrong, values[-1] if values else None)


@pytest.mark.parametrize(
    ("seen", "reference", "verdict"),
    [
        (reported(10.0, 9.0), reported(10.05, 8.95), "right"),
        # The largest of all differences counts, not the mean or the last.
        (reported(10.0, 9.0, 8.0), reported(10.0, 9.2, 8.0), "differ"),
        *((reported(10.0, value, 9.0), None, "wrong") for value in (math.nan, math.inf, -math.inf)),
        (reported(10.0, math.nan), reported(10.0, 9.0), "wrong"),
        (Reported(), reported(1.0), None),
        (reported(1.0), None, None),
        (reported(1.0), reported(1.0, math.nan), None),
        (reported(1.0), reported(1.0, counts=range(7, 8)), None),
    ],
)
def test_results_are_judged_by_those_of_the_whole_gpu(
    seen: Reported, reference: Reported | None, verdict: str | None
) -> None:
    assert seen.judge(reference, TOLERANCE) == verdict


@given(FINITE, FINITE)
def test_a_gap_is_finite_or_infinite_and_never_nan(value: float, reference: float) -> None:
    assert relative_gap(value, reference) >= 0


@given(st.lists(st.tuples(st.integers(0, 10**9), FINITE), min_size=1, max_size=8).map(tuple))
def test_first_values_survive_their_line(first: tuple[tuple[int, float], ...]) -> None:
    seen = Reported.read(Reported(first, len(first), 0, first[-1][1]).written)
    assert seen is not None
    assert [at for at, _ in seen.first] == [at for at, _ in first]
    assert [v for _, v in seen.first] == pytest.approx([v for _, v in first], rel=1e-8)


@pytest.mark.parametrize(
    "text", [reported(math.nan).written, None, "", "loss", "1=", "=3", "1=2=3", "a=b"]
)
def test_what_is_no_line_of_values_is_none(text: str | None) -> None:
    assert Reported.read(text) is None
