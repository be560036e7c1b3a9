"""Whether the model still is as good as the evaluation that comes with the advisor says."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from advisor.errors import ModelError
from advisor_training.evaluation.methods import OURS, PHYSICAL
from advisor_training.evaluation.values import Evaluation, errors_of_all_pairs
from advisor_training.learn.protocols import BY_WORKLOAD

FigureKind = Literal["fraction of oracle", "error", "coverage"]

KINDS: tuple[FigureKind, ...] = get_args(FigureKind)

Figures: TypeAlias = Mapping[FigureKind, Mapping[str, float]]
"""Percent, by what they are of."""

TOLERANCES: Mapping[FigureKind, float] = MappingProxyType(
    {"fraction of oracle": 0.3, "error": 0.5, "coverage": 3.0}
)
"""Points by which a figure may be worse: other versions of libraries grow other trees."""

BUNDLED = "bundled_evaluation.json"


@dataclass(frozen=True, slots=True)
class Worse:
    """A figure that is out of bounds.

    Attributes:
        value: What was found now; None where it was not found at all.
        bound: The worst value that is allowed.
    """

    kind: FigureKind
    name: str
    value: float | None
    bundled: float
    bound: float

    def __str__(self) -> str:
        now = "missing" if self.value is None else f"{self.value:.2f} %"
        side = "at most" if self.kind == "error" else "at least"
        return (
            f"{self.kind} of {self.name} is {now}, {side} {self.bound:.2f} % is wanted "
            f"(bundled: {self.bundled:.2f} %)"
        )


def checked_figures(evaluation: Evaluation) -> dict[FigureKind, dict[str, float]]:
    """The figures that are compared; those of the quick protocol, so any evaluation has them."""
    return {
        "fraction of oracle": dict(_fractions(evaluation)),
        "error": dict(_errors(evaluation)),
        "coverage": {name: 100 * found.overall for name, found in evaluation.coverage.items()},
    }


def bundled_figures() -> Figures:
    """The figures that come with the advisor."""
    text = resources.files("advisor_training").joinpath(BUNDLED).read_text("utf-8")
    return json.loads(text)


def worse_figures(found: Figures, bundled: Figures) -> list[Worse]:
    """What is worse than bundled by more than the tolerance."""
    return [
        Worse(kind, name, value, was, bound)
        for kind in KINDS
        for name, was in bundled[kind].items()
        for value, bound in [(found[kind].get(name), _bound(kind, was))]
        if value is None or _beyond(kind, value, bound)
    ]


def check(found: Figures, bundled: Figures) -> None:
    """Accept figures as good as the bundled ones.

    Raises:
        ModelError: one is worse by more than its tolerance; the message names all of them.
    """
    if worse := worse_figures(found, bundled):
        raise ModelError(
            "; ".join(map(str, worse)),
            why="features, learners or data changed",
            fix=f"mend that, or show why the new figures are right and replace {BUNDLED}",
        )


def _bound(kind: FigureKind, bundled: float) -> float:
    return bundled + TOLERANCES[kind] * (1 if kind == "error" else -1)


def _beyond(kind: FigureKind, value: float, bound: float) -> bool:
    # "not within" is true of NaN as well.
    return not (value <= bound if kind == "error" else value >= bound)


def _fractions(evaluation: Evaluation) -> Iterator[tuple[str, float]]:
    for row in evaluation.choices:
        quick = row.protocol == BY_WORKLOAD and row.pairs == "all"
        if quick and row.method in (OURS, PHYSICAL):
            yield f"{row.method} by {row.objective}, {row.scope}", row.figures.mean_percent


def _errors(evaluation: Evaluation) -> Iterator[tuple[str, float]]:
    for method, errors in errors_of_all_pairs(evaluation)[BY_WORKLOAD].items():
        if method in (OURS, PHYSICAL):
            for name, error in (("rates", errors.rate), ("power", errors.power)):
                if error:
                    yield f"{method}, {name}", error.mean_percent
