"""Runs of one operation kept on disk: what is done survives Ctrl-C, and is not done again."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from advisor.errors import StoreError
from advisor.files import open_home
from advisor.formats.kept import RecordLines, slug
from advisor.formats.wire import read, to_plain
from advisor.wire.power import KernelReport, StretchPower
from advisor_data.known import KERNEL_REPORTS, KERNELS_FOLDER
from advisor_power.kernels.trace import TraceBlock

_FORM = 3
"""Of the lines; runs in another form are left where they are."""

_FRESH = "remove it, or measure again with --fresh"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConditions:
    """Under what runs were made: those under others are not put together with them."""

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
    """When the record of the sensor was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLengths:
    """What was found before the blocks: how long a run is."""

    execution_s: float
    """As timed then."""
    executions: int
    """Of a long run."""
    ssp_execution: int | None
    """Of the shortest run that ends in steady power; None: none was found, or looked for."""
    stretch: StretchPower | None
    """Without a gap for seconds; None where another operation is before the runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    conditions: KernelConditions
    found: RunLengths


class Session:
    """The runs of one operation under one set of conditions, and what they say."""

    def __init__(self, home: Path, conditions: KernelConditions) -> None:
        known = json.dumps([_FORM, to_plain(conditions)], sort_keys=True)
        name = slug(conditions.operation)[:80].strip("-")
        self._home, self._conditions = home, conditions
        self._key = (name, sha256(known.encode()).hexdigest()[:8])
        path = open_home(home, KERNELS_FOLDER) / f"{slug(*self._key)}.jsonl.gz"
        self._lines: RecordLines[_Head | TraceBlock] = RecordLines(
            path, "advisor power kernel", _line, _FRESH
        )

    def read(self) -> tuple[RunLengths, list[TraceBlock]] | None:
        """What was found and the blocks so far; None where there is nothing yet.

        Raises:
            StoreError: the file cannot be read.
        """
        whole = self._lines.resume()
        if not whole:
            return None
        first, *rest = whole
        blocks = [line for line in rest if isinstance(line, TraceBlock)]
        if not isinstance(first, _Head) or len(blocks) < len(rest):
            raise StoreError(f"{self._lines.path} does not begin with conditions", fix=_FRESH)
        return first.found, blocks

    def begin(self, found: RunLengths) -> None:
        """Forget what was there, and write what was found."""
        self._lines.path.unlink(missing_ok=True)
        self._lines.add(_Head(conditions=self._conditions, found=found))

    def add(self, block: TraceBlock) -> None:
        """Keep one block."""
        self._lines.add(block)

    def finish(self, report: KernelReport) -> None:
        """Keep what the runs say, beside them."""
        KERNEL_REPORTS.keep(report, self._home, *self._key)


def _line(text: bytes) -> _Head | TraceBlock:
    return read(_Head if text.startswith(b'{"conditions"') else TraceBlock, text)
