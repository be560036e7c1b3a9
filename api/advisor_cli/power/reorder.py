"""`advisor power reorder`: hidden units in an order in which fewer bits switch."""

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from advisor.errors import InputError
from advisor.settings import read_settings
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.options import AllowUnsafe, AsJson
from advisor_cli.shared.stopping import stoppable

if TYPE_CHECKING:
    from advisor_power.inputs.opening import Where
    from advisor_power.reorder.reordering import Reordering
    from advisor_power.reorder.saving import Saving

# What needs numpy is imported in the command: `advisor --help` works without it.


def reorder(
    files: Annotated[list[Path], typer.Argument(help="All safetensors of a network, or npy files")],
    layer: Annotated[
        list[str] | None,
        typer.Option(help="Such as fc1:fc2, gated gate,up:down; may be repeated; else known ones"),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Folder of the new files; else beside")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure what it saves, of the best layer")
    ] = False,
    activations: Annotated[
        Path | None, typer.Option(help="Matrix of (tokens, hidden units) to measure with")
    ] = None,
    units: Annotated[
        int | None, typer.Option(min=1, help="SMs, under MPS; else the whole GPU")
    ] = None,
    gpu: Annotated[str, typer.Option(help="Index or UUID")] = "0",
    python: Annotated[str, typer.Option(help="Interpreter that has PyTorch")] = "python3",
    allow_unsafe: AllowUnsafe = False,
    as_json: AsJson = False,
) -> None:
    """Does another order of hidden units draw less power? The network computes the same.

    Rows of the weight into hidden units, its bias, and columns of the weight out of them move
    together, so that fewer bits switch along the contraction. A new file is written beside the old
    one, whose outputs were compared. docs/reorder.md.
    """
    if missing := [n for n in ("numpy", "ml_dtypes") if not importlib.util.find_spec(n)]:
        raise InputError(
            f"reading tensors needs {' and '.join(missing)}, which are not installed",
            fix="pip install 'sm-advisor[train]'",
        )
    if activations is not None and not measure:
        raise InputError("--activations is for --measure", fix="add --measure, or leave it out")
    from advisor_cli.power import reorder_text
    from advisor_power.inputs.opening import Where

    console = plain_console(stderr=True)
    known = None if activations is None else _matrix(activations)
    found = _reordered(files, layer or [], to, console)
    if not as_json:
        reorder_text.show(found)
    saving = None
    if measure and found.files:
        where = Where(gpu=gpu, units=units, python=python, allow_unsafe=allow_unsafe)
        saving = _measured(found, where, known, console)
    if as_json:
        typer.echo(json.dumps(reorder_text.as_json(found, saving)))
    else:
        typer.echo(reorder_text.verdict_line(found, saving))


def _matrix(path: Path) -> Any:
    from advisor_power.tensors.tensor_file import open_tensors

    file = open_tensors(path)
    return file.matrix(file.tensor())


def _reordered(
    files: list[Path], layers: list[str], to: Path | None, console: Console
) -> "Reordering":
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from advisor_power.reorder import reordering

    columns = (MofNCompleteColumn(), TextColumn("layers, left"), TimeRemainingColumn())
    try:
        # Drawn on a terminal alone; in a log there would be a line for each state.
        with Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        ) as bar:
            task = bar.add_task("")

            def report(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            return reordering.reorder(files, layers, to, report)
    except KeyboardInterrupt:
        typer.echo("stopped: nothing was written", err=True)
        raise typer.Exit(130) from None


def _measured(found: "Reordering", where: "Where", activations: Any, console: Console) -> "Saving":
    from advisor_cli.power.input_text import step_line
    from advisor_power.inputs.opening import open_inputs
    from advisor_power.reorder.saving import measurable, measure_saving

    product = measurable(found.best.layer, activations)
    with stoppable(console):
        try:
            with open_inputs(read_settings(), where) as run:
                return measure_saving(
                    run,
                    product,
                    found.best.found.order,
                    lambda step: console.print(f"  {step_line(step)}", soft_wrap=True),
                )
        except KeyboardInterrupt:
            typer.echo("stopped: the new file is there, what it saves is not measured", err=True)
            raise typer.Exit(130) from None
