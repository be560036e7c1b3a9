"""Ways to choose pairs that next_vs_random.py compares, on the bundled pairs.

`advisor next` is here with the function of the command itself.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.cli.learn.measured import read_measured
from advisor.predict.profiles import Floats, Profile, filled
from advisor_training.evaluation.data import Data, make_data
from advisor_training.learn.learners import Regressors, extra_trees, fit
from advisor_training.next.choice import Candidate, choose_pairs
from advisor_training.next.costs import PAIR_POINT_S
from advisor_training.next.disagreement import disagreements
from advisor_training.train import make_training_set

BUDGETS = (10.0, 15.0, 20.0, 30.0, 45.0)
"""GPU minutes, those of the first pairs among them."""

DRAWS = 2
"""Of methods that draw, for each seed; their mean counts."""


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
