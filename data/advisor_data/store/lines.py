"""JSON lines as bytes: which are whole, and the row that each holds."""

import json
import logging
from pathlib import Path
from typing import Any, cast

from advisor.errors import InputError

_log = logging.getLogger(__name__)


def whole_lines(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """Numbered lines that are not empty, and how many bytes the whole lines take.

    Text after the last line end that is not JSON was cut off by a crash and is left out.
    """
    end = data.rfind(b"\n") + 1
    if _is_json(data[end:]):
        end = len(data)
    numbered = enumerate(data[:end].split(b"\n"), start=1)
    return [(number, line) for number, line in numbered if line.strip()], end


def json_row(line: bytes) -> dict[str, Any]:
    """The row that a line holds.

    Raises:
        InputError: the line is not a JSON object.
    """
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError("no JSON", why=str(error), fix="repair the line") from error
    if not isinstance(row, dict):
        raise InputError("no JSON object", fix="see docs/schema.md")
    return cast("dict[str, Any]", row)


def warn_torn(path: Path) -> None:
    """Tells that the end of a file was left out."""
    _log.warning("%s: the last line was cut off by a crash and is left out", path)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
