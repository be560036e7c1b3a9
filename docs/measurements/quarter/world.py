"""A site that does not exist, made of measured pairs: what its hosts would report, night by night.

Truth is one measurement of each pair on the H200. What happens to the site changes that truth, or
only what some host says of it.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np

from advisor.core.records import PairPoint, SoloPoint
from advisor.predict.profiles import Profile, make_profiles
from advisor_data.files.bundled import GPU_MODEL, bundled_pair_points, bundled_solo_points
from advisor_training.dataset.pairs import make_pairs
from advisor_training.retrain.collected import PointSet
from advisor_training.retrain.sifted import usable_points, with_flags

BEGIN = datetime(2026, 1, 1, 3, 0, tzinfo=UTC)
DAYS = 90

DRIFT_DAY, BAD_DAY, POISON_DAY, POISON_ENDS, DRIVER_DAY = 10, 20, 30, 45, 40
DRIFT_SPEED, DRIFT_POWER = 0.8, 1.1
"""One job does 20 % less next to others and draws 10 % more: its profile does not say so."""
DRIVER_SPEED, DRIVER_POWER = 0.93, 1.04
"""With the new driver every job loses 7 % more to its neighbour, at 4 % more power."""

RATE_NOISE, POWER_NOISE, CARD_SPREAD = 0.01, 0.005, 0.012
"""Standard deviations of logarithms: of a window, of its power, of the power of cards."""

SMALLEST_PERCENT = 10
"""Smallest share of the profiles."""

HOSTS = ("node-1", "node-2", "node-3")
POISONED = HOSTS[-1]
DRIFTING_IS = 1
"""Which of the first jobs drifts."""


@dataclass(frozen=True, slots=True)
class Truth:
    """One measured pair: its points at all splits."""

    jobs: tuple[str, str]
    points: tuple[PairPoint, ...]

    @property
    def limited(self) -> list[PairPoint]:
        """Its points under limits."""
        return [point for point in self.points if point.mode == "mps"]


@dataclass
class World:
    """The site on some day.

    Attributes:
        jobs: In the order in which they arrive.
        truths: Every pair that was measured.
        solos: Profiles of all jobs.
        rng: Draws everything.
        poison: Factor of the rates that one host reports for a while: its clock is wrong. 1: no
            host is wrong, and no night has bad data.
        bad: Ids of points of campaigns that are wrong.
    """

    jobs: Sequence[str]
    truths: Sequence[Truth]
    solos: Sequence[SoloPoint]
    rng: np.random.Generator
    poison: float
    cards: dict[str, float] = field(default_factory=dict[str, float])
    bad: set[str] = field(default_factory=set[str])

    @property
    def drifting(self) -> str:
        """The job that changes on `DRIFT_DAY`."""
        return self.jobs[DRIFTING_IS]

    def arrived(self, day: int) -> set[str]:
        """Jobs that are there: eight from the first day, one more every third."""
        return set(self.jobs[: 8 + max(day, 0) // 3])

    def pairs(self, day: int) -> list[Truth]:
        """Pairs of jobs that are there."""
        there = self.arrived(day)
        return [truth for truth in self.truths if there.issuperset(truth.jobs)]

    @cached_property
    def profiles(self) -> dict[tuple[str, str], Profile]:
        """Of all jobs; nobody measures them again."""
        return dict(make_profiles(self.solos))

    def truly(self, point: PairPoint, day: int) -> PairPoint:
        """What a point would be on a day, without noise."""
        speed = {job: self.speed(job, day) for job in point.jobs}
        parts = tuple(replace(p, rate=(p.rate or 0.0) * speed[p.job]) for p in point.parts)
        factor = DRIVER_POWER if day >= DRIVER_DAY else 1.0
        factor *= DRIFT_POWER if day >= DRIFT_DAY and self.drifting in point.jobs else 1.0
        return replace(point, parts=parts, power_w=within_limit(point, factor))

    def measured(self, point: PairPoint, day: int, host: str, second: int) -> PairPoint:
        """What a host measures of it on a day, right or wrong."""
        true = self.truly(point, day)
        noise = self.rng.normal(0, RATE_NOISE, len(true.parts))
        noise += np.log(self.poison) if self._is_poisoned(host, day) else 0.0
        parts = tuple(
            replace(p, rate=float((p.rate or 0.0) * np.exp(n)))
            for p, n in zip(true.parts, noise, strict=True)
        )
        power_w = within_limit(true, self._card(host) * np.exp(self.rng.normal(0, POWER_NOISE)))
        return replace(
            true, parts=parts, power_w=power_w, host=host, gpu_uuid=f"GPU-{host}",
            run=f"night {day}", started_at=moment(day, second), counter_power_w=None,
        )  # fmt: skip

    def night(self, truths: Iterable[Truth], day: int) -> list[PairPoint]:
        """A campaign: each pair at all its splits on one host, the hosts in turns."""
        found: list[PairPoint] = []
        turns = [HOSTS[place] for place in self.rng.permutation(len(HOSTS))]
        for truth, host in zip(truths, itertools.cycle(turns), strict=False):
            found += [
                self.measured(point, day, host, len(found) + k)
                for k, point in enumerate(truth.points)
            ]
        if self._is_bad(day):
            found = [broken(point, k) for k, point in enumerate(found)]
        wrong = (p for p in found if self._is_bad(day) or self._is_poisoned(str(p.host), day))
        self.bad.update(point.point_id for point in wrong)
        return found

    def _is_bad(self, day: int) -> bool:
        return day == BAD_DAY and self.poison != 1

    def _is_poisoned(self, host: str, day: int) -> bool:
        return self.poison != 1 and host == POISONED and POISON_DAY <= day < POISON_ENDS

    def speed(self, job: str, day: int) -> float:
        """What a job keeps of its true rate beside others on a day."""
        drifted = DRIFT_SPEED if day >= DRIFT_DAY and job == self.drifting else 1.0
        return drifted * (DRIVER_SPEED if day >= DRIVER_DAY else 1.0)

    def _card(self, host: str) -> float:
        if host not in self.cards:
            self.cards[host] = float(np.exp(self.rng.normal(0, CARD_SPREAD)))
        return self.cards[host]


def within_limit(point: PairPoint, factor: float) -> float:
    """The power of a point times a factor, W; no card draws more than its limit."""
    return min((point.power_w or 0.0) * float(factor), point.power_limit_w or np.inf)


def broken(point: PairPoint, which: int) -> PairPoint:
    """Bad data: rates in another unit, no power worth the name, wrong results, in turns."""
    if which % 3 == 0:
        parts = tuple(replace(p, rate=(p.rate or 0.0) * 1000) for p in point.parts)
        return replace(point, parts=parts)
    if which % 3 == 1:
        return replace(point, power_w=5.0)
    return replace(point, parts=tuple(replace(p, results="wrong") for p in point.parts))


def moment(day: int, second: int = 0) -> str:
    """ISO 8601, in the night of a day."""
    return (BEGIN + timedelta(days=day, seconds=second)).isoformat(timespec="seconds")


def make_world(seed: int, poison: float) -> World:
    """The site of a seed: which jobs come when, and all that is drawn."""
    rng = np.random.default_rng(seed)
    solos = [p for p in bundled_solo_points() if p.gpu_model == GPU_MODEL]
    flagged = with_flags(PointSet(pairs=tuple(bundled_pair_points()), profiled=tuple(solos)))
    usable = usable_points(flagged)
    points = [p for p in usable.pairs if p.gpu_model == GPU_MODEL and _is_asked(p)]
    solos = [replace(p, started_at=moment(-60)) for p in usable.profiled]
    pairs, _ = make_pairs(points, solos, full=False)
    truths = [_truth(pair.jobs, pair.main.run, points) for pair in pairs]
    names = sorted({job for truth in truths for job in truth.jobs})
    whole = [pair.jobs for pair in pairs if pair.main.is_full]
    common = sorted(names, key=lambda job: -sum(job in jobs for jobs in whole))
    first = common[:8]
    later = [str(job) for job in rng.permutation(common[8:])]
    return World([*first, *later], truths, solos, rng, poison)


def _is_asked(point: PairPoint) -> bool:
    """Two jobs at shares that profiles reach down to."""
    return len(set(point.jobs)) == 2 and min(point.shares_percent) >= SMALLEST_PERCENT


def _truth(jobs: tuple[str, str], run: str, points: Sequence[PairPoint]) -> Truth:
    mine = [p for p in points if tuple(p.jobs) == jobs and p.run == run and p.repeat == 0]
    return Truth(jobs, tuple(mine))
