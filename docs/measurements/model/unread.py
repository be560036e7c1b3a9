"""Prints whether points whose results nobody read help to predict points that can be trusted.

    .venv/bin/python docs/measurements/model/unread.py

Each job is left out in turn. Tested are always the same points, which no flag speaks against.
Learned from are these alone ("read"), or those flagged `results-unread` as well ("all"); from
measurements with enough of the nine splits for an oracle ("in full"), or from every one. The second
table is of profiles: how far a straight line over the gap of 12 to 66 SMs, which unread points
would leave, misses jobs at 34 SMs, where they are known on an H100. Takes a minute on one core.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.core.flags import DOUBTFUL, UNREAD, WRONG
from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor.core.records import PairPoint, SoloPoint
from advisor.decide.recommend import TIE
from advisor.predict.profiles import make_profiles
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_training.dataset.pairs import make_pairs
from advisor_training.dataset.rows import SOME, Rows, make_rows
from advisor_training.described import LEARNER
from advisor_training.learn.held_out import HeldOut, joined, predicted
from advisor_training.learn.learners import LEARNERS
from advisor_training.learn.scoring import fractions, power_errors, speed_errors

BOOTSTRAPS = 2000


def main() -> None:
    """Both tables."""
    solos = [p for p in bundled_solo_points() if WRONG.isdisjoint(p.flags)]
    likely = [p for p in bundled_pair_points() if (DOUBTFUL - {UNREAD}).isdisjoint(p.flags)]
    read = [p for p in likely if UNREAD not in p.flags]
    test = rows_of(read, solos, full=False)
    print("| learned from | rows | pairs | oracle, % | rates, % | power, % | power against last |")
    print("|" + " --- |" * 7)
    chosen = answers(test, test)
    sets = {
        "all, measured in full": rows_of(likely, solos, full=True),
        "read, measured in full": rows_of(read, solos, full=True),
        "all": rows_of(likely, solos, full=False),
        "read": test,
    }
    for name, train in sets.items():
        tell(name, train, test, answers(train, test), chosen)
    print()
    gaps(solos)


def rows_of(points: Sequence[PairPoint], solos: Sequence[SoloPoint], *, full: bool) -> Rows:
    """Points as a learner takes them; profiles are the same whatever is learned from."""
    references = [*bundled_reference_points(), *solos]
    return make_rows(make_pairs(points, references, full=full)[0], make_profiles(solos))


def answers(train: Rows, test: Rows) -> HeldOut:
    """What is expected of the tested rows of each job by a learner that has not seen it."""
    parts = (
        predicted(LEARNERS[LEARNER](train.take(~train.of(job))), test, test.of(job), job)
        for job in test.jobs
    )
    return joined(list(parts))


def tell(name: str, train: Rows, test: Rows, found: HeldOut, last: HeldOut) -> None:
    """One line: fraction of the oracle at full measurements, errors at all limited splits."""
    worth = 100 * fractions(test, found, OBJECTIVES[DEFAULT_OBJECTIVE], TIE)
    rates = 100 * np.concatenate([speed_errors(test, found, kind) for kind in ("nine", SOME)])
    powers = [
        100 * np.concatenate([power_errors(test, each, kind) for kind in ("nine", SOME)])
        for each in (found, last)
    ]
    row = [found.row[test.kind[found.row] == kind] for kind in ("nine", SOME)]
    pairs = test.pair[np.concatenate(row)]
    low, high = interval(powers[0] - powers[1], pairs)
    cells = (
        str(len(train)),
        str(len(np.unique(train.pair))),
        f"{worth.mean():.2f}, least {worth.min():.1f}",
        f"{rates.mean():.2f}",
        f"{powers[0].mean():.2f}",
        f"{(powers[0] - powers[1]).mean():+.2f} ({low:+.2f} to {high:+.2f})",
    )
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def interval(values: Any, pairs: Any) -> tuple[float, float]:
    """95 % of the means over pairs drawn with replacement."""
    random = np.random.default_rng(0)
    names = np.unique(pairs)
    sums = np.array([values[pairs == name].sum() for name in names])
    counts = np.array([(pairs == name).sum() for name in names])
    drawn = random.integers(len(names), size=(BOOTSTRAPS, len(names)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def gaps(solos: Sequence[SoloPoint]) -> None:
    """A half-precision job at 34 SMs of an H100, from points that H200 profiles have."""
    headings = ("H100: 12, 66", "H200: 12, 66", "H200: 26, 38, unread")
    print(f"| at 34 SMs of an H100, rate and power off by | {' | '.join(headings)} |")
    print("| --- | --- | --- | --- |")
    sweeps: dict[tuple[str, str], dict[int, SoloPoint]] = {}
    for point in solos:
        sweeps.setdefault((point.job, point.gpu_model[:11]), {})[point.units_granted or 0] = point
    for job in sorted({p.job for p in solos if UNREAD in p.flags}):
        h200, h100 = sweeps.get((job, "NVIDIA H200"), {}), sweeps.get((job, "NVIDIA H100"), {})
        if 34 in h100 and {26, 38} <= h200.keys():
            cells = [
                off(h100[34], h100[132], found, counts)
                for found, counts in ((h100, (12, 66)), (h200, (12, 66)), (h200, (26, 38)))
            ]
            print(f"| {job} | {' | '.join(cells)} |")


def off(
    known: SoloPoint, whole: SoloPoint, found: dict[int, SoloPoint], counts: tuple[int, int]
) -> str:
    """How far a line between two counts is from the known point, relative to the whole GPU."""
    texts: list[str] = []
    for name in ("rate", "power_w"):
        ends = [getattr(found[count], name) / getattr(found[132], name) for count in counts]
        there = getattr(known, name) / getattr(whole, name)
        line = float(np.interp(known.units_granted or 0, counts, ends))
        texts.append(f"{100 * (line / there - 1):+.1f} %")
    return ", ".join(texts)


if __name__ == "__main__":
    main()
