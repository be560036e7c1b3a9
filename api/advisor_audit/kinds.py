"""Jobs that were seen become kinds: like windows on like GPUs are one kind, with one profile.

A cluster has thousands of jobs and a placement wants hundreds of kinds at most, so windows are
counted in cells: of activity, power, memory and so on. A kind is the mean of all windows of its
cell, by their time, and needs as much memory as the largest of them.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from advisor.core.gpu import CARD_UNITS, MEMORY_MIB
from advisor.predict.one_window import SoloWindow
from advisor.predict.profiles import COLUMNS, Profile, Serving
from advisor_audit.phases import Segment
from advisor_audit.sources import (
    ACTIVITY,
    BUSY,
    CLOCK,
    FREE,
    LIMIT,
    POWER,
    USED,
    Owner,
    workload_name,
)
from advisor_models.one_window import OneWindowHead

SERVER_SPREAD, SERVER_S = 0.3, 1800.0
"""What looks like a server: its activity goes up and down by so much of its mean, from minute to
minute, for so long. Training that is steady does not."""


class Workload(NamedTuple):
    """All pods of one name, or one batch job."""

    group: str
    name: str

    @property
    def known_as(self) -> str:
        """The name of its profile: as `advisor profile --name` is told it."""
        return self.name.removeprefix("job ")


def workload_of(owner: Owner) -> Workload:
    """The name without what is made up for each pod."""
    return Workload(owner.group, workload_name(owner.name))


@dataclass(slots=True)
class SeenWorkload:
    """What was seen of a workload.

    Attributes:
        activity: Seconds, mean, and sum of squared deviations times seconds.
        memory_mib: The most of one pod.
        pods: Hashes of their names: a name has fifty times as many bytes.
    """

    model: str = ""
    busy_s: float = 0.0
    paused_s: float = 0.0
    activity: tuple[float, float, float] = (0.0, 0.0, 0.0)
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
        """Whether it looks like one."""
        return self.spread >= SERVER_SPREAD and self.activity[0] >= SERVER_S

    def add(self, one: Segment) -> None:
        """One more segment of it."""
        span_s = one.end_s - one.begin_s
        self.model = one.model
        self.pods.add(hash(one.owner))
        self.memory_mib = max(self.memory_mib, one.means.get(USED, 0.0))
        self.energy_j += span_s * one.means.get(POWER, 0.0)
        active = _activity_of(one)
        if one.state == "paused":
            self.paused_s += span_s
        else:
            self.busy_s += span_s
            if active is not None:
                inside = (one.spread * active) ** 2
                self.activity = _joined(self.activity, one.seen_s, active, inside)


def _activity_of(one: Segment) -> float | None:
    """Percent; None: it was not read."""
    return next((one.means[name] for name in ACTIVITY if name in one.means), None)


def _joined(
    before: tuple[float, float, float], seconds: float, mean: float, variance: float
) -> tuple[float, float, float]:
    total = before[0] + seconds
    if total <= 0:
        return before
    away = mean - before[1]
    squares = before[2] + variance * seconds + away * away * before[0] * seconds / total
    return total, before[1] + away * seconds / total, squares


SM, DRAM, MEMORY_BUSY = "sm_active_percent", "dram_active_percent", "memory_busy_percent"

SM_EDGES = (1.0, 3.0, 6.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 75.0, 90.0)
POWER_PARTS, MEMORY_PARTS = 12, 16
WIDE_PERCENT = 20.0
"""Cells of what matters less."""

LIMITS_W: Mapping[str, float] = {
    "NVIDIA A100-SXM4-40GB": 400.0,
    "NVIDIA A100-SXM4-80GB": 400.0,
    "NVIDIA H100 80GB HBM3": 700.0,
    "NVIDIA H200": 700.0,
    "NVIDIA L40S": 350.0,
}
"""Power limits of GPU models (their data sheets), where the site does not collect them."""

IDLE_W = 70.0
"""Of a GPU without a job, where none was seen: an H100 or H200 (data/advisor_data/bundled)."""

SURE_S = 600.0
"""The highest clock of a GPU model is the mean of a window of so long: one of few readings would
say that all others are held back."""


class SeenKind(NamedTuple):
    """A cell of windows, or a job that the store knows.

    Attributes:
        known: Name of the job in the store; empty: it was seen only.
    """

    model: str
    known: str
    is_server: bool
    cell: tuple[int, ...]


@dataclass(slots=True)
class Survey:
    """All that is known of jobs and GPUs before they are placed; bounded by how many there are.

    Attributes:
        known: Profiles that the store has, by GPU model and job.
        several: Owners that held several GPUs at once: they are left as they are.
        idle_w: Watts and seconds of free GPUs, by model.
        totals_mib: Memory of a card, by model, as it was read.
    """

    known: Mapping[tuple[str, str], Profile] = field(default_factory=dict[tuple[str, str], Profile])
    seen: dict[Workload, SeenWorkload] = field(default_factory=lambda: defaultdict(SeenWorkload))
    several: set[Owner] = field(default_factory=set[Owner])
    idle_w: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    totals_mib: dict[str, float] = field(default_factory=dict[str, float])
    limits_w: dict[str, float] = field(default_factory=dict[str, float])
    most_w: dict[str, float] = field(default_factory=dict[str, float])
    clocks_mhz: dict[str, float] = field(default_factory=dict[str, float])
    groups: set[str] = field(default_factory=set[str])
    _cells: dict[SeenKind, dict[str, list[float]]] = field(
        default_factory=dict[SeenKind, dict[str, list[float]]]
    )
    _seconds: dict[SeenKind, float] = field(default_factory=lambda: defaultdict(float))

    def add_page(self, segments: Collection[Segment]) -> None:
        """One page of the whole cluster."""
        self.several |= _held_several(segments)
        for one in segments:
            self._of_card(one)
            if one.owner and one.state in ("busy", "paused"):
                self.seen[workload_of(one.owner)].add(one)
                self.groups.add(one.owner.group)

    def _of_card(self, one: Segment) -> None:
        means, model = one.means, one.model
        for highest, value in (
            (self.most_w, means.get(POWER)),
            (self.limits_w, means.get(LIMIT)),
            (self.clocks_mhz, means.get(CLOCK) if one.seen_s >= SURE_S else None),
            (self.totals_mib, means[USED] + means[FREE] if {USED, FREE} <= means.keys() else None),
        ):
            if value is not None:
                highest[model] = max(highest.get(model, 0.0), value)
        if POWER in means and one.state == "free":
            idle = self.idle_w.setdefault(model, [0.0, 0.0])
            idle[0] += means[POWER] * one.seen_s
            idle[1] += one.seen_s

    def idle_power_w(self, model: str) -> float:
        """Of a card that nobody holds."""
        watts, seconds = self.idle_w.get(model, (0.0, 0.0))
        return watts / seconds if seconds > 0 else IDLE_W

    def limit_w(self, model: str) -> float:
        """Power limit: as it was read, of the data sheet, or the most that a card drew."""
        read = self.limits_w.get(model) or LIMITS_W.get(model)
        return max(read or 0.0, self.most_w.get(model, 0.0), self.idle_power_w(model) + 1)

    def memory_mib(self, model: str) -> float | None:
        """Of a card; None: nobody knows."""
        return MEMORY_MIB.get(model) or self.totals_mib.get(model) or None

    def kind_of(self, one: Segment) -> SeenKind | None:
        """The kind of a segment; None: too little was read to say anything."""
        if one.owner is None or POWER not in one.means or _activity_of(one) is None:
            return None
        memory_mib = self.memory_mib(one.model)
        if memory_mib is None or USED not in one.means:
            return None
        workload = workload_of(one.owner)
        if one.state == "busy" and (one.model, workload.known_as) in self.known:
            return SeenKind(one.model, workload.known_as, False, ())
        is_server = one.state == "busy" and self.seen[workload].is_server
        return SeenKind(one.model, "", is_server, self._cell(one, memory_mib))

    def _cell(self, one: Segment, memory_mib: float) -> tuple[int, ...]:
        means, model = one.means, one.model
        idle_w, limit_w = self.idle_power_w(model), self.limit_w(model)
        power = (means[POWER] - idle_w) / (limit_w - idle_w)
        active = SM if SM in means else BUSY
        return (
            int(np.searchsorted(SM_EDGES, means.get(active, means.get(SM, 0.0)))),
            int(max(0.0, power) * POWER_PARTS),
            math.ceil(MEMORY_PARTS * means[USED] / memory_mib),
            int(means.get(DRAM, means.get(MEMORY_BUSY, 0.0)) / WIDE_PERCENT),
        )

    def count(self, one: Segment, kind: SeenKind) -> None:
        """One more window of a kind."""
        if kind.known:
            return
        sums = self._cells.setdefault(kind._replace(is_server=False), {})
        for channel, value in one.means.items():
            kept = sums.setdefault(channel, [0.0, 0.0, 0.0])
            kept[0] += value * one.seen_s
            kept[1] += one.seen_s
            kept[2] = max(kept[2], value)

    def profiles(self, kinds: Iterable[SeenKind], head: OneWindowHead) -> list[Profile]:
        """Of each kind: as it was measured, else as it is estimated from its mean window."""
        return [
            self.known[kind.model, kind.known]
            if kind.known
            else _as_seen(kind, head.model.profile(self.window(kind)))
            for kind in kinds
        ]

    def guesses(
        self, kinds: Iterable[SeenKind], head: OneWindowHead
    ) -> Callable[[int], list[Profile]]:
        """The same in each world, where what is measured is as it is."""
        found = [(kind, self._guess(kind, head)) for kind in kinds]
        return lambda world: [_as_seen(kind, guess(world)) for kind, guess in found]

    def _guess(self, kind: SeenKind, head: OneWindowHead) -> Callable[[int], Profile]:
        if kind.known:
            return lambda _: self.known[kind.model, kind.known]
        return head.guesses(self.window(kind), is_server=kind.is_server)

    def window(self, kind: SeenKind) -> SoloWindow:
        """The mean window of a kind."""
        sums = self._cells[kind._replace(is_server=False)]
        means = {channel: total / seconds for channel, (total, seconds, _) in sums.items()}
        clock_mhz = self.clocks_mhz.get(kind.model)
        return SoloWindow(
            job=f"{kind.model} {kind.cell} {kind.is_server}",
            gpu_model=kind.model,
            units_total=CARD_UNITS.get(kind.model),
            power_w=max(means[POWER], self.idle_power_w(kind.model) + 1),
            power_limit_w=self.limit_w(kind.model),
            clock_part=means[CLOCK] / clock_mhz if clock_mhz and CLOCK in means else 1.0,
            idle_power_w=self.idle_power_w(kind.model),
            memory_used_mib=sums[USED][2],
            counters={name: value for name, value in means.items() if name in COLUMNS},
        )


def _as_seen(kind: SeenKind, profile: Profile) -> Profile:
    """With the demand of what looks like a server."""
    if kind.known or not kind.is_server:
        return profile
    rate = float(profile.values["rate"][-1])
    return replace(profile, serving=Serving(offered_rate=rate, rate_noise=None, latency_p99_ms=()))


def _held_several(segments: Iterable[Segment]) -> set[Owner]:
    """Owners that held two GPUs at the same time."""
    spans: dict[Owner, list[tuple[float, float, str]]] = defaultdict(list)
    for one in segments:
        if one.owner:
            spans[one.owner].append((one.begin_s, one.end_s, one.gpu))
    return {owner for owner, of in spans.items() if _overlap(sorted(of))}


def _overlap(spans: list[tuple[float, float, str]]) -> bool:
    """Whether any time is covered by two GPUs."""
    until: dict[str, float] = {}
    for begin_s, end_s, gpu in spans:
        if any(end > begin_s for other, end in until.items() if other != gpu):
            return True
        until[gpu] = end_s
    return False
