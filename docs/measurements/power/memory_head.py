"""How well is the power of the memory predicted of pairs whose job the model has not seen?

    .venv/bin/python docs/measurements/power/memory_head.py [FILES...]

FILES are points as `advisor data import` takes them (.parquet, .csv, .jsonl); the bundled ones are
always among them. Each job is left out in turn, with all its pairs. Compared are

- head: what `advisor train` would learn, from the profiles of both jobs;
- component fit: a floor, and a weight for the time in which the memory moves data (both jobs alone,
  at most 93 %), least squares of the relative error, none negative;
- mean: the same for all, the geometric mean.

Jobs without which fewer than ten rows are left are not tested. The last line says whether
`advisor train` learns the head from these points, which takes `FEWEST_JOBS`.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from advisor.core.flags import DOUBTFUL
from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import AdvisorError, InputError
from advisor.predict.features import FULL_BANDWIDTH_PERCENT, feature_names_of
from advisor.predict.profiles import Floats
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.files import read_points
from advisor_models.heads import MEMORY_POWER
from advisor_models.intervals import UNCAPPED
from advisor_power.components.least_squares import non_negative_least_squares
from advisor_training.dataset.rows import Rows
from advisor_training.learn.head_learners import FEWEST_JOBS, MEMORY_POWER_LEARNER, is_enough
from advisor_training.learn.learners import extra_trees, fit
from advisor_training.train import make_training_set

AIM, AIM_W = 0.05, 5.0
LEAST_ROWS = 10

Way = Callable[[Rows, Rows], Floats]
"""From the rows that are learned from and those that are asked for to watts; shape (n,)."""


def main(words: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="The memory's power by job left out.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILES")
    try:
        print("\n".join(table(known_rows(parser.parse_args(words).files))))
    except AdvisorError as error:
        parser.error(str(error))


def known_rows(files: Sequence[Path]) -> Rows:
    """Rows of trusted pair points that have the memory's power.

    Raises:
        InputError: there are none.
    """
    bundled = (*bundled_pair_points(), *bundled_solo_points())
    # The same window counts once.
    points = {p.point_id: p for p in (*bundled, *itertools.chain(*map(read_points, files)))}
    pairs = [p for p in points.values() if isinstance(p, PairPoint) and p.memory_power_w]
    pairs = [p for p in pairs if DOUBTFUL.isdisjoint(p.flags)]
    solos = [p for p in points.values() if isinstance(p, SoloPoint)]
    if not pairs:
        raise InputError("no pair point has the power of the memory (memory_power_w)")
    rows = make_training_set(pairs, solos, list(bundled_reference_points())).rows
    return rows.take(MEMORY_POWER_LEARNER.is_known(rows))


def table(rows: Rows) -> Iterator[str]:
    """Markdown, and what `advisor train` makes of it."""
    errors_w = {name: errors_of(rows, way) for name, way in WAYS.items()}
    yield "| by job left out | jobs | rows | mean error, % | median | 90 % within | W | in aim |"
    yield "| --- |" + " --- |" * 7
    for name, found in errors_w.items():
        for where in ("all", *sorted(set(rows.gpu_model.tolist()))):
            yield _line(rows, name, where, found)
    kinds = {"with limits": rows.kind != UNCAPPED, "without": rows.kind == UNCAPPED}
    counts = ", ".join(f"{len(rows.take(k).jobs)} jobs {name}" for name, k in kinds.items())
    learned = "learned" if is_enough(rows, MEMORY_POWER_LEARNER) else "not learned"
    pairs = len(set(rows.pair.tolist()))
    yield f"\n{pairs} pairs, {counts}; the head is {learned}: it takes {FEWEST_JOBS} jobs of each"


def errors_of(rows: Rows, way: Way) -> Mapping[str, tuple[Floats, Floats]]:
    """By job: expected less measured and measured, W; by a way that never saw the job."""
    found: dict[str, tuple[Floats, Floats]] = {}
    for job in rows.jobs:
        known, asked = rows.take(~rows.of(job)), rows.take(rows.of(job))
        if len(known) >= LEAST_ROWS:
            found[job] = (way(known, asked) - asked.memory_power_w, asked.memory_power_w)
    return found


def head(known: Rows, asked: Rows) -> Floats:
    """The learner of the model."""
    regressor = fit(extra_trees, known, [MEMORY_POWER_LEARNER]).by_head[MEMORY_POWER.name]
    seen = asked.heads[MEMORY_POWER.name]
    return np.exp(regressor.predict(seen.features[:, 0])) * seen.prior[:, 0]


def component_fit(known: Rows, asked: Rows) -> Floats:
    """A floor and a weight."""
    rows = _terms(known) / known.memory_power_w[:, None]
    return _terms(asked) @ non_negative_least_squares(rows, np.ones(len(rows)))


def mean(known: Rows, asked: Rows) -> Floats:
    """Of what was learned from."""
    return np.full(len(asked), np.exp(np.log(known.memory_power_w).mean()))


WAYS: Mapping[str, Way] = {"head": head, "component fit": component_fit, "mean": mean}


def _terms(rows: Rows) -> Floats:
    column = feature_names_of(MEMORY_POWER.features_of).index("sum_dram_active_percent")
    active = rows.heads[MEMORY_POWER.name].features[:, 0, column].astype(np.float64)
    return np.column_stack([np.ones(len(rows)), np.minimum(active, FULL_BANDWIDTH_PERCENT) / 100])


def _line(rows: Rows, name: str, where: str, found: Mapping[str, tuple[Floats, Floats]]) -> str:
    """One way, over all rows or those of a GPU model."""
    kept = {job: rows.take(rows.of(job)).gpu_model for job in found}
    masks = {job: (models == where) | (where == "all") for job, models in kept.items()}
    off_w = np.concatenate([found[job][0][mask] for job, mask in masks.items()])
    true_w = np.concatenate([found[job][1][mask] for job, mask in masks.items()])
    size = 100 * np.abs(off_w) / true_w
    jobs = sum(bool(mask.any()) for mask in masks.values())
    within = np.abs(off_w) <= np.maximum(AIM * true_w, AIM_W)
    return (
        f"| {name}, {where} | {jobs} | {len(size)} | {size.mean():.1f} | {np.median(size):.1f} | "
        f"{np.quantile(size, 0.9):.1f} | {np.abs(off_w).mean():.1f} | {100 * within.mean():.0f} % |"
    )


if __name__ == "__main__":
    main()
