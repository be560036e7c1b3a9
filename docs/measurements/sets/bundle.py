"""Adds measured sets, and their jobs alone, to those that come with the package.

    .venv/bin/python docs/measurements/sets/bundle.py FILES...

FILES are of `advisor data export`, points of jobs alone and of sets of one or several campaigns.
What is bundled stays, and a point that is there already is not added again. `counter-mismatch` is
worked out anew, as its rule was not always that of today.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from advisor.core.records import COUNTER_BOUND, PairPoint, SoloPoint
from advisor_data.bundled import bundled_set_points, bundled_set_references
from advisor_data.files import read_points, write_points
from advisor_data.lists import position

BUNDLED = Path(__file__).resolve().parents[3] / "data/advisor_data/bundled"

P = TypeVar("P", PairPoint, SoloPoint)


def main() -> None:
    """Read the files and write both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    points = [point for file in parser.parse_args().files for point in read_points(file)]
    sets = [*bundled_set_points(), *(p for p in points if isinstance(p, PairPoint))]
    alone = [*bundled_set_references(), *(p for p in points if isinstance(p, SoloPoint))]
    write(sets, "sets.jsonl")
    write(alone, "set_references.jsonl")


def write(points: Sequence[P], name: str) -> None:
    """Each point once."""
    each = {point.point_id: renewed(point) for point in points}
    write_points(BUNDLED / name, sorted(each.values(), key=position))
    print(f"{name}: {len(each)} points")


def renewed(point: P) -> P:
    """The point without a mismatch that is within chance, as `WindowResult.flags` has it."""
    power_w, counter_w = point.power_w, point.counter_power_w
    if "counter-mismatch" not in point.flags or not power_w or counter_w is None:
        return point
    chance = 3 * (point.power_stderr_w or 0.0) / power_w
    if abs(counter_w / power_w - 1) > max(COUNTER_BOUND, chance):
        return point
    return replace(point, flags=tuple(f for f in point.flags if f != "counter-mismatch"))


if __name__ == "__main__":
    main()
