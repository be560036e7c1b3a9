"""Writes the evaluation's files."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from advisor.errors import StoreError
from advisor_training.evaluation_check import checked_figures
from advisor_training.evaluation_figures import to_png
from advisor_training.evaluation_page import to_html
from advisor_training.evaluation_values import Evaluation, to_json

HTML_NAME, PNG_NAME, JSON_NAME = "evaluation.html", "evaluation.png", "evaluation.json"

CHECK_NAME = "evaluation-check.json"
"""The figures that `advisor evaluate --check` compares, in the form of the bundled ones."""


def make_folder(folder: Path) -> None:
    """Make the folder before minutes of work, not after.

    Raises:
        StoreError: it cannot be made.
    """
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_evaluation(evaluation: Evaluation, folder: Path) -> tuple[Path, ...]:
    """Write page, image, values and checked figures into the folder, made when needed.

    Raises:
        StoreError: the files cannot be written.
    """
    make_folder(folder)
    checked = json.dumps(checked_figures(evaluation), indent=2) + "\n"
    contents = {
        HTML_NAME: to_html(evaluation).encode(),
        PNG_NAME: to_png(evaluation),
        JSON_NAME: to_json(evaluation).encode(),
        CHECK_NAME: checked.encode(),
    }
    with _writing(folder):
        for name, data in contents.items():
            (folder / name).write_bytes(data)
    return tuple(folder / name for name in contents)


@contextmanager
def _writing(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the evaluation cannot be written to {folder}",
            why=error.strerror or str(error),
            fix="give another folder with --out",
        ) from error
