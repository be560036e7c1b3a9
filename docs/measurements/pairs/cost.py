"""What the campaign of pairs cost: GPU-seconds for a pair point, and what went into windows.

    .venv/bin/python docs/measurements/pairs/cost.py [FILES...]

Counts the bundled pairs and baselines, or the points of the given files. The time of a GPU runs
from where the settling of its first window begins to the end of its last one, in each run; a pause
of ten minutes or more is no part of it. The start of the first block lies before it.
"""

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from advisor.records import PairPoint, Point
from advisor_data.bundled import bundled_baseline_points, bundled_pair_points
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
    """

    pair_points: int = 0
    baselines: int = 0
    time_s: float = 0.0
    window_s: float = 0.0
    settle_s: float = 0.0
    starts_s: tuple[float, ...] = ()

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.pair_points + other.pair_points,
            self.baselines + other.baselines,
            self.time_s + other.time_s,
            self.window_s + other.window_s,
            self.settle_s + other.settle_s,
            self.starts_s + other.starts_s,
        )


def main() -> None:
    """Print a line for each run on each GPU, then the sum."""
    files = [Path(name) for name in sys.argv[1:]]
    points: Iterable[Point] = [p for file in files for p in read_points(file)]
    cards: defaultdict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points if files else [*bundled_pair_points(), *bundled_baseline_points()]:
        cards[point.run, point.gpu_uuid].append(point)
    lines = {f"{run} on {uuid[:8]}": spent(found) for (run, uuid), found in sorted(cards.items())}
    print("| run and card | pair points | baselines | GPU-minutes | GPU-seconds for a pair point "
          "| in windows | in windows and settling | starts between windows |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, cost in (*lines.items(), ("all", sum(lines.values(), Spent()))):
        print(row(name, cost))


def spent(points: Sequence[Point]) -> Spent:
    """What the windows of one run on one GPU took."""
    spans = sorted(map(span, points))
    ends = itertools.accumulate((end for _, end in spans), max)
    gaps = [begin - end for (begin, _), end in zip(spans[1:], ends, strict=False)]
    return Spent(
        pair_points=sum(isinstance(p, PairPoint) for p in points),
        baselines=sum(not isinstance(p, PairPoint) for p in points),
        time_s=max(end for _, end in spans)
        - spans[0][0]
        - sum(gap for gap in gaps if gap >= LONGEST_START_S),
        window_s=sum(p.window_s for p in points),
        settle_s=sum(p.settle_s or 0 for p in points),
        starts_s=tuple(gap for gap in gaps if SHORTEST_START_S <= gap < LONGEST_START_S),
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
        f"| {name} | {cost.pair_points} | {cost.baselines} | {cost.time_s / 60:.1f} | {each} "
        f"| {100 * inside / cost.time_s:.0f} % | {100 * measuring / cost.time_s:.0f} % "
        f"| {starts} |"
    )


if __name__ == "__main__":
    main()
