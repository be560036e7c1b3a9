"""`advisor power tensor`: what of the matrices of a file decides the power of their products."""

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.shared.console import plain_console
from advisor.cli.shared.options import AsJson
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor_profiling.operands.in_file import Chosen, MatrixPrint

# What needs numpy is imported in the command: `advisor --help` works without it.


def tensor(
    file: Annotated[Path, typer.Argument(help="A safetensors or npy file; never a pickle")],
    name: Annotated[
        list[str] | None,
        typer.Option("--tensor", metavar="NAME", help="Only this one; may be given more than once"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How many bits of each matrix are set, switch and are zero: its fingerprint.

    Power of a matrix product follows the bits that switch. Files of any size: only a sample is
    read. The matrix whose bits switch most along its rows comes first.
    """
    if missing := [n for n in ("numpy", "ml_dtypes") if not importlib.util.find_spec(n)]:
        raise InputError(
            f"reading tensors needs {' and '.join(missing)}, which are not installed",
            fix="pip install 'sm-advisor[train]'",
        )
    from advisor.cli.power import tensor_text
    from advisor_profiling.operands.in_file import chosen_in

    chosen = chosen_in(file, name or ())
    found, stopped = _looked_at(chosen)
    found.sort(key=lambda one: (-one.found.along, one.tensor))
    not_reached = len(chosen.matrices) - len(found)
    if as_json:
        typer.echo(json.dumps(tensor_text.as_json(chosen, found, not_reached)))
    else:
        tensor_text.show(chosen, found, not_reached)
    if stopped:
        raise typer.Exit(130)


def _looked_at(chosen: "Chosen") -> tuple["list[MatrixPrint]", bool]:
    """Fingerprints, and whether Ctrl-C came before the last one."""
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    found: list[MatrixPrint] = []
    columns = (MofNCompleteColumn(), TextColumn("matrices, left"), TimeRemainingColumn())
    console = plain_console(stderr=True)
    try:
        # Drawn on a terminal alone; in a log there would be a line for each state.
        with Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        ) as bar:
            task = bar.add_task("", total=len(chosen.matrices))
            for one in chosen.prints():
                found.append(one)
                bar.advance(task)
    except KeyboardInterrupt:
        return found, True
    return found, False
