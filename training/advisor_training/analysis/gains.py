"""How much the best of the nine splits gains, over what, and where sharing loses."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from advisor.core.objectives import Objective, SplitResult
from advisor.core.split import EQUAL, Split
from advisor_training.dataset.noise import best_split, worse
from advisor_training.dataset.pairs import MeasuredPair, Measurement, ResultsBySplit

BASELINES: Mapping[str, Callable[[Measurement], SplitResult | None]] = {
    "equal": lambda m: m.equal,
    "uncapped": lambda m: m.uncapped,
    "time-sliced": lambda m: m.time_sliced,
    "exclusive": lambda m: m.exclusive,
}
"""What a split is compared with, by name."""

Direction = Literal["to_busier", "to_other", "undirected"]

LARGER_SHARES = (50, 60, 70, 80, 90)
"""Share of the job that gets more, over the nine splits, to the nearest 10 of what both use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What the oracle, the best of the nine splits, gains over a baseline.

    Attributes:
        pairs: Pairs in which both were measured.
        zero_pairs: Of them, those with a baseline worth 0, over which no gain can be given.
        mean_percent: Mean over the other pairs; None where there are none. `median_percent`,
            `most_percent` and `least_percent` likewise.
        loses_percent: Part of the pairs in which the oracle is worth less than the baseline, by
            more than a tie.
    """

    baseline: str
    pairs: int
    zero_pairs: int
    mean_percent: float | None
    median_percent: float | None
    most_percent: float | None
    least_percent: float | None
    loses_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGains:
    """The gain over 50/50, averaged as figure 3 of the paper does: first over the pairs of a job.

    Attributes:
        jobs: How many jobs there are.
        mean_percent: Mean over the jobs; `most_percent` and `least_percent` likewise.
    """

    jobs: int
    mean_percent: float
    most_percent: float
    least_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Pairs whose best split gives `larger_share_percent` to one of the jobs.

    Attributes:
        to_busier: Pairs in which the job with the higher SM activity alone gets it.
        to_other: Pairs in which the other job gets it.
        undirected: 50/50, a job next to itself, and pairs without that counter.
    """

    larger_share_percent: int
    to_busier: int
    to_other: int
    undirected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """One pair under one objective: values against 50/50 of the same card and run, in percent.

    None where it was not measured, or where 50/50 is worth 0.

    Attributes:
        best_split: Shares of the oracle, such as "30/70".
        beyond_noise: The oracle is uneven, and more than a tie better than 50/50.
        direction: Where the pair counts in a `Bin`: to_busier, to_other or undirected.
        slower_percent: Relative speed of the slower job at the oracle.
        slower_at_equal_percent: The same at 50/50.
    """

    best_split: str
    beyond_noise: bool
    direction: Direction
    slower_percent: float
    slower_at_equal_percent: float
    oracle_percent: float | None
    uncapped_percent: float | None
    time_sliced_percent: float | None
    exclusive_percent: float | None


def gain(pairs: Iterable[MeasuredPair], objective: Objective, baseline: str, tie: float) -> Gain:
    """The gain of the oracle over a baseline, one value for each pair that has both.

    Args:
        pairs: What is averaged.
        objective: What is best.
        baseline: A name of `BASELINES`.
        tie: As for `advisor.core.objectives.best`; a smaller loss does not count as one.
    """
    both = [
        (oracle_value(measurement.nine, objective), objective.value(result))
        for pair in pairs
        if (found := _first_with(pair, baseline))
        for measurement, result in [found]
    ]
    gains = [100 * (oracle / value - 1) for oracle, value in both if value > 0]
    lost = sum(worse(oracle, value, tie) for oracle, value in both)
    return Gain(
        baseline=baseline,
        pairs=len(both),
        zero_pairs=len(both) - len(gains),
        mean_percent=statistics.mean(gains) if gains else None,
        median_percent=statistics.median(gains) if gains else None,
        most_percent=max(gains, default=None),
        least_percent=min(gains, default=None),
        loses_percent=100 * lost / len(both) if both else None,
    )


def job_gains(pairs: Sequence[MeasuredPair], objective: Objective) -> JobGains | None:
    """The gain over 50/50 by job; None where 50/50 is worth nothing everywhere."""
    parts = pd.DataFrame(
        [
            (pair.gpu_model, job, equal_of_oracle(pair, objective))
            for pair in pairs
            for job in set(pair.jobs)
        ],
        columns=["gpu_model", "job", "equal_of_oracle"],
    )
    by_job = parts.groupby(["gpu_model", "job"])["equal_of_oracle"].agg(gain_of_means)
    gains = by_job.dropna().tolist()
    if not gains:
        return None
    return JobGains(
        jobs=len(gains),
        mean_percent=statistics.mean(gains),
        most_percent=max(gains),
        least_percent=min(gains),
    )


def equal_of_oracle(pair: MeasuredPair, objective: Objective) -> float:
    """Value of 50/50 for each one of the oracle: 1 where 50/50 is the best; 1 for 0 of 0."""
    most = oracle_value(pair.main.nine, objective)
    return objective.value(pair.main.equal) / most if most > 0 else 1.0


def gain_of_means(parts: Sequence[float]) -> float | None:
    """Gain over 50/50 in percent from the mean of its parts of the oracle, as the paper's bars."""
    mean = statistics.mean(parts)
    return 100 * (1 / mean - 1) if mean > 0 else None


def oracle_value(nine: ResultsBySplit, objective: Objective) -> float:
    """Value of the best of the nine splits."""
    return max(objective.value(result) for result in nine.values())


def histogram(
    pairs: Iterable[MeasuredPair],
    objective: Objective,
    tie: float,
    busier: Callable[[MeasuredPair], str | None],
) -> tuple[Bin, ...]:
    """How uneven the best splits are; a split within the tie of the best goes to the more even.

    Args:
        pairs: What is counted.
        objective: What is best.
        tie: As for `advisor.core.objectives.best`.
        busier: The job of a pair with the higher SM activity alone.
    """
    counts = {share: {"to_busier": 0, "to_other": 0, "undirected": 0} for share in LARGER_SHARES}
    for pair in pairs:
        split = best_split(pair.main.nine, objective, tie)
        counts[_larger_share(split)][_direction(pair, split, busier(pair))] += 1
    return tuple(Bin(larger_share_percent=share, **count) for share, count in counts.items())


def relative(pair: MeasuredPair, objective: Objective, tie: float, busier: str | None) -> Relative:
    """The pair's values against 50/50.

    Args:
        pair: What is compared.
        objective: What is best.
        tie: As for `advisor.core.objectives.best`.
        busier: The job with the higher SM activity alone; None where that is not known.
    """
    oracle = best_split(pair.main.nine, objective)
    chosen = best_split(pair.main.nine, objective, tie)
    return Relative(
        best_split=str(oracle),
        beyond_noise=chosen != EQUAL,
        direction=_direction(pair, chosen, busier),
        slower_percent=_slower(pair.main.nine[oracle]),
        slower_at_equal_percent=_slower(pair.main.equal),
        oracle_percent=_over(pair.main.nine[oracle], pair.main.equal, objective),
        uncapped_percent=_baseline_over_equal(pair, objective, "uncapped"),
        time_sliced_percent=_baseline_over_equal(pair, objective, "time-sliced"),
        exclusive_percent=_baseline_over_equal(pair, objective, "exclusive"),
    )


def _larger_share(split: Split) -> int:
    """Which of `LARGER_SHARES` a split counts under; never 50 for an uneven one such as 47/54."""
    part = round(10 * max(split.shares) / sum(split.shares)) * 10
    return 50 if split == EQUAL else min(max(part, LARGER_SHARES[1]), LARGER_SHARES[-1])


def _first_with(pair: MeasuredPair, baseline: str) -> tuple[Measurement, SplitResult] | None:
    """The fullest measurement that has the baseline: values of two are never compared."""
    for measurement in pair.measurements:
        if result := BASELINES[baseline](measurement):
            return measurement, result
    return None


def _direction(pair: MeasuredPair, split: Split, busier: str | None) -> Direction:
    own, other = split.shares
    if own == other or pair.beside_itself or busier is None:
        return "undirected"
    favoured = pair.jobs[0 if own > other else 1]
    return "to_busier" if favoured == busier else "to_other"


def _baseline_over_equal(pair: MeasuredPair, objective: Objective, baseline: str) -> float | None:
    found = _first_with(pair, baseline)
    return _over(found[1], found[0].equal, objective) if found else None


def _slower(result: SplitResult) -> float:
    return 100 * min(result.speeds)


def _over(result: SplitResult, equal: SplitResult, objective: Objective) -> float | None:
    base = objective.value(equal)
    return 100 * (objective.value(result) / base - 1) if base > 0 else None
