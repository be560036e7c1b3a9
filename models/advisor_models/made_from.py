"""What a model was made from, and how far it carries, as its manifest has it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """What a model was trained on.

    Attributes:
        sha256: Of the points.
        cards: GPUs that they were measured on.
    """

    sha256: str
    pair_points: int
    pairs: int
    jobs: tuple[str, ...]
    cards: int


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """How the trees were grown."""

    trees: int
    least_in_leaf: int
    part_of_features: float
    seed: int


@dataclass(frozen=True, slots=True)
class OtherGpu:
    """What to expect of predictions for a GPU model that a model has not seen.

    Attributes:
        widening: By head, how much further apart the bounds are there; 1 or more.
        left_out: GPU models that were left out of training, one at a time, to find this out; empty
            where there is one only: the widening is then `HeadLearner.one_gpu_widening`.
        pairs_to_par: Measured pairs of the new GPU model from which on intervals hold what they
            promise without being wider; None: more than `MOST_PAIRS`.
    """

    widening: Mapping[str, float]
    left_out: tuple[str, ...]
    pairs_to_par: int | None


MOST_PAIRS = 20
"""The most pairs of a new GPU model that are tried."""
