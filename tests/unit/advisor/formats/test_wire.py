import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.objectives import Interval
from advisor.errors import InputError
from advisor.formats.wire import read, to_plain, write, write_bytes


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
    text = b'{"jobs": [], "names": {"92": ["torch.mm"]}}'
    assert read(Whole, text).names == {92: ("torch.mm",)}


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
