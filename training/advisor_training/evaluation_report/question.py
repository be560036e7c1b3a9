"""Which question to ask: what choices by each objective and minimum speed come to at the same work.

Every row has the same pairs. The oracle knows every measured value; the model and physics see
neither of the two values they are scored by: each job is left out in turn, on every GPU model.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, PER_WATT_OBJECTIVE, RAW_OBJECTIVE
from advisor.decide.recommend import TIE
from advisor_training.evaluation.choices import (
    RULES,
    Choice,
    Question,
    choose,
    choose_best,
    choose_by_rule,
    keys_of,
)
from advisor_training.evaluation.data import Data
from advisor_training.evaluation.outcomes import ChoiceFigures, figures_of
from advisor_training.learn.learners import LEARNERS
from advisor_training.learn.unseen import Unseen, leave_one_job_out

ASKED = (DEFAULT_OBJECTIVE, PER_WATT_OBJECTIVE, RAW_OBJECTIVE)

MIN_SPEEDS = (0.0, 0.3, 0.4, 0.5)

ORACLE = "measured oracle"

LEARNED: Mapping[str, str] = MappingProxyType({"model": "extra-trees", "physics": "physical"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one way to choose comes to on one GPU model.

    Attributes:
        objective: What is chosen by; None: a rule, which chooses by none.
        min_speed: Relative speed that each job is to keep; None likewise.
        chosen_by: The measured oracle, the model, physics, or a rule.
    """

    gpu_model: str
    objective: str | None
    min_speed: float | None
    chosen_by: str
    figures: ChoiceFigures


def answers(data: Data) -> Iterator[Answer]:
    """By GPU model: the rules, then every objective with every minimum speed."""
    unseen = {
        name: leave_one_job_out(data.rows, LEARNERS[learner]) for name, learner in LEARNED.items()
    }
    for model in np.unique(data.rows.gpu_model).tolist():
        numbers = {n for n, m in enumerate(data.measurements) if m.gpu_model == model}
        yield from _rules(data, model, numbers, unseen["model"])
        for objective, least in itertools.product(ASKED, MIN_SPEEDS):
            for chosen_by, choices in _chosen(data, unseen, objective, least):
                its = [choice for choice in choices if choice.number in numbers]
                if figures := figures_of(its):
                    yield Answer(
                        gpu_model=model,
                        objective=objective,
                        min_speed=least,
                        chosen_by=chosen_by,
                        figures=figures,
                    )


def _rules(data: Data, model: str, numbers: set[int], unseen: Unseen) -> Iterator[Answer]:
    judged = Question(OBJECTIVES[DEFAULT_OBJECTIVE], "every way")
    keys = [key for key in keys_of(choose(data, unseen, judged, TIE)) if key[1] in numbers]
    for rule in RULES:
        if figures := figures_of(choose_by_rule(data, keys, rule, judged)):
            yield Answer(
                gpu_model=model, objective=None, min_speed=None, chosen_by=rule, figures=figures
            )


def _chosen(
    data: Data, unseen: Mapping[str, Unseen], objective: str, least: float
) -> Iterator[tuple[str, Sequence[Choice]]]:
    """All are scored by energy for the same work; uncapped only by who knows it starves jobs."""
    judged = Question(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", least)
    asked = Question(OBJECTIVES[objective], "every way", least)
    splits = Question(OBJECTIVES[objective], "nine or exclusive", least)
    found = {
        "model": choose(data, unseen["model"], asked, TIE, judged),
        "physics": choose(data, unseen["physics"], splits, TIE, judged),
    }
    yield ORACLE, choose_best(data, keys_of(found["model"]), asked, judged)
    yield from found.items()
