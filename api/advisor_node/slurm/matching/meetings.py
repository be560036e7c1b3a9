"""Who of jobs that may meet could share a GPU: two that wait, one beside those that run, or sets.

Sets of three and more are planned from all that wait, and those that have begun to meet, by
the service, as `advisor place` plans them. Nobody remembers a plan: who has begun is in one again.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.client import JobRequest
from advisor.core.split import ADVISED_JOBS, MOST_JOBS
from advisor_node.advice import NamedSets, Question, Together
from advisor_node.matching import Offer
from advisor_node.slurm.comment import Named
from advisor_node.slurm.matching.cluster import SlurmNode
from advisor_node.slurm.matching.queued import WHOLE, SlurmTask

CardTasks = tuple[SlurmTask, ...]
"""Jobs on one GPU, or one that is to begin on a part of any."""

PlanSets = Callable[[Sequence[JobRequest], str | None], NamedSets]
"""Which jobs should run together, three or more, on a GPU model."""

_YOUNGER = 1e-6
"""Of equals the oldest meet: each place in the queue is worth so much less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting(Offer):
    """Jobs that could share a GPU.

    Attributes:
        there: Those that have parts of it.
        coming: Those that wait, in the order in which they begin.
    """

    there: CardTasks = ()
    coming: tuple[SlurmTask, ...]

    @property
    def jobs(self) -> tuple[SlurmTask, ...]:
        """All of them."""
        return (*self.there, *self.coming)

    def keeps(self, answer: Together) -> bool:
        """Whether those that have begun have the shares that a set was planned with."""
        given = zip(self.there, answer.shares, strict=False)
        same = all(float(share) == _share(job) for job, share in given)
        return same or bool(self.question.running)


def with_places(jobs: Sequence[SlurmTask], nodes: Mapping[str, SlurmNode]) -> list[SlurmTask]:
    """The same; those that are on their way to a node have the GPU that Slurm will give them.

    That is the first on which there is room.
    """
    held: dict[tuple[str, int], int] = defaultdict(int)
    for job in jobs:
        for card, counted in job.cards.items():
            held[card] += counted
    found: list[SlurmTask] = []
    for job in jobs:
        node = nodes.get(job.needs_node) if job.pending and job.part else None
        counted = job.counted or WHOLE
        cards = ((node.name, index) for index in range(node.gpus)) if node else ()
        card = next((card for card in cards if held[card] + counted <= WHOLE), None)
        if card is not None:
            held[card] += counted
        found.append(job if card is None else replace(job, cards={card: counted}))
    return found


def open_cards(
    jobs: Sequence[SlurmTask], kind: Callable[[SlurmTask], object]
) -> Iterator[CardTasks]:
    """Those on which something is left for others; on each all jobs are of one kind."""
    on: dict[tuple[str, int], list[SlurmTask]] = defaultdict(list)
    for job in jobs:
        for card in job.cards:
            on[card].append(job)
    for job in jobs:
        if job.part and job.pending and not job.needs_node:
            yield (job,)
    for card, holders in on.items():
        alike = len({kind(job) for job in holders}) == 1
        shared = all(job.part and len(job.cards) == 1 for job in holders)
        held = sum(job.cards[card] for job in holders)
        if alike and shared and held < WHOLE and len(holders) < MOST_JOBS:
            # Those that run come first, and are not sent there.
            yield (*sorted(holders, key=lambda job: job.pending),)


def pairs_and_joins(
    cards: Sequence[CardTasks], waiting: Sequence[SlurmTask], model: str | None
) -> Iterator[Meeting]:
    """Of two each; kinds are the cards, and then the jobs that wait."""
    for n, job in enumerate(waiting, len(cards)):
        for place, card in enumerate(cards):
            if all(_want(one, job) for one in card):
                yield _meeting((place, n), card, (job,), model)
        for place, other in enumerate(waiting[: n - len(cards)], len(cards)):
            if _want(other, job):
                yield _meeting((place, n), (), (other, job), model)


def planned_sets(
    cards: Sequence[CardTasks],
    waiting: Sequence[SlurmTask],
    among: Collection[str],
    plan: PlanSets,
    model: str | None,
) -> Iterator[Meeting]:
    """Of three and more, each job in one of them; kinds as above.

    Which set a plan has in mind for a job it does not say: those that have begun come first, and
    then the oldest. Looked at are those `among` which are told by their keys, but for who wants one
    job alone beside it.
    """

    def looked_at(job: SlurmTask) -> bool:
        return job.key in among and named(job).beside is None

    places = {job.key: place for place, job in enumerate(waiting, len(cards))}
    able = [job for job in waiting if looked_at(job)]
    begun = [(place, card) for place, card in enumerate(cards) if all(map(looked_at, card))]
    asked = [*(job for _, card in begun for job in card), *able]
    if len(asked) <= ADVISED_JOBS:
        return
    rest: dict[str, deque[SlurmTask]] = defaultdict(deque)
    for job in able:
        rest[named(job).job].append(job)
    for names in plan([_request(job) for job in asked], model):
        wanted = Counter(names)
        kinds, there = next((b for b in begun if _names(b[1]) <= wanted), (None, ()))
        begun = [one for one in begun if one[0] != kinds]
        lacking = (wanted - _names(there)).elements()
        found = [rest[name].popleft() for name in lacking if rest[name]]
        found.sort(key=lambda job: places[job.key])
        if found and len(there) + len(found) > ADVISED_JOBS:
            of_card = () if kinds is None else (kinds,)
            seats = (*of_card, *(places[job.key] for job in found))
            yield _meeting(seats, there, tuple(found), model, planned=True)


def _names(card: Collection[SlurmTask]) -> Counter[str]:
    return Counter(named(job).job for job in card)


def _share(job: SlurmTask) -> float:
    return float(named(job).share_text or WHOLE)


def _meeting(
    kinds: tuple[int, ...],
    there: CardTasks,
    coming: tuple[SlurmTask, ...],
    model: str | None,
    *,
    planned: bool = False,
) -> Meeting:
    # A part of a GPU that is held, and used by nobody, goes before all that take another one.
    return Meeting(
        kinds=kinds,
        question=Question(
            jobs=tuple(map(_request, (*there, *coming))),
            model=model,
            # A set is as it was planned when its first job began.
            running=() if planned else tuple(map(_share, there)),
        ),
        bounds_mib=tuple(named(job).memory_mib for job in there),
        ahead=bool(there) - _YOUNGER * max(kinds),
        there=there,
        coming=coming,
    )


def named(job: SlurmTask) -> Named:
    """What the comment of a job says that names itself."""
    assert job.named is not None
    return job.named


def _request(job: SlurmTask) -> JobRequest:
    own = named(job)
    return JobRequest(job=own.job, min_speed=own.min_speed, max_p99_ms=own.max_p99_ms)


def _want(a: SlurmTask, b: SlurmTask) -> bool:
    """Whether each may have the other beside it."""
    mine, other = named(a), named(b)
    return mine.beside in (None, other.job) and other.beside in (None, mine.job)
