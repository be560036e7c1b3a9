"""JSON to frozen dataclasses and back: one reader and one writer for all that leaves the process.

The types of the fields are the schema. `read` is strict, for requests and for files that people
write: a key that is unknown is refused. A tolerant one leaves unknown keys out, so that a newer
service may say more than its client knows. Both refuse NaN, infinity, half characters, brackets
without end, and a number for a text; what is missing takes the default of its field.

pydantic does the reading; it is imported with the first reading, since that takes 0.1 s.

What is measured on a host is kept as a file for each record, or a line for each. A record that is a
file of its own is written whole or not at all. Lines are added one by one while a measurement goes
on: what was interrupted goes on behind the last whole line.
"""

import dataclasses
import functools
import gzip
import itertools
import json
import numbers
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from advisor.core.wording import SHOWN
from advisor.errors import InputError, StoreError
from advisor.files import PRIVATE_FILE, open_home, replace_file

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

# How many of many faults are named.
_NAMED = 5


SCHEMA = 5
"""Of every answer, and of job and plan files that we write; docs/api.md says what it promises.

Evaluations had come to 4 by themselves.
"""


class WireError(InputError, ValueError):
    """JSON that is none, or not what it should be; the message has the path of each value."""


def read(kind: type[T], text: bytes | str, *, name: str = "the JSON", tolerant: bool = False) -> T:
    """The dataclass that a JSON text holds.

    The name says in messages what the text is: a file, "the body". A key that is unknown is
    refused, or left out where the reader is tolerant.

    Raises:
        WireError: not JSON, or not of this kind; says where.
    """
    from pydantic import ValidationError

    try:
        value = _adapter(kind).validate_json(text, extra="ignore" if tolerant else "forbid")
    except ValidationError as error:
        raise _wire_error(error, name) from error
    if value is None:
        raise WireError(f"{name} is null", fix="send an object")
    return cast("T", value)


def values_in(text: bytes | bytearray) -> int:
    """At most how many values a JSON text has; each takes up to 100 bytes of memory."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def write(value: Any) -> str:
    """A dataclass, or plain values with dataclasses in them, as JSON.

    Raises:
        WireError: a number that JSON has no word for.
    """
    with WireError.instead_of(
        ValueError,
        f"{type(value).__name__} has NaN or infinity",
        why="JSON has no word for it",
        fix="leave out what is not known",
    ):
        return _WRITER.encode(value)


def write_bytes(value: Any) -> bytes:
    """As `write`, several times as fast: what a service sends all day. Loads pydantic's core.

    Raises:
        WireError: a number that JSON has no word for.
    """
    from pydantic_core import PydanticSerializationError, to_json

    try:
        text = to_json(value, inf_nan_mode="constants")
    except PydanticSerializationError:
        return write(value).encode()  # mappings that are no dicts, half characters
    # What our own writer refuses, or calls by another name.
    is_same = text.isascii() and not any(
        word in text for word in (b"NaN", b"Infinity", b'"parts":')
    )
    return text if is_same else write(value).encode()


def as_answer(text: bytes) -> bytes:
    """A whole answer as it leaves: the JSON object says by `schema` what its keys are."""
    return b'{"schema":%d%s%s' % (SCHEMA, b"" if text == b"{}" else b",", text[1:])


def to_plain(value: Any) -> Any:
    """The dataclass as JSON has it: dicts, lists, texts and numbers."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return {name: to_plain(item) for name, item in cast("dict[Any, Any]", value).items()}
    return to_plain(_plain_level(value))


def _plain_level(value: Any) -> Any:
    """Converts one level to plain JSON; children are not converted."""
    if (fields := _fields(type(cast("object", value)))) is not None:
        keys, values = fields
        return dict(zip(keys, values(value), strict=True))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, numbers.Real):  # of numpy
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    raise TypeError(f"JSON has no word for a {type(value).__name__}")


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]] | None:
    """Keys in JSON of a dataclass, and what takes their values from one; None: it is none."""
    if not dataclasses.is_dataclass(kind):
        return None
    names = [field.name for field in dataclasses.fields(kind)]
    if len(names) > 1:
        values: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
    else:
        values = lambda value: tuple(getattr(value, name) for name in names)  # noqa: E731
    return tuple(map(key_of, names)), values


# What is not JSON yet is made so one by one, while it writes: no copy is made of the whole first.
# Dataclasses are frozen, so there are no circles to look for.
_WRITER = json.JSONEncoder(
    allow_nan=False, check_circular=False, separators=(",", ":"), default=_plain_level
)


def key_of(name: str) -> str:
    """A field in JSON: what holds one part for each job is called `jobs`."""
    return "jobs" if name == "parts" else name


@functools.cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    """What reads a type; made once."""
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(strict=True, allow_inf_nan=False, alias_generator=key_of)
    # Alone, a dataclass would take no settings from here; as a part of something it does.
    whole: Any = kind | None
    return TypeAdapter(whole, config=config)


def _wire_error(error: "ValidationError", name: str) -> WireError:
    if (count := error.error_count()) > 1000:  # listing 100,000 takes seconds
        return WireError(f"{name} has {count} faults", fix="correct it, or send less at once")
    places: dict[str, list[Mapping[str, Any]]] = {}
    listed = error.errors(include_url=False, include_context=False)
    for fault in listed:
        # A list whose items are wrong counts as too short as well.
        if fault["type"] == "too_short" and any(_is_inside(fault, other) for other in listed):
            continue
        path = "".join(
            f"[{step}]" if isinstance(step, int) else f".{step[:80]}"
            for step in fault["loc"]
            if not _TYPE.match(str(step))
        ).removeprefix(".")  # such as jobs[0].min_speed
        places.setdefault(path or name, []).append(cast("Any", fault))
    return WireError(fault_text(places))


def fault_text(places: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The first of the faults that pydantic found, by their places: `gpus: it should be ..`."""
    # A value that may be of several types has a fault for each of them.
    said = [
        f"{place}: {', or '.join(dict.fromkeys(map(_words, faults)))}{_shown_value(faults[0])}"
        for place, faults in itertools.islice(places.items(), _NAMED)
    ]
    more = f"; and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return "; ".join(said) + more


def _is_inside(outer: Any, inner: Any) -> bool:
    """Whether a fault is of a part of what another one is of."""
    size = len(outer["loc"])
    return len(inner["loc"]) > size and inner["loc"][:size] == outer["loc"]


def _words(fault: Mapping[str, Any]) -> str:
    match fault["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            return "there is no such key"
        case "missing":
            return "it is missing"
        case "dataclass_type" | "model_type" | "dict_type":
            return "it should be a JSON object"
        case _:
            message = cast("str", fault["msg"]).removeprefix("Value error, ")
            message = message.replace(" after validation", "").partition(", unable to")[0]
            return re.sub(r"^\w+ should", "it should", message)


# Faults whose words have all that there is to say.
_WORDED = (
    *("missing", "unexpected_keyword_argument", "extra_forbidden", "value_error", "json_invalid"),
    *("too_short", "too_long"),
)


def _shown_value(fault: Mapping[str, Any]) -> str:
    """The value at fault as JSON has it, in ASCII and short: no body comes back in a message."""
    value = fault.get("input")
    if fault["type"] in _WORDED:
        return ""
    if isinstance(value, str | int | float | None):
        text = json.dumps(value[:SHOWN] if isinstance(value, str) else value)
        return f", not {text if len(text) <= SHOWN else f'{text[:SHOWN]}...'}"
    return f", not {'an object' if isinstance(value, dict) else 'an array'}"


# What pydantic puts into paths for the types of a union.
_TYPE = re.compile(r"^(?:float|int|str|bool|none|(?:dict|tuple|list|nullable|tagged-union)\[.*)$")


def slug(*parts: str) -> str:
    """Parts of a name as a file may be called."""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-")


@dataclasses.dataclass(frozen=True, slots=True)
class RecordFolder(Generic[T]):
    """Records of one kind, each a file in a folder of the advisor's home.

    Messages name the command that makes them; `parse` raises ValueError or InputError.
    """

    name: str
    command: str
    parse: Callable[[bytes], T]

    def path(self, home: Path, *key: str) -> Path:
        """The file of the record with a key."""
        return home / self.name / f"{slug(*key)}.json"

    def keep(self, record: T, home: Path, *key: str) -> Path:
        """Write a record, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        open_home(home, self.name)
        text = json.dumps(to_plain(record), indent=1, allow_nan=False)
        return replace_file(self.path(home, *key), f"{text}\n".encode())

    def read(self, home: Path) -> list[T]:
        """All records, by the names of their files.

        Raises:
            StoreError: a file cannot be read.
        """
        return [self._read(path) for path in sorted((home / self.name).glob("*.json"))]

    def _read(self, path: Path) -> T:
        with StoreError.instead_of(
            (OSError, ValueError, InputError),
            f"{path} is not a result of `{self.command}`",
            fix=f"remove it and run `{self.command}` again",
        ):
            return self.parse(path.read_bytes())


@dataclasses.dataclass(frozen=True, slots=True)
class RecordLines(Generic[T]):
    """Records of one kind, each a line of a file; packed line by line where its name ends in gz.

    Messages name the command that makes them, and the fix of a line for which `parse` raises
    ValueError.
    """

    path: Path
    command: str
    parse: Callable[[bytes], T]
    fix: str = "remove that line: the others are kept, and what it held is measured again"

    def read(self) -> list[T]:
        """Every record, in the order in which they were added; none where there is no file.

        Raises:
            StoreError: the file cannot be read, or a line is no record; says which.
        """
        return self._read()[0]

    def resume(self) -> list[T]:
        """As `read`; what was half written when the host went down is cut off.

        Raises:
            StoreError: as `read`.
        """
        records, whole_bytes = self._read()
        if self.path.exists() and whole_bytes < self.path.stat().st_size:
            os.truncate(self.path, whole_bytes)
        return records

    def add(self, record: T) -> None:
        """Keep one more.

        Raises:
            StoreError: it cannot be written.
        """
        line = f"{write(record)}\n".encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with (
            StoreError.instead_of(
                OSError,
                f"{self.path} cannot be written",
                fix="make room; what was kept before is whole",
            ),
            os.fdopen(os.open(self.path, flags, PRIVATE_FILE), "ab") as file,
        ):
            file.write(gzip.compress(line, mtime=0) if self.path.suffix == ".gz" else line)

    def _read(self) -> tuple[list[T], int]:
        try:
            content = self.path.read_bytes()
            lines, whole_bytes = (
                _unpacked(content)
                if self.path.suffix == ".gz"
                else (content.split(b"\n")[:-1], content.rfind(b"\n") + 1)
            )
        except FileNotFoundError:
            return [], 0
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{self.path} does not hold results of `{self.command}`",
                why=str(error),
                fix=self.fix,
            ) from error
        return [self._parsed(number, line) for number, line in enumerate(lines, 1)], whole_bytes

    def _parsed(self, number: int, line: bytes) -> T:
        with StoreError.instead_of(
            ValueError,
            f"{self.path}, line {number} does not hold results of `{self.command}`",
            fix=self.fix,
        ):
            return self.parse(line)


def _unpacked(content: bytes) -> tuple[list[bytes], int]:
    """Lines that were packed whole, and their bytes.

    Raises:
        ValueError: it is something else.
    """
    lines: list[bytes] = []
    rest = content
    while rest:
        member = zlib.decompressobj(wbits=31)
        try:
            line = member.decompress(rest)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if not member.eof:
            break
        lines.append(line)
        rest = member.unused_data
    return lines, len(content) - len(rest)
