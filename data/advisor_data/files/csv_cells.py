"""Cells of CSV files that a spreadsheet may open: text stays text.

A cell that begins with `=`, `+`, `-` or `@` is run as a formula there, and names of runs and units
may come from anybody. An apostrophe before it makes it text; one that is there already gets
another, so that reading the cell gives what was written.
"""

from collections.abc import Mapping
from typing import Any

_QUOTE = "'"
_SPECIAL = ("=", "+", "-", "@", "\t", "\r", _QUOTE)


def to_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose texts no spreadsheet runs; numbers stay as they are."""
    return {
        name: _quoted(value) if isinstance(value, str) else value for name, value in row.items()
    }


def from_cell(cell: str) -> str:
    """What was written into a cell; one from elsewhere stays as it is."""
    quoted = cell.startswith(_QUOTE) and cell[1:].startswith(_SPECIAL)
    return cell[1:] if quoted else cell


def _quoted(cell: str) -> str:
    return _QUOTE + cell if cell.startswith(_SPECIAL) else cell
