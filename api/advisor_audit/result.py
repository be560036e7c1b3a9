"""What an audit says, as programs read it.

Three words are kept apart everywhere: `measured` is what the series show, `estimated` what follows
from one window of a job on the whole GPU, and `predicted` what follows from its full profile. Both
of the latter are for a launch to prove.

How far off it may be is drawn many times. Two things are not known. What jobs are of which one
window was seen: in each of a number of worlds all of them are off at once, as jobs of families that
the head had not seen were (`advisor_models.one_window`), and what was seen is packed anew; the
median of the worlds is what an audit says, as a packer that knew more would find more, and a world
may be far off. And what sets do otherwise than the law says: by the same wherever a set runs, and
half of the variance is taken to be common to all sets of a class (assumed), since all of them are
said by the same few constants. A job that falls below its minimum speed gets a card of its own, as
a launch would see to.
"""

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from advisor.core.interval import NORMAL_90, Interval
from advisor.core.objectives import Prices
from advisor.core.records import FILLS_PERCENT
from advisor.core.wording import count_of
from advisor.predict.profiles import Floats
from advisor.predict.sets import ENERGY_ERRORS, MEASURED_ON, P99_ERRORS, SPEED_ERRORS
from advisor_audit.kinds import SM, SeenWorkload, Survey, Workload, workload_of
from advisor_audit.packing import PackedSet, Packer, SetKey, SlotCards, Walked
from advisor_audit.phases import Segment
from advisor_audit.sources import POWER

WORLDS, DRAWS = 16, 25
"""Worlds, and draws of what sets do in each."""

COMMON = 0.5
"""Of the variance, what all sets of a class share."""

ONE_WINDOW_ENERGY = 0.03
"""Standard deviation of what one window adds to the error of a set's energy: errors of the energy
saved grow from 5.3 points to 5.9 without limits and from 4.6 to 6.2 with them
(docs/measurements/sets.md, From one window on the whole GPU)."""

Packers: TypeAlias = Mapping[str, Packer]
"""By GPU model."""

_Weights: TypeAlias = Mapping[SetKey, float]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SavedInWorlds:
    """What sharing saves in each world, by the law and then as drawn; shape (worlds, 1 + draws).

    Attributes:
        freed_h: Hours of cards, less those that what lags behind takes.
        kwh: Freed cards off.
        cards: That are enough in the fullest slot.
    """

    freed_h: Floats
    kwh: Floats
    cards: Floats


def saved(
    walked: Walked, packers: Packers, worlds: Iterable[Packers], seed: int = 0
) -> SavedInWorlds:
    """What was packed, and how packing in each world differs from that."""
    slots = {key: h * 3600 / walked.slot_s for key, h in walked.hours.items()}
    all_slots, sampled = (
        _sum(sets, _outcomes(sets, packers, 0))[:, :1]
        for sets in (slots, _together(slot.sets for slot in walked.sample))
    )
    found = [_in_world(walked, of_model, n) for n, of_model in enumerate(worlds, seed)]
    times = walked.slots / max(len(walked.sample), 1)
    table = np.array([all_slots + (sample - sampled) * times for sample, _ in found])
    hours = walked.slot_s / 3600
    return SavedInWorlds(
        freed_h=table[:, 0] * hours,
        kwh=table[:, 1] * hours / 1000,
        cards=np.array([cards for _, cards in found]),
    )


def saved_w(sets: Collection[SetKey], worlds: Iterable[Packers]) -> dict[SetKey, Interval]:
    """Watts that each set saves for the same work in worlds, as `saved` adds them up."""
    does = [_outcomes(sets, packers, world) for world, packers in enumerate(worlds)]
    return {key: interval(np.array([of_world[key][1] for of_world in does])) for key in sets}


def _in_world(walked: Walked, packers: Packers, world: int) -> tuple[Floats, Floats]:
    """Cards freed and watts saved over the sample, and cards of the fullest slot."""
    sample = _together(_packed(slot, packers) for slot in walked.sample)
    top = [_packed(slot, packers) for slot in walked.top]
    does = _outcomes(_together([sample, *top]), packers, world)
    fullest = zip(walked.top, top, strict=True)
    cards = [slot.cards_now - _sum(sets, does)[0] for slot, sets in fullest]
    most = np.max(cards, axis=0) if cards else np.zeros(1 + DRAWS)
    return _sum(sample, does), np.ceil(most - 1e-9)


def _packed(slot: SlotCards, packers: Packers) -> Counter[SetKey]:
    found = Counter[SetKey]()
    for model, counts in slot.groups:
        for (members, level), count in packers[model].pack(counts).items():
            if len(members) > 1:
                found[SetKey(model, members, level)] += count
    return found


def _together(several: Iterable[Mapping[SetKey, int]]) -> Counter[SetKey]:
    found = Counter[SetKey]()
    for sets in several:
        found.update(sets)
    return found


def _sum(weights: _Weights, does: Mapping[SetKey, Floats]) -> Floats:
    """Shape (2, 1 + draws)."""
    return sum((n * does[key] for key, n in weights.items()), np.zeros((2, 1 + DRAWS)))


def _outcomes(sets: Iterable[SetKey], packers: Packers, world: int) -> dict[SetKey, Floats]:
    """Cards that each set frees, and watts that it saves for the same work, freed cards off.

    Shape (2, 1 + draws) each, by the law first.
    """
    random = np.random.default_rng(world)
    common = {name: random.standard_normal(DRAWS) for name in ENERGY_ERRORS}
    found: dict[SetKey, Floats] = {}
    for key in sorted(sets):
        one = packers[key.model].set_of(key.members, key.level)
        of_class = common[one.of_class]
        speed, energy = (
            _factors(errors[one.of_class], of_class, random)
            for errors in (SPEED_ERRORS, ENERGY_ERRORS)
        )
        found[key] = _outcome(one, speed, energy)
    return found


def _outcome(one: PackedSet, speed: Floats, energy: Floats) -> Floats:
    law = np.array(one.speeds)[:, None]
    speeds = np.minimum(1.0, law * speed)
    # What a server loses is told as its tail; its floor is its demand.
    batch = np.array(one.lags)[:, None]
    stays = speeds >= np.array(one.floors)[:, None] * batch - 1e-9
    together = np.maximum(stays.sum(axis=0) - 1, 0)
    behind = ((1 - _centred(speeds)) * batch * stays).sum(axis=0).clip(0) * (together > 0)
    part = together / (len(one.members) - 1)
    saved_w = part * (one.alone_w - _centred((one.power_w + one.lag_w) / energy))
    return np.array([together - behind, saved_w])


def _centred(values: Floats) -> Floats:
    """With draws around the law: measured, what lags behind and what is saved is as it says."""
    away = values[..., 1:] - values[..., 1:].mean(axis=-1, keepdims=True)
    return np.concatenate([values[..., :1], values[..., :1] + away], axis=-1)


def _factors(errors: tuple[float, float], common: Floats, random: np.random.Generator) -> Floats:
    """Measured for each 1 predicted, log-normal through the ends of its 90 %; 1 for the law."""
    low, high = (math.log(end) for end in errors)
    own = random.standard_normal(DRAWS)
    wide = (high - low) / (2 * NORMAL_90)
    drawn = (low + high) / 2 + wide * (math.sqrt(COMMON) * common + math.sqrt(1 - COMMON) * own)
    return np.exp(np.append(0.0, drawn))


def interval(table: Floats) -> Interval:
    """The median of worlds by the law, with the ends of 90 % of all that might be."""
    value = float(np.median(table[:, 0]))
    low, high = np.quantile(table, (0.05, 0.95))
    return Interval(value, float(min(low, value)), float(max(high, value)))


AuditBasis: TypeAlias = Literal["measured", "estimated", "predicted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpan:
    """What was read.

    Attributes:
        slot_s: Length of the slots in which jobs are packed.
        requests: Asked of the server.
        waits: How often it was busy, or not there.
    """

    source: str
    begin: str
    end: str
    step_s: float
    slot_s: float
    within: str
    objective: str
    min_speed: float
    requests: int
    received_bytes: int
    waits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What jobs hold today, measured.

    Attributes:
        gpus: That were seen at all.
        cards: Held at the same time, at most.
        gpu_hours: Held.
        paused_hours: Of these without any work.
        free_hours: Held by nobody, outside of everything here.
        kwh: Of the GPUs while they are held; None: no power was read.
        cost: None: nothing has a price, or no power was read.
    """

    gpus: int
    cards: int
    gpu_hours: float
    paused_hours: float
    free_hours: float
    unseen_hours: float
    kwh: float | None
    free_kwh: float | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the same work would have taken, with ranges of 90 %.

    Attributes:
        cards: That would have been enough.
        kwh: With freed cards off; None: no power was read.
        kwh_idle: With freed cards idle; as `kwh`.
        apart_hours: GPU hours of jobs that stay as they are, by why.
    """

    basis: AuditBasis
    cards: Interval
    gpu_hours: Interval
    kwh: Interval | None
    kwh_idle: Interval | None
    cost: Interval | None
    predicted_hours: float
    apart_hours: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSet:
    """Jobs that could have shared a card.

    Attributes:
        hours: In which they ran at the same time and are taken to share.
        speeds: Of each, relative to its own alone.
        limits_percent: MPS share of each; 100 is no limit.
        saved_w: For the same work, freed cards off.
    """

    basis: AuditBasis
    jobs: tuple[str, ...]
    group: str
    gpu_model: str
    hours: float
    speeds: tuple[float, ...]
    limits_percent: tuple[float, ...]
    power_w: float
    saved_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenJob:
    """A job as it was seen.

    Attributes:
        basis: What its speeds beside others are from.
        activity_percent: Of the SMs, else of the GPU, at work; measured. None: not read.
        fills: Whether it fills the card; None: nobody knows.
        is_server: Whether it looks like one.
        several_gpus: Whether it held several at once: it is left as it is.
        shared_hours: Of its GPU hours those in which it could share.
        tail: Times its p99 alone beside the others, of what looks like a server; None: alone.
    """

    basis: AuditBasis
    job: str
    group: str
    gpu_model: str
    pods: int
    gpu_hours: float
    paused_hours: float
    kwh: float
    activity_percent: float | None
    spread: float
    memory_mib: float
    fills: bool | None
    is_server: bool
    several_gpus: bool
    shared_hours: float
    tail: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextProfile:
    """A job whose profile would narrow the ranges."""

    job: str
    group: str
    shared_hours: float
    part_of_doubt: float
    command: str


MOST_JOBS, MOST_SETS, MOST_NEXT = 500, 100, 10
"""Jobs and sets that are listed, those with the most hours first; profiles that are asked for."""

HOUR_S = 3600.0


@dataclass(slots=True)
class Hours:
    """What GPUs did, measured."""

    gpus: set[str] = field(default_factory=set[str])
    models: Counter[str] = field(default_factory=Counter[str])
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    joules: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    channels: set[str] = field(default_factory=set[str])

    def add_page(self, segments: Iterable[Segment]) -> None:
        """One page of the whole cluster."""
        for one in segments:
            if one.gpu not in self.gpus:
                self.gpus.add(one.gpu)
                self.models[one.model] += 1
            span_s = one.end_s - one.begin_s
            self.seconds[one.state] += span_s
            self.joules[one.state] += span_s * one.means.get(POWER, 0.0)
            self.channels |= one.means.keys()


HELD = ("busy", "paused", "shared")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AuditTotals:
    """All that the answer is made of."""

    survey: Survey
    packers: Mapping[str, Packer]
    walked: Walked
    hours: Hours
    prices: Prices
    saved: SavedInWorlds

    def now(self) -> Now:
        """What is held today."""
        seconds, joules = self.hours.seconds, self.hours.joules
        gpu_hours = sum(seconds.get(state, 0.0) for state in HELD) / HOUR_S
        held_j = sum(joules.get(state, 0.0) for state in HELD)
        kwh = held_j / 3.6e6 if self.reads_power else None
        return Now(
            gpus=len(self.hours.gpus),
            cards=self.walked.most_now,
            gpu_hours=gpu_hours,
            paused_hours=seconds.get("paused", 0.0) / HOUR_S,
            free_hours=seconds.get("free", 0.0) / HOUR_S,
            unseen_hours=seconds.get("unseen", 0.0) / HOUR_S,
            kwh=kwh,
            free_kwh=joules.get("free", 0.0) / 3.6e6 if self.reads_power else None,
            cost=None
            if kwh is None or not self.prices.are_set
            else self.prices.of(gpu_hours * HOUR_S, kwh * 3.6e6),
        )

    @property
    def reads_power(self) -> bool:
        """Whether there is any power in the series."""
        return POWER in self.hours.channels

    def _set(self, key: SetKey) -> PackedSet:
        return self.packers[key.model].set_of(key.members, key.level)

    def _is_estimated(self, key: SetKey) -> bool:
        return not all(self.packers[key.model].kinds[n].known for n in key.members)

    def shared(self, now: Now) -> Shared:
        """The same work in sets."""
        hours, saved, prices = self.walked.hours, self.saved, self.prices
        gpu_hours = now.gpu_hours - saved.freed_h
        cards = interval(np.minimum(now.cards, saved.cards))
        kwh = kwh_idle = cost = None
        if now.kwh is not None:
            off = now.kwh - saved.kwh
            kwh, kwh_idle = interval(off), interval(off + self._idle_kw(hours) * saved.freed_h)
            if prices.are_set:
                by_hour, by_kwh = prices.of(HOUR_S, 0.0), prices.of(0.0, 3.6e6)
                cost = interval(by_hour * gpu_hours + by_kwh * off)
        return Shared(
            basis="estimated" if not hours or any(map(self._is_estimated, hours)) else "predicted",
            cards=Interval(round(cards.value), math.floor(cards.low), math.ceil(cards.high)),
            gpu_hours=interval(gpu_hours),
            kwh=kwh,
            kwh_idle=kwh_idle,
            cost=cost,
            predicted_hours=self.walked.known_hours,
            apart_hours=dict(self.walked.apart),
        )

    def _idle_kw(self, hours: Mapping[SetKey, float]) -> float:
        """Of a freed card, by the GPU models of the sets."""
        total = sum(hours.values())
        watts = sum(h * self.survey.idle_power_w(key.model) for key, h in hours.items())
        return watts / total / 1000 if total else 0.0

    def sets(self) -> tuple[SharingSet, ...]:
        """Those with the most hours."""
        order = sorted(self.walked.teams.items(), key=lambda item: (-item[1], item[0]))
        return tuple(
            SharingSet(
                basis="estimated" if self._is_estimated(team.key) else "predicted",
                jobs=tuple(job.name for job in team.jobs),
                group=team.jobs[0].group,
                gpu_model=team.key.model,
                hours=hours,
                speeds=one.speeds,
                limits_percent=one.shares,
                power_w=one.power_w,
                saved_w=one.saved_w,
            )
            for team, hours in order[:MOST_SETS]
            for one in [self._set(team.key)]
        )

    def jobs(self) -> tuple[SeenJob, ...]:
        """Those with the most hours."""
        tails, several = self._tails(), set(map(workload_of, self.survey.several))
        order = sorted(
            self.survey.seen.items(), key=lambda item: (-item[1].busy_s - item[1].paused_s, item[0])
        )
        return tuple(
            self._seen(job, seen, tails.get(job), job in several) for job, seen in order[:MOST_JOBS]
        )

    def _seen(
        self, job: Workload, seen: SeenWorkload, tail: Interval | None, several: bool
    ) -> SeenJob:
        known = (seen.model, job.known_as) in self.survey.known
        read, active, _ = seen.activity
        sm_read = SM in self.hours.channels
        return SeenJob(
            basis="predicted" if known else "estimated",
            job=job.name,
            group=job.group,
            gpu_model=seen.model,
            pods=len(seen.pods),
            gpu_hours=(seen.busy_s + seen.paused_s) / HOUR_S,
            paused_hours=seen.paused_s / HOUR_S,
            kwh=seen.energy_j / 3.6e6,
            activity_percent=active if read else None,
            spread=seen.spread,
            memory_mib=seen.memory_mib,
            fills=active >= FILLS_PERCENT if read and sm_read else None,
            is_server=seen.is_server,
            several_gpus=several,
            shared_hours=self.walked.shared.get(job, 0.0),
            tail=tail,
        )

    def _tails(self) -> dict[Workload, Interval]:
        """Of what looks like a server, how much longer its p99 could be at worst."""
        found: dict[Workload, Interval] = {}
        for team in self.walked.teams:
            one = self._set(team.key)
            for job, longer in zip(team.jobs, one.longer, strict=True):
                if self.survey.seen[job].is_server:
                    tail = P99_ERRORS[one.of_class].times(longer)
                    if job not in found or tail.high > found[job].high:
                        found[job] = tail
        return found

    def profile_next(self) -> tuple[NextProfile, ...]:
        """Jobs that were seen only and make the ranges wide: those whose energy is least known."""
        doubt: dict[Workload, float] = defaultdict(float)
        for team, hours in self.walked.teams.items():
            one = self._set(team.key)
            low, high = map(math.log, ENERGY_ERRORS[one.of_class])
            wide = math.hypot((high - low) / (2 * NORMAL_90), ONE_WINDOW_ENERGY)
            for job in set(team.jobs):
                # A server's window shows its load and not what it could serve: twice as far off.
                times = 2.0 if self.survey.seen[job].is_server else 1.0
                if (team.key.model, job.known_as) not in self.survey.known:
                    doubt[job] += times * hours * one.power_w * wide / len(team.jobs)
        total = sum(doubt.values())
        return tuple(
            NextProfile(
                job=job.name,
                group=job.group,
                shared_hours=self.walked.shared[job],
                part_of_doubt=doubt[job] / total,
                # Labels are chosen by whoever may start a pod.
                command=shlex.join(
                    (
                        "advisor",
                        "profile",
                        f"--name={job.known_as}",
                        "--",
                        "COMMAND",
                    )
                ),
            )
            for job in sorted(doubt, key=lambda job: (-doubt[job], job))[:MOST_NEXT]
        )


_LEFT_ALONE: Mapping[str, str] = {
    "several GPUs": "of jobs on several GPUs at once are left as they are",
    "shared already": "of GPUs that several jobs held at once are left as they are",
    "too little read": "lack power, memory or any activity, and are left as they are",
}


def not_seen(totals: AuditTotals, mig: int) -> Iterator[str]:
    """What the series do not show; `mig` GPUs are in MIG instances."""
    if not totals.reads_power:
        yield (
            "no power was read, so nothing can be said of energy, nor of who could share: "
            "collect DCGM_FI_DEV_POWER_USAGE"
        )
    elif SM not in totals.hours.channels:
        yield (
            "SM activity (DCGM_FI_PROF_SM_ACTIVE) is not collected, as dcgm-exporter's default "
            "counters leave it out: it is estimated from power, memory utilisation, PCIe "
            "traffic and clock"
        )
    if unseen_s := totals.hours.seconds.get("unseen", 0.0):
        yield f"{unseen_s / HOUR_S:,.0f} GPU hours have no readings, and are in no figure"
    if mig:
        yield f"{count_of(mig, 'GPU')} in MIG instances are left out"
    for why, text in _LEFT_ALONE.items():
        if hours := totals.walked.apart.get(why):
            yield f"{hours:,.0f} GPU hours {text}"
    if totals.survey.groups == {""}:
        yield (
            "no series says whose a job is, so all are taken to be of one owner; where "
            "--within names a label that tells owners apart, strangers do not share"
        )
    strangers = sorted(set(totals.hours.models) - set(MEASURED_ON))
    if strangers:
        yield (
            f"no set was measured on {', '.join(strangers)}: what is said of it is by the law "
            f"of sets of {' and '.join(MEASURED_ON)}"
        )
    yield (
        "host cores, host memory, disks and networks are not looked at; nor is what several "
        "GPUs say to each other"
    )
    yield "of servers the load is seen, not what they could serve, nor how long answers take"


def to_prove(slot_s: float) -> Sequence[str]:
    """What only a launch would show."""
    return (
        "nothing here has run together: speeds, watts and tails of sets are for a launch to prove "
        "(advisor launch says which jobs do not do what was expected)",
        "of many sets those are taken that look best, so expect less than the value, within the "
        "range",
        f"jobs are packed anew every {slot_s / 60:.0f} minutes as they overlapped; a job that runs "
        "does not move, so a scheduler that places each once frees fewer cards",
        "jobs that run longer beside others overlap with more of those that come later; the work "
        "that lags behind is counted, on cards of its own, and not when it is done",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All of it.

    Attributes:
        left_out: Jobs that are not listed, since there are many.
        not_seen: Sentences: what the series do not show.
        to_prove: Sentences: what only a launch would show.
    """

    made_at: str
    span: ReadSpan
    now: Now
    shared: Shared
    sets: tuple[SharingSet, ...]
    jobs: tuple[SeenJob, ...]
    left_out: int
    profile_next: tuple[NextProfile, ...]
    not_seen: tuple[str, ...]
    to_prove: tuple[str, ...]
