"""The figures of an evaluation: captions, and what each draws into its axes."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from advisor.core.objectives import DEFAULT_OBJECTIVE, RAW_OBJECTIVE
from advisor.core.wording import count_of
from advisor.predict.profiles import Floats
from advisor_training.evaluation.bars import CLASS_NAMES, Bar
from advisor_training.evaluation.curve import LearningCurvePoint
from advisor_training.evaluation.errors import Error
from advisor_training.evaluation.methods import OURS, PAPER
from advisor_training.evaluation.values import Evaluation
from advisor_training.reports.document import BLUE, GREY, ORANGE, RED, Figure, Ink, signed

_COLOURS = {OURS: BLUE, PAPER: ORANGE, "linear": RED}

_DASHES = {"rows": "-", "pairs": "--"}

Labelled = tuple[str, Bar]


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


def _mean(error: Error | None) -> float | None:
    return error and error.mean_percent


_OF_ORACLE = "of the oracle, %"

_CURVES: tuple[tuple[str, str, str, Callable[[LearningCurvePoint], float | None]], ...] = (
    (
        "curve-sum",
        "error of X1 + X2, %",
        "Figure 1a, top",
        lambda point: _mean(point.errors.rates_sum),
    ),
    (
        "curve-power",
        "error of the power, %",
        "Figure 1b, top",
        lambda point: _mean(point.errors.power),
    ),
    (
        "curve-raw",
        f"{RAW_OBJECTIVE}\n{_OF_ORACLE}",
        "Figure 2",
        lambda point: point.fractions.get(RAW_OBJECTIVE),
    ),
    (
        "curve-default",
        f"{DEFAULT_OBJECTIVE}\n{_OF_ORACLE}",
        "Figure 2 with speeds",
        lambda point: point.fractions.get(DEFAULT_OBJECTIVE),
    ),
    (
        "curve-time",
        "seconds of a fit",
        "Figure 1, bottom",
        lambda point: point.training_s,
    ),
)
"""Name, axis, place in the paper, value."""


def figures(evaluation: Evaluation) -> tuple[Figure, ...]:
    """The figures, the most telling one first."""
    return (*_by_job(evaluation), *_scatters(evaluation), *_curves(evaluation))


def _by_job(evaluation: Evaluation) -> Iterator[Figure]:
    tall = max(0.7, 0.055 * len(evaluation.jobs))
    for name in _DRAWN:
        draw = partial(_draw_jobs, evaluation, name)
        yield Figure(f"jobs-{name}", _JOBS.format(name), draw, tall)
    codes = "; ".join(f"{code}: {words}" for code, words in CLASS_NAMES.items())
    for name in _DRAWN:
        draw = partial(_draw_groups, evaluation, name)
        yield Figure(f"groups-{name}", _GROUPS.format(name, codes), draw, 0.8)


def _scatters(evaluation: Evaluation) -> Iterator[Figure]:
    found = evaluation.compared
    speeds = np.concatenate(found.measured_speeds), np.concatenate(found.speeds)
    power_w = found.measured_power_w, found.power_w
    yield Figure("speeds", _SPEEDS, partial(_draw_scatter, *speeds, "relative speed"), 0.8)
    yield Figure("power", _POWER, partial(_draw_scatter, *power_w, "power, W"), 0.8)


def _curves(evaluation: Evaluation) -> Iterator[Figure]:
    """As figures 1 and 2 of the paper; none where the curve was not asked for."""
    for name, label, place, value in _CURVES if evaluation.curve else ():
        draw = partial(_draw_curve, evaluation.curve, label, value)
        yield Figure(name, f"{place} of the paper, on our data. {_CURVE_ROWS}", draw, 0.75)


def _draw_jobs(evaluation: Evaluation, objective: str, axes: Any, ink: Ink) -> None:
    """Figure 3 of the paper: fractions of the oracle by the job that was left out."""
    _draw_bars(axes, ink, [(job.job, job.bars[objective]) for job in evaluation.jobs
                           if objective in job.bars])  # fmt: skip


def _draw_groups(evaluation: Evaluation, objective: str, axes: Any, ink: Ink) -> None:
    """Figure 4 of the paper: the same by what the two jobs use of the GPU."""
    rows = [
        (f"{group.classes[0]} with {group.classes[1]}\n{count_of(bar.choices, 'choice')}", bar)
        for group in evaluation.groups
        if (bar := group.bars.get(objective))
    ]
    _draw_bars(axes, ink, rows)


def _draw_curve(
    curve: Sequence[LearningCurvePoint],
    label: str,
    value: Callable[[LearningCurvePoint], float | None],
    axes: Any,
    ink: Ink,
) -> None:
    """Figures 1 and 2 of the paper: something against the amount of data, a line for a method."""
    methods = dict.fromkeys(point.method for point in curve)
    for method in methods:
        for drawn, dashes in _DASHES.items():
            points = [
                (point.part_percent, found)
                for point in curve
                if (point.method, point.drawn) == (method, drawn)
                if (found := value(point)) is not None
            ]
            if points:
                # One entry of the legend for each method; the caption tells the dashes.
                name, colour = method if drawn == "rows" else None, _COLOURS.get(method, GREY)
                axes.plot(*zip(*points, strict=True), dashes, color=colour, label=name)
    axes.set_xlabel("part that is learned from, %", color=ink.text)
    axes.set_ylabel(label, color=ink.text)
    if _OF_ORACLE not in label:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        ticks = [n * 10.0**power for power in range(-4, 5) for n in (1, 2, 5)]
        seen = [tick for tick in ticks if low < tick < high]
        axes.set_yticks(seen, [f"{tick:g}" for tick in seen])
        axes.minorticks_off()
    axes.legend(frameon=False, labelcolor=ink.text, fontsize="small")


def _draw_bars(axes: Any, ink: Ink, rows: Sequence[Labelled]) -> None:
    """Two bars for each row, the model's and 50/50's; the gain stands next to them."""
    for number, (label, colour, values) in enumerate(
        (
            (OURS, BLUE, [bar.fraction_percent for _, bar in rows]),
            ("50/50", GREY, [bar.equal_percent for _, bar in rows]),
        )
    ):
        places = [y + 0.38 * (number - 0.5) for y in range(len(rows))]
        axes.barh(places, values, height=0.36, color=colour, label=label)
    for y, (_, bar) in enumerate(rows):
        axes.text(101, y, signed(bar.gain_percent), va="center", fontsize=7, color=ink.text)
    axes.axvline(100, color=ink.text, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 118)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("of the oracle, %; gain over 50/50", color=ink.text)
    axes.legend(frameon=True, facecolor="none", edgecolor="none", labelcolor=ink.text,
                fontsize="small", loc="lower left", ncols=2, bbox_to_anchor=(0, 1))  # fmt: skip


def _draw_scatter(measured: Floats, expected: Floats, what: str, axes: Any, ink: Ink) -> None:
    low, high = (
        float(min(measured.min(), expected.min())),
        float(max(measured.max(), expected.max())),
    )
    axes.plot([low, high], [low, high], color=ink.text, linewidth=0.8)
    axes.scatter(measured, expected, s=5, color=BLUE, alpha=0.45, linewidths=0)
    axes.set_xlabel(f"measured {what}", color=ink.text)
    axes.set_ylabel(f"predicted {what}", color=ink.text)
