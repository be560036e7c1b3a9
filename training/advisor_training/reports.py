"""The report of an evaluation: sentences and tables for the terminal, one page, and one JSON file.

Every number in the sentences is computed.
"""

import functools
import importlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from advisor.core.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, RAW_OBJECTIVE, Interval
from advisor.core.wording import count_of
from advisor.files import PUBLIC_FILE, open_home, replace_file
from advisor.predict.profiles import Floats
from advisor.settings import read_settings
from advisor_training.evaluation import (
    HEADLINE,
    OURS,
    PAPER,
    PHYSICAL,
    Evaluation,
    Some,
    errors_of_all_pairs,
    to_json,
)
from advisor_training.learners import BY_WORKLOAD, PROTOCOLS
from advisor_training.rows import flat
from advisor_training.scoring import QUESTIONS, ChoiceFigures, Errors
from advisor_training.train import write_into

_BLUE = "#2b83ba"  # dark and light enough for both backgrounds

# Text and axes, and faint lines: the page puts its own colours in their place, which follow the
# reader's choice.
_INK, _FAINT = "#010203", "#040506"


@dataclass(frozen=True, slots=True)
class _TextTable:
    """A table of texts; the first column names the row."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@functools.cache
def _matplotlib() -> tuple[Any, Any]:
    """Its `rc_context` and `Figure`, whose types are known in part only.

    The list of fonts that it keeps is in our home, not in the folder of the user.
    """
    os.environ.setdefault("MPLCONFIGDIR", str(open_home(read_settings().home, ".matplotlib")))
    figure = importlib.import_module("matplotlib.figure")
    return importlib.import_module("matplotlib").rc_context, figure.Figure


# Headings of the fractions by `HEADLINE`.
_ORACLES = ("oracle", "oracle, per watt", "oracle, raw")


def write_evaluation(evaluation: Evaluation, folder: Path) -> tuple[Path, ...]:
    """Write the page and the JSON file into the folder, which is made when needed.

    Raises:
        StoreError: the files cannot be written.
    """
    contents = {
        "evaluation.html": page(evaluation).encode(),
        "evaluation.json": to_json(evaluation).encode(),
    }
    write_into(
        folder,
        lambda to: [replace_file(to / n, data, PUBLIC_FILE) for n, data in contents.items()],
    )
    return tuple(folder / name for name in contents)


def page(evaluation: Evaluation) -> str:
    """The sentences, the figures, then all tables."""
    headline, *sentences = said(evaluation)
    room = Environment(
        loader=PackageLoader("advisor_training"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return room.get_template("evaluation.html").render(
        evaluation=evaluation,
        headline=headline,
        sentences=sentences,
        figures=[
            {"caption": caption, "svg": _scatter(name, caption, what, *values)}
            for name, caption, what, values in (
                (
                    "speeds",
                    "Relative speeds of jobs in pairs, at the nine splits: predicted by a model "
                    "that has not seen one of the two jobs, against measured. On the line both are "
                    "the same.",
                    "relative speed",
                    map(flat, evaluation.compared["speed"]),
                ),
                (
                    "power",
                    "The same for the power of the GPU.",
                    "power, W",
                    evaluation.compared["power"],
                ),
            )
        ],
        tables=[
            *printed_tables(evaluation, [name for name in OBJECTIVES if name != DEFAULT_OBJECTIVE]),
            *(_worst_choices(evaluation, name) for name in HEADLINE),
            _TextTable(
                f"{OURS}, by the job that was left out: fraction of the oracle and mean errors, "
                "in %",
                (
                    *("job", "SM active", "pairs", *HEADLINE),
                    *("own speed off by", "the other's", "power"),
                ),
                [
                    (
                        f"{job['job']}{' (launch-bound)' if job['launch_bound'] else ''}",
                        f"{job['sm_active_percent']:.0f}",
                        str(job["bars"][DEFAULT_OBJECTIVE]["choices"]),
                        *(f"{job['bars'][name]['fraction_percent']:.2f}" for name in HEADLINE),
                        *(
                            f"{error.mean_percent:.1f}" if error else "-"
                            for error in (job["own"], job["beside"], job["power"])
                        ),
                    )
                    for job in evaluation.jobs
                ],
            ),
        ],
        protocols=PROTOCOLS,
    )


def _scatter(name: str, caption: str, what: str, expected: Floats, measured: Floats) -> Markup:
    """Predicted against measured values: an SVG element with the page's colours.

    It has no background, and axes on the left and below only. Identities begin with the name, so
    that no other figure of the page has them.
    """
    rc_context, canvas_of = _matplotlib()
    style = {
        **{"svg.fonttype": "none", "svg.hashsalt": "advisor", "font.size": 8.5},
        **{"axes.facecolor": "none", "axes.edgecolor": _FAINT},
        **dict.fromkeys(("axes.grid", "axes.spines.top", "axes.spines.right"), False),
        **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    }
    with rc_context(style):
        canvas = canvas_of(figsize=(4.6, 3.68), layout="constrained")
        axes = canvas.add_subplot(xlabel=f"measured {what}", ylabel=f"predicted {what}")
        both = np.concatenate([measured, expected])
        ends = [float(both.min()), float(both.max())]
        axes.plot(ends, ends, color=_INK, linewidth=0.8)
        axes.scatter(measured, expected, s=5, color=_BLUE, alpha=0.45, linewidths=0)
        sink = io.StringIO()
        canvas.savefig(sink, format="svg", transparent=True, metadata={"Date": None})
    svg = sink.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor").replace(_FAINT, "var(--faint)")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{name}-", svg)
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{escape(caption)}" ', 1))


def _find_choices(
    evaluation: Evaluation, method: str, objective: str, pairs: Some = "all"
) -> ChoiceFigures | None:
    """A method's choices over some pairs, a job left out at a time; None where it was not asked."""
    return _choice_figures(evaluation, pairs).get((BY_WORKLOAD, method, objective))


def _choice_figures(evaluation: Evaluation, pairs: Some = "all") -> "pd.Series[Any]":
    """`ChoiceFigures` over some pairs, by protocol, method and objective."""
    rows = pd.DataFrame(evaluation.choices)
    return rows[rows["pairs"] == pairs].set_index(["protocol", "method", "objective"])["figures"]


def said(evaluation: Evaluation) -> Iterator[str]:
    """The sentences above the tables."""
    figures = _find_choices(evaluation, OURS, DEFAULT_OBJECTIVE)
    if not figures:
        yield "No choice could be scored."
    else:
        yield (
            f"In {figures.choices} choices for {count_of(figures.pairs, 'pair')} of "
            f"{figures.jobs} jobs, one of which it has not seen, the model saves "
            f"{_between(figures.saved)} of the energy for the same work (median "
            f"{figures.saved_median.value:.1f} %), one after the other where sharing does not pay; "
            f"{figures.loses.value:.0f} % of the choices cost more energy. Work is done "
            f"{figures.stp.value:.2f} times as fast, the slower job runs at "
            f"{figures.slower.value:.0f} % of its speed alone."
        )
    groups: tuple[tuple[str, Some], ...] = (
        ("with a server", "with a server"),
        ("without", "without a server"),
    )
    if servers := [
        f"{words} {_between(figures.saved)} ({figures.choices} choices, {figures.pairs} pairs, "
        f"{figures.jobs} jobs; missed {figures.missed.value if figures.missed else 0:.0f} %)"
        for words, pairs in groups
        if (figures := _find_choices(evaluation, OURS, DEFAULT_OBJECTIVE, pairs))
    ]:
        yield f"It saves {', '.join(servers)}."
    others = [
        f"{words} {figures.saved.value:+.1f} % (costs more in {figures.loses.value:.0f} %)"
        for method, words in {
            PHYSICAL: "physics without learning",
            "equal": "50/50",
            "uncapped": "no limits",
            PAPER: "the paper's method",
            "larger-rate": "90 % for the larger raw rate",
        }.items()
        if (figures := _find_choices(evaluation, method, DEFAULT_OBJECTIVE))
    ]
    ours = [
        f"{figures.fraction.value:.1f} % by {name}"
        for name in HEADLINE
        if (figures := _find_choices(evaluation, OURS, name))
    ]
    yield f"In the same pairs: {', '.join(others)}. Of the oracle it reaches {', '.join(ours)}."
    yield _missed_speeds(evaluation)
    yield _errors_and_intervals(evaluation)
    basis = evaluation.basis
    yield (
        f"{count_of(basis['splits'], 'split')} of {count_of(basis['pairs'], 'pair')} of "
        f"{count_of(basis['jobs'], 'job')} on {count_of(basis['cards'], 'card')} of "
        f"{', '.join(basis['gpu_models'])}; {basis['launch_bound_pairs']} of the pairs have a "
        "launch-bound job. Brackets are 95 % intervals by a bootstrap over jobs."
    )
    gpus = [
        f"{_between(default.saved)} on the {gpu['left_out']} "
        f"({default.fraction.value:.1f} % of the oracle)"
        for gpu in evaluation.gpus
        if (default := gpu["fractions"].get(DEFAULT_OBJECTIVE))
    ]
    if evaluation.gpus:
        yield (
            "Learned from the other GPU models only, and without the job, it saves "
            f"{', '.join(gpus)}."
        )
    elif not evaluation.quick:
        yield (
            "These pairs do not tell how good it is on another GPU model: leaving one out takes "
            "pairs of two."
        )


def _missed_speeds(evaluation: Evaluation) -> str:
    least = QUESTIONS[DEFAULT_OBJECTIVE].min_speed
    wanted = (BY_WORKLOAD, OURS, least, "as advised")
    missed = next(
        (
            row["missed"]
            for row in evaluation.limits
            if (row["protocol"], row["method"], row["min_speed"], row["kept"]) == wanted
        ),
        None,
    )
    return (
        f"Of the choices that share, {_between(missed)} leave a job below {least:g} of its speed, "
        "or a server below all of its demand."
        if missed
        else "No choice shares the GPU."
    )


def _errors_and_intervals(evaluation: Evaluation) -> str:
    errors = errors_of_all_pairs(evaluation)[BY_WORKLOAD, OURS]
    misses = [
        f"{words} by {error.mean_percent:.1f} % (median {error.median_percent:.1f} %)"
        for words, error in (("rates", errors.rate), ("power", errors.power))
        if error
    ]
    held = [
        f"{100 * coverage.overall:.0f} % of {name}"
        for name, coverage in evaluation.coverage.items()
    ]
    return (
        f"It misses {' and '.join(misses)} at the nine splits. Its intervals for "
        f"{evaluation.wanted_coverage:.0%} hold {' and '.join(held)}."
    )


def _between(interval: Interval) -> str:
    return f"{interval.value:.1f} % [{interval.low:.1f} {interval.high:.1f}]"


def printed_tables(
    evaluation: Evaluation, objectives: Sequence[str] = HEADLINE[1:]
) -> list[_TextTable]:
    """The tables of the terminal, those without rows left out; `objectives` of the second one."""
    figures, errors = _choice_figures(evaluation), errors_of_all_pairs(evaluation)
    # Every method and rule by energy for the same work, a job left out at a time.
    unseen = figures.xs((BY_WORKLOAD, DEFAULT_OBJECTIVE), level=("protocol", "objective"))
    # Mean fraction of the oracle by other objectives, among the nine splits, any speed allowed.
    cells = figures[BY_WORKLOAD].map(attrgetter("fraction")).map(_bounded)
    rows = cells.unstack(sort=False).reindex(columns=[*objectives]).fillna("-").itertuples()
    ceilings = [evaluation.ceilings[name] for name in objectives]
    noise = [f"{c['mean_percent']:.2f}" if c else "-" for c in ceilings]
    # Each method under each protocol: what it saves, and how far it is off.
    steps = [step for name in PROTOCOLS for step in errors.index if step[0] == name]
    tables = [
        _TextTable(
            "Jobs that were not seen: energy saved for the same work against one after the other, "
            f"each job to keep {QUESTIONS[DEFAULT_OBJECTIVE].min_speed:g} of its speed; means in % "
            "with 95 % intervals by job",
            (
                *("method", "choices", "saved", "median", "lose", "STP", "slower job", "share"),
                *("missed", "of the oracle", "worst"),
            ),
            [
                (
                    *(str(method), str(f.choices), _bounded(f.saved, 1)),
                    *(f"{f.saved_median.value:.1f}", _lose(f), f"{f.stp.value:.2f}"),
                    *(f"{f.slower.value:.0f}", f"{f.shared.value:.0f}", _bounded(f.missed, 0)),
                    *(_bounded(f.fraction), f"{f.worst_percent:.1f}"),
                )
                for method, f in sorted(unseen.items(), key=lambda row: -row[1].saved.value)
            ],
        ),
        _TextTable(
            "Jobs that were not seen, by other objectives: mean fraction of the best of the nine "
            "splits, whatever speed a job keeps, in % with 95 % intervals by job",
            ("method", *objectives),
            [("noise ceiling", *noise), *((str(method), *row) for method, *row in rows)],
        ),
        _TextTable(
            "By what is left out of training: energy saved, choices that lose, fraction of the "
            "oracle, and errors at the nine splits, mean | median, in %",
            ("left out, method", "saved", "lose", *_ORACLES, "rate", "power"),
            [
                (
                    f"{protocol}, {method}",
                    _bounded(default and default.saved, 1),
                    _lose(default),
                    *(_mean_of(figures.get((protocol, method, name))) for name in HEADLINE),
                    *_error_cells(errors[protocol, method]),
                )
                for protocol, method in steps
                for default in [figures.get((protocol, method, DEFAULT_OBJECTIVE))]
            ],
        ),
        # How often a job is slower than it was to be, by what is left out of training.
        _TextTable(
            "Minimum speeds that are missed, part of the choices that share, in % with 95 % "
            "intervals by job, by what is to keep it where a way is chosen: low ends of servers "
            "and expected speeds of others, as advised; all low ends; all expected speeds",
            ("left out, method", "each job keeps", "by", "share", "missed", "saved"),
            [
                (
                    f"{row['protocol']}, {row['method']}",
                    f"{row['min_speed']:g}",
                    row["kept"],
                    f"{row['shared'].value:.1f}",
                    _bounded(row["missed"]),
                    _bounded(row["saved"]),
                )
                for row in evaluation.limits
                if row["method"] == OURS
                or (row["method"], row["protocol"]) == (PHYSICAL, BY_WORKLOAD)
            ],
        ),
        # Launch-bound jobs, the power limit, uncapped: where errors come from.
        _TextTable(
            "Errors for jobs that were not seen, mean | median in %",
            ("method, pairs or rows, splits", "rows", "rate", "power"),
            [
                (
                    f"{row['method']}, {row['pairs']}, {row['splits']}",
                    str(row["errors"].rows),
                    *_error_cells(row["errors"]),
                )
                for row in evaluation.errors
                if row["protocol"] == BY_WORKLOAD and row["method"] in (OURS, PHYSICAL)
                if row["splits"] == "nine" or (row["method"], row["pairs"]) == (OURS, "all")
            ],
        ),
        # How much the intervals hold of jobs that took no part in making them.
        _TextTable(
            f"What intervals for {evaluation.wanted_coverage:.0%} hold of unseen jobs in other "
            "runs on other cards, by what the jobs are beside each other, in %",
            ("of", "where", "held"),
            [
                (name, situation, f"{100 * part:.2f}")
                for name, coverage in evaluation.coverage.items()
                for situation, part in [
                    ("all", coverage.overall),
                    ("worst job", coverage.least),
                    *sorted(coverage.strata.items()),
                ]
            ],
        ),
        # The model by the seed of its trees.
        _TextTable(
            f"{OURS} grown from other seeds, jobs that were not seen, in %",
            ("seed", "saved", "share", "missed", *_ORACLES, "rate", "power"),
            [
                (
                    str(seed["seed"]),
                    f"{seed['saved_percent']:.2f}",
                    f"{seed['shared_percent']:.0f}",
                    "-" if seed["missed_percent"] is None else f"{seed['missed_percent']:.1f}",
                    *(f"{seed['fractions'][name]:.2f}" for name in HEADLINE),
                    *_error_cells(seed["errors"]),
                )
                for seed in evaluation.seeds
            ],
        ),
        *gpu_tables(evaluation),
    ]
    return [table for table in tables if table.rows]


_FIGURES = ("saved", "lose", "oracle", "worst", "oracle, raw", "worst, raw", "rate", "power")
_HELD = ("speed held", "power held")


def gpu_tables(evaluation: Evaluation) -> list[_TextTable]:
    """Each GPU model left out with the tested job, then with some pairs of it learned from."""
    return [
        _TextTable(
            "A GPU model and a job that were not learned from: fraction of the oracle, errors, "
            f"mean | median, and what intervals for {evaluation.wanted_coverage:.0%} hold, in %",
            (
                "left out", "learned pairs", "pairs", *_FIGURES, *_HELD, "speed wider by",
                "power wider by",
            ),
            [
                (
                    *(str(gpu[name]) for name in ("left_out", "learned_pairs", "pairs")),
                    *_gpu_cells(gpu),
                    *(f"{factor:.2f}" for factor in gpu["widening"].values()),
                )
                for gpu in evaluation.gpus
            ],
        ),
        _TextTable(
            "With pairs of that GPU model learned from, its other pairs: the same figures",
            ("left out", "pairs added", "draws", *_FIGURES, *_HELD),
            [
                (
                    *(str(point[name]) for name in ("left_out", "added_pairs", "draws")),
                    *_gpu_cells(point),
                )
                for point in evaluation.gpu_curve
            ],
        ),
    ]  # fmt: skip


def _gpu_cells(found: Mapping[str, Any]) -> tuple[str, ...]:
    fractions: Mapping[str, ChoiceFigures] = found["fractions"]
    default, raw = fractions.get(DEFAULT_OBJECTIVE), fractions.get(RAW_OBJECTIVE)
    return (
        *(_bounded(default and default.saved), _lose(default)),
        *(_mean_of(default), f"{default.worst_percent:.1f}" if default else "-"),
        *(_mean_of(raw), f"{raw.worst_percent:.1f}" if raw else "-"),
        *_error_cells(found["errors"]),
        *(f"{100 * part:.1f}" for part in found["held"].values()),
    )


def _worst_choices(evaluation: Evaluation, objective: str) -> _TextTable:
    worst = sorted(evaluation.chosen[objective], key=lambda choice: choice.fraction)[:12]
    return _TextTable(
        f"The choices that lose most by {objective}, in %",
        ("pair", "left out", "chosen", "oracle", "of the oracle", "energy saved"),
        [
            (
                " with ".join(choice.jobs),
                choice.left_out,
                choice.chosen,
                choice.oracle,
                f"{100 * choice.fraction:.2f}",
                f"{100 * choice.energy_saved:.2f}",
            )
            for choice in worst
        ],
    )


def _bounded(interval: Interval | None, digits: int = 2) -> str:
    """A figure and its 95 % interval."""
    if interval is None:
        return "-"
    value, low, high = (
        f"{end:.{digits}f}" for end in (interval.value, interval.low, interval.high)
    )
    return f"{value} [{low} {high}]"


def _lose(figures: ChoiceFigures | None) -> str:
    return f"{figures.loses.value:.0f}" if figures else "-"


def _mean_of(figures: ChoiceFigures | None) -> str:
    return f"{figures.fraction.value:.2f}" if figures else "-"


def _error_cells(errors: Errors) -> Iterator[str]:
    """Errors of rates and of the power: mean | median, percent."""
    yield from (
        (f"{error.mean_percent:.1f} | {error.median_percent:.1f}" if error else "-")
        for error in (errors.rate, errors.power)
    )
