"""Which of Slurm's waiting jobs share a GPU: decided on the controller, told by `scontrol`."""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.client import Client, JobRequest
from advisor.core.gpu import ADVISED_JOBS, MOST_JOBS
from advisor.core.job import ProgressSettings
from advisor.core.records import grouped
from advisor.core.wording import listed
from advisor.errors import AdvisorError
from advisor.formats.job_file import AUTO, watched_job
from advisor_node.advice import (
    Advice,
    AskAdvice,
    NamedSets,
    Offer,
    Question,
    Together,
    matched,
    weighed,
)
from advisor_node.slurm.site import (
    WHOLE,
    Named,
    Partition,
    SiteSettings,
    SlurmCommand,
    SlurmNode,
    SlurmTask,
    ask,
    book_faults,
    command_of_script,
)

# Jobs on one GPU, or one that is to begin on a part of any.
_CardTasks = tuple[SlurmTask, ...]

PlanSets = Callable[[Sequence[JobRequest], str | None], NamedSets]
"""Which jobs should run together, three or more, on a GPU model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meeting(Offer):
    """Jobs that could share a GPU.

    Attributes:
        there: Those that have parts of it.
        coming: Those that wait, in the order in which they begin.
    """

    there: _CardTasks = ()
    coming: tuple[SlurmTask, ...]

    @property
    def jobs(self) -> tuple[SlurmTask, ...]:
        return (*self.there, *self.coming)

    def keeps(self, answer: Together) -> bool:
        """Whether those that have begun have the shares that a set was planned with."""
        return bool(self.question.running) or all(
            float(share) == _share(job)
            for job, share in zip(self.there, answer.shares, strict=False)
        )


def with_places(jobs: Sequence[SlurmTask], nodes: Mapping[str, SlurmNode]) -> list[SlurmTask]:
    """The same; those that are on their way to a node have the GPU that Slurm will give them.

    That is the first on which there is room.
    """
    held = sum((Counter(job.cards) for job in jobs), Counter[tuple[str, int]]())
    placed: list[SlurmTask] = []
    for job in jobs:
        node = nodes.get(job.needs_node) if job.pending and job.part else None
        counted = job.counted or WHOLE
        cards = ((node.name, index) for index in range(node.gpus)) if node else ()
        card = next((card for card in cards if held[card] + counted <= WHOLE), None)
        if card is not None:
            held[card] += counted
        placed.append(job if card is None else replace(job, cards={card: counted}))
    return placed


def _open_cards(
    jobs: Sequence[SlurmTask], kind: Callable[[SlurmTask], object]
) -> Iterator[_CardTasks]:
    """Those on which something is left for others; on each all jobs are of one kind."""
    on = grouped(((card, job) for job in jobs for card in job.cards), lambda pair: pair[0])
    yield from ((job,) for job in jobs if job.part and job.pending and not job.needs_node)
    for card, pairs in on.items():
        holders = [job for _, job in pairs]
        alike = len({kind(job) for job in holders}) == 1
        shared = all(job.part and len(job.cards) == 1 for job in holders)
        held = sum(job.cards[card] for job in holders)
        if alike and shared and held < WHOLE and len(holders) < MOST_JOBS:
            # Those that run come first, and are not sent there.
            yield (*sorted(holders, key=lambda job: job.pending),)


def _pairs_and_joins(
    cards: Sequence[_CardTasks], waiting: Sequence[SlurmTask], model: str | None
) -> Iterator[_Meeting]:
    """Of two each; kinds are the cards, and then the jobs that wait."""
    for n, job in enumerate(waiting, len(cards)):
        yield from (
            _meeting((place, n), card, (job,), model)
            for place, card in enumerate(cards)
            if all(_want(there, job) for there in card)
        )
        yield from (
            _meeting((place, n), (), (other, job), model)
            for place, other in enumerate(waiting[: n - len(cards)], len(cards))
            if _want(other, job)
        )


def _planned_sets(
    cards: Sequence[_CardTasks],
    waiting: Sequence[SlurmTask],
    among: Collection[str],
    plan: PlanSets,
    model: str | None,
) -> Iterator[_Meeting]:
    """Of three and more, each job in one of them; kinds as above.

    Which set a plan has in mind for a job it does not say: those that have begun come first, and
    then the oldest. Looked at are those `among` which are told by their keys, but for who wants one
    job alone beside it.
    """

    def looked_at(job: SlurmTask) -> bool:
        return job.key in among and _named(job).beside is None

    places = {job.key: place for place, job in enumerate(waiting, len(cards))}
    able = [job for job in waiting if looked_at(job)]
    begun = [(place, card) for place, card in enumerate(cards) if all(map(looked_at, card))]
    candidates = [*(job for _, card in begun for job in card), *able]
    if len(candidates) <= ADVISED_JOBS:
        return
    rest = grouped(able, lambda job: _named(job).job)
    for names in plan([_request(job) for job in candidates], model):
        wanted = Counter(names)
        kinds, there = next((b for b in begun if _names(b[1]) <= wanted), (None, ()))
        begun = [card for card in begun if card[0] != kinds]
        joining = sorted(
            (rest[name].pop(0) for name in (wanted - _names(there)).elements() if rest.get(name)),
            key=lambda job: places[job.key],
        )
        if joining and len(there) + len(joining) > ADVISED_JOBS:
            seats = (*(() if kinds is None else (kinds,)), *(places[job.key] for job in joining))
            yield _meeting(seats, there, tuple(joining), model, planned=True)


def _names(card: Collection[SlurmTask]) -> Counter[str]:
    return Counter(_named(job).job for job in card)


def _share(job: SlurmTask) -> float:
    return float(_named(job).share_text or WHOLE)


def _meeting(
    kinds: tuple[int, ...],
    there: _CardTasks,
    coming: tuple[SlurmTask, ...],
    model: str | None,
    *,
    planned: bool = False,
) -> _Meeting:
    # An unused part of a GPU in use goes before all that take another GPU.
    return _Meeting(
        kinds=kinds,
        question=Question(
            jobs=tuple(map(_request, (*there, *coming))),
            model=model,
            # A set is as it was planned when its first job began.
            running=() if planned else tuple(map(_share, there)),
        ),
        bounds_mib=tuple(_named(job).memory_mib for job in there),
        # Of equals the oldest meet: each place in the queue is worth a millionth less.
        ahead=bool(there) - 1e-6 * max(kinds),
        there=there,
        coming=coming,
    )


def _named(job: SlurmTask) -> Named:
    """What the comment of a job says that names itself."""
    assert job.named is not None
    return job.named


def _request(job: SlurmTask) -> JobRequest:
    named = _named(job)
    return JobRequest(job=named.job, min_speed=named.min_speed, max_p99_ms=named.max_p99_ms)


def _want(a: SlurmTask, b: SlurmTask) -> bool:
    """Whether each may have the other beside it."""
    mine, other = _named(a), _named(b)
    return mine.beside in (None, other.job) and other.beside in (None, mine.job)


GATHER_S = 5.0
"""Jobs that are submitted together come within this time: the first shall not take the next."""

START_S = 30.0
"""A job that was sent to a node, and does not start within this time, has a whole GPU instead."""

HOLD_S = 3600.0
"""So long at most a job is held back for one that waits for its GPU."""


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
        freed = {change.job.key: change for change in self._freed()}
        yield from freed.values()
        jobs = [job for job in self.jobs if job.key not in freed]
        yield from self._given_up(jobs)
        # No job is sent to, or waits for, a GPU of a drained node.
        still = [job for job in jobs if not any(self._drained(node) for node, _ in job.cards)]
        cards = grouped(_open_cards(still, self._kind), lambda card: self._kind(card[0]))
        waiting = grouped(
            (job for job in jobs if job.undecided and self._came_s(job) <= self.now_s), self._kind
        )
        for kind in dict.fromkeys((*cards, *waiting)):
            # Of many jobs that may meet, the first in the queue.
            yield from self._of(cards.get(kind, []), waiting.get(kind, [])[:60])

    def _of(self, cards: Sequence[_CardTasks], waiting: Sequence[SlurmTask]) -> Iterator[Change]:
        """Of jobs that may meet: some have a part of a GPU, the others wait."""
        good = self._good(_pairs_and_joins(cards, waiting, self.model))
        # The service may not know jobs that share with no other, and then plans nothing.
        sharing = {job.key for meeting, _ in good for job in meeting.jobs}
        good += self._good(_planned_sets(cards, waiting, sharing, self.sets, self.model))
        together: set[str] = set()
        for meeting, answer in matched([1] * (len(cards) + len(waiting)), good, 0):
            together |= {job.key for job in meeting.jobs}
            yield from self._changes(meeting, answer)
        yield from (
            self._whole(first, "no job is left to share with")
            for first, *_ in cards
            if first.pending and first.key not in together
            if self.now_s - first.eligible_s > self.wait_s
        )

    def _good(self, meetings: Iterable[_Meeting]) -> list[tuple[_Meeting, Together]]:
        """Those that are advised, and in which time limits leave their work to all that come."""
        return [
            (meeting, answer)
            for meeting, answer in weighed([*meetings], self.ask)
            if isinstance(answer, Together) and meeting.keeps(answer)
            if -1 not in map(self._limit, meeting.coming, answer.low_speeds[len(meeting.there) :])
        ]

    def _changes(self, meeting: _Meeting, answer: Together) -> Iterator[Change]:
        if not meeting.there:
            if self.now_s - self._came_s(meeting.coming[0]) >= GATHER_S:
                yield self._begins(meeting, answer)
            return
        first, later = meeting.there[0], meeting.coming
        if not first.pending:
            if place := self._place(meeting, answer):
                node, counted = place
                those = listed(f"job {job.key} ({_name(job)})" for job in meeting.there)
                why = f"of a GPU beside {those}, split {answer.split}"
                yield replace(
                    self._share(meeting, answer, len(meeting.there), counted, why), node=node
                )
            later = later[1:]
        yield from (
            Change(
                job=job,
                named=_named(job),
                counted=WHOLE,
                starts_in_s=int(self.wait_s),
                why=f"waits for job {first.key} ({_name(first)}) to begin, and shares its GPU",
            )
            for job in later
            if self.now_s - self._came_s(job) < HOLD_S
            and (job.eligible_s - self.now_s < self.wait_s / 2)
        )

    # Changes for Slurm

    def _begins(self, meeting: _Meeting, answer: Together) -> Change:
        """One with the largest share is the first.

        Slurm takes any GPU with room for it: more than half leaves none for the first of others.
        """
        shares = [float(share) for share in answer.shares]
        place = shares.index(max(shares))
        others = [job for n, job in enumerate(meeting.jobs) if n != place]
        counted = min(WHOLE - len(others), max(_part(shares, place, WHOLE), WHOLE // 2 + 1))
        why = f"of a GPU, held for {listed(map(_name, others))}, split {answer.split}"
        return self._share(meeting, answer, place, counted, why)

    def _share(
        self, meeting: _Meeting, answer: Together, place: int, counted: int, why: str
    ) -> Change:
        job, fit, low_speed = meeting.jobs[place], meeting.memory(answer), answer.low_speeds[place]
        share, limit = answer.shares[place], self._limit(job, low_speed)
        memory = fit.limit_mib(place) if fit.card_mib else None
        if memory is not None:
            why += f", at most {memory:,} MiB of its memory"
        if limit is not None:
            slow = f"{100 * low_speed:.0f} % of its speed at worst"
            why += f"; time limit {limit:g} min, since it runs at {slow}"
        named = replace(_named(job), share_text=share, counted=counted, memory_mib=memory)
        return Change(
            job=job, named=named, counted=counted, limit_min=limit, why=f"{share} % {why}"
        )

    def _freed(self) -> Iterator[Change]:
        """Jobs that wait for GPUs of drained nodes; they stop waiting."""
        for job in self.jobs:
            nodes = [
                node.name
                for node in self.nodes.values()
                if node.gpus
                and (node.name == job.needs_node or not job.needs_node)
                and {*job.partition.split(",")} & {*node.partitions}
            ]
            why = [f"node {name} is drained ({self._drained(name)})" for name in nodes[:3]]
            waits = job.undecided or (job.pending and job.part)
            if waits and nodes and all(map(self._drained, nodes)):
                yield replace(self._whole(job, listed(why)), node="" if job.needs_node else None)

    def _drained(self, name: str) -> str:
        return node.drained if (node := self.nodes.get(name)) else ""

    def _given_up(self, jobs: Iterable[SlurmTask]) -> Iterator[Change]:
        """Jobs that were sent beside another and could not start there."""
        return (
            replace(self._whole(job, "it could not start beside another"), node="")
            for job in jobs
            if job.pending and job.part and job.needs_node
            if self.now_s - job.eligible_s > START_S
        )

    def _whole(self, job: SlurmTask, why: str) -> Change:
        named = replace(_named(job), share_text="100", counted=WHOLE, memory_mib=None)
        return Change(job=job, named=named, counted=WHOLE, why=f"a whole GPU: {why}")

    # Jobs that may share

    def _came_s(self, job: SlurmTask) -> float:
        """When a waiting job could have begun without us."""
        return job.eligible_s - self.wait_s

    def _kind(self, job: SlurmTask) -> object:
        partition = self.partitions.get(job.partition)
        single_user = partition is None or partition.single_user
        return (job.partition, job.where, job.user if single_user else None)

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

    def _place(self, meeting: _Meeting, answer: Together) -> tuple[str, int] | None:
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
    return _named(job).job


LOG = logging.getLogger("advisor.node")

LOOK_S = 2.0

SITE_S = 20.0
"""How often the site is looked at: partitions, nodes, books. The plugin waits 30 s for it."""


def run_match(
    settings: SiteSettings, client: Client, stop: threading.Event, jobs_dir: Path
) -> None:
    """Look at the queue until `stop` is set. Whatever fails is tried again at the next look.

    Jobs that ask for it are named after what they run, as `jobs_dir` has it where it does.
    """
    matching, said = _Matching(settings, Advice(client), jobs_dir), ""
    while not stop.is_set():
        try:
            matching.look()
            trouble = ""
        except AdvisorError as error:
            trouble = str(error)
        if trouble and trouble != said:
            LOG.warning("%s", trouble)
        said = trouble
        stop.wait(LOOK_S)


class _Matching:
    """One controller.

    Args:
        advice: What the service says of pairs.
        jobs_dir: Named jobs.
        ask: Runs Slurm's commands.
    """

    def __init__(
        self, settings: SiteSettings, advice: Advice, jobs_dir: Path, ask: SlurmCommand = ask
    ) -> None:
        self._settings, self._advice, self._ask = settings, advice, ask
        self._jobs_dir, self._names = jobs_dir, dict[str, str | None]()
        self._site_read_s, self._books = -SITE_S, ""
        self._partitions: Mapping[str, Partition] = {}

    def look(self) -> None:
        """Look once.

        Raises:
            SourceError: Slurm does not answer.
        """
        jobs = [self._named(job) for job in SlurmTask.queue(self._ask)]
        waiting = any(job.undecided or job.part for job in jobs)
        is_due = time.monotonic() - self._site_read_s >= SITE_S
        nodes = SlurmNode.by_name(self._ask) if waiting or is_due else dict[str, SlurmNode]()
        if is_due:
            self._look_at_site(nodes)
        if waiting and self._books == "ok":
            changes = QueueRound(
                jobs=with_places(jobs, nodes),
                nodes=nodes,
                partitions=self._partitions,
                ask=self._advice.answers,
                sets=self._advice.sets,
                now_s=time.time(),
                wait_s=self._settings.wait_s,
                model=self._settings.gpu_model,
            ).decide()
            for change in changes:
                self._tell(change)

    def _named(self, job: SlurmTask) -> SlurmTask:
        """The same; one that asks for it is named after what it runs, or left alone.

        Slurm is told once, for all tasks of an array. What a script runs is known by content where
        this host sees the job's files.
        """
        if job.named is None or job.named.job != AUTO:
            return job
        if (number := job.key.partition("_")[0]) not in self._names:
            self._names[number] = None
            try:
                script = self._ask("scontrol", "write", "batch_script", number, "-")
                name = watched_job(
                    command_of_script(script), job.workdir, ProgressSettings(), self._jobs_dir
                ).name
                comment = replace(job.named, job=name).in_comment(job.comment)
                self._ask("scontrol", "update", f"JobId={number}", f"Comment={comment}")
                self._names[number] = name
            except AdvisorError as error:
                LOG.warning("job %s is left alone: %s", number, error)
        name = self._names[number]
        return replace(job, named=replace(job.named, job=name) if name else None)

    def _look_at_site(self, nodes: Mapping[str, SlurmNode]) -> None:
        if (books := next(book_faults(self._ask), "ok")) != self._books:
            LOG.log(
                logging.INFO if books == "ok" else logging.WARNING,
                "the books: %s",
                books if books == "ok" else f"no job is rewritten: {books}",
            )
        self._books, self._partitions = books, Partition.by_name(self._ask)
        self._settings.write_facts(books, self._partitions, list(nodes.values()), time.time())
        self._site_read_s = time.monotonic()

    def _tell(self, change: Change) -> None:
        """A job that has begun or ended meanwhile stays as it is."""
        facts = {
            "JobId": change.job.key,
            "Gres": f"mps:{change.counted}",
            "Comment": change.named.in_comment(change.job.comment),
            "AdminComment": f"advisor: {change.why}",
            "StartTime": None if change.starts_in_s is None else f"now+{change.starts_in_s}",
            "TimeLimit": change.limit_min,
            "ReqNodeList": change.node,
        }
        words = (f"{name}={value}" for name, value in facts.items() if value is not None)
        try:
            self._ask("scontrol", "update", *words)
        except AdvisorError as error:
            LOG.warning("job %s: %s", change.job.key, error)
        else:
            LOG.info("job %s: %s", change.job.key, change.why)
