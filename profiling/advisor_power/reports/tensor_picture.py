"""One picture of the matrices of a file: how many bits switch, and what power is expected."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from advisor.errors import InputError
from advisor_training.reports.document import (
    BLUE,
    ORANGE,
    PAPER_INK,
    SVG_INK,
    Figure,
    Ink,
    to_html,
    to_svg,
    write_files,
)

MOST_BARS = 40
"""More cannot be read."""

_NAME_LENGTH = 40


@dataclass(frozen=True, slots=True)
class TensorBar:
    """One matrix."""

    name: str
    toggle: float
    """Part of the bits that switch in a row."""
    power_w: float | None
    """Expected; None: not known."""


def check_picture(path: Path) -> None:
    """Check that a picture can be written under that name: before minutes of work, not after.

    Raises:
        InputError: it ends in something else than .svg or .html.
    """
    if path.suffix not in (".svg", ".html"):
        raise InputError(
            f"--picture {path} is neither .svg nor .html", fix=f"write {path.stem}.svg"
        )


def write_picture(path: Path, title: str, bars: Sequence[TensorBar]) -> None:
    """Write the first `MOST_BARS` matrices as an image or a page that needs nothing else.

    Raises:
        StoreError: it cannot be written.
    """
    figure = _figure(title, bars)
    if path.suffix == ".html":
        page = to_html("tensor.html", title=title, figures=(figure,))
    else:
        page = to_svg(figure).replace(SVG_INK.text, PAPER_INK.text)
        page = page.replace(SVG_INK.faint, PAPER_INK.faint)
        page = page.replace("<svg ", '<svg style="background: white" ', 1)
    write_files({path.name: page.encode()}, path.parent)


def _figure(title: str, bars: Sequence[TensorBar]) -> Figure:
    shown = bars[:MOST_BARS]
    left = f" The first {len(shown)} of {len(bars)} matrices." if len(shown) < len(bars) else ""
    known = any(bar.power_w is not None for bar in shown)
    dots = " Dots are the expected power of the GPU (upper axis), where there is one." * known
    caption = f"{title}: bits that switch from one element of a row to the next.{dots}{left}"
    return Figure("tensors", caption, partial(_draw, shown), 0.25 + 0.035 * len(shown), wide=True)


def _draw(bars: Sequence[TensorBar], axes: Any, ink: Ink) -> None:
    places = range(len(bars))
    axes.barh(places, [100 * bar.toggle for bar in bars], color=BLUE, height=0.6)
    axes.set_yticks(places, [_short(bar.name) for bar in bars], parse_math=False)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlabel("bits that switch in a row, %", color=ink.text)
    known = [(bar.power_w, at) for at, bar in zip(places, bars, strict=True) if bar.power_w]
    if not known:
        return
    above = axes.twiny()
    above.patch.set_alpha(0)
    above.scatter(*zip(*known, strict=True), s=16, color=ORANGE, zorder=3)
    above.set_xlim(0, 1.1 * max(power_w for power_w, _ in known))
    above.tick_params(colors=ink.text)
    above.set_xlabel("expected power, W", color=ink.text)
    for side in above.spines.values():
        side.set_color(ink.faint)


def _short(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH else f"...{name[3 - _NAME_LENGTH :]}"
