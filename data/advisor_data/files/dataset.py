"""Which pair points are fit to learn from and to report, and how many are not."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from advisor.core.records import DOUBTFUL, PairPoint


@dataclass(frozen=True, slots=True)
class Selection:
    """Points to use, in their order, and how many were left out under each doubtful flag."""

    points: tuple[PairPoint, ...]
    left_out: Mapping[str, int]

    @property
    def summary(self) -> str:
        """One line for a reader: "12 of 1800 points left out: 7 counter-mismatch, 5 failed"."""
        count = sum(self.left_out.values())
        line = f"{count} of {count + len(self.points)} points left out"
        most_first = sorted(self.left_out.items(), key=lambda item: (-item[1], item[0]))
        reasons = ", ".join(f"{number} {flag}" for flag, number in most_first)
        return f"{line}: {reasons}" if reasons else line


def select(points: Iterable[PairPoint], *, flagged: bool = False) -> Selection:
    """The points that passed every cross-check, or all with `flagged`.

    One with several flags of `DOUBTFUL` is counted under the first.
    """
    kept: list[PairPoint] = []
    left_out: Counter[str] = Counter()
    for point in points:
        doubt = next((flag for flag in point.flags if flag in DOUBTFUL), None)
        if doubt is None or flagged:
            kept.append(point)
        else:
            left_out[doubt] += 1
    return Selection(tuple(kept), dict(left_out))
