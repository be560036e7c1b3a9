"""Results kept on disk, a line of JSON each: what is there is not measured again."""

import json
from collections.abc import Iterable
from pathlib import Path

from advisor.files import open_home
from advisor.formats.kept import RecordLines, slug
from advisor.formats.wire import read
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.result import InputConditions, InputPower

INPUTS_FOLDER = "inputs"
"""In the advisor's home."""


def input_lines(home: Path, gpu_uuid: str) -> RecordLines[InputPower]:
    """The results of one card."""
    return _lines(open_home(home, INPUTS_FOLDER) / f"{slug(gpu_uuid)}.jsonl")


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
    return _lines(path).read()


def newest_of(
    kept: Iterable[InputPower], cases: Iterable[InputCase], conditions: InputConditions
) -> dict[InputCase, InputPower]:
    """The newest result of each case that was measured under the conditions."""
    wanted = set(cases)
    return {
        result.case: result
        for result in kept
        if result.case in wanted and result.conditions == conditions
    }


def _lines(path: Path) -> RecordLines[InputPower]:
    return RecordLines(path, "advisor power input", _result)


def _result(line: bytes) -> InputPower:
    """What a line says; a fingerprint of before signs were counted is none."""
    if b'"fingerprint"' in line and b'"product_signs"' not in line:
        line = json.dumps({**json.loads(line), "fingerprint": None}).encode()
    return read(InputPower, line)
