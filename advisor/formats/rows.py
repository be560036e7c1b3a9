"""Records as plain values, as files, requests and databases carry them, and back, checked."""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

from advisor.core.moments import is_utc
from advisor.core.observations import OBSERVATION_WORDS, Observation, Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.core.results import Verdict
from advisor.errors import InputError

P = TypeVar("P", bound=Record)


def to_row(point: Record) -> dict[str, Any]:
    """The point as plain JSON values; `flags` becomes a list."""
    row = {name: getattr(point, name) for name in column_types(type(point))}
    return {**row, "flags": list(point.flags)}


def record_from_row(row: Mapping[str, Any]) -> Record:
    """A record of the kind that the columns tell.

    A row with `launch_id` is an observation, another one with `job_a` a pair.

    Raises:
        InputError: as for `solo_from_row`.
    """
    if "launch_id" in row:
        return from_row(Observation, row)
    return from_row(PairPoint if "job_a" in row else SoloPoint, row)


def solo_from_row(row: Mapping[str, Any]) -> SoloPoint:
    """A point from plain values, as files and requests bring them.

    NaN and empty strings mean "not available". `flags` may be a list or a string with ";".

    Raises:
        InputError: an unknown or missing column, a wrong type, or a value out of range.
    """
    return from_row(SoloPoint, row)


def pair_from_row(row: Mapping[str, Any]) -> PairPoint:
    """As `solo_from_row`, for a pair; its jobs may come in either order."""
    return from_row(PairPoint, row)


def observation_from_row(row: Mapping[str, Any]) -> Observation:
    """As `pair_from_row`, for what a launched pair did.

    Raises:
        InputError: also where the jobs do not stand in the order of their names, or where `mode`,
            `first_ended` or `state` is none of its words.
    """
    return from_row(Observation, row)


@functools.cache
def column_types(kind: type[Record]) -> dict[str, tuple[type, bool]]:
    """Type of each column's values, in order, and whether a column may be without a value."""
    hints = typing.get_type_hints(kind)
    return {f.name: _type_and_optional(hints[f.name]) for f in dataclasses.fields(kind)}


def _type_and_optional(hint: Any) -> tuple[type, bool]:
    if isinstance(hint, types.UnionType):
        return next(a for a in typing.get_args(hint) if a is not types.NoneType), True
    return typing.get_origin(hint) or hint, False


def from_row(kind: type[P], row: Mapping[str, Any]) -> P:
    """A record of `kind` from plain values; see `solo_from_row` and its sisters."""
    known = column_types(kind)
    if unknown := sorted(set(row) - set(known)):
        raise InputError(f"unknown column {', '.join(unknown)}", fix="see docs/schema.md")
    given = ((name, value) for name, value in row.items() if value is not None)
    values = {name: _value(name, known[name][0], value) for name, value in given}
    values = {name: value for name, value in values.items() if value is not None}
    if kind is PairPoint:
        values = _in_order(values)
    required = (f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING)
    if missing := [name for name in required if name not in values]:
        raise InputError(f"missing column or value: {', '.join(missing)}", fix="see docs/schema.md")
    point = kind(**values)
    if isinstance(point, Observation):
        _check_order(point)
        _check_words(point)
    return point


def _value(name: str, target: type, value: Any) -> Any:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        converted = _CONVERT[target](value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} is {value!r}, not {_EXPECTED[target]}") from error
    if target is float and math.isnan(converted):  # "nan" as text
        return None
    _check_range(name, converted)
    return converted


def _text(value: Any) -> str:
    # Line ends, NUL and lone surrogates cannot be kept by every store and file format.
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError(value)
    return str(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _whole(value: Any) -> int:
    number = _number(value)
    if not number.is_integer():
        raise ValueError(value)
    return int(number)


def _truth(value: Any) -> bool:
    if (text := str(value).lower()) not in _TRUTHS:
        raise ValueError(value)
    return _TRUTHS[text]


def _flags(value: Any) -> tuple[str, ...]:
    items = value.split(";") if isinstance(value, str) else [_text(item) for item in value]
    if not isinstance(value, str) and any(";" in item for item in items):
        raise ValueError(value)
    return tuple(_text(item) for item in items if item)


_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}

_CONVERT: dict[type, Callable[[Any], Any]] = {
    str: _text,
    float: _number,
    int: _whole,
    bool: _truth,
    tuple: _flags,
}

_EXPECTED = {
    str: "a line of text",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    tuple: 'a list of words or words joined by ";"',
}


def _check_range(name: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} is {value}", fix="leave it empty where there is no reading")
    if isinstance(value, int | float) and value < 0 and not name.endswith(_SIGNED):
        raise InputError(f"{name} is {value}, below 0")
    if isinstance(value, int) and value > _LARGEST_INTEGER:
        raise InputError(f"{name} is {value}, above {_LARGEST_INTEGER}")
    if name in _VERDICTS and value not in get_args(Verdict):
        raise InputError(f"{name} is {value!r}", fix=f"one of {', '.join(get_args(Verdict))}")
    if name in _SHARES and not 0 < value <= 100:
        raise InputError(f"{name} is {value}", fix="give a share above 0 and at most 100")
    if name == "started_at" and not is_utc(str(value)):
        raise InputError(
            f"started_at is {value!r}, not a moment in UTC",
            fix="write it as 2026-01-31T12:00:00+00:00",
        )


_SIGNED = ("_c", "energy_saved", "energy_saved_to_end")
"""How columns end whose values may be below 0."""

_VERDICTS = {"results", "results_a", "results_b"}
_SHARES = {"share_percent", "share_a_percent", "share_b_percent"}

_LARGEST_INTEGER = 2**31 - 1
"""What an SQL INTEGER holds."""


def _check_words(observation: Observation) -> None:
    for name, words in OBSERVATION_WORDS.items():
        if (found := getattr(observation, name)) not in words:
            raise InputError(f"{name} is {found!r}", fix=f"one of {', '.join(words)}")


def _in_order(values: dict[str, Any]) -> dict[str, Any]:
    """A pair with its jobs in the order of their names, each with all that belongs to it."""
    if values.get("job_a", "") <= values.get("job_b", ""):
        return values
    return {_twin(name): value for name, value in values.items()}


def _twin(name: str) -> str:
    """The same column of the other job: `rate_a_stderr` for `rate_b_stderr`."""
    return "_".join({"a": "b", "b": "a"}.get(part, part) for part in name.split("_"))


def _check_order(point: Observation) -> None:
    if point.job_a > point.job_b:
        raise InputError(
            f"job_a is {point.job_a!r}, after job_b {point.job_b!r}",
            why="an observation is written in one way only: its jobs in the order of their names",
            fix="swap the two jobs with all that belongs to them: shares, units, rates",
        )
