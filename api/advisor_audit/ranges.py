"""How far off what an audit says may be: the errors of the law of sets, drawn many times.

What a set of kinds does is off by the same wherever it runs. Half of the variance is taken to be
common to all sets of a class (assumed), since all of them are said by the same few constants. A set
in which a job would fall below its minimum speed is undone, as a launch would undo it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.core.interval import NORMAL_90, Interval
from advisor.predict.profiles import Floats
from advisor.predict.set_law import ENERGY_ERRORS, SPEED_ERRORS, SetClass
from advisor_audit.packing import PackedSet
from advisor_audit.walk import SetKey, Slot

DRAWS = 400
COMMON = 0.5
"""Of the variance, what all sets of a class share."""

ONE_WINDOW_ENERGY = 0.03
"""Standard deviation of what one window adds to the error of a set's energy: errors of the energy
saved grow from 5.3 points to 5.9 without limits and from 4.6 to 6.2 with them
(docs/measurements/sets.md, From one window on the whole GPU)."""


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """What each set could do, draw by draw; shape (sets, draws) each.

    Attributes:
        saved_w: For the same work, freed cards off.
        freed: Cards that it frees, less those that what lags behind takes.
    """

    places: Mapping[SetKey, int]
    saved_w: Floats
    freed: Floats

    def kwh(self, hours: Mapping[SetKey, float]) -> Floats:
        """Saved over these hours of sets; shape (draws,)."""
        return self._over(hours) @ self.saved_w / 1000

    def card_hours(self, hours: Mapping[SetKey, float]) -> Floats:
        """Freed over these hours of sets; shape (draws,)."""
        return self._over(hours) @ self.freed

    def cards(self, slots: Sequence[Slot], size_of: Callable[[SetKey], int]) -> Floats:
        """That the fullest of these slots takes; shape (draws,)."""
        found = np.zeros(self.freed.shape[1])
        for slot in slots:
            jobs = slot.apart + sum(n * size_of(key) for key, n in slot.sets.items())
            found = np.maximum(found, jobs - self._over(slot.sets) @ self.freed)
        return np.ceil(found - 1e-9)

    def _over(self, weights: Mapping[SetKey, float]) -> Floats:
        found = np.zeros(len(self.places))
        for key, weight in weights.items():
            found[self.places[key]] = weight
        return found


def draw(sets: Mapping[SetKey, PackedSet], estimated: Callable[[SetKey], bool]) -> Draws:
    """What sets could do; the same each time."""
    random = np.random.default_rng(0)
    common = {name: random.standard_normal(DRAWS) for name in ENERGY_ERRORS}
    saved, freed = np.zeros((len(sets), DRAWS)), np.zeros((len(sets), DRAWS))
    for row, (key, one) in enumerate(sets.items()):
        wide = ONE_WINDOW_ENERGY if estimated(key) else 0.0
        of_class = common[one.of_class]
        energy = _factors(ENERGY_ERRORS, one.of_class, of_class, random, wide)
        speed = _factors(SPEED_ERRORS, one.of_class, of_class, random)
        speeds = np.minimum(1.0, np.array(one.speeds)[:, None] * speed)
        # What a server loses is told as its tail; its floor is its demand.
        batch = np.array(one.lags)
        floors = np.array(one.floors)[:, None] * batch[:, None]
        holds = (speeds >= floors - 1e-9).all(axis=0)
        behind = ((1 - speeds) * batch[:, None]).sum(axis=0)
        saved[row] = holds * (one.alone_w - (one.power_w + one.lag_w) / energy)
        freed[row] = holds * (len(one.members) - 1 - behind)
    return Draws({key: row for row, key in enumerate(sets)}, saved, freed)


def _factors(
    errors: Mapping[SetClass, tuple[float, float]],
    of_class: SetClass,
    common: Floats,
    random: np.random.Generator,
    more: float = 0.0,
) -> Floats:
    """Measured for each 1 predicted, log-normal through the ends of its 90 %; shape (draws,)."""
    low, high = (math.log(end) for end in errors[of_class])
    wide = math.hypot((high - low) / (2 * NORMAL_90), more)
    own = random.standard_normal(DRAWS)
    return np.exp(
        (low + high) / 2 + wide * (math.sqrt(COMMON) * common + math.sqrt(1 - COMMON) * own)
    )


def interval(value: float, draws: Floats) -> Interval:
    """A value with the ends of 90 % of its draws; it lies between them."""
    low, high = np.quantile(draws, (0.05, 0.95))
    return Interval(value, float(min(low, value)), float(max(high, value)))
