"""Hosts whose measurements disagree with those of all other hosts of the site.

Each measurement of a host is held against what the points of all others teach of it, so a model
that has learned from a wrong host says nothing in its favour. Of rates counts what both jobs have
in common: beside each other one job gains what the other one loses, and a strange job is strange
alone, but a wrong clock moves both. Over the nights these add up (the CUSUM of Page, "Continuous
inspection schemes", 1954), and the stretch in which the sum rose is what is left out, points that
the champion has learned from among it. What the other hosts saw since it began tells whether the
host or the world has changed: if they are off to the same side, it is news. So the only host of a
site is never judged. docs/measurements/model/retrain_checks.py has what this finds, and how often
it is wrong.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

import numpy as np

from advisor.core.records import PairPoint
from advisor.errors import InputError
from advisor_training.dataset.rows import Rows
from advisor_training.learn.head_learners import LEAST_SPEED
from advisor_training.learn.held_out import Mask
from advisor_training.learn.learners import Predicted, extra_trees, fit
from advisor_training.retrain.collected import (
    MeasurementKey,
    PointSet,
    measurement_of,
    measurements,
)
from advisor_training.retrain.learned import LONG_AGO, moment_of
from advisor_training.retrain.refused import Refused, refuse, without
from advisor_training.train import make_training_set

SLACK = 0.1
"""What a logarithm has to exceed to count: half of the least shift that is to be found. Cards of
one model differ by 4 % in power (`advisor.predict.card_factor.CARD_SPREAD`)."""

MOST = 0.25
"""A measurement counts as no more than this, so that none trips the sum by itself."""

THRESHOLD = 0.25
"""The sum that trips: two measurements that are off by 0.25, or three by 0.19."""

Quantity: TypeAlias = Literal["rates", "power"]
Off: TypeAlias = Mapping[Quantity, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A measurement next to what all other hosts teach of it.

    Attributes:
        begin: When the first of its points was measured; `end` is when the last one was.
        off: Logarithms of measured over expected; "rates" is what both jobs have in common.
    """

    host: str
    begin: datetime
    end: datetime
    off: Off


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Measurements of a host that are off to one side.

    Attributes:
        side: 1: above the others, -1: below.
        total: Of the logarithms, without their bound.
    """

    seen: Sequence[Seen]
    quantity: Quantity
    side: int
    total: float

    @property
    def host(self) -> str:
        """The one of all of them."""
        return self.seen[0].host

    @property
    def why(self) -> str:
        """In words."""
        by = 100 * math.expm1(self.side * self.total / len(self.seen))
        return f"{self.quantity} of host {self.host} {by:+.0f} % against all others of this site"

    def has(self, point: PairPoint) -> bool:
        """Whether the host measured a point meanwhile."""
        at = moment_of(point, LONG_AGO)
        return host_of(point) == self.host and self.seen[0].begin <= at <= self.seen[-1].end


def host_of(point: PairPoint) -> str:
    """The host of a point; its card where the host is not known."""
    return point.host or point.gpu_uuid


def disagreeing(points: PointSet, ours: frozenset[str]) -> Iterator[Refused]:
    """Points of stretches in which a host disagrees with all others, the farthest first.

    Args:
        points: What would be learned from.
        ours: Ids of the site's own, new and known; only their hosts are judged.
    """
    while found := _farthest(points, ours):
        wrong = [p for p in points.pairs if p.point_id in ours and found.has(p)]
        refused = [refuse(point, "disagreeing-host", found.why) for point in wrong]
        yield from refused
        points = without(points, refused)


def _farthest(points: PointSet, ours: frozenset[str]) -> Stretch | None:
    seen = _all_seen(points, ours)
    hosts = sorted({one.host for one in seen})
    found = (
        stretch
        for host in hosts
        for stretch in stretches([one for one in seen if one.host == host])
        if _others_are_not([one for one in seen if one.host != host], stretch)
    )
    return max(found, key=lambda stretch: stretch.total, default=None)


def stretches(of_host: Sequence[Seen]) -> Iterator[Stretch]:
    """The worst stretch of each quantity and side that trips.

    Args:
        of_host: Measurements of one host in the order of time.
    """
    quantities: tuple[Quantity, ...] = ("rates", "power")
    for quantity in quantities:
        for side in (1, -1):
            values = [side * one.off[quantity] for one in of_host]
            total, begin, end = _largest_sum([min(value, MOST) - SLACK for value in values])
            if total >= THRESHOLD:
                yield Stretch(
                    seen=of_host[begin:end],
                    quantity=quantity,
                    side=side,
                    total=sum(values[begin:end]),
                )


def _largest_sum(values: Sequence[float]) -> tuple[float, int, int]:
    """The largest sum of neighbouring values, and where they begin and end."""
    best, total, begin = (0.0, 0, 0), 0.0, 0
    for number, value in enumerate(values):
        if total <= 0:
            total, begin = 0.0, number
        total += value
        best = max(best, (total, begin, number + 1), key=lambda found: found[0])
    return best


def _others_are_not(others: Iterable[Seen], stretch: Stretch) -> bool:
    """Whether other hosts measured since a stretch began, and are not off as it is."""
    since = [one for one in others if one.end >= stretch.seen[0].begin]
    values = [stretch.side * one.off[stretch.quantity] for one in since]
    return bool(values) and statistics.median(values) <= SLACK


def _all_seen(points: PointSet, ours: frozenset[str]) -> list[Seen]:
    """Own measurements of all hosts that others say something of, in the order of time."""
    measured: dict[MeasurementKey, list[PairPoint]] = {}
    for point in points.pairs:
        if point.point_id in ours:
            measured.setdefault(measurement_of(point), []).append(point)
    hosts = {key: host_of(of_key[0]) for key, of_key in measured.items()}
    if len(set(hosts.values())) < 2:
        return []
    try:
        rows = make_training_set(points.pairs, points.profiled, points.references).rows
    except InputError:  # whoever trains says so
        return []
    found = _off(rows, hosts)
    seen = (_seen(hosts[key], measured[key], off) for key, off in found.items())
    return sorted(seen, key=lambda one: one.begin)


def _seen(host: str, points: Iterable[PairPoint], off: Off) -> Seen:
    times = [moment_of(point, LONG_AGO) for point in points]
    return Seen(host=host, begin=min(times), end=max(times), off=off)


def _off(
    rows: Rows, hosts: Mapping[MeasurementKey, str]
) -> dict[MeasurementKey, Mapping[Quantity, float]]:
    """How far each measurement is from what a fit without its host expects."""
    keys = measurements(rows)
    of_row = np.array([hosts.get(key, "") for key in keys])
    limited = rows.kind != "uncapped"
    found: dict[MeasurementKey, Off] = {}
    for host in sorted(set(hosts.values())):
        mine = of_row == host
        if mine.all() or not (mine & limited).any():
            continue
        expected = fit(extra_trees, rows.take(~mine))(rows)
        for number in np.unique(rows.measurement[mine & limited]):
            which = (rows.measurement == number) & limited
            found[keys[int(which.argmax())]] = _mean_off(rows, expected, which)
    return found


def _mean_off(rows: Rows, expected: Predicted, which: Mask) -> Off:
    measured = np.column_stack([rows.speed_a, rows.speed_b])[which]
    rates = np.log(np.maximum(measured, LEAST_SPEED) / expected.speed[which]).mean(axis=0)
    power = np.log(rows.power_w[which] / expected.power_w[which]).mean()
    itself = rows.job_a[which][0] == rows.job_b[which][0]
    return {"rates": 0.0 if itself else _in_common(*rates.tolist()), "power": float(power)}


def _in_common(first: float, second: float) -> float:
    """The smaller of two logarithms of one sign; 0 where the signs differ."""
    return math.copysign(min(abs(first), abs(second)), first) if first * second > 0 else 0.0
