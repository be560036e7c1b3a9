"""What `advisor power reorder` says to a person and to a program."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from advisor_cli.shared.console import print_table
from advisor_power.reorder.reordering import Reordered, Reordering
from advisor_power.reorder.saving import Saving
from advisor_power.tensors.types import shown

_NOT_MEASURED = "not-measured"
_HEADINGS = ("hidden units", "dtype", "toggle before", "after", "change", "outputs off, fp32")


def as_json(found: Reordering, saving: Saving | None) -> dict[str, Any]:
    """The answer for programs; its keys stay."""
    return {
        "files": [{"old": str(old), "new": str(new)} for old, new in found.files.items()],
        "layers": [_layer_json(one) for one in found.layers],
        "saving": None if saving is None else asdict(saving),
        "verdict": _NOT_MEASURED if saving is None else saving.verdict,
    }


def show(found: Reordering) -> None:
    """A line for each layer, and the new files."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("out of hidden units", overflow="fold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found.layers:
        table.add_row(*map(Text, _cells(one)))
    print_table(table, width=140)
    typer.echo("\ntoggle: bits of that weight that differ between neighbours along the contraction")
    for new in found.files.values():
        typer.echo(f"written: {new}")


def verdict_line(found: Reordering, saving: Saving | None) -> str:
    """Whether power is saved."""
    if not found.files:
        return "no order was found in which fewer bits switch: nothing was written"
    if saving is None:
        return "what it saves was not measured: --measure, on a GPU"
    what = "energy" if saving.quantity == "energy" else "power"
    margin = f"{100 * saving.value:+.2f} +-{100 * saving.half_width:.2f} % of {what}"
    says = {
        "confirmed": "a saving",
        "refuted": "refuted: less than 1 %",
        "open": "open: the error is too large",
    }[saving.verdict]
    return f"{shown(saving.layer)} saves {margin}, {says}"


def _layer_json(one: Reordered) -> dict[str, Any]:
    found, agreement = one.found, one.agreement
    return {
        "layer": one.layer.name,
        "hidden_units": one.layer.down.size,
        "dtype": one.layer.down.tensor.dtype,
        "switching_before": found.before,
        "switching_after": found.after,
        "change": found.change,
        "agreement": None if agreement is None else asdict(agreement),
    }


def _cells(one: Reordered) -> Iterator[str]:
    found, down = one.found, one.layer.down
    yield shown(down.tensor.name or down.file.path.name)
    yield str(down.size)
    yield down.tensor.dtype
    yield f"{100 * found.before:.2f} %"
    yield f"{100 * found.after:.2f} %"
    yield f"{100 * found.change:+.2f} %"
    yield "" if one.agreement is None else f"{one.agreement.rounding:.1e}"
