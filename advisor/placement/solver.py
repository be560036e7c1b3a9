"""An integer program over sets: up to seven jobs that run from now on, or pairs of a queue.

The master program chooses among the sets known so far. Each chosen set is decided on as by
`advisor recommend` and gets its cost from there; refused sets leave and the program runs again.

Sets of jobs that run on are found by column generation: the program says what each job is worth;
`advisor.placement.search` finds sets whose jobs are worth more than they cost; until there are none
(M. Lübbecke and J. Desrosiers, "Selected topics in column generation", Operations Research 53(6),
2005). Then the master is solved in whole cards. The search also bounds what any set could gain:
closely, once the sets that it finds save little more, and where time is left again when cards are
whole.

Whole cards are found by a dive that goes on looking for sets, then a program. What is left when
sets have the whole ones of their cards are one or two jobs of each kind, and few of the sets known
have seats for no others. So sets are looked for among the jobs that are left while more cards are
kept (C. Joncour et al., "Column generation based primal heuristics", Electronic Notes in Discrete
Mathematics 36, 2010).

`advisor run` asks what starts and joins at once on cards that it holds. Where jobs run on a card,
one more may join them, and all such sets are known. The search ends where it saves little, not by a
clock, and no bound is looked for.

Pairs of a queue share a GPU until both have ended, and all are known: what a search looks at is
worked out for all works of two jobs at once. What one costs does not depend on where and when it
runs, but idle GPUs draw power until the last job has ended, and that depends on how the pairs fit
on the GPUs. So the program is solved for several makespans: no pair may take longer, and
all of them must fit on the GPUs. Each answer is scheduled, and the best schedule is taken. One
after the other is among them, and what ends later than that is left out: no plan costs more, or
takes longer.
"""

import heapq
import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import highspy
import numpy as np

from advisor.core.gpu import ADVISED_JOBS, EQUAL, MOST_JOBS, WHOLE
from advisor.core.objectives import FEWEST_CARDS, Rest, Work
from advisor.core.records import grouped
from advisor.decide.decision import Decision, RatedSplit, rest_of, with_margin
from advisor.errors import InputError, NoSplitError
from advisor.placement.placing import Bools, PlacedSet, Placing, SetAnswers
from advisor.placement.search import SetSearch
from advisor.predict.predictions import safe_splits_of
from advisor.predict.profiles import Floats
from advisor.wire.answers import PlacedJob, Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A queue from its start until the last job has ended.

    Attributes:
        runs: One for each job, in the order of the queue.
        sets: In the order of their starts.
        busy_j: Energy of the GPUs while they run something.
    """

    runs: tuple[PlacedJob, ...]
    sets: tuple[PlacedSet, ...]
    busy_j: float
    totals: Totals

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
        runs = sorted(
            (run for item in placed for run in _runs(*item, placing, waiting)),
            key=lambda run: run.number,
        )
        ordered = tuple(placed_set for _, _, placed_set in placed)
        busy_s, busy_j = sum(s.time_s for s in ordered), sum(s.energy_j for s in ordered)
        makespan_s = max(run.end_s for run in runs)
        idle_j = pool.idle_power_w * max(pool.gpus * makespan_s - busy_s, 0.0)
        slowest = min(runs, key=lambda run: run.speed)
        totals = Totals(
            energy_j=busy_j + idle_j,
            idle_j=idle_j,
            makespan_s=makespan_s,
            gpu_time_s=busy_s,
            mean_completion_s=sum(run.end_s for run in runs) / len(runs),
            slowest_job=slowest.job,
            slowest_speed=slowest.speed,
        )
        return cls(runs=tuple(runs), sets=ordered, busy_j=busy_j, totals=totals)


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
        self.alone = {s.kinds[0]: self._to_the_end(s) for s in self._answers.singles()}

    def sharing_pairs(self, until: float) -> Iterator[PlacedSet]:
        """Pairs worth sharing, each at its best option; those that may save most come first."""
        counts, names = Counter(self.placing.queue), self._of_name
        for a, b in sorted(itertools.combinations_with_replacement(names, 2), key=self._least_part):
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
            pairs = (
                (other, placed_pair)
                for other in sorted(waiting, key=lambda kind: waiting[kind][0])
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
        if not (options := [option for option in _kept(decision) if option.split == half]):
            return None
        works = (np.array([[self._work_s(kinds[0])]]), np.array([self._work_s(kinds[1])]))
        return self._pair(
            kinds, options[0], [of[0, 0, 0] for of in _until_both_ended(decision, options, works)]
        )

    def _decision(self, a: str, b: str) -> Decision | None:
        """Every option of two jobs, whatever their work."""
        if (a, b) not in self._decisions:
            self._decisions[a, b] = self._answers.pool.decider(
                [self._answers.profiles[self._of_name[name][0]] for name in (a, b)], None
            )
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
        return replace(
            single,
            cost=float(self.placing.spent(work_s, energy_j)),
            times_s=(work_s,),
            energy_j=energy_j,
        )

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
        ended = _until_both_ended(decision, options, works)
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
        """Two jobs at an option; `ended` is as of `_until_both_ended`."""
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
    return (
        list(map(rest_of, decision.profiles, split.shares))
        if split.is_limited
        else [Rest(1.0, profile.whole_gpu_power_w) for profile in decision.profiles]
    )


def _until_both_ended(
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


# Part of the cost by which the bound, and whole cards over parts of cards, are near enough.
_NEAR = 0.005

# Relative distance from its bound at which the integer program of a queue ends.
_GAP = 1e-4

# Part of the time after which no sets are looked for; after half of it bounds are looked at
# closely.
_SEARCH_PART = 0.75

# Most part of the time of a round that looks closely; the first one predicts pairs, too.
_TURN_PART = 0.16

# Of the time, for jobs that still wait.
_SEATING_S = 0.3

# Of the time, for the integer program at its end.
_LAST_S = 0.5

# What an integer program gets when the time is up: HiGHS takes 0 for an error.
_LEAST_S = 0.1

# Of the dearest job alone; what gains less is nothing.
_LEAST_GAIN = 1e-4

# How often a program is solved anew after sets were refused.
_MOST_SETTLED = 8

# Relative difference of two times that is none.
_SAME = 1e-9

# Rounding of the linear program, GPUs.
_ROUNDING = 1e-6

# Names of the simpler schedules.
APART = "one after the other"
FIRST_COME = "first come, 50/50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The sets, how many GPUs run each, and the cost.

    Attributes:
        sets: How many cards have each, those with the most jobs first; of a queue one after the
            other.
        waiting: Jobs without a GPU, by kind: none is free, or they keep their limits on none.
        waiting_cost: Their part of the cost.
        bound: No plan of the sets that the search knows costs less; 0 of a queue.
        timed_out: Whether the time limit ended the search for sets.
        schedule: Of a queue: when and where each set runs.
        others: Of a queue: simpler schedules, by name, without those that cannot run every job.
    """

    placing: Placing
    sets: Mapping[PlacedSet, int]
    waiting: Mapping[int, int]
    waiting_cost: float
    cost: float
    bound: float
    timed_out: bool
    schedule: Schedule | None = None
    others: Mapping[str, Schedule] = field(default_factory=dict[str, Schedule])

    @property
    def gap(self) -> float:
        """Part of the cost that a better plan could save at most."""
        return 1 - self.bound / self.cost

    @property
    def cards(self) -> int:
        """GPUs in use."""
        return sum(self.sets.values())

    @property
    def power_w(self) -> float:
        """Power of the GPUs in use, W."""
        return sum(count * placed.power_w for placed, count in self.sets.items())

    @property
    def seated(self) -> int:
        """Number of jobs on GPUs."""
        return sum(count * len(placed.kinds) for placed, count in self.sets.items())

    @property
    def same_work_w(self) -> float:
        """Power of the same work on separate GPUs, W."""
        return sum(
            count * speed * self.placing.alone_w(placed.pool, kind)
            for placed, count in self.sets.items()
            for kind, speed in zip(placed.kinds, placed.speeds, strict=True)
        )

    @property
    def same_work_cards(self) -> float:
        """GPUs that the same work needs when no job shares; a server holds one all the time."""
        return sum(
            count * (1.0 if self.placing.kinds[kind].is_server else speed)
            for placed, count in self.sets.items()
            for kind, speed in zip(placed.kinds, placed.speeds, strict=True)
        )


def place(placing: Placing, *, time_limit_s: float = 10.0) -> Plan:
    """The best plan found within about the time limit.

    Raises:
        InputError: a time that is none or too short for any plan, or a limit for no job there.
        NoSplitError: a kind keeps its limits nowhere.
    """
    if not time_limit_s >= 0:  # true of NaN as well
        raise InputError(f"a time limit of {time_limit_s} s is not possible")
    return (_placed_queue if placing.queue else _placed_running)(placing, time_limit_s)


def _placed_running(placing: Placing, time_limit_s: float) -> Plan:
    """A plan for jobs that run from now on, with a bound over the sets of the search."""
    started = time.monotonic()
    answers = [SetAnswers(placing, n) for n, pool in enumerate(placing.pools) if not pool.running]
    master = _master(placing, answers)
    bound, timed_out = _search_rounds(
        placing, answers, master, started, time_limit_s, _SEARCH_PART, 0.0
    )
    steps = _dived(answers, master, started, time_limit_s)
    if timed_out:
        master.keep(np.zeros(0))
        given = started, time_limit_s, 1.0, _TURN_PART
        closer, timed_out = _search_rounds(placing, answers, master, *given)
        bound = max(bound, closer)
    if placing.aim == FEWEST_CARDS:
        # Cards come whole, and a job that waits costs a whole number of them.
        bound = math.ceil(bound - _ROUNDING)

    def left_s() -> float:
        return time_limit_s - _SEATING_S - (time.monotonic() - started)

    cards = steps[-1] if placing.at_once else _finished(master, steps, left_s())
    used = _settled(master, answers, cards, left_s)
    if master.spare and not _take_out_spare(answers, used):
        master = master.without_spare(used)
        steps = _dived(answers, master, started, time_limit_s)
        used = _settled(master, answers, steps[-1], left_s)
    if not placing.at_once:
        _seat_waiting(answers, used, master.waiting_costs, started + time_limit_s + _SEATING_S)
    seated = _seated(used)
    waiting = {
        n: kind.count - seated[n] for n, kind in enumerate(placing.kinds) if kind.count > seated[n]
    }
    order = sorted(
        used, key=lambda placed: (-len(placed.kinds), -used[placed], placed.pool, placed.kinds)
    )
    waiting_cost = sum(count * master.waiting_costs[kind] for kind, count in waiting.items())
    cost = sum(count * placed.cost for placed, count in used.items()) + waiting_cost
    return Plan(
        placing=placing,
        sets={placed: used[placed] for placed in order},
        waiting=waiting,
        waiting_cost=waiting_cost,
        cost=cost,
        # A decision may be better than every option that the search looks at.
        bound=min(bound, cost),
        timed_out=timed_out,
    )


def _settled(
    master: "_Master",
    answers: list[SetAnswers],
    cards: Floats,
    left_s: Callable[[], float],
) -> Counter[PlacedSet]:
    """Sets and their numbers of GPUs after every set is decided on; refused ones are replaced.

    Where the time is up, jobs of sets that are refused wait.
    """

    def of(placed: PlacedSet) -> PlacedSet | None:
        return answers[placed.pool].of(placed.kinds)

    for _ in range(_MOST_SETTLED):
        if not master.settle(cards, of):
            break
        master.keep(cards)
        counts = master.whole(max(left_s(), _LEAST_S), _NEAR, cards)
        cards = cards if counts is None else counts
    master.settle(cards, of)
    return Counter({placed: int(n) for placed, n in zip(master.sets, cards, strict=False) if n > 0})


def _part(started: float, time_limit_s: float) -> float:
    return (time.monotonic() - started) / max(time_limit_s, 1e-3)


def _searches(answers: list[SetAnswers], duals: Floats, *, closely: bool) -> list[SetSearch]:
    return [
        SetSearch(a, job_duals, float(cards[a.number]), closely=closely)
        for a in answers
        for job_duals, cards in [np.split(duals, [len(a.placing.kinds)])]
    ]


def _bound(placing: Placing, duals: Floats, most: Floats) -> float:
    """No plan costs less than jobs and cards are worth, if every card gained all that a set could.

    Where each set costs one card, the values may be lowered until none gains anything, which is
    less (A. Farley, "A note on bounding a class of linear programming problems", Operations
    Research 38(5), 1990).
    """
    gpus = np.array([pool.gpus for pool in placing.pools])
    priced = float(duals @ np.append(placing.counts, gpus))
    bound = priced - float(gpus @ most)
    return max(bound, priced / (1 + most.max())) if placing.aim == FEWEST_CARDS else bound


def _take_out_spare(answers: list[SetAnswers], used: Counter[PlacedSet]) -> bool:
    """Jobs that more sets have than there are: those sets do without them, the largest first.

    False: some cannot, as jobs that draw too much alone cannot be alone.
    """
    seated = _seated(used)
    for kind, n in enumerate(answers[0].placing.kinds):
        for _ in range(seated[kind] - n.count):
            having = sorted(
                (placed for placed in used if kind in placed.kinds), key=lambda o: -len(o.kinds)
            )
            fewer = ((placed, _without(answers, placed, kind)) for placed in having)
            whole, left = next(filter(lambda option: option[1] is not None, fewer), (None, None))
            if whole is None or left is None:
                return False
            used.subtract([whole])
            used.update(left)
            used += Counter()
    return True


def _without(
    answers: list[SetAnswers], placed: PlacedSet, kind: int
) -> tuple[PlacedSet, ...] | None:
    """What is left of a set less one job of a kind; None: the others do not share."""
    if len(placed.kinds) == 1:
        return ()
    kinds = list(placed.kinds)
    kinds.remove(kind)
    left = answers[placed.pool].of(tuple(kinds))
    return (left,) if left else None


def _seat_waiting(
    answers: list[SetAnswers],
    used: Counter[PlacedSet],
    waiting_costs: Sequence[float],
    until: float,
) -> None:
    """Let those that wait join used sets, the dearest first, the smallest set that has room.

    Whole cards leave one or two of thousands of jobs without a seat, which costs more than all that
    a longer search would save.
    """
    seated = _seated(used)
    for kind in sorted(range(len(waiting_costs)), key=lambda kind: -waiting_costs[kind]):
        for _ in range(answers[0].placing.kinds[kind].count - seated[kind]):
            changes = (
                (placed, more)
                for placed in sorted(used, key=lambda placed: len(placed.kinds))
                if len(placed.kinds) < MOST_JOBS and time.monotonic() < until
                if (more := answers[placed.pool].of(tuple(sorted((*placed.kinds, kind)))))
                if more.cost - placed.cost < waiting_costs[kind]
            )
            if not (change := next(changes, None)):
                break
            used.subtract(change[:1])
            used.update(change[1:])
            used += Counter()


def _seated(used: Mapping[PlacedSet, int]) -> Counter[int]:
    return Counter(kind for placed, count in used.items() for kind in placed.kinds * count)


# Sets that are kept before others are looked for, those that have half of a card and the first:
# fewer while there is time and cards are far from their parts.
_AT_ONCE = (4, 2, 1)

# How often sets are looked for at most.
LOOKS = 2

# Part of the cost that another look must save.
LOOK_WORTHWHILE = 2e-4

# Cost of a batch job that has no seat, for each 1 of the dearest alone.
_BATCH_WAITS = 3.0

# The same of a server, which goes first, also before the up to seven jobs of a card that take the
# place of one.
_SERVER_WAITS = 30.0


FEW_SETS = 128
"""No more than these are all decided on: of seven jobs, which may be one set, on one GPU model."""

# Pool and kinds of a set.
_Seats: TypeAlias = tuple[int, tuple[int, ...]]


class _Master:
    """A linear program to which sets are added: a row for each kind, and one for each pool.

    Attributes:
        settled: Sets that were decided on.
        spare: Whether sets may have seats for more jobs than there are: no set is cheaper for a
            further job, and whole cards are found sooner so.
        rest_costs: Of a waiting job of each kind; at once also of an empty card of each pool.
    """

    def __init__(self, placing: Placing, *, spare: bool) -> None:
        self.placing, self.spare, self._program = placing, spare, highspy.Highs()
        self.sets, self.rest_costs = list[PlacedSet](), list[float]()
        self.settled, self._refused = set[_Seats](), set[_Seats]()
        self._seated: Floats = np.zeros((0, len(self.placing.kinds)))
        _set_options(self._program)
        for count in self.placing.counts:
            most = highspy.kHighsInf if self.spare else count
            self._program.addRow(count, most, 0, np.array([], np.int32), np.array([]))
        for pool in self.placing.pools:
            # Sets of a queue follow each other on a GPU.
            most = highspy.kHighsInf if self.placing.queue else pool.gpus
            least = pool.gpus if self.placing.at_once else -highspy.kHighsInf
            self._program.addRow(least, most, 0, np.array([], np.int32), np.array([]))

    @property
    def waiting_costs(self) -> list[float]:
        """Of a waiting job of each kind."""
        return self.rest_costs[: len(self.placing.kinds)]

    def wait(self, dearest: float) -> None:
        """Let each kind wait; call it once, before sets are added.

        `dearest` is what the dearest job alone costs.
        """
        placing = self.placing
        waits = [_SERVER_WAITS if kind.is_server else _BATCH_WAITS for kind in placing.kinds]
        if placing.at_once:
            waits += [0.0 if pool.running else _BATCH_WAITS for pool in placing.pools]
        self._add_rest(dearest * of_dearest for of_dearest in waits)

    def without_spare(self, more: Iterable[PlacedSet]) -> "_Master":
        """The same, and some more sets, with no more seats than there are jobs."""
        exact = _Master(self.placing, spare=False)
        exact.settled, exact._refused = {*self.settled}, {*self._refused}
        exact._add_rest(self.rest_costs)
        exact.add(
            (
                *filter(
                    lambda placed: placed.decision or _seats(placed) not in self.settled, self.sets
                ),
                *more,
            )
        )
        return exact

    def add(self, sets: Iterable[PlacedSet]) -> int:
        """How many of them are new."""
        present, before = set(self.sets), len(self.sets)
        for placed in dict.fromkeys(sets):
            if placed not in present and (placed.decision or _seats(placed) not in self.settled):
                rows = {kind: float(placed.kinds.count(kind)) for kind in set(placed.kinds)}
                self._column(placed.cost, rows | {len(self.placing.kinds) + placed.pool: 1.0})
                self.sets.append(placed)
        return len(self.sets) - before

    def settle(self, cards: Floats, of: Callable[[PlacedSet], PlacedSet | None]) -> bool:
        """Decide on the sets in use; return whether some were refused.

        Columns of a set that is refused, whatever its limits, are used no more.
        """
        again, first = False, len(self.rest_costs)
        for n in np.flatnonzero(cards > 0).tolist():
            placed = self.sets[n]
            if placed.decision or len(placed.kinds) == 1:
                continue
            self.settled.add(seats := _seats(placed))
            settled = of(placed)
            again |= settled is None
            if settled is None:
                self._refused.add(seats)
                cards[n] = 0.0
            else:
                self.sets[n] = settled
                self._program.changeColCost(first + n, settled.cost)
        self._bound()
        return again

    def limit(self, costs: Floats, takes: Floats) -> None:
        """Of a queue: set each set's cost and the part of a GPU it takes; infinite: too long."""
        count, rows = len(self.sets), len(self.placing.kinds) + len(self.placing.pools)
        self._program.changeColsCost(count, np.arange(count, dtype=np.int32), costs)
        if self._program.getNumRow() > rows:
            self._program.deleteRows(1, np.array([rows], np.int32))
        some = np.flatnonzero(np.isfinite(takes))
        gpus = self.placing.pools[0].gpus
        self._program.addRow(
            -highspy.kHighsInf, gpus, len(some), some.astype(np.int32), takes[some]
        )
        self._bound(np.isfinite(takes))

    def solve(self) -> tuple[float, Floats]:
        """Least cost where cards may be cut in parts, and what rows are worth; shape (rows,)."""
        self._program.run()
        return self._program.getInfo().objective_function_value, np.array(
            self._program.getSolution().row_dual
        )

    def cards(self) -> Floats:
        """Of each set, parts of cards or whole ones, as solved last; shape (sets,)."""
        return np.array(self._program.getSolution().col_value)[len(self.rest_costs) :]

    def left(self, cards: Floats) -> Floats:
        """Jobs of each kind without a seat, where sets have these cards."""
        return np.maximum(0.0, self.placing.counts - cards @ self.seats[: len(cards)])

    def free(self, cards: Floats) -> Floats:
        """Empty cards of each pool, where sets have these cards."""
        free = np.array([pool.gpus for pool in self.placing.pools], dtype=float)
        pools = np.array([placed.pool for placed in self.sets[: len(cards)]], dtype=np.int64)
        free -= np.bincount(pools, cards, minlength=len(free))
        return free

    def keep(self, cards: Floats) -> None:
        """These at least; and of each set no more than those that are left have jobs for."""
        seats = self.seats
        least = np.append(cards, np.zeros(len(seats) - len(cards)))
        having = np.where(seats > 0, self.left(least) // np.maximum(seats, 1.0), np.inf)
        self._bound(least=least, most=least + having.min(axis=1))

    def whole(self, time_limit_s: float, gap: float, start: Floats | None = None) -> Floats | None:
        """Whole numbers of GPUs for each set: the best found in the time, from a first solution.

        None: there is none, or none was found.
        """
        count = self._program.getNumCol()
        kinds = np.array([highspy.HighsVarType.kInteger] * count)
        self._program.changeColsIntegrality(count, np.arange(count, dtype=np.int32), kinds)
        if start is not None:
            first = highspy.HighsSolution()
            first.col_value = [*self._rest(start), *start, *[0.0] * (len(self.sets) - len(start))]
            self._program.setSolution(first)
        _set_options(
            self._program, time_limit=self._program.getRunTime() + time_limit_s, mip_rel_gap=gap
        )
        self._program.run()
        return np.rint(self.cards()) if _is_solved(self._program) else start

    def cost(self, cards: Floats) -> float:
        """Of whole cards of each set, and of jobs that are left."""
        costs = np.array([placed.cost for placed in self.sets[: len(cards)]])
        return float(costs @ cards + self._rest(cards) @ np.array(self.rest_costs))

    @property
    def seats(self) -> Floats:
        """Of each set, how many jobs of each kind; shape (sets, kinds)."""
        new = np.zeros((len(self.sets) - len(self._seated), len(self.placing.kinds)))
        for row, placed in enumerate(self.sets[len(self._seated) :]):
            np.add.at(new[row], [*placed.kinds], 1)
        self._seated = np.concatenate([self._seated, new])
        return self._seated

    def _bound(
        self,
        fits: Bools | None = None,
        least: Floats | None = None,
        most: Floats | None = None,
    ) -> None:
        """Set the least and most GPUs of each set; 0 for refused sets and those that do not fit."""
        rest, count = len(self.rest_costs), len(self.sets)
        least = np.zeros(count) if least is None else least
        most = np.full(count, highspy.kHighsInf) if most is None else most
        free = np.array([_seats(placed) not in self._refused for placed in self.sets], dtype=bool)
        free &= True if fits is None else fits
        self._program.changeColsBounds(
            rest + count,
            np.arange(rest + count, dtype=np.int32),
            np.append(np.zeros(rest), np.where(free, least, 0.0)),
            np.append(np.full(rest, highspy.kHighsInf), np.where(free, most, 0.0)),
        )

    def _rest(self, cards: Floats) -> Floats:
        """Waiting jobs and empty cards, as `rest_costs`."""
        return np.append(self.left(cards), self.free(cards))[: len(self.rest_costs)]

    def _add_rest(self, costs: Iterable[float]) -> None:
        self.rest_costs = list(costs)
        for row, cost in enumerate(self.rest_costs):
            self._column(cost, {row: 1.0})

    def _column(self, cost: float, rows: Mapping[int, float]) -> None:
        order = sorted(rows)
        values = np.array([rows[row] for row in order])
        self._program.addCol(
            cost, 0.0, highspy.kHighsInf, len(order), np.array(order, np.int32), values
        )


def _seats(placed: PlacedSet) -> _Seats:
    return placed.pool, placed.kinds


def _search_rounds(
    placing: Placing,
    answers: list[SetAnswers],
    master: _Master,
    started: float,
    time_limit_s: float,
    most: float,
    takes: float,
) -> tuple[float, bool]:
    """Add sets to the master; what no plan can be better than, and whether the time ended it.

    `most` is the part of the time after which it ends, `takes` that of the first turn.
    """
    least = _least(master)
    bound, cost, closely = 0.0, math.inf, not answers
    while (part := _part(started, time_limit_s)) + takes <= most or not (bound or takes):
        before, (cost, duals) = cost, master.solve()
        # A turn that saves less of the cost is not worth another one like it.
        closely |= cost > (1 - 5e-4) * before or part > _SEARCH_PART / 2
        if closely and placing.at_once:
            break
        enough = _NEAR / 2 * cost / sum(pool.gpus for pool in placing.pools)
        searches = _searches(answers, duals, closely=closely)
        sets, most_gain = zip(*(search.all(least, enough) for search in searches), strict=True)
        if not placing.at_once:
            bound = max(bound, _LEAST_GAIN * cost, _bound(placing, duals, np.array(most_gain)))
        new = master.add(placed for of_pool in sets for placed in of_pool)
        if bound >= (1 - _NEAR) * cost or (closely and not new):
            return bound, False
        takes = min(_part(started, time_limit_s) - part, _TURN_PART)
    return bound, not placing.at_once


def _master(placing: Placing, answers: list[SetAnswers]) -> _Master:
    """With each job alone, and copies; decided on are all sets of few jobs, or every pair.

    The latter where a job may not be alone.
    """
    master = _Master(placing, spare=not placing.at_once)
    taken = [range(kind.count + 1) for kind in placing.kinds]
    sets = [placed for a in answers for placed in a.singles()]
    if len(answers) * math.prod(map(len, taken)) <= FEW_SETS:
        for counts in itertools.product(*taken):
            kinds = tuple(kind for kind, count in enumerate(counts) for _ in range(count))
            if ADVISED_JOBS <= len(kinds) <= MOST_JOBS:
                there = (a for a in answers if {*kinds} <= {*a.there})
                sets += filter(None, (a.of(kinds) for a in there))
        # What the search says of them is no longer needed.
        master.settled |= {_seats(placed) for placed in sets if placed.decision}
    sets += [placed for a in answers for placed in a.copies()]
    if len({kind for placed in sets for kind in placed.kinds}) < sum(map(bool, placing.counts)):
        sets += [placed for a in answers for placed in a.pairs()]
    if not placing.at_once:
        _check_seated(placing, sets)
    sets += [
        placed for n in range(len(answers), len(placing.pools)) for placed in placing.joining(n)
    ]
    master.wait(_dearest(sets))
    master.add(sets)
    return master


def _check_seated(placing: Placing, sets: Iterable[PlacedSet]) -> None:
    """Refuse kinds that are in no set.

    Raises:
        NoSplitError: there is one.
    """
    seated = {kind for placed in sets for kind in placed.kinds}
    if lost := [kind.name for n, kind in enumerate(placing.kinds) if n not in seated]:
        raise NoSplitError(
            f"{', '.join(dict.fromkeys(lost))} cannot be placed",
            why="no limit is kept, neither alone nor beside another job",
            fix="allow more power or memory, or leave those jobs out",
        )


def _dived(
    answers: list[SetAnswers], master: _Master, started: float, time_limit_s: float
) -> list[Floats]:
    """Whole cards of each set, more and more of them are kept; the last for all jobs that can be.

    Sets are looked for meanwhile, by what rows are worth, of so many jobs of each kind.
    """

    def look(duals: Floats, left: Floats) -> None:
        for of_pool in answers:
            of_pool.leave(left)
        for search in _searches(answers, duals, closely=False):
            master.add(search.all(least, math.inf)[0])

    def left_s() -> float:
        return time_limit_s - (time.monotonic() - started)

    least = _least(master)
    (cost, _), best, steps = master.solve(), None, list[Floats]()
    for number in _AT_ONCE[:1] if master.placing.at_once else _AT_ONCE:
        before_s = left_s()
        tried = _dive(master, look, left_s, number)
        if best is None or master.cost(tried[-1]) < master.cost(best):
            best, steps = tried[-1], tried
        if master.cost(best) <= (1 + _NEAR) * cost or before_s - left_s() > left_s() - _LAST_S:
            break
    for of_pool in answers:
        of_pool.leave(master.placing.counts)
    return steps


def _least(master: _Master) -> float:
    """What a set gains at least that is worth a column."""
    return _LEAST_GAIN * _dearest(master.sets)


def _dearest(sets: Iterable[PlacedSet]) -> float:
    """Cost of the dearest job alone, or of two jobs, where one may not run alone."""
    few = [placed for placed in sets if len(placed.kinds) <= ADVISED_JOBS]
    alone = {kind for placed in few if len(placed.kinds) == 1 for kind in placed.kinds}
    either = (placed.cost for placed in few if len(placed.kinds) == 1 or {*placed.kinds} - alone)
    return max(either, default=1.0)


def _finished(master: _Master, steps: list[Floats], left_s: float) -> Floats:
    """How many cards each set has: a program over the last of those that a dive has kept."""
    best = steps[-1]
    kept = (np.zeros(0), *steps)  # a few cards are chosen all at once
    # The program may give 30 cards to other sets than the dive did.
    master.keep(next(some for some in kept if best.sum() - some.sum() <= 30))
    if left_s <= 0:
        return best
    counts = master.whole(left_s, _NEAR, best)
    return best if counts is None else min((counts, best), key=master.cost)


def _dive(
    master: _Master, look: Callable[[Floats, Floats], None], left_s: Callable[[], float], most: int
) -> list[Floats]:
    master.keep(np.zeros(0))
    master.solve()
    steps = [np.floor(master.cards() + _ROUNDING)]
    while (left := master.left(steps[-1])).any():
        kept = steps[-1]
        # Without a look the last cards fit badly; so each takes one a little longer.
        looks = (left_s() > -_LAST_S) + (LOOKS - 1) * (left_s() > 3 * _LAST_S)
        # Other sets are looked for as long as that saves much.
        before = np.inf
        for _ in range(looks):
            master.keep(kept)
            cost, duals = master.solve()
            if cost > (1 - LOOK_WORTHWHILE) * before:
                break
            before = cost
            look(duals, left)
        master.keep(kept)
        master.solve()
        more = _more(master, kept, most)
        if not more.any():
            break
        steps.append(np.append(kept, np.zeros(len(more) - len(kept))) + more)
    return steps


def _more(master: _Master, kept: Floats, most: int) -> Floats:
    """Cards to keep, too: of those sets that have the largest parts, where jobs and GPUs are."""
    cards = master.cards()
    kept = np.append(kept, np.zeros(len(cards) - len(kept)))
    part, more, left = cards - kept, np.zeros_like(kept), master.left(kept)
    pools, free = [placed.pool for placed in master.sets], master.free(kept)
    for row in np.argsort(-part, kind="stable")[:most].tolist():
        if part[row] < (0.5 if more.any() else _ROUNDING):
            break
        cards_of = max(1.0, np.floor(part[row] + _ROUNDING))
        if (cards_of * master.seats[row] <= left).all() and cards_of <= free[pools[row]]:
            more[row], left = cards_of, left - cards_of * master.seats[row]
            free[pools[row]] -= cards_of
    return more


def _placed_queue(placing: Placing, time_limit_s: float) -> Plan:
    started = time.monotonic()
    ends, pairs = started + time_limit_s, QueuePairs(placing)
    sets = [*pairs.alone.values(), *pairs.sharing_pairs(started + _SEARCH_PART * time_limit_s)]
    _check_seated(placing, sets)
    master = _Master(placing, spare=False)
    master.add(sets)
    best, latest_s = None, math.inf
    if len(pairs.alone) == len(placing.kinds):
        best = Schedule.of([pairs.alone[kind] for kind in placing.queue], placing)
        latest_s = best.totals.makespan_s * (1 + _SAME)
    apart = best
    for schedule in _matchings(master, pairs, latest_s, ends):
        if schedule.totals.makespan_s <= latest_s:
            best = min(best or schedule, schedule, key=lambda plan: _badness(placing, plan.totals))
    if best is None:
        raise _no_plan(placing, pairs, timed_out=time.monotonic() >= ends)
    timed_out = pairs.timed_out or time.monotonic() >= ends
    others = {FIRST_COME: pairs.first_come(), APART: apart}
    used = Counter(best.sets)
    saved = {
        placed: count * (_alone_cost(placing, placed) - placed.cost)
        for placed, count in used.items()
    }
    order = sorted(used, key=lambda placed: (-len(placed.kinds), -saved[placed], placed.kinds))
    return Plan(
        placing=placing,
        sets={placed: used[placed] for placed in order},
        waiting={},
        waiting_cost=0.0,
        cost=float(placing.spent(best.totals.gpu_time_s, best.totals.energy_j)),
        bound=0.0,
        timed_out=timed_out,
        schedule=best,
        others={name: other for name, other in others.items() if other},
    )


def _matchings(
    master: _Master, pairs: QueuePairs, makespan_s: float, ends: float
) -> Iterator[Schedule]:
    """Schedules of the cheapest sets, then of the cheapest for each makespan."""
    placing = master.placing
    cheapest = _matching(master, pairs, ends, None, 0.0)
    if cheapest is None:
        return
    yield cheapest
    makespan_s = cheapest.totals.makespan_s if makespan_s == math.inf else makespan_s
    # GPUs that wait for the last job draw idle power.
    idle = float(placing.spent(0.0, placing.pools[0].idle_power_w))
    # Makespans are tried relative to that of the jobs one after the other.
    parts = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)
    for saved, part in ((0.0, 1.0), *((idle, part) for part in parts)):
        for several in (False, True):
            if time.monotonic() >= ends:
                return
            if schedule := _matching(master, pairs, ends, (part * makespan_s, several), saved):
                yield schedule


def _matching(
    master: _Master,
    pairs: QueuePairs,
    ends: float,
    within: tuple[float, bool] | None,
    saved: float,
) -> Schedule | None:
    """A schedule of the cheapest sets, each decided on; None: none was found in time.

    `within` is a makespan, and whether as many sets as fit one after the other take a GPU; None:
    however long it takes. A GPU costs so much less (`saved`) in each second in which it runs
    something.
    """
    for _ in range(_MOST_SETTLED):
        times_s = np.array([placed.time_s for placed in master.sets])
        costs = np.array([placed.cost for placed in master.sets]) - saved * times_s
        master.limit(costs, _takes(times_s, *within) if within else np.zeros(len(times_s)))
        cards = master.whole(max(ends - time.monotonic(), _LEAST_S), _GAP)
        if cards is None:
            return None
        if not master.settle(cards, pairs.decided):
            used = zip(master.sets, cards.astype(int).tolist(), strict=True)
            return Schedule.of(
                [placed for placed, count in used for _ in range(count)], master.placing
            )
    return None


def _takes(time_s: Floats, makespan_s: float, several: bool) -> Floats:
    """The part of a GPU that a set takes until the makespan; infinite: it takes longer.

    At least its part of the time; at most one of as many as fit one after the other, since sets of
    like length then fill each GPU.
    """
    fit = np.floor(makespan_s / time_s * (1 + _SAME))
    return np.where(fit >= 1, 1 / np.maximum(fit, 1) if several else time_s / makespan_s, np.inf)


def _badness(placing: Placing, totals: Totals) -> tuple[float, float]:
    if not placing.per_w:
        return totals.makespan_s, totals.mean_completion_s
    return float(placing.spent(totals.gpu_time_s, totals.energy_j)), totals.makespan_s


def _alone_cost(placing: Placing, placed: PlacedSet) -> float:
    """The same work of a queue, one job after the other."""
    return float(
        sum(placing.spent(*placing.alone_to_the_end(placed.pool, kind)) for kind in placed.kinds)
    )


def _no_plan(placing: Placing, pairs: QueuePairs, *, timed_out: bool) -> Exception:
    if timed_out:
        return InputError(
            "no plan was found in time",
            fix="allow more: --time-limit, or `time_limit_s` in a request",
        )
    lost = [kind.name for n, kind in enumerate(placing.kinds) if n not in pairs.alone]
    return NoSplitError(
        "not every job can be placed",
        why=f"{', '.join(lost)} may not run alone, and has not enough jobs to share with",
        fix="allow more power or memory, or a lower minimum speed",
    )


def _set_options(program: highspy.Highs, **options: float) -> None:
    # One thread: plans are the same on every host, and the service's other requests keep theirs.
    for name, value in {"output_flag": False, "threads": 1, **options}.items():
        program.setOptionValue(name, value)


def solved(program: highspy.HighsLp, time_limit_s: float) -> Floats | None:
    """Values of the columns of an integer program; None: none were found in time."""
    solver = highspy.Highs()
    _set_options(solver, time_limit=time_limit_s, mip_rel_gap=_GAP)
    solver.passModel(program)
    solver.run()
    return np.array(solver.getSolution().col_value) if _is_solved(solver) else None


def _is_solved(program: highspy.Highs) -> bool:
    status = program.getInfo().primal_solution_status
    return status == highspy.SolutionStatus.kSolutionStatusFeasible
