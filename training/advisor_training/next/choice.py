"""Which pairs to measure within a budget of GPU time: the rule, without where its numbers are from.

docs/measurements/next_vs_random.py replays this function with measured pairs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

PairNames: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pair that could be measured.

    Attributes:
        minutes: GPU time that measuring it takes.
        asked: How often the two were launched together.
    """

    jobs: PairNames
    minutes: float
    asked: int = 0


def choose_pairs(
    candidates: Iterable[Candidate], measured: Mapping[str, int], minutes: float
) -> list[Candidate]:
    """The pairs to measure, the most telling first.

    One after the other: the pair that is worth most (`value`), where those that were chosen before
    count as measured, so that a plan does not ask the same job again and again.

    Args:
        candidates: What could be measured.
        measured: In how many measured pairs each job is; jobs in none may be missing.
        minutes: Budget; a pair that takes more than what is left of it is passed over.
    """
    known, left = Counter(measured), sorted(candidates, key=lambda c: c.jobs)
    chosen: list[Candidate] = []
    while fitting := [c for c in left if c.minutes <= minutes]:
        best = max(fitting, key=lambda c: value(c, known))
        chosen.append(best)
        left.remove(best)
        minutes -= best.minutes
        known.update(set(best.jobs))
    return chosen


def value(candidate: Candidate, measured: Mapping[str, int]) -> float:
    """What measuring a pair is worth; only the order of values has a meaning.

    How often the answer is needed, times how little its jobs have been measured: 1 for a job in no
    measured pair, a half for one in a single pair. A job next to itself counts once. How unsure a
    model is of the pair does not count: that chose no better pairs (docs/next.md).
    """
    new = sum(1 / (1 + measured.get(job, 0)) for job in set(candidate.jobs))
    return (1 + candidate.asked) * new
