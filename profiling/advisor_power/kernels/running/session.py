"""Runs of one operation kept on disk: what is done survives Ctrl-C, and is not done again.

A line of JSON for each block, which is packed by itself, so that one can be added.
"""

import gzip
import json
import os
import re
import zlib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from advisor.errors import StoreError
from advisor.files.home import open_home
from advisor.files.safe_files import writing_private
from advisor.formats.typed_json import parse
from advisor.formats.wire import to_plain
from advisor.wire.kernel_power import KernelReport, StretchPower
from advisor_data.files.power_records import KERNELS_FOLDER, keep_kernel
from advisor_power.kernels.trace import Block

_FORM = 3
"""Of the lines; runs in another form are left where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under what runs were made: those under others are not put together with them.

    Attributes:
        units: SMs that the operation had.
        launches: Of the operation in one execution.
        before: What ran before each run.
        sensor_measured_at: When the record of the sensor was made.
    """

    operation: str
    before: str
    lead_s: float
    gpu_model: str
    gpu_uuid: str
    driver: str
    units: int | None
    launches: int
    torch: str
    sensor_measured_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found before the blocks: how long a run is.

    Attributes:
        execution_s: As timed then.
        executions: Of a long run.
        ssp_execution: Of the shortest run that ends in steady power; None: none was found, or
            looked for.
        stretch: Without a gap for seconds; None where another operation is before the runs.
    """

    execution_s: float
    executions: int
    ssp_execution: int | None
    stretch: StretchPower | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    conditions: Conditions
    found: Found


class Session:
    """The file of the runs of one operation under one set of conditions."""

    def __init__(self, home: Path, conditions: Conditions) -> None:
        known = json.dumps([_FORM, to_plain(conditions)], sort_keys=True)
        key = sha256(known.encode()).hexdigest()[:8]
        name = re.sub(r"[^a-z0-9]+", "-", conditions.operation.lower()).strip("-")[:80]
        folder = open_home(home, KERNELS_FOLDER)
        self.path = folder / f"{name}-{key}.jsonl.gz"
        self._report = folder / f"{name}-{key}.json"
        self._conditions = conditions

    def read(self) -> tuple[Found, list[Block]] | None:
        """What was found and the blocks so far; None where there is nothing yet.

        Raises:
            StoreError: the file cannot be read.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._broken(error) from error
        try:
            whole, length = _unpacked(content)
            if length < len(content):  # it was being written when the host went down
                os.truncate(self.path, length)
            if not whole:
                return None
            first, *rest = whole
            return parse(_Head, first).found, [parse(Block, line) for line in rest]
        except ValueError as error:
            raise self._broken(error) from error

    def begin(self, found: Found) -> None:
        """Forget what was there, and write what was found."""
        head = _Head(conditions=self._conditions, found=found)
        with writing_private(self.path) as file:
            file.write(_packed(head))

    def add(self, block: Block) -> None:
        """Keep one block."""
        with self.path.open("ab") as file:
            file.write(_packed(block))

    def finish(self, report: KernelReport) -> None:
        """Keep what the runs say, beside them."""
        keep_kernel(report, self._report)

    def _broken(self, error: Exception) -> StoreError:
        return StoreError(
            f"{self.path} does not hold runs of an operation",
            why=str(error),
            fix="remove it, or measure again with --fresh",
        )


def _packed(what: object) -> bytes:
    return gzip.compress(json.dumps(to_plain(what)).encode() + b"\n", mtime=0)


def _unpacked(content: bytes) -> tuple[list[bytes], int]:
    """What was packed whole, and the length of that.

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
