"""What sets of jobs on one card took, beside the same work on a card for each job.

    python docs/measurements/sets/report.py NAME [NAME ...]
    python docs/measurements/sets/report.py NAME --again OTHER

NAME is a campaign's without the ending, such as docs/measurements/sets/h100-1: NAME.jsonl has jobs
alone, NAME-sets.jsonl sets, as `advisor data export` writes them. First a table by class, then each
set, as `advisor colocate --sets` shows it: energy is saved against a card for each job that does
the same work, with the cards that become free switched off, or idle. `--again` compares a campaign
with the same one on another card.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rich.console import Console

from advisor.core.records import PairPoint, SoloPoint
from advisor_data.files.files import read_points
from advisor_profiling.campaign.pairing import filling_jobs
from advisor_profiling.reports.sets import SetResult, set_results, set_table, sharing_text


@dataclass(frozen=True, slots=True)
class Row:
    """A set, and how many of its jobs fill the card."""

    result: SetResult
    fill: int


def main() -> None:
    """Print every set, or how far two campaigns are apart."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("campaigns", nargs="+")
    parser.add_argument("--again")
    options = parser.parse_args()
    if options.again:
        apart(rows_of(options.campaigns[0]), rows_of(options.again))
        return
    rows = [row for name in options.campaigns for row in rows_of(name)]
    by_class(rows)
    print()
    console = Console(width=120)
    console.print(set_table(sorted((row.result for row in rows), key=lambda r: len(r.parts))))


def rows_of(campaign: str) -> list[Row]:
    """The sets of a campaign all of whose jobs were measured alone, too."""
    solo = cast("list[SoloPoint]", read_points(Path(f"{campaign}.jsonl")))
    sets = cast("list[PairPoint]", read_points(Path(f"{campaign}-sets.jsonl")))
    filling = filling_jobs(solo, solo[0].gpu_model)
    return [
        Row(result, sum(part.job in filling for part in result.parts))
        for result in set_results(sets, solo)
    ]


def by_class(rows: Sequence[Row]) -> None:
    """Print the lowest and the highest of each class."""
    classes: dict[str, list[SetResult]] = defaultdict(list)
    for row in rows:
        classes[class_of(row)].append(row.result)
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


def class_of(row: Row) -> str:
    """By how many of its jobs fill the card, how many there are, and how they share it."""
    many = len(row.result.parts)
    size = "2" if many == 2 else "3 or 4" if many < 5 else "5 to 7"
    return f"{row.fill} of {size} fill, {sharing_text(row.result)}"


def _range(values: Sequence[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}" if values else ""


def apart(first: Sequence[Row], second: Sequence[Row]) -> None:
    """How far the sets of two campaigns are apart: what no model can be nearer than."""
    other = {_key(row.result): row.result for row in second}
    gaps: dict[str, list[float]] = defaultdict(list)
    for row in first:
        one = row.result
        if (twin := other.get(_key(one))) is None:
            continue
        gaps["watts, %"].append(100 * abs(twin.power_w / one.power_w - 1))
        gaps["saved, points"].append(100 * abs(twin.saved_off - one.saved_off))
        pairs = zip(one.parts, twin.parts, strict=True)
        gaps["speeds, %"] += [100 * abs(b.speed / a.speed - 1) for a, b in pairs]
        if one.p99_ms and twin.p99_ms:
            gaps["p99, factor"].append(max(one.p99_ms / twin.p99_ms, twin.p99_ms / one.p99_ms))
    print("| apart | n | median | nine of ten |")
    print("|---|--:|--:|--:|")
    for what, values in gaps.items():
        nine = statistics.quantiles(values, n=10)[-1]
        print(f"| {what} | {len(values)} | {statistics.median(values):.2f} | {nine:.2f} |")


def _key(result: SetResult) -> tuple[object, ...]:
    return (result.mode, *((part.job, part.share_percent) for part in result.parts))


if __name__ == "__main__":
    main()
