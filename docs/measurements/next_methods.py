"""Ways to choose pairs that next_vs_random.py compares, on the bundled pairs.

`advisor next` is here with the function of the command itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.predict.features import Float32s, side
from advisor.predict.profiles import Floats, Profile, filled
from advisor_cli.learn.measured import read_measured
from advisor_models.heads import SPEED, inputs_of
from advisor_training.dataset.data import Data, make_data
from advisor_training.learn.learners import Regressors, extra_trees, fit
from advisor_training.next.choice import OpenPair, PairUse, choose_pairs, use_of
from advisor_training.next.steps import PAIR_POINT_S
from advisor_training.train import make_training_set

BUDGETS = (10.0, 15.0, 20.0, 30.0)
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
        return found.jobs

    def uses(self, pair: int) -> PairUse:
        first, second = self.profiles[pair]
        return use_of(first), use_of(second)

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
    candidates = [
        OpenPair(jobs=bench.jobs(p), minutes=bench.minutes[p], uses=bench.uses(p)) for p in left
    ]
    # By identity: two jobs may be there on two GPU models.
    pair_of = {id(c): pair for c, pair in zip(candidates, left, strict=True)}
    learned = [bench.uses(pair) for pair in measured]
    chosen = choose_pairs(candidates, bench.pairs_of(measured), minutes, learned)
    return [pair_of[id(c)] for c in chosen]


def by_disagreement(
    bench: Bench, measured: list[int], left: list[int], minutes: float, rng: np.random.Generator
) -> list[int]:
    """The pairs about which the trees are farthest apart, whatever their jobs."""
    order: list[int] = np.argsort(-apart(bench, measured, left), kind="stable").tolist()
    return within(bench, (left[n] for n in order), minutes)


def apart(bench: Bench, measured: list[int], left: list[int]) -> Floats:
    """How far the trees of a model of the measured pairs are apart about each pair left."""
    return disagreements(bench.fitted(measured), [bench.profiles[pair] for pair in left])


SHARES = np.array([20.0, 35.0, 50.0, 65.0, 80.0])
"""Of the first job, percent; the other has the rest."""


def disagreements(regressors: Regressors, pairs: Sequence[tuple[Profile, Profile]]) -> Floats:
    """Query by committee (Seung, Opper and Sompolinsky, COLT 1992): trees that were drawn apart.

    Standard deviation of the trees' relative speeds, mean over both jobs and the splits.

    Args:
        regressors: Of which the trees for the speed are asked: choices hang on it.
        pairs: Profiles without missing columns (`advisor.predict.profiles.filled`), two of one GPU
            model each.

    Returns:
        Of the logarithm: 0.1 is 10 % of a speed; shape (pairs,).
    """
    if not pairs:
        return np.zeros(0)
    seen = [_features(*pair) for pair in pairs]
    trees = regressors.by_head[SPEED.name].estimators_
    features = np.concatenate(seen)
    spread = np.std([tree.predict(features) for tree in trees], axis=0)
    ends = np.cumsum([len(of_pair) for of_pair in seen])
    return np.array([part.mean() for part in np.split(spread, ends[:-1])])


def _features(a: Profile, b: Profile) -> Float32s:
    """Both jobs' at those splits that lie within the profiles, one row for each."""
    within = (a.shares[0] <= SHARES) & (b.shares[0] <= WHOLE - SHARES)
    # A profile that begins above half of the GPU is asked for all of it, without limits.
    own, other = (SHARES[within], WHOLE - SHARES[within]) if within.any() else (_ALL, _ALL)
    return inputs_of(SPEED, (side(a, own), side(b, other))).features


_ALL = np.array([WHOLE])


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


METHODS: Mapping[str, tuple[Method, int]] = {
    "random": (by_chance, DRAWS),
    "one pair per job": (one_pair_per_job, DRAWS),
    "next": (by_next, 1),
    "disagreement of trees": (by_disagreement, 1),
}
"""Each with how often it draws."""


def read_bench() -> Bench:
    """The bundled pairs that are learned from."""
    measured = read_measured(None, None)
    points = measured.pairs, measured.profiled, measured.references
    data, fill = make_data(*points), make_training_set(*points).fill
    keys = [((p.jobs[0], p.gpu_model), (p.jobs[1], p.gpu_model)) for p in data.pairs]
    return Bench(
        data=data,
        profiles=[
            (filled(data.profiles[a], fill), filled(data.profiles[b], fill)) for a, b in keys
        ],
        minutes=[sum(m.points for m in p.measurements) * PAIR_POINT_S / 60 for p in data.pairs],
    )
