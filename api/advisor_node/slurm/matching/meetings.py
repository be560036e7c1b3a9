"""Who of jobs that may meet could share a GPU: two that wait, or one beside those that run."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from advisor.client import JobRequest
from advisor.core.split import MOST_JOBS
from advisor_node.advice import Question
from advisor_node.matching import Offer
from advisor_node.slurm.comment import Named
from advisor_node.slurm.matching.queued import WHOLE, QueuedJob

Card = tuple[QueuedJob, ...]
"""Jobs on one GPU, or one that is to begin on a part of any."""

_YOUNGER = 1e-6
"""Of equals the oldest meet: each place in the queue is worth so much less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting(Offer):
    """Jobs that could share a GPU.

    Attributes:
        there: Those that have parts of it.
        coming: Those that wait, in the order in which they begin.
    """

    there: Card = ()
    coming: tuple[QueuedJob, ...]


def open_cards(jobs: Sequence[QueuedJob], kind: Callable[[QueuedJob], object]) -> Iterator[Card]:
    """Those on which something is left for others; on each all jobs are of one kind."""
    on: dict[tuple[str, int], list[QueuedJob]] = defaultdict(list)
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
            yield (*holders,)


def pairs_and_joins(
    cards: Sequence[Card], waiting: Sequence[QueuedJob], model: str | None
) -> Iterator[Meeting]:
    """Of two each; kinds are the cards, and then the jobs that wait."""
    for n, job in enumerate(waiting, len(cards)):
        for place, card in enumerate(cards):
            if all(_want(one, job) for one in card):
                yield _meeting((place, n), card, (job,), model)
        for place, other in enumerate(waiting[: n - len(cards)], len(cards)):
            if _want(other, job):
                yield _meeting((place, n), (), (other, job), model)


def _meeting(
    kinds: tuple[int, ...], there: Card, coming: tuple[QueuedJob, ...], model: str | None
) -> Meeting:
    # A part of a GPU that is held, and used by nobody, goes before all that take another one.
    return Meeting(
        kinds=kinds,
        question=Question(
            jobs=tuple(map(_request, (*there, *coming))),
            model=model,
            running=tuple(float(named(job).share_text or WHOLE) for job in there),
        ),
        bounds_mib=tuple(named(job).memory_mib for job in there),
        ahead=bool(there) - _YOUNGER * max(kinds),
        there=there,
        coming=coming,
    )


def named(job: QueuedJob) -> Named:
    """What the comment of a job says that names itself."""
    assert job.named is not None
    return job.named


def _request(job: QueuedJob) -> JobRequest:
    own = named(job)
    return JobRequest(job=own.job, min_speed=own.min_speed, max_p99_ms=own.max_p99_ms)


def _want(a: QueuedJob, b: QueuedJob) -> bool:
    """Whether each may have the other beside it."""
    mine, other = named(a), named(b)
    return mine.beside in (None, other.job) and other.beside in (None, mine.job)
