"""Makes the pictures of docs/pages.md from those that the tests of the pages took.

    make test ARGS="tests/integration/test_pages.py tests/integration/test_audit_command.py"
    .venv/bin/python docs/pages/renew.py

Look at them before committing. The launch and the audited site are made up; all other numbers are
those of the bundled measurements and the bundled model, a job `mine` of the tests among them.
"""

from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
TAKEN = ROOT / "build/screenshots"
HERE = Path(__file__).parent

COLOURS = 256
"""Enough for pages of few colours; a picture is then half as large."""

HEIGHTS = {
    "jobs-light": 1100,
    "set-light": 1950,
    "queue-light": 1150,
    "job-light": 1500,
    "pair-light": 2400,
    "pair-phone": 1900,
    "models-light": 820,
    "model-light": 1900,
    "launches-light": 500,
    "launch-light": 1500,
    "launch-phone": 1900,
    "audit-light": 1900,
}
"""Each picture, and how many pixels of it are shown at most."""


def main() -> None:
    """Cut, take out colours, write."""
    for name, height in HEIGHTS.items():
        shorten(TAKEN / f"{name}.png", height, HERE / f"{name}.png")


def shorten(path: Path, height: int, kept: Path) -> None:
    """Keep the upper part of a picture, in few colours."""
    with Image.open(path) as taken:
        shown = taken.convert("RGB").crop((0, 0, taken.width, min(height, taken.height)))
    # The usual method joins rare colours, and the rare ones here have a meaning.
    few = shown.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(kept, optimize=True)


if __name__ == "__main__":
    main()
