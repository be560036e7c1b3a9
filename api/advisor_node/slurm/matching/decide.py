"""What becomes of waiting jobs: who begins on a part of a GPU, who joins whom, and who is alone.

Nothing is remembered: what was decided stands in the jobs' comments, and what runs where Slurm
says. The first of those who meet begins on its part of any GPU. When it runs, the others are sent
to its node one by one, where they fit on no GPU before that one: Slurm takes the first that fits.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.core.wording import listed
from advisor_node.advice import AskAdvice, Together
from advisor_node.matching import matched, weighed
from advisor_node.slurm.comment import Named
from advisor_node.slurm.matching.cluster import Partition, SlurmNode
from advisor_node.slurm.matching.meetings import (
    CardTasks,
    Meeting,
    PlanSets,
    named,
    open_cards,
    pairs_and_joins,
    planned_sets,
)
from advisor_node.slurm.matching.queued import WHOLE, SlurmTask

GATHER_S = 5.0
"""Jobs that are submitted together come within this time: the first shall not take the next."""

START_S = 30.0
"""A job that was sent to a node, and does not start within this time, has a whole GPU instead."""

HOLD_S = 3600.0
"""So long at most a job is held back for one that waits for its GPU."""

_MOST_WAITING = 60
"""Of one kind of jobs that may meet, the first in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to be told to Slurm of a job.

    Attributes:
        named: What its comment says from now on.
        counted: What it asks of a GPU, percent.
        starts_in_s: From when it may start, from now; None: as it is.
        limit_min: Its new time limit; None: as it is.
        node: Where it is to start; None: as it is, empty: anywhere.
        why: For its user.
    """

    job: SlurmTask
    named: Named
    counted: int
    starts_in_s: int | None = 0
    limit_min: int | None = None
    node: str | None = None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRound:
    """One look at the queue.

    Attributes:
        jobs: All, in the order of the queue, with the GPUs of those that are on their way.
        ask: Says of jobs whether they should share.
        now_s: Seconds since 1970.
        wait_s: How long the plugin lets a job wait.
        sets: Which jobs should run together, three or more.
    """

    jobs: Sequence[SlurmTask]
    nodes: Mapping[str, SlurmNode]
    partitions: Mapping[str, Partition]
    ask: AskAdvice
    now_s: float
    wait_s: float
    model: str | None = None
    sets: PlanSets = lambda _jobs, _model: ()

    def decide(self) -> Iterator[Change]:
        """What is to be changed now."""
        yield from self._given_up()
        cards: dict[object, list[CardTasks]] = defaultdict(list)
        for card in open_cards(self.jobs, self._kind):
            cards[self._kind(card[0])].append(card)
        waiting: dict[object, list[SlurmTask]] = defaultdict(list)
        for job in self.jobs:
            if job.undecided and self._came_s(job) <= self.now_s:
                waiting[self._kind(job)].append(job)
        for kind in dict.fromkeys((*cards, *waiting)):
            yield from self._of(cards[kind], waiting[kind][:_MOST_WAITING])

    def _of(self, cards: Sequence[CardTasks], waiting: Sequence[SlurmTask]) -> Iterator[Change]:
        """Of jobs that may meet: some have a part of a GPU, the others wait."""
        good = self._good(pairs_and_joins(cards, waiting, self.model))
        # Of who shares with nobody the service may know nothing, and then plans nothing.
        sharing = {job.key for meeting, _ in good for job in meeting.jobs}
        good += self._good(planned_sets(cards, waiting, sharing, self.sets, self.model))
        together: set[str] = set()
        for meeting, answer in matched([1] * (len(cards) + len(waiting)), good, 0):
            together |= {job.key for job in meeting.jobs}
            yield from self._told(meeting, answer)
        for first, *_ in cards:
            late = self.now_s - first.eligible_s > self.wait_s
            if first.pending and first.key not in together and late:
                yield self._whole(first, "nobody is left to share with")

    def _good(self, meetings: Iterable[Meeting]) -> list[tuple[Meeting, Together]]:
        """Those that are advised, and in which time limits leave their work to all that come."""
        return [
            (meeting, answer)
            for meeting, answer in weighed([*meetings], self.ask)
            if isinstance(answer, Together) and meeting.keeps(answer)
            if -1 not in map(self._limit, meeting.coming, answer.low_speeds[len(meeting.there) :])
        ]

    def _told(self, meeting: Meeting, answer: Together) -> Iterator[Change]:
        if not meeting.there:
            if self.now_s - self._came_s(meeting.coming[0]) >= GATHER_S:
                yield self._begins(meeting, answer)
            return
        first, later = meeting.there[0], meeting.coming
        if not first.pending:
            yield from self._joins(meeting, answer)
            later = later[1:]
        for job in later:
            if self.now_s - self._came_s(job) < HOLD_S and (
                job.eligible_s - self.now_s < self.wait_s / 2
            ):
                why = f"waits for job {first.key} ({_name(first)}) to begin, and shares its GPU"
                wait_s = int(self.wait_s)
                yield Change(job=job, named=named(job), counted=WHOLE, starts_in_s=wait_s, why=why)

    # What is told

    def _begins(self, meeting: Meeting, answer: Together) -> Change:
        """One with the largest share is the first.

        Slurm takes any GPU with room for it: more than half leaves none for the first of others.
        """
        shares = [float(share) for share in answer.shares]
        place = shares.index(max(shares))
        others = [job for n, job in enumerate(meeting.jobs) if n != place]
        counted = min(WHOLE - len(others), max(_part(shares, place, WHOLE), WHOLE // 2 + 1))
        why = f"of a GPU, held for {listed(map(_name, others))}, split {answer.split}"
        return self._share(meeting, answer, place, counted, why)

    def _joins(self, meeting: Meeting, answer: Together) -> Iterator[Change]:
        found = self._place(meeting, answer)
        if found is not None:
            node, counted = found
            those = listed(f"job {job.key} ({_name(job)})" for job in meeting.there)
            why = f"of a GPU beside {those}, split {answer.split}"
            place = len(meeting.there)
            yield replace(self._share(meeting, answer, place, counted, why), node=node)

    def _share(
        self, meeting: Meeting, answer: Together, place: int, counted: int, why: str
    ) -> Change:
        job, fit, low_speed = meeting.jobs[place], meeting.memory(answer), answer.low_speeds[place]
        share, limit = answer.shares[place], self._limit(job, low_speed)
        memory = fit.limit_mib(place) if fit.card_mib else None
        if memory is not None:
            why += f", at most {memory:,} MiB of its memory"
        if limit is not None:
            slow = f"{100 * low_speed:.0f} % of its speed at worst"
            why += f"; time limit {limit:g} min, since it runs at {slow}"
        told = replace(named(job), share_text=share, counted=counted, memory_mib=memory)
        return Change(job=job, named=told, counted=counted, limit_min=limit, why=f"{share} % {why}")

    def _given_up(self) -> Iterator[Change]:
        """Jobs that were sent beside another and could not start there."""
        for job in self.jobs:
            sent = job.pending and job.part and job.needs_node
            if sent and self.now_s - job.eligible_s > START_S:
                yield replace(self._whole(job, "it could not start beside another"), node="")

    def _whole(self, job: SlurmTask, why: str) -> Change:
        told = replace(named(job), share_text="100", counted=WHOLE, memory_mib=None)
        return Change(job=job, named=told, counted=WHOLE, why=f"a whole GPU: {why}")

    # Who may meet

    def _came_s(self, job: SlurmTask) -> float:
        """When a waiting job could have begun without us."""
        return job.eligible_s - self.wait_s

    def _kind(self, job: SlurmTask) -> object:
        partition = self.partitions.get(job.partition)
        one_user = partition is None or partition.one_user
        return (job.partition, job.where, job.user if one_user else None)

    def _limit(self, job: SlurmTask, low_speed: float) -> int | None:
        """The time that leaves it its work; None: no limit, -1: its partition allows less."""
        partition = self.partitions.get(job.partition)
        given = job.limit_min or (partition.default_min if partition else None)
        if given is None:
            return None
        wanted = math.ceil(given / min(1.0, low_speed))
        most = partition.most_min if partition else None
        return wanted if most is None or wanted <= most else -1

    # Where

    def _held(self, card: tuple[str, int]) -> int:
        return sum(job.cards.get(card, 0) for job in self.jobs)

    def _place(self, meeting: Meeting, answer: Together) -> tuple[str, int] | None:
        """The node of those that run, where Slurm would put the next one on their GPU; its part.

        The last one has all that is left, and the others leave something for those behind them.
        """
        [(name, index)] = meeting.there[0].cards
        node, (job, *later) = self.nodes.get(name), meeting.coming
        if node is None or node.free_cpus < job.cpus:
            return None
        free = WHOLE - self._held((name, index))
        before = max((WHOLE - self._held((name, other)) for other in range(index)), default=0)
        shares = [float(share) for share in answer.shares[len(meeting.there) :]]
        counted = max(_part(shares, 0, free), before + 1)
        return (name, counted) if 1 <= counted <= free - len(later) else None


def _part(shares: Sequence[float], place: int, of: int) -> int:
    """What is counted of a GPU for one of some, by their shares."""
    return max(1, round(of * shares[place] / sum(shares)))


def _name(job: SlurmTask) -> str:
    return named(job).job
