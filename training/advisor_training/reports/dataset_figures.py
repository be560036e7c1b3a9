"""The figures of a dataset of pairs: captions, and what each draws into its axes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from advisor.core.objectives import DEFAULT_OBJECTIVE, RAW_OBJECTIVE
from advisor.core.wording import count_of
from advisor_training.analysis.analysis import Analysis, PairReport
from advisor_training.analysis.gains import LARGER_SHARES, Bin
from advisor_training.analysis.groups import GroupRow
from advisor_training.reports.document import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Figure,
    Ink,
    signed,
)

BEST_OF_NINE = "best of nine"

_TO_LIGHTER, _TO_BUSIER = "larger share to the less busy job", "to the busier job"
_EITHER, _EVEN = "a job beside itself, or not known", "50/50 is as good"

_COLOURS = {_TO_LIGHTER: ORANGE, _TO_BUSIER: BLUE, _EITHER: GREEN, _EVEN: GREY}
"""Of a pair, by who gets more at its best split."""

_SHORT = {"HH": "compute + memory", "HL": "compute", "LH": "memory", "LL": "light"}
"""What a job of the class uses half of the GPU's time or more."""


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


def figures(analysis: Analysis) -> tuple[Figure, ...]:
    """The figures, the most telling one first."""
    known = analysis.objectives[DEFAULT_OBJECTIVE].ceiling is not None
    noise = _IN_THE_BAND if known else _NOISE_NOT_KNOWN
    ties = f" {_TIES}" if known else ""
    gains = partial(_draw_gains, analysis, DEFAULT_OBJECTIVE)
    raw = partial(_draw_gains, analysis, RAW_OBJECTIVE)
    return (
        Figure("when", f"{_WHEN} {noise}", partial(_draw_when, analysis), 0.62, wide=True),
        Figure("gains", f"{_GAINS} {noise}", gains, 0.62),
        Figure("gains-raw", _GAINS_RAW, raw, 0.62),
        Figure("best-splits", f"{_BEST_SPLITS}{ties}", partial(_draw_best_splits, analysis), 0.55),
        Figure("groups", _GROUPS, partial(_draw_groups, analysis), 0.9),
    )


def _draw_when(analysis: Analysis, axes: Any, ink: Ink) -> None:
    """The gain of every pair, in a row for each group, coloured by who gets the larger share."""
    report = analysis.objectives[DEFAULT_OBJECTIVE]
    rows = sorted((row for row in report.groups if row.pairs), key=lambda row: -_mean(row))
    places = {row.classes: y for y, row in enumerate(rows)}
    for label, colour in _COLOURS.items():
        dots = [
            (gain, places[pair.group])
            for pair in analysis.pairs
            if pair.group and favours(pair) == label
            if (gain := pair.objectives[DEFAULT_OBJECTIVE].oracle_percent) is not None
        ]
        if dots:
            axes.scatter(*zip(*dots, strict=True), s=22, color=colour, alpha=0.75, label=label)
    for y, row in enumerate(rows):
        axes.plot([_mean(row)] * 2, [y - 0.32, y + 0.32], color=ink.text, linewidth=1.6)
        axes.text(_mean(row), y - 0.36, signed(row.mean_percent), ha="center", color=ink.text)
    if ceiling := report.ceiling:
        axes.axvspan(0, ceiling.noise_percent, color=GREY, alpha=0.25, linewidth=0, label="noise")
    axes.axvline(0, color=ink.text, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [_row_label(row) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.8)
    axes.set_xlabel("best of nine over 50/50, %", color=ink.text)
    # The rows are in the order of their gains, so this corner is the emptiest.
    _legend(axes, ink, "lower right")


def favours(pair: PairReport) -> str:
    """Who gets more at the best split by the default objective."""
    found = pair.objectives[DEFAULT_OBJECTIVE]
    if not found.beyond_noise:
        return _EVEN
    return {"to_busier": _TO_BUSIER, "to_other": _TO_LIGHTER}.get(found.direction, _EITHER)


def _draw_gains(analysis: Analysis, objective: str, axes: Any, ink: Ink) -> None:
    """Every pair at its best of nine and at the other ways to share, in the order of the gain."""
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
    axes.set_xlabel(f"{count_of(len(ordered), 'pair')}, by gain", color=ink.text)
    axes.set_ylabel(f"{objective}\nagainst 50/50, %", color=ink.text)
    _legend(axes, ink)


def _draw_best_splits(analysis: Analysis, axes: Any, ink: Ink) -> None:
    """How many pairs have their best split where, a row for each objective."""
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


def _draw_groups(analysis: Analysis, axes: Any, ink: Ink) -> None:
    """The mean gain of each of the paper's groups, the paper's next to ours."""
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
    return f"{row.classes[0]} with {row.classes[1]}, {count_of(row.pairs, 'pair')}\n{number}"


def _legend(axes: Any, ink: Ink, place: str = "best") -> None:
    handles, labels = axes.get_legend_handles_labels()
    # Bars tell the most and are drawn first, but matplotlib lists them last.
    order = sorted(range(len(labels)), key=lambda n: labels[n] != BEST_OF_NINE)
    axes.legend(
        [handles[n] for n in order],
        [labels[n] for n in order],
        frameon=False,
        labelcolor=ink.text,
        fontsize="small",
        loc=place,
    )


def _mean(row: GroupRow) -> float:
    return row.mean_percent or 0.0


def _row_label(row: GroupRow) -> str:
    first, second = (_SHORT[code] for code in row.classes)
    return f"{first}\nwith {second}, {count_of(row.pairs, 'pair')}"
