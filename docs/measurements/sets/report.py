"""What sets of jobs on one card took, beside the same work on a card for each job.

    python docs/measurements/sets/report.py NAME [NAME ...]
    python docs/measurements/sets/report.py NAME --again OTHER

NAME is a campaign's without the ending, such as docs/measurements/sets/h100-1: NAME.jsonl has jobs
alone, NAME-sets.jsonl sets. Energy is saved against a card for each job that does the same work:
speed times what the job draws alone. With freed cards off, they draw nothing; idle, `idle_power_w`
each. A server does no more than is asked of it, so its speed is at most 1. First a table by class,
then each set. `--again` compares a campaign with the same one on another card.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sets import NOT_FILLING

from advisor.core.records import PairPoint, SoloPoint
from advisor_data.files.files import read_points


@dataclass(frozen=True, slots=True)
class Row:
    """One set: energy saved with freed cards off and idle, %, speeds and the longest tail, ms."""

    name: str
    mode: str
    names: tuple[str, ...]
    power_w: float
    saved_off: float
    saved_idle: float
    speeds: tuple[float, ...]
    p99_ms: float | None


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
    print("\n| set | mode | W | saved, off % | saved, idle % | slowest | p99 ms |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for row in sorted(rows, key=lambda r: (len(r.names), r.name)):
        tail = "" if row.p99_ms is None else f"{row.p99_ms:.0f}"
        print(
            f"| {row.name} | {row.mode} | {row.power_w:.0f} | {row.saved_off:.0f} "
            f"| {row.saved_idle:.0f} | {min(row.speeds):.2f} | {tail} |"
        )


def by_class(rows: Sequence[Row]) -> None:
    """Print the lowest and the highest of each class."""
    classes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        classes[class_of(row)].append(row)
    print("| class | n | saved, off % | saved, idle % | slowest | p99 ms |")
    print("|---|--:|---|---|---|---|")
    for name, those in sorted(classes.items()):
        tails = [row.p99_ms for row in those if row.p99_ms]
        columns = (
            _range([row.saved_off for row in those], 0),
            _range([row.saved_idle for row in those], 0),
            _range([min(row.speeds) for row in those], 2),
            _range(tails, 0) if tails else "",
        )
        print(f"| {name} | {len(those)} | {' | '.join(columns)} |")


def class_of(row: Row) -> str:
    """By how many of its jobs fill the card, how many there are, and whether one has a limit."""
    fill = sum(name not in NOT_FILLING for name in row.names)
    size = "2" if len(row.names) == 2 else "3 or 4" if len(row.names) < 5 else "5 to 7"
    return f"{fill} of {size} fill, {row.mode}"


def _range(values: Sequence[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def rows_of(campaign: str) -> list[Row]:
    """The sets of a campaign all of whose jobs were measured alone, too."""
    alone = references(cast("list[SoloPoint]", read_points(Path(f"{campaign}.jsonl"))))
    sets = cast("list[PairPoint]", read_points(Path(f"{campaign}-sets.jsonl")))
    known = (p for p in sets if p.power_w and all(part.job in alone for part in p.parts))
    return [_row(point, alone) for point in known]


def references(points: Iterable[SoloPoint]) -> dict[str, SoloPoint]:
    """Each job alone without a limit: its first window."""
    found: dict[str, SoloPoint] = {}
    for point in points:
        if point.share_percent == 100 and point.rate:
            found.setdefault(point.job, point)
    return found


def _row(point: PairPoint, alone: Mapping[str, SoloPoint]) -> Row:
    speeds, power_w = [], cast("float", point.power_w)
    for part in point.parts:
        speed = cast("float", part.rate) / cast("float", alone[part.job].rate)
        speeds.append(min(1.0, speed) if part.offered_rate else speed)
    own = zip(speeds, point.parts, strict=True)
    own_w = sum(speed * cast("float", alone[part.job].power_w) for speed, part in own)
    freed_w = (len(point.parts) - 1) * (point.idle_power_w or 0)
    tails = [part.latency_p99_ms for part in point.parts if part.latency_p99_ms]
    limits = {part.share_percent for part in point.parts}
    name = " + ".join(
        part.job if part.share_percent == 100 else f"{part.job}@{part.share_percent:g}"
        for part in point.parts
    )
    return Row(
        name,
        "limits" if limits != {100.0} else point.mode,
        tuple(part.job for part in point.parts),
        power_w,
        100 * (1 - power_w / own_w),
        100 * (1 - (power_w + freed_w) / own_w),
        tuple(speeds),
        max(tails, default=None),
    )


def apart(first: Sequence[Row], second: Sequence[Row]) -> None:
    """How far the sets of two campaigns are apart: what no model can be nearer than."""
    other = {(row.name, row.mode): row for row in second}
    gaps: dict[str, list[float]] = defaultdict(list)
    for row in first:
        if (twin := other.get((row.name, row.mode))) is None:
            continue
        gaps["watts, %"].append(100 * abs(twin.power_w / row.power_w - 1))
        gaps["saved, points"].append(abs(twin.saved_off - row.saved_off))
        pairs = zip(row.speeds, twin.speeds, strict=True)
        gaps["speeds, %"] += [100 * abs(b / a - 1) for a, b in pairs]
        if row.p99_ms and twin.p99_ms:
            gaps["p99, factor"].append(max(row.p99_ms / twin.p99_ms, twin.p99_ms / row.p99_ms))
    print("| apart | n | median | nine of ten |")
    print("|---|--:|--:|--:|")
    for what, values in gaps.items():
        nine = statistics.quantiles(values, n=10)[-1]
        print(f"| {what} | {len(values)} | {statistics.median(values):.2f} | {nine:.2f} |")


if __name__ == "__main__":
    main()
