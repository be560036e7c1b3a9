"""Two jobs of a queue beside each other until both have ended, what that costs, when each runs.

What a search looks at is worked out for all works of two jobs at once, from the options that keep
the limits. Each pair that is planned is decided on as `advisor recommend --work` does.
"""

import heapq
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np

from advisor.core.gpu import EQUAL, WHOLE
from advisor.core.objectives import Rest, Work
from advisor.core.records import grouped
from advisor.decide.decision import Decision, RatedSplit, rest_of, with_margin
from advisor.placement.placing import Bools, PlacedSet, Placing, SetAnswers
from advisor.predict.predictions import safe_splits_of
from advisor.predict.profiles import Floats
from advisor.wire.answers import PlacedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A queue from its start until the last job has ended.

    Attributes:
        runs: One for each job, in the order of the queue.
        sets: In the order of their starts.
    """

    runs: tuple[PlacedJob, ...]
    gpus: int
    idle_power_w: float
    sets: tuple[PlacedSet, ...]

    @property
    def busy_s(self) -> float:
        """Time in which GPUs run something, added up."""
        return sum(placed.time_s for placed in self.sets)

    @property
    def busy_j(self) -> float:
        """Energy of the GPUs in that time."""
        return sum(placed.energy_j for placed in self.sets)

    @property
    def makespan_s(self) -> float:
        """Until the last job has ended."""
        return max(run.end_s for run in self.runs)

    @property
    def idle_j(self) -> float:
        """Energy of GPUs that run nothing, until the last job has ended."""
        return self.idle_power_w * max(self.gpus * self.makespan_s - self.busy_s, 0.0)

    @property
    def energy_j(self) -> float:
        """Of all GPUs until the last job has ended, idle ones among them."""
        return self.busy_j + self.idle_j

    @property
    def mean_completion_s(self) -> float:
        """From the start of the queue to the end of a job, the mean of all jobs."""
        return sum(run.end_s for run in self.runs) / len(self.runs)

    @property
    def slowest(self) -> PlacedJob:
        """The job with the lowest mean speed while it runs."""
        return min(self.runs, key=lambda run: run.speed)

    @classmethod
    def of(
        cls, sets: Iterable[PlacedSet], placing: Placing, *, in_order: bool = False
    ) -> "Schedule":
        """When and where each set of a queue runs; each on the GPU that is free first.

        Where they need not start in their order, the longest is given a GPU first, which keeps the
        makespan within a third of the shortest possible (R. Graham, "Bounds on multiprocessing
        timing anomalies", SIAM Journal on Applied Mathematics 17(2), 1969). Each GPU then runs its
        sets the shortest first: that ends no later, and the mean job ends sooner. Of equal jobs the
        one that came first starts first.
        """
        pool = placing.pools[0]
        free = [(0.0, gpu) for gpu in range(pool.gpus)]
        lists: list[list[PlacedSet]] = [[] for _ in range(pool.gpus)]
        if not in_order:
            sets = sorted(
                sets, key=lambda s: (-s.time_s, s.kinds, s.split.shares if s.split else ())
            )
        for placed_set in sets:
            free_s, gpu = free[0]
            lists[gpu].append(placed_set)
            heapq.heapreplace(free, (free_s + placed_set.time_s, gpu))
        placed: list[tuple[float, int, PlacedSet]] = []
        for gpu, of_gpu in enumerate(lists):
            start_s = 0.0
            for placed_set in of_gpu if in_order else of_gpu[::-1]:
                placed.append((start_s, gpu, placed_set))
                start_s += placed_set.time_s
        placed.sort(key=lambda item: item[:2])
        waiting = _numbers_of(placing)
        runs = [run for item in placed for run in _runs(*item, placing, waiting)]
        return cls(
            runs=tuple(sorted(runs, key=lambda run: run.number)),
            gpus=pool.gpus,
            idle_power_w=pool.idle_power_w,
            sets=tuple(placed_set for _, _, placed_set in placed),
        )


def _numbers_of(placing: Placing) -> dict[int, deque[int]]:
    """Of the jobs of each kind of a queue, their positions in it, ascending."""
    of_kinds = grouped(range(len(placing.queue)), placing.queue.__getitem__)
    return {kind: deque(numbers) for kind, numbers in of_kinds.items()}


def _runs(
    start_s: float, gpu: int, placed: PlacedSet, placing: Placing, waiting: Mapping[int, deque[int]]
) -> Iterator[PlacedJob]:
    """Of each job of a set, the first ones of their kinds that wait."""
    numbers = [waiting[kind].popleft() + 1 for kind in placed.kinds]
    for n, number in enumerate(numbers):
        kind, time_s = placing.kinds[placed.kinds[n]], placed.times_s[n]
        work_s = kind.work_s or 0.0
        yield PlacedJob(
            gpu=gpu,
            start_s=start_s,
            end_s=start_s + time_s,
            number=number,
            job=kind.name,
            work_s=work_s,
            share_percent=placed.split.shares[n] if placed.split else WHOLE,
            below_normal=placed.split is not None and n in placed.split.below_normal,
            speed=work_s / time_s,
            beside=next((other for other in numbers if other != number), None),
        )


class QueuePairs:
    """Pairs of a queue on its one GPU model; each decision is made once.

    Attributes:
        alone: Each kind alone, where it may.
        timed_out: Whether some pairs were not looked at.
    """

    def __init__(self, placing: Placing) -> None:
        self.placing, self.timed_out = placing, False
        self._answers, kinds = SetAnswers(placing, 0), placing.kinds
        self._decisions: dict[tuple[str, str], Decision | None] = {}
        self._of_name = grouped(range(len(kinds)), lambda n: kinds[n].name)
        singles = {single.kinds[0]: single for single in self._answers.singles()}
        self.alone = {kind: self._to_the_end(single) for kind, single in singles.items()}

    def sharing_pairs(self, until: float) -> Iterator[PlacedSet]:
        """Pairs worth sharing, each at its best option; those that may save most come first."""
        counts, names = Counter(self.placing.queue), self._of_name
        for a, b in sorted(combinations_with_replacement(names, 2), key=self._least_part):
            if time.monotonic() > until:
                self.timed_out = True
                return
            if decision := self._decision(a, b):
                yield from self._of_works(names[a], names[b], decision, counts)

    def decided(self, placed_apart: PlacedSet) -> PlacedSet | None:
        """The decision on two jobs until both have ended; None: they should not share."""
        works = tuple(self._work_s(kind) for kind in placed_apart.kinds)
        decision = self._answers.pool.decider(
            [self._answers.profiles[kind] for kind in placed_apart.kinds], Work(works)
        )
        if decision is None or decision.choice is None:
            return None
        placed = self._answers.placed(placed_apart.kinds, decision.choice.prediction, decision)
        done = decision.same_work(decision.choice).choice
        first = min(range(len(works)), key=lambda n: works[n] / placed.speeds[n])
        return replace(
            placed,
            cost=float(self.placing.spent(done.time_s, done.energy_j)),
            times_s=tuple(done.shared_s if n == first else done.time_s for n in range(len(works))),
            energy_j=done.energy_j,
        )

    def first_come(self) -> Schedule | None:
        """Jobs as they come, each with the first one that may share the GPU with it half and half.

        None: a job may not run alone, and finds no other.
        """
        waiting, sets = _numbers_of(self.placing), list[PlacedSet]()

        def take(kind: int) -> None:
            waiting[kind].popleft()
            if not waiting[kind]:
                del waiting[kind]

        while waiting:
            first = min(waiting, key=lambda kind: waiting[kind][0])
            take(first)
            others = sorted(waiting, key=lambda kind: waiting[kind][0])
            pairs = (
                (other, placed_pair)
                for other in others
                if (placed_pair := self._at_half(first, other))
            )
            other, pair = next(pairs, (None, self.alone.get(first)))
            if pair is None:
                return None
            if other is not None:
                take(other)
            sets.append(pair)
        return Schedule.of(sets, self.placing, in_order=True)

    def _at_half(self, a: int, b: int) -> PlacedSet | None:
        """Two kinds, each at half of a GPU; None: they may not."""
        kinds = min(a, b), max(a, b)
        if (decision := self._decision(*(self.placing.kinds[kind].name for kind in kinds))) is None:
            return None
        (half,) = safe_splits_of(decision.profiles, [EQUAL], self._answers.pool.checked)
        options = [option for option in _kept(decision) if option.prediction.split == half]
        if not options:
            return None
        works = (np.array([[self._work_s(kinds[0])]]), np.array([self._work_s(kinds[1])]))
        return self._pair(
            kinds, options[0], [of[0, 0, 0] for of in _finished(decision, options, works)]
        )

    def _decision(self, a: str, b: str) -> Decision | None:
        """Every option of two jobs, whatever their work."""
        if (a, b) not in self._decisions:
            profiles = [self._answers.profiles[self._of_name[name][0]] for name in (a, b)]
            self._decisions[a, b] = self._answers.pool.decider(profiles, None)
        return self._decisions[a, b]

    def _least_part(self, pair: tuple[str, str]) -> float:
        """The least that two jobs can cost together, as a part of their cost alone."""
        a, b = (self._answers.there.index(self._of_name[name][0]) for name in pair)
        watts = self._answers.many.alone.power_w[[a, b], 0]
        apart = 2 * self.placing.per_card + self.placing.per_w * watts.sum()
        return float(self._answers.two.costs[a, b] / apart)

    def _work_s(self, kind: int) -> float:
        return self.placing.kinds[kind].work_s or 0.0

    def _to_the_end(self, single: PlacedSet) -> PlacedSet:
        work_s = self._work_s(single.kinds[0])
        energy_j = work_s * single.power_w
        cost = float(self.placing.spent(work_s, energy_j))
        return replace(single, cost=cost, times_s=(work_s,), energy_j=energy_j)

    def _of_works(
        self,
        of_a: Sequence[int],
        of_b: Sequence[int],
        decision: Decision,
        counts: Mapping[int, int],
    ) -> Iterator[PlacedSet]:
        """Pairs of kinds of two names, each at the option that is best for its works."""
        if not (options := _kept(decision)):
            return
        works = (
            np.array([self._work_s(kind) for kind in of_a])[:, None],
            np.array([self._work_s(kind) for kind in of_b]),
        )
        ended = _finished(decision, options, works)
        spent = self.placing.spent(ended[1], ended[2])
        alone_w = [profile.whole_gpu_power_w for profile in decision.profiles]
        alone_j = works[0] * alone_w[0] + works[1] * alone_w[1]
        margins = np.array([with_margin(1.0, o.sharing) for o in options])[:, None, None]
        gains = margins * self.placing.spent(works[0] + works[1], alone_j) / spent
        gains[~np.isfinite(gains)] = 0.0
        best = gains.argmax(axis=0)
        least = 1 + self._answers.pool.limits.policy.min_gain
        for i, j in np.argwhere(gains.max(axis=0) > 0).tolist():
            kinds, o = (of_a[i], of_b[j]), int(best[i, j])
            if kinds[0] > kinds[1] or (kinds[0] == kinds[1] and counts[kinds[0]] < 2):
                continue
            if gains[o, i, j] < least and all(kind in self.alone for kind in kinds):
                continue
            yield self._pair(kinds, options[o], [of[o, i, j] for of in ended])

    def _pair(
        self, kinds: tuple[int, ...], option: RatedSplit, ended: Sequence[float]
    ) -> PlacedSet:
        """Two jobs at an option; `ended` is as of `_finished`."""
        (shared_s, time_s, energy_j, is_first), prediction = map(float, ended), option.prediction
        return PlacedSet(
            kinds=kinds,
            pool=0,
            split=prediction.split,
            speeds=tuple(part.speed.value for part in prediction.parts),
            p99_ms=(None, None),
            power_w=prediction.power_w.value,
            cost=float(self.placing.spent(time_s, energy_j)),
            times_s=(shared_s, time_s) if is_first else (time_s, shared_s),
            energy_j=energy_j,
        )


def _kept(decision: Decision) -> list[RatedSplit]:
    return [option for option in decision.options[:-1] if not option.violations]


def _rests(decision: Decision, option: RatedSplit) -> list[Rest]:
    """Speed and power of each job after the other has ended; its limit stays."""
    split = option.prediction.split
    if not split.is_limited:
        return [Rest(1.0, profile.whole_gpu_power_w) for profile in decision.profiles]
    return list(map(rest_of, decision.profiles, split.shares))


def _finished(
    decision: Decision, options: Sequence[RatedSplit], works: tuple[Floats, Floats]
) -> tuple[Floats, Floats, Floats, Bools]:
    """`SplitResult.finish` for all options and works at once; shape (options, a, b).

    Returns:
        Seconds until the first has ended, until both have, joules, and whether it is the first.
    """
    parts = [option.prediction.parts for option in options]
    speeds = np.array([[part.speed.value for part in option_parts] for option_parts in parts])
    rests = np.array([[(r.speed, r.power_w) for r in _rests(decision, o)] for o in options])
    watts = np.array([option.prediction.power_w.value for option in options])
    with np.errstate(divide="ignore", invalid="ignore"):
        ends_s = [works[n] / speeds[:, n, None, None] for n in range(2)]
        shared_s = np.minimum(*ends_s)
        left_s = [
            np.maximum(works[n] - shared_s * speeds[:, n, None, None], 0.0)
            / rests[:, n, 0, None, None]
            for n in range(2)
        ]
        energy_j = shared_s * watts[:, None, None]
        for n in range(2):
            energy_j = energy_j + left_s[n] * rests[:, n, 1, None, None]
        return shared_s, shared_s + left_s[0] + left_s[1], energy_j, ends_s[0] <= ends_s[1]
