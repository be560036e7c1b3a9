"""Expected speeds and watts of many sets at once: the law of `advisor.predict.sets`, as arrays.

A search looks at hundreds of thousands of sets. This is for finding them; what is planned is asked
of the predictor, one set at a time (`advisor.place.set_answers`). All jobs of a set that fill the
GPU get the same limit, a `level`; the others get none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.units import share_for_units, units_for_share
from advisor.place.options import Ints
from advisor.place.problem import Bools
from advisor.predict.profiles import Floats, Profile, relative_capacity
from advisor.predict.set_law import HELD, MPS, SPEED_ERRORS, filling_beside, power_w, room
from advisor.predict.sets import active_idle_w, fills, most_of
from advisor.validity.safe_counts import CheckedCounts

LEVELS = (WHOLE, 80.0, 60.0, 45.0, 30.0)
"""Limits of the jobs that fill a GPU, percent; the first is none."""

_LOW = {name: low for name, (low, _) in SPEED_ERRORS.items()}

NONE = -1
"""An empty seat, or no level."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ManyAlone:
    """Kinds of jobs alone; shape (kinds + 1, levels), the last row an empty seat, or (kinds + 1,).

    Attributes:
        shares: Limit of each kind at each level: safe, and within its profile.
        rate: For each 1 on the whole GPU.
        most: What a server could do on the whole GPU, as `rate`.
        needed: Part of the GPU that it needs for its demand.
    """

    shares: Floats
    rate: Floats
    reach: Floats
    power_w: Floats
    sm: Floats
    dram: Floats
    fills: Floats
    served: Floats
    most: Floats
    needed: Floats
    active_idle_w: Floats
    limit_w: float

    def at(self, sets: Ints, level: Ints) -> "SetRates":
        """What sets do; shape (sets, seats), each at its level, shape (sets,).

        An empty seat is the index of the last row.
        """
        seats = sets.T
        rate, reach, alone_w, sm, dram, needed = (
            values[seats, level]
            for values in (self.rate, self.reach, self.power_w, self.sm, self.dram, self.needed)
        )
        jobs = (seats < len(self.fills) - 1).sum(axis=0)
        served, filling = self.served[seats], self.fills[seats]
        could = np.minimum(reach, room(self.most[seats], needed, 1 / jobs))
        speed = np.where(served, np.minimum(1.0, could), rate)
        speed = speed * MPS.kept(sm, dram, filling, served)
        kept = np.minimum(1.0, speed / np.maximum(rate, 1e-9))
        beside = filling_beside(sm, filling)
        classes = [beside == 0, beside < HELD]
        low = np.select(classes, [_LOW["no filling"], _LOW["held"]], _LOW["filling"])
        low = low * np.where(served * (beside < HELD), could, speed)
        idle_w = self.active_idle_w[seats].sum(axis=0) / jobs
        watts = power_w(kept, alone_w, idle_w, self.limit_w, in_turns=False)
        return SetRates(speed.T, low.T, kept.T, watts)


@dataclass(frozen=True, slots=True, eq=False)
class SetRates:
    """What sets do.

    Attributes:
        speed: Relative speed of each job, shape (sets, seats), as are `low` and `kept`.
        low: The low end of its interval; of a server before chance (`Serving.served`).
        kept: Part of its speed alone at the limit.
        power_w: Shape (sets,).
    """

    speed: Floats
    low: Floats
    kept: Floats
    power_w: Floats

    def only(self, chosen: Ints | Bools) -> "SetRates":
        """Of some sets."""
        return SetRates(
            self.speed[chosen], self.low[chosen], self.kept[chosen], self.power_w[chosen]
        )


def many_alone(profiles: Sequence[Profile], checked: CheckedCounts | None = None) -> ManyAlone:
    """Of one profile of each kind."""
    shares = np.array([_levels(profile, checked) for profile in profiles])
    at = [profile.at(own) for profile, own in zip(profiles, shares, strict=True)]
    reach = np.array([relative_capacity(p, own) for p, own in zip(profiles, shares, strict=True)])
    sm, dram = (np.array([a[f"{name}_active_percent"] for a in at]) for name in ("sm", "dram"))
    sm = np.where(np.isnan(sm), shares, sm) / WHOLE
    served = np.array([float(profile.serving is not None) for profile in profiles])
    most = np.array([most_of(profile) for profile in profiles])
    wholes = np.array([[profile.whole_gpu_rate] for profile in profiles])
    limits = [profile.power_limit_w for profile in profiles if profile.power_limit_w]
    seat = _with_empty_seat
    return ManyAlone(
        shares=seat(shares),
        rate=seat(np.array([a["rate"] for a in at]) / wholes),
        reach=seat(reach),
        power_w=seat(np.array([a["power_w"] for a in at])),
        sm=seat(sm),
        dram=seat(np.nan_to_num(dram) / WHOLE),
        fills=seat(np.array([float(fills(profile)) for profile in profiles])),
        served=seat(served),
        most=seat(most),
        needed=seat(np.where(served[:, None], 1 / most[:, None], sm)),
        active_idle_w=seat(np.array([active_idle_w([profile]) for profile in profiles])),
        limit_w=min(limits, default=np.inf),
    )


def _levels(profile: Profile, checked: CheckedCounts | None) -> list[float]:
    """Limits of a job that fills the GPU, at safe counts; none for another."""
    if not fills(profile):
        return [WHOLE] * len(LEVELS)
    safety = profile.safety(checked)
    total, least = safety.units_total, float(profile.shares[0])
    found = [WHOLE]
    for level in LEVELS[1:]:
        share = level
        if total:
            units = safety.nearest(units_for_share(level, total, safety.vendor))
            share = share_for_units(units, total, safety.vendor) if units else WHOLE
        found.append(share if least <= share < WHOLE else WHOLE)
    return found


def _with_empty_seat(values: Floats) -> Floats:
    return np.concatenate([values, np.zeros_like(values[:1])])
