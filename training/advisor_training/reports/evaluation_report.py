"""The report of an evaluation: how good is the model for jobs that it has not seen?

What the paper reports, and where, stands in its text: Han et al., "Energy-efficient GPU SM
allocation" (Stony Brook University): 16 workloads on a V100, 121 pairs at nine splits, objective
(X1 + X2) / W. Its gains over 50/50 are those of the splits that its model chose for workloads it
had not seen, not the oracle's; the model stays 1.5 % below the oracle on average (section 5.2). Its
pairs are averaged first over the pairs of one workload (figure 3).
"""

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.core.objectives import PER_WATT_OBJECTIVE, RAW_OBJECTIVE
from advisor_training.evaluation.check import checked_figures
from advisor_training.evaluation.errors import Error
from advisor_training.evaluation.methods import HEADLINE, OURS, PAPER
from advisor_training.evaluation.values import (
    Evaluation,
    errors_of_all_pairs,
    find_choices,
    to_json,
)
from advisor_training.learn.protocols import BY_WORKLOAD, PROTOCOLS, RANDOM_ROWS
from advisor_training.reports import evaluation_sentences, evaluation_tables
from advisor_training.reports.document import TextTable, signed, to_html, write_files
from advisor_training.reports.evaluation_figures import figures
from advisor_training.reports.evaluation_gpu_tables import gpu_tables

HTML_NAME, JSON_NAME = "evaluation.html", "evaluation.json"

CHECK_NAME = "evaluation-check.json"
"""The figures that `advisor evaluate --check` compares, in the form of the bundled ones."""

PAPER_TITLE = "Energy-efficient GPU SM allocation"


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """One number of the paper."""

    name: str
    percent: float
    place: str


MEAN_GAIN = PaperFigure("mean gain over 50/50", 35.0, "abstract; section 5.2, figure 3")
MOST_GAIN = PaperFigure("largest gain of a job's pairs", 60.6, "section 5.2, figure 3")
LEAST_GAIN = PaperFigure("smallest gain of a job's pairs", 12.0, "section 6: 12 % to 60 %")
BELOW_ORACLE = PaperFigure("its model's split below the oracle", 1.5, "abstract; section 5.2")


def write_evaluation(evaluation: Evaluation, folder: Path) -> tuple[Path, ...]:
    """Write page, values and checked figures into the folder, made when needed.

    Raises:
        StoreError: the files cannot be written.
    """
    contents = {
        HTML_NAME: page(evaluation).encode(),
        JSON_NAME: to_json(evaluation).encode(),
        CHECK_NAME: f"{json.dumps(checked_figures(evaluation), indent=2)}\n".encode(),
    }
    return write_files(contents, folder)


def page(evaluation: Evaluation) -> str:
    """What it says in short, the figures, then the tables."""
    return to_html(
        "evaluation.html",
        evaluation=evaluation,
        comparison=comparison(evaluation),
        figures=figures(evaluation),
        gpu_tables=gpu_tables(evaluation),
        headline_objectives=HEADLINE,
        paper_title=PAPER_TITLE,
        per_watt_objective=PER_WATT_OBJECTIVE,
        protocols=PROTOCOLS.values(),
        say=evaluation_sentences,
        tables=evaluation_tables,
    )


def comparison(evaluation: Evaluation) -> TextTable:
    """Each number that the paper's text gives, and the same by its method and by ours here."""
    return TextTable(
        "The paper, its method here, and the model",
        ("figure", "paper", "where", "its method here", "the model"),
        [*_choice_rows(evaluation), *_job_rows(evaluation), *_error_rows(evaluation)],
    )


def _choice_rows(evaluation: Evaluation) -> Iterator[Sequence[str]]:
    for objective in (RAW_OBJECTIVE, PER_WATT_OBJECTIVE):
        raw = objective == RAW_OBJECTIVE
        both = [find_choices(evaluation, method, objective) for method in (PAPER, OURS)]
        below = [f"-{100 - f.mean_percent:.1f} %" if f else "-" for f in both]
        over = [signed(f.over["equal"].mean_percent) if f else "-" for f in both]
        figure = BELOW_ORACLE
        yield (
            f"below the oracle, unseen job, {objective}",
            f"-{figure.percent:.1f} %" if raw else "-",
            figure.place if raw else "-",
            *below,
        )
        yield (f"mean gain over 50/50 of pairs, {objective}", "-", "-", *over)


def _job_rows(evaluation: Evaluation) -> Iterator[Sequence[str]]:
    """Figure 3: over the jobs that were left out, each the gain of its pairs' means."""
    for objective in (RAW_OBJECTIVE, PER_WATT_OBJECTIVE):
        raw, gains = objective == RAW_OBJECTIVE, evaluation.job_gains[objective]
        for figure, of in (
            (MEAN_GAIN, statistics.mean),
            (MOST_GAIN, max),
            (LEAST_GAIN, min),
        ):
            yield (
                f"{figure.name}, by job, {objective}",
                signed(figure.percent) if raw else "-",
                figure.place if raw else "-",
                *(signed(of(found)) if (found := gains.get(m)) else "-" for m in (PAPER, OURS)),
            )


def _error_rows(evaluation: Evaluation) -> Iterator[Sequence[str]]:
    rows = errors_of_all_pairs(evaluation)
    for protocol, known in ((RANDOM_ROWS, True), (BY_WORKLOAD, False)):
        both = [rows.get((protocol, method)) for method in (PAPER, OURS)]
        if any(both):
            sums = [_text(e.rates_sum) if e else "-" for e in both]
            powers = [_text(e.power) if e else "-" for e in both]
            said = ("below 10 %", "section 5.1, figure 1") if known else ("-", "-")
            yield (f"mean error of X1 + X2, {protocol}", *said, *sums)
            less = ("5 % to 10 % with X1 + X2", "section 1") if known else ("-", "-")
            yield (f"mean error of the power, {protocol}", *less, *powers)


def _text(error: Error | None) -> str:
    return f"{error.mean_percent:.1f} %" if error else "-"
