"""`advisor power tensor`: what of the matrices of a file decides the power of their products."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from advisor.settings import read_settings
from advisor_cli.power import tensor_text
from advisor_cli.shared.options import AsJson
from advisor_cli.shared.progress import counted
from advisor_power.inputs.predicting.tensors import Expecting, TensorPower
from advisor_power.model.find import find_input_model, load_input_model
from advisor_power.model.predictor import InputPredictor
from advisor_power.operands.in_file import Chosen, chosen_in


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
        typer.echo(json.dumps(tensor_text.as_json(chosen, found, not_reached, model)))
    else:
        tensor_text.show(chosen, found, not_reached, model)
    if picture:
        _draw(picture, file, found)
    if stopped:
        raise typer.Exit(130)


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
