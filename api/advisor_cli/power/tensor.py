"""`advisor power tensor`: what of the matrices of a file decides the power of their products."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from advisor.errors import STOPPED
from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor_cli.console import plain_table, print_table
from advisor_cli.options import AsJson
from advisor_cli.power.input_text import notes_of, predicted_cells
from advisor_cli.progress import counted
from advisor_cli.say import as_json_text, say
from advisor_power.inputs.predicting.tensors import ROWS, Expecting, TensorPower
from advisor_power.model.find import NoInputModelError, find_input_model, load_input_model
from advisor_power.model.predictor import InputPredictor, model_line
from advisor_power.operands.in_file import Chosen, MatrixPrint, chosen_in
from advisor_power.tensors.types import shape_text, shown


def tensor(
    file: Annotated[Path, typer.Argument(help="A safetensors or npy file; never a pickle")],
    name: Annotated[
        list[str] | None,
        typer.Option("--tensor", metavar="NAME", help="Only this one; may be given more than once"),
    ] = None,
    units: Annotated[
        int | None, typer.Option(min=1, help="SMs of the expected product; else the most measured")
    ] = None,
    gpu_model: Annotated[
        str | None, typer.Option(help="Of the expected product; else the one that was measured")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the matrices into this .svg or .html file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How many bits of each matrix are set, switch and are zero, and what its product draws.

    Power of a matrix product follows the bits that switch. Files of any size: only a sample is
    read. The matrix whose bits switch most along its rows comes first. Power and speed are
    expected where there is a model: advisor power train.

    Example: advisor power tensor model.safetensors
    """
    if picture:
        from advisor_power.reports.tensor_picture import check_picture

        check_picture(picture)
    chosen = chosen_in(file, name or ())
    model = _model(gpu_model)
    found, stopped = _looked_at(chosen, Expecting(model, units, gpu_model))
    found.sort(key=lambda one: (-one.matrix.found.along, one.matrix.tensor))
    not_reached = len(chosen.matrices) - len(found)
    if as_json:
        say(as_json_text(_as_json(chosen, found, not_reached, model)))
    else:
        _show(chosen, found, not_reached, model)
    if picture:
        _draw(picture, file, found)
    if stopped:
        raise typer.Exit(STOPPED)


def _model(gpu_model: str | None) -> InputPredictor | None:
    """The model in use for a GPU model; None where there is none."""
    home = read_settings().home
    return load_input_model(home, gpu_model) if find_input_model(home, gpu_model) else None


def _looked_at(chosen: Chosen, expecting: Expecting) -> tuple[list[TensorPower], bool]:
    """Fingerprints, and whether Ctrl-C came before the last one."""
    found: list[TensorPower] = []
    try:
        found.extend(counted(expecting.powers(chosen), len(chosen.matrices), "matrices"))
    except KeyboardInterrupt:
        return found, True
    return found, False


def _draw(picture: Path, file: Path, found: Sequence[TensorPower]) -> None:
    from advisor_power.reports.tensor_picture import TensorBar, write_picture

    bars = [
        TensorBar(
            one.matrix.tensor or file.name,
            one.matrix.found.along,
            None if one.expected is None else one.expected.power_w.value,
        )
        for one in found
    ]
    write_picture(picture, file.name, bars)


_HEADINGS = (
    "dtype",
    "shape",
    "toggle in row",
    "toggle across rows",
    "bits set",
    "zero",
    "distinct",
)

_EXPECTED = ("W", "of reference", "T/s", "MHz", "most by")


def _as_json(
    chosen: Chosen, found: Sequence[TensorPower], not_reached: int, model: InputPredictor | None
) -> dict[str, Any]:
    """The answer for programs; its keys stay."""
    return {
        "file": str(chosen.file.path),
        "model": None if model is None else model.manifest.version,
        "matrices": [
            {**one.matrix.as_json(), "expected": to_plain(one.expected), "why_not": one.why_not}
            for one in found
        ],
        "left_out": [dataclasses.asdict(one) for one in chosen.left_out],
        "not_reached": not_reached,
    }


def _show(
    chosen: Chosen, found: Sequence[TensorPower], not_reached: int, model: InputPredictor | None
) -> None:
    """One line for each matrix, and what was left out."""
    if found:
        print_table(_table(found, with_power=model is not None), width=140)
        say("\n% of all bits, of elements that are 0, and of different values in a sample")
        for line in _power_lines(found, model):
            say(line)
    for reason, count in Counter(one.why for one in chosen.left_out).most_common():
        say(f"left out {count}: {reason}")
    if not chosen.matrices:
        say("no matrix to look at")
    if not_reached:
        say(f"stopped with {not_reached} of {len(chosen.matrices)} matrices to go", err=True)


def _table(found: Sequence[TensorPower], *, with_power: bool) -> Table:
    whole = (*_HEADINGS, *(_EXPECTED if with_power else ()))
    rows = ((*_cells(one.matrix), *(_expected_cells(one) if with_power else ())) for one in found)
    return plain_table(("tensor", *whole), rows, whole)


def _expected_cells(one: TensorPower) -> tuple[str, ...]:
    if one.expected is None:
        return ("",) * len(_EXPECTED)
    power_w, ratio, speed, _, clock, most, _ = predicted_cells(one.expected)
    return power_w, ratio, speed, clock, most


def _power_lines(found: Sequence[TensorPower], model: InputPredictor | None) -> Iterator[str]:
    """What expected power rests on; without a model, how to get one."""
    if model is None:
        yield f"no power is expected: {NoInputModelError().fix}"
        return
    expected = [one.expected for one in found if one.expected is not None]
    if expected:
        yield (
            f"expected, not measured: products of {ROWS} rows of normal random numbers with each "
            f"matrix, {expected[0].gpu_model}, {expected[0].units} SMs; "
            f"{model.manifest.coverage:.0%} intervals; {model_line(model.manifest)}"
        )
        yield from notes_of(expected)
    for reason, count in Counter(one.why_not for one in found if one.why_not).most_common():
        yield f"no power of {count}: {reason}"


def _cells(one: MatrixPrint) -> tuple[str, ...]:
    bits = one.found
    parts = (bits.along, bits.across, bits.weight, bits.zeros, bits.distinct)
    numbers = (f"{100 * part:.1f} %" for part in parts)
    return (shown(one.tensor) or "-", one.dtype, shape_text(one.shape), *numbers)
