"""What `advisor power tensor` says to a person and to a program."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from advisor.cli.shared.console import print_table
from advisor_profiling.operands.in_file import Chosen, MatrixPrint
from advisor_profiling.tensors.types import shape_text, shown

_HEADINGS = (
    "dtype",
    "shape",
    "toggle in row",
    "toggle across rows",
    "bits set",
    "zero",
    "distinct",
)


def as_json(chosen: Chosen, found: Sequence[MatrixPrint], not_reached: int) -> dict[str, Any]:
    """The answer for programs; its keys stay."""
    return {
        "file": str(chosen.file.path),
        "matrices": [one.as_json() for one in found],
        "left_out": [dataclasses.asdict(one) for one in chosen.left_out],
        "not_reached": not_reached,
    }


def show(chosen: Chosen, found: Sequence[MatrixPrint], not_reached: int) -> None:
    """One line for each matrix, and what was left out."""
    if found:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("tensor", overflow="fold")
        for heading in _HEADINGS:
            table.add_column(heading, justify="right", no_wrap=True)
        for one in found:
            table.add_row(*map(Text, _cells(one)))
        print_table(table, width=140)
        typer.echo("\n% of all bits, of elements that are 0, and of different values in a sample")
    for reason, count in Counter(one.why for one in chosen.left_out).most_common():
        typer.echo(f"left out {count}: {reason}")
    if not chosen.matrices:
        typer.echo("no matrix to look at")
    if not_reached:
        typer.echo(f"stopped with {not_reached} of {len(chosen.matrices)} matrices to go", err=True)


def _cells(one: MatrixPrint) -> tuple[str, ...]:
    bits = one.found
    parts = (bits.along, bits.across, bits.weight, bits.zeros, bits.distinct)
    numbers = (f"{100 * part:.1f} %" for part in parts)
    return (shown(one.tensor) or "-", one.dtype, shape_text(one.shape), *numbers)
