"""The lines of a job's output as they come, however much a job writes."""

import math
import os
import re
from pathlib import Path

from advisor.errors import JobError

LOOK_BYTES = 1024 * 1024
"""Most that is read at a look; what is left is read at the next ones."""

LINE_BYTES = 64 * 1024
"""Most that is read of a line; of a longer one its end."""

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class OutputLines:
    """Complete lines of an output file that its shim may begin again.

    A carriage return ends a line too: progress bars write nothing else.

    Args:
        path: Of the file.
        last_bytes: Of what was written before; None: from its beginning.

    Attributes:
        is_behind: The last look found more than it may read.
    """

    def __init__(self, path: Path, last_bytes: int | None = None) -> None:
        self._path, self._file, self._rest = path, path.open("rb", buffering=0), b""
        self.is_behind = False
        if last_bytes is not None:
            self._file.seek(max(0, self._file.seek(0, os.SEEK_END) - last_bytes))

    def read(self) -> list[bytes]:
        """Lines that were completed since the last look, without their ends, `LOOK_BYTES` at most.

        Raises:
            JobError: the job wrote more than is kept since then; the next look goes on behind it.
        """
        data = self._file.read(LOOK_BYTES)
        if len(data) < LOOK_BYTES and self._begun_again():
            # Nothing is added any more to a file that was put aside.
            data += self._file.read(LOOK_BYTES - len(data))
            if len(data) < LOOK_BYTES:
                self._follow()
                data += self._file.read(LOOK_BYTES - len(data))
        self.is_behind = len(data) == LOOK_BYTES
        *lines, rest = re.split(rb"[\r\n]", self._rest + data)
        self._rest = rest[-LINE_BYTES:]
        return [line[-LINE_BYTES:] for line in lines]

    @property
    def rest(self) -> bytes:
        """The line that has no end yet, such as a progress bar until it is drawn again."""
        return self._rest

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _begun_again(self) -> bool:
        return _number(self._path) not in (None, os.fstat(self._file.fileno()).st_ino)

    def _follow(self) -> None:
        """Go on with the new file."""
        old = self._file
        self._file = self._path.open("rb", buffering=0)
        aside = _number(self._path.with_name(f"{self._path.name}.1"))
        is_next = aside == os.fstat(old.fileno()).st_ino
        old.close()
        if not is_next:
            raise JobError(
                "the job writes its output faster than it can be read",
                why="only the newest part of it is kept, and the part that was not read is gone",
                fix="write less, or count in the progress file (docs/progress.md)",
            )


def plain(line: bytes) -> str:
    """The text of a line without what steers a terminal, such as colours and backspaces."""
    if b"\x1b" in line:
        line = _ESCAPES.sub(b"", line)
    return line.replace(b"\b", b"").decode(errors="replace")


def number_of(text: str) -> float:
    """The number in a job's log: `1,000`, `12.5` or, as tqdm scales it, `1.25k`; else NaN."""
    scale = _SCALES.get(text[-1:], 1.0)
    try:
        return float((text if scale == 1 else text[:-1]).replace(",", "")) * scale
    except ValueError:
        return math.nan


def _number(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
