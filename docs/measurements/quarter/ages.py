"""Prints how wrong rates are, by how much less older points count in training.

    OMP_NUM_THREADS=1 .venv/bin/python docs/measurements/quarter/ages.py

Good nights of three sites of world.py; on some days a model is fitted to all points so far and
asked for the truth of the day, at all splits of the jobs that are there. Then the same where
neither a job nor the driver changes. Models as in nights.py.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from unittest import mock

import nights
import numpy as np
import world
from world import World, make_world

from advisor.predict.profiles import Floats
from advisor_training.dataset.rows import Rows
from advisor_training.learn.learners import extra_trees, fit
from advisor_training.train import make_training_set

SEEDS, DAYS = (11, 12, 13), (14, 24, 38, 44, 50, 60, 80)

WEIGHTS: Mapping[str, Callable[[Floats], Floats]] = {
    "all alike": np.ones_like,
    "half-life 30 days, a quarter at least": lambda days: np.maximum(0.5 ** (days / 30), 0.25),
    "half-life 30 days": lambda days: 0.5 ** (days / 30),
    "half-life 15 days": lambda days: 0.5 ** (days / 15),
    "half-life 10 days, a tenth at least": lambda days: np.maximum(0.5 ** (days / 10), 0.1),
}


def main() -> None:
    """Both tables."""
    with nights.cheap_models():
        table("as it happens")
        with mock.patch.multiple(world, DRIFT_DAY=999, DRIVER_DAY=999):
            table("nothing changes")


def table(title: str) -> None:
    """Mean error of rates over the sites, %."""
    found = [dict(errors(make_world(seed, 1.0))) for seed in SEEDS]
    print(f"\n| {title}, day | {' | '.join(map(str, DAYS))} |\n| --- |{' --: |' * len(DAYS)}")
    for name in WEIGHTS:
        means = (statistics.fmean(of_site[name, day] for of_site in found) for day in DAYS)
        print(f"| {name} | {' | '.join(f'{mean:.2f}' for mean in means)} |", flush=True)


def errors(site: World) -> Iterator[tuple[tuple[str, int], float]]:
    """By weights and day."""
    limited = [point for truth in site.truths for point in truth.limited]
    truth = make_training_set(limited, site.solos).rows
    first, measured = nights.begun(site)
    points = list(first.pairs)
    for day in range(max(DAYS) + 1):
        if day % nights.EVERY == 0:
            points += nights.campaign(site, day, measured)
        if day in DAYS:
            rows = make_training_set(points, site.solos).rows
            days = np.array([day - int(run.removeprefix("night ")) for run in rows.run], float)
            for name, weight in WEIGHTS.items():
                yield (name, day), error(site, truth, replace(rows, weight=weight(days)), day)


def error(site: World, truth: Rows, rows: Rows, day: int) -> float:
    """Mean error of both rates of all jobs that are there, %."""
    there = np.isin(truth.job_a, list(site.arrived(day)))
    there &= np.isin(truth.job_b, list(site.arrived(day))) & (truth.kind != "uncapped")
    asked = truth.take(there)
    speeds = np.column_stack([asked.speed_a, asked.speed_b])
    jobs = np.column_stack([asked.job_a, asked.job_b])
    today = speeds * np.vectorize(lambda job: site.speed(job, day))(jobs)
    return float(100 * np.abs(np.log(fit(extra_trees, rows)(asked).speed / today)).mean())


if __name__ == "__main__":
    main()
