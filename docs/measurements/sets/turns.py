"""What jobs keep of their speed in turns, by several rules: how far off each is.

    python docs/measurements/sets/turns.py

Of all bundled windows in turns, sets and pairs: mean errors in points of the speed alone, of each
rule fitted to all of them, and to those without the job, the set or the card that is judged; then
with each card (and host) counting the same, and with the windows of the host that is unlike all
others (sets-3-sliced.jsonl, which are not bundled); then of those all of whose jobs had GPU busy
read, each time fitted to those; last watts. Where GPU busy was not read it is the job's SM activity
times the median of GPU busy over SM activity of its other windows. The second table is what small
jobs kept on each card, and the median of the GPU busy of all jobs of their windows, added up.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from fitting import active, by_turns, small, watts
from rows import Campaign, Part, Row, measured_rows, pairs_in_turns, rows_of

from advisor.core.gpu import WHOLE
from advisor.core.records import PairPoint
from advisor.predict.profiles import Floats
from advisor.predict.set_law import ACTIVE_IDLE_OVER_W, turns
from advisor_data.bundled import bundled_set_references
from advisor_data.files import read_points

Group = Callable[[Row], object]

POWERS = tuple(power / 20 for power in range(4, 31))
PARTS = tuple(part / 20 for part in range(1, 21))
NONE = (1.0,)


@dataclass(frozen=True, slots=True)
class Rule:
    """What jobs of a window keep by one constant, shape (jobs, 1)."""

    kept: Callable[[Row, float], Floats]
    constants: Sequence[float]


def dealt(busy: Floats) -> Floats:
    """Equal turns, none longer than the job is busy, and nothing lost."""
    none = np.zeros_like(busy)
    return turns(busy, none, none, 1.0)


def no_demand(row: Row, part: float) -> Floats:
    """The part that jobs without a demand keep; servers keep all."""
    return np.where(row.column(lambda p: p.serves), 1.0, part)


def half_way(row: Row) -> Floats:
    """From an equal part to all, of small jobs: the law until 2026-11-27."""
    return np.where(small(row), (1 + 1 / len(row.parts)) / 2, 1.0)


RULES = {
    "all of it": Rule(lambda row, _: np.ones((len(row.parts), 1)), NONE),
    "SM activity to a power": Rule(lambda row, k: dealt(active(row) ** k), POWERS),
    "GPU busy": Rule(lambda row, _: dealt(busy(row)), NONE),
    "the larger of both": Rule(
        lambda row, k: dealt(np.maximum(active(row) ** k, busy(row))), POWERS
    ),
    "GPU busy, a part": Rule(lambda row, part: dealt(busy(row)) * no_demand(row, part), PARTS),
    "SM activity, a part": Rule(lambda row, part: dealt(active(row)) * no_demand(row, part), PARTS),
    "small ones half way from an Nth": Rule(
        lambda row, part: dealt(active(row)) * no_demand(row, part) * half_way(row), PARTS
    ),
    "the law": Rule(lambda row, part: by_turns(part)(row), PARTS),
}


def main() -> None:
    """Print both tables."""
    rows = [row for row in measured_rows(__doc__) if row.mode == "time-sliced"] + pairs_in_turns()
    every = [*rows, *unlike()]
    read = [row for row in rows if all(part.whole.gpu_busy_percent for part in row.parts)]
    print(f"{len(rows)} windows of {sum(len(row.parts) for row in rows)} jobs on", end=" ")
    print(f"{len({row.gpu_uuid for row in rows})} cards; {len(every)}; {len(read)} with GPU busy\n")
    print("| in turns, points | by | all | job | set | card | cards | with | read | watts, % |")
    print(f"|---|{'--:|' * 9}")
    for name, rule in RULES.items():
        constant = best(rule, rows)
        offs = (*judged(rule, rows), *map_of(rule, (every, read)), of_watts(rule, rows, constant))
        cells = [f"{100 * off:.1f}" for off in offs]
        by = constant if len(rule.constants) > 1 else ""
        print(f"| {name} | {by} | {' | '.join(cells)} |")
    of_small(every)


def unlike() -> list[Row]:
    """The windows of the host where small jobs kept all of their speed in turns."""
    file = Path(__file__).with_name("sets-3-sliced.jsonl")
    windows = tuple(point for point in read_points(file) if isinstance(point, PairPoint))
    first = windows[0]
    alone = tuple(point for point in bundled_set_references() if point.run == first.run)
    return rows_of(Campaign(first.run, first.gpu_model, first.gpu_uuid, windows, alone))


def judged(rule: Rule, rows: Sequence[Row]) -> Iterator[float]:
    """Mean error of all jobs; without the job, the set and the card; and of cards alike."""
    constant = best(rule, rows)
    offs = [(row.gpu_uuid, missed(rule, row, constant)) for row in rows]
    yield mean([own for _, own in offs])
    yield mean([*jobs_left_out(rule, rows)])
    yield mean([*left_out(rule, rows, lambda row: row.text)])
    yield mean([*left_out(rule, rows, lambda row: row.gpu_uuid)])
    cards = defaultdict[str, list[Floats]](list)
    for card, own in offs:
        cards[card].append(own)
    yield statistics.fmean(map(mean, cards.values()))


def map_of(rule: Rule, parts: Sequence[Sequence[Row]]) -> Iterator[float]:
    """Of some windows, the rule fitted to them alone."""
    for rows in parts:
        constant = best(rule, rows)
        yield mean([missed(rule, row, constant) for row in rows])


def of_watts(rule: Rule, rows: Sequence[Row], constant: float) -> float:
    """Mean error of the watts, relative."""
    kept = [(row, rule.kept(row, constant)) for row in rows]
    return statistics.fmean(abs(watts(r, k, ACTIVE_IDLE_OVER_W) / r.power_w - 1) for r, k in kept)


def jobs_left_out(rule: Rule, rows: Sequence[Row]) -> Iterator[Floats]:
    """Errors of each job by the windows without it."""
    for job in sorted({job for row in rows for job in row.jobs}):
        constant = best(rule, [row for row in rows if job not in row.jobs])
        for row in rows:
            own = [part.whole.job == job for part in row.parts]
            yield missed(rule, row, constant)[own]


def left_out(rule: Rule, rows: Sequence[Row], group: Group) -> Iterator[Floats]:
    """Errors of the windows of each group by those of the others."""
    for key in sorted({str(group(row)) for row in rows}):
        constant = best(rule, [row for row in rows if group(row) != key])
        yield from (missed(rule, row, constant) for row in rows if group(row) == key)


def best(rule: Rule, rows: Sequence[Row]) -> float:
    """The constant with the smallest mean error."""
    return min(rule.constants, key=lambda c: sum(float(missed(rule, row, c).sum()) for row in rows))


def missed(rule: Rule, row: Row, constant: float) -> Floats:
    """Errors of its jobs; shape (jobs,)."""
    return np.abs(rule.kept(row, constant) - row.column(lambda part: part.speed))[:, 0]


def mean(offs: Sequence[Floats]) -> float:
    """Over all jobs."""
    return float(np.concatenate(offs).mean())


def busy(row: Row) -> Floats:
    """GPU busy of each job alone; shape (jobs, 1)."""
    return row.column(_busy)


def _busy(part: Part) -> float:
    if part.whole.gpu_busy_percent:
        return part.whole.gpu_busy_percent / WHOLE
    return min(1.0, part.activity() * ratios().get(part.whole.job, 1.0))


@cache
def ratios() -> dict[str, float]:
    """GPU busy over SM activity of each job, on the whole GPU."""
    found = defaultdict[str, list[float]](list)
    for point in bundled_set_references():
        if point.share_percent == WHOLE and point.gpu_busy_percent and point.sm_active_percent:
            found[point.job].append(point.gpu_busy_percent / point.sm_active_percent)
    return {job: statistics.median(own) for job, own in found.items()}


def of_small(rows: Sequence[Row]) -> None:
    """Print what small jobs kept, by card."""
    found = defaultdict[tuple[str, str], list[tuple[float, float]]](list)
    for row in rows:
        for speed in row.column(lambda part: part.speed)[small(row) > 0].tolist():
            found[row.gpu_model, row.gpu_uuid].append((speed, float(busy(row).sum())))
    print(f"\n| card | small jobs | least | median | most | GPU busy |\n|---|{'--:|' * 5}")
    for (model, _), own in sorted(found.items()):
        kept, of_all = zip(*own, strict=True)
        cells = (f"{of(kept):.2f}" for of in (min, statistics.median, max))
        print(f"| {model} | {len(own)} | {' | '.join(cells)} | {statistics.median(of_all):.2f} |")


if __name__ == "__main__":
    main()
