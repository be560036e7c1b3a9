"""The learners that are compared, and their answers under a protocol."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, RAW_OBJECTIVE
from advisor.decide.recommendation import TIE
from advisor_training.dataset.data import Data
from advisor_training.dataset.rows import Rows
from advisor_training.evaluation.choices import QUESTIONS, Choice, ChoiceQuestion, choose
from advisor_training.evaluation.errors import Errors, errors_of
from advisor_training.learn.held_out import Mask
from advisor_training.learn.learners import LEARNERS, Fitted, Learner
from advisor_training.learn.paper_method import TARGETS, paper_learner
from advisor_training.learn.protocols import AfterFit, Answers

HEADLINE = (DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, RAW_OBJECTIVE)
"""Objectives whose figures are always shown."""

OURS = next(iter(LEARNERS))
PHYSICAL = "physical"
PAPER = "paper"

_COSTS = {"linear": 0.02, PHYSICAL: 0.001}

RunProtocol: TypeAlias = Callable[[Rows, Learner, AfterFit], Answers]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to predict.

    Attributes:
        by_speeds: The learner that objectives made of relative speeds are asked of.
        by_rates: The learner that X1 + X2 is asked of; for most methods the same one.
        sums_only: It tells nothing of single jobs.
        cost: Time of a fit for each one of the model's, about; for the time that is left only.
    """

    name: str
    by_speeds: Learner
    by_rates: Learner
    tie: float = TIE
    sums_only: bool = False
    cost: float = 1.0

    def asks(self, question: ChoiceQuestion) -> ChoiceQuestion:
        """The question as it is put to this method.

        Physics does not know that a job without limits starves another one, and is not asked.
        """
        if self.name == PHYSICAL and question.scope == "every way":
            return dataclasses.replace(question, scope="nine or exclusive")
        return question

    @property
    def fits(self) -> int:
        """Fits for each one of a protocol's."""
        return 1 if self.by_rates is self.by_speeds else 2


@dataclass(frozen=True, slots=True, eq=False)
class MethodResult:
    """What a method answers under a protocol.

    Attributes:
        speeds: By its learner of speeds; `rates` by that of X1 + X2.
        training_s: Seconds of one fit, the median.
    """

    method: Method
    speeds: Answers
    rates: Answers
    training_s: float

    def choices(self, data: Data, objective: str) -> list[Choice]:
        """What it chooses by an objective.

        What knows no single job has no answer to the default question: it chooses as the paper
        does, by the sum of raw rates per watt, and is scored by the energy for the same work.
        """
        asked = QUESTIONS[objective]
        if self.method.sums_only and objective == DEFAULT_OBJECTIVE:
            objective = RAW_OBJECTIVE
        held_out = (self.rates if objective == RAW_OBJECTIVE else self.speeds).held_out
        return choose(
            data, held_out, self.method.asks(QUESTIONS[objective]), self.method.tie, asked
        )

    def errors(self, data: Data, which: Mask) -> Errors:
        """Over the rows of a mask, shape (rows,); of the sum of rates by its learner of those."""
        found = errors_of(data, self.speeds, which, sums_only=self.method.sums_only)
        by_rates = errors_of(data, self.rates, which)
        return dataclasses.replace(found, rates_sum=by_rates.rates_sum)


def methods(data: Data) -> dict[str, Method]:
    """Every method by name, ours first and the paper's last; the paper takes no ties."""
    speeds, rates = (paper_learner(data.profiles, t) for t in TARGETS)
    return {
        **{name: Method(name, f, f, cost=_COSTS.get(name, 1.0)) for name, f in LEARNERS.items()},
        PAPER: Method(PAPER, speeds, rates, tie=0.0, sums_only=True, cost=0.5),
    }


def ask(method: Method, data: Data, protocol: RunProtocol, tick: AfterFit) -> MethodResult:
    """A method's answers under a protocol."""
    seconds: list[float] = []

    def answers(learner: Learner) -> Answers:
        return protocol(data.rows, _timed(learner, seconds), tick)

    speeds = answers(method.by_speeds)
    rates = speeds if method.fits == 1 else answers(method.by_rates)
    return MethodResult(method, speeds, rates, float(np.median(seconds)))


def _timed(learner: Learner, seconds: list[float]) -> Learner:
    def learn(rows: Rows) -> Fitted:
        start = time.perf_counter()
        fitted = learner(rows)
        seconds.append(time.perf_counter() - start)
        return fitted

    return learn
