"""Writes the report's files."""

import os
from pathlib import Path

from advisor.errors import StoreError
from advisor_training.dataset import Analysis
from advisor_training.figures import to_png
from advisor_training.page import to_html

HTML_NAME, PNG_NAME = "dataset.html", "dataset.png"


def write_report(analysis: Analysis, folder: Path) -> tuple[Path, ...]:
    """Write the page and the image into the folder, which is made when needed.

    Raises:
        InputError: matplotlib is not installed.
        StoreError: the files cannot be written.
    """
    contents = {HTML_NAME: to_html(analysis).encode(), PNG_NAME: to_png(analysis)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(_replace(folder / name, data) for name, data in contents.items())
    except OSError as error:
        raise StoreError(
            f"the report cannot be written to {folder}",
            why=error.strerror or str(error),
            fix="give another folder with --out",
        ) from error


def _replace(path: Path, data: bytes) -> Path:
    """Write beside the file and swap, so that a full disk leaves the old report."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
