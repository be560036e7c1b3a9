"""Prints how good the model is on a GPU model that it has not learned from.

    .venv/bin/python docs/measurements/model/other_card.py pairs.parquet solo.parquet

learns from the bundled points and from those of the files, leaves each GPU model out in turn, and
the tested job as well, then adds pairs of it. Brackets are 95 % intervals of the mean by a
bootstrap over measured pairs. Takes about a minute for each GPU model on one core.

Without files, and where all points are of one GPU model, each run is left out with every point of
its cards: the nearest thing to another GPU that there is, and where the widening of
`advisor_training.learn.head_learners` comes from.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from advisor.decide.recommend import TIE
from advisor.predict.profiles import Floats
from advisor_cli.learn.measured import read_measured
from advisor_training.described import LEARNER
from advisor_training.evaluation.choices import QUESTIONS, choose
from advisor_training.evaluation.data import Data, make_data
from advisor_training.learn.carrying_over import (
    Carried,
    add_pairs,
    carry_over,
    gpu_models,
    mean_held,
    widenings,
)
from advisor_training.learn.held_out import HeldOut, Mask, joined
from advisor_training.learn.learners import LEARNERS
from advisor_training.train import SCORED

BOOTSTRAPS = 2000

HEADINGS = (*SCORED, "rates, %", "power, %", "speed held, %", "power held, %")


def main() -> None:
    """Both tables."""
    files = [Path(name) for name in sys.argv[1:]]
    if len(files) not in (0, 2):
        sys.exit("give a file of pair points and a file of solo points, or none")
    measured = read_measured(*(files or (None, None)), with_bundled=True)
    data = make_data(measured.pairs, measured.profiled, measured.references)
    left_out = {name: data.rows.gpu_model == name for name in gpu_models(data.rows)} or dict(
        runs(data)
    )
    learner = LEARNERS[LEARNER]
    found = {name: carry_over(data.rows, mask, name, learner) for name, mask in left_out.items()}
    print(f"| left out | learned pairs | pairs | {' | '.join(HEADINGS)} | wider by |")
    print("|" + " --- |" * (4 + len(HEADINGS)))
    for name, carried in found.items():
        pairs = len(np.unique(data.rows.pair[carried.held_out.row]))
        wider = " and ".join(f"{w:.2f}" for w in widenings(carried, data.rows).values())
        cells = cells_of(data, carried, [carried.held_out])
        print(f"| {name} | {carried.learned_pairs} | {pairs} | {' | '.join(cells)} | {wider} |")
    print(f"\n| left out | pairs added | {' | '.join(HEADINGS)} |")
    print("|" + " --- |" * (2 + len(HEADINGS)))
    for name, carried in found.items():
        for added in add_pairs(data.rows, left_out[name], learner):
            cells = cells_of(data, carried, added.held_out)
            print(f"| {name} | {added.pairs} | {' | '.join(cells)} |", flush=True)


def runs(data: Data) -> Iterator[tuple[str, Mask]]:
    """Rows of each run and of every card that it has."""
    cards = np.array([m.gpu_uuid for m in data.measurements])[data.rows.measurement]
    names = np.array([m.run for m in data.measurements])[data.rows.measurement]
    for name in np.unique(names):
        yield f"run {name} with its cards", np.isin(cards, np.unique(cards[names == name]))


def cells_of(
    data: Data, carried: Carried, draws: "list[HeldOut] | tuple[HeldOut, ...]"
) -> list[str]:
    """One cell for each heading."""
    rows, held_out = data.rows, joined(list(draws))
    nine = rows.kind[held_out.row] == "nine"
    row = held_out.row[nine]
    rates = [
        np.abs(expected[nine] / measured[row] - 1)
        for expected, measured in zip(held_out.speed.T, (rows.speed_a, rows.speed_b), strict=True)
    ]
    both = np.concatenate(rates)
    known = np.isfinite(both)
    power = np.abs(held_out.power_w[nine] / rows.power_w[row] - 1)
    pairs = rows.pair[row]
    held = mean_held(carried, rows, draws)
    return [
        *(fraction(data, held_out, objective) for objective in SCORED),
        interval(both[known], np.tile(pairs, 2)[known]),
        interval(power, pairs),
        *(f"{100 * part:.1f}" for part in held.values()),
    ]


def fraction(data: Data, held_out: HeldOut, objective: str) -> str:
    """Mean fraction of the oracle."""
    found = choose(data, held_out, QUESTIONS[objective], TIE)
    numbers = {m: int(data.rows.pair[data.rows.measurement == m][0]) for m in
               {choice.number for choice in found}}  # fmt: skip
    parts = np.array([choice.fraction for choice in found])
    return interval(parts, np.array([numbers[choice.number] for choice in found]))


def interval(values: Floats, pairs: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> str:
    """Mean in percent, and its interval where pairs are drawn with replacement."""
    names, place = np.unique(pairs, return_inverse=True)
    sums, counts = np.bincount(place, values), np.bincount(place)
    random = np.random.default_rng(0)
    drawn = random.integers(0, len(names), (BOOTSTRAPS, len(names)))
    means = 100 * sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{100 * values.mean():.2f} [{low:.2f} {high:.2f}]"


if __name__ == "__main__":
    main()
