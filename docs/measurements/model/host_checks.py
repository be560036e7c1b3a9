"""Prints how many measurements it takes `advisor retrain` to find a wrong host, and false alarms.

    OMP_NUM_THREADS=1 .venv/bin/python docs/measurements/model/host_checks.py

A site of four H200 cards with four measured pairs at least, each card a host, as if they had
measured a pair each every night; what was measured on all other cards comes with the package. One
card's rates or power are multiplied by a factor, in its first one, two, .. measurements or in all
of them; the other three stay as they were measured. Found is a host of whose wrong points some are
refused. 16 sites, trees as in retrain_checks.py.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from unittest import mock

import numpy as np
from retrain_checks import TREES, faster, points_of_hosts, with_power

from advisor.core.records import PairPoint
from advisor_training.learn import learners
from advisor_training.retrain.collected import PointSet, measurement_of, measurements
from advisor_training.retrain.hosts import disagreeing
from advisor_training.train import make_training_set

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SITES, HOSTS, LEAST = 16, 4, 4
FIRST: tuple[int | None, ...] = (1, 2, 3, 4, None)
"""Measurements of the wrong host, from its first one on; None: all."""

FAULTS: dict[str, Callable[[PairPoint], PairPoint]] = {
    "none": lambda point: point,
    "rates x0.7": faster(0.7),
    "rates x0.8": faster(0.8),
    "rates x1.3": faster(1.3),
    "power x1.3": with_power(1.3),
}


@dataclass(frozen=True, slots=True)
class Site:
    """All points, and who measured here; the first host is the one that goes wrong."""

    points: PointSet
    hosts: Sequence[str]

    def taken(self, fault: Callable[[PairPoint], PairPoint]) -> tuple[int, int]:
        """How many measurements of the first host training takes by itself, and of how many."""
        pairs = tuple(fault(p) if p.host == self.hosts[0] else p for p in self.points.pairs)
        rows = make_training_set(pairs, self.points.profiled, self.points.references).rows
        mine = {measurement_of(p) for p in pairs if p.host == self.hosts[0]}
        return len(mine.intersection(measurements(rows))), len(mine)

    def tried(self, fault: Callable[[PairPoint], PairPoint], first: int | None) -> Counter[str]:
        """Refused points by host, where so many measurements of the first one are there."""
        runs = sorted({_measurement(p) for p in self.points.pairs if p.host == self.hosts[0]})
        there = set(runs[:first])
        pairs = tuple(
            fault(p) if p.host == self.hosts[0] else p
            for p in self.points.pairs
            if p.host != self.hosts[0] or _measurement(p) in there
        )
        ours = frozenset(p.point_id for p in pairs if p.host in self.hosts)
        refused = {one.point_id for one in disagreeing(replace(self.points, pairs=pairs), ours)}
        return Counter(str(p.host) for p in pairs if p.point_id in refused)


def main() -> None:
    """Both tables."""
    with mock.patch.object(learners, "TREES", TREES):
        sites = list(_sites())
        print("| fault of one host | " + " | ".join(map(_word, FIRST)), end="")
        print(" | other hosts refused | measurements that training takes without the rule |")
        print("| --- |" + " --: |" * (len(FIRST) + 2))
        for name, fault in FAULTS.items():
            found = {first: [site.tried(fault, first) for site in sites] for first in FIRST}
            cells = [
                f"{sum(1 for s, f in zip(sites, of, strict=True) if f[s.hosts[0]])} of {SITES}"
                for of in found.values()
            ]
            wrong = sum(
                len(f.keys() - {s.hosts[0]})
                for of in found.values()
                for s, f in zip(sites, of, strict=True)
            )
            judged = SITES * (HOSTS - 1) * len(FIRST)
            taken = np.sum([site.taken(fault) for site in sites], axis=0)
            print(f"| {name} | {' | '.join(cells)} | {wrong} of {judged} | ", end="")
            print(f"{taken[0]} of {taken[1]} |", flush=True)


def _word(first: int | None) -> str:
    return "all measurements" if first is None else f"after {first}"


def _sites() -> Iterator[Site]:
    points, random = in_turns(points_of_hosts()), np.random.default_rng(0)
    counts = Counter(host for _, host, *_ in {_measurement(p) for p in points.pairs})
    able = sorted(host for host, count in counts.items() if count >= LEAST)
    for _ in range(SITES):
        yield Site(points, random.choice(able, HOSTS, replace=False).tolist())


def in_turns(points: PointSet) -> PointSet:
    """The n-th measurement of each host in the n-th night."""
    nights: dict[tuple[str, ...], int] = {}
    counts: Counter[str] = Counter()
    for key in sorted({_measurement(p) for p in points.pairs}):
        nights[key] = counts[key[1]]
        counts[key[1]] += 1
    moved = (
        replace(p, started_at=(BEGIN + timedelta(days=nights[_measurement(p)])).isoformat())
        for p in points.pairs
    )
    return replace(points, pairs=tuple(moved))


def _measurement(point: PairPoint) -> tuple[str, ...]:
    return point.run, str(point.host), *point.jobs


if __name__ == "__main__":
    main()
