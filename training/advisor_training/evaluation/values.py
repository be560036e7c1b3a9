"""What an evaluation found, as values and as JSON."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from advisor.formats.wire import as_answer
from advisor_training.dataset.noise import Ceiling
from advisor_training.dataset.pairs import LeftOut
from advisor_training.evaluation.bars import JobFigures
from advisor_training.evaluation.choices import Choice
from advisor_training.evaluation.errors import Errors, ExpectedAndMeasured
from advisor_training.evaluation.other_gpu import GpuCurvePoint, GpuFigures
from advisor_training.evaluation.outcomes import ChoiceFigures
from advisor_training.evaluation.rows import ChoiceRow, ErrorRow, LimitRow, Some
from advisor_training.learn.conformal import Coverage
from advisor_training.learn.protocols import BY_WORKLOAD, PROTOCOLS


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedFigures:
    """The model grown from another seed, by workload.

    Attributes:
        fractions: Mean fraction of the oracle by objective, percent.
    """

    seed: int
    saved_percent: float
    shared_percent: float
    missed_percent: float | None
    fractions: Mapping[str, float]
    errors: Errors


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationBasis:
    """What an evaluation rests on."""

    gpu_models: tuple[str, ...]
    cards: int
    jobs: int
    launch_bound_pairs: int
    pairs: int
    measurements: int
    splits: int
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything that was found.

    Attributes:
        quick: Whether only the model and physics were asked, and not under every protocol.
        ceilings: The noise ceiling by objective; None where no pair was measured twice.
        wanted_coverage: What the intervals are made for.
        coverage: What intervals of jobs that were left out, with run and cards where there are
            several, hold of "speed", "power" and "efficiency".
        training_s: Seconds of one fit to all jobs but one, by method.
        gpus: The model on each GPU model that was left out; empty where there is one only, and
            where the evaluation is quick. `gpu_curve` with ever more pairs of it likewise.
        seeds: What hangs on the seed; empty where the evaluation is quick.
        chosen: The model's choices for jobs that were left out, by objective.
        compared: The model's predictions of these, at the nine splits; not in the JSON form.
    """

    quick: bool
    basis: EvaluationBasis
    ceilings: Mapping[str, Ceiling | None]
    choices: tuple[ChoiceRow, ...]
    errors: tuple[ErrorRow, ...]
    wanted_coverage: float
    coverage: Mapping[str, Coverage]
    training_s: Mapping[str, float]
    jobs: tuple[JobFigures, ...]
    gpus: tuple[GpuFigures, ...]
    gpu_curve: tuple[GpuCurvePoint, ...]
    limits: tuple[LimitRow, ...]
    seeds: tuple[SeedFigures, ...]
    chosen: Mapping[str, tuple[Choice, ...]]
    compared: ExpectedAndMeasured


def choice_figures(evaluation: Evaluation, pairs: Some = "all") -> "pd.Series[Any]":
    """`ChoiceFigures` over some pairs, by protocol, method and objective."""
    rows = _table(ChoiceRow, evaluation.choices)
    index = ["protocol", "method", "objective"]
    return rows[rows["pairs"] == pairs].set_index(index)["figures"]


def errors_of_all_pairs(evaluation: Evaluation) -> "pd.Series[Any]":
    """`Errors` of all pairs at the nine splits, by protocol and method."""
    rows = _table(ErrorRow, evaluation.errors)
    its = (rows["pairs"] == "all") & (rows["splits"] == "nine")
    return rows[its].set_index(["protocol", "method"])["errors"]


def find_choices(
    evaluation: Evaluation, method: str, objective: str, pairs: Some = "all"
) -> ChoiceFigures | None:
    """A method's choices over some pairs, a job left out at a time; None where it was not asked."""
    return choice_figures(evaluation, pairs).get((BY_WORKLOAD, method, objective))


def to_json(evaluation: Evaluation) -> str:
    """The evaluation as JSON text."""
    values = {
        field.name: getattr(evaluation, field.name)
        for field in dataclasses.fields(evaluation)
        if field.name != "compared"
    }
    protocols = {name: protocol.meaning for name, protocol in PROTOCOLS.items()}
    whole = {"protocols": protocols, **values}
    return as_answer(json.dumps(whole, default=_fields, allow_nan=False).encode()).decode()


def _table(kind: type[Any], rows: Iterable[Any]) -> pd.DataFrame:
    """Dataclasses as rows, a column for each field."""
    names = [field.name for field in dataclasses.fields(kind)]
    records = [[getattr(row, name) for name in names] for row in rows]
    return pd.DataFrame.from_records(records, columns=names)


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
