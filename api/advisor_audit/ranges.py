"""How far off what an audit says may be: drawn many times.

Two things are not known. What jobs are of which one window was seen: in each of a number of worlds
all of them are off at once, as jobs of families that the head had not seen were
(`advisor_models.one_window`), and what was seen is packed anew; the median of the worlds is
what an audit says, as a packer that knew more would find more, and a world may be far off. And what
sets do otherwise than the law says: by the same wherever a set runs, and half of the variance is
taken to be common to all sets of a class (assumed), since all of them are said by the same few
constants. A job that falls below its minimum speed gets a card of its own, as a launch would see
to.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.core.interval import NORMAL_90, Interval
from advisor.predict.profiles import Floats
from advisor.predict.sets import ENERGY_ERRORS, SPEED_ERRORS
from advisor_audit.packing import PackedSet, Packer, SetKey, SlotCards, Walked

WORLDS, DRAWS = 16, 25
"""Worlds, and draws of what sets do in each."""

COMMON = 0.5
"""Of the variance, what all sets of a class share."""

ONE_WINDOW_ENERGY = 0.03
"""Standard deviation of what one window adds to the error of a set's energy: errors of the energy
saved grow from 5.3 points to 5.9 without limits and from 4.6 to 6.2 with them
(docs/measurements/sets.md, From one window on the whole GPU)."""

Packers: TypeAlias = Mapping[str, Packer]
"""By GPU model."""

_Weights: TypeAlias = Mapping[SetKey, float]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SavedInWorlds:
    """What sharing saves in each world, by the law and then as drawn; shape (worlds, 1 + draws).

    Attributes:
        freed_h: Hours of cards, less those that what lags behind takes.
        kwh: Freed cards off.
        cards: That are enough in the fullest slot.
    """

    freed_h: Floats
    kwh: Floats
    cards: Floats


def saved(
    walked: Walked, packers: Packers, worlds: Iterable[Packers], seed: int = 0
) -> SavedInWorlds:
    """What was packed, and how packing in each world differs from that."""
    slots = {key: h * 3600 / walked.slot_s for key, h in walked.hours.items()}
    all_slots, sampled = (
        _sum(sets, _outcomes(sets, packers, 0))[:, :1]
        for sets in (slots, _together(slot.sets for slot in walked.sample))
    )
    found = [_in_world(walked, of_model, n) for n, of_model in enumerate(worlds, seed)]
    times = walked.slots / max(len(walked.sample), 1)
    table = np.array([all_slots + (sample - sampled) * times for sample, _ in found])
    hours = walked.slot_s / 3600
    return SavedInWorlds(
        freed_h=table[:, 0] * hours,
        kwh=table[:, 1] * hours / 1000,
        cards=np.array([cards for _, cards in found]),
    )


def saved_w(sets: Collection[SetKey], worlds: Iterable[Packers]) -> dict[SetKey, Interval]:
    """Watts that each set saves for the same work in worlds, as `saved` adds them up."""
    does = [_outcomes(sets, packers, world) for world, packers in enumerate(worlds)]
    return {key: interval(np.array([of_world[key][1] for of_world in does])) for key in sets}


def _in_world(walked: Walked, packers: Packers, world: int) -> tuple[Floats, Floats]:
    """Cards freed and watts saved over the sample, and cards of the fullest slot."""
    sample = _together(_packed(slot, packers) for slot in walked.sample)
    top = [_packed(slot, packers) for slot in walked.top]
    does = _outcomes(_together([sample, *top]), packers, world)
    fullest = zip(walked.top, top, strict=True)
    cards = [slot.cards_now - _sum(sets, does)[0] for slot, sets in fullest]
    most = np.max(cards, axis=0) if cards else np.zeros(1 + DRAWS)
    return _sum(sample, does), np.ceil(most - 1e-9)


def _packed(slot: SlotCards, packers: Packers) -> Counter[SetKey]:
    found = Counter[SetKey]()
    for model, counts in slot.groups:
        for (members, level), count in packers[model].pack(counts).items():
            if len(members) > 1:
                found[SetKey(model, members, level)] += count
    return found


def _together(several: Iterable[Mapping[SetKey, int]]) -> Counter[SetKey]:
    found = Counter[SetKey]()
    for sets in several:
        found.update(sets)
    return found


def _sum(weights: _Weights, does: Mapping[SetKey, Floats]) -> Floats:
    """Shape (2, 1 + draws)."""
    return sum((n * does[key] for key, n in weights.items()), np.zeros((2, 1 + DRAWS)))


def _outcomes(sets: Iterable[SetKey], packers: Packers, world: int) -> dict[SetKey, Floats]:
    """Cards that each set frees, and watts that it saves for the same work, freed cards off.

    Shape (2, 1 + draws) each, by the law first.
    """
    random = np.random.default_rng(world)
    common = {name: random.standard_normal(DRAWS) for name in ENERGY_ERRORS}
    found: dict[SetKey, Floats] = {}
    for key in sorted(sets):
        one = packers[key.model].set_of(key.members, key.level)
        of_class = common[one.of_class]
        speed, energy = (
            _factors(errors[one.of_class], of_class, random)
            for errors in (SPEED_ERRORS, ENERGY_ERRORS)
        )
        found[key] = _outcome(one, speed, energy)
    return found


def _outcome(one: PackedSet, speed: Floats, energy: Floats) -> Floats:
    law = np.array(one.speeds)[:, None]
    speeds = np.minimum(1.0, law * speed)
    # What a server loses is told as its tail; its floor is its demand.
    batch = np.array(one.lags)[:, None]
    stays = speeds >= np.array(one.floors)[:, None] * batch - 1e-9
    together = np.maximum(stays.sum(axis=0) - 1, 0)
    behind = ((1 - _centred(speeds)) * batch * stays).sum(axis=0).clip(0) * (together > 0)
    part = together / (len(one.members) - 1)
    saved_w = part * (one.alone_w - _centred((one.power_w + one.lag_w) / energy))
    return np.array([together - behind, saved_w])


def _centred(values: Floats) -> Floats:
    """With draws around the law: measured, what lags behind and what is saved is as it says."""
    away = values[..., 1:] - values[..., 1:].mean(axis=-1, keepdims=True)
    return np.concatenate([values[..., :1], values[..., :1] + away], axis=-1)


def _factors(errors: tuple[float, float], common: Floats, random: np.random.Generator) -> Floats:
    """Measured for each 1 predicted, log-normal through the ends of its 90 %; 1 for the law."""
    low, high = (math.log(end) for end in errors)
    own = random.standard_normal(DRAWS)
    wide = (high - low) / (2 * NORMAL_90)
    drawn = (low + high) / 2 + wide * (math.sqrt(COMMON) * common + math.sqrt(1 - COMMON) * own)
    return np.exp(np.append(0.0, drawn))


def interval(table: Floats) -> Interval:
    """The median of worlds by the law, with the ends of 90 % of all that might be."""
    value = float(np.median(table[:, 0]))
    low, high = np.quantile(table, (0.05, 0.95))
    return Interval(value, float(min(low, value)), float(max(high, value)))
