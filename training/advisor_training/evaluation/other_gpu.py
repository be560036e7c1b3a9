"""How good the model is on a GPU model that it has not learned from, and with few pairs of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from advisor.decide.recommendation import TIE
from advisor_training.dataset.data import Data
from advisor_training.evaluation.choices import QUESTIONS, choose
from advisor_training.evaluation.errors import Errors, errors_of
from advisor_training.evaluation.methods import HEADLINE, OURS
from advisor_training.evaluation.outcomes import ChoiceFigures, figures_of
from advisor_training.learn.carrying_over import (
    Added,
    Carried,
    add_pairs,
    carry_over,
    gpu_models,
    mean_held,
    parts_held,
    widenings,
)
from advisor_training.learn.held_out import HeldOut, joined
from advisor_training.learn.learners import LEARNERS
from advisor_training.learn.protocols import AfterFit, Answers, each_fold


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """The model on a GPU model that it has not learned from, nor from the job on another one.

    Attributes:
        learned_pairs: Pairs of the other GPU models.
        errors: At the nine splits.
        held: Parts of "speed" and "power" within the intervals of the other GPU models.
        widening: How much wider those must be to hold what they promise, likewise.
    """

    left_out: str
    learned_pairs: int
    pairs: int
    fractions: Mapping[str, ChoiceFigures]
    errors: Errors
    held: Mapping[str, float]
    widening: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCurvePoint:
    """The model with some pairs of the GPU model that it has otherwise not learned from.

    Attributes:
        added_pairs: Pairs of it that are learned from.
        draws: Random draws of these; figures are over all of them.
        fractions: Choices of all other pairs of it, by objective.
        errors: Of these at the nine splits.
        held: Parts of "speed" and "power" within the intervals of the other GPU models.
    """

    left_out: str
    added_pairs: int
    draws: int
    fractions: Mapping[str, ChoiceFigures]
    errors: Errors
    held: Mapping[str, float]


def leave_gpus_out(data: Data, tick: AfterFit) -> Iterator[tuple[GpuFigures, list[GpuCurvePoint]]]:
    """Each GPU model left out, then with pairs of it added; nothing where there is one only."""
    progress = each_fold(tick)
    for name in gpu_models(data.rows):
        mask = data.rows.gpu_model == name
        carried = carry_over(data.rows, mask, name, LEARNERS[OURS], progress)
        added = add_pairs(data.rows, mask, LEARNERS[OURS], progress)
        yield _figures(data, carried), [_point(data, carried, pairs) for pairs in added]


def _figures(data: Data, carried: Carried) -> GpuFigures:
    held_out, rows = carried.held_out, data.rows
    return GpuFigures(
        left_out=carried.left_out,
        learned_pairs=carried.learned_pairs,
        pairs=len(np.unique(rows.pair[held_out.row])),
        fractions=_fractions(data, held_out),
        errors=_errors(data, held_out),
        held=parts_held(carried, rows, held_out),
        widening=widenings(carried, rows),
    )


def _point(data: Data, carried: Carried, added: Added) -> GpuCurvePoint:
    held_out = joined(added.held_out)
    return GpuCurvePoint(
        left_out=carried.left_out,
        added_pairs=added.pairs,
        draws=len(added.held_out),
        fractions=_fractions(data, held_out),
        errors=_errors(data, held_out),
        held=mean_held(carried, data.rows, added.held_out),
    )


def _fractions(data: Data, held_out: HeldOut) -> dict[str, ChoiceFigures]:
    found = {name: figures_of(choose(data, held_out, QUESTIONS[name], TIE)) for name in HEADLINE}
    return {name: figures for name, figures in found.items() if figures}


def _errors(data: Data, held_out: HeldOut) -> Errors:
    answers = Answers(held_out, np.ones(len(held_out), dtype=bool))
    return errors_of(data, answers, np.asarray(data.rows.kind == "nine"))
