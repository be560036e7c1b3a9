"""Writes the report's files."""

from pathlib import Path

from advisor_training.analysis.analysis import Analysis
from advisor_training.dataset_report.figures import to_png
from advisor_training.dataset_report.page import to_html
from advisor_training.dataset_report.page_parts import write_files

HTML_NAME, PNG_NAME = "dataset.html", "dataset.png"


def write_report(analysis: Analysis, folder: Path) -> tuple[Path, ...]:
    """Write the page and the image into the folder, which is made when needed.

    Raises:
        InputError: matplotlib is not installed.
        StoreError: the files cannot be written.
    """
    contents = {HTML_NAME: to_html(analysis).encode(), PNG_NAME: to_png(analysis)}
    return write_files(contents, folder)
