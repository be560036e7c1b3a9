"""Sets that could have shared a GPU: sets of kinds, grown job by job by the law of sets.

A cluster is packed hundreds of times, slot by slot, in groups that may share. So what each further
kind would gain a set is asked once of `advisor.placement` (the law as arrays, with every limit) and
kept, and a group is packed by taking what gains most. That finds no more than `advisor place`
would: what is saved here, a plan saves, too.

Jobs that were seen become kinds: like windows on like GPUs are one kind, with one profile. A
cluster has thousands of jobs and a placement wants hundreds of kinds at most, so windows are
counted in cells: of activity, power, memory and so on. A kind is the mean of all windows of its
cell, by their time, and needs as much memory as the largest of them.
"""

import functools
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from advisor.core.gpu import CARD_UNITS, MEMORY_MIB, MOST_JOBS, Gpu
from advisor.core.job import Job
from advisor.core.objectives import Aim, Prices
from advisor.core.records import KEPT_S, UNCOUNTED_UNIT, SoloPoint
from advisor.core.wording import NAME
from advisor.decide.limits import Request
from advisor.placement.placing import LEVELS, Kind, Placing, Pool, SetAnswers, Sets
from advisor.predict.profiles import MEASURED_ON, Floats, Profile, Serving
from advisor.predict.sets import CLASSES, OF_SET, TAILS, SetClass
from advisor_audit.phases import Blocks, Segment, joined
from advisor_audit.sources import (
    ACTIVITY,
    CLOCK,
    FREE,
    LIMIT,
    POWER,
    TOTAL,
    USED,
    Owner,
    workload_name,
)
from advisor_models.single_window import (
    DRAM,
    IDLE_W,
    LEARNED_LIMIT_W,
    MEMORY_BUSY,
    READ,
    SM,
    SingleWindowHead,
    SoloWindow,
)


class Workload(NamedTuple):
    """All pods of one name, or one batch job."""

    group: str
    name: str

    @property
    def profile_name(self) -> str:
        """Name of its profile, as given to `advisor profile --name`."""
        return self.name.removeprefix("job ")

    @classmethod
    def of(cls, owner: Owner) -> "Workload":
        """The name without what is made up for each pod."""
        return cls(owner.group, workload_name(owner.name))


@dataclass(slots=True)
class WorkloadUse:
    """What was seen of a workload.

    Attributes:
        gpu: On which it was seen last.
        activity: Over its seconds.
        busy: Of each channel at work, the sum of values times seconds, and the seconds.
        memory_mib: The most of one pod.
        pods: Hashes of their names: a name has fifty times as many bytes.
    """

    model: str = ""
    gpu: str = ""
    busy_s: float = 0.0
    paused_s: float = 0.0
    activity: Blocks = (0.0, 0.0, 0.0)
    busy: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    energy_j: float = 0.0
    memory_mib: float = 0.0
    pods: set[int] = field(default_factory=set[int])

    @property
    def spread(self) -> float:
        """Standard deviation of its activity over the mean."""
        seconds, mean, squares = self.activity
        return math.sqrt(squares / seconds) / mean if mean > 0 else 0.0

    @property
    def is_server(self) -> bool:
        """Whether it looks like one.

        Its activity goes up and down by 30 % of its mean, from minute to minute, for half an hour.
        Training that is steady does not.
        """
        return self.spread >= 0.3 and self.activity[0] >= 1800.0

    def add(self, segment: Segment) -> None:
        """One more segment of it."""
        span_s = segment.end_s - segment.begin_s
        self.model, self.gpu = segment.model, segment.gpu
        self.pods.add(hash(segment.owner))
        self.memory_mib = max(self.memory_mib, segment.means.get(USED, 0.0))
        self.energy_j += span_s * segment.means.get(POWER, 0.0)
        active = _activity_of(segment)
        if segment.state == "paused":
            self.paused_s += span_s
        else:
            self.busy_s += span_s
            for channel, value in segment.means.items():
                total, seconds = self.busy.get(channel, (0.0, 0.0))
                self.busy[channel] = total + value * segment.read_s, seconds + segment.read_s
            if active is not None:
                self.activity = joined(
                    self.activity, active, segment.read_s, (segment.spread * active) ** 2
                )


def _activity_of(segment: Segment) -> float | None:
    """Percent; None: it was not read."""
    return next((segment.means[name] for name in ACTIVITY if name in segment.means), None)


_SM_EDGES = (1.0, 3.0, 6.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 75.0, 90.0)


class WorkloadKind(NamedTuple):
    """A cell of windows, or a job that the store knows.

    Attributes:
        known: Name of the job in the store; empty: it was seen only.
    """

    model: str
    profile_name: str
    is_server: bool
    cell: tuple[int, ...]


@dataclass(slots=True)
class Survey:
    """All that is known of jobs and GPUs before they are placed; bounded by how many there are.

    Attributes:
        stored_profiles: Profiles that the store has, by GPU model and job.
        several: Owners that held several GPUs at once: they are left as they are.
        named: Groups that use each name of a workload.
        idle_w: Watts and seconds of free GPUs, by model.
        totals_mib: Memory of a card, by model, as it was read.
        limits_w: Power limit, by model; of one that is missing it was not read.
    """

    stored_profiles: Mapping[tuple[str, str], Profile] = field(
        default_factory=dict[tuple[str, str], Profile]
    )
    workloads: dict[Workload, WorkloadUse] = field(default_factory=lambda: defaultdict(WorkloadUse))
    several: set[Owner] = field(default_factory=set[Owner])
    idle_w: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    totals_mib: dict[str, float] = field(default_factory=dict[str, float])
    limits_w: dict[str, float] = field(default_factory=dict[str, float])
    most_w: dict[str, float] = field(default_factory=dict[str, float])
    clocks_mhz: dict[str, float] = field(default_factory=dict[str, float])
    groups: set[str] = field(default_factory=set[str])
    named: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _cells: dict[WorkloadKind, dict[str, list[float]]] = field(
        default_factory=dict[WorkloadKind, dict[str, list[float]]]
    )

    def add_page(self, segments: Collection[Segment]) -> None:
        """One page of the whole cluster."""
        self.several |= _held_several(segments)
        for segment in segments:
            self._of_card(segment)
            if segment.owner and segment.state in ("busy", "paused"):
                self.workloads[workload := Workload.of(segment.owner)].add(segment)
                self.named[workload.profile_name].add(workload.group)
                self.groups.add(workload.group)

    def profile_name(self, workload: Workload) -> str:
        """The name of a workload's profile; behind its group where others use the name, too."""
        name = workload.profile_name
        return name if len(self.named[name]) < 2 else f"{workload.group}.{name}"

    def _of_card(self, segment: Segment) -> None:
        means, model = segment.means, segment.model
        whole_mib = means[USED] + means[FREE] if {USED, FREE} <= means.keys() else None
        for highest, value in (
            (self.most_w, means.get(POWER)),
            (self.limits_w, means.get(LIMIT)),
            # Of a window of few readings it would say that all others are held back.
            (self.clocks_mhz, means.get(CLOCK) if segment.read_s >= 600.0 else None),
            (self.totals_mib, means.get(TOTAL, whole_mib)),
        ):
            if value is not None:
                highest[model] = max(highest.get(model, 0.0), value)
        if POWER in means and segment.state == "free":
            idle = self.idle_w.setdefault(model, [0.0, 0.0])
            idle[0] += means[POWER] * segment.read_s
            idle[1] += segment.read_s

    def idle_power_w(self, model: str) -> float:
        """Of a free GPU."""
        watts, seconds = self.idle_w.get(model, (0.0, 0.0))
        return watts / seconds if seconds > 0 else IDLE_W

    def memory_mib(self, model: str) -> float | None:
        """Of a card; None: unknown."""
        return MEMORY_MIB.get(model) or self.totals_mib.get(model) or None

    def kind_of(self, segment: Segment) -> WorkloadKind | None:
        """The kind of a segment; None: too little was read, or its owner held several GPUs."""
        if segment.owner is None or segment.owner in self.several:
            return None
        if POWER not in segment.means or _activity_of(segment) is None:
            return None
        memory_mib = self.memory_mib(segment.model)
        if memory_mib is None or USED not in segment.means:
            return None
        workload = Workload.of(segment.owner)
        name = self.profile_name(workload)
        if segment.state == "busy" and (segment.model, name) in self.stored_profiles:
            return WorkloadKind(segment.model, name, False, ())
        is_server = segment.state == "busy" and self.workloads[workload].is_server
        return WorkloadKind(segment.model, "", is_server, self._cell(segment, memory_mib))

    def _cell(self, segment: Segment, memory_mib: float) -> tuple[int, ...]:
        means, model = segment.means, segment.model
        idle_w = self.idle_power_w(model)
        power = (means[POWER] - idle_w) / max(self.most_w[model] - idle_w, 1.0)
        # What is known of one cell is averaged, so SM activity and how busy a GPU is stand apart.
        edge = int(np.searchsorted(_SM_EDGES, _activity_of(segment) or 0.0))
        return (
            edge if SM in means else edge + len(_SM_EDGES) + 1,
            int(max(0.0, power) * 12),
            math.ceil(16 * means[USED] / memory_mib),
            # Wide cells of what matters less.
            int(means.get(DRAM, means.get(MEMORY_BUSY, 0.0)) / 20.0),
        )

    def points(self, begin: str) -> Iterator[SoloPoint]:
        """What was seen of workloads of one GPU since `begin` (ISO 8601, UTC), by their names.

        A batch job's number names no job, and of one with a profile that is known.
        """
        several = set(map(Workload.of, self.several))
        for workload, use in self.workloads.items():
            name, model = self.profile_name(workload), use.model
            means = {channel: total / s for channel, (total, s) in use.busy.items() if s}
            is_named = NAME.fullmatch(name) and not name.isdecimal() and workload not in several
            if not is_named or (model, name) in self.stored_profiles or POWER not in means:
                continue
            read: dict[str, Any] = {n: means[n] for n in (POWER, *READ) if n in means}
            if use.busy_s >= KEPT_S:
                yield SoloPoint.watched(
                    # What looks like a server keeps its load.
                    Job(name=name, command=(), offered_rate=1.0 if use.is_server else None),
                    Gpu(
                        uuid=use.gpu,
                        model=model,
                        units_total=CARD_UNITS.get(model),
                        power_limit_w=self.limits_w.get(model),
                    ),
                    rate=1.0,
                    rate_unit=UNCOUNTED_UNIT,
                    memory_used_mib=use.memory_mib or None,
                    idle_power_w=self.idle_power_w(model) if model in self.idle_w else None,
                    window_s=use.busy_s,
                    started_at=begin,
                    run="audit",
                    source="audit",
                    host=None,
                    **read,
                )

    def count(self, segment: Segment, kind: WorkloadKind) -> None:
        """One more window of a kind."""
        if kind.profile_name:
            return
        sums = self._cells.setdefault(kind._replace(is_server=False), {})
        for channel, value in segment.means.items():
            kept = sums.setdefault(channel, [0.0, 0.0, 0.0])
            kept[0] += value * segment.read_s
            kept[1] += segment.read_s
            kept[2] = max(kept[2], value)

    def profiles(self, kinds: Iterable[WorkloadKind], head: SingleWindowHead) -> list[Profile]:
        """Of each kind: as it was measured, else as it is estimated from its mean window."""
        return [
            self.stored_profiles[kind.model, kind.profile_name]
            if kind.profile_name
            else _with_demand(kind, head.likeliest(self.window(kind)))
            for kind in kinds
        ]

    def guesses(
        self, kinds: Iterable[WorkloadKind], head: SingleWindowHead
    ) -> Callable[[int], list[Profile]]:
        """The same in each world, where what is measured is as it is."""
        head_guesses = [(kind, self._guess(kind, head)) for kind in kinds]
        return lambda world: [_with_demand(kind, guess(world)) for kind, guess in head_guesses]

    def _guess(self, kind: WorkloadKind, head: SingleWindowHead) -> Callable[[int], Profile]:
        if kind.profile_name:
            return lambda _: self.stored_profiles[kind.model, kind.profile_name]
        return head.guesses(self.window(kind), is_server=kind.is_server)

    def window(self, kind: WorkloadKind) -> SoloWindow:
        """The mean window of a kind."""
        sums = self._cells[kind._replace(is_server=False)]
        means = {channel: total / seconds for channel, (total, seconds, _) in sums.items()}
        clock_mhz = self.clocks_mhz.get(kind.model)
        return SoloWindow(
            job=f"{kind.model} {kind.cell} {kind.is_server}",
            gpu_model=kind.model,
            units_total=CARD_UNITS.get(kind.model),
            power_w=max(means[POWER], self.idle_power_w(kind.model) + 1),
            power_limit_w=self.limits_w.get(
                kind.model, LEARNED_LIMIT_W if kind.model in MEASURED_ON else None
            ),
            clock_part=means[CLOCK] / clock_mhz if clock_mhz and CLOCK in means else 1.0,
            idle_power_w=self.idle_power_w(kind.model),
            memory_used_mib=sums[USED][2],
            counters={name: value for name, value in means.items() if name in READ},
        )


def _with_demand(kind: WorkloadKind, profile: Profile) -> Profile:
    """With the demand of what looks like a server."""
    if kind.profile_name or not kind.is_server:
        return profile
    rate = float(profile.values["rate"][-1])
    return replace(profile, serving=Serving(offered_rate=rate, rate_noise=None, latency_p99_ms=()))


def _held_several(segments: Iterable[Segment]) -> set[Owner]:
    """Owners that held two GPUs at the same time."""
    owners = set[Owner]()
    until: dict[Owner, dict[str, float]] = defaultdict(dict)  # when each last let go of each GPU
    for segment in sorted(segments, key=lambda s: s.begin_s):
        if segment.owner:
            ends_s = until[segment.owner]
            if any(end_s > segment.begin_s for gpu, end_s in ends_s.items() if gpu != segment.gpu):
                owners.add(segment.owner)
            ends_s[segment.gpu] = segment.end_s
    return owners


# Kinds of a set by their numbers, ascending.
_Members: TypeAlias = tuple[int, ...]

# Sets with their level, and how many of each.
_PackedCounts: TypeAlias = Counter[tuple[_Members, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSet:
    """What a set does, by the law.

    Attributes:
        speeds: Of each kind, relative to its own alone.
        shares: Request in percent.
        longer: How much longer the tail of each could be, for each 1 alone, as expected.
        lags: 1 for a job whose work is done later, 0 for a server: what it misses is lost.
        lag_w: Watts of the work that the jobs lag behind, done later on separate GPUs.
        lag_cards: Cards that this takes, 1 for as long as the set runs.
    """

    members: _Members
    speeds: tuple[float, ...]
    shares: tuple[float, ...]
    floors: tuple[float, ...]
    longer: tuple[float, ...]
    of_class: SetClass
    power_w: float
    alone_w: float
    lags: tuple[float, ...]
    lag_w: float
    lag_cards: float

    @property
    def saved_w(self) -> float:
        """For the same work, freed GPUs off."""
        return self.alone_w - self.power_w - self.lag_w


class Packer:
    """Kinds on cards of one GPU model; keeps what was asked.

    Attributes:
        kinds: In the order of their numbers.
        row: What each further kind would gain a set at a level, and at which level.
        set_of: What a set of two or more does at a level, or what a job does alone.

    Raises:
        InputError: an aim without prices.
    """

    def __init__(
        self,
        kinds: Sequence[WorkloadKind],
        profiles: Sequence[Profile],
        idle_power_w: float,
        aim: Aim,
        limits: Request,
        prices: Prices,
    ) -> None:
        pool = Pool(
            gpu_model=kinds[0].model,
            gpus=MOST_JOBS * len(kinds),
            profiles=tuple(profiles),
            limits=limits,
            idle_power_w=idle_power_w,
        )
        named = [
            Kind(name=profile.job, count=MOST_JOBS, is_server=kind.is_server)
            for kind, profile in zip(kinds, profiles, strict=True)
        ]
        answers = SetAnswers(Placing.of(named, [pool], aim, prices), 0)
        self.kinds, self.answers = kinds, answers
        placing, power_w = answers.placing, answers.many.alone.power_w
        self.alone = placing.per_card + placing.per_w * power_w[: len(kinds), 0]
        self.row = functools.lru_cache(maxsize=_MOST_KEPT)(self._predicted)
        self.set_of = functools.cache(self._described)
        self._packed = dict[frozenset[tuple[int, int]], _PackedCounts]()
        self._costs = dict[tuple[_Members, int], float]()

    def forget(self) -> None:
        """Drop what is kept; it is worked out again where it is asked again."""
        self.row.cache_clear()
        self.set_of.cache_clear()
        self._packed.clear()
        self._costs.clear()

    def pack(self, counts: Mapping[int, int]) -> _PackedCounts:
        """Sets for so many jobs of each kind, with their level; those alone are among them."""
        key = frozenset(counts.items())
        if key not in self._packed:
            if len(self._packed) > _MOST_KEPT:
                self._packed.clear()
            sm = self.answers.many.alone.sm[:, 0]
            orders = (sorted(counts, key=lambda n: (sign * sm[n], n)) for sign in (-1, 1))
            packings = [self._grown(counts, order) for order in orders]
            self._packed[key] = min(
                packings,
                key=lambda packing: sum(
                    n * self.cost(*members_at) for members_at, n in packing.items()
                ),
            )
        return self._packed[key]

    def _grown(self, counts: Mapping[int, int], order: Sequence[int]) -> _PackedCounts:
        left, packing = dict(counts), Counter[tuple[_Members, int]]()
        for seed in order:
            while left.get(seed, 0) > 0:
                members, level = self._best((seed,), left)
                used = Counter(members)
                times = min(left[kind] // count for kind, count in used.items())
                for kind, count in used.items():
                    left[kind] -= times * count
                packing[members, level] += times
        return packing

    def _best(self, members: _Members, left: Mapping[int, int]) -> tuple[_Members, int]:
        """A set grown by the job that gains most, as long as one gains."""
        level = 0
        while len(members) < MOST_JOBS:
            used = Counter(members)
            free = [kind for kind, count in left.items() if count > used[kind]]
            if not free:
                break
            gains, levels = self.row(members, level)
            best = free[int(gains[free].argmax())]
            if not gains[best] > 0:
                break
            cost = self.cost(members, level) + self.alone[best] - gains[best]
            members, level = tuple(sorted((*members, best))), int(levels[best])
            self._costs[members, level] = float(cost)
        return members, level

    def _predicted(self, members: _Members, level: int) -> tuple[Floats, npt.NDArray[np.int8]]:
        """What a set gains with each further kind, and at which level; all levels at once."""
        answers, kinds, size = self.answers, len(self.kinds), len(members) + 1
        rows = np.full((kinds * len(LEVELS), MOST_JOBS), kinds)  # which is no kind: empty
        rows[:, : len(members)] = members
        rows[:, size - 1] = np.tile(np.arange(kinds), len(LEVELS))
        levels = np.repeat(np.arange(len(LEVELS)), kinds)
        sizes = np.full(len(rows), size)
        sets = Sets(rows=rows, level=levels, size=sizes, last=np.zeros_like(sizes))
        # Only jobs that fill the GPU have limits.
        several = np.flatnonzero((levels == 0) | answers.many.alone.fills[rows, 0].any(axis=1))
        chosen = several[answers.kept(sets.only(several))]
        costs = np.full(len(rows), np.inf)
        if len(chosen):
            speed, _, watts = answers.many.at(rows[chosen], levels[chosen])
            placing = answers.placing
            behind = ((1 - speed) * np.append(placing.lag, 0.0)[rows[chosen]]).sum(axis=1)
            costs[chosen] = placing.per_card + placing.per_w * watts + behind
        table = costs.reshape(len(LEVELS), kinds)
        best = table.argmin(axis=0)
        before = self.cost(members, level)
        gains = before + self.alone - table.min(axis=0)
        # A fault of one can end all, so less than 3 % is not worth it.
        return np.where(gains > 0.03 * before, gains, -np.inf), best.astype(np.int8)

    def cost(self, members: _Members, level: int) -> float:
        """Of a set, or of a job alone, as the aim counts."""
        if len(members) == 1:
            return float(self.alone[members[0]])
        if (members, level) in self._costs:
            return self._costs[members, level]
        packed, placing = self.set_of(members, level), self.answers.placing
        behind = sum(
            (1 - speed) * placing.lag[kind]
            for kind, speed in zip(members, packed.speeds, strict=True)
        )
        return float(placing.per_card + placing.per_w * packed.power_w + behind)

    def _described(self, members: _Members, level: int) -> PackedSet:
        """What a set of two or more does, or what a job does alone."""
        many, size = self.answers.many, len(members)
        rows = np.full((1, MOST_JOBS), len(self.kinds))
        rows[0, :size] = members
        served = many.alone.served[list(members), 0] > 0
        alone_w = many.alone.power_w[list(members), 0]
        if size == 1:
            speeds, power_w, level = np.ones(1), float(alone_w[0]), 0
        else:
            speed, _, watts = many.at(rows, np.array([level]))
            speeds, power_w = np.minimum(speed[0, :size], 1.0), float(watts[0])
        alone = many.alone.seated([[kind] for kind in members], level)
        shares = tuple(map(float, many.shares[list(members), level]))
        # What a server does not answer is lost, not done later.
        behind = np.where(served, 0.0, 1 - speeds)
        return PackedSet(
            members=members,
            speeds=tuple(map(float, speeds)),
            shares=shares,
            floors=tuple(map(float, self.answers.floors[list(members)])),
            longer=tuple(map(float, TAILS.longer(alone)[:, 0])),
            of_class=OF_SET[CLASSES[int(alone.classes.max())]],
            power_w=power_w,
            alone_w=float(alone_w.sum()),
            lags=tuple(np.where(served, 0.0, 1.0).tolist()),
            lag_w=float((behind * alone_w).sum()),
            lag_cards=float(behind.sum()),
        )


# Answers that are kept, of each sort; a row has a number for each kind.
_MOST_KEPT = 20_000

SLOT_S = 900.0
"""Jobs in the middle of a slot count for all of it."""

# Sets by the names of their jobs that are counted; the rarest are forgotten beyond twice this.
_MOST_TEAMS = 20_000

ALL = "all"
"""All jobs may share with each other."""


class SetKey(NamedTuple):
    """A set of kinds on a GPU model."""

    model: str
    members: _Members
    level: int


class Team(NamedTuple):
    """A set by the names of its jobs, and what it was mostly."""

    jobs: tuple[Workload, ...]
    key: SetKey


# Jobs that may share, in one slot: their names by the numbers of their kinds.
_Group: TypeAlias = dict[int, list[Workload]]


@dataclass(frozen=True, slots=True, order=True)
class SlotCards:
    """One slot: cards with sharing, and what they are.

    Attributes:
        cards_now: A card for each job.
        groups: Jobs of each kind that may share, by GPU model.
    """

    cards: float
    begin_s: float
    cards_now: int = field(compare=False)
    groups: Sequence[tuple[str, Mapping[int, int]]] = field(compare=False)
    sets: Mapping[SetKey, int] = field(compare=False)


HELD = ("busy", "paused", "shared", "mig")
"""States of a GPU with a job."""

_APART = {"shared": "shared already", "mig": "in MIG or partitions"}


@dataclass(slots=True, eq=False)
class Walk:
    """Packs slot after slot, and counts.

    Attributes:
        numbers: Of each kind, its place in the packer of its model.
        hours: Of each set of two and more.
        teams: The same by the names of their jobs.
        shared: Hours of each workload in sets.
        apart: GPU hours of jobs that stay as they are, by why.
        sample: One of `every` slots.
    """

    survey: Survey
    packers: Mapping[str, Packer]
    numbers: Mapping[WorkloadKind, int]
    within: str
    slot_s: float
    every: int = 1
    hours: dict[SetKey, float] = field(default_factory=lambda: defaultdict(float))
    teams: dict[Team, float] = field(default_factory=lambda: defaultdict(float))
    shared: dict[Workload, float] = field(default_factory=lambda: defaultdict(float))
    apart: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    packed_hours: float = 0.0
    most_now: int = 0
    slots: int = 0
    top: list[SlotCards] = field(default_factory=list[SlotCards])
    sample: list[SlotCards] = field(default_factory=list[SlotCards])

    def page(self, segments: Iterable[Segment], begin_s: float, end_s: float) -> None:
        """One page of the whole cluster."""
        slot_s = self.slot_s
        count = max(1, round((end_s - begin_s) / slot_s))
        slots: list[list[Segment]] = [[] for _ in range(count)]
        for segment in segments:
            if segment.state in HELD:
                # Middles of slots that lie within it.
                first = math.ceil((segment.begin_s - begin_s) / slot_s - 0.5)
                last = math.ceil((segment.end_s - begin_s) / slot_s - 0.5)
                for place in range(max(first, 0), min(last, count)):
                    slots[place].append(segment)
        for place, there in enumerate(slots):
            self._slot(there, begin_s + place * slot_s)

    def _slot(self, there: Sequence[Segment], begin_s: float) -> None:
        hours, apart = self.slot_s / 3600, 0
        groups: dict[tuple[str, str], _Group] = defaultdict(lambda: defaultdict(list))
        for segment in there:
            kind, why = self._kind(segment)
            if kind is None or segment.owner is None:
                self.apart[why] += hours
                apart += 1
                continue
            self.packed_hours += hours if kind.profile_name else 0.0
            group = groups[segment.model, self._group(segment)]
            group[self.numbers[kind]].append(Workload.of(segment.owner))
        sets, alone = Counter[SetKey](), 0
        for (model, _), group in sorted(groups.items()):
            alone += self._packed(model, group, sets)
        for key, count in sets.items():
            self.hours[key] += count * hours
        # With cards for what the jobs of a set lag behind.
        used = sum(
            count * (1 + self.packers[key.model].set_of(key.members, key.level).lag_cards)
            for key, count in sets.items()
        )
        counts = [
            (model, {n: len(names) for n, names in group.items()})
            for (model, _), group in sorted(groups.items())
        ]
        slot = SlotCards(apart + alone + used, begin_s, len(there), counts, sets)
        # In the slots with the most cards it is seen how many would have been enough.
        (heapq.heappush if len(self.top) < 8 else heapq.heappushpop)(self.top, slot)
        self.most_now = max(self.most_now, len(there))
        if self.slots % self.every == self.every // 2:
            self.sample.append(slot)
        self.slots += 1

    def _kind(self, segment: Segment) -> tuple[WorkloadKind | None, str]:
        if why := _APART.get(segment.state):
            return None, why
        if segment.owner in self.survey.several:
            return None, "several GPUs"
        kind = self.survey.kind_of(segment)
        return kind, "" if kind else "too little read"

    def _group(self, segment: Segment) -> str:
        assert segment.owner is not None
        if self.within == ALL or self.survey.groups == {""}:
            return ""
        # A job without a group shares only with copies of itself.
        return segment.owner.group or f"\0{Workload.of(segment.owner).name}"

    def _packed(self, model: str, group: _Group, sets: Counter[SetKey]) -> int:
        """Add the sets of a group; how many jobs stay alone."""
        packing = self.packers[model].pack({n: len(names) for n, names in group.items()})
        hours, alone = self.slot_s / 3600, 0
        names = {n: sorted(of_kind, reverse=True) for n, of_kind in group.items()}
        for (members, level), count in packing.items():
            if len(members) == 1:
                alone += count
                continue
            key = SetKey(model, members, level)
            sets[key] += count
            for _ in range(count):
                jobs = tuple(names[kind].pop() for kind in members)
                self.teams[Team(jobs, key)] += hours
                for job in jobs:
                    self.shared[job] += hours
        if len(self.teams) > 2 * _MOST_TEAMS:
            for team, _ in heapq.nsmallest(_MOST_TEAMS, self.teams.items(), key=lambda t: t[1]):
                del self.teams[team]
        return alone
