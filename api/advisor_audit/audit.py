"""An audit from beginning to end: read, survey, pack, add up.

Series become segments on disk, page by page, so that an audit that ended early goes on. Each page
of a group of GPUs is a file: a line for each segment, and a last line with what is kept of the GPUs
until the next page. A file is there whole or not at all.

An audit of a minute shows the jobs on this host's GPUs now, and the sets that could share one:
other shares and sets are estimated from the readings of the last minute.

Four words are kept apart everywhere: `measured` is what the series show, `predicted` what follows
from the full profile of a job, `estimated` what follows from one window of it on the whole GPU, and
`prior` the same on a GPU model of which no job was learned from. The last three are for a launch to
prove.

How far off it may be is drawn many times. Two things are not known. What jobs are of which one
window was seen: in each of a number of worlds all of them are off at once, as jobs of families that
the head had not seen were (`advisor_models.single_window`), and what was seen is packed anew; the
median of the worlds is what an audit says, as a packer that knew more would find more, and a world
may be far off. And what sets do otherwise than the law says: by the same wherever a set runs, and
half of the variance is taken to be common to all sets of a class (assumed), since all of them are
said by the same few constants. A job that falls below its minimum speed keeps a GPU of its own, as
a launch would see to.
"""

import json
import math
import os
import pwd
import shlex
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations, groupby, pairwise
from pathlib import Path
from typing import IO, Literal, TypeAlias, get_args

import numpy as np
from pydantic import TypeAdapter

from advisor.core.gpu import MOST_JOBS as MOST_ON_CARD, WHOLE, Gpu
from advisor.core.job import Job, ProgressSettings
from advisor.core.objectives import HOUR_S, NO_PRICES, NORMAL_90, Aim, Interval, Prices
from advisor.core.records import FILLS_PERCENT, SoloPoint
from advisor.core.wording import NAME, listed
from advisor.decide.limits import Request
from advisor.errors import InputError
from advisor.files import replace_file
from advisor.formats.job_file import sound_jobs, watched_job
from advisor.formats.moments import now, to_text
from advisor.predict.profiles import MEASURED_ON, Floats, Profile
from advisor.predict.sets import ENERGY_ERRORS, P99_ERRORS, SPEED_ERRORS
from advisor.runtime.processes import descendants, name_of, owner_of
from advisor_audit.packing import (
    ALL,
    HELD,
    SLOT_S,
    PackedSet,
    Packer,
    SetKey,
    SlotCards,
    Survey,
    Team,
    Walk,
    Workload,
    WorkloadKind,
    WorkloadUse,
)
from advisor_audit.phases import (
    HELD_MIB,
    LeftOut,
    Segment,
    Watched,
    gpu_pages,
    segments,
)
from advisor_audit.sources import (
    FAMILIES,
    POWER,
    USED,
    Owner,
    Series,
    Source,
    write_lines,
)
from advisor_models.single_window import LEARNED_LIMIT_W, SM, SingleWindowHead
from advisor_profiling.attached import (
    GpuLook,
    HostGpus,
    Keep,
    ProgressSource,
    SoloWatch,
    family,
    words_of,
    workdir_of,
)

# Worlds, and draws of what sets do in each.
_WORLDS, _DRAWS = 16, 25

# Of the variance, what all sets of a class share.
_COMMON = 0.5

# By GPU model.
_Packers: TypeAlias = Mapping[str, Packer]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SavedInWorlds:
    """What sharing saves in each world, by the law and then as drawn; shape (worlds, 1 + draws).

    Attributes:
        freed_h: Hours of cards, less those that what lags behind takes.
        kwh: Freed GPUs off.
        cards: That are enough in the fullest slot.
    """

    freed_h: Floats
    kwh: Floats
    cards: Floats


def saved(walk: Walk, worlds: Iterable[_Packers]) -> SavedInWorlds:
    """What was packed, and how packing in each world differs from that."""
    slots = {key: h * 3600 / walk.slot_s for key, h in walk.hours.items()}
    all_slots, sampled = (
        _sum(sets, _outcomes(sets, walk.packers, 0))[:2, :1]
        for sets in (slots, _merged(slot.sets for slot in walk.sample))
    )
    worlds_saved = [_in_world(walk, of_model, n) for n, of_model in enumerate(worlds)]
    times = walk.slots / max(len(walk.sample), 1)
    table = np.array([all_slots + (sample - sampled) * times for sample, _ in worlds_saved])
    hours = walk.slot_s / 3600
    return SavedInWorlds(
        freed_h=table[:, 0] * hours,
        kwh=table[:, 1] * hours / 1000,
        cards=np.array([cards for _, cards in worlds_saved]),
    )


def _saved_w(sets: Collection[SetKey], worlds: Iterable[_Packers]) -> dict[SetKey, Interval]:
    """Watts that each set saves for the same work in worlds, as `saved` adds them up."""
    does = [_outcomes(sets, packers, world) for world, packers in enumerate(worlds)]
    return {key: interval(np.array([of_world[key][1] for of_world in does])) for key in sets}


def _in_world(walk: Walk, packers: _Packers, world: int) -> tuple[Floats, Floats]:
    """Cards freed and watts saved over the sample, and cards of the fullest slot."""
    sample = _merged(_packed_slot(slot, packers) for slot in walk.sample)
    top = [_packed_slot(slot, packers) for slot in walk.top]
    does = _outcomes(_merged([sample, *top]), packers, world)
    cards = [slot.cards_now - _sum(sets, does)[0] for slot, sets in zip(walk.top, top, strict=True)]
    most = np.max(cards, axis=0) if cards else np.zeros(1 + _DRAWS)
    # Few sets are asked of again, and all worlds are there until then.
    for packer in packers.values():
        packer.forget()
    return _sum(sample, does)[:2], np.ceil(most - 1e-9)


def _packed_slot(slot: SlotCards, packers: _Packers) -> Counter[SetKey]:
    sets = Counter[SetKey]()
    for model, counts in slot.groups:
        for (members, level), count in packers[model].pack(counts).items():
            if len(members) > 1:
                sets[SetKey(model, members, level)] += count
    return sets


def _merged(several: Iterable[Mapping[SetKey, int]]) -> Counter[SetKey]:
    merged = Counter[SetKey]()
    for sets in several:
        merged.update(sets)
    return merged


def _sum(weights: Mapping[SetKey, float], does: Mapping[SetKey, Floats]) -> Floats:
    """Shape (3, 1 + draws); of the last the sum says nothing."""
    return sum((n * does[key] for key, n in weights.items()), np.zeros((3, 1 + _DRAWS)))


def _outcomes(sets: Iterable[SetKey], packers: _Packers, world: int) -> dict[SetKey, Floats]:
    """Cards that each set frees, watts that it saves for the same work, and its lowest speed.

    Freed GPUs are off. Shape (3, 1 + draws) each, by the law first.
    """
    random = np.random.default_rng(world)
    common = {name: random.standard_normal(_DRAWS) for name in ENERGY_ERRORS}
    outcomes: dict[SetKey, Floats] = {}
    for key in sorted(sets):
        packed = packers[key.model].set_of(key.members, key.level)
        of_class = common[packed.of_class]
        speed, energy = (
            _factors(errors[packed.of_class], of_class, random)
            for errors in (SPEED_ERRORS, ENERGY_ERRORS)
        )
        speeds = np.minimum(1.0, np.array(packed.speeds)[:, None] * speed)
        # A slower server shows a longer tail; its floor is its demand.
        batch = np.array(packed.lags)[:, None]
        stays = speeds >= np.array(packed.floors)[:, None] * batch - 1e-9
        together = np.maximum(stays.sum(axis=0) - 1, 0)
        behind = ((1 - _centred(speeds)) * batch * stays).sum(axis=0).clip(0) * (together > 0)
        part = together / (len(packed.members) - 1)
        saved_w = part * (packed.alone_w - _centred((packed.power_w + packed.lag_w) / energy))
        outcomes[key] = np.array([together - behind, saved_w, speeds.min(axis=0)])
    return outcomes


def _centred(values: Floats) -> Floats:
    """With draws around the law: measured, what lags behind and what is saved is as it says."""
    away = values[..., 1:] - values[..., 1:].mean(axis=-1, keepdims=True)
    return np.concatenate([values[..., :1], values[..., :1] + away], axis=-1)


def _factors(errors: tuple[float, float], common: Floats, random: np.random.Generator) -> Floats:
    """Measured for each 1 predicted, log-normal through the ends of its 90 %; 1 for the law."""
    low, high = (math.log(end) for end in errors)
    individual = random.standard_normal(_DRAWS)
    wide = (high - low) / (2 * NORMAL_90)
    drawn = (low + high) / 2 + wide * (
        math.sqrt(_COMMON) * common + math.sqrt(1 - _COMMON) * individual
    )
    return np.exp(np.append(0.0, drawn))


def interval(table: Floats) -> Interval:
    """The median of worlds by the law, with the ends of 90 % of all that might be."""
    value = float(np.median(table[:, 0]))
    low, high = np.quantile(table, (0.05, 0.95))
    return Interval(value, float(min(low, value)), float(max(high, value)))


# What a figure rests on, the surest first.
_AuditBasis: TypeAlias = Literal["measured", "predicted", "estimated", "prior"]

_BASES: tuple[_AuditBasis, ...] = get_args(_AuditBasis)


def _least_sure(bases: Iterable[_AuditBasis]) -> _AuditBasis:
    return _BASES[max(map(_BASES.index, bases), default=_BASES.index("estimated"))]


def _basis_of(model: str, *, is_profiled: bool) -> _AuditBasis:
    """Of a job with a profile (known), or of one that was seen on the GPU model."""
    return "predicted" if is_profiled else "estimated" if model in MEASURED_ON else "prior"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadSpan:
    """What was read.

    Attributes:
        slot_s: Length of the slots in which jobs are packed.
        months: What was read, in months of `MONTH_H`.
        requests: Asked of the server.
        waits: How often it was busy, or not there.
        impossible: Readings that no card can show; they are left out.
    """

    source: str
    begin: str
    end: str
    step_s: float
    slot_s: float
    months: float
    within: str
    objective: str
    min_speed: float
    requests: int
    received_bytes: int
    waits: int
    impossible: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Now:
    """What jobs hold today, measured.

    Attributes:
        gpus: That were seen at all.
        cards: Held at the same time, at most.
        gpu_hours: Held.
        paused_hours: Of these without any work.
        free_hours: GPU hours without any job.
        kwh: Of the GPUs while they are held, in hours without power as in the others; None: none
            was read at all.
        kwh_range: With those hours at idle power, and with them and unseen ones at the limit.
        cost: None: nothing has a price, or no power was read.
    """

    gpus: int
    cards: int
    gpu_hours: float
    paused_hours: float
    free_hours: float
    unseen_hours: float
    kwh: float | None
    kwh_range: Interval | None
    free_kwh: float | None
    cost: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBy:
    """The meaning given to a label that names the job of a GPU.

    Attributes:
        label: None: no label said so.
        jobs: That it named; of shared GPUs and MIG instances none are counted.
    """

    label: str | None
    taken_for: str
    jobs: int
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What the same work would have taken, with ranges of 90 %.

    Attributes:
        cards: That would have been enough.
        gpu_hours: The low end lets hours that were not read share a GPU with six others.
        kwh: With freed GPUs off; None: no power was read.
        kwh_idle: With freed GPUs idle; as `kwh`.
        apart_hours: GPU hours of jobs that stay as they are, by why.
    """

    basis: _AuditBasis
    cards: Interval
    gpu_hours: Interval
    kwh: Interval | None
    kwh_idle: Interval | None
    cost: Interval | None
    predicted_hours: float
    apart_hours: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSet:
    """Jobs that could have shared a card; its ranges are of 90 %.

    Attributes:
        hours: In which they ran at the same time and are taken to share.
        speeds: Of each, relative to its own alone, as they shared for most of these hours.
        limits_percent: MPS share of each; 100 is no limit.
        memory_mib: That each needs at most.
        card_mib: Memory of the card; None: unknown.
        freed_hours: GPU hours, less those in which what lags behind is done.
        saved_kwh: For the same work, freed GPUs off.
        saved_cost: None: nothing has a price.
        slowest: Speed of the job that loses most.
        tails: Times its p99 alone of each that looks like a server; None: of others.
    """

    basis: _AuditBasis
    jobs: tuple[str, ...]
    group: str
    gpu_model: str
    hours: float
    speeds: tuple[float, ...]
    limits_percent: tuple[float, ...]
    memory_mib: tuple[float, ...]
    card_mib: float | None
    power_w: float
    freed_hours: Interval
    saved_kwh: Interval
    saved_cost: Interval | None
    slowest: Interval
    tails: tuple[Interval | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedJob:
    """A job as it was seen.

    Attributes:
        basis: What its speeds beside others are from.
        activity_percent: Of the SMs, else of the GPU, at work; measured. None: not read.
        fills: Whether the job fills the GPU; None: unknown.
        is_server: Whether it looks like one.
        several_gpus: Whether it held several at once: it is left as it is.
        shared_hours: Of its GPU hours those in which it could share.
        tail: Times its p99 alone beside the others, of what looks like a server; None: alone.
    """

    basis: _AuditBasis
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
class HostSet:
    """Jobs that could move to one card; its ranges are of 90 %.

    Attributes:
        saved_w: For the same work, freed GPUs off.
        command: Launches them so, after what that still lacks, or says which user can; jobs of a
            cluster are asked for by their names there.
    """

    jobs: tuple[str, ...]
    speeds: tuple[float, ...]
    limits_percent: tuple[float, ...]
    power_w: float
    saved_w: Interval
    command: str


MOST_JOBS, MOST_SETS, MOST_PAIRS, MOST_CHANGES = 500, 100, 3, 3
"""Jobs that are listed, those with the most hours first; sets, those worth most first; pairs to
begin with; sets to change first."""

MONTH_H = 730.0


@dataclass(slots=True)
class _Hours:
    """What GPUs did, measured."""

    gpus: set[str] = field(default_factory=set[str])
    models: set[str] = field(default_factory=set[str])
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    joules: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    channels: set[str] = field(default_factory=set[str])
    without_sm_s: float = 0.0
    # By GPU model, and whether a job held it.
    dark_s: dict[tuple[str, bool], float] = field(default_factory=lambda: defaultdict(float))
    labels_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    named: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add_page(self, segments: Iterable[Segment]) -> None:
        """One page of the whole cluster."""
        for segment in segments:
            self.gpus.add(segment.gpu)
            self.models.add(segment.model)
            span_s = segment.end_s - segment.begin_s
            self.seconds[segment.state] += span_s
            self.joules[segment.state] += span_s * segment.means.get(POWER, 0.0)
            self.channels |= segment.means.keys()
            is_held = segment.state in HELD
            if segment.state == "unseen" or (is_held and POWER not in segment.means):
                self.dark_s[segment.model, is_held] += span_s
            if is_held:
                self.labels_s[segment.label] += span_s
            if segment.owner:
                self.without_sm_s += span_s * (SM not in segment.means)
                self.named[segment.label].add(hash(Workload.of(segment.owner)))

    def held_by(self) -> tuple[HeldBy, ...]:
        """What each label was taken for, the one with the most hours first."""
        meanings = {
            "": "memory in use",
            **{label_family.job: label_family.taken_for for label_family in FAMILIES},
        }
        return tuple(
            HeldBy(
                label=label or None,
                taken_for=meanings.get(label, "job"),
                jobs=len(self.named[label]),
                gpu_hours=held_s / HOUR_S,
            )
            for label, held_s in sorted(self.labels_s.items(), key=lambda item: -item[1])
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _AuditTotals:
    """All that the answer is made of."""

    walk: Walk
    hours: _Hours
    prices: Prices
    saved: SavedInWorlds

    def now(self) -> _Now:
        """What is held today."""
        seconds, joules = self.hours.seconds, self.hours.joules
        gpu_hours = sum(seconds.get(state, 0.0) for state in HELD) / HOUR_S
        kwh_range = self._with_dark(gpu_hours) if self.reads_power else None
        kwh = kwh_range and kwh_range.value
        return _Now(
            gpus=len(self.hours.gpus),
            cards=self.walk.most_now,
            gpu_hours=gpu_hours,
            paused_hours=seconds.get("paused", 0.0) / HOUR_S,
            free_hours=seconds.get("free", 0.0) / HOUR_S,
            unseen_hours=seconds.get("unseen", 0.0) / HOUR_S,
            kwh=kwh,
            kwh_range=kwh_range,
            free_kwh=joules.get("free", 0.0) / 3.6e6 if self.reads_power else None,
            cost=None
            if kwh is None or not self.prices.are_set
            else self.prices.of(gpu_hours * HOUR_S, kwh * 3.6e6),
        )

    @property
    def _read_kwh(self) -> float:
        return sum(self.hours.joules.get(state, 0.0) for state in HELD) / 3.6e6

    def _with_dark(self, gpu_hours: float) -> Interval:
        """Today's kWh, with what hours without a reading of power may have taken."""
        kwh, dark, survey = self._read_kwh, self.hours.dark_s, self.walk.survey
        held_s = sum(span_s for (_, is_held), span_s in dark.items() if is_held)
        mean_w = kwh * 3.6e6 / max(gpu_hours * HOUR_S - held_s, 1.0)
        low = sum(s * survey.idle_power_w(model) for (model, is_held), s in dark.items() if is_held)
        # Of a card whose limit was not read that of the largest one (`most_of`).
        high = sum(s * survey.limits_w.get(model, 1400.0) for (model, _), s in dark.items())
        likely = max(low, held_s * mean_w)
        return Interval(*(kwh + joules / 3.6e6 for joules in (likely, low, high)))

    @property
    def reads_power(self) -> bool:
        """Whether there is any power in the series."""
        return POWER in self.hours.channels

    def _set(self, key: SetKey) -> PackedSet:
        return self.walk.packers[key.model].set_of(key.members, key.level)

    def _basis(self, key: SetKey) -> _AuditBasis:
        kinds = self.walk.packers[key.model].kinds
        return _basis_of(key.model, is_profiled=all(kinds[n].profile_name for n in key.members))

    def shared(self, now: _Now) -> _Shared:
        """The same work in sets."""
        hours, saved, prices = self.walk.hours, self.saved, self.prices
        unread_h = self.walk.apart.get("too little read", 0.0)
        # Hours that were not read stay as they are, or share a GPU with up to six others.
        drawn = np.random.default_rng(0).random((2, 1 + _DRAWS))
        drawn[0, 0] = 0.0
        joined = drawn[0] * (1 - 1 / MOST_ON_CARD)
        freed_h = saved.freed_h + joined * unread_h
        gpu_hours = now.gpu_hours - freed_h
        left = gpu_hours / np.maximum(now.gpu_hours - saved.freed_h, 1e-9)
        cards = interval(np.minimum(now.cards, saved.cards * left))
        kwh = kwh_idle = cost = None
        if now.kwh_range is not None:
            low, read_kwh = now.kwh_range.low, self._read_kwh
            all_kwh = low + drawn[1] * (now.kwh_range.high - low)
            all_kwh[0] = now.kwh_range.value
            off = read_kwh - saved.kwh + (all_kwh - read_kwh) * (1 - joined)
            kwh, kwh_idle = interval(off), interval(off + self._idle_kw(hours) * freed_h)
            if prices.are_set:
                by_hour, by_kwh = prices.of(HOUR_S, 0.0), prices.of(0.0, 3.6e6)
                cost = interval(by_hour * gpu_hours + by_kwh * off)
        return _Shared(
            basis=_least_sure(map(self._basis, hours)),
            cards=Interval(round(cards.value), math.floor(cards.low), math.ceil(cards.high)),
            gpu_hours=interval(gpu_hours),
            kwh=kwh,
            kwh_idle=kwh_idle,
            cost=cost,
            predicted_hours=self.walk.packed_hours,
            apart_hours=dict(self.walk.apart),
        )

    def _idle_kw(self, hours: Mapping[SetKey, float]) -> float:
        """Of a freed GPU, by the GPU models of the sets."""
        total = sum(hours.values())
        watts = sum(h * self.walk.survey.idle_power_w(key.model) for key, h in hours.items())
        return watts / total / 1000 if total else 0.0

    def sets(self, worlds: Iterable[_Packers]) -> tuple[list[SharingSet], list[SharingSet]]:
        """Those worth most, in money, else in GPU hours; and the first without a common job."""
        by_hour, by_kwh = self.prices.of(HOUR_S, 0.0), self.prices.of(0.0, 3.6e6)
        per_card, per_kw = (by_hour, by_kwh) if self.prices.are_set else (1.0, 0.0)
        gains = defaultdict[tuple[Workload, ...], float](float)
        of_jobs = defaultdict[tuple[Workload, ...], list[Team]](list)
        for team, hours in self.walk.teams.items():
            packed, jobs = self._set(team.key), tuple(sorted(team.jobs))
            freed = len(jobs) - 1 - packed.lag_cards
            gains[jobs] += hours * (per_card * freed + per_kw * packed.saved_w / 1000)
            of_jobs[jobs].append(team)
        order = sorted(gains, key=lambda jobs: (-gains[jobs], jobs))[:MOST_SETS]
        keys = {team.key for jobs in order for team in of_jobs[jobs]}
        does = [_outcomes(keys, packers, world) for world, packers in enumerate(worlds)]
        sets = [self._sharing_set(of_jobs[jobs], does) for jobs in order]
        changes, taken = list[SharingSet](), set[Workload]()
        for packed, jobs in zip(sets, order, strict=True):
            if taken.isdisjoint(jobs) and len(changes) < MOST_CHANGES:
                changes.append(packed)
                taken.update(jobs)
        return sets, changes

    def _sharing_set(
        self, teams: Sequence[Team], does: Sequence[Mapping[SetKey, Floats]]
    ) -> SharingSet:
        """One set, whatever its jobs were from hour to hour."""
        hours, workloads, prices = self.walk.teams, self.walk.survey.workloads, self.prices
        most = max(teams, key=lambda team: (hours[team], team))
        packed, jobs, model = self._set(most.key), most.jobs, most.key.model
        table = np.array(
            [sum(hours[team] * of_world[team.key] for team in teams) for of_world in does]
        )
        cost = prices.of(HOUR_S, 0.0) * table[:, 0] + prices.of(0.0, 3600.0) * table[:, 1]
        longer = P99_ERRORS[packed.of_class].times
        return SharingSet(
            basis=self._basis(most.key),
            jobs=_names(jobs),
            group=listed(dict.fromkeys(job.group for job in jobs)),
            gpu_model=model,
            hours=sum(hours[team] for team in teams),
            speeds=packed.speeds,
            limits_percent=packed.shares,
            memory_mib=tuple(workloads[job].memory_mib for job in jobs),
            card_mib=self.walk.survey.memory_mib(model),
            power_w=packed.power_w,
            freed_hours=interval(table[:, 0]),
            saved_kwh=interval(table[:, 1] / 1000),
            saved_cost=interval(cost) if prices.are_set else None,
            slowest=interval(np.array([of_world[most.key][2] for of_world in does])),
            tails=tuple(
                longer(tail) if workloads[job].is_server else None
                for job, tail in zip(jobs, packed.longer, strict=True)
            ),
        )

    def jobs(self) -> tuple[AuditedJob, ...]:
        """Those with the most hours."""
        tails, several = self._tails(), set(map(Workload.of, self.walk.survey.several))
        order = sorted(
            self.walk.survey.workloads.items(),
            key=lambda item: (-item[1].busy_s - item[1].paused_s, item[0]),
        )
        return tuple(
            self._audited(job, use, tails.get(job), job in several)
            for job, use in order[:MOST_JOBS]
        )

    def _audited(
        self, job: Workload, use: WorkloadUse, tail: Interval | None, several: bool
    ) -> AuditedJob:
        survey = self.walk.survey
        is_profiled = (use.model, survey.profile_name(job)) in survey.stored_profiles
        read, active, _ = use.activity
        return AuditedJob(
            basis=_basis_of(use.model, is_profiled=is_profiled),
            job=job.name,
            group=job.group,
            gpu_model=use.model,
            pods=len(use.pods),
            gpu_hours=(use.busy_s + use.paused_s) / HOUR_S,
            paused_hours=use.paused_s / HOUR_S,
            kwh=use.energy_j / 3.6e6,
            activity_percent=active if read else None,
            spread=use.spread,
            memory_mib=use.memory_mib,
            fills=active >= FILLS_PERCENT if read and SM in use.busy else None,
            is_server=use.is_server,
            several_gpus=several,
            shared_hours=self.walk.shared.get(job, 0.0),
            tail=tail,
        )

    def _tails(self) -> dict[Workload, Interval]:
        """Of what looks like a server, how much longer its p99 could be at worst."""
        tails: dict[Workload, Interval] = {}
        for team in self.walk.teams:
            packed = self._set(team.key)
            for job, longer in zip(team.jobs, packed.longer, strict=True):
                if self.walk.survey.workloads[job].is_server:
                    tail = P99_ERRORS[packed.of_class].times(longer)
                    if job not in tails or tail.high > tails[job].high:
                        tails[job] = tail
        return tails

    def first_pairs(self, worlds: Iterable[_Packers]) -> tuple[HostSet, ...]:
        """Pairs to begin with: sure to save, no server, short runs, since a fault ends both."""
        survey, together = self.walk.survey, defaultdict[Team, float](float)
        workloads = survey.workloads
        for (jobs, key), hours in self.walk.teams.items():
            # Of larger sets, each two.
            for (a, of_a), (b, of_b) in combinations(zip(jobs, key.members, strict=True), 2):
                if not (workloads[a].is_server or workloads[b].is_server):
                    together[Team((a, b), key._replace(members=(of_a, of_b)))] += hours
        saved = _saved_w({team.key for team in together}, worlds)

        def longest_h(team: Team) -> float:
            longest_s = max(workloads[job].busy_s / len(workloads[job].pods) for job in team.jobs)
            return saved[team.key].low * together[team] / (1 + longest_s / HOUR_S)

        best = sorted((team for team in together if saved[team.key].low > 0), key=longest_h)
        return tuple(
            _host_set(
                team.jobs,
                self._set(team.key),
                saved[team.key],
                pairing_labels([job._replace(name=survey.profile_name(job)) for job in team.jobs]),
            )
            for team in best[: -MOST_PAIRS - 1 : -1]
        )


def _names(jobs: Sequence[Workload]) -> tuple[str, ...]:
    """Behind their groups where these differ: equal names of two groups are two jobs."""
    several = len({job.group for job in jobs}) > 1
    return tuple(f"{job.group}/{job.name}" if several else job.name for job in jobs)


def _host_set(
    jobs: Sequence[Workload], packed: PackedSet, saved: Interval, command: str
) -> HostSet:
    return HostSet(
        jobs=_names(jobs),
        speeds=packed.speeds,
        limits_percent=packed.shares,
        power_w=packed.power_w,
        saved_w=saved,
        command=command,
    )


def _launch_here(jobs: Sequence[Workload], shares: Sequence[float], jobs_dir: Path) -> str:
    """The command that launches watched jobs of one user, after what it still lacks.

    A job without a file gets one when `advisor watch` of its user has seen it alone for a minute.
    """
    split = "/".join(f"{share:g}" for share in shares) if min(shares) < WHOLE else "uncapped"
    names = [job.name.partition(" (")[0] for job in jobs]
    # Any user who may start a pod chooses labels.
    command = shlex.join(["advisor", "launch", *names, "--split", split])
    there = {job.name for job in sound_jobs(jobs_dir)[0]}
    mine = jobs[0].group in ("", _user(os.geteuid()))
    if not (mine and there.issuperset(names)):
        command = f"advisor watch --for 120 && {command}"
    return command if mine else f"as {jobs[0].group}: {command}"


def pairing_labels(jobs: Sequence[Workload]) -> str:
    """How two jobs of a cluster ask for each other when they are started again.

    Batch jobs by what prints how they were submitted, the tasks of an array as one line, with a
    name after what they run; pods by their annotations; of jobs without a name what names them.
    """
    a, b = (job.profile_name for job in jobs)
    if a.isdecimal() and b.isdecimal():
        lines = f"sacct -XnPj {a},{b} -o submitline | sort -u"
        return f"{lines} | sed 's/ / --comment=advisor:job=auto /'"
    if not (NAME.fullmatch(a) and NAME.fullmatch(b)):
        return "advisor watch"
    return "; ".join(
        f"pods of {name}: advisor.dev/job: {name}, advisor.dev/with: {other}"
        for name, other in dict.fromkeys(((a, b), (b, a)))
    )


_LEARNED = " and ".join(MEASURED_ON)

_LEFT_ALONE: Mapping[str, str] = {
    "several GPUs": "of jobs on several GPUs at once are left as they are",
    "shared already": "of GPUs that several jobs held at once are left as they are",
    "in MIG or partitions": "of GPUs in MIG instances or partitions are left as they are",
    "too little read": "lack power, memory, its total or any activity, and are left as they are",
}


def _not_shown(totals: _AuditTotals) -> Iterator[str]:
    """What the series do not show."""
    if not totals.reads_power:
        yield (
            "no power was read, so neither energy nor sets that could share can be estimated: "
            "collect DCGM_FI_DEV_POWER_USAGE"
        )
    elif hours := totals.hours.without_sm_s / HOUR_S:
        yield (
            f"of {hours:,.0f} GPU hours SM activity (DCGM_FI_PROF_SM_ACTIVE) is not collected, as "
            "dcgm-exporter's default counters leave it out: it is estimated from GPU and memory "
            f"utilisation, on {_LEARNED} also from power, PCIe traffic and clock"
        )
    kwh = totals.now().kwh_range
    if kwh and kwh.high > kwh.low:
        yield (
            f"of some hours no power was read: today's kWh are {kwh.low:,.0f} to {kwh.high:,.0f}, "
            "with these at idle power and at the power limit"
        )
    if unseen_s := totals.hours.seconds.get("unseen", 0.0):
        yield f"{unseen_s / HOUR_S:,.0f} GPU hours have no readings, and are in no figure"
    yield from (
        f"{hours:,.0f} GPU hours {text}"
        for why, text in _LEFT_ALONE.items()
        if (hours := totals.walk.apart.get(why))
    )
    if totals.walk.survey.groups == {""}:
        yield (
            "no series names the owner of a job, so all are taken to be of one owner; with a label "
            "of owners in --within, jobs of different owners do not share"
        )
    if strangers := sorted(totals.hours.models - set(MEASURED_ON)):
        yield (
            f"nothing was measured on {', '.join(strangers)}: what jobs keep of a part of it is a "
            "prior from how busy they were, with wide ranges, and what sets do is by the law of "
            f"sets of {_LEARNED}"
        )
    if unread := sorted(totals.hours.models - totals.walk.survey.limits_w.keys()):
        yield (
            f"no power limit of {', '.join(unread)} was read (DCGM_FI_DEV_ENFORCED_POWER_LIMIT): "
            f"{LEARNED_LIMIT_W:.0f} W are taken of {_LEARNED}, as where they were measured, "
            "and none of others, whose watts may be above it"
        )
    yield (
        "host cores, host memory, disks and networks are not looked at; nor is what several "
        "GPUs say to each other"
    )
    yield "of servers the load is seen, not what they could serve, nor how long answers take"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All of it.

    Attributes:
        held_by: Labels that named the job of a GPU, those with the most hours first.
        changes: The sets worth most that can all be made: no two have a job in common.
        left_out: Jobs that are not listed, since there are many.
        first_pairs: To begin with, the best first.
        kept: Jobs of which what was seen is kept under their names, for advice.
        not_seen: Sentences: what the series do not show.
        to_prove: Sentences: what only a launch would show.
    """

    made_at: str
    span: _ReadSpan
    now: _Now
    held_by: tuple[HeldBy, ...]
    shared: _Shared
    sets: tuple[SharingSet, ...]
    changes: tuple[SharingSet, ...]
    jobs: tuple[AuditedJob, ...]
    left_out: int
    first_pairs: tuple[HostSet, ...]
    kept: int
    not_seen: tuple[str, ...]
    to_prove: tuple[str, ...]

    @property
    def left_hours(self) -> Mapping[str, float]:
        """GPU hours that stay as they are, by why, the most first."""
        left = {**self.shared.apart_hours, "no readings": self.now.unseen_hours}
        return dict(sorted(((why, h) for why, h in left.items() if h), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What was read, on disk.

    Attributes:
        pages: When each begins and ends.
    """

    folder: Path
    groups: int
    pages: tuple[tuple[float, float], ...]

    def path(self, group: int, page: int) -> Path:
        """The file of a page."""
        return self.folder / f"{group:05d}-{page:05d}.jsonl"

    def segments(self, page: int) -> Iterator[Segment]:
        """All segments of a page, group by group."""
        for group in range(self.groups):
            with self.path(group, page).open("rb") as file:
                yield from (_SEGMENT.validate_json(line) for line in file if line.startswith(b"["))

    def left_out(self) -> LeftOut:
        """Impossible readings, and one of them."""
        last = len(self.pages) - 1
        each = [
            watched.left_out
            for n in range(self.groups)
            for watched in _kept(self.path(n, last)).values()
        ]
        return sum(count for count, _ in each), max(each, default=(0, ""))[1]

    @classmethod
    def read(
        cls,
        source: Source,
        within: str,
        folder: Path,
        on_page: Callable[[int, int], None],
        keep: IO[bytes] | None = None,
    ) -> "Pages":
        """Read what is not on disk yet.

        Args:
            source: What is read.
            within: Label; jobs share only where its value is equal.
            folder: Of the pages; what is there already is not read again.
            on_page: Called with the pages that are done and all pages.
            keep: A file that gets every series that is read.

        Raises:
            SourceError: the source is gone, or answers nonsense.
            OSError: the folder cannot be written.
        """
        count = max(1, math.ceil((source.end_s - source.begin_s) / source.page_s - 1e-9))
        edges = [min(source.end_s, source.begin_s + n * source.page_s) for n in range(count + 1)]
        pages = cls(folder=folder, groups=len(source.groups), pages=tuple(pairwise(edges)))
        total = pages.groups * len(pages.pages)
        for group in range(pages.groups):
            kept = dict[str, Watched]()
            for page, (begin_s, end_s) in enumerate(pages.pages):
                path = pages.path(group, page)
                if path.exists():
                    if page + 1 < len(pages.pages) and not pages.path(group, page + 1).exists():
                        kept = _kept(path)
                else:
                    series = _keeping(source.read(group, begin_s, end_s), keep)
                    steps = max(1, round((end_s - begin_s) / source.step_s))
                    _write(path, _page(series, source, within, begin_s, steps, kept), kept)
                on_page(group * len(pages.pages) + page + 1, total)
        return pages


def _page(
    series: Iterator[Series],
    source: Source,
    within: str,
    begin_s: float,
    steps: int,
    kept: dict[str, Watched],
) -> Iterator[Segment]:
    for gpu, page in sorted(gpu_pages(series, source, within, begin_s, steps).items()):
        watched = kept.setdefault(gpu, Watched())
        (before, example), (more, newest) = watched.left_out, page.left_out
        watched.left_out = before + more, newest or example
        yield from segments(page, watched)


def _keeping(series: Iterator[Series], file: IO[bytes] | None) -> Iterator[Series]:
    for row in series:
        if file:
            write_lines(file, [row])
        yield row


def _write(path: Path, segments: Iterator[Segment], kept: Mapping[str, Watched]) -> None:
    lines = [
        json.dumps(
            segment._replace(
                means={name: float(f"{value:.6g}") for name, value in segment.means.items()},
                spread=round(segment.spread, 4),
            )
        )
        for segment in segments
    ]
    lines.append(json.dumps({gpu: asdict(watched) for gpu, watched in kept.items()}))
    replace_file(path, "\n".join([*lines, ""]).encode(), durable=False)


_SEGMENT, _KEPT = TypeAdapter(Segment), TypeAdapter(dict[str, Watched])


def _kept(path: Path) -> dict[str, Watched]:
    return _KEPT.validate_json(path.read_bytes().rstrip(b"\n").rsplit(b"\n", 1)[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of an audit.

    Attributes:
        within: Label of the jobs that may share, or `all`.
        profiles: Profiles that the store has, by GPU model and job.
    """

    head: SingleWindowHead
    within: str = "namespace"
    objective: Aim = "energy-efficiency"
    limits: Request = field(default_factory=Request)
    prices: Prices = NO_PRICES
    profiles: Mapping[tuple[str, str], Profile] = field(
        default_factory=dict[tuple[str, str], Profile]
    )


TellProgress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""


def audit(
    source: Source,
    folder: Path,
    wanted: Wanted,
    on_progress: TellProgress,
    keep: IO[bytes] | None = None,
) -> tuple[Audit, list[SoloPoint]]:
    """Read a source, or go on reading it, and say what sharing would give.

    What was seen of each named workload of one GPU comes with it, for advice.

    Args:
        source: Of the series.
        folder: Where pages are kept until the audit is done.
        wanted: The options.
        on_progress: Told how far it is.
        keep: A file that gets every series that is read.

    Raises:
        SourceError: the source is gone, or answers nonsense.
        InputError: limits or prices that cannot be meant, or no job was on a GPU.
    """
    label = "namespace" if wanted.within == ALL else wanted.within
    pages = Pages.read(source, label, folder, lambda n, of: on_progress("reading", n, of), keep)
    survey, hours = Survey(stored_profiles=wanted.profiles), _Hours()
    for page in range(len(pages.pages)):
        segments = [*pages.segments(page)]
        survey.add_page(segments)
        hours.add_page(segments)
        on_progress("finding jobs", page + 1, len(pages.pages))
    if not hours.labels_s:
        # Or the same command would tell the same again, whatever has begun since.
        for file in folder.iterdir():
            file.unlink()
        raise InputError(
            "no job was seen on any GPU", fix="ask for other days, or see that the exporter runs"
        )
    span_s = source.end_s - source.begin_s
    # Shorter where little was read: there are 96 at least.
    slot_s = min(SLOT_S, max(source.step_s, span_s / 96))
    # Twelve slots are packed in each world.
    every = max(1, round(span_s / slot_s / 12))
    read = (segment for page in range(len(pages.pages)) for segment in pages.segments(page))
    walk = _walk_of(read, survey, wanted, slot_s, every)
    # Through all pages once more, slot by slot.
    for page, (begin_s, end_s) in enumerate(pages.pages):
        walk.page(pages.segments(page), begin_s, end_s)
        on_progress("packing", page + 1, len(pages.pages))
    worlds = list[_Packers]()
    for world in _worlds_of(walk, wanted):
        worlds.append(world)
        on_progress("drawing ranges", len(worlds), _WORLDS)
    totals = _AuditTotals(
        walk=walk,
        hours=hours,
        prices=wanted.prices,
        saved=saved(walk, worlds),
    )
    points = [*survey.points(to_text(datetime.fromtimestamp(source.begin_s, UTC)))]
    return _answer(source, wanted, totals, pages, worlds, len(points)), points


def _answer(
    source: Source,
    wanted: Wanted,
    totals: _AuditTotals,
    pages: Pages,
    worlds: Sequence[_Packers],
    kept: int,
) -> Audit:
    strays, (impossible, example) = source.counts.strays, pages.left_out()
    cardless = len(source.counts.cardless)
    left_out = {
        f"{cardless:,} MIG instances name no GPU: their hours are in no figure": cardless,
        f"{strays:,} samples are left out: their times are over a year off the others": strays,
        f"{impossible:,} impossible readings are left out, such as {example}": impossible,
    }
    begin, end = (to_text(datetime.fromtimestamp(s, UTC)) for s in (source.begin_s, source.end_s))
    held, jobs, (sets, changes) = totals.now(), totals.jobs(), totals.sets(worlds)
    return Audit(
        made_at=now(),
        held_by=totals.hours.held_by(),
        span=_ReadSpan(
            source=source.url,
            begin=begin,
            end=end,
            step_s=source.step_s,
            slot_s=totals.walk.slot_s,
            months=(source.end_s - source.begin_s) / HOUR_S / MONTH_H,
            within=wanted.within,
            objective=wanted.objective,
            min_speed=wanted.limits.policy.min_speed,
            requests=source.counts.requests,
            received_bytes=source.counts.received_bytes,
            waits=source.counts.waits,
            impossible=impossible,
        ),
        now=held,
        shared=totals.shared(held),
        sets=tuple(sets),
        changes=tuple(changes),
        jobs=jobs,
        left_out=len(totals.walk.survey.workloads) - len(jobs),
        first_pairs=totals.first_pairs(worlds),
        kept=kept,
        not_seen=(*(text for text, count in left_out.items() if count), *_not_shown(totals)),
        to_prove=(
            "no set has run: only a launch proves speeds, watts and tails of sets (advisor launch "
            "names jobs that miss their forecast)",
            "the sets are the best of many estimates, so expect less than the value, within the "
            "range",
            "the figures take all jobs to be placed again every "
            f"{totals.walk.slot_s / 60:.0f} minutes; running jobs cannot move, so a scheduler, "
            "which places each job once, frees fewer GPUs",
            "a job that is slowed down by sharing runs longer, beside jobs that come later; its "
            "delayed work is counted as done on a GPU of its own, so its end is not moved",
        ),
    )


def _walk_of(
    read: Iterable[Segment], survey: Survey, wanted: Wanted, slot_s: float, every: int = 1
) -> Walk:
    """What packs the segments that were surveyed, slot by slot.

    Raises:
        InputError: limits or prices that cannot be meant.
    """
    kinds_read: set[WorkloadKind] = set()
    for segment in read:
        if kind := survey.kind_of(segment):
            kinds_read.add(kind)
            survey.count(segment, kind)
    # Of each GPU model, in a fixed order.
    kinds = {model: [*of] for model, of in groupby(sorted(kinds_read), lambda kind: kind.model)}
    numbers = {kind: n for of_model in kinds.values() for n, kind in enumerate(of_model)}
    profiles = {model: survey.profiles(of, wanted.head) for model, of in kinds.items()}
    return Walk(
        survey, _packers(kinds, profiles, survey, wanted), numbers, wanted.within, slot_s, every
    )


def _worlds_of(walk: Walk, wanted: Wanted) -> Iterator[dict[str, Packer]]:
    """Packers of what jobs might be, of each world."""
    kinds = {model: packer.kinds for model, packer in walk.packers.items()}
    guesses = {model: walk.survey.guesses(of, wanted.head) for model, of in kinds.items()}
    return (
        _packers(
            kinds, {model: guess(world) for model, guess in guesses.items()}, walk.survey, wanted
        )
        for world in range(_WORLDS)
    )


def _packers(
    kinds: Mapping[str, Sequence[WorkloadKind]],
    profiles: Mapping[str, Sequence[Profile]],
    survey: Survey,
    wanted: Wanted,
) -> dict[str, Packer]:
    return {m: _packer(m, of, survey, wanted, profiles[m]) for m, of in kinds.items()}


def _packer(
    model: str,
    kinds: Sequence[WorkloadKind],
    survey: Survey,
    wanted: Wanted,
    profiles: Sequence[Profile],
) -> Packer:
    limits = wanted.limits.with_card_memory(model)
    if limits.memory_mib is None:
        limits = replace(limits, memory_mib=survey.memory_mib(model))
    return Packer(
        kinds,
        profiles,
        survey.idle_power_w(model),
        wanted.objective,
        limits,
        wanted.prices,
    )


WINDOW_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJob:
    """The job of a GPU.

    Attributes:
        job: Its name here, in sets, too.
        pids: Of its processes that began without each other; none: NVML names none.
        user: None: the host does not say.
        power_w: Of the whole card, as `sm_active_percent` and `memory_mib`.
        half_speed: Speed at half of the card for each 1 on all of it, estimated, with the ends of
            90 %; None: too little was read, several share the GPU, or it is on several.
        fills: Whether it keeps the SMs active half of the time; None: not read, or
            several are there.
        rate: Progress per second, of `rate_unit`, since it has been alone; None: not counted.
        alone_s: For how long it has been seen alone on one GPU.
    """

    job: str
    gpu: int | None
    gpu_model: str
    pids: tuple[int, ...]
    user: str | None
    power_w: float | None
    sm_active_percent: float | None
    memory_mib: float | None
    half_speed: Interval | None
    fills: bool | None
    rate: float | None
    rate_unit: str | None
    alone_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """All GPUs of this host; `basis` is the source of figures at half a GPU and of sets.

    Attributes:
        impossible: Readings so far that no card can show; they are left out.
    """

    at: str
    basis: str
    jobs: tuple[HostJob, ...]
    free_gpus: tuple[int | None, ...]
    together: tuple[HostSet, ...]
    impossible: int


@dataclass(slots=True)
class _Card:
    """A GPU and its last minute with the same processes."""

    looks: "deque[Mapping[str, float]]"
    pids: tuple[int, ...] = ()
    alone: SoloWatch | None = None

    def add(self, pids: tuple[int, ...], read: Mapping[str, float]) -> Mapping[str, float]:
        """One more look; the means of the minute, of memory the most."""
        if pids != self.pids:
            self.pids = pids
            self.looks.clear()
            self.leave()
        self.looks.append(read)
        values = {name: [look[name] for look in self.looks if name in look] for name in read}
        return {n: max(of) if n == USED else sum(of) / len(of) for n, of in values.items()}

    def leave(self) -> None:
        """Let go of what the process is counted by."""
        if self.alone and self.alone.source:
            self.alone.source.close()
        self.alone = None


class HostWatch:
    """The GPUs of this host, looked at again and again; `keep` gets what is seen of jobs alone.

    A job is named by `jobs_dir`, or after its command (`advisor.formats.job_file.watched_job`).

    Raises:
        SourceError: no driver, or no GPU.
    """

    def __init__(self, wanted: Wanted, every_s: float, jobs_dir: Path, keep: Keep) -> None:
        self._host, self._wanted = HostGpus(), wanted
        self._jobs_dir, self._keep = jobs_dir, keep
        self._jobs: dict[int, Job] = {}
        self._looks = max(1, round(WINDOW_S / every_s))
        self._cards: dict[str, _Card] = {}

    def look(self) -> HostState:
        """What is there now, a while after the last look.

        Raises:
            SourceError: a GPU does not answer any more.
        """
        there: list[tuple[GpuLook, Segment]] = []
        for look in self._host.look():
            # Those that compute and were not started by another one of them.
            below = {child for pid in look.pids for child in descendants(pid)}
            pids = tuple(pid for pid in look.pids if pid not in below)
            card = self._cards.setdefault(look.gpu.uuid, _Card(deque(maxlen=self._looks)))
            self._jobs.update({n: self._job_of(n) for n in pids if n not in self._jobs})
            means, name = card.add(pids, look.means), self._name(pids)
            there.append((look, _segment_of_gpu(look.gpu, means, pids, name)))
        self._follow(there)
        segments = [segment for _, segment in there]
        survey = Survey()
        survey.add_page(segments)
        walk = _walk_of(segments, survey, self._wanted, WINDOW_S)
        walk.page(segments, 0.0, WINDOW_S)
        hours = walk.hours
        saving = _saved_w(hours, _worlds_of(walk, self._wanted)) if hours else {}
        together = [
            _host_set(jobs, packed, saving[key], _launch_here(jobs, packed.shares, self._jobs_dir))
            for jobs, key in walk.teams
            for packed in [walk.packers[key.model].set_of(key.members, key.level)]
        ]
        return HostState(
            at=now(),
            basis=_least_sure(_basis_of(s.model, is_profiled=False) for s in segments),
            jobs=tuple(self._job(look, s, survey) for look, s in there if s.state != "free"),
            free_gpus=tuple(look.gpu.index for look, s in there if s.state == "free"),
            together=tuple(sorted(together, key=lambda s: -s.saved_w.value)),
            impossible=sum(look.impossible for look, _ in there),
        )

    def _job_of(self, pid: int) -> Job:
        words = words_of(pid) or (name_of(pid) or "process",)
        return watched_job(words, workdir_of(pid) or Path("/"), ProgressSettings(), self._jobs_dir)

    def _name(self, pids: Sequence[int]) -> str:
        return " + ".join(f"{self._jobs[pid].name} ({pid})" for pid in pids)

    def _follow(self, there: Sequence[tuple[GpuLook, Segment]]) -> None:
        """Take note of jobs with a GPU to themselves, and forget ended processes."""
        at_s, cards = time.monotonic(), [self._cards[look.gpu.uuid] for look, _ in there]
        held = [pid for card in cards for pid in card.pids]
        self._jobs = {pid: job for pid, job in self._jobs.items() if pid in held}
        for (gpu_look, _), card in zip(there, cards, strict=True):
            if len(card.pids) != 1 or held.count(card.pids[0]) > 1:
                card.leave()
                continue
            (pid,), alone = card.pids, card.alone
            # A job that has just begun may not have told anything yet.
            if alone is None or (alone.source is None and len(card.looks) < self._looks):
                job = self._jobs[pid]
                source = ProgressSource.find(family(pid), job.command, ProgressSettings())
                if alone is None or source:
                    alone = card.alone = SoloWatch(pid, job, source, self._keep)
            count = alone.source.count_now()[0] if alone.source else None
            free = [
                look.means.get(POWER)
                for look, segment in there
                if segment.state == "free" and look.gpu.model == gpu_look.gpu.model
            ]
            alone.add(at_s, gpu_look, count, min((w for w in free if w is not None), default=None))

    def _job(self, look: GpuLook, segment: Segment, survey: Survey) -> HostJob:
        gpu, read, card = look.gpu, look.means, self._cards[look.gpu.uuid]
        pids, active, alone = card.pids, segment.means.get(SM), card.alone
        return HostJob(
            job=segment.owner.name if segment.owner else self._name(pids),
            gpu=gpu.index,
            gpu_model=gpu.model,
            pids=pids,
            user=_users(pids),
            power_w=read.get(POWER),
            sm_active_percent=read.get(SM),
            memory_mib=read.get(USED),
            half_speed=self._half_speed(segment, survey),
            fills=None if active is None or not segment.owner else active >= FILLS_PERCENT,
            rate=alone and alone.rate,
            rate_unit=alone.source.progress.unit if alone and alone.source else None,
            alone_s=round(alone.alone_s, 3) if alone else 0.0,
        )

    def _half_speed(self, segment: Segment, survey: Survey) -> Interval | None:
        kind = survey.kind_of(segment)
        if kind is None:
            return None
        guess = survey.guesses([kind], self._wanted.head)
        rates = [
            (profile.shares, profile.values["rate"]) for n in range(_WORLDS) for profile in guess(n)
        ]
        return interval(np.array([[np.interp(WHOLE / 2, at, of) / of[-1]] for at, of in rates]))

    def close(self) -> None:
        """Let the driver go."""
        for card in self._cards.values():
            card.leave()
        self._host.close()


def _segment_of_gpu(
    gpu: Gpu, means: Mapping[str, float], pids: tuple[int, ...], name: str
) -> Segment:
    """The last minute of a GPU, as an audit sees it."""
    held = bool(pids) or means.get(USED, 0.0) > HELD_MIB
    name = name or f"of GPU {gpu.index}"
    return Segment(
        gpu=gpu.uuid,
        model=gpu.model,
        host="",
        owner=Owner(_users(pids) or "", name) if held and len(pids) < 2 else None,
        state="free" if not held else "busy" if len(pids) < 2 else "shared",
        phase=0,
        begin_s=0.0,
        end_s=WINDOW_S,
        read_s=WINDOW_S,
        means=means,
        spread=0.0,
    )


def _users(pids: Sequence[int]) -> str | None:
    users = {_user(uid) for pid in pids if (uid := owner_of(pid)) is not None}
    return ", ".join(sorted(users)) or None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
