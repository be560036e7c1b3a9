"""Prints how much a launch should count in training, against a measured split.

    .venv/bin/python docs/measurements/model/observed_weight.py

Two questions, each with weights 0, 0.25, 0.5 and 1; weight 0 learns from measured pairs alone. The
errors are relative; behind them stand their differences from weight 0, in points, with 95 %
intervals over jobs drawn again. Below 0 is better.

Recorded launches: those of ../launch-pairs.json and ../same-work.json that can teach, beside all
bundled pairs. Tested on launches whose pair was left out, their card seen in other launches; and on
launches whose card was left out, pairs of other cards seen.

Measured pairs that are made like launches: half of the pairs keep all that was measured of them,
of each of the others one window is left, at one split, on one of three cards whose power is off by
a draw of the spread between cards (`CARD_SPREAD`). Tested on all that was measured of jobs that
were left out; and on the other splits of the launched pairs. Several halves are drawn. Takes about
ten minutes on one core.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from advisor.core.observations import Observation, ObservedPart
from advisor.core.records import PairPoint
from advisor.formats.rows import from_row
from advisor.predict.profiles import Floats
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.checked import checked_counts
from advisor_data.files.dataset import select
from advisor_training.dataset.observed import teach
from advisor_training.dataset.rows import Rows
from advisor_training.dataset.split_kinds import kinds_of
from advisor_training.evaluation.data import make_data
from advisor_training.learn.bootstrap import Resamples
from advisor_training.learn.head_learners import CARD_SPREAD
from advisor_training.learn.held_out import HeldOut, Mask, joined, predicted
from advisor_training.learn.learners import extra_trees, fit

MEASUREMENTS = Path(__file__).resolve().parents[1]
WEIGHTS = (0.0, 0.25, 0.5, 1.0)
HALVES, HALVES_OF_JOBS, CARDS = 10, 3, 3
LONG_S = 60.0

Fold: TypeAlias = tuple[str, Mask, Mask]
"""A name, the rows that are learned from, and those that are tested."""

Errors: TypeAlias = dict[str, list[Floats]]
"""By quantity, an array over the tested values for each set of rows."""


def main() -> None:
    """A table for each question."""
    pairs = select(bundled_pair_points()).points
    launches = teach(recorded(), bundled_solo_points(), CHECKS)
    print(f"{len(launches.points)} of {sum(1 for _ in recorded())} recorded launches teach;")
    for item in launches.left_out:
        print(f"  {item.points} {item.reason}")
    rows = rows_of([*pairs, *launches.points])
    tell("launches of pairs that were left out", [(rows, list(by(rows, pair_names(rows))))])
    tell("launches on cards that were left out", [(rows, list(by(rows, rows.card)))])
    halves = [half(pairs, number) for number in range(HALVES)]
    sets = [(rows, [other_splits(rows)]) for rows in halves]
    tell("other splits of launched pairs", sets)
    tell("jobs that were left out", [(r, list(jobs_left_out(r))) for r in halves[:HALVES_OF_JOBS]])


def recorded() -> Iterator[Observation]:
    """What was observed in each recorded launch."""
    for name in ("launch-pairs.json", "same-work.json"):
        for launch in json.loads((MEASUREMENTS / name).read_text("utf-8")):
            seen: dict[str, Any] = launch.get("observed", launch)
            more = ("recommended", "door", "jobs_at_unsafe_counts")
            yield from_row(Observation, {k: v for k, v in seen.items() if k not in more})


def half(pairs: Sequence[PairPoint], seed: int) -> Rows:
    """All measured pairs, and one window of half of them as a launch on another card."""
    random = np.random.default_rng(seed)
    kinds = kinds_of(pairs)
    nine: dict[tuple[str, ...], list[PairPoint]] = {}
    for point, kind in zip(pairs, kinds, strict=True):
        if kind == "nine":
            nine.setdefault((*point.jobs, point.gpu_model), []).append(point)
    names = sorted(nine)
    chosen = random.permutation(len(names))[: len(names) // 2]
    powers = np.exp(CARD_SPREAD * random.standard_normal(CARDS))
    seen = [
        launched(nine[names[n]][random.integers(len(nine[names[n]]))], card, float(powers[card]))
        for n, card in zip(chosen.tolist(), random.integers(0, CARDS, len(chosen)), strict=True)
    ]
    return rows_of([*pairs, *teach(seen, ()).points])


def launched(point: PairPoint, card: int, power: float) -> Observation:
    """What a launch would have kept of a window, on a card that draws so many times the power."""
    ours = {"job", "share_percent", "units", "rate", "rate_unit", "results"}
    return Observation(
        launch_id=point.point_id,
        parts=tuple(
            ObservedPart(**{name: getattr(part, name) for name in ours}) for part in point.parts
        ),
        gpu_model=point.gpu_model,
        gpu_uuid=f"GPU-launches-{card}",
        units_total=point.units_total,
        mode=point.mode,
        power_w=power * (point.power_w or 0),
        overlap_s=LONG_S,
        state="finished",
        started_at=point.started_at,
    )


def rows_of(points: Sequence[PairPoint]) -> Rows:
    """Of these pairs, with the bundled profiles and references."""
    return make_data(points, bundled_solo_points(), bundled_reference_points()).rows


def of_launches(rows: Rows) -> Mask:
    """Which rows are of launches."""
    return np.char.startswith(rows.run, "launches on ")


def by(rows: Rows, groups: Any) -> Iterator[Fold]:
    """Each group of launches, learned from everything measured and all other launches."""
    ours = of_launches(rows)
    for group in np.unique(groups[ours]):
        tested = ours & (groups == group)
        yield str(group), ~tested, tested


def pair_names(rows: Rows) -> Any:
    """Both jobs of each row."""
    return np.char.add(np.char.add(rows.job_a, " + "), rows.job_b)


def launched_pairs(rows: Rows) -> Mask:
    """Which rows are of pairs that were launched."""
    return np.isin(rows.pair, rows.pair[of_launches(rows)])


def other_splits(rows: Rows) -> Fold:
    """What was measured of launched pairs, learned from the other pairs and the launches."""
    ours, theirs = of_launches(rows), launched_pairs(rows)
    at = list(zip(rows.pair.tolist(), rows.share_a.tolist(), rows.share_b.tolist(), strict=True))
    taught = {at[n] for n in np.flatnonzero(ours).tolist()}
    new = np.array([place not in taught for place in at])
    return "launched", ours | ~theirs, ~ours & theirs & new & (rows.kind == "nine")


def jobs_left_out(rows: Rows) -> Iterator[Fold]:
    """Each job, learned from half of the pairs and from launches, neither with the job."""
    ours, theirs = of_launches(rows), launched_pairs(rows)
    for job in rows.jobs:
        learned = (ours | ~theirs) & ~rows.of(job)
        yield job, learned, ~ours & rows.of(job) & (rows.kind == "nine")


def answers(rows: Rows, folds: Iterable[Fold], weight: float) -> HeldOut:
    """What is expected of the tested rows, where launches count so much."""
    ours = of_launches(rows)
    weighed = dataclasses.replace(rows, weight=np.where(ours, weight, 1.0))
    return joined(
        [
            predicted(
                fit(extra_trees, weighed.take(learned & ~ours if weight == 0 else learned)),
                rows, tested, name,
            )
            for name, learned, tested in folds
            if tested.any()
        ]
    )  # fmt: skip


def errors(rows: Rows, found: HeldOut) -> tuple[Floats, Floats]:
    """|expected / measured - 1| of both speeds, mean of the row; and of the power."""
    measured = np.column_stack([rows.speed_a, rows.speed_b])[found.row]
    speeds = np.abs(found.speed / np.maximum(measured, 1e-4) - 1).mean(axis=1)
    return speeds, np.abs(found.power_w / rows.power_w[found.row] - 1)


def tell(what: str, sets: Sequence[tuple[Rows, Sequence[Fold]]]) -> None:
    """One table: the mean errors by weight, and what they are less than without launches."""
    by_weight: dict[float, list[tuple[Floats, Floats]]] = {}
    pairs: list[tuple[str, str]] = []
    for weight in WEIGHTS:
        by_weight[weight] = []
        for rows, folds in sets:
            found = answers(rows, folds, weight)
            by_weight[weight].append(errors(rows, found))
            if weight == WEIGHTS[0]:
                names = zip(rows.job_a[found.row], rows.job_b[found.row], strict=True)
                pairs += [(str(a), str(b)) for a, b in names]
    drawn = Resamples(pairs)
    print(f"\nTested on {what}: {len(pairs)} rows\n")
    print("| weight | rates, % | less weight 0 | power, % | less weight 0 |\n|" + " --- |" * 5)
    base = [np.concatenate(of) for of in zip(*by_weight[0.0], strict=True)]
    for weight in WEIGHTS:
        found = [np.concatenate(of) for of in zip(*by_weight[weight], strict=True)]
        cells = [
            f"{100 * now.mean():.2f} | {drawn.mean(100 * (now - before))}"
            for now, before in zip(found, base, strict=True)
        ]
        print(f"| {weight:g} | {' | '.join(cells)} |", flush=True)


CHECKS = {
    name: found
    for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
    if (found := checked_counts(MEASUREMENTS, name))
}
"""Of the counts, as they come with advisor."""

if __name__ == "__main__":
    main()
