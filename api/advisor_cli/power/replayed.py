"""What the replays of `advisor power` share."""

from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from advisor.errors import InputError
from advisor.validity.sensor_record import SensorRecord
from advisor.wire.power import KernelReport
from advisor_cli.options import REPLAY

ReplayedModel: TypeAlias = Annotated[
    str | None, typer.Option(help="With --gpu replay: such as 'NVIDIA H200'")
]


def check_gpu_model(gpu: str, gpu_model: str | None) -> None:
    """A card has its own model.

    Raises:
        InputError: a model was named for a card.
    """
    if gpu_model is not None and gpu != REPLAY:
        raise InputError("--gpu-model is for a replay", fix="add --gpu replay, or leave it out")


def say_power_replay(console: Console, what: str, of: SensorRecord | KernelReport) -> None:
    """Nobody takes a replay for a measurement."""
    console.print(
        f"REPLAY of a {what} of {of.gpu_model}, {of.gpu_uuid}, driver {of.driver}, measured "
        f"{of.measured_at[:10]}: no GPU is used.",
        soft_wrap=True,
        highlight=False,
    )
