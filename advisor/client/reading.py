"""Answers to frozen dataclasses: the types of the fields say what must be there.

A newer service may say more than this version knows, so names that are unknown are left out; they
stay in `raw`. What is missing or of another type is an error that says where.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from advisor.client.errors import AnswerError
from advisor.core.observations import PARTS, Part, Record
from advisor.errors import InputError
from advisor.formats.flat_rows import JOBS
from advisor.formats.rows import column_types, from_row

T = TypeVar("T")

RAW = "raw"
"""The field that holds the JSON as it came."""


def read(kind: type[T], found: Any) -> T:
    """The dataclass that a JSON object holds.

    Raises:
        AnswerError: something is missing or of another type.
    """
    return cast("T", _value(kind, found, ""))


def read_items(kind: type[T], found: Any, name: str) -> tuple[T, ...]:
    """The list of dataclasses that a JSON object has under a name."""
    return tuple(
        cast("T", _value(kind, item, f"{name}[{i}]"))
        for i, item in enumerate(_typed(list, _typed(dict, found, "").get(name), name))
    )


def read_object(found: Any) -> Mapping[str, Any]:
    """Any JSON object.

    Raises:
        AnswerError: it is none.
    """
    return _typed(dict, found, "")


def read_count(found: Any, name: str) -> int:
    """The whole number that a JSON object has under a name.

    Raises:
        AnswerError: as for `read`.
    """
    return _typed(int, _typed(dict, found, "").get(name), name)


def _value(kind: Any, found: Any, place: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _record(kind, _typed(dict, found, place), place)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if found is None else _value(inner[0], found, place)
    if origin is typing.Literal:
        return found if found in inner else _fail(place, f"{found!r}, not {' or '.join(inner)}")
    if origin is tuple:
        return _tuple(inner, _typed(list, found, place), place)
    if origin is Mapping:
        items = _typed(dict, found, place).items()
        return {k: _value(inner[1], v, f"{place}.{k}") for k, v in items}
    if kind is float:
        return _number(found, place)
    return found if kind is Any else _typed(kind, found, place)


def _record(kind: Any, found: dict[str, Any], place: str) -> Any:
    if issubclass(kind, Record):
        return _row(kind, found, place)
    hints = {name: hint for name, hint in _hints(kind).items() if name != RAW}
    if missing := sorted(hints.keys() - found):
        _fail(place, f"without {', '.join(missing)}")
    values = {n: _value(hint, found[n], f"{place}.{n}") for n, hint in hints.items()}
    return kind(**values, **({RAW: found} if RAW in _hints(kind) else {}))


def _row(kind: type[Record], found: dict[str, Any], place: str) -> Record:
    row = _known(kind, found)
    if kind in PARTS:
        jobs = _typed(list, found.get(JOBS), f"{place}.{JOBS}")
        row[JOBS] = [_known(PARTS[kind], _typed(dict, job, f"{place}.{JOBS}")) for job in jobs]
    try:
        return from_row(kind, row)
    except InputError as error:
        _fail(place, str(error).rstrip("."))


def _known(kind: type[Record] | type[Part], found: dict[str, Any]) -> dict[str, Any]:
    """The columns that this version knows; a newer service may send more."""
    names = column_types(kind)
    return {name: value for name, value in found.items() if name in names}


def _tuple(inner: tuple[Any, ...], found: list[Any], place: str) -> tuple[Any, ...]:
    kinds = inner[:1] * len(found) if inner[-1] is Ellipsis else inner
    if len(kinds) != len(found):
        _fail(place, f"{len(found)} values, not {len(kinds)}")
    # One is as long as the other; `strict` would be said twice.
    return tuple(_value(k, f, f"{place}[{i}]") for i, (k, f) in enumerate(zip(kinds, found)))  # noqa: B905


def _typed(kind: type, found: Any, place: str) -> Any:
    # True is an int to isinstance.
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        _fail(place, f"{type(found).__name__}, not {kind.__name__}")
    return found


def _number(found: Any, place: str) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        _fail(place, f"{found!r}, no finite number")
    return float(found)


def _fail(place: str, what: str) -> typing.NoReturn:
    raise AnswerError(
        f"the answer is not what it should be: {place.lstrip('.') or 'the whole'} is {what}",
        why="the service is of another version than this client, or something else listens there",
        fix="use the same version of sm-advisor on both sides",
    )


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
