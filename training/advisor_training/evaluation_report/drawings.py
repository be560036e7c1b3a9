"""What each figure of the evaluation draws into its axes; nothing here loads matplotlib."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from advisor.core.wording import count_of
from advisor.predict.profiles import Floats
from advisor_training.analysis.groups import CLASS_NAMES
from advisor_training.dataset_report.drawings import BLUE, GREY, ORANGE, RED, Ink
from advisor_training.dataset_report.sentences import signed
from advisor_training.evaluation.bars import Bar
from advisor_training.evaluation.curve import CurvePoint
from advisor_training.evaluation.methods import OURS, PAPER
from advisor_training.evaluation.values import Evaluation

_COLOURS = {OURS: BLUE, PAPER: ORANGE, "linear": RED}

_DASHES = {"rows": "-", "pairs": "--"}

Labelled = tuple[str, Bar]


def draw_jobs(axes: Any, ink: Ink, evaluation: Evaluation, objective: str) -> None:
    """Figure 3 of the paper: fractions of the oracle by the job that was left out."""
    _draw_bars(axes, ink, [(job.job, job.bars[objective]) for job in evaluation.jobs
                           if objective in job.bars])  # fmt: skip


def draw_groups(axes: Any, ink: Ink, evaluation: Evaluation, objective: str) -> None:
    """Figure 4 of the paper: the same by what the two jobs use of the GPU."""
    rows = [
        (f"{group.classes[0]} with {group.classes[1]}\n{count_of(bar.choices, 'choice')}", bar)
        for group in evaluation.groups
        if (bar := group.bars.get(objective))
    ]
    _draw_bars(axes, ink, rows)


def draw_curve(
    axes: Any,
    ink: Ink,
    evaluation: Evaluation,
    label: str,
    value: Callable[[CurvePoint], float | None],
    *,
    log: bool = False,
) -> None:
    """Figures 1 and 2 of the paper: something against the amount of data, a line for a method."""
    methods = dict.fromkeys(point.method for point in evaluation.curve)
    for method in methods:
        for drawn, dashes in _DASHES.items():
            points = [
                (point.part_percent, found)
                for point in evaluation.curve
                if (point.method, point.drawn) == (method, drawn)
                if (found := value(point)) is not None
            ]
            if points:
                # One entry of the legend for each method; the caption tells the dashes.
                name, colour = method if drawn == "rows" else None, _COLOURS.get(method, GREY)
                axes.plot(*zip(*points, strict=True), dashes, color=colour, label=name)
    axes.set_xlabel("part that is learned from, %", color=ink.text)
    axes.set_ylabel(label, color=ink.text)
    if log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        ticks = [n * 10.0**power for power in range(-4, 5) for n in (1, 2, 5)]
        seen = [tick for tick in ticks if low < tick < high]
        axes.set_yticks(seen, [f"{tick:g}" for tick in seen])
        axes.minorticks_off()
    axes.legend(frameon=False, labelcolor=ink.text, fontsize="small")


def draw_speeds(axes: Any, ink: Ink, evaluation: Evaluation) -> None:
    """Predicted against measured relative speeds."""
    found = evaluation.compared
    _draw_scatter(
        axes,
        ink,
        np.concatenate(found.measured_speeds),
        np.concatenate(found.speeds),
        "relative speed",
    )


def draw_power(axes: Any, ink: Ink, evaluation: Evaluation) -> None:
    """Predicted against measured power."""
    found = evaluation.compared
    _draw_scatter(axes, ink, found.measured_power_w, found.power_w, "power, W")


def group_names() -> str:
    """What the codes of groups mean."""
    return "; ".join(f"{code}: {words}" for code, words in CLASS_NAMES.items())


def _draw_bars(axes: Any, ink: Ink, rows: Sequence[Labelled]) -> None:
    """Two bars for each row, the model's and 50/50's; the gain stands beside them."""
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


def _draw_scatter(axes: Any, ink: Ink, measured: Floats, expected: Floats, what: str) -> None:
    low, high = (
        float(min(measured.min(), expected.min())),
        float(max(measured.max(), expected.max())),
    )
    axes.plot([low, high], [low, high], color=ink.text, linewidth=0.8)
    axes.scatter(measured, expected, s=5, color=BLUE, alpha=0.45, linewidths=0)
    axes.set_xlabel(f"measured {what}", color=ink.text)
    axes.set_ylabel(f"predicted {what}", color=ink.text)
