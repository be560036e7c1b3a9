"""The figures of the evaluation; loads matplotlib when called, without its global state."""

import io
import textwrap

from advisor.core.objectives import DEFAULT_OBJECTIVE, RAW_OBJECTIVE
from advisor_training.dataset_report.figures import PAPER_INK, Figure, load_matplotlib
from advisor_training.evaluation.curve import CurvePoint
from advisor_training.evaluation.values import Evaluation
from advisor_training.evaluation_report.drawings import (
    draw_curve,
    draw_groups,
    draw_jobs,
    draw_power,
    draw_speeds,
    group_names,
)
from advisor_training.evaluation_report.sentences import said

_JOBS = (
    "As figure 3 of the paper: each job left out in turn, all of its pairs, by {}. The bars are "
    "means of what the model's choice and 50/50 reach of the best one; the number is the gain "
    "of the one over the other. The job with the busiest SMs comes first."
)
_GROUPS = "As figure 4 of the paper: the same by what the two jobs use of the GPU alone, by {}. {}."
_SPEEDS = (
    "Relative speeds of jobs in pairs, at the nine splits: predicted by a model that has not seen "
    "one of the two jobs, against measured. On the line both are the same."
)
_POWER = "The same for the power of the GPU."
_CURVE_ROWS = (
    "Solid: splits are drawn at random, as the paper does it, so the model has often seen other "
    "splits of the same pair. Dashed: whole pairs are drawn."
)

_DRAWN = (DEFAULT_OBJECTIVE, RAW_OBJECTIVE)
"""What figures 3 and 4 are drawn by: the question, and the paper's."""

_OF_ORACLE = "of the oracle, %"


def figures(evaluation: Evaluation) -> tuple[Figure, ...]:
    """The figures, the most telling one first."""
    return (*_by_job(evaluation), *_scatters(evaluation), *_curves(evaluation))


def to_png(evaluation: Evaluation) -> bytes:
    """All figures and the sentences above them as one image."""
    drawn = figures(evaluation)
    with load_matplotlib("matplotlib").rc_context({"font.size": 10}):
        rows = [drawn[i : i + 2] for i in range(0, len(drawn), 2)]
        heights = [max(figure.height for figure in row) for row in rows]
        size = (14, 7 * sum(heights) + 2)
        canvas = load_matplotlib("matplotlib.figure").Figure(figsize=size, layout="constrained")
        canvas.set_facecolor("white")
        lines = [line for text in said(evaluation) for line in textwrap.wrap(text, 145)]
        canvas.suptitle("\n".join(lines), fontsize=12, color=PAPER_INK.text, ha="left", x=0.02)
        grid = canvas.subplots(len(rows), 2, height_ratios=heights, squeeze=False)
        for axes in grid.flat[len(drawn) :]:
            axes.set_visible(False)
        for axes, figure in zip(grid.flat, drawn, strict=False):
            figure.draw(axes, PAPER_INK)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_title("\n".join(textwrap.wrap(figure.caption, 80)), fontsize=9, loc="left",
                           color=PAPER_INK.text, pad=26)  # fmt: skip
        sink = io.BytesIO()
        canvas.savefig(sink, format="png", dpi=100, metadata={"Software": None})
    return sink.getvalue()


def _by_job(evaluation: Evaluation) -> list[Figure]:
    tall = max(0.7, 0.055 * len(evaluation.jobs))
    return [
        *(
            Figure(
                f"jobs-{objective}",
                _JOBS.format(objective),
                lambda a, i, o=objective: draw_jobs(a, i, evaluation, o),
                tall,
            )
            for objective in _DRAWN
        ),
        *(
            Figure(
                f"groups-{objective}",
                _GROUPS.format(objective, group_names()),
                lambda a, i, o=objective: draw_groups(a, i, evaluation, o),
                0.8,
            )
            for objective in _DRAWN
        ),
    ]


def _scatters(evaluation: Evaluation) -> list[Figure]:
    return [
        Figure("speeds", _SPEEDS, lambda a, i: draw_speeds(a, i, evaluation), 0.8),
        Figure("power", _POWER, lambda a, i: draw_power(a, i, evaluation), 0.8),
    ]


def _curves(evaluation: Evaluation) -> list[Figure]:
    """As figures 1 and 2 of the paper; none where the curve was not asked for."""
    if not evaluation.curve:
        return []
    shown = (
        ("curve-sum", "error of X1 + X2, %", "Figure 1a, top", _rates_sum),
        ("curve-power", "error of the power, %", "Figure 1b, top", _power),
        ("curve-raw", f"{RAW_OBJECTIVE}\nof the oracle, %", "Figure 2", _raw),
        (
            "curve-default",
            f"{DEFAULT_OBJECTIVE}\nof the oracle, %",
            "Figure 2 with speeds",
            _default,
        ),
        ("curve-time", "seconds of a fit", "Figure 1, bottom", _seconds),
    )
    return [
        Figure(
            name,
            f"{place} of the paper, on our data. {_CURVE_ROWS}",
            lambda a, i, label=label, value=value: draw_curve(
                a, i, evaluation, label, value, log=_OF_ORACLE not in label
            ),
            0.75,
        )
        for name, label, place, value in shown
    ]


def _rates_sum(point: CurvePoint) -> float | None:
    return point.errors.rates_sum.mean_percent if point.errors.rates_sum else None


def _power(point: CurvePoint) -> float | None:
    return point.errors.power.mean_percent if point.errors.power else None


def _raw(point: CurvePoint) -> float | None:
    return point.fractions.get(RAW_OBJECTIVE)


def _default(point: CurvePoint) -> float | None:
    return point.fractions.get(DEFAULT_OBJECTIVE)


def _seconds(point: CurvePoint) -> float | None:
    return point.training_s
