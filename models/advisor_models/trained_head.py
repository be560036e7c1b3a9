"""One quantity that a model predicts, as its manifest describes it."""

from dataclasses import dataclass
from typing import Literal

from advisor_models.intervals import LIMITED, SPLIT, UNCAPPED, Strata, place_of

Of = Literal["job", "pair"]
"""What a head has a value of: each of the jobs, seen from it, or all of them together."""

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedHead:
    """A head of a model: prediction = exp(mean of its trees) x prior.

    Attributes:
        name: Such as "speed" or "power"; the file of its trees has the same name.
        unit: Of the target; "1" is a ratio.
        prior: What the trees tell the logarithm of the distance to, in words.
        features: Names in the order of the columns.
        ranges: Smallest and largest value of each feature in training.
        intervals: Bounds by stratum.
    """

    name: str
    of: Of
    target: str
    unit: str
    prior: str
    features: tuple[str, ...]
    ranges: tuple[Range, ...]
    intervals: Strata


def faults(head: TrainedHead) -> dict[str, bool]:
    """What types do not say, and whether it is wrong."""
    bounds = [(b.low, b.high) for b in head.intervals.values()]
    strata = head.intervals.keys()
    return {
        f"a feature of {head.name} has no range, or a range no feature": (
            len(head.features) != len(head.ranges)
        ),
        f"of {head.name}, a low is above its high": any(
            low > high for low, high in (*bounds, *head.ranges)
        ),
        f"the intervals of {head.name} are of {', '.join(strata) or 'nothing'}": (
            not {SPLIT, UNCAPPED} <= {*map(place_of, strata)} <= {SPLIT, UNCAPPED, LIMITED}
        ),
    }
