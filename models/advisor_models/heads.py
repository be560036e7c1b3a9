"""What this version can predict of a pair: one declaration for each head.

A new head is one more `Head` here and one `HeadLearner` in `advisor_training.learn.head_learners`;
rows, the trees, intervals, the manifest and the predictor go by these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.predict.features import (
    Float32s,
    Side,
    beside,
    matrix,
    physical_power_w,
    power_features,
    power_limit_w,
    speed_features,
)
from advisor.predict.profiles import Floats
from advisor_models.trained_head import Of

Features: TypeAlias = dict[str, Floats]
"""By name, in the order of the columns; each shape (n,)."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Head:
    """A quantity of a pair at splits, learned as the logarithm of its distance to a prior.

    Attributes:
        name: As in the manifest, and of the file with its trees.
        of: What it has a value of: for "job" the functions get each job's side first in turn.
        prior: What `prior_of` gives, in words; another prior needs other words, since a model that
            was trained over one must not be used with the other.
        features_of: What the model sees of the jobs.
        prior_of: The target without learning, shape (n,); the features are given so that nothing is
            worked out twice.
        limit_of: What holds the target back: at 97 % of it the intervals "at the power limit" hold.
            Infinite where it is not known; None: nothing does.
    """

    name: str
    of: Of
    target: str
    unit: str
    prior: str
    features_of: Callable[[Sequence[Side]], Features]
    prior_of: Callable[[Sequence[Side], Features], Floats]
    limit_of: Callable[[Sequence[Side]], float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HeadInputs:
    """What a head takes of jobs at n splits: a part for each job, or one of all.

    Attributes:
        features: All of the first part, then all of the next; shape (parts x n, features).
        priors: Of each part, shape (n,).
    """

    features: Float32s
    priors: tuple[Floats, ...]


def inputs_of(head: Head, sides: Sequence[Side]) -> HeadInputs:
    """What a head takes of jobs at their shares."""
    views = [(one, *beside(sides, n)) for n, one in enumerate(sides)]
    views = views if head.of == "job" else [tuple(sides)]
    features = [head.features_of(view) for view in views]
    priors = [head.prior_of(view, f) for view, f in zip(views, features, strict=True)]
    return HeadInputs(np.concatenate([*map(matrix, features)]), tuple(priors))


def _kept_of_capacity(sides: Sequence[Side], features: Mapping[str, Floats]) -> Floats:
    return features["prior_kept"] * sides[0].capacity


SPEED = Head(
    name="speed",
    of="job",
    target="relative speed of a job that always has something to do",
    unit="1",
    prior="prior_kept x relative rate alone at the share",
    features_of=lambda sides: speed_features(sides[0], sides[1:]),
    prior_of=_kept_of_capacity,
)

POWER = Head(
    name="power",
    of="pair",
    target="power of the GPU",
    unit="W",
    prior="both powers less one active idle power, up to the limit",
    features_of=power_features,
    prior_of=lambda sides, _: physical_power_w(sides),
    limit_of=power_limit_w,
)

MEMORY_POWER = Head(
    name="memory_power",
    of="pair",
    target="power of the memory of the GPU",
    unit="W",
    prior="that of the whole GPU: both powers less one active idle power, up to the limit",
    features_of=power_features,
    prior_of=lambda sides, _: physical_power_w(sides),
)
"""Part of the power; few cards read it, so most models are without it."""

HEADS = (SPEED, POWER)
"""The heads that every model has."""

KNOWN_HEADS = (*HEADS, MEMORY_POWER)
"""All heads of this version; a model may be without the later ones."""
