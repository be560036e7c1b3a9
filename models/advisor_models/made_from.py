"""What a model was made from, as its manifest has it."""

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
