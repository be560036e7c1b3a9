"""How good learners become with more to learn from, as figures 1 and 2 of the paper."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from advisor_training.dataset.data import Data
from advisor_training.dataset.rows import Rows
from advisor_training.evaluation.errors import Errors
from advisor_training.evaluation.methods import HEADLINE, Method, ask
from advisor_training.learn.protocols import (
    PAPER_REPEATS,
    SUBSETS,
    AfterFit,
    Draw,
    answer_draws,
    draw_pairs,
    draw_rows,
)

Drawn: TypeAlias = Literal["rows", "pairs"]

DRAWS: Mapping[Drawn, Callable[[Rows, float, int], Iterator[Draw]]] = MappingProxyType(
    {"rows": draw_rows, "pairs": draw_pairs}
)
"""What is drawn at random: splits of any pair, as in the paper, or pairs with all their splits."""

PARTS = tuple(tenth / SUBSETS for tenth in range(1, SUBSETS))
"""Parts of the data that are learned from: 1/10 to 9/10, as in the paper."""

REPEATS: Mapping[Drawn, int] = MappingProxyType({"rows": PAPER_REPEATS, "pairs": 5})
"""How often each part is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningCurvePoint:
    """One method at one amount of data.

    Attributes:
        part_percent: How much of the rows or pairs is learned from.
        errors: On the rows that were not learned from.
        fractions: Mean fraction of the oracle by objective, in percent; drawing rows over all
            pairs, drawing pairs over those that were not learned from.
        training_s: Seconds of one fit, the median.
    """

    drawn: Drawn
    method: str
    part_percent: float
    errors: Errors
    fractions: Mapping[str, float]
    training_s: float


def curve_fits(methods: Sequence[Method]) -> dict[str, int]:
    """How many fits a curve takes of each method."""
    return {method.name: len(PARTS) * sum(REPEATS.values()) * method.fits for method in methods}


def curve(
    data: Data, methods: Sequence[Method], tick: Callable[[str], AfterFit]
) -> list[LearningCurvePoint]:
    """Every method at every amount of data; `tick` gives what is called after each of its fits."""
    return [
        _point(data, method, drawn, part, tick(method.name))
        for method in methods
        for drawn in DRAWS
        for part in PARTS
    ]


def _point(
    data: Data, method: Method, drawn: Drawn, part: float, tick: AfterFit
) -> LearningCurvePoint:
    result = ask(
        method,
        data,
        lambda rows, learner, tick: answer_draws(
            rows, learner, DRAWS[drawn](rows, part, REPEATS[drawn]), tick
        ),
        tick,
    )
    found = {name: [c.fraction for c in result.choices(data, name)] for name in HEADLINE}
    return LearningCurvePoint(
        drawn=drawn,
        method=method.name,
        part_percent=100 * part,
        errors=result.errors(data, np.asarray(data.rows.kind == "nine")),
        fractions={n: 100 * statistics.mean(parts) for n, parts in found.items() if parts},
        training_s=result.training_s,
    )
