"""What every page is made of: the document around it, its figures, and its files."""

import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from html import escape
from importlib import resources
from pathlib import Path

from advisor.errors import StoreError
from advisor.files.whole_files import PUBLIC_FILE, replace_file
from advisor_training.dataset_report.figures import SVG_INK, Figure, to_svg


def document(title: str, parts: Iterable[str]) -> str:
    """A page that needs nothing else, from what is in it."""
    style = resources.files("advisor_training").joinpath("page.css").read_text("utf-8")
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def drawn(figures: Iterable[Figure]) -> str:
    """Figures side by side where there is room."""
    inside = "\n".join(map(_figure, figures))
    return f'<div class="figures">\n{inside}\n</div>'


def make_folder(folder: Path) -> None:
    """Make the folder: before minutes of work, not after.

    Raises:
        StoreError: it cannot be made.
    """
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write_files(contents: Mapping[str, bytes], folder: Path) -> tuple[Path, ...]:
    """Write files by name into the folder, which is made when needed.

    Raises:
        StoreError: the files cannot be written.
    """
    make_folder(folder)
    with _writing(folder):
        return tuple(
            replace_file(folder / name, data, PUBLIC_FILE) for name, data in contents.items()
        )


@contextmanager
def _writing(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"nothing can be written to {folder}",
            why=error.strerror or str(error),
            fix="give another folder with --out",
        ) from error


def _figure(figure: Figure) -> str:
    """The figure with the page's colours, and identities that no other figure has."""
    svg = to_svg(figure)
    svg = svg.replace(SVG_INK.text, "currentColor").replace(SVG_INK.faint, "var(--faint)")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{figure.name}-", svg)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(figure.caption)}" ', 1)
    return f"<figure>\n{svg}\n<figcaption>{escape(figure.caption)}</figcaption>\n</figure>"
