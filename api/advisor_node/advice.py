"""What `advisor serve` says of jobs of a scheduler: many at once, in a bounded time.

All partners are found at once, by a matching over the offers (HiGHS). Choosing the best partner for
one job after the other leaves some jobs alone that another choice would pair.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import highspy
import numpy as np

from advisor.client import (
    ApiError,
    Client,
    ClientError,
    JobRequest,
    PlacementRequest,
    QueuedJobs,
    Recommendation,
    RecommendationRequest,
)
from advisor.core.gpu import (
    ADVISED_JOBS,
    MEMORY_MIB,
    MOST_JOBS,
    PERCENTAGE,
    PRIORITY,
    WHOLE,
    MemoryFit,
    Share,
)
from advisor.core.records import grouped
from advisor.errors import InputError
from advisor.placement.solver import solved
from advisor.wire.answers import Option, RequestedJob

A = TypeVar("A")
B = TypeVar("B")
Q = TypeVar("Q")

# How long an answer is good: models and profiles change.
_KEPT_S = 60.0

_AT_ONCE = 50

# New questions that are asked at a time: one caller must not hold up others.
MOST_PAIRS = 2 * _AT_ONCE
MOST_SETS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Jobs that are to share a GPU.

    Attributes:
        jobs: With what each must keep; None: the service's setting.
        model: Of the GPU; None: the one that all profiles have in common.
        memory_mib: Of the card; None: not known.
        running: Shares of all but the last, percent, which run already; none: all are to start.
    """

    jobs: tuple[JobRequest, ...]
    model: str | None
    memory_mib: float | None = None
    running: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """The jobs should share a GPU.

    Attributes:
        shares: In percent of the SMs, as the driver is given them, in the order of the question.
        needs_mib: Memory of each job; None: not known.
        speeds: Relative speed that is expected of each.
        low_speeds: What it is at least, as far as it can be said.
        energy_saved: For the same work, against one after the other.
        split: As people write it.
        gpu_model: Of which this is said.
    """

    shares: tuple[str, ...]
    needs_mib: tuple[float | None, ...]
    speeds: tuple[float, ...] = ()
    low_speeds: tuple[float, ...] = ()
    energy_saved: float
    split: str
    gpu_model: str = ""


@dataclass(frozen=True, slots=True)
class Apart:
    """The service said that they should not, or cannot say.

    Attributes:
        needs_mib: Memory of each job, where it was told.
    """

    why: str
    needs_mib: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The service could not be asked."""

    why: str


Answer: TypeAlias = Together | Apart | NoAnswer

NamedSets: TypeAlias = tuple[tuple[str, ...], ...]
"""Names of jobs that should run together, as often as there are such sets."""

AskAdvice: TypeAlias = Callable[[Collection[Question]], Mapping[Question, Answer]]
"""Answers of the service; those that are not known yet are missing."""


class Advice:
    """Answers of the service, kept for a while by a clock that never goes back."""

    def __init__(self, client: Client, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._now = client, now
        self._kept: dict[Question, tuple[float, Answer]] = {}
        self._planned: dict[PlacementRequest, tuple[float, NamedSets]] = {}
        self._quiet_until, self._failure = 0.0, NoAnswer("")

    def answers(self, questions: Collection[Question]) -> Mapping[Question, Answer]:
        """The answers; of many new questions the first, and of the others none yet."""
        now = self._now()
        new = [q for q in dict.fromkeys(questions) if self._kept_answer(q, now) is None]
        pairs_and_sets = [
            *[q for q in new if _is_pair(q)][:MOST_PAIRS],
            *[q for q in new if not _is_pair(q)][:MOST_SETS],
        ]
        for first in range(0, len(pairs_and_sets), _AT_ONCE):
            self._unless_quiet(self._ask, pairs_and_sets[first : first + _AT_ONCE], self._kept)
        failed = dict.fromkeys(pairs_and_sets, self._failure)
        answers = ((q, self._kept_answer(q, now) or failed.get(q)) for q in questions)
        return {question: answer for question, answer in answers if answer is not None}

    def sets(self, jobs: Sequence[JobRequest], model: str | None) -> NamedSets:
        """Which of these jobs should run together, three or more; none if unknown."""
        # By name, since a plan knows no more: each must keep what the strictest of them asks for.
        by_name = grouped(sorted(jobs, key=lambda job: job.job), lambda job: job.job)
        request = PlacementRequest(
            jobs=tuple(
                QueuedJobs(
                    job=name,
                    count=len(some),
                    min_speed=max(
                        (j.min_speed for j in some if j.min_speed is not None), default=None
                    ),
                    max_p99_ms=min((j.max_p99_ms for j in some if j.max_p99_ms), default=None),
                )
                for name, some in by_name.items()
            ),
            gpus=len(jobs),
            gpu_model=model,
            # For the search; of some tens of jobs it is over long before.
            time_limit_s=2.0,
        )
        if self._planned.get(request, (0.0, ()))[0] <= self._now():
            self._unless_quiet(self._plan, request, self._planned)
        return self._planned.get(request, (0.0, ()))[1]

    def _kept_answer(self, question: Question, now: float) -> Answer | None:
        until, answer = self._kept.get(question, (0.0, None))
        return answer if until > now else None

    def _unless_quiet(
        self, ask: Callable[[B], Mapping[Q, A]], question: B, kept: dict[Q, tuple[float, A]]
    ) -> None:
        if self._now() < self._quiet_until:
            return
        try:
            answers = ask(question)
        except ClientError as error:
            self._failure = NoAnswer(str(error))
            # A service that gave no answer is left alone for a while.
            self._quiet_until = self._now() + 10.0
            return
        now = self._now()
        for old in [question for question, (until, _) in kept.items() if until <= now]:
            del kept[old]
        kept |= {question: (now + _KEPT_S, answer) for question, answer in answers.items()}

    def _plan(self, request: PlacementRequest) -> Mapping[PlacementRequest, NamedSets]:
        try:
            planned = self._client.place(request)
        except ApiError as error:
            if error.status not in range(400, 500) or error.status in (401, 403, 408, 429):
                raise  # it says nothing of the jobs
            return {request: ()}
        names = [
            (tuple(job.job for job in seated.jobs), len(seated.gpus)) for seated in planned.sets
        ]
        return {
            request: tuple(
                jobs for jobs, times in names if len(jobs) > ADVISED_JOBS for _ in range(times)
            )
        }

    def _ask(self, questions: list[Question]) -> Mapping[Question, Answer]:
        requests = [
            RecommendationRequest.of(
                *q.jobs, gpu_model=q.model, memory_mib=q.memory_mib, running=q.running
            )
            for q in questions
        ]
        items = self._client.recommend_batch(requests)
        if len(items) != len(questions):
            raise ClientError(f"the service answered {len(items)} of {len(questions)} questions")
        said = (item.error.message if item.error else "the service said nothing" for item in items)
        return {
            question: Apart(why) if item.answer is None else _read(item.answer, question)
            for question, item, why in zip(questions, items, said, strict=True)
        }


def _is_pair(question: Question) -> bool:
    return len(question.jobs) == ADVISED_JOBS and not question.running


def is_share(text: str) -> bool:
    """Whether the driver reads a text as a share: all else would be no limit, without a word."""
    try:
        Share(float(text))
    except (ValueError, InputError):
        return False
    return True


def _read(answer: Recommendation, question: Question) -> Answer:
    if (choice := _settable(answer)) is None or choice.sharing not in ("limited", "uncapped"):
        better = f"{choice.sharing} is better" if choice else "separate GPUs are better"
        return Apart(better, _needs_mib(answer.jobs))
    if not len(question.jobs) == len(answer.jobs) == len(choice.jobs):
        return Apart(f"the service answered for {len(choice.jobs)} jobs")
    shares = tuple(job.environment.get(PERCENTAGE, f"{WHOLE:g}") for job in choice.jobs)
    if not all(map(is_share, shares)):
        return Apart(f"the service answered with the shares {', '.join(map(ascii, shares))}")
    return Together(
        shares=shares,
        needs_mib=_needs_mib(answer.jobs),
        speeds=tuple(job.speed.value for job in choice.jobs),
        low_speeds=tuple(job.speed.low for job in choice.jobs),
        energy_saved=choice.energy_saved.value,
        split=choice.split,
        gpu_model=answer.gpu_model,
    )


def _settable(answer: Recommendation) -> Option | None:
    """The choice; where that has a priority, which is not set here, the best without any."""
    kept = [
        option for option in answer.candidates if not (option.violations or _has_priority(option))
    ]
    if answer.choice is None or not _has_priority(answer.choice):
        return answer.choice
    best = max(kept, key=lambda option: option.energy_saved.value, default=None)
    return best if best and best.energy_saved.value > 0 else None


def _has_priority(option: Option) -> bool:
    return any(PRIORITY in job.environment for job in option.jobs)


def _needs_mib(jobs: Sequence[RequestedJob]) -> tuple[float | None, ...]:
    return tuple(job.alone.memory_used_mib for job in jobs)


_LEAST_SPEED = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Kinds of jobs that may share a GPU, or one and a card, if the service advises it.

    Attributes:
        kinds: Their numbers; one twice where two of it may.
        question: Those that run come first.
        bounds_mib: At how much the memory of those that run is bounded; None: at nothing.
        ahead: By how many GPUs it comes before others.
        takes_gpu: Whether it takes one that is free.
    """

    kinds: tuple[int, ...]
    question: Question
    bounds_mib: tuple[float | None, ...] = ()
    ahead: float = 0.0
    takes_gpu: bool = False

    def memory(self, answer: Together) -> MemoryFit:
        """What they need of the GPU's memory; where the card is not known, by its model."""
        model = answer.gpu_model or self.question.model or ""
        return MemoryFit(answer.needs_mib, self.question.memory_mib or MEMORY_MIB.get(model))

    def judged(self, answer: Answer | None) -> Answer | None:
        """What the service says, less what the memory of those that run does not allow."""
        if not isinstance(answer, Together):
            return answer
        if min(answer.low_speeds, default=1.0) < _LEAST_SPEED:
            return Apart(f"one would run at less than {100 * _LEAST_SPEED:g} % of its speed")
        memory = self.memory(answer)
        if (crowd := memory.crowded_by(self.bounds_mib)) is None:
            return answer
        return Apart(
            f"{self.question.jobs[crowd].job} runs and may take {self.bounds_mib[crowd]:,} MiB of "
            f"the {memory.most_mib:,.0f} MiB of GPU memory, which leaves the others too little"
        )


AnyOffer = TypeVar("AnyOffer", bound=Offer)


def weighed(
    offers: Collection[AnyOffer], ask: AskAdvice
) -> Iterator[tuple[AnyOffer, Answer | None]]:
    """Each with what is to be said of it; `Together`: they may share."""
    answers = ask([offer.question for offer in offers])
    return ((offer, offer.judged(answers.get(offer.question))) for offer in offers)


def matched(
    counts: Sequence[int], offers: Sequence[tuple[AnyOffer, Together]], free_gpus: int
) -> Iterator[tuple[AnyOffer, Together]]:
    """Those that are taken, each as often as it is, so that all together are worth most.

    A GPU less is what counts most, then the energy that is saved.

    Args:
        counts: How many there are of each kind.
        offers: To choose from, with what the service says.
        free_gpus: So many are taken at most.
    """
    if not offers:
        return
    matrix = np.zeros((len(counts) + 1, len(offers)))
    for column, (offer, _) in enumerate(offers):
        for kind in offer.kinds:
            matrix[kind, column] += 1
        matrix[-1, column] = offer.takes_gpu
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(offers), len(matrix)
    program.col_cost_ = np.array([-_gain(*offer) for offer in offers])
    program.col_lower_ = np.zeros(len(offers))
    program.col_upper_ = np.full(len(offers), float(max(counts)))
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(offers)
    program.row_lower_ = np.full(len(matrix), -highspy.kHighsInf)
    program.row_upper_ = np.array([*map(float, counts), float(free_gpus)])
    columns, rows = np.nonzero(matrix.T)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.append(0, np.cumsum(np.bincount(columns, minlength=len(offers))))
    program.a_matrix_.index_ = rows
    program.a_matrix_.value_ = matrix[rows, columns]
    times_of_offers = solved(program, 1.0)
    for offer, times in zip(
        offers,
        () if times_of_offers is None else times_of_offers,
        strict=times_of_offers is not None,
    ):
        yield from [offer] * round(times)


def _gain(offer: Offer, answer: Together) -> float:
    """A GPU for each job that needs none of its own, and what is saved; always above nothing.

    That is a part of the energy of all its jobs, and less than a GPU's worth for the most of them.
    """
    saved = answer.energy_saved * len(offer.question.jobs) / MOST_JOBS
    return max(len(offer.kinds) - 1 + saved + offer.ahead, 0.01)
