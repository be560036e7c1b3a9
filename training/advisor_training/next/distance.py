"""How unlike two pairs of jobs are, by what each job uses of the GPU alone. Pure."""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.predict.profiles import ACTIVITY, Floats, Profile

Use: TypeAlias = tuple[float, ...]
"""What a job uses of the whole GPU, in parts of what there is; NaN where it is not known."""

PairUse: TypeAlias = tuple[Use, Use]

HALF_PERCENT = 50.0


def use_of(profile: Profile) -> Use:
    """Activity of the units, power over its limit, and the rate at half of the GPU over the whole.

    Args:
        profile: One that begins above half of the GPU is asked where it begins.
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

    Returns:
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
