"""Does `advisor next` choose better pairs than chance? Accuracy over GPU minutes.

    OMP_NUM_THREADS=1 nice -n 15 .venv/bin/python docs/measurements/next_vs_random.py [PNG]

Replays the bundled pairs. A quarter of the jobs is held out with all their pairs, which test how
well new jobs are predicted; a quarter of the other pairs tests that for jobs that can be measured.
Five pairs are measured at first, the rest can be chosen from. Each method spends the same GPU
minutes, the model is trained again on what was chosen, and predicts both tests. The whole is done
for `HELD_OUT` draws; the rule of `advisor next` was chosen on others (200 to 215, with 12 trees).
Intervals are of the difference to random choice or to one pair per job, 95 %, over other jobs
(`advisor_training.learn.bootstrap`). Takes some minutes of one core.
"""

import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from next_methods import BUDGETS, METHODS, Bench, in_rounds, read_bench
from pictures import to_png

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.decide.recommend import TIE
from advisor_training.evaluation.choices import QUESTIONS, choose
from advisor_training.learn.bootstrap import BootstrapEstimate, Resamples
from advisor_training.learn.held_out import HeldOut, predicted
from advisor_training.reports.document import BLUE, GREEN, GREY, ORANGE, Figure, Ink

HELD_OUT = range(100, 124)
"""Seeds of the draws."""

PART_HELD_OUT = 4
FIRST_PAIRS = 5
TESTS = ("new jobs", "known jobs")

METRICS = {
    "rate": "rate error, %",
    "power": "power error, %",
    "lost": "value lost at the same work, %",
}
LARGEST_ERROR = 5.0
"""Of one rate: a job that nearly starves has no bound on its relative error."""

DRAWN = {
    "random": GREY,
    "one pair per job": ORANGE,
    "next": BLUE,
    "disagreement of trees": GREEN,
}
"""Colours of what the figure shows."""

Scores = dict[int, dict[str, float]]
"""By pair, then by metric."""

Means = dict[tuple[str, str], list[Scores]]
"""By test and method, then by budget."""


def scores(bench: Bench, found: HeldOut) -> Scores:
    """How wrong a model is about each tested pair, percent; limited splits, and choices."""
    rows, row = bench.data.rows, found.row
    measured = np.column_stack([rows.speed_a[row], rows.speed_b[row]])
    rates = np.minimum(np.abs(found.speed / measured - 1), LARGEST_ERROR).mean(axis=1)
    powers = np.abs(found.power_w / rows.power_w[row] - 1)
    wrong: Scores = {}
    for pair in np.unique(rows.pair[row]):
        its = (rows.pair[row] == pair) & (rows.kind[row] != "uncapped")
        if its.any():
            errors = {"rate": rates[its].mean(), "power": powers[its].mean()}
            wrong[int(pair)] = {name: 100 * float(value) for name, value in errors.items()}
    for pair, lost in values_lost(bench, found).items():
        wrong.setdefault(pair, {})["lost"] = 100 * lost
    return wrong


def values_lost(bench: Bench, found: HeldOut) -> dict[int, float]:
    """1 - fraction of the oracle at the choice by expected values, mean over measurements."""
    asked = QUESTIONS[DEFAULT_OBJECTIVE]
    pair_of = dict(zip(bench.data.rows.measurement, bench.data.rows.pair, strict=True))
    lost = defaultdict[int, list[float]](list)
    for choice in choose(bench.data, found, replace(asked, sure=False), TIE, asked):
        lost[int(pair_of[choice.number])].append(1 - choice.fraction)
    return {pair: float(np.mean(values)) for pair, values in lost.items()}


def replay(bench: Bench, seeds: Sequence[int]) -> tuple[Means, dict[str, list[float]]]:
    """Mean scores by test, method, budget, pair and metric; and the minutes that were spent."""
    found = {
        (test, name): [defaultdict[int, list[dict[str, float]]](list) for _ in BUDGETS]
        for test in TESTS
        for name in METHODS
    }
    minutes = {name: [list[float]() for _ in BUDGETS] for name in METHODS}
    for seed in seeds:
        tests, first, pool = drawn_apart(bench, seed)
        for name, (method, draws) in METHODS.items():
            for draw in range(draws):
                rng = np.random.default_rng((seed, draw))
                for n, chosen in enumerate(in_rounds(method, bench, first, pool, rng)):
                    minutes[name][n].append(bench.spent(chosen))
                    model = bench.fitted(chosen)
                    for test, pairs in tests.items():
                        mask = np.isin(bench.data.rows.pair, pairs)
                        told = predicted(model, bench.data.rows, mask, str(seed))
                        for pair, wrong in scores(bench, told).items():
                            found[test, name][n][pair].append(wrong)
        print(f"seed {seed} done", file=sys.stderr)
    means = {key: [_means(at) for at in by_budget] for key, by_budget in found.items()}
    return means, {name: [float(np.mean(m)) for m in each] for name, each in minutes.items()}


def minutes_to_cover(bench: Bench, name: str) -> list[float]:
    """GPU minutes until each job that can be measured is in a measured pair, for each draw."""
    method, draws = METHODS[name]
    found = list[float]()
    for seed, draw in itertools.product(HELD_OUT, range(draws)):
        _, first, pool = drawn_apart(bench, seed)
        left = [pair for pair in pool if pair not in first]
        order = method(bench, first, left, math.inf, np.random.default_rng((seed, draw)))
        jobs, measured = bench.pairs_of(pool).keys(), list(first)
        while bench.pairs_of(measured).keys() < jobs:
            measured.append(order[len(measured) - len(first)])
        found.append(bench.spent(measured))
    return found


def drawn_apart(bench: Bench, seed: int) -> tuple[dict[str, list[int]], list[int], list[int]]:
    """Pairs of the tests, pairs that are measured at first, and pairs that can be measured."""
    rng, jobs = np.random.default_rng(seed), bench.data.rows.jobs
    held = set(rng.choice(jobs, len(jobs) // PART_HELD_OUT, replace=False).tolist())
    pairs = range(len(bench.data.pairs))
    new = [pair for pair in pairs if held & set(bench.jobs(pair))]
    rest = [int(pair) for pair in rng.permutation([p for p in pairs if p not in new])]
    known = len(rest) // PART_HELD_OUT
    tests = dict(zip(TESTS, (new, rest[:known]), strict=True))
    return tests, rest[known : known + FIRST_PAIRS], sorted(rest[known:])


def _means(found: Mapping[int, Sequence[Mapping[str, float]]]) -> dict[int, dict[str, float]]:
    return {
        pair: {name: float(np.mean([each[name] for each in wrong])) for name in wrong[0]}
        for pair, wrong in found.items()
    }


def main() -> None:
    """Print a table for each test and metric; draw them where a file is named."""
    bench = read_bench()
    for name in ("random", "one pair per job", "next"):
        needed = minutes_to_cover(bench, name)
        print(
            f"{name}: every job is in a measured pair after {np.mean(needed):.1f} GPU minutes, "
            f"{min(needed):.1f} to {max(needed):.1f}"
        )
    means, minutes = replay(bench, HELD_OUT)
    for test, (metric, title) in itertools.product(TESTS, METRICS.items()):
        print(f"\n{test}, {title}: mean, and less (-) or more (+) than random, 95 % interval\n")
        print(f"| method | {' | '.join(f'{b:g} minutes' for b in BUDGETS)} |")
        print(f"| --- |{' --- |' * len(BUDGETS)}")
        for name in METHODS:
            cells = compared(bench, means, test, name, metric)
            shown = [f"{m:.2f}" + ("" if name == "random" else f" ({gap})") for m, gap in cells]
            print(f"| {name} | {' | '.join(shown)} |")
        gaps = compared(bench, means, test, "next", metric, "one pair per job")
        print(f"| next less one pair per job | {' | '.join(str(gap) for _, gap in gaps)} |")
    for test, budget in itertools.product(TESTS, BUDGETS[1:3]):
        needed = minutes_to_reach(bench, means, minutes, test, BUDGETS.index(budget))
        print(f"\n{test}: GPU minutes to the rate error of random choice at {budget:g}: {needed}")
    spent = {name: ", ".join(f"{m:.1f}" for m in each) for name, each in minutes.items()}
    print(f"\nGPU minutes really spent: {spent}")
    if sys.argv[1:]:
        Path(sys.argv[1]).write_bytes(figure(bench, means, minutes))


def compared(
    bench: Bench, means: Means, test: str, name: str, metric: str, base: str = "random"
) -> list[tuple[float, BootstrapEstimate]]:
    """At each budget the mean over the tested pairs, and the difference to another method."""
    found = list[tuple[float, BootstrapEstimate]]()
    for mine, other in zip(means[test, name], means[test, base], strict=True):
        pairs = [pair for pair, wrong in mine.items() if metric in wrong]
        gaps = [mine[pair][metric] - other[pair][metric] for pair in pairs]
        mean = float(np.mean([mine[pair][metric] for pair in pairs]))
        found.append((mean, Resamples([bench.jobs(pair) for pair in pairs]).mean(gaps)))
    return found


def minutes_to_reach(
    bench: Bench, means: Means, minutes: Mapping[str, Sequence[float]], test: str, at: int
) -> str:
    """When each method is as good as random choice at a budget, between budgets by a line."""
    curves = {n: [m for m, _ in compared(bench, means, test, n, "rate")] for n in METHODS}
    wanted = curves["random"][at]
    found = {
        name: np.interp(-wanted, -np.minimum.accumulate(curve), minutes[name])
        for name, curve in curves.items()
    }
    return ", ".join(f"{name} {needed:.1f}" for name, needed in found.items())


def figure(bench: Bench, means: Means, minutes: Mapping[str, Sequence[float]]) -> bytes:
    """One panel for each test and metric, with the interval of the difference at `next`."""

    def panel(test: str, metric: str) -> Callable[[Any, Ink], None]:
        def draw(axes: Any, ink: Ink) -> None:
            for name, colour in DRAWN.items():
                cells = compared(bench, means, test, name, metric)
                axes.plot(minutes[name], [m for m, _ in cells], "o-", color=colour, label=name)
                if name == "next":
                    low = [m - gap.value + gap.low for m, gap in cells]
                    high = [m - gap.value + gap.high for m, gap in cells]
                    axes.fill_between(minutes[name], low, high, color=colour, alpha=0.15)
            axes.set_xlabel("GPU minutes", color=ink.text)
            axes.set_ylim(bottom=0)
            axes.legend(frameon=False, labelcolor=ink.text)

        return draw

    figures = [
        Figure(f"{test} {metric}", f"{test}: {title}", panel(test, metric), height=0.6)
        for metric, title in METRICS.items()
        for test in TESTS
    ]
    said = (
        f"Mean over {len(HELD_OUT)} draws of jobs and pairs. The band around next is the 95 % "
        "interval of the difference to random.",
    )
    return to_png(said, figures)


if __name__ == "__main__":
    main()
