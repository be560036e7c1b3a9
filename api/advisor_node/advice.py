"""What `advisor serve` says of pairs of a scheduler's jobs: many at once, in a bounded time."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from advisor.client import Client, ClientError, JobRequest, Recommendation, RecommendationRequest
from advisor.core.gpu import PERCENTAGE, WHOLE, Share
from advisor.errors import InputError

_QUIET_S = 10.0
"""A service that gave no answer is left alone for so long."""

_KEPT_S = 60.0
"""How long an answer is good: models and profiles change."""

_AT_ONCE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PairQuestion:
    """Two jobs, and the GPU model that they would share.

    Attributes:
        jobs: Name and minimum relative speed of each; None: the service's setting.
        model: None: the one that all profiles have in common.
    """

    jobs: tuple[tuple[str, float | None], tuple[str, float | None]]
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """The jobs should share a GPU.

    Attributes:
        shares: In percent of the SMs, as the driver is given them, in the order of the question.
        energy_saved: For the same work, against one after the other.
        split: As people write it.
    """

    shares: tuple[str, str]
    energy_saved: float
    split: str


@dataclass(frozen=True, slots=True)
class Apart:
    """The service said that they should not, or cannot say."""

    why: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The service could not be asked."""

    why: str


Answer: TypeAlias = Together | Apart | NoAnswer


class Advice:
    """Answers of the service, kept for a while by a clock that never goes back."""

    def __init__(self, client: Client, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._now = client, now
        self._kept: dict[PairQuestion, tuple[float, Answer]] = {}
        self._quiet_until, self._failure = 0.0, NoAnswer("")

    def answers(self, questions: Collection[PairQuestion]) -> Mapping[PairQuestion, Answer]:
        """An answer to each question."""
        now = self._now()
        missing = [q for q in dict.fromkeys(questions) if self._known(q, now) is None]
        for first in range(0, len(missing), _AT_ONCE):
            if self._now() < self._quiet_until:
                break
            self._ask(missing[first : first + _AT_ONCE])
        return {q: self._known(q, now) or self._failure for q in questions}

    def _known(self, question: PairQuestion, now: float) -> Answer | None:
        until, answer = self._kept.get(question, (0.0, None))
        return answer if until > now else None

    def _ask(self, questions: list[PairQuestion]) -> None:
        try:
            items = self._client.recommend_batch([_request(question) for question in questions])
        except ClientError as error:
            self._fail(str(error))
            return
        if len(items) != len(questions):
            self._fail(f"the service answered {len(items)} of {len(questions)} questions")
            return
        now = self._now()
        self._kept = {q: kept for q, kept in self._kept.items() if kept[0] > now}
        until = now + _KEPT_S
        for question, item in zip(questions, items, strict=True):
            if item.answer is not None:
                self._kept[question] = until, _read(item.answer)
            else:
                said = item.error.message if item.error else "the service said nothing"
                self._kept[question] = until, Apart(said)

    def _fail(self, why: str) -> None:
        self._failure = NoAnswer(why)
        self._quiet_until = self._now() + _QUIET_S


def is_share(text: str) -> bool:
    """Whether the driver reads a text as a share: all else would be no limit, without a word."""
    try:
        Share(float(text))
    except (ValueError, InputError):
        return False
    return True


def _request(question: PairQuestion) -> RecommendationRequest:
    jobs = (JobRequest(job=name, min_speed=least) for name, least in question.jobs)
    return RecommendationRequest(jobs=tuple(jobs), gpu_model=question.model)


def _read(answer: Recommendation) -> Answer:
    choice = answer.choice
    if choice.sharing not in ("limited", "uncapped"):
        return Apart(f"{choice.sharing} is better")
    if len(choice.jobs) != 2:
        return Apart(f"the service answered for {len(choice.jobs)} jobs")
    mine, other = (job.environment.get(PERCENTAGE, f"{WHOLE:g}") for job in choice.jobs)
    if not (is_share(mine) and is_share(other)):
        return Apart(f"the service answered with the shares {mine!a} and {other!a}")
    saved = choice.energy_saved.value
    return Together(shares=(mine, other), energy_saved=saved, split=choice.split)
