"""The report's figures; loads matplotlib when called, without its global state."""

import importlib
import io
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from advisor.core.objectives import DEFAULT_OBJECTIVE, RAW_OBJECTIVE
from advisor.errors import InputError
from advisor_training.analysis.analysis import Analysis
from advisor_training.dataset_report.drawings import (
    Ink,
    draw_best_splits,
    draw_gains,
    draw_groups,
    draw_when,
)
from advisor_training.dataset_report.sentences import said

PAPER_INK = Ink("#1b1f24", "#d5d9de")

SVG_INK = Ink("#010203", "#040506")
"""Stand-ins; the page puts its own colours in their place, which follow the reader's choice."""

_PNG_ROWS = [["when", "when"], ["gains", "gains-raw"], ["best-splits", "groups"]]


_WHEN = (
    f"When an uneven split pays, by {DEFAULT_OBJECTIVE}: a dot is a pair at its best of the nine "
    "splits, a bar the mean. Rows: what each job keeps busy alone for half of the time or more, "
    "SMs (compute) or the memory interface (memory); light: neither."
)
_GAINS = (
    "Each pair at its best of the nine splits and at the other ways to share, against 50/50 (0 %), "
    f"by {DEFAULT_OBJECTIVE}; pairs in the order of their gain."
)
_GAINS_RAW = f"The same by {RAW_OBJECTIVE}, the paper's objective, which adds up unlike units."
_BEST_SPLITS = (
    "How many pairs have their best split where. Busier is the job with the higher SM activity "
    "alone; either: a job beside itself, or no such counter."
)
_GROUPS = (
    "Mean gain over 50/50 by what the two jobs use of the GPU: compute, then memory, high (H) or "
    "low (L). The paper's bars are its model's splits on a V100, where its text gives a number; "
    "ours are the best of nine."
)
_IN_THE_BAND = "In the grey band a difference is no more than noise."
_NOISE_NOT_KNOWN = "How much of a gain is noise is not known: no pair was measured twice."
_TIES = "What is within the noise of the best counts for the more even split."


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the report.

    Attributes:
        name: For identities in the page.
        caption: What it shows and how to read it.
        draw: Draws it into axes of matplotlib.
        height: Of its width.
        width_in: As an SVG element, inches.
    """

    name: str
    caption: str
    draw: Callable[[Any, Ink], None]
    height: float
    width_in: float = 4.6


def figures(analysis: Analysis) -> tuple[Figure, ...]:
    """The figures, the most telling one first."""
    known = analysis.objectives[DEFAULT_OBJECTIVE].ceiling is not None
    noise = _IN_THE_BAND if known else _NOISE_NOT_KNOWN
    ties = f" {_TIES}" if known else ""
    return (
        Figure("when", f"{_WHEN} {noise}", lambda a, i: draw_when(a, i, analysis), 0.62, 5.4),
        Figure(
            "gains",
            f"{_GAINS} {noise}",
            lambda a, i: draw_gains(a, i, analysis, DEFAULT_OBJECTIVE),
            0.62,
        ),
        Figure(
            "gains-raw",
            _GAINS_RAW,
            lambda a, i: draw_gains(a, i, analysis, RAW_OBJECTIVE),
            0.62,
        ),
        Figure(
            "best-splits",
            f"{_BEST_SPLITS}{ties}",
            lambda a, i: draw_best_splits(a, i, analysis),
            0.55,
        ),
        Figure("groups", _GROUPS, lambda a, i: draw_groups(a, i, analysis), 0.9),
    )


def to_svg(figure: Figure) -> str:
    """The figure as an SVG element without a background."""
    with _style({"svg.fonttype": "none", "svg.hashsalt": "advisor", "font.size": 8.5}):
        canvas = load_matplotlib("matplotlib.figure").Figure(
            figsize=(figure.width_in, figure.width_in * figure.height), layout="constrained"
        )
        axes = canvas.add_subplot()
        _plain(axes, SVG_INK)
        figure.draw(axes, SVG_INK)
        sink = io.StringIO()
        canvas.savefig(sink, format="svg", transparent=True, metadata={"Date": None})
    text = sink.getvalue()
    return text[text.index("<svg") :]


def to_png(analysis: Analysis) -> bytes:
    """All figures and the sentences above them as one image."""
    with _style({"font.size": 10}):
        canvas = load_matplotlib("matplotlib.figure").Figure(figsize=(14, 16), layout="constrained")
        canvas.set_facecolor("white")
        lines = [line for text in said(analysis) for line in textwrap.wrap(text, 145)]
        canvas.suptitle("\n".join(lines), fontsize=12, color=PAPER_INK.text, ha="left", x=0.02)
        drawn = figures(analysis)
        places = canvas.subplot_mosaic(_PNG_ROWS, height_ratios=(1.1, 1, 1.1))
        for figure in drawn:
            axes = places[figure.name]
            _plain(axes, PAPER_INK)
            figure.draw(axes, PAPER_INK)
            caption = "\n".join(textwrap.wrap(figure.caption, 140 if figure is drawn[0] else 66))
            axes.set_title(caption, fontsize=9, loc="left", color=PAPER_INK.text)
        sink = io.BytesIO()
        canvas.savefig(sink, format="png", dpi=120, metadata={"Software": None})
    return sink.getvalue()


def check_installed() -> None:
    """Fail early, before anything is computed.

    Raises:
        InputError: matplotlib is not installed.
    """
    load_matplotlib("matplotlib.figure")


def _plain(axes: Any, ink: Ink) -> None:
    axes.patch.set_alpha(0)
    axes.tick_params(colors=ink.text)
    axes.grid(visible=False)
    for name, side in axes.spines.items():
        side.set_color(ink.faint)
        side.set_visible(name in ("left", "bottom"))


def _style(values: dict[str, Any]) -> Any:
    return load_matplotlib("matplotlib").rc_context(values)


def load_matplotlib(name: str) -> Any:
    """A module of matplotlib.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            "the report needs matplotlib, which is not installed",
            why=str(error),
            fix="pip install 'sm-advisor[train]'",
        ) from error
