"""The rows of an evaluation: what choices are worth, how far predictions are off, limits missed."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES
from advisor.decide.recommend import TIE
from advisor_training.dataset.data import Data
from advisor_training.evaluation.choices import (
    QUESTIONS,
    RULES,
    CandidateScope,
    Choice,
    ChoiceQuestion,
    KeptBy,
    choose,
    choose_by_rule,
    keys_of,
)
from advisor_training.evaluation.errors import Errors
from advisor_training.evaluation.methods import HEADLINE, OURS, MethodResult
from advisor_training.evaluation.outcomes import ChoiceFigures, figures_of
from advisor_training.learn.bootstrap import BootstrapEstimate
from advisor_training.learn.held_out import Mask
from advisor_training.learn.protocols import BY_WORKLOAD

MethodResults: TypeAlias = Mapping[tuple[str, str], MethodResult]
"""By protocol and method."""

LEAST_SPEEDS = (0.4, 0.5)
"""The default, and "both keep half of their speed"."""


Some: TypeAlias = Literal[
    "all",
    "with a launch-bound job",
    "without",
    "with a server",
    "without a server",
    "at the power limit",
    "below the power limit",
]
"""Which pairs or rows: a launch-bound job measures a core of the CPU, which profiles cannot
foresee, and at the limit the power is known beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    """What one method's or rule's choices are worth.

    Attributes:
        protocol: What the method had seen; rules see nothing.
        scope: What is chosen from, and what the oracle chooses from.
    """

    protocol: str
    method: str
    objective: str
    scope: CandidateScope
    pairs: Some
    figures: ChoiceFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRow:
    """One method's errors.

    Attributes:
        splits: The nine splits, or "uncapped".
    """

    protocol: str
    method: str
    splits: Literal["nine", "uncapped"]
    pairs: Some
    errors: Errors


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """Choices by energy for the same work that keep a minimum speed as predicted.

    Attributes:
        min_speed: What each job is to keep, as measured.
        kept: What keeps that where a split is chosen.
        shared: Choices that are not one after the other, percent.
        missed: Of these, those with a job below the minimum speed as measured, percent.
    """

    protocol: str
    method: str
    min_speed: float
    kept: KeptBy
    shared: BootstrapEstimate
    missed: BootstrapEstimate | None
    saved: BootstrapEstimate


def choice_rows(data: Data, results: MethodResults) -> Iterator[ChoiceRow]:
    """What each method and rule chooses, by objective and for each subset of the pairs."""
    for (protocol, name), answers in results.items():
        for objective in OBJECTIVES if protocol == BY_WORKLOAD else HEADLINE:
            found = answers.choices(data, objective)
            yield from _rows(data, protocol, name, objective, found)
    keys = keys_of(results[BY_WORKLOAD, OURS].choices(data, DEFAULT_OBJECTIVE))
    for rule in RULES:
        for objective, question in QUESTIONS.items():
            found = choose_by_rule(data, keys, rule, question)
            yield from _rows(data, BY_WORKLOAD, rule, objective, found)


def error_rows(data: Data, results: MethodResults) -> Iterator[ErrorRow]:
    """How far each method is off, for each subset of the rows."""
    for (protocol, name), answers in results.items():
        for splits in ("nine", "uncapped"):
            for pairs, mask in _row_subsets(data, protocol).items():
                errors = answers.errors(data, (data.rows.kind == splits) & mask)
                if errors.rows:
                    yield ErrorRow(
                        protocol=protocol, method=name, splits=splits, pairs=pairs, errors=errors
                    )


def limit_rows(data: Data, protocol: str, results: MethodResult) -> Iterator[LimitRow]:
    """One for each minimum speed, and what is to keep it."""
    for least, kept in itertools.product(LEAST_SPEEDS, get_args(KeptBy)):
        wanted = ChoiceQuestion(OBJECTIVES[DEFAULT_OBJECTIVE], "every way", least)
        asked = results.method.asks(replace(wanted, kept=kept))
        chosen = choose(data, results.answers.held_out, asked, TIE, wanted)
        if found := figures_of(chosen):
            yield LimitRow(
                protocol=protocol,
                method=results.method.name,
                min_speed=least,
                kept=kept,
                shared=found.shared,
                missed=found.missed,
                saved=found.saved,
            )


def _subsets(data: Data, protocol: str) -> dict[Some, frozenset[int]]:
    """Numbers of the measurements of each subset; under most protocols all of them only."""
    bound, server = data.with_launch_bound(), data.with_server()
    every: dict[Some, frozenset[int]] = {"all": frozenset(range(len(bound)))}
    if protocol != BY_WORKLOAD:
        return every
    return {
        **every,
        "with a launch-bound job": frozenset(np.flatnonzero(bound).tolist()),
        "without": frozenset(np.flatnonzero(~bound).tolist()),
        "with a server": frozenset(np.flatnonzero(server).tolist()),
        "without a server": frozenset(np.flatnonzero(~server).tolist()),
    }


def _rows(
    data: Data, protocol: str, method: str, objective: str, found: Sequence[Choice]
) -> Iterator[ChoiceRow]:
    for pairs, numbers in _subsets(data, protocol).items():
        if figures := figures_of([choice for choice in found if choice.number in numbers]):
            yield ChoiceRow(
                protocol=protocol,
                method=method,
                objective=objective,
                scope=QUESTIONS[objective].scope,
                pairs=pairs,
                figures=figures,
            )


def _row_subsets(data: Data, protocol: str) -> dict[Some, Mask]:
    """Which rows are in each subset; shape (rows,)."""
    found: dict[Some, Mask] = {
        name: np.isin(data.rows.measurement, [*numbers])
        for name, numbers in _subsets(data, protocol).items()
    }
    limited = data.at_power_limit()
    return {**found, "at the power limit": limited, "below the power limit": ~limited}
