"""Writes the evaluation's files."""

import json
from pathlib import Path

from advisor_training.dataset_report.page_parts import write_files
from advisor_training.evaluation.check import checked_figures
from advisor_training.evaluation.values import Evaluation, to_json
from advisor_training.evaluation_report.figures import to_png
from advisor_training.evaluation_report.page import to_html

HTML_NAME, PNG_NAME, JSON_NAME = "evaluation.html", "evaluation.png", "evaluation.json"

CHECK_NAME = "evaluation-check.json"
"""The figures that `advisor evaluate --check` compares, in the form of the bundled ones."""


def write_evaluation(evaluation: Evaluation, folder: Path) -> tuple[Path, ...]:
    """Write page, image, values and checked figures into the folder, made when needed.

    Raises:
        StoreError: the files cannot be written.
    """
    checked = json.dumps(checked_figures(evaluation), indent=2) + "\n"
    contents = {
        HTML_NAME: to_html(evaluation).encode(),
        PNG_NAME: to_png(evaluation),
        JSON_NAME: to_json(evaluation).encode(),
        CHECK_NAME: checked.encode(),
    }
    return write_files(contents, folder)
