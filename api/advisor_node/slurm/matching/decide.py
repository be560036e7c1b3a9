"""What becomes of waiting jobs: who begins on a part of a GPU, who joins whom, and who is alone.

Nothing is remembered: what was decided stands in the jobs' comments, and what runs where Slurm
says. The first of a pair begins on its part of any GPU. When it runs, the other is sent to its
node, where it fits on no GPU before that one: Slurm takes the first that fits.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.client import JobRequest
from advisor.core.gpu import MEMORY_MIB, MEMORY_PART, MemoryFit
from advisor_node.advice import Answer, Question, Together
from advisor_node.matching import Edge, matched
from advisor_node.slurm.comment import Named
from advisor_node.slurm.matching.cluster import Node, Partition
from advisor_node.slurm.matching.queued import WHOLE, QueuedJob

GATHER_S = 5.0
"""Jobs that are submitted together come within this time: the first shall not take the next."""

START_S = 30.0
"""A job that was sent to a node, and does not start within this time, has a whole GPU instead."""

HOLD_S = 3600.0
"""So long at most a job is held back for one that waits for its GPU."""

_MOST_WAITING = 60
"""Of one kind of jobs that may meet, the first in the queue."""

_LEAST_SPEED = 0.05


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

    job: QueuedJob
    named: Named
    counted: int
    starts_in_s: int | None = 0
    limit_min: int | None = None
    node: str | None = None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """Two jobs that are to share; of the first the share is given where it has begun."""

    first: QueuedJob
    second: QueuedJob
    answer: Together
    limits_min: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One look at the queue.

    Attributes:
        jobs: All, in the order of the queue.
        ask: Says of pairs whether they should share.
        now_s: Seconds since 1970.
        wait_s: How long the plugin lets a job wait.
    """

    jobs: Sequence[QueuedJob]
    nodes: Mapping[str, Node]
    partitions: Mapping[str, Partition]
    ask: Callable[[Collection[Question]], Mapping[Question, Answer]]
    now_s: float
    wait_s: float
    model: str | None = None

    def decide(self) -> Iterator[Change]:
        """What is to be changed now."""
        yield from self._given_up()
        groups: dict[object, list[QueuedJob]] = defaultdict(list)
        for job in self.jobs:
            if self._may_join(job) or self._waits(job):
                groups[self._kind(job)].append(job)
        for jobs in groups.values():
            yield from self._of(jobs)

    def _of(self, jobs: list[QueuedJob]) -> Iterator[Change]:
        """Of jobs that may meet: some have a part of a GPU, the others wait."""
        begun = [job for job in jobs if job.part]
        waiting = [job for job in jobs if not job.part][:_MOST_WAITING]
        matches = _best(self._matches(begun, waiting), [*begun, *waiting])
        together = {job for match in matches for job in (match.first.key, match.second.key)}
        for match in matches:
            yield from self._told(match)
        for job in begun:
            late = self.now_s - job.eligible_s > self.wait_s
            if job.pending and job.key not in together and late:
                yield self._whole(job, "nobody is left to share with")

    def _told(self, match: _Match) -> Iterator[Change]:
        first, second = match.first, match.second
        if not first.part:
            if self.now_s - self._came_s(first) >= GATHER_S:
                yield self._begins(match)
        elif not first.pending:
            node = self._fits(first, second)
            if node is not None:
                yield self._joins(match, node)
        elif self.now_s - self._came_s(second) < HOLD_S and (
            second.eligible_s - self.now_s < self.wait_s / 2
        ):
            why = f"waits for job {first.key} ({_name(first)}) to begin, and shares its GPU then"
            yield self._change(second, WHOLE, starts_in_s=int(self.wait_s), why=why)

    # What is told

    def _begins(self, match: _Match) -> Change:
        mine, other = (float(share) for share in match.answer.shares)
        counted = min(99, max(1, round(WHOLE * mine / (mine + other))))
        why = f"of a GPU, held for {_name(match.second)}, split {match.answer.split}"
        return self._share(match, 0, counted, why)

    def _joins(self, match: _Match, node: str) -> Change:
        counted = WHOLE - self._held(next(iter(match.first.cards)))
        beside = f"job {match.first.key} ({_name(match.first)})"
        why = f"of a GPU beside {beside}, split {match.answer.split}"
        return replace(self._share(match, 1, counted, why), node=node)

    def _share(self, match: _Match, place: int, counted: int, why: str) -> Change:
        job = (match.first, match.second)[place]
        answer, limit = match.answer, match.limits_min[place]
        card_mib = MEMORY_MIB.get(answer.gpu_model)
        fit = MemoryFit(answer.needs_mib, card_mib)
        share, memory = answer.shares[place], fit.limit_mib(place) if card_mib else None
        if memory is not None:
            why += f", at most {memory:,} MiB of its memory"
        if limit is not None:
            slow = f"{100 * answer.low_speeds[place]:.0f} % of its speed at worst"
            why += f"; time limit {limit} min, since it runs at {slow}"
        named = replace(_named(job), share_text=share, counted=counted, memory_mib=memory)
        return Change(
            job=job, named=named, counted=counted, limit_min=limit, why=f"{share} % {why}"
        )

    def _given_up(self) -> Iterator[Change]:
        """Jobs that were sent beside another and could not start there."""
        for job in self.jobs:
            sent = job.pending and job.part and job.needs_node
            if sent and self.now_s - job.eligible_s > START_S:
                yield replace(self._whole(job, "it could not start beside another"), node="")

    def _whole(self, job: QueuedJob, why: str) -> Change:
        named = replace(_named(job), share_text="100", counted=WHOLE, memory_mib=None)
        return Change(job=job, named=named, counted=WHOLE, why=f"a whole GPU: {why}")

    def _change(self, job: QueuedJob, counted: int, *, starts_in_s: int, why: str) -> Change:
        named = _named(job)
        return Change(job=job, named=named, counted=counted, starts_in_s=starts_in_s, why=why)

    # Who may meet

    def _came_s(self, job: QueuedJob) -> float:
        """When a waiting job could have begun without us."""
        return job.eligible_s - self.wait_s

    def _waits(self, job: QueuedJob) -> bool:
        return job.undecided and self._came_s(job) <= self.now_s

    def _may_join(self, job: QueuedJob) -> bool:
        """Whether a job has a part of a GPU, of which the rest is free."""
        if not job.part:
            return False
        if job.pending:
            return not job.needs_node
        return len(job.cards) == 1 and not any(
            other is not job and next(iter(job.cards)) in other.cards for other in self.jobs
        )

    def _kind(self, job: QueuedJob) -> object:
        partition = self.partitions.get(job.partition)
        one_user = partition is None or partition.one_user
        return (job.partition, job.where, job.user if one_user else None)

    def _matches(
        self, begun: Sequence[QueuedJob], waiting: Sequence[QueuedJob]
    ) -> Iterator[_Match]:
        asked = [
            (first, second, self._question(first, second))
            for n, second in enumerate(waiting)
            for first in (*begun, *waiting[:n])
            if _want(first, second)
        ]
        answers = self.ask([question for _, _, question in asked])
        for first, second, question in asked:
            answer = answers.get(question)
            if not isinstance(answer, Together) or min(answer.low_speeds) < _LEAST_SPEED:
                continue
            if not _finds_memory(first, answer):
                continue
            first_limit = None if first.part else self._limit(first, answer.low_speeds[0])
            second_limit = self._limit(second, answer.low_speeds[1])
            if -1 not in (first_limit, second_limit):
                limits = (first_limit, second_limit)
                yield _Match(first=first, second=second, answer=answer, limits_min=limits)

    def _question(self, first: QueuedJob, second: QueuedJob) -> Question:
        jobs = (
            JobRequest(job=one.job, min_speed=one.min_speed, max_p99_ms=one.max_p99_ms)
            for one in (_named(first), _named(second))
        )
        running = _named(first).share_text
        return Question(
            jobs=tuple(jobs), model=self.model, running=(float(running),) if running else ()
        )

    def _limit(self, job: QueuedJob, low_speed: float) -> int | None:
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

    def _fits(self, first: QueuedJob, second: QueuedJob) -> str | None:
        """The node of the first, where Slurm would put the second on the GPU of the first."""
        name, index = next(iter(first.cards))
        node = self.nodes.get(name)
        free = WHOLE - self._held((name, index))
        sent = any(job.pending and job.needs_node == name for job in self.jobs)
        before = (WHOLE - self._held((name, other)) for other in range(index))
        if node is None or sent or free < 1 or any(room >= free for room in before):
            return None
        return name if node.free_cpus >= second.cpus else None


def _best(matches: Iterable[_Match], jobs: Sequence[QueuedJob]) -> list[_Match]:
    """Those that are worth most together, each job once at most; of equals the oldest."""
    found = list(matches)
    places = {job.key: place for place, job in enumerate(jobs)}
    edges = [
        Edge(
            kinds=(places[match.first.key], places[match.second.key]),
            worth=_worth(match) - 1e-6 * places[match.second.key],
            takes_gpu=False,
        )
        for match in found
    ]
    used = matched([1] * len(jobs), edges, 0)
    return [match for match, times in zip(found, used, strict=True) if times]


def _finds_memory(first: QueuedJob, answer: Together) -> bool:
    """Whether what is open to one that has begun leaves the other what it needs."""
    card_mib, taken_mib = MEMORY_MIB.get(answer.gpu_model), _named(first).memory_mib
    need_mib = MemoryFit(answer.needs_mib[1:], None).limit_mib(0)
    if None in (card_mib, taken_mib, need_mib):
        return True
    return (taken_mib or 0) + (need_mib or 0) <= MEMORY_PART * (card_mib or 0)


def _worth(match: _Match) -> float:
    """A part of a GPU that is held, and used by nobody, is worth more than any pair."""
    return max(match.answer.energy_saved, 1e-3) + match.first.part


def _named(job: QueuedJob) -> Named:
    assert job.named is not None
    return job.named


def _name(job: QueuedJob) -> str:
    return _named(job).job


def _want(a: QueuedJob, b: QueuedJob) -> bool:
    """Whether each may have the other beside it."""
    mine, other = _named(a), _named(b)
    return mine.beside in (None, other.job) and other.beside in (None, mine.job)
