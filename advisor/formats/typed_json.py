"""Own files that every recommendation reads: manifests, checks, the history of the champion.

`advisor.formats.wire` reads all other JSON. It takes a tenth of a second to get ready, which is a
tenth of what `advisor recommend` takes; these few files are read here without it.

Strict on purpose, since what it reads may have been cut off or changed by hand: a name that is
unknown, missing or there twice is refused, and so are NaN, infinity and a number for a text.
"""

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

T = TypeVar("T")


def parse(kind: type[T], text: bytes) -> T:
    """The dataclass that a JSON object holds.

    Raises:
        ValueError: not JSON, or not of this kind; says where.
    """
    try:
        found: Any = json.loads(
            text.decode(), parse_constant=_no_constant, object_pairs_hook=_each_name_once
        )
    except RecursionError as error:
        raise ValueError("brackets within brackets without end") from error
    return cast("T", _value(kind, found, ""))


def _value(kind: Any, found: Any, place: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _record(kind, _typed(dict, found, place), place)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if found is None else _value(inner[0], found, place)
    if origin is typing.Literal:
        return _one_of(inner, found, place)
    if origin is tuple:
        return _tuple(inner, _typed(list, found, place), place)
    if origin is Mapping:
        items = _typed(dict, found, place).items()
        return MappingProxyType(
            {_name(inner[0], k, place): _value(inner[1], v, _inside(place, k)) for k, v in items}
        )
    if kind is float:
        return _finite(found, place)
    if kind is bool:
        return _truth(found, place)
    if kind is Path:
        return Path(_typed(str, found, place))
    return _typed(kind, found, place)


def _record(kind: Any, found: dict[str, Any], place: str) -> Any:
    hints = _hints(kind)
    for word, names in (("unknown", found.keys() - hints), ("missing", hints.keys() - found)):
        if names:
            raise ValueError(f"{word}: {', '.join(_inside(place, n) for n in sorted(names))}")
    return kind(**{n: _value(hint, found[n], _inside(place, n)) for n, hint in hints.items()})


def _name(kind: Any, name: str, place: str) -> Any:
    """The name of a value of a mapping; JSON has only texts, numbers among them."""
    if kind is not int:
        return name
    if not (name.isascii() and name.isdigit() and name == str(int(name))):
        raise ValueError(f"{_inside(place, name)}: {name} is not a whole number")
    return int(name)


def _tuple(inner: tuple[Any, ...], found: list[Any], place: str) -> tuple[Any, ...]:
    if inner[0] in _WORDS and inner[-1] is Ellipsis and set(map(type, found)) <= {inner[0]}:
        return tuple(found)  # thousands of names or numbers, in a check of counts
    kinds = inner[:1] * len(found) if inner[-1] is Ellipsis else inner
    if len(kinds) != len(found):
        raise ValueError(f"{place} has {len(found)} values, not {len(kinds)}")
    return tuple(_value(k, f, f"{place}[{i}]") for i, (k, f) in enumerate(zip(kinds, found)))  # noqa: B905


def _typed(kind: type, found: Any, place: str) -> Any:
    # True is an int to isinstance.
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"{place or 'the whole'} is not {_WORDS[kind]}")
    return found


def _truth(found: Any, place: str) -> bool:
    if not isinstance(found, bool):
        raise ValueError(f"{place} is neither true nor false")
    return found


def _one_of(words: tuple[Any, ...], found: Any, place: str) -> Any:
    if found not in words:
        raise ValueError(f"{place} is not one of {', '.join(words)}")
    return found


def _finite(found: Any, place: str) -> float:
    # 1e999 is infinity, and an int may be too large for a float.
    try:
        number = math.nan if isinstance(found, bool | str) else float(found)
    except (TypeError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{place} is not a finite number")
    return number


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def _each_name_once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) < len(items):
        names = [name for name, _ in items]
        raise ValueError(f"twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    return found


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


_WORDS = {dict: "an object", list: "a list", str: "text", int: "a whole number"}
