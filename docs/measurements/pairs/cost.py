"""What the campaign of pairs cost: GPU-seconds for a pair point, and what went into windows.

    .venv/bin/python docs/measurements/pairs/cost.py [FILES...]

Counts the bundled pairs and references, or the points of the given files. The time of a GPU runs
from where the settling of its first window begins to the end of its last one, in each run; a pause
of ten minutes or more is no part of it. The start of the first block lies before it.
"""

import itertools
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path

from advisor.core.records import PairPoint, Point
from advisor_data.bundled import bundled_pair_points, bundled_reference_points
from advisor_data.files import read_points

LONGEST_START_S = 600.0
"""Starting a block takes minutes; longer pauses lie between two sessions."""

SHORTEST_START_S = 20.0
"""Shorter pauses lie between the windows of a block."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent on one GPU, or on several.

    Attributes:
        time_s: From first to last window, without long pauses.
        window_s: In windows.
        settle_s: Settling before them.
        starts_s: Each pause that is long enough for the start of a block, and no longer.
        between_s: Each shorter pause, from a window's end to the next settling.
    """

    pair_points: int = 0
    references: int = 0
    time_s: float = 0.0
    window_s: float = 0.0
    settle_s: float = 0.0
    starts_s: tuple[float, ...] = ()
    between_s: tuple[float, ...] = ()

    def __add__(self, other: "Spent") -> "Spent":
        mine, others = astuple(self), astuple(other)
        return Spent(*(a + b for a, b in zip(mine, others, strict=True)))


def main() -> None:
    """Print a line for each run on each GPU, then the sum."""
    files = [Path(name) for name in sys.argv[1:]]
    points: Iterable[Point] = [p for file in files for p in read_points(file)]
    cards: defaultdict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points if files else [*bundled_pair_points(), *bundled_reference_points()]:
        cards[point.run, point.gpu_uuid].append(point)
    lines = {f"{run} on {uuid[:8]}": spent(found) for (run, uuid), found in sorted(cards.items())}
    print("| run and card | pair points | references | GPU-minutes | GPU-seconds for a pair point "
          "| in windows | in windows and settling | starts between windows |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    total = sum(lines.values(), Spent())
    for name, cost in (*lines.items(), ("all", total)):
        print(row(name, cost))
    print(means(total))


def spent(points: Sequence[Point]) -> Spent:
    """What the windows of one run on one GPU took."""
    spans = sorted(map(span, points))
    ends = itertools.accumulate((end for _, end in spans), max)
    gaps = [begin - end for (begin, _), end in zip(spans[1:], ends, strict=False)]
    return Spent(
        pair_points=sum(isinstance(p, PairPoint) for p in points),
        references=sum(not isinstance(p, PairPoint) for p in points),
        time_s=max(end for _, end in spans)
        - spans[0][0]
        - sum(gap for gap in gaps if gap >= LONGEST_START_S),
        window_s=sum(p.window_s for p in points),
        settle_s=sum(p.settle_s or 0 for p in points),
        starts_s=tuple(gap for gap in gaps if SHORTEST_START_S <= gap < LONGEST_START_S),
        between_s=tuple(gap for gap in gaps if gap < SHORTEST_START_S),
    )


def means(cost: Spent) -> str:
    """How long a window takes in the mean."""
    windows = cost.pair_points + cost.references
    return (
        f"In the mean a window is {cost.window_s / windows:.2f} s long, settling "
        f"{cost.settle_s / windows:.2f} s; from a window's end to the next settling "
        f"{statistics.mean(cost.between_s or [0.0]):.2f} s."
    )


def span(point: Point) -> tuple[float, float]:
    """Where the settling began and where the window ended, s."""
    started_s = datetime.fromisoformat(point.started_at).timestamp()
    return started_s - (point.settle_s or 0), started_s + point.window_s


def row(name: str, cost: Spent) -> str:
    """A line of the table."""
    inside, measuring = cost.window_s, cost.window_s + cost.settle_s
    starts = f"{len(cost.starts_s)}, {sum(cost.starts_s) / 60:.1f} minutes"
    each = f"{cost.time_s / cost.pair_points:.1f}" if cost.pair_points else "-"
    return (
        f"| {name} | {cost.pair_points} | {cost.references} | {cost.time_s / 60:.1f} | {each} "
        f"| {100 * inside / cost.time_s:.0f} % | {100 * measuring / cost.time_s:.0f} % "
        f"| {starts} |"
    )


if __name__ == "__main__":
    main()
