"""What sets of jobs on one card took, beside the same work on a card for each job.

    python docs/measurements/sets/report.py [RUN ...] [--gpu-model H200]

First a table by class, then how far sets are apart that were measured on two cards, then each set,
as `advisor colocate --sets` shows it: energy is saved against a card for each job that does the
same work, with the cards that become free switched off, or idle. Campaigns are as rows.py has them.
"""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rows import Campaign, campaigns

from advisor.core.records import FILLS_PERCENT, HEAT
from advisor_profiling.reports import SetResult, set_table


@dataclass(frozen=True, slots=True)
class Row:
    """A set, how many of its jobs fill the card, and what it is the same as on another card."""

    result: SetResult
    fill: int
    gpu_model: str

    @property
    def key(self) -> tuple[object, ...]:
        parts = ((part.job, part.share_percent) for part in self.result.parts)
        return (self.gpu_model, self.result.mode, *parts)


def main() -> None:
    """Print both tables, and every set."""
    rows = [row for campaign in campaigns(__doc__) for row in rows_of(campaign)]
    by_class(rows)
    print()
    apart(rows)
    print()
    console = Console(width=120)
    console.print(set_table(sorted((row.result for row in rows), key=lambda r: len(r.parts))))


def rows_of(campaign: Campaign) -> list[Row]:
    """The sets of a campaign all of whose jobs were measured alone, too."""
    whole = sorted(campaign.alone, key=lambda p: (p.share_percent, p.started_at))
    active = {p.job: p.sm_active_percent for p in whole if p.sm_active_percent is not None}
    filling = {job for job, percent in active.items() if percent >= FILLS_PERCENT}
    cool = [point for point in campaign.sets if HEAT not in point.flags]
    return [
        Row(result, sum(part.job in filling for part in result.parts), campaign.gpu_model)
        for result in SetResult.of(cool, campaign.alone)
    ]


def by_class(rows: Sequence[Row]) -> None:
    """The lowest and the highest by how many fill the card, how many there are, and the way."""
    classes: dict[str, list[SetResult]] = defaultdict(list)
    for row in rows:
        many = len(row.result.parts)
        size = "2" if many == 2 else "3 or 4" if many < 5 else "5 to 7"
        classes[f"{row.fill} of {size} fill, {row.result.sharing}"].append(row.result)
    print("| class | n | saved, off % | saved, idle % | slowest | p99 ms |")
    print("|---|--:|---|---|---|---|")
    for name, those in sorted(classes.items()):
        columns = (
            _range([100 * r.saved_off for r in those], 0),
            _range([100 * r.saved_idle for r in those if r.saved_idle is not None], 0),
            _range([r.slowest for r in those], 2),
            _range([r.p99_ms for r in those if r.p99_ms], 0),
        )
        print(f"| {name} | {len(those)} | {' | '.join(columns)} |")


def _range(values: Sequence[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}" if values else ""


def apart(rows: Sequence[Row]) -> None:
    """How far sets that two cards measured are apart: what no model can be nearer than."""
    of_set: dict[tuple[object, ...], list[SetResult]] = defaultdict(list)
    for row in rows:
        of_set[row.key].append(row.result)
    twins = [two for same in of_set.values() for two in itertools.combinations(same, 2)]
    gaps: dict[str, list[float]] = defaultdict(list)
    for one, twin in twins:
        gaps["watts, %"].append(100 * abs(twin.power_w / one.power_w - 1))
        gaps["saved, points"].append(100 * abs(twin.saved_off - one.saved_off))
        pairs = zip(one.speeds, twin.speeds, strict=True)
        gaps["speeds, %"] += [100 * abs(b / a - 1) for a, b in pairs]
        if one.p99_ms and twin.p99_ms:
            gaps["p99, factor"].append(max(one.p99_ms / twin.p99_ms, twin.p99_ms / one.p99_ms))
    print("| apart | n | median | nine of ten |")
    print("|---|--:|--:|--:|")
    for what, values in gaps.items():
        nine = statistics.quantiles(values, n=10)[-1]
        print(f"| {what} | {len(values)} | {statistics.median(values):.2f} | {nine:.2f} |")


if __name__ == "__main__":
    main()
