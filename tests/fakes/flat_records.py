"""Records of several jobs by flat columns, such as `rate_1` or `share_2_percent`."""

from collections import defaultdict
from dataclasses import replace
from typing import Any, TypeVar

from advisor.core.records import PARTS, Observation, PairPoint
from advisor.formats.rows import part_column

R = TypeVar("R", PairPoint, Observation)


def from_flat(kind: type[R], **columns: Any) -> R:
    """The record as it is, unchecked."""
    own, of_parts = _apart(columns)
    parts = tuple(PARTS[kind](**part) for _, part in sorted(of_parts.items()))
    made: Any = kind
    return made(**own, parts=parts)


def changed(record: R, **columns: Any) -> R:
    """The record with other values in some columns."""
    own, of_parts = _apart(columns)
    parts: tuple[Any, ...] = record.parts
    new = tuple(replace(part, **of_parts[n]) for n, part in enumerate(parts))
    return replace(record, **own, **{"parts": new})


def _apart(columns: dict[str, Any]) -> tuple[dict[str, Any], defaultdict[int, dict[str, Any]]]:
    own: dict[str, Any] = {}
    of_parts: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    for name, value in columns.items():
        if place := part_column(name):
            of_parts[place[0]][place[1]] = value
        else:
            own[name] = value
    return own, of_parts
