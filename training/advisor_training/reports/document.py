"""What every report is made of: figures, one HTML page, and its files."""

import functools
import importlib
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from advisor.errors import StoreError
from advisor.files import PUBLIC_FILE, open_home, replace_file
from advisor.settings import read_settings

BLUE, ORANGE, GREEN, RED, GREY = "#2b83ba", "#e08214", "#1b9e77", "#d7301f", "#8c8c8c"
"""Dark and light enough for both backgrounds, and apart for colour-blind readers."""


@dataclass(frozen=True, slots=True)
class Ink:
    """Colours of what is no data: text and axes, and faint lines."""

    text: str
    faint: str


PAPER_INK = Ink("#1b1f24", "#d5d9de")

SVG_INK = Ink("#010203", "#040506")
"""Stand-ins; the page puts its own colours in their place, which follow the reader's choice."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a report.

    Attributes:
        name: For identities in the page.
        draw: Draws it into axes of matplotlib.
        height: Of its width.
    """

    name: str
    caption: str
    draw: Callable[[Any, Ink], None]
    height: float
    wide: bool = False

    @property
    def svg(self) -> Markup:
        """An element with the page's colours, and identities that no other figure has."""
        svg = to_svg(self)
        svg = svg.replace(SVG_INK.text, "currentColor").replace(SVG_INK.faint, "var(--faint)")
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{self.name}-", svg)
        label = f'<svg role="img" aria-label="{escape(self.caption)}" '
        return Markup(svg.replace("<svg ", label, 1))


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of texts; the first column names the row."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def to_html(template: str, **values: Any) -> str:
    """A page that needs nothing else, from one of the templates."""
    room = Environment(
        loader=PackageLoader("advisor_training.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return room.get_template(template).render(values)


def to_svg(figure: Figure) -> str:
    """The figure as an SVG element without a background."""
    width_in = 5.4 if figure.wide else 4.6
    rc_context, canvas_of = matplotlib()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "advisor", "font.size": 8.5}):
        canvas = canvas_of(figsize=(width_in, width_in * figure.height), layout="constrained")
        draw(figure, canvas.add_subplot(), SVG_INK)
        sink = io.StringIO()
        canvas.savefig(sink, format="svg", transparent=True, metadata={"Date": None})
    text = sink.getvalue()
    return text[text.index("<svg") :]


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


def draw(figure: Figure, axes: Any, ink: Ink) -> None:
    """Draw a figure, with axes on the left and below only."""
    axes.patch.set_alpha(0)
    axes.tick_params(colors=ink.text)
    axes.grid(visible=False)
    for name, side in axes.spines.items():
        side.set_color(ink.faint)
        side.set_visible(name in ("left", "bottom"))
    figure.draw(axes, ink)


def _writing(folder: Path) -> AbstractContextManager[None]:
    what = f"nothing can be written to {folder}"
    return StoreError.instead_of(OSError, what, fix="give another folder with --out")


@functools.cache
def matplotlib() -> tuple[Any, Any]:
    """Its `rc_context` and `Figure`, whose types are known in part only.

    The list of fonts that it keeps is in our home, not in the folder of the user.
    """
    os.environ.setdefault("MPLCONFIGDIR", str(open_home(read_settings().home, ".matplotlib")))
    figure = importlib.import_module("matplotlib.figure")
    return importlib.import_module("matplotlib").rc_context, figure.Figure
