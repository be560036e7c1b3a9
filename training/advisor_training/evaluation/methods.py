"""The learners that are compared, and their answers under a protocol."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, RAW_OBJECTIVE
from advisor.decide.recommend import TIE
from advisor_training.dataset.data import Data
from advisor_training.dataset.rows import Rows
from advisor_training.evaluation.choices import QUESTIONS, Choice, ChoiceQuestion, choose
from advisor_training.evaluation.errors import Errors, errors_of
from advisor_training.learn.held_out import Mask
from advisor_training.learn.learners import LEARNERS, Fitted, Learner
from advisor_training.learn.protocols import AfterFit, Answers

HEADLINE = (DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, RAW_OBJECTIVE)
"""Objectives whose figures are always shown."""

OURS = next(iter(LEARNERS))
PHYSICAL = "physical"

_COSTS = {"linear": 0.02, PHYSICAL: 0.001}

RunProtocol: TypeAlias = Callable[[Rows, Learner, AfterFit], Answers]


@dataclass(frozen=True, slots=True)
class Method:
    """A learner that is compared.

    Attributes:
        cost: Time of a fit relative to the model's; for the time that is left only.
    """

    name: str
    learner: Learner
    cost: float = 1.0

    def asks(self, question: ChoiceQuestion) -> ChoiceQuestion:
        """The question as it is put to this method.

        Physics does not know that a job without limits starves another one, and is not asked.
        """
        if self.name == PHYSICAL and question.scope == "every way":
            return dataclasses.replace(question, scope="nine or exclusive")
        return question


@dataclass(frozen=True, slots=True, eq=False)
class MethodResult:
    """What a method answers under a protocol.

    Attributes:
        training_s: Seconds of one fit, the median.
    """

    method: Method
    answers: Answers
    training_s: float

    def choices(self, data: Data, objective: str) -> list[Choice]:
        """What it chooses by an objective."""
        asked = QUESTIONS[objective]
        return choose(data, self.answers.held_out, self.method.asks(asked), TIE, asked)

    def errors(self, data: Data, which: Mask) -> Errors:
        """Over the rows of a mask, shape (rows,)."""
        return errors_of(data, self.answers, which)


METHODS: Mapping[str, Method] = MappingProxyType(
    {name: Method(name, learner, _COSTS.get(name, 1.0)) for name, learner in LEARNERS.items()}
)
"""Every method by name, the model first."""


def ask(method: Method, data: Data, protocol: RunProtocol, tick: AfterFit) -> MethodResult:
    """A method's answers under a protocol."""
    seconds: list[float] = []

    def timed(rows: Rows) -> Fitted:
        start = time.perf_counter()
        fitted = method.learner(rows)
        seconds.append(time.perf_counter() - start)
        return fitted

    answers = protocol(data.rows, timed, tick)
    return MethodResult(method, answers, float(np.median(seconds)))
