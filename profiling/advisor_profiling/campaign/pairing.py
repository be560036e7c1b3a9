"""Which jobs are paired: every job with jobs of every kind, all jobs about equally often."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from advisor.core.records import SoloPoint

Kind = Literal["compute", "memory", "launch"]
Pair = tuple[str, str]

_HALF_PERCENT = 50
"""Below it in SM activity a GPU idles most of the time, so two such jobs fit into each other's
gaps; from it on in DRAM activity two jobs together ask for more than the memory interface has.
"Energy-efficient GPU SM allocation" (table 1) parts its workloads at 50 % of both as well, and so
does `advisor_training.dataset.solo`, by the same counters. On an H200 no job is near: 47 % and 76
% are the
nearest in SM activity, 45 % and 51 % in DRAM activity.
"""

_MET_AGAIN = 1000
"""What a second meeting of two jobs costs; any number of uneven meetings of kinds costs less."""

_DEALS = 3


def kind_of(points: Iterable[SoloPoint]) -> Kind | None:
    """What bounds a job, by its newest point at its largest share.

    Args:
        points: Solo points of one job on one GPU model.

    Returns:
        "launch" for a job that keeps the GPU waiting, "memory" or "compute"; None where there is
        no point, or its counters were not available.
    """
    point = max(points, key=lambda p: (p.share_percent, p.started_at), default=None)
    if point is None:
        return None
    if "cpu-bound" in point.flags:
        return "launch"
    if point.sm_active_percent is None or point.dram_active_percent is None:
        return None
    if point.sm_active_percent < _HALF_PERCENT:
        return "launch"
    return "memory" if point.dram_active_percent >= _HALF_PERCENT else "compute"


def kinds_of(points: Iterable[SoloPoint]) -> dict[str, Kind]:
    """The kind of each job that has one; on several GPU models that with most of its points."""
    found: dict[str, dict[str, list[SoloPoint]]] = {}
    for point in points:
        found.setdefault(point.job, {}).setdefault(point.gpu_model, []).append(point)
    most = {job: max(by_model.values(), key=len) for job, by_model in found.items()}
    return {job: kind for job, its in most.items() if (kind := kind_of(its)) is not None}


def all_pairs(jobs: Iterable[str], *, selves: bool = True) -> list[Pair]:
    """Every pair of the jobs, each in the order of names; with `selves` also each beside itself."""
    names = sorted(set(jobs))
    if selves:
        return list(itertools.combinations_with_replacement(names, 2))
    return list(itertools.combinations(names, 2))


def sample(
    jobs: Iterable[str], count: int, seed: str, kinds: Mapping[str, Kind], *, selves: bool = True
) -> list[Pair]:
    """A balanced sample of the pairs of `jobs`, the same for the same seed.

    Each job stands in equally many pairs or in one more than others, and meets the kinds as evenly
    as can be. Jobs beside themselves have the same part of the sample as of all pairs.

    Args:
        jobs: Names.
        count: How many pairs; where there are fewer, all of them.
        seed: Any text.
        kinds: Kinds of the jobs; those without one count as a kind of their own.
        selves: A job may be paired with itself.
    """
    names, chance, tally = sorted(set(jobs)), random.Random(seed), _Tally(kinds)
    left = all_pairs(names, selves=False)
    chance.shuffle(left)
    if selves and names:
        part = min(1, count / (len(left) + len(names)))
        for name in chance.sample(names, round(part * len(names))):
            tally.add((name, name))
    while left and len(tally.pairs) < count:
        best = min(left, key=tally.cost)
        left.remove(best)
        tally.add(best)
    while move := _evening(names, tally):
        tally.drop(move[0])
        tally.add(move[1])
    while any(_exchange(*pairs, tally) for pairs in itertools.combinations(sorted(tally.pairs), 2)):
        pass
    return sorted(tally.pairs)


def cliques(
    jobs: Iterable[str], kinds: Mapping[str, Kind], size: int = 4, seed: str = "", rounds: int = 1
) -> list[tuple[str, ...]]:
    """Groups of jobs whose pairs are all to be measured: few starts for many pairs.

    Each round deals every job into one group. Two jobs meet in one group at most, as far as that
    can be, and each job meets the kinds as evenly as can be; with itself it meets its own. The
    groups of a round in which jobs meet kinds for the first time come first.

    Args:
        jobs: Names.
        kinds: As for `sample`.
        size: Most jobs of a group.
        seed: Any text; the same seed deals alike.
        rounds: How often the jobs are dealt.
    """
    names, chance, tally = sorted(set(jobs)), random.Random(seed), _Tally(kinds)
    for name in names:
        tally.add((name, name))
    groups: list[tuple[str, ...]] = []
    for _ in range(rounds):
        tries = [_deal(names, size, chance, tally) for _ in range(_DEALS)]
        best = min(tries, key=lambda deal: sum(map(tally.group_cost, deal)))
        dealt = sorted(tuple(sorted(group)) for group in best)
        groups += sorted(dealt, key=tally.first_meetings, reverse=True)
        for pair in itertools.chain.from_iterable(all_pairs(g, selves=False) for g in dealt):
            tally.add(pair)
    return groups


class _Tally:
    """Pairs, how often each job occurs in them, and how often it meets each kind."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._meetings: Counter[tuple[str, Kind | None]] = Counter()
        self.pairs: set[Pair] = set()
        self.occurrences: Counter[str] = Counter()

    def add(self, pair: Pair) -> None:
        self.pairs.add(pair)
        self._count(pair, 1)

    def drop(self, pair: Pair) -> None:
        self.pairs.remove(pair)
        self._count(pair, -1)

    def cost(self, pair: Pair) -> tuple[int, int]:
        """Pairs of jobs that occur least come first, then those that met the other's kind least."""
        a, b = pair
        return self.occurrences[a] + self.occurrences[b], self._met(a, b) + self._met(b, a)

    def group_cost(self, group: Sequence[str]) -> int:
        """Pairs that met before, then how uneven its jobs' meetings with the kinds become."""
        again = sum(pair in self.pairs for pair in all_pairs(group, selves=False))
        in_group: Counter[Kind | None] = Counter([self._kinds.get(job) for job in group])
        uneven = 0
        for job in group:
            for kind, count in in_group.items():
                new = count - (kind == self._kinds.get(job))
                uneven += new * (2 * self._meetings[job, kind] + new)
        return _MET_AGAIN * again + uneven

    def first_meetings(self, group: Sequence[str]) -> int:
        """How often a job of the group meets a kind for the first time."""
        kinds: set[Kind | None] = {self._kinds.get(job) for job in group}
        return sum(not self._meetings[job, kind] for job in group for kind in kinds)

    def gain(self, job: str, other: str, instead_of: str) -> int:
        """How much more even the job's meetings become when it meets `other` instead."""
        if self._kinds.get(other) == self._kinds.get(instead_of):
            return 0
        return self._met(job, instead_of) - self._met(job, other) - 1

    def _met(self, job: str, other: str) -> int:
        return self._meetings[job, self._kinds.get(other)]

    def _count(self, pair: Pair, times: int) -> None:
        # A job beside itself occurs once and meets its kind once.
        for job, other in {pair, pair[::-1]}:
            self.occurrences[job] += times
            self._meetings[job, self._kinds.get(other)] += times


def _evening(names: Sequence[str], tally: _Tally) -> tuple[Pair, Pair] | None:
    """A pair of the most frequent job, and the one to take instead with the least frequent.

    There is one while the two differ by more than one: the first then has more partners, so one of
    them is no partner of the second yet.
    """
    by_count = sorted(names, key=lambda name: tally.occurrences[name])
    if not by_count or tally.occurrences[by_count[-1]] - tally.occurrences[by_count[0]] <= 1:
        return None
    least, most = by_count[0], by_count[-1]
    moves = [
        (_pair(most, other), _pair(least, other))
        for other in names
        if other not in (most, least)
        and _pair(most, other) in tally.pairs
        and _pair(least, other) not in tally.pairs
    ]
    return min(moves, key=lambda move: tally.cost(move[1]))


def _exchange(first: Pair, second: Pair, tally: _Tally) -> bool:
    """Exchange partners of the two pairs where jobs then meet kinds more evenly."""
    a, b = first
    for c, d in (second, second[::-1]):
        new = {_pair(a, d), _pair(c, b)}
        gains = tally.gain(a, d, b), tally.gain(b, c, a), tally.gain(c, b, d), tally.gain(d, a, c)
        if len({a, b, c, d}) == 4 and tally.pairs.isdisjoint(new) and sum(gains) > 0:
            for pair in (first, second):
                tally.drop(pair)
            for pair in new:
                tally.add(pair)
            return True
    return False


def _deal(names: Sequence[str], size: int, chance: random.Random, tally: _Tally) -> list[list[str]]:
    """Deal at random, then swap jobs of different groups as long as that is cheaper."""
    hand = chance.sample(names, len(names))
    count = math.ceil(len(hand) / size)
    groups = [hand[number::count] for number in range(count)]
    swapped = True
    while swapped:
        pairs = itertools.combinations(groups, 2)
        swapped = any(_swap(first, second, tally) for first, second in pairs)
    return groups


def _swap(first: list[str], second: list[str], tally: _Tally) -> bool:
    """Make every swap between two groups that lowers their cost; whether there was one."""
    cost, swapped = tally.group_cost(first) + tally.group_cost(second), False
    for i, j in itertools.product(range(len(first)), range(len(second))):
        first[i], second[j] = second[j], first[i]
        new_cost = tally.group_cost(first) + tally.group_cost(second)
        if new_cost < cost:
            cost, swapped = new_cost, True
        else:
            first[i], second[j] = second[j], first[i]
    return swapped


def _pair(a: str, b: str) -> Pair:
    return (a, b) if a <= b else (b, a)
