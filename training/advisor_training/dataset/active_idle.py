"""Active idle power where nobody measured it: learned from pairs below their power limit.

Two jobs together draw both powers less what one GPU draws with jobs open and none at work. That is
more than it draws empty, since its clocks are up.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.gaps import ACTIVE_IDLE_ABOVE, active_idle_above_of
from advisor.predict.profiles import Profile
from advisor.predict.sides import demanded_power_w, power_limit_w, side
from advisor_training.dataset.pairs import MeasuredPair, Measurement


def active_idle_fill(
    pairs: Sequence[MeasuredPair], profiles: Mapping[tuple[str, str], Profile]
) -> dict[str, float]:
    """What to add to idle power, as `with_active_idle` takes it: of all, and of each GPU model.

    Cards of one model are alike in it, those of two are not: 58 W on H100, 30 W on H200
    (docs/measurements/model.md). A GPU model of which no pair tells has that of all.
    """
    models = sorted({pair.gpu_model for pair in pairs})
    of_models = {
        active_idle_above_of(model): active_idle_above_w(
            [pair for pair in pairs if pair.gpu_model == model], profiles
        )
        for model in models
    }
    known = {name: above_w for name, above_w in of_models.items() if above_w > 0}
    return {ACTIVE_IDLE_ABOVE: active_idle_above_w(pairs, profiles)} | known


def active_idle_above_w(
    pairs: Iterable[MeasuredPair], profiles: Mapping[tuple[str, str], Profile]
) -> float:
    """What to add to idle power, so that added powers are off by least below the limit, W.

    The weighted median of what they are too high by makes the mean of |expected / measured - 1|
    least. 0 where no pair was measured below its limit.
    """
    found = [
        gap
        for pair in pairs
        for m in pair.measurements
        for gap in _gaps(m, *(profiles[job, pair.gpu_model] for job in pair.jobs))
    ]
    if not found:
        return 0.0
    gaps, weights = np.array(sorted(found)).T
    reached = np.cumsum(weights)
    return max(float(gaps[np.searchsorted(reached, reached[-1] / 2)]), 0.0)


def _gaps(m: Measurement, a: Profile, b: Profile) -> Iterator[tuple[float, float]]:
    """By how much added powers are too high at limited splits, W, each with its weight.

    Where they are above the limit it hides that.
    """
    splits = m.splits["nine"]
    sides = [side(p, [split.shares[n] for split in splits]) for n, p in enumerate((a, b))]
    limit_w = NEAR_LIMIT * power_limit_w(sides)
    for result, demanded_w in zip(splits.values(), demanded_power_w(sides).tolist(), strict=True):
        if max(result.power_w, demanded_w) < limit_w:  # NaN is not
            yield demanded_w - result.power_w, 1 / result.power_w
