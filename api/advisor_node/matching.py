"""Who shares with whom, all at once: what the service says of offers, and a matching by HiGHS.

One job after the other, the best partner for each, leaves some without one whom another choice
would have left somebody.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import highspy
import numpy as np

from advisor.core.gpu import MEMORY_MIB, MemoryFit
from advisor.core.split import MOST_JOBS
from advisor.placement.solver import solved
from advisor_node.advice import Answer, Apart, AskAdvice, Question, Together

_SEARCH_S = 1.0

_LEAST_SPEED = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Kinds of jobs that may share a GPU, or one and a card, if the service says so.

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
        crowd = memory.crowded_by(self.bounds_mib)
        if crowd is None:
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
    program.col_cost_ = np.array([-_worth(*offer) for offer in offers])
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
    found = solved(program, _SEARCH_S)
    for offer, times in zip(offers, () if found is None else found, strict=found is not None):
        yield from [offer] * round(times)


def _worth(offer: Offer, answer: Together) -> float:
    """A GPU for each job that needs none of its own, and what is saved; always above nothing.

    That is a part of the energy of all its jobs, and less than a GPU's worth for the most of them.
    """
    saved = answer.energy_saved * len(offer.question.jobs) / MOST_JOBS
    return max(len(offer.kinds) - 1 + saved + offer.ahead, 0.01)
