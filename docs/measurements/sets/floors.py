"""How often sets that are expected to keep a minimum speed of 0.4 did, by what decides.

    python docs/measurements/sets/floors.py [RUN ...] [--gpu-model H200]

Campaigns are as rows.py has them. Of measured sets of three jobs and more, by way of sharing and
jobs that fill: how many are expected to keep it, at their expected speeds and at their low ends,
and how many of those had a job below, as the law stands (it was fitted to these sets). Then what
one limit gave where one job fills, of sets of two and more that one card measured both ways:
medians.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from measured import bundled_profiles, profile_of, window_of
from rows import Row, measured_rows

from advisor.core.records import FILLS_PERCENT
from advisor.core.split import ADVISED_JOBS
from advisor.predict.profiles import Profile
from advisor.predict.sets import SetPredictor
from advisor.settings import MIN_SPEED


@dataclass(frozen=True, slots=True)
class Slowest:
    """Speed of the slowest job: expected, at the low end, and measured."""

    expected: float
    low: float
    measured: float


def main() -> None:
    """Print the table."""
    bundled = bundled_profiles()
    found: dict[tuple[str, int], list[Slowest]] = defaultdict(list)
    rows = measured_rows(__doc__)
    for row in rows:
        if len(row.parts) > ADVISED_JOBS:
            found[row.mode, row.fill].append(slowest(row, bundled))
    print("| sharing | fill | sets | kept | expected to | of these not | low ends | of these not |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for (mode, fill), sets in sorted(found.items()):
        columns = [len(sets), sum(s.measured >= MIN_SPEED for s in sets)]
        for chosen in (
            [s for s in sets if s.expected >= MIN_SPEED],
            [s for s in sets if s.low >= MIN_SPEED],
        ):
            columns += [len(chosen), sum(s.measured < MIN_SPEED for s in chosen)]
        print(f"| {mode} | {fill} | {' | '.join(map(str, columns))} |")

    print("\n| limits | sets | energy saved, off | slowest job | small jobs | longest p99, ms |")
    print("|---|--:|--:|--:|--:|--:|")
    ways: dict[tuple[str, ...], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        if row.fill == 1 and row.mode != "time-sliced":
            ways[row.gpu_uuid, *sorted(part.whole.job for part in row.parts)][row.mode] = row
    both = [of_set for of_set in ways.values() if len(of_set) == 2]
    for mode in ("uncapped", "limits"):
        print(f"| {mode} | {len(both)} | {' | '.join(measured([of[mode] for of in both]))} |")


def measured(rows: Sequence[Row]) -> Iterator[str]:
    """Medians over sets: energy saved, speeds, and tails."""
    apart_w = [sum(p.speed * (p.whole.power_w or 0) for p in row.parts) for row in rows]
    saved = [1 - row.power_w / w for row, w in zip(rows, apart_w, strict=True)]
    yield f"{100 * statistics.median(saved):.0f} %"
    yield f"{statistics.median(min(p.speed for p in row.parts) for row in rows):.2f}"
    parts = [part for row in rows for part in row.parts]
    small = [p.speed for p in parts if (p.whole.sm_active_percent or 0.0) < FILLS_PERCENT]
    yield f"{statistics.median(small):.2f}"
    tails = [max((p.p99_ms for p in row.parts if p.p99_ms), default=None) for row in rows]
    yield f"{statistics.median(tail for tail in tails if tail):.0f}"


def slowest(row: Row, bundled: dict[str, Profile]) -> Slowest:
    """Of one set."""
    profiles = [profile_of(part, bundled) for part in row.parts]
    (said,) = SetPredictor().predict(profiles, [window_of(row).split])
    return Slowest(
        expected=min(part.speed.value for part in said.parts),
        low=min(part.speed.low for part in said.parts),
        measured=min(part.speed for part in row.parts),
    )


if __name__ == "__main__":
    main()
