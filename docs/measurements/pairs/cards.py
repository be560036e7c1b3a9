"""Prints how the power of two cards differs, at the same pair, split and rates.

.venv/bin/python docs/measurements/pairs/cards.py
"""

import itertools
import statistics
from collections import defaultdict

from advisor.core.records import PairPoint
from advisor_data.bundled import bundled_pair_points

NEAR = 0.03
"""Rates may differ by this part: what draws less since it does less tells nothing of the card."""

CAPPED = 0.95
"""At more of the power limit than this, cards differ in clock instead."""


def main() -> None:
    """One line for each two cards that have windows of the same kind."""
    print("| card | beside | pairs of windows | power: median | least | most |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (one, other), parts in sorted(_compared().items()):
        shown = (statistics.median(parts), min(parts), max(parts))
        cells = " | ".join(f"{100 * part:+.1f} %" for part in shown)
        print(f"| {one[:8]} | {other[:8]} | {len(parts)} | {cells} |")


def _compared() -> dict[tuple[str, str], list[float]]:
    same: dict[tuple[object, ...], list[PairPoint]] = defaultdict(list)
    for point in filter(_free, bundled_pair_points()):
        same[(*point.jobs, point.mode, *(part.units for part in point.parts))].append(point)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for points in same.values():
        for p, q in itertools.combinations(sorted(points, key=lambda p: p.gpu_uuid), 2):
            if p.gpu_uuid != q.gpu_uuid and _near(p, q) and p.power_w and q.power_w:
                found[p.gpu_uuid, q.gpu_uuid].append(p.power_w / q.power_w - 1)
    return found


def _free(point: PairPoint) -> bool:
    rates = (part.rate for part in point.parts)
    return None not in (point.power_w, point.power_limit_w, *rates) and (
        (point.power_w or 0) < CAPPED * (point.power_limit_w or 0)
    )


def _near(p: PairPoint, q: PairPoint) -> bool:
    rates = [(a.rate, b.rate) for a, b in zip(p.parts, q.parts, strict=True)]
    return all(a and b and abs(a / b - 1) < NEAR for a, b in rates)


main()
