import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from store_points import (
    any_observation,
    any_pair_point,
    any_point,
    observation,
    pair_point,
    point,
)

from advisor.core.observations import OBSERVATION_COLUMNS, Observation, Record
from advisor.core.records import PAIR_COLUMNS, SOLO_COLUMNS, PairPoint, SoloPoint
from advisor.errors import InputError
from advisor.formats.rows import (
    column_types,
    observation_from_row,
    pair_from_row,
    record_from_row,
    solo_from_row,
    to_row,
)
from advisor_data.store.points import IDENTITY


@given(any_point)
def test_any_point_survives_json(measured: SoloPoint) -> None:
    """A point written as JSON is read back as the same point with the same identity."""
    read = solo_from_row(json.loads(json.dumps(to_row(measured))))
    assert read == measured
    assert read.point_id == measured.point_id


@given(any_point)
def test_any_point_survives_text(measured: SoloPoint) -> None:
    """A row whose values are all text, as in CSV, is read back as the same point."""
    row = {**to_row(measured), "flags": ";".join(measured.flags)}
    assert solo_from_row({k: "" if v is None else str(v) for k, v in row.items()}) == measured


@given(any_pair_point | any_observation)
def test_any_pair_survives_json_and_text(measured: PairPoint | Observation) -> None:
    """As for solo points, with the kind found by the columns."""
    read = record_from_row(json.loads(json.dumps(to_row(measured))))
    assert read == measured
    assert read.point_id == measured.point_id
    row = {**to_row(measured), "flags": ";".join(measured.flags)}
    assert record_from_row({k: "" if v is None else str(v) for k, v in row.items()}) == measured


@pytest.mark.parametrize("nothing", [None, "", math.nan, "nan", "NaN"])
def test_a_reading_that_is_not_there_is_none(nothing: Any) -> None:
    """Empty and NaN mean "not available" and never become 0."""
    assert solo_from_row({**to_row(point()), "power_w": nothing}).power_w is None


@pytest.mark.parametrize("column", ["host", "units_total", "throttled", "flags"])
def test_nan_means_nothing_in_columns_of_any_type(column: str) -> None:
    """Tables from pandas hold NaN where text, counts and truths are missing."""
    assert not getattr(solo_from_row({**to_row(point()), column: math.nan}), column)


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
    ],
)
def test_a_bad_value_is_refused_by_name(column: str, value: Any) -> None:
    """A wrong type or a value out of range is an InputError that names the column."""
    with pytest.raises(InputError, match=column):
        solo_from_row({**to_row(point()), column: value})


def test_cold_is_not_out_of_range() -> None:
    """Temperatures may be below 0."""
    assert solo_from_row({**to_row(point()), "temperature_c": -4}).temperature_c == -4


def test_sharing_may_cost_energy() -> None:
    """What is saved may be below 0; an energy may not."""
    lost = observation(
        energy_saved=-0.2, predicted_energy_saved=-0.1, rest_energy_saved=-0.3,
        energy_saved_to_end=-0.25,
    )  # fmt: skip
    assert observation_from_row(to_row(lost)) == lost
    with pytest.raises(InputError, match="rest_energy_j is -1"):
        observation_from_row({**to_row(lost), "rest_energy_j": -1.0})


@pytest.mark.parametrize(("text", "truth"), [("True", True), ("0", False), (1.0, True)])
def test_truths_are_read_as_tables_write_them(text: Any, truth: bool) -> None:
    """True, 0 and 1.0 are how CSV, SQL and pandas write a truth."""
    assert solo_from_row({**to_row(point()), "throttled": text}).throttled is truth


def test_empty_flags_are_no_flags() -> None:
    """Text with nothing between its ";" gives no empty flags."""
    assert solo_from_row({**to_row(point()), "flags": ";noisy;;"}).flags == ("noisy",)


def test_an_unknown_column_is_refused_by_name() -> None:
    """A misspelt column is not dropped without a word."""
    with pytest.raises(InputError, match=r"unknown column powr_w"):
        solo_from_row({**to_row(point()), "powr_w": 1})


def test_all_missing_columns_are_named() -> None:
    """Somebody who writes a table by hand learns all that it lacks at once."""
    needed = "gpu_model, gpu_uuid, window_s, started_at, run, job, share_percent, rate"
    with pytest.raises(InputError, match=needed):
        solo_from_row({"rate": "", "host": "node1"})


@pytest.mark.parametrize("measured", [point(), pair_point(), observation()], ids=type)
def test_the_named_columns_and_no_others_make_the_id(measured: Record) -> None:
    """Run, jobs, card, shares and start tell measurements apart; what was measured does not."""
    other: dict[type, Any] = {str: "other", float: 51.0, int: 7, bool: True, tuple: ("noisy",)}
    changing = {
        name
        for name, (value_type, _) in column_types(type(measured)).items()
        if replace(measured, **{name: other[value_type]}).point_id != measured.point_id
    }
    assert changing == set(IDENTITY[type(measured)])


@pytest.mark.parametrize("column", ["share_a_percent", "share_b_percent"])
@pytest.mark.parametrize("value", [0, 100.5])
def test_a_share_of_a_pair_that_cannot_be_is_refused(column: str, value: float) -> None:
    """Each share is above 0 and at most 100; together they may be more."""
    with pytest.raises(InputError, match=column):
        pair_from_row({**to_row(pair_point()), column: value})
    both = pair_point(share_1_percent=70.0, share_2_percent=70.0)
    assert pair_from_row(to_row(both)) == both


def test_a_pair_is_written_in_one_way_only() -> None:
    """Jobs in the other order are swapped with all that is theirs; beside itself is a pair."""
    other = pair_from_row(to_row(pair_point(job_1="sort", job_2="gemm", rate_1=3.0, units_2=26)))
    assert (other.pair, other.rate_b, other.units_a) == (("gemm", "sort"), 3.0, 26)
    assert pair_from_row(to_row(pair_point(job_2="gemm"))).pair == ("gemm", "gemm")


@pytest.mark.parametrize("column", ["mode", "first_ended", "state"])
def test_a_word_of_an_observation_that_is_none_is_refused(column: str) -> None:
    """What reports count by is never misspelt; the message has the words."""
    with pytest.raises(InputError, match=f"{column} is 'done'. one of .*(finished|mps|job_a)"):
        observation_from_row({**to_row(observation()), column: "done"})


def test_an_observation_is_written_in_one_way_only() -> None:
    """As a pair: its jobs in the order of their names."""
    with pytest.raises(InputError, match="swap"):
        observation_from_row(to_row(observation(job_1="sort", job_2="gemm")))


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (SoloPoint, SOLO_COLUMNS),
        (PairPoint, PAIR_COLUMNS),
        (Observation, OBSERVATION_COLUMNS),
    ],
)
def test_column_types_cover_the_record(kind: type[Record], columns: tuple[str, ...]) -> None:
    """Every column has one type that stores and files know."""
    types = column_types(kind)
    assert tuple(types) == columns
    assert {value_type for value_type, _ in types.values()} <= {str, float, int, bool, tuple}
    assert types["power_w"] == (float, True)
    assert types["started_at"] == (str, False)
