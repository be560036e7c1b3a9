"""The report of an evaluation: how good is the model for jobs that it has not seen?"""

import json
from pathlib import Path

from advisor.core.objectives import PER_WATT_OBJECTIVE
from advisor_training.dataset import paper
from advisor_training.evaluation.check import checked_figures
from advisor_training.evaluation.methods import HEADLINE
from advisor_training.evaluation.values import Evaluation, to_json
from advisor_training.learn.protocols import PROTOCOLS
from advisor_training.reports import evaluation_sentences, evaluation_tables
from advisor_training.reports.document import to_html, to_png, write_files
from advisor_training.reports.evaluation_figures import figures
from advisor_training.reports.evaluation_gpu_tables import gpu_tables
from advisor_training.reports.evaluation_paper import comparison

HTML_NAME, PNG_NAME, JSON_NAME = "evaluation.html", "evaluation.png", "evaluation.json"

CHECK_NAME = "evaluation-check.json"
"""The figures that `advisor evaluate --check` compares, in the form of the bundled ones."""


def write_evaluation(evaluation: Evaluation, folder: Path) -> tuple[Path, ...]:
    """Write page, image, values and checked figures into the folder, made when needed.

    Raises:
        StoreError: the files cannot be written.
    """
    contents = {
        HTML_NAME: page(evaluation).encode(),
        PNG_NAME: to_png(evaluation_sentences.said(evaluation), figures(evaluation)),
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
        paper=paper,
        per_watt_objective=PER_WATT_OBJECTIVE,
        protocols=PROTOCOLS.values(),
        say=evaluation_sentences,
        tables=evaluation_tables,
    )
