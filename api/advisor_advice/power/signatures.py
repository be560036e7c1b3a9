"""The signature of a job: what its power goes to; and how unlike those of two jobs are."""

from collections.abc import Sequence

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor.predict.profiles import Floats
from advisor_advice.power.known import KnownPower
from advisor_power.components.activity import activity_of
from advisor_power.components.parts import components
from advisor_power.components.weights import ComponentWeights


def signature(weights: ComponentWeights, point: SoloPoint) -> Floats | None:
    """Parts of the power above the floor, of length 1; None: a reading is missing.

    The memory is by weights even where its sensor was read: only what is known alike of all jobs
    can be compared.
    """
    activity = activity_of(point)
    if activity is None or not point.power_w:
        return None
    parts = components(weights, activity, point.power_w).parts_w
    watts = np.array([part.value for name, part in parts.items() if name != "floor"])
    return watts / np.linalg.norm(watts)


def unlikeness(one: Floats, other: Floats) -> float:
    """1 less the cosine between two signatures: 0 alike, 1 nothing in common."""
    return float(np.clip(1 - one @ other, 0.0, 1.0))


def signatures_of(known: KnownPower) -> dict[str, Floats]:
    """Signatures of the jobs alone on the whole GPU, by name; without those that have none."""
    found = ((p.job, _of_job(known, p.job)) for p in known.found.profiles)
    return {name: own for name, own in found if own is not None}


def unlike_pairs(names: Sequence[str], signatures: dict[str, Floats]) -> Floats:
    """How unlike each two jobs are, shape (names, names); 0 where one has no signature."""
    found = np.zeros((len(names), len(names)))
    for row, one in enumerate(names):
        for column, other in enumerate(names):
            if one in signatures and other in signatures:
                found[row, column] = unlikeness(signatures[one], signatures[other])
    return found


def _of_job(known: KnownPower, job: str) -> Floats | None:
    try:
        windows = known.windows(job)
    except InputError:
        return None
    return signature(known.weights, windows[WHOLE][0]) if WHOLE in windows else None
