"""The time that was read, slot by slot: who ran at once, and which sets they would have made."""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from advisor_audit.kinds import SeenKind, Survey, Workload, workload_of
from advisor_audit.packing import Members, Packer
from advisor_audit.phases import Segment

SLOT_S = 900.0
"""Whoever is there in the middle of a slot is taken to be there for all of it."""

TOP_SLOTS = 8
"""Slots with the most cards, in which it is seen how many would have been enough."""

MOST_TEAMS = 20_000
"""Sets by the names of their jobs that are counted; the rarest are forgotten beyond twice this."""

ALL = "all"
"""Everybody may share with everybody."""


class SetKey(NamedTuple):
    """A set of kinds on a GPU model."""

    model: str
    members: Members
    level: int


class Team(NamedTuple):
    """A set by the names of its jobs, and what it was mostly."""

    jobs: tuple[Workload, ...]
    key: SetKey


_Group: TypeAlias = dict[int, list[Workload]]
"""Jobs that may share, in one slot: their names by the numbers of their kinds."""


@dataclass(frozen=True, slots=True, order=True)
class SlotCards:
    """One slot: cards with sharing, and what they are.

    Attributes:
        apart: Cards of jobs alone, and of those that stay as they are.
        cards_now: A card for each job.
        groups: Jobs of each kind that may share, by GPU model.
    """

    cards: float
    begin_s: float
    apart: int = field(compare=False)
    cards_now: int = field(compare=False)
    groups: Sequence[tuple[str, Mapping[int, int]]] = field(compare=False)
    sets: Mapping[SetKey, int] = field(compare=False)


@dataclass(slots=True)
class Walked:
    """What was counted.

    Attributes:
        hours: Of each set of two and more.
        teams: The same by the names of their jobs.
        shared: Hours of each workload in sets.
        apart: GPU hours of jobs that stay as they are, by why.
        sample: One of `every` slots.
    """

    slot_s: float
    every: int = 1
    hours: dict[SetKey, float] = field(default_factory=lambda: defaultdict(float))
    teams: dict[Team, float] = field(default_factory=lambda: defaultdict(float))
    shared: dict[Workload, float] = field(default_factory=lambda: defaultdict(float))
    apart: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    known_hours: float = 0.0
    most_now: int = 0
    slots: int = 0
    top: list[SlotCards] = field(default_factory=list[SlotCards])
    sample: list[SlotCards] = field(default_factory=list[SlotCards])


@dataclass(slots=True, eq=False)
class Walk:
    """Packs slot after slot.

    Attributes:
        numbers: Of each kind, its place in the packer of its model.
    """

    survey: Survey
    packers: Mapping[str, Packer]
    numbers: Mapping[SeenKind, int]
    within: str
    walked: Walked

    def page(self, segments: Iterable[Segment], begin_s: float, end_s: float) -> None:
        """One page of the whole cluster."""
        slot_s = self.walked.slot_s
        count = max(1, round((end_s - begin_s) / slot_s))
        slots: list[list[Segment]] = [[] for _ in range(count)]
        for one in segments:
            if one.state in ("busy", "paused", "shared"):
                # Middles of slots that lie within it.
                first = math.ceil((one.begin_s - begin_s) / slot_s - 0.5)
                last = math.ceil((one.end_s - begin_s) / slot_s - 0.5)
                for place in range(max(first, 0), min(last, count)):
                    slots[place].append(one)
        for place, there in enumerate(slots):
            self._slot(there, begin_s + place * slot_s)

    def _slot(self, there: Sequence[Segment], begin_s: float) -> None:
        walked, hours = self.walked, self.walked.slot_s / 3600
        groups: dict[tuple[str, str], _Group] = defaultdict(lambda: defaultdict(list))
        apart = 0
        for one in there:
            kind, why = self._kind(one)
            if kind is None or one.owner is None:
                walked.apart[why] += hours
                apart += 1
                continue
            walked.known_hours += hours if kind.known else 0.0
            group = groups[one.model, self._group(one)]
            group[self.numbers[kind]].append(workload_of(one.owner))
        sets, alone = Counter[SetKey](), 0
        for (model, _), group in sorted(groups.items()):
            alone += self._packed(model, group, sets)
        for key, count in sets.items():
            walked.hours[key] += count * hours
        used = sum(count * (1 + self.lag_cards(key)) for key, count in sets.items())
        counts = [
            (model, {n: len(names) for n, names in group.items()})
            for (model, _), group in sorted(groups.items())
        ]
        slot = SlotCards(apart + alone + used, begin_s, apart + alone, len(there), counts, sets)
        (heapq.heappush if len(walked.top) < TOP_SLOTS else heapq.heappushpop)(walked.top, slot)
        walked.most_now = max(walked.most_now, len(there))
        if walked.slots % walked.every == walked.every // 2:
            walked.sample.append(slot)
        walked.slots += 1

    def lag_cards(self, key: SetKey) -> float:
        """Cards for what the jobs of a set lag behind."""
        return self.packers[key.model].set_of(key.members, key.level).lag_cards

    def _kind(self, one: Segment) -> tuple[SeenKind | None, str]:
        if one.state == "shared":
            return None, "shared already"
        if one.owner in self.survey.several:
            return None, "several GPUs"
        kind = self.survey.kind_of(one)
        return kind, "" if kind else "too little read"

    def _group(self, one: Segment) -> str:
        assert one.owner is not None
        if self.within == ALL or self.survey.groups == {""}:
            return ""
        # Of whom nobody knows whose it is, it shares with none but its own kind.
        return one.owner.group or f"\0{workload_of(one.owner).name}"

    def _packed(self, model: str, group: _Group, sets: Counter[SetKey]) -> int:
        """Add the sets of a group; how many jobs stay alone."""
        found = self.packers[model].pack({n: len(names) for n, names in group.items()})
        walked, hours, alone = self.walked, self.walked.slot_s / 3600, 0
        names = {n: sorted(of_kind, reverse=True) for n, of_kind in group.items()}
        for (members, level), count in found.items():
            if len(members) == 1:
                alone += count
                continue
            key = SetKey(model, members, level)
            sets[key] += count
            for _ in range(count):
                jobs = tuple(names[kind].pop() for kind in members)
                walked.teams[Team(jobs, key)] += hours
                for job in jobs:
                    walked.shared[job] += hours
        if len(walked.teams) > 2 * MOST_TEAMS:
            for team, _ in heapq.nsmallest(MOST_TEAMS, walked.teams.items(), key=lambda t: t[1]):
                del walked.teams[team]
        return alone
