"""Results kept on disk, a line of JSON each: what is there is not measured again."""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from advisor.errors import StoreError
from advisor.files.home import open_home
from advisor.formats.typed_json import parse
from advisor.formats.wire import to_plain
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.result import Conditions, InputPower

INPUTS_FOLDER = "inputs"
"""In the advisor's home."""


class KeptInputs:
    """The file of one card."""

    def __init__(self, home: Path, gpu_uuid: str) -> None:
        name = re.sub(r"[^a-z0-9]+", "-", gpu_uuid.lower()).strip("-")
        self.path = open_home(home, INPUTS_FOLDER) / f"{name}.jsonl"

    def read(self) -> list[InputPower]:
        """Everything so far, in the order in which it was measured.

        Raises:
            StoreError: the file cannot be read.
        """
        found, half = _read(self.path)
        if half:  # it was being written when the host went down
            os.truncate(self.path, self.path.stat().st_size - half)
        return found

    def add(self, result: InputPower) -> None:
        """Keep one result.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            with self.path.open("ab") as file:
                file.write(json.dumps(to_plain(result)).encode() + b"\n")
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be written",
                why=error.strerror or str(error),
                fix="make room; results before this one are kept",
            ) from error


def kept_inputs(home: Path) -> list[InputPower]:
    """Everything that was measured on this host, card by card.

    Raises:
        StoreError: a file cannot be read.
    """
    files = sorted((home / INPUTS_FOLDER).glob("*.jsonl"))
    return [result for file in files for result in read_kept(file)]


def read_kept(path: Path) -> list[InputPower]:
    """The same of any file, which is left as it is: it may be written meanwhile.

    Raises:
        StoreError: the file cannot be read.
    """
    return _read(path)[0]


def newest_of(
    kept: Iterable[InputPower], cases: Iterable[InputCase], conditions: Conditions
) -> dict[InputCase, InputPower]:
    """The newest result of each case that was measured under the conditions."""
    wanted = set(cases)
    return {
        result.case: result
        for result in kept
        if result.case in wanted and result.conditions == conditions
    }


def _read(path: Path) -> tuple[list[InputPower], int]:
    """The results of a file, and the length of a line that is not whole."""
    try:
        *whole, half = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise StoreError(f"{path} cannot be read", why=error.strerror or str(error)) from error
    return [_kept(path, number, line) for number, line in enumerate(whole, 1)], len(half)


def _kept(path: Path, number: int, line: bytes) -> InputPower:
    try:
        return _result(line)
    except ValueError as error:
        raise StoreError(
            f"{path}, line {number} does not hold results of `advisor power input`",
            why=str(error),
            fix="remove that line: the others are kept, and what it held is measured again",
        ) from error


def _result(line: bytes) -> InputPower:
    """What a line says; a fingerprint of before signs were counted is none."""
    if b'"fingerprint"' in line and b'"product_signs"' not in line:
        line = json.dumps({**json.loads(line), "fingerprint": None}).encode()
    return parse(InputPower, line)
