"""Flags bundled points with `degenerate-data` and `results-unread`; nothing else changes.

    .venv/bin/python docs/measurements/pairs/flag.py [FOLDER]

FOLDER is data/advisor_data/bundled if not given; the counts of its README.md, the data card, are
renewed. A second run changes no byte.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from bundle import BUNDLED, solos_flagged, unflagged
from card import renewed
from unread import with_unread_flags

from advisor.core.records import PairPoint, Point, SoloPoint
from advisor.validity.points import with_pair_flags
from advisor_data.files import read_points, write_points


def flag(folder: Path) -> None:
    """Flag the points of the three files of a folder."""
    solos = solos_flagged(p for p in _points(folder, "solo") if isinstance(p, SoloPoint))
    alone = solos_flagged(p for p in _points(folder, "references") if isinstance(p, SoloPoint))
    found = (p for p in _points(folder, "pairs") if isinstance(p, PairPoint))
    pairs = with_unread_flags(with_pair_flags(found, solos))
    for name, points in (("solo", solos), ("references", alone), ("pairs", pairs)):
        write_points(folder / f"{name}.jsonl", points)
    card = folder / "README.md"
    card.write_text(renewed(card.read_text("utf-8"), pairs, alone, solos), "utf-8")


def _points(folder: Path, name: str) -> Sequence[Point]:
    found = read_points(folder / f"{name}.jsonl")
    return [unflagged(point) for point in found if isinstance(point, SoloPoint | PairPoint)]


if __name__ == "__main__":
    flag(Path(sys.argv[1]) if len(sys.argv) > 1 else BUNDLED)
