"""Reads YAML so that every fault names its line, its key and what was expected."""

import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from advisor.errors import InputError
from advisor.formats.wire import SCHEMA

MAX_BYTES = 64 * 1024
"""A larger file is no file that a person wrote for us."""


@dataclass(frozen=True, slots=True)
class YamlField:
    """A value in a file, and the key that it belongs to."""

    path: Path
    key: str
    node: yaml.Node

    @property
    def is_null(self) -> bool:
        """The key stands there without a value."""
        return self.node.tag == "tag:yaml.org,2002:null"

    @property
    def is_list(self) -> bool:
        """The value is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    def fault(self, what: str, fix: str = "") -> InputError:
        """An error at this place."""
        mark = self.node.start_mark
        return InputError(
            f"{self.path}:{mark.line + 1}:{mark.column + 1}: {self.key}: {what}", fix=fix
        )

    def expected(self, what: str) -> InputError:
        """An error that says what should have been here."""
        value = (
            repr(self.node.value)[:60] if isinstance(self.node, yaml.ScalarNode) else "a mapping"
        )
        got = "nothing" if self.is_null else "a list" if self.is_list else value
        return self.fault(f"expected {what}, got {got}")


FieldReader = Callable[[YamlField], Any]


# By words of what is not YAML, what to write instead.
_CURES = {
    "escape character": r"put patterns between single quotes: 'step (\d+)'",
    "'\\t'": "indent with spaces",
    "mapping values": "put a text with a colon between quotes",
}


def load(path: Path) -> YamlField:
    """The root of a YAML file; nothing in it is turned into objects.

    Raises:
        InputError: the file cannot be read, is too large, empty, not UTF-8 or not YAML.
    """
    try:
        root = yaml.compose(_read(path), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        why = str(error.problem or error.context)
        fix = next((fix for words, fix in _CURES.items() if words in why), "")
        raise InputError(f"{where}: not YAML", why=why, fix=fix) from error
    # A character that YAML forbids has no mark; an escape beyond Unicode raises ValueError or
    # OverflowError, and thousands of open brackets RecursionError.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: not YAML", why=str(error)) from error
    if root is None:
        raise InputError(f"{path} is empty", fix="write what it describes, a key a line")
    return YamlField(path, "the file", root)


def entries(field: YamlField, keys: Collection[str] | None = None) -> dict[str, YamlField]:
    """The fields of a mapping; a key that is given twice, or not among `keys`, is refused."""
    if not isinstance(field.node, yaml.MappingNode):
        raise field.expected('lines such as "key: value"')
    fields: dict[str, YamlField] = {}
    for key_node, value_node in field.node.value:
        key = text(YamlField(field.path, "key", key_node))
        if keys is not None and key not in keys:
            close = difflib.get_close_matches(key, keys, n=1) or sorted(keys)
            fix = f"the nearest is {close[0]}" if len(close) == 1 else f"keys: {', '.join(close)}"
            raise YamlField(field.path, key, key_node).fault("no such key", fix)
        if key in fields:
            raise YamlField(field.path, key, key_node).fault("given twice")
        fields[key] = YamlField(field.path, key, value_node)
    return fields


def record(
    field: YamlField, readers: Mapping[str, FieldReader], required: Collection[str] = ()
) -> Any:
    """The values of a mapping whose keys are known; a key without a value counts as left out."""
    given = {key: value for key, value in entries(field, readers).items() if not value.is_null}
    if missing := [key for key in required if key not in given]:
        raise field.fault(f"{', '.join(missing)} is missing")
    return {key: readers[key](value) for key, value in given.items()}


def with_schema(text: str) -> str:
    """A file that we write ourselves; `whole_record` reads it."""
    return f"schema: {SCHEMA}\n{text}"


def whole_record(
    root: YamlField, readers: Mapping[str, FieldReader], required: Collection[str]
) -> Any:
    """The values of a file that may say by `schema` how it is to be read."""
    values = record(root, {"schema": _schema, **readers}, required)
    return {key: value for key, value in values.items() if key != "schema"}


def text(field: YamlField) -> str:
    """A single value as it is written, so that `on` and `0x10` stay what they are."""
    if not isinstance(field.node, yaml.ScalarNode) or field.is_null:
        raise field.expected("text")
    value: str = field.node.value
    if re.search("[\0\ud800-\udfff]", value):
        raise field.fault("NUL and half characters cannot be part of a text")
    return value


def word(field: YamlField) -> str:
    """A text that is not empty."""
    if not (value := text(field)):
        raise field.expected("text")
    return value


def texts(field: YamlField) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(field.node, yaml.SequenceNode):
        raise field.expected("a list")
    return tuple(text(YamlField(field.path, field.key, node)) for node in field.node.value)


def flag(field: YamlField) -> bool:
    """True or false."""
    if field.node.tag != "tag:yaml.org,2002:bool":
        raise field.expected("true or false")
    return field.node.value.lower() in {"true", "yes", "on"}


def number(low: float, high: float = math.inf, *, above: bool = False) -> FieldReader:
    """A reader of numbers from `low` (or, with `above`, more than it) to `high`."""
    limit = f"a number {'above' if above else 'of at least'} {low:g}"
    limit += f" and at most {high:g}" if math.isfinite(high) else ""

    def read(field: YamlField) -> float:
        value = _float(text(field))
        if value is None or not low <= value <= high or (above and value == low):
            raise field.expected(limit)
        return value

    return read


def count(field: YamlField) -> int:
    """A whole number above 0."""
    value = _float(text(field))
    if value is None or value < 1 or not value.is_integer():
        raise field.expected("a whole number above 0")
    return int(value)


def choice_of(*options: str) -> FieldReader:
    """A reader of one of some words."""

    def read(field: YamlField) -> str:
        value = text(field)
        if value not in options:
            raise field.expected(" or ".join(options))
        return value

    return read


def _read(path: Path) -> str:
    if not path.is_file():
        raise InputError(f"{path} is not there, or no file")
    with InputError.instead_of(OSError, f"{path} cannot be read"), path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"{path} is larger than {MAX_BYTES} bytes", fix="give the right file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{path}:{line}: not UTF-8 text", fix="save it as UTF-8") from error


def _schema(field: YamlField) -> int:
    if (number := count(field)) > SCHEMA:
        raise field.fault(
            f"{number} is of a newer advisor; this one reads files up to {SCHEMA}",
            "update advisor, or write the file again with this one",
        )
    return number


def _float(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
