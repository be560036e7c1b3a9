"""What people do without a model: simple rules, and physics without learning."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from advisor.predict.features import physical_power_w, side
from advisor.predict.predictions import UNCAPPED, Interval, Prediction, Split, Way, safe_pair_splits
from advisor.predict.profiles import Floats, Profile
from advisor.validity.safe_counts import CheckedCounts

Pick: TypeAlias = Callable[[Sequence[Prediction]], Prediction]
"""Chooses one of some predictions."""

Choice: TypeAlias = tuple[Way, Split]

EQUAL: Split = (50.0, 50.0)

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "equal": "half of the GPU for each",
        "uncapped": "MPS without limits",
        "exclusive": "one after the other",
        "larger-rate": "90 % for the job with more steps per second",
        "physical": "the best by rates alone and added powers; no learning",
    }
)
"""Every rule by name."""


def rule_choices(
    a: Profile,
    b: Profile,
    splits: Sequence[Split],
    pick: Pick,
    checked: CheckedCounts | None = None,
) -> dict[str, Choice | None]:
    """What each rule of `MEANINGS` chooses; None: a split that the profiles do not reach.

    In the place of a split with an unsafe count stands the nearest safe one.

    Args:
        a: The first job.
        b: The second job.
        splits: What physics chooses among.
        pick: How it chooses.
        checked: What the check of this GPU model found.
    """
    equal, larger = safe_pair_splits(a, b, [EQUAL, _larger_rate(a, b)], checked)
    return {
        "equal": _within(a, b, equal),
        "uncapped": ("uncapped", UNCAPPED),
        "exclusive": ("exclusive", UNCAPPED),
        "larger-rate": _within(a, b, larger),
        "physical": _physical(a, b, splits, pick),
    }


def physical_predictions(a: Profile, b: Profile, splits: Sequence[Split]) -> list[Prediction]:
    """Rates alone at the shares; both powers less one idle power, up to the limit.

    It is no measure of its own error: the bounds are the values.
    """
    own, other = (side(p, [split[i] for split in splits]) for i, p in enumerate((a, b)))
    numbers = zip(
        splits,
        _exact(own.relative_rate),
        _exact(other.relative_rate),
        _exact(physical_power_w(own, other)),
        strict=True,
    )
    return [
        Prediction(
            way="uncapped" if split == UNCAPPED else "split",
            share_a_percent=split[0],
            share_b_percent=split[1],
            speed_a=speed_a,
            speed_b=speed_b,
            power_w=power_w,
            solo_rate_a=a.whole_gpu_rate,
            solo_rate_b=b.whole_gpu_rate,
            solo_power_a_w=a.whole_gpu_power_w,
            solo_power_b_w=b.whole_gpu_power_w,
        )
        for split, speed_a, speed_b, power_w in numbers
    ]


def _exact(values: Floats) -> list[Interval]:
    return [Interval(value, value, value) for value in values.tolist()]


def _larger_rate(a: Profile, b: Profile) -> Split:
    gap = a.whole_gpu_rate - b.whole_gpu_rate
    if gap == 0:
        return EQUAL
    return (90.0, 10.0) if gap > 0 else (10.0, 90.0)


def _physical(a: Profile, b: Profile, splits: Sequence[Split], pick: Pick) -> Choice | None:
    if not splits:
        return None
    best = pick(physical_predictions(a, b, splits))
    return "split", (best.share_a_percent, best.share_b_percent)


def _within(a: Profile, b: Profile, split: Split | None) -> Choice | None:
    if split is None or split[0] < a.shares[0] or split[1] < b.shares[0]:
        return None
    return "split", split
