"""Does `advisor next` choose better pairs than chance? Accuracy over GPU minutes.

    OMP_NUM_THREADS=1 nice -n 15 .venv/bin/python docs/measurements/next_vs_random.py [PNG]

Replays the bundled pairs. A quarter of the jobs is held out with all their pairs, which are the
test; five of the other pairs are measured at first, the rest is what can be chosen. Each method
spends the same GPU minutes, the model is trained again on what it chose, and predicts the test.
The whole is done for `HELD_OUT` draws of jobs. Intervals are of the difference to random choice,
95 %, over other jobs (`advisor_training.learn.bootstrap`). Takes about ten minutes of one core.
"""

import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.cli.learn.measured import read_measured
from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.decide.recommend import TIE
from advisor.predict.profiles import Floats, Profile, filled
from advisor_training.evaluation.choices import QUESTIONS, choose
from advisor_training.evaluation.data import Data, make_data
from advisor_training.learn.bootstrap import BootstrapEstimate, Resamples
from advisor_training.learn.held_out import HeldOut, predicted
from advisor_training.learn.learners import Regressors, extra_trees, fit
from advisor_training.next.choice import Candidate, choose_pairs
from advisor_training.next.costs import PAIR_POINT_S
from advisor_training.next.disagreement import disagreements
from advisor_training.reports.document import BLUE, GREEN, GREY, ORANGE, Figure, Ink, to_png
from advisor_training.train import make_training_set

HELD_OUT = range(100, 116)
"""Seeds of the draws of jobs; the rule was chosen among others on seeds 0 to 19."""

PART_HELD_OUT = 4
FIRST_PAIRS = 5
BUDGETS = (10.0, 15.0, 20.0, 30.0, 45.0)
"""GPU minutes, those of the first pairs among them."""

DRAWS = 2
"""Of methods that draw, for each seed; their mean counts."""

METRICS = {
    "rate": "rate error, %",
    "power": "power error, %",
    "lost": "value lost at the same work, %",
}
LARGEST_ERROR = 5.0
"""Of one rate: a job that nearly starves has no bound on its relative error."""

DRAWN = {"random": GREY, "one pair per job": ORANGE, "next": BLUE, "next, one plan": GREEN}
"""Colours of what the figure shows."""

Scores = dict[int, dict[str, float]]
"""By pair, then by metric."""


@dataclass(frozen=True)
class Bench:
    """The bundled pairs, each with what it cost and the profiles of its jobs."""

    data: Data
    profiles: Sequence[tuple[Profile, Profile]]
    minutes: Sequence[float]

    def jobs(self, pair: int) -> tuple[str, str]:
        found = self.data.pairs[pair]
        return found.job_a, found.job_b

    def fitted(self, pairs: Sequence[int]) -> Regressors:
        return fit(extra_trees, self.data.rows.take(np.isin(self.data.rows.pair, pairs)))

    def spent(self, pairs: Sequence[int]) -> float:
        return sum(self.minutes[pair] for pair in pairs)

    def pairs_of(self, pairs: Sequence[int]) -> Counter[str]:
        return Counter(job for pair in pairs for job in set(self.jobs(pair)))


Method = Callable[[Bench, list[int], list[int], float, np.random.Generator], list[int]]
"""Which of the pairs left to measure next in so many minutes, in order."""


def within(bench: Bench, order: Iterator[int], minutes: float) -> list[int]:
    """The first of an order that fit into the minutes; longer ones are passed over."""
    chosen = list[int]()
    for pair in order:
        if bench.minutes[pair] <= minutes - bench.spent(chosen):
            chosen.append(pair)
    return chosen


def by_chance(
    bench: Bench, measured: list[int], left: list[int], minutes: float, rng: np.random.Generator
) -> list[int]:
    """Any pairs."""
    return within(bench, iter(rng.permutation(left).tolist()), minutes)


def one_pair_per_job(
    bench: Bench, measured: list[int], left: list[int], minutes: float, rng: np.random.Generator
) -> list[int]:
    """A random pair of a random job of those in fewest measured pairs, again and again."""

    def order() -> Iterator[int]:
        times, open_pairs = bench.pairs_of(measured), list(left)
        while open_pairs:
            jobs = sorted({job for pair in open_pairs for job in bench.jobs(pair)})
            fewest = min(times[job] for job in jobs)
            job = rng.choice([job for job in jobs if times[job] == fewest])
            pair = int(rng.choice([p for p in open_pairs if job in bench.jobs(p)]))
            open_pairs.remove(pair)
            times.update(set(bench.jobs(pair)))
            yield pair

    return within(bench, order(), minutes)


def by_next(
    bench: Bench, measured: list[int], left: list[int], minutes: float, rng: np.random.Generator
) -> list[int]:
    """As `advisor next` has it."""
    return chosen(bench, measured, left, minutes, apart(bench, measured, left))


def by_fewest_pairs(
    bench: Bench, measured: list[int], left: list[int], minutes: float, rng: np.random.Generator
) -> list[int]:
    """The same where the trees are taken to be equally far apart about all pairs."""
    return chosen(bench, measured, left, minutes, np.ones(len(left)))


def by_disagreement(
    bench: Bench, measured: list[int], left: list[int], minutes: float, rng: np.random.Generator
) -> list[int]:
    """The pairs about which the trees are farthest apart, whatever their jobs."""
    order = np.argsort(-apart(bench, measured, left), kind="stable")
    return within(bench, (left[n] for n in order), minutes)


def apart(bench: Bench, measured: list[int], left: list[int]) -> Floats:
    """Disagreement about each pair of a model of the measured ones."""
    return disagreements(bench.fitted(measured), [bench.profiles[pair] for pair in left])


def chosen(
    bench: Bench, measured: list[int], left: list[int], minutes: float, values: Floats
) -> list[int]:
    """What the command's own rule makes of these disagreements."""
    candidates = [
        Candidate(jobs=bench.jobs(pair), disagreement=value, minutes=bench.minutes[pair])
        for pair, value in zip(left, values.tolist(), strict=True)
    ]
    # By identity: two jobs may be there on two GPU models.
    pair_of = {id(c): pair for c, pair in zip(candidates, left, strict=True)}
    return [pair_of[id(c)] for c in choose_pairs(candidates, bench.pairs_of(measured), minutes)]


def in_rounds(
    method: Method, bench: Bench, first: list[int], pool: list[int], rng: np.random.Generator
) -> Iterator[list[int]]:
    """What is measured at each budget, where the method is asked again at each."""
    measured = list(first)
    for budget in BUDGETS:
        left = [pair for pair in pool if pair not in measured]
        if left:
            measured += method(bench, measured, left, budget - bench.spent(measured), rng)
        yield list(measured)


def in_one_plan(
    method: Method, bench: Bench, first: list[int], pool: list[int], rng: np.random.Generator
) -> Iterator[list[int]]:
    """The same where the method is asked once, for all that can be measured."""
    left = [pair for pair in pool if pair not in first]
    order = [*first, *method(bench, first, left, bench.spent(left) + 1, rng)]
    for budget in BUDGETS:
        spent = list(itertools.accumulate(bench.minutes[pair] for pair in order))
        yield order[: sum(minutes <= budget for minutes in spent)]


METHODS: Mapping[str, tuple[Callable[..., Iterator[list[int]]], Method, int]] = {
    "random": (in_rounds, by_chance, DRAWS),
    "one pair per job": (in_rounds, one_pair_per_job, DRAWS),
    "fewest pairs first": (in_rounds, by_fewest_pairs, 1),
    "disagreement alone": (in_rounds, by_disagreement, 1),
    "next": (in_rounds, by_next, 1),
    "next, one plan": (in_one_plan, by_next, 1),
}


def read_bench() -> Bench:
    """The bundled pairs that are learned from."""
    measured = read_measured(None, None)
    points = measured.pairs, measured.profiled, measured.references
    data, fill = make_data(*points), make_training_set(*points).fill
    keys = [((p.job_a, p.gpu_model), (p.job_b, p.gpu_model)) for p in data.pairs]
    return Bench(
        data=data,
        profiles=[
            (filled(data.profiles[a], fill), filled(data.profiles[b], fill)) for a, b in keys
        ],
        minutes=[sum(m.points for m in p.measurements) * PAIR_POINT_S / 60 for p in data.pairs],
    )


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


def replay(
    bench: Bench, seeds: Sequence[int]
) -> tuple[dict[str, list[dict[int, dict[str, float]]]], dict[str, list[float]]]:
    """Mean scores by method, budget, pair and metric; and the mean minutes that were spent."""
    found = {
        name: [defaultdict[int, list[dict[str, float]]](list) for _ in BUDGETS] for name in METHODS
    }
    minutes = {name: [list[float]() for _ in BUDGETS] for name in METHODS}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        jobs = bench.data.rows.jobs
        held = set(rng.choice(jobs, len(jobs) // PART_HELD_OUT, replace=False).tolist())
        pairs = range(len(bench.data.pairs))
        pool = [pair for pair in pairs if not held & set(bench.jobs(pair))]
        test = np.isin(bench.data.rows.pair, sorted(set(pairs) - set(pool)))
        first = [int(pair) for pair in rng.permutation(pool)[:FIRST_PAIRS]]
        for name, (ask, method, draws) in METHODS.items():
            for draw in range(draws):
                dice = np.random.default_rng((seed, draw))
                for n, chosen in enumerate(ask(method, bench, first, pool, dice)):
                    minutes[name][n].append(bench.spent(chosen))
                    told = predicted(bench.fitted(chosen), bench.data.rows, test, str(seed))
                    for pair, wrong in scores(bench, told).items():
                        found[name][n][pair].append(wrong)
        print(f"seed {seed} done", file=sys.stderr)
    means = {name: [_means(at) for at in by_budget] for name, by_budget in found.items()}
    return means, {name: [float(np.mean(m)) for m in each] for name, each in minutes.items()}


def _means(found: Mapping[int, Sequence[Mapping[str, float]]]) -> dict[int, dict[str, float]]:
    return {
        pair: {name: float(np.mean([each[name] for each in wrong])) for name in wrong[0]}
        for pair, wrong in found.items()
    }


def compared(
    bench: Bench, mine: Mapping[int, Mapping[str, float]], other: Mapping[int, Any], metric: str
) -> tuple[float, BootstrapEstimate]:
    """The mean over the tested pairs, and the difference to the other."""
    pairs = [pair for pair, wrong in mine.items() if metric in wrong]
    gaps = [mine[pair][metric] - other[pair][metric] for pair in pairs]
    mean = float(np.mean([mine[pair][metric] for pair in pairs]))
    return mean, Resamples([bench.jobs(pair) for pair in pairs]).mean(gaps)


def main() -> None:
    """Print a table for each metric; draw them where a file is named."""
    bench = read_bench()
    means, minutes = replay(bench, HELD_OUT)
    for metric, title in METRICS.items():
        print(f"\n{title}: mean, and less (-) or more (+) than random with its 95 % interval\n")
        print(f"| method | {' | '.join(f'{b:g} minutes' for b in BUDGETS)} |")
        print(f"| --- |{' --- |' * len(BUDGETS)}")
        for name in METHODS:
            cells = [
                compared(bench, mine, other, metric)
                for mine, other in zip(means[name], means["random"], strict=True)
            ]
            shown = [f"{m:.2f}" + ("" if name == "random" else f" ({gap})") for m, gap in cells]
            print(f"| {name} | {' | '.join(shown)} |")
    spent = {name: ", ".join(f"{m:.1f}" for m in each) for name, each in minutes.items()}
    print(f"\nGPU minutes really spent: {spent}")
    if sys.argv[1:]:
        Path(sys.argv[1]).write_bytes(drawn(bench, means, minutes))


def drawn(bench: Bench, means: Mapping[str, Any], minutes: Mapping[str, Sequence[float]]) -> bytes:
    """One panel for each metric, with the interval of the difference to random at `next`."""

    def panel(metric: str) -> Callable[[Any, Ink], None]:
        def draw(axes: Any, ink: Ink) -> None:
            for name, colour in DRAWN.items():
                cells = [
                    compared(bench, mine, other, metric)
                    for mine, other in zip(means[name], means["random"], strict=True)
                ]
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
        Figure(name=metric, caption=title, draw=panel(metric), height=0.7)
        for metric, title in METRICS.items()
    ]
    said = (
        f"Pairs of jobs that were held out, over {len(HELD_OUT)} draws of jobs. The band is the "
        "95 % interval of the difference between next and random, laid around next.",
    )
    return to_png(said, figures)


if __name__ == "__main__":
    main()
