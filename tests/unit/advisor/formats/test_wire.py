import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from advisor.core.objectives import Interval
from advisor.errors import InputError, StoreError
from advisor.formats.moments import (
    duration_text,
    is_utc,
    now,
    read_duration,
    to_exact_text,
    to_text,
)
from advisor.formats.wire import RecordFolder, RecordLines, read, to_plain, write, write_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    job: str
    min_speed: float | None = None
    by_name: float | Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    jobs: tuple[Part, ...]
    count: int = 0
    names: Mapping[int, tuple[str, ...]] | None = None


def test_nested_dataclasses_come_back() -> None:
    whole = Whole(jobs=(Part(job="a", min_speed=0.5), Part(job="b", by_name={"a": 1.0})), count=2)
    text = write(whole)
    assert json.loads(text) == {
        "jobs": [
            {"job": "a", "min_speed": 0.5, "by_name": None},
            {"job": "b", "min_speed": None, "by_name": {"a": 1.0}},
        ],
        "count": 2,
        "names": None,
    }
    assert to_plain(whole) == json.loads(text)
    assert read(Whole, text) == whole


def test_keys_of_mappings_may_be_numbers() -> None:
    assert read(Whole, b'{"jobs": [], "names": {"92": ["torch.mm"]}}').names == {92: ("torch.mm",)}


def test_an_unknown_key_is_refused_or_left_out() -> None:
    text = b'{"jobs": [{"job": "a", "nww": 1}]}'
    with pytest.raises(InputError, match=r"jobs\[0\]\.nww: there is no such key"):
        read(Whole, text)
    assert read(Whole, text, tolerant=True) == Whole(jobs=(Part(job="a"),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"jobs": [{"job": 1}]}', r"jobs\[0\]\.job: it should be a valid string, not 1\.$"),
        (b'{"jobs": [{"job": [1]}]}', r"a valid string, not an array\.$"),
        (b'{"jobs": {}}', r"jobs: it should be a valid array, not an object\.$"),
        (b'{"jobs": [{"job": "a", "min_speed": true}]}', r"jobs\[0\]\.min_speed: .* not true\.$"),
        (b'{"jobs": [{"job": "a", "min_speed": NaN}]}', r"jobs\[0\]\.min_speed: .* finite"),
        (b'{"jobs": [{"job": "a", "min_speed": 1e999}]}', r"jobs\[0\]\.min_speed: .* finite"),
        (b'{"jobs": [{"job": "a", "by_name": {"b": "c"}}]}', r"jobs\[0\]\.by_name\.b"),
        (b'{"jobs": [], "count": 1.5}', "count: "),
        (b'{"jobs": [], "count": ' + b"1" * 5000 + b"}", "number out of range"),
        (b"{}", "jobs: it is missing"),
        (b"null", "the body is null"),
        (b"[" * 100_000, "recursion limit"),
        (b'{"jobs": [{"job": "\\ud800"}]}', "the body: "),
        (b'{"jobs": [{"job": "a\x00"}]}', "control character"),
        (b"\xff", "the body: "),
        (b'\xef\xbb\xbf{"jobs": []}', "the body: "),
        (b"", "the body: "),
        (b'{"jobs": [1', "the body: "),
    ],
)
def test_what_is_no_such_value_is_refused_with_its_place(text: bytes, said: str) -> None:
    for tolerant in (False, True):
        with pytest.raises(InputError, match=said):
            read(Whole, text, name="the body", tolerant=tolerant)


def test_of_many_faults_five_are_named() -> None:
    text = '{"jobs": [' + ",".join(["{}"] * 40) + "]}"
    with pytest.raises(InputError, match="and 35 more") as caught:
        read(Whole, text)
    assert len(str(caught.value)) < 500
    with pytest.raises(InputError, match="2000 faults"):
        read(Whole, '{"jobs": [' + ",".join(["{}"] * 2000) + "]}")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_json_lacks_is_not_written(value: float) -> None:
    for writer in (write, write_bytes):
        with pytest.raises(InputError, match="JSON"):
            writer(Interval(value, 0.0, 1.0))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(_VALUES)
def test_no_json_ends_in_anything_but_a_value_or_an_input_error(value: Any) -> None:
    try:
        found = read(Whole, write(value))
    except InputError:
        return
    assert isinstance(found, Whole)


@dataclass(frozen=True, slots=True)
class Renamed:
    """`parts` is `jobs` in JSON, and a mapping need be no dict."""

    parts: tuple[Any, ...]
    by_name: Mapping[str, Any]


@given(_VALUES, st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)))
def test_the_fast_writer_says_the_same(value: Any, numbers: dict[str, float]) -> None:
    """Half characters, names that are words of JavaScript, and what has another key."""
    for whole in (value, Part(job="NaN", by_name=numbers), Renamed((value,), numbers),
                  Renamed((), MappingProxyType(numbers))):  # fmt: skip
        assert json.loads(write_bytes(whole)) == json.loads(write(whole))
        assert write_bytes(whole).isascii()


def test_importing_and_writing_load_no_pydantic() -> None:
    code = (
        "import sys, advisor; from advisor.formats.wire import write\n"
        "from advisor.core.objectives import Interval\n"
        "write(Interval(1, 0, 2)); assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@dataclass(frozen=True, slots=True)
class Draw:
    name: str
    watts: float


READ = partial(read, Draw)
DRAWS = st.lists(st.builds(Draw, st.text(max_size=4), st.floats(0, 1e4)), max_size=5)


def lines(folder: Path, suffix: str) -> RecordLines[Draw]:
    return RecordLines(folder / f"draws.{suffix}", "advisor power input", READ)


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
@given(draws=DRAWS, more=DRAWS, data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_what_is_cut_anywhere_goes_on_behind_the_last_whole_line(
    tmp_path: Path, suffix: str, draws: list[Draw], more: list[Draw], data: st.DataObject
) -> None:
    """As after a power cut in the middle of a write."""
    kept = lines(tmp_path, suffix)
    kept.path.unlink(missing_ok=True)
    ends = [0]
    for draw in draws:
        kept.add(draw)
        ends.append(kept.path.stat().st_size)
    if draws:
        cut = data.draw(st.integers(0, ends[-1]))
        kept.path.write_bytes(kept.path.read_bytes()[:cut])
        draws = draws[: sum(end <= cut for end in ends) - 1]
    assert kept.read() == kept.resume() == draws
    for draw in more:
        kept.add(draw)
    assert kept.read() == [*draws, *more]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_a_bad_line_is_named_with_what_to_do(tmp_path: Path, suffix: str) -> None:
    kept = lines(tmp_path, suffix)
    kept.add(Draw("a", 1.0))
    RecordLines(kept.path, "another", READ).add({"watts": 1})  # pyright: ignore[reportArgumentType]
    with pytest.raises(StoreError, match="line 2 does not hold results of `advisor power input`"):
        kept.read()


def test_only_the_user_can_read_lines(tmp_path: Path) -> None:
    kept = lines(tmp_path, "jsonl")
    kept.add(Draw("a", 1.0))
    assert kept.path.stat().st_mode & 0o777 == 0o600


def test_records_are_found_by_key_and_a_broken_one_names_its_command(tmp_path: Path) -> None:
    folder = RecordFolder("draws", "advisor power sensor", READ)
    path = folder.keep(Draw("a", 1.0), tmp_path, "GPU-1", "580.1")
    folder.keep(Draw("b", 2.0), tmp_path, "NVIDIA H200 / 2")
    assert path.name == "gpu-1-580.1.json"
    assert [draw.name for draw in folder.read(tmp_path)] == ["a", "b"]
    path.write_text("{}")
    with pytest.raises(StoreError, match=r"gpu-1-580\.1\.json is not a result of `advisor power s"):
        folder.read(tmp_path)


# Moments and spans of time as text.


zones = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=zones))
def test_a_moment_reads_back(moment: datetime) -> None:
    """To the microsecond, or cut to the millisecond, and in UTC whatever the zone was."""
    assert datetime.fromisoformat(to_exact_text(moment)) == moment
    assert (
        timedelta() <= moment - datetime.fromisoformat(to_text(moment)) < timedelta(milliseconds=1)
    )
    assert is_utc(to_exact_text(moment))
    assert is_utc(to_text(moment))


def test_both_forms_stay_as_they_are_stored() -> None:
    """Databases compare these texts."""
    moment = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    assert to_text(moment) == "2026-01-31T12:00:00.123+00:00"
    assert to_exact_text(moment) == "2026-01-31T12:00:00.123456Z"
    assert abs(datetime.now(UTC) - datetime.fromisoformat(now())) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-31", "2026-01-31T12:00:00+01:00"])
def test_what_is_no_moment_in_utc(text: str) -> None:
    assert not is_utc(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("90min", 5400), ("90 m", 5400), ("3h", 10_800), ("1.5d", 129_600)],
)
def test_spans_are_read(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "3", "h", "-3h", "0h", "3 hours", "1e3s", "inf h"])
def test_what_is_no_span_is_refused(text: str) -> None:
    """A bare number could mean anything."""
    with pytest.raises(InputError, match="is not a time"):
        read_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.5, "0.5 s"),
        (45, "45 s"),
        (59 * 60, "59 min"),
        (3600, "1 h"),
        (6000, "1 h 40 min"),
        (3 * 86_400, "3 d"),
        (3 * 86_400 + 4 * 3600, "3 d 4 h"),
        (math.inf, "forever"),
    ],
)
def test_spans_are_written(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(1, 1e7))
def test_a_text_is_near_what_it_says(seconds: float) -> None:
    parts = duration_text(seconds).split()
    read = sum(read_duration(f"{n}{unit}") for n, unit in zip(parts[::2], parts[1::2], strict=True))
    assert read == pytest.approx(seconds, rel=0.03, abs=30)
