"""The report's figures; loads matplotlib when called, without its global state."""

import importlib
import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.errors import InputError
from advisor.objectives import DEFAULT_OBJECTIVE
from advisor_training.dataset import Analysis
from advisor_training.gains import LARGER_SHARES, Bin
from advisor_training.groups import GroupRow
from advisor_training.sentences import (
    RAW_OBJECTIVE,
    ceiling_sentence,
    headline,
    pair_count,
    where_it_pays,
    where_sharing_loses,
)

BLUE, ORANGE, GREEN, RED, GREY = "#2b83ba", "#e08214", "#1b9e77", "#d7301f", "#8c8c8c"
"""Dark and light enough for both backgrounds, and apart for colour-blind readers."""

BEST_OF_NINE = "best of nine"


@dataclass(frozen=True, slots=True)
class Ink:
    """Colours of what is no data: text and axes, and faint lines."""

    text: str
    faint: str


PAPER_INK = Ink("#1b1f24", "#d5d9de")

SVG_INK = Ink("#010203", "#040506")
"""Stand-ins; the page puts its own colours in their place, which follow the reader's choice."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the report.

    Attributes:
        name: For identities in the page.
        caption: What it shows and how to read it.
        draw: Draws it into axes of matplotlib.
        height: Of its width.
    """

    name: str
    caption: str
    draw: Callable[[Any, Ink], None]
    height: float


def figures(analysis: Analysis) -> tuple[Figure, ...]:
    """The figures, the most telling one first."""
    gains = "Each pair at its best of the nine splits and at three other ways to share, against"
    return (
        Figure(
            "gains",
            f"{gains} 50/50 (0 %), by {DEFAULT_OBJECTIVE}; pairs in the order of their gain. In "
            "the grey band a difference is no more than noise.",
            lambda axes, ink: _draw_gains(axes, ink, analysis, DEFAULT_OBJECTIVE),
            0.62,
        ),
        Figure(
            "gains-raw",
            f"The same by {RAW_OBJECTIVE}, the paper's objective, which adds up unlike units.",
            lambda axes, ink: _draw_gains(axes, ink, analysis, RAW_OBJECTIVE),
            0.62,
        ),
        Figure(
            "best-splits",
            "How many pairs have their best split where. Busier is the job with the higher SM "
            "activity alone; either: a job beside itself, or no such counter. What is within the "
            "noise of the best counts for the more even split.",
            lambda axes, ink: _draw_best_splits(axes, ink, analysis),
            0.55,
        ),
        Figure(
            "groups",
            "Mean gain over 50/50 by what the two jobs use of the GPU: compute, then memory, high "
            "(H) or low (L). The paper's bars are its model's splits on a V100, where its text "
            "gives a number; ours are the best of nine.",
            lambda axes, ink: _draw_groups(axes, ink, analysis),
            0.9,
        ),
    )


def to_svg(figure: Figure, width_in: float = 4.6) -> str:
    """The figure as an SVG element without a background."""
    with _style({"svg.fonttype": "none", "svg.hashsalt": "advisor", "font.size": 8.5}):
        canvas = _load("matplotlib.figure").Figure(
            figsize=(width_in, width_in * figure.height), layout="constrained"
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
        canvas = _load("matplotlib.figure").Figure(figsize=(14, 11), layout="constrained")
        canvas.set_facecolor("white")
        lines = [line for text in _said(analysis) for line in textwrap.wrap(text, 130)]
        canvas.suptitle("\n".join(lines), fontsize=13, color=PAPER_INK.text, ha="left", x=0.02)
        for axes, figure in zip(canvas.subplots(2, 2).flat, figures(analysis), strict=True):
            _plain(axes, PAPER_INK)
            figure.draw(axes, PAPER_INK)
            caption = "\n".join(textwrap.wrap(figure.caption, 76))
            axes.set_title(caption, fontsize=9, loc="left", color=PAPER_INK.text)
        sink = io.BytesIO()
        canvas.savefig(sink, format="png", dpi=120, metadata={"Software": None})
    return sink.getvalue()


def check_installed() -> None:
    """Fail early, before anything is computed.

    Raises:
        InputError: matplotlib is not installed.
    """
    _load("matplotlib.figure")


def _said(analysis: Analysis) -> list[str]:
    ceilings = [analysis.objectives[name] for name in (DEFAULT_OBJECTIVE, RAW_OBJECTIVE)]
    return [
        headline(analysis),
        where_it_pays(analysis),
        where_sharing_loses(analysis),
        *(f"Noise ceiling by {ceiling_sentence(report)}" for report in ceilings),
    ]


def _draw_gains(axes: Any, ink: Ink, analysis: Analysis, objective: str) -> None:
    values = [pair.objectives[objective] for pair in analysis.pairs]
    ordered = sorted(
        (v for v in values if v.oracle_percent is not None), key=lambda v: v.oracle_percent or 0
    )
    places = range(1, len(ordered) + 1)
    axes.bar(places, [v.oracle_percent for v in ordered], width=0.9, color=BLUE, label=BEST_OF_NINE)
    for label, marker, colour, series in (
        ("uncapped", "v", RED, [v.uncapped_percent for v in ordered]),
        ("time-sliced", "s", GREEN, [v.time_sliced_percent for v in ordered]),
        ("one after the other", "o", ORANGE, [v.exclusive_percent for v in ordered]),
    ):
        known = [(x, y) for x, y in zip(places, series, strict=True) if y is not None]
        if known:
            axes.scatter(*zip(*known, strict=True), s=12, marker=marker, color=colour, label=label)
    if ceiling := analysis.objectives[objective].ceiling:
        noise = ceiling.noise_percent
        axes.axhspan(-noise, noise, color=GREY, alpha=0.25, linewidth=0, label="noise")
    axes.axhline(0, color=ink.text, linewidth=0.8)
    axes.set_xticks([])
    axes.set_xlabel(f"{pair_count(len(ordered))}, by gain", color=ink.text)
    axes.set_ylabel(f"{objective}\nagainst 50/50, %", color=ink.text)
    _legend(axes, ink)


def _draw_best_splits(axes: Any, ink: Ink, analysis: Analysis) -> None:
    names = [*analysis.objectives]
    rows = [_counts(report.best_splits) for report in analysis.objectives.values()]
    most = max(count for row in rows for count in row)
    for y, row in enumerate(rows):
        for x, count in enumerate(row):
            shade = 0.04 + 0.8 * count / most
            axes.bar(x, 0.94, bottom=y - 0.47, width=0.94, color=BLUE, alpha=shade, linewidth=0)
            if count:
                axes.text(x, y, str(count), ha="center", va="center", color=ink.text)
    uneven = [str(share) for share in LARGER_SHARES[1:]]
    axes.set_xticks(range(len(rows[0])), [*reversed(uneven), "50/50", *uneven, "either"])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("% for the less busy job      |      % for the busier job", color=ink.text)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _counts(bins: Sequence[Bin]) -> list[int]:
    """Pairs at 90..60 % for the less busy job, at 50/50, at 60..90 % for the busier, undirected."""
    even, *uneven = bins
    return [
        *(b.to_other for b in reversed(uneven)),
        even.undirected,
        *(b.to_busier for b in uneven),
        sum(b.undirected for b in uneven),
    ]


def _draw_groups(axes: Any, ink: Ink, analysis: Analysis) -> None:
    raw = analysis.objectives[RAW_OBJECTIVE].groups
    default = analysis.objectives[DEFAULT_OBJECTIVE].groups
    bars = (
        ("paper (X1 + X2)/W", GREY, [row.paper_gain_percent for row in raw]),
        (f"ours, {RAW_OBJECTIVE}", ORANGE, [row.mean_percent for row in raw]),
        (f"ours, {DEFAULT_OBJECTIVE}", BLUE, [row.mean_percent for row in default]),
    )
    for number, (label, colour, values) in enumerate(bars):
        places = [y + 0.27 * (number - 1) for y in range(len(values))]
        axes.barh(places, [v or 0 for v in values], height=0.25, color=colour, label=label)
        for y, value in zip(places, values, strict=True):
            if value is not None:
                axes.text(value, y, f" {value:.1f}", va="center", fontsize=7, color=ink.text)
    axes.set_yticks(range(len(raw)), [_group_label(row) for row in raw])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("mean gain over 50/50, %", color=ink.text)
    _legend(axes, ink)


def _group_label(row: GroupRow) -> str:
    doubt = "" if row.paper_certain else "?"
    number = f"paper's group {row.paper_number}{doubt}" if row.paper_number else "not in the paper"
    return f"{row.classes[0]} with {row.classes[1]}, {pair_count(row.pairs)}\n{number}"


def _plain(axes: Any, ink: Ink) -> None:
    axes.patch.set_alpha(0)
    axes.tick_params(colors=ink.text)
    axes.grid(visible=False)
    for name, side in axes.spines.items():
        side.set_color(ink.faint)
        side.set_visible(name in ("left", "bottom"))


def _legend(axes: Any, ink: Ink) -> None:
    handles, labels = axes.get_legend_handles_labels()
    # Bars tell the most and are drawn first, but matplotlib lists them last.
    order = sorted(range(len(labels)), key=lambda n: labels[n] != BEST_OF_NINE)
    axes.legend(
        [handles[n] for n in order],
        [labels[n] for n in order],
        frameon=False,
        labelcolor=ink.text,
        fontsize="small",
        loc="best",
    )


def _style(values: dict[str, Any]) -> Any:
    return _load("matplotlib").rc_context(values)


def _load(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            "the report needs matplotlib, which is not installed",
            why=str(error),
            fix="pip install 'sm-advisor[train]'",
        ) from error
