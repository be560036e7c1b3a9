"""Flags bundled points with `degenerate-data` and `results-unread`; nothing else changes.

    .venv/bin/python docs/measurements/pairs/flag.py [FOLDER]

FOLDER is data/advisor_data/bundled if not given; the counts of its README.md, the data card, are
renewed. A second run changes no byte.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet as parquet
from bundle import BUNDLED, solos_flagged, unflagged
from card import renewed
from unread import with_unread_flags

from advisor.core.records import PairPoint, Point, SoloPoint
from advisor.validity.degenerate import with_pair_flags
from advisor_data.files.files import read_points


def flag(folder: Path) -> None:
    """Flag the points of the three files of a folder."""
    solos = solos_flagged(p for p in _points(folder, "solo") if isinstance(p, SoloPoint))
    alone = solos_flagged(p for p in _points(folder, "references") if isinstance(p, SoloPoint))
    found = (p for p in _points(folder, "pairs") if isinstance(p, PairPoint))
    pairs = with_unread_flags(with_pair_flags(found, solos))
    for name, points in (("solo", solos), ("references", alone), ("pairs", pairs)):
        _put(folder / f"{name}.parquet", points)
    card = folder / "README.md"
    card.write_text(renewed(card.read_text("utf-8"), pairs, alone, solos), "utf-8")


def _points(folder: Path, name: str) -> Sequence[Point]:
    return [unflagged(point) for point in read_points(folder / f"{name}.parquet")]


def _put(file: Path, points: Sequence[Point]) -> None:
    """Write the flags of the points over those in the file, whose rows are in the same order."""
    table = parquet.read_table(file)
    rows = table.to_pylist()
    for row, point in zip(rows, points, strict=True):
        row["flags"] = list(point.flags)
    flagged = pyarrow.Table.from_pylist(rows, schema=_as_written(table.schema))
    parquet.write_table(flagged, file, compression="zstd")


def _as_written(schema: pyarrow.Schema) -> pyarrow.Schema:
    """The schema without what reading adds to it: numbers of columns, another name of a list's."""
    words = pyarrow.list_(pyarrow.string())
    fields = [
        pyarrow.field(
            field.name,
            words if field.name == "flags" else field.type,
            nullable=field.nullable,
            metadata={k: v for k, v in field.metadata.items() if k != b"PARQUET:field_id"},
        )
        for field in schema
    ]
    return pyarrow.schema(fields, metadata=schema.metadata)


if __name__ == "__main__":
    flag(Path(sys.argv[1]) if len(sys.argv) > 1 else BUNDLED)
