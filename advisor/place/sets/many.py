"""Expected speeds and watts of many sets at once: the law of `advisor.predict.sets`, as arrays.

A search looks at hundreds of thousands of sets. This is for finding them; what is planned is asked
of the predictor, one set at a time (`advisor.place.sets.answers`). All jobs of a set that fill the
GPU get the same limit, a `level`; the others get none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from advisor.core.gpu import WHOLE
from advisor.core.split import MOST_JOBS
from advisor.core.units import share_for_units, units_for_share
from advisor.place.options import Ints
from advisor.place.problem import Bools
from advisor.predict.profiles import Floats, Profile
from advisor.predict.set_law import HELD, P99_ERRORS, SPEED_ERRORS, filling_beside, power_w
from advisor.predict.sets import SURE_OF_BUSIEST, JobsAlone, alone_at, fills
from advisor.validity.safe_counts import CheckedCounts

LEVELS = (WHOLE, 80.0, 60.0, 45.0, 30.0)
"""Limits of the jobs that fill a GPU, percent; the first is none."""

_LOW = {name: low for name, (low, _) in SPEED_ERRORS.items()}

NONE = -1
"""An empty seat, or no level."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ManyAlone:
    """Kinds of jobs alone, at each level; the last row is an empty seat.

    Attributes:
        shares: Limit of each kind at each level: safe, and within its profile.
        alone: There; shape (kinds + 1, levels) each.
    """

    shares: Floats
    alone: JobsAlone
    limit_w: float

    def at(self, sets: Ints, level: Ints) -> "SetRates":
        """What sets do; shape (sets, seats), each at its level, shape (sets,)."""
        alone = self.alone.seated(sets.T, level)
        speed = alone.speeds(could := alone.could)
        kept = alone.kept(speed)
        beside = filling_beside(alone.sm, alone.fills)
        classes = [beside == 0, beside < HELD]
        low = np.select(classes, [_LOW["no filling"], _LOW["held"]], _LOW["filling"])
        calm = alone.served * (beside < HELD) > 0
        low = low * np.where(calm, could, speed)
        low = np.where(calm, np.minimum(low, SURE_OF_BUSIEST * alone.busiest), low)
        watts = power_w(kept, alone.power_w, alone.idle_w, self.limit_w, in_turns=False)
        return SetRates(speed.T, low.T, watts)

    def p99_ms(self, sets: Ints, level: Ints) -> Floats:
        """The high end of each server's, 0 where it is not known; shape (sets, seats)."""
        alone = self.alone.seated(sets.T, level)
        beside = filling_beside(alone.sm, alone.fills)
        highs = [P99_ERRORS[name].high for name in ("no filling", "held", "filling")]
        high = np.select([beside == 0, beside < HELD], highs[:2], highs[2])
        known = np.where(np.isfinite(alone.p99_ms), alone.p99_ms, 0.0)
        longer: Floats = (high * alone.tails() * known).T
        return longer


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sets:
    """Many sets while they are grown.

    Attributes:
        rows: Kinds of jobs, seats from the left, then empty ones; shape (sets, seats).
        size: How many jobs.
        last: Place of the job that joined last, in the order in which jobs join.
    """

    rows: Ints
    level: Ints
    size: Ints
    last: Ints

    def only(self, chosen: Ints | Bools) -> "Sets":
        """Some of them."""
        return Sets(**{name: values[chosen] for name, values in self._columns()})

    def and_also(self, others: "Sets") -> "Sets":
        """These, then others."""
        pairs = zip(self._columns(), others._columns(), strict=True)
        return Sets(**{name: np.concatenate([own, other]) for (name, own), (_, other) in pairs})

    def with_one_more(self, parent: Ints, kinds: Ints, last: Ints) -> "Sets":
        """Each of one of these and a further job."""
        grown = self.only(parent)
        grown.rows[np.arange(len(parent)), grown.size] = kinds
        return replace(grown, size=grown.size + 1, last=last)

    def different(self) -> "Sets":
        """Of those with the same jobs and level one."""
        same = np.column_stack([np.sort(self.rows, axis=1), self.level])
        return self.only(np.unique(same, axis=0, return_index=True)[1])

    def _columns(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def nothing(empty: int, levels: int = 1) -> Sets:
    """A set of no job at each level; `empty` is the index of an empty seat."""
    none = np.zeros(levels, dtype=np.int64)
    return Sets(
        rows=np.full((levels, MOST_JOBS), empty), level=np.arange(levels), size=none, last=none
    )


@dataclass(frozen=True, slots=True, eq=False)
class SetRates:
    """What sets do.

    Attributes:
        speed: Relative speed of each job, shape (sets, seats), as is `low`.
        low: The low end of its interval; of a server before chance (`Serving.served`).
        power_w: Shape (sets,).
    """

    speed: Floats
    low: Floats
    power_w: Floats


def many_alone(profiles: Sequence[Profile], checked: CheckedCounts | None = None) -> ManyAlone:
    """Of one profile of each kind."""
    shares = np.array([_levels(profile, checked) for profile in profiles])
    found = alone_at(profiles, shares)
    seated = {
        field.name: _with_empty_seat(getattr(found, field.name)) for field in fields(JobsAlone)
    }
    limits = [profile.power_limit_w for profile in profiles if profile.power_limit_w]
    return ManyAlone(
        shares=_with_empty_seat(shares),
        alone=JobsAlone(**seated),
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
