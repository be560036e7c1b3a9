"""Figures of reports as one PNG image, for pages in `docs`."""

import io
import textwrap
from collections.abc import Iterable, Sequence

from advisor_training.reports.document import PAPER_INK, Figure, draw, matplotlib


def to_png(sentences: Iterable[str], figures: Sequence[Figure]) -> bytes:
    """All figures, two in a row, and the sentences above them."""
    rows = [figures[at : at + 2] for at in range(0, len(figures), 2)]
    heights = [max(figure.height for figure in row) for row in rows]
    places = [[row[0].name, row[-1].name if len(row) > 1 else "."] for row in rows]
    rc_context, canvas_of = matplotlib()
    with rc_context({"font.size": 10}):
        canvas = canvas_of(figsize=(14, 7 * sum(heights) + 2), layout="constrained")
        canvas.set_facecolor("white")
        lines = [line for text in sentences for line in textwrap.wrap(text, 145)]
        canvas.suptitle("\n".join(lines), fontsize=12, color=PAPER_INK.text, ha="left", x=0.02)
        mosaic = canvas.subplot_mosaic(places, height_ratios=heights)
        for figure in figures:
            axes = mosaic[figure.name]
            draw(figure, axes, PAPER_INK)
            caption = "\n".join(textwrap.wrap(figure.caption, 62))
            axes.set_title(caption, fontsize=9, loc="left", color=PAPER_INK.text, pad=26)
        sink = io.BytesIO()
        canvas.savefig(sink, format="png", dpi=100, metadata={"Software": None})
    return sink.getvalue()
