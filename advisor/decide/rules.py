"""What people do without a model: simple rules, and physics without learning."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from advisor.core.interval import Interval
from advisor.core.split import EQUAL, Split, without_limits
from advisor.predict.predictions import Prediction, is_within, predicted_part, safe_splits_of
from advisor.predict.profiles import Floats, Profile
from advisor.predict.sides import physical_power_w, side
from advisor.validity.safe_counts import CheckedCounts

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


def simple_choices(
    profiles: Sequence[Profile], checked: CheckedCounts | None = None
) -> dict[str, Split | None]:
    """What each rule of `MEANINGS` but physics chooses; None: a split that is not reached.

    In the place of a split with an unsafe count stands the nearest safe one.
    """
    equal, larger = safe_splits_of(profiles, [EQUAL, _larger_rate(profiles)], checked)
    return {
        "equal": _within(profiles, equal),
        "uncapped": without_limits("uncapped", len(profiles)),
        "exclusive": without_limits("exclusive", len(profiles)),
        "larger-rate": _within(profiles, larger),
    }


def physical_predictions(profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
    """Rates alone at the shares; all powers less the active idle power shared, up to the limit.

    It is no measure of its own error: the bounds are the values.
    """
    sides = [side(p, [split.shares[i] for split in splits]) for i, p in enumerate(profiles)]
    speeds = zip(*(_exact(one.alone["relative_rate"]) for one in sides), strict=True)
    return [
        Prediction(
            split=split,
            parts=tuple(map(predicted_part, profiles, of_split)),
            power_w=power_w,
        )
        for split, of_split, power_w in zip(
            splits, speeds, _exact(physical_power_w(sides)), strict=True
        )
    ]


def _exact(values: Floats) -> list[Interval]:
    return [Interval(value, value, value) for value in values.tolist()]


def _larger_rate(profiles: Sequence[Profile]) -> Split:
    one, other = (profile.whole_gpu_rate for profile in profiles)
    if one == other:
        return EQUAL
    return Split((90.0, 10.0) if one > other else (10.0, 90.0))


def _within(profiles: Sequence[Profile], split: Split | None) -> Split | None:
    return split if split and is_within(split, profiles) else None
