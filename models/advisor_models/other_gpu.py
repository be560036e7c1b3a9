"""How far a model's predictions carry to a GPU model that it has not seen."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OtherGpu:
    """What to expect of predictions for a GPU model that a model has not seen.

    Attributes:
        speed_widening: How much further apart the bounds of speeds are there; 1 or more.
        power_widening: The same of the power.
        left_out: GPU models that were left out of training, one at a time, to find this out; empty
            where there is one only: see `ONE_GPU_MODEL`.
        pairs_to_par: Measured pairs of the new GPU model from which on intervals hold what they
            promise without being wider; None: more than `MOST_PAIRS`.
    """

    speed_widening: float
    power_widening: float
    left_out: tuple[str, ...]
    pairs_to_par: int | None


MOST_PAIRS = 20
"""The most pairs of a new GPU model that are tried."""

ONE_GPU_MODEL = OtherGpu(2.0, 1.5, (), MOST_PAIRS)
"""Of a model that has seen one GPU model only. Leaving out a run of the H200 with all its cards,
and the job as well, the worst of the runs takes intervals 1.61 times as wide for speeds and 1.32
times for power, and 20 of its pairs until none need be wider. Rounded up to halves: a card of
another model differs from these more than they do from each other.
docs/measurements/model/other_card.py prints these."""
