import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from store_points import any_point, point

from advisor.errors import InputError
from advisor.records import SOLO_COLUMNS, SoloPoint
from advisor.rows import column_types, solo_from_row, to_row


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


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("run", "r2"),
        ("job", "sort"),
        ("gpu_uuid", "GPU-2"),
        ("share_percent", 51.0),
        ("started_at", "2026-02-01T00:00:00Z"),
    ],
)
def test_another_measurement_has_another_id(column: str, other: Any) -> None:
    """Run, job, card, share and start tell measurements apart."""
    assert replace(point(), **{column: other}).point_id != point().point_id


def test_values_do_not_change_the_id() -> None:
    """What was measured is no part of the identity."""
    assert point(rate=1.0, host="a", flags=("noisy",)).point_id == point().point_id


def test_column_types_cover_the_record() -> None:
    """Every column has one type that stores and files know."""
    assert tuple(column_types()) == SOLO_COLUMNS
    assert {kind for kind, _ in column_types().values()} == {str, float, int, bool, tuple}
    assert column_types()["power_w"] == (float, True)
    assert column_types()["rate"] == (float, False)
