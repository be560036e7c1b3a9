"""How far measured sets were from the law of sets, and what a set does that is off as one of them.

Every job of every set measured under MPS is judged by the law fitted to sets without that job, by
docs/measurements/sets/law.py. A simulated set draws one measured set like it: its energy is off as
that set's was, its jobs as jobs of that set, so that speeds and watts go together as they did. A
job that ran faster beside others than alone (noise of the host) counts as alone.
"""

import functools
import importlib
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile
from advisor.predict.sets import (
    MEASURED_ON,
    SetClass,
    active_idle_w,
    class_of,
    filling_beside,
    fills,
)

SETS_ON = MEASURED_ON[0]
SETS = Path(__file__).parents[1] / "sets"
MOST_FILLING = 1.2
"""SM time that jobs which fill the GPU get together, for each 1 of the GPU: no measured pair on an
H100 got more than 1.18, and no set."""

Seat: TypeAlias = tuple[SetClass, bool]
"""What a job has beside it, and whether it serves."""

Like: TypeAlias = tuple[SetClass, bool]
"""Of a set: the class of the job with most beside it, and whether two such jobs fill the GPU."""


@dataclass(frozen=True, slots=True)
class Off:
    """A measured set, for each 1 that was said: energy of a card each over its own, and speeds."""

    energy: float
    speeds: Mapping[Seat, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Errors:
    """Of measured sets, by what they are like, and of all their jobs."""

    sets: Mapping[Like, Sequence[Off]]
    jobs: Mapping[Seat, Sequence[float]]

    def draw(
        self, found: Prediction, profiles: Sequence[Profile], rng: np.random.Generator
    ) -> tuple[list[float], float]:
        """Speeds and watts of a set of which that was said; nobody is faster than alone."""
        beside = _beside(found, profiles)
        off = self._one_like(class_of("limited", max(beside)), profiles, rng)
        seats: list[Seat] = [
            (class_of("limited", filling), p.serving is not None)
            for filling, p in zip(beside, profiles, strict=True)
        ]
        said = [part.speed.value for part in found.parts]
        ratios = self._ratios(off, seats, rng)
        speeds = [min(1.0, one * ratio) for one, ratio in zip(said, ratios, strict=True)]
        speeds = _room(speeds, profiles)
        alone_w = [part.solo_power_w for part in found.parts]
        gain = off.energy * _work_w(said, alone_w) / found.power_w.value
        return _under_limit(speeds, _work_w(speeds, alone_w) / gain, profiles)

    def _one_like(
        self, of_class: SetClass, profiles: Sequence[Profile], rng: np.random.Generator
    ) -> Off:
        like = self.sets[_like(of_class, sum(map(fills, profiles)))]
        return like[int(rng.integers(len(like)))]

    def _ratios(self, off: Off, seats: Sequence[Seat], rng: np.random.Generator) -> list[float]:
        """For each job that of another one of the set, of any where that had no such job."""
        drawn: dict[Seat, list[float]] = {}
        found: list[float] = []
        for seat in seats:
            if not drawn.get(seat):
                drawn[seat] = rng.permutation(off.speeds.get(seat) or self.jobs[seat]).tolist()
            found.append(drawn[seat].pop())
        return found


def _room(speeds: Sequence[float], profiles: Sequence[Profile]) -> list[float]:
    """Jobs that fill the GPU, slowed down to the SM time that they can get."""
    filling = [fills(profile) for profile in profiles]
    busy = sum(
        speed * _active(profile)
        for speed, profile, own in zip(speeds, profiles, filling, strict=True)
        if own
    )
    slow = min(1.0, MOST_FILLING / busy) if busy else 1.0
    return [one * (slow if own else 1.0) for one, own in zip(speeds, filling, strict=True)]


def _under_limit(
    speeds: Sequence[float], power_w: float, profiles: Sequence[Profile]
) -> tuple[list[float], float]:
    """All slowed down where they would draw more; at least what jobs without work draw."""
    limit_w = min((p.power_limit_w for p in profiles if p.power_limit_w), default=math.inf)
    slow = min(1.0, limit_w / power_w)
    idle_w = statistics.fmean(map(active_idle_w, profiles))
    return [one * slow for one in speeds], max(idle_w, power_w * slow)


def _work_w(speeds: Sequence[float], alone_w: Sequence[float]) -> float:
    """What the same work takes on a card each."""
    return sum(speed * own_w for speed, own_w in zip(speeds, alone_w, strict=True))


def _active(profile: Profile) -> float:
    """SM activity alone on the whole GPU, of 1."""
    active = float(profile.values["sm_active_percent"][-1])
    return 1.0 if math.isnan(active) else active / 100


def _like(of_class: SetClass, filling: int) -> Like:
    return of_class, of_class == "filling" and filling > 1


def _beside(found: Prediction, profiles: Sequence[Profile]) -> list[float]:
    """Activity of others that fill the GPU, for each job at its limit."""
    active = [
        float(profile.at([share])["sm_active_percent"][0])
        for profile, share in zip(profiles, found.split.shares, strict=True)
    ]
    sm = np.nan_to_num(np.array([active]).T, nan=100.0) / 100
    return filling_beside(sm, np.array([[float(fills(p))] for p in profiles]))[:, 0].tolist()


@functools.cache
def measured_errors() -> Errors:
    """Those of all campaigns on that GPU model; fitting takes some seconds."""
    by_set: dict[int, list[Any]] = defaultdict(list)
    for judged in _judged():
        by_set[id(judged.row)].append(judged)
    sets: dict[Like, list[Off]] = defaultdict(list)
    jobs: dict[Seat, list[float]] = defaultdict(list)
    for its in by_set.values():
        speeds: dict[Seat, list[float]] = defaultdict(list)
        for one in its:
            seat = one.of_class, one.part.serves
            speeds[seat].append(min(1.0, one.part.speed) / one.speed)
            jobs[seat].append(speeds[seat][-1])
        energy = statistics.fmean(one.efficiency for one in its)
        sets[_like(its[0].set_class, its[0].row.fill)].append(Off(energy, speeds))
    return Errors(sets, jobs)


def _judged() -> list[Any]:
    """`law.Judged` of every job: it stands in another folder of scripts."""
    sys.path.append(str(SETS))
    law, rows = importlib.import_module("law"), importlib.import_module("rows")
    sys.path.remove(str(SETS))
    runs = rows.bundled_campaigns(gpu_model=SETS_ON)
    measured = [row for of in runs for row in rows.rows_of(of) if row.mode != "time-sliced"]
    _, judged = law.fitted(measured)
    return judged
