"""The model on GPU models that it has not learned from, as tables of texts."""

from collections.abc import Iterator, Mapping

from advisor.core.objectives import DEFAULT_OBJECTIVE, RAW_OBJECTIVE
from advisor_training.evaluation.errors import Errors
from advisor_training.evaluation.outcomes import ChoiceFigures
from advisor_training.evaluation.values import Evaluation
from advisor_training.reports.document import TextTable
from advisor_training.reports.evaluation_tables import error_cells

_FIGURES = ("saved", "lose", "oracle", "worst", "oracle, raw", "worst, raw", "rate", "power")
_HELD = ("speed held", "power held")


def gpu_tables(evaluation: Evaluation) -> list[TextTable]:
    """Both tables; none where there is one GPU model only, or the evaluation is quick."""
    return [other_gpu(evaluation), more_pairs(evaluation)] if evaluation.gpus else []


def other_gpu(evaluation: Evaluation) -> TextTable:
    """Each GPU model left out, and the tested job as well."""
    return TextTable(
        "A GPU model and a job that were not learned from: fraction of the oracle, errors, mean | "
        f"median, and what intervals for {evaluation.wanted_coverage:.0%} hold, in %",
        (
            "left out", "learned pairs", "pairs", *_FIGURES, *_HELD, "speed wider by",
            "power wider by",
        ),
        [
            (
                found.left_out,
                str(found.learned_pairs),
                str(found.pairs),
                *_cells(found.fractions, found.errors),
                *(f"{100 * part:.1f}" for part in found.held.values()),
                *(f"{factor:.2f}" for factor in found.widening.values()),
            )
            for found in evaluation.gpus
        ],
    )  # fmt: skip


def more_pairs(evaluation: Evaluation) -> TextTable:
    """The same with pairs of it added, jobs on the other GPU models learned from."""
    return TextTable(
        "With pairs of that GPU model learned from, its other pairs: the same figures",
        ("left out", "pairs added", "draws", *_FIGURES, *_HELD),
        [
            (
                point.left_out,
                str(point.added_pairs),
                str(point.draws),
                *_cells(point.fractions, point.errors),
                *(f"{100 * part:.1f}" for part in point.held.values()),
            )
            for point in evaluation.gpu_curve
        ],
    )


def _cells(fractions: Mapping[str, ChoiceFigures], errors: Errors) -> Iterator[str]:
    default = fractions.get(DEFAULT_OBJECTIVE)
    yield str(default.saved) if default else "-"
    yield f"{default.loses.value:.0f}" if default else "-"
    for name in (DEFAULT_OBJECTIVE, RAW_OBJECTIVE):
        found = fractions.get(name)
        yield f"{found.mean_percent:.2f}" if found else "-"
        yield f"{found.worst_percent:.1f}" if found else "-"
    yield from error_cells(errors)
