"""How long placements take, and what they gain, on made-up clusters of up to 20,000 jobs.

    .venv/bin/python docs/measurements/place_speed.py

The types are bundled profiles with jitter, which nobody measured: the seconds count, not the gains.
The model in use predicts every pair of types; the same predictions serve all clusters of so many
types. GPUs are there for six of ten jobs; jobs come in random order.
"""

import dataclasses
import time
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from advisor.place import Placement, Problem, make_problem, value
from advisor.place_options import (
    JobType,
    PairOptions,
    job_type,
    mean_idle_power_w,
    predict_options,
)
from advisor.place_rules import first_come, greedy
from advisor.place_solver import place
from advisor.profiles import Profile, make_profiles
from advisor.settings import read_settings
from advisor_data.bundled import bundled_solo_points
from advisor_models.registry import Registry

JITTER = 0.1
"""Standard deviation of the logarithm of what a made-up type differs in from a measured one."""

GPUS_FOR_A_JOB = 0.6

CLUSTERS = ((25, (500,)), (50, (1000,)), (100, (2000, 5000, 10_000, 20_000)), (200, (4000,)))
"""Types, and jobs of them."""


def main() -> None:
    """Print a line for each cluster."""
    real = list(make_profiles(bundled_solo_points()).values())
    predictor = Registry(read_settings().home / "models").open_champion()
    print("types   jobs   GPUs  predict s  solve s     gap  over greedy  over first come")
    for count, sizes in CLUSTERS:
        dice = np.random.default_rng(0)
        profiles = [jittered(real[n % len(real)], n, dice) for n in range(count)]
        started = time.perf_counter()
        options = predict_options(profiles, predictor)
        predicted_s = time.perf_counter() - started
        for jobs in sizes:
            print(line(profiles, options, jobs, predicted_s, dice), flush=True)


def jittered(profile: Profile, number: int, dice: np.random.Generator) -> Profile:
    """A job like a measured one: other counters and power, and a rate that scales otherwise."""
    values = {name: v * np.exp(dice.normal(0, JITTER)) for name, v in profile.values.items()}
    values["rate"] = profile.values["rate"] * (profile.shares / 100) ** dice.normal(0, JITTER)
    values["power_w"] = np.maximum(values["power_w"], profile.idle_power_w)
    return dataclasses.replace(profile, job=f"{profile.job}-{number}", values=values)


def line(
    profiles: Sequence[Profile],
    options: PairOptions,
    jobs: int,
    predicted_s: float,
    dice: np.random.Generator,
) -> str:
    """One cluster: what it is, seconds, and gains."""
    problem, queue = cluster(profiles, options, jobs, dice)
    started = time.perf_counter()
    solution = place(problem)
    solved_s = time.perf_counter() - started
    gains = [
        f"{100 * gain(problem, solution.placement, other):+.1f} %"
        for other in (greedy(problem), first_come(problem, queue))
    ]
    return (
        f"{len(profiles):5} {jobs:6} {problem.gpus:6} {predicted_s:10.1f} {solved_s:8.1f} "
        f"{solution.gap:7.0e} {gains[0]:>12} {gains[1]:>16}"
    )


def cluster(
    profiles: Sequence[Profile], options: PairOptions, jobs: int, dice: np.random.Generator
) -> tuple[Problem, list[int]]:
    """Jobs of random types, each type at least once, and the order in which they come."""
    types = len(profiles)
    queue = [*range(types), *dice.integers(0, types, jobs - types).tolist()]
    dice.shuffle(queue)
    counts = [len(list(group)) for _, group in groupby(sorted(queue))]
    kinds: list[JobType] = [job_type(p, n) for p, n in zip(profiles, counts, strict=True)]
    gpus = round(GPUS_FOR_A_JOB * jobs)
    return make_problem(kinds, options, gpus, idle_power_w=mean_idle_power_w(profiles)), queue


def gain(problem: Problem, best: Placement, other: Placement) -> float:
    """How much better, in work per joule."""
    return value(problem, best) / value(problem, other) - 1


if __name__ == "__main__":
    main()
