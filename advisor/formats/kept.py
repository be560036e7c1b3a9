"""What is measured on a host and kept there, as JSON: a file for each record, or a line for each.

A record that is a file of its own is written whole or not at all. Lines are added one by one while
a measurement goes on: what was interrupted goes on behind the last whole line.
"""

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from advisor.errors import InputError, StoreError
from advisor.files import PRIVATE_FILE, open_home, replace_file
from advisor.formats.wire import T, to_plain, write


def slug(*parts: str) -> str:
    """Parts of a name as a file may be called."""
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower()).strip("-")


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
        if self.path.suffix == ".gz":
            line = gzip.compress(line, mtime=0)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with (
            StoreError.instead_of(
                OSError,
                f"{self.path} cannot be written",
                fix="make room; what was kept before is whole",
            ),
            os.fdopen(os.open(self.path, flags, PRIVATE_FILE), "ab") as file,
        ):
            file.write(line)

    def _read(self) -> tuple[list[T], int]:
        try:
            content = self.path.read_bytes()
            plain = content.split(b"\n")[:-1], content.rfind(b"\n") + 1
            lines, whole_bytes = _unpacked(content) if self.path.suffix == ".gz" else plain
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
    found: list[bytes] = []
    rest = content
    while rest:
        member = zlib.decompressobj(wbits=31)
        try:
            line = member.decompress(rest)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if not member.eof:
            break
        found.append(line)
        rest = member.unused_data
    return found, len(content) - len(rest)
