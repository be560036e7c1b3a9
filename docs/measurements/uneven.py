"""When does an uneven split pay? Gains of the best of the nine splits, of the bundled pairs.

    .venv/bin/python docs/measurements/uneven.py

For each objective: the noise ceiling (the best split of one measurement, scored on another one of
the same pair), in how many pairs an uneven split beats 50/50 by more than that noise, and what the
best of the nine gains over each other way to share, mean and median over pairs. Flagged points are
left out.
"""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from advisor.core.objectives import OBJECTIVES, Objective, SplitResult
from advisor.core.records import DOUBTFUL
from advisor.core.split import EQUAL
from advisor.validity.points import with_pair_flags, with_solo_flags
from advisor_data.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
    select,
)
from advisor_training.noise import best_split, noise_ceiling
from advisor_training.pairs import BASELINES, MeasuredPair, Measurement, make_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What the best of the nine splits gains over a baseline; None where no pair has both.

    Attributes:
        pairs: Pairs in which both were measured.
    """

    pairs: int
    mean_percent: float | None
    median_percent: float | None
    most_percent: float | None
    least_percent: float | None


def main() -> None:
    """Print the table, then what was left out."""
    solos = with_solo_flags([*bundled_solo_points(), *bundled_reference_points()])
    selection = select(with_pair_flags(bundled_pair_points(), solos))
    trusted = [point for point in solos if DOUBTFUL.isdisjoint(point.flags)]
    pairs, left_out = make_pairs(selection.points, trusted)
    print("| objective | noise ceiling | uneven pays | over " + " | over ".join(BASELINES) + " |")
    print("| --- " * (3 + len(BASELINES)) + "|")
    for objective in OBJECTIVES.values():
        print("| " + " | ".join(_cells(pairs, objective)) + " |")
    for flag, count in sorted(selection.left_out.items()):
        print(f"{count} pair points left out: flagged {flag}")
    for one in left_out:
        print(f"{one.points} points left out: {one.reason}")


def _cells(pairs: list[MeasuredPair], objective: Objective) -> list[str]:
    ceiling = noise_ceiling(pairs, objective)
    tie = ceiling.tie if ceiling else 0.0
    uneven = sum(best_split(pair.main.nine, objective, tie) != EQUAL for pair in pairs)
    gains = [gain(pairs, objective, find) for find in BASELINES.values()]
    return [
        objective.name,
        f"{ceiling.mean_percent:.2f} %" if ceiling else "-",
        f"{uneven} of {len(pairs)}",
        *("-" if g.mean_percent is None else f"{g.mean_percent:+.1f}, {g.median_percent:+.1f} %"
          for g in gains),
    ]  # fmt: skip


def gain(
    pairs: Iterable[MeasuredPair],
    objective: Objective,
    baseline: Callable[[Measurement], SplitResult | None],
) -> Gain:
    """The gain over a baseline, one value for each pair that has both and a baseline above 0."""
    both = [
        (max(map(objective.value, measurement.nine.values())), objective.value(result))
        for pair in pairs
        if (found := _first_with(pair, baseline))
        for measurement, result in [found]
    ]
    gains = [100 * (best / value - 1) for best, value in both if value > 0]
    return Gain(
        pairs=len(both),
        mean_percent=statistics.mean(gains) if gains else None,
        median_percent=statistics.median(gains) if gains else None,
        most_percent=max(gains, default=None),
        least_percent=min(gains, default=None),
    )


def _first_with(
    pair: MeasuredPair, baseline: Callable[[Measurement], SplitResult | None]
) -> tuple[Measurement, SplitResult] | None:
    """The fullest measurement that has the baseline: values of two are never compared."""
    for measurement in pair.measurements:
        if result := baseline(measurement):
            return measurement, result
    return None


if __name__ == "__main__":
    main()
