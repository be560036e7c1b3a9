"""Which pairs to measure within a budget of GPU time: the rule, without where its numbers are from.

docs/next.md says how it compares with chance.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.predict.profiles import ACTIVITY, Floats, Profile

PairNames: TypeAlias = tuple[str, str]

Use: TypeAlias = tuple[float, ...]
"""What a job uses of the whole GPU, in parts of what there is; NaN where it is not known."""

PairUse: TypeAlias = tuple[Use, Use]

HALF_PERCENT = 50.0

LEAST_DISTANCE = 0.01
"""Of pairs that are no different: what else is said of them then decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPair:
    """A pair that could be measured.

    Attributes:
        minutes: GPU time that measuring it takes.
        asked: How often the two were launched together.
        uses: What each job uses of the GPU alone.
    """

    jobs: PairNames
    minutes: float
    uses: PairUse
    asked: int = 0


def choose_pairs(
    candidates: Iterable[OpenPair],
    measured: Mapping[str, int],
    minutes: float,
    learned: Sequence[PairUse] = (),
) -> list[OpenPair]:
    """The pairs to measure within a budget of minutes, the most telling first.

    One after the other: the pair that is worth most (`value`), where those that were chosen before
    count as measured, so that a plan asks neither the same job nor the same kind of pair again and
    again. A pair that takes more than what is left is passed over. `measured` says in how many
    measured pairs each job is, `learned` what the jobs of measured pairs use of the GPU.
    """
    known, left = Counter(measured), sorted(candidates, key=lambda c: c.jobs)
    uses = [candidate.uses for candidate in left]
    apart = nearest(uses, learned)
    open_places, chosen = set(range(len(left))), list[OpenPair]()
    while fitting := [n for n in sorted(open_places) if left[n].minutes <= minutes]:
        best = max(fitting, key=lambda n: value(left[n], known, float(apart[n])))
        chosen.append(left[best])
        open_places.remove(best)
        minutes -= left[best].minutes
        known.update(set(left[best].jobs))
        apart = np.minimum(apart, distances(uses, left[best].uses))
    return chosen


def value(candidate: OpenPair, measured: Mapping[str, int], apart: float = math.inf) -> float:
    """What measuring a pair is worth; only the order of values has a meaning.

    How often the answer is needed, times how little its jobs have been measured, times how far
    `apart` it is from the nearest measured pair (`distances`; infinite where there is none). A job
    in no measured pair counts 1, in a single one a half; a job next to itself counts once. The
    distance is that of k-centre selection (T. F. Gonzalez, "Clustering to minimize the maximum
    intercluster distance", 1985). How unsure a model is of the pair does not count: that chose no
    better pairs (docs/next.md).
    """
    new = sum(1 / (1 + measured.get(job, 0)) for job in set(candidate.jobs))
    unlike = max(apart, LEAST_DISTANCE) if math.isfinite(apart) else 1.0
    return (1 + candidate.asked) * new * unlike


def use_of(profile: Profile) -> Use:
    """Activity of the units, power over its limit, and the rate at half of the GPU over the whole.

    A profile that begins above half of the GPU is asked where it begins.
    """
    activity = (float(profile.values[name][-1]) / WHOLE for name in ACTIVITY)
    limit_w = profile.power_limit_w or profile.whole_gpu_power_w
    half = profile.at([max(HALF_PERCENT, float(profile.shares[0]))])["rate"][0]
    return (
        *activity,
        profile.whole_gpu_power_w / limit_w,
        float(half) / profile.whole_gpu_rate,
    )


def distances(pairs: Sequence[PairUse], other: PairUse) -> Floats:
    """How far each pair is from another one: Euclidean, jobs put together as they fit best.

    0 for the same use; what is not known counts as alike; shape (pairs,).
    """
    if not pairs:
        return np.zeros(0)
    uses = np.array(pairs, dtype=np.float64)
    first, second = (_apart(uses, np.array(jobs)) for jobs in (other, other[::-1]))
    return np.minimum(first, second)


def _apart(uses: Floats, other: Floats) -> Floats:
    return np.sqrt(np.nansum((uses - other) ** 2, axis=(1, 2)))


def nearest(pairs: Sequence[PairUse], others: Sequence[PairUse]) -> Floats:
    """How far each pair is from the nearest of others; infinite without others; shape (pairs,)."""
    found = np.full(len(pairs), math.inf)
    for other in others:
        found = np.minimum(found, distances(pairs, other))
    return found
