"""`advisor power`: the group."""

import typer

from advisor.cli.power.components import components
from advisor.cli.power.input import input_power
from advisor.cli.power.kernel import kernel
from advisor.cli.power.reorder import reorder
from advisor.cli.power.sensor import sensor
from advisor.cli.power.tensor import tensor
from advisor.cli.power.train import train

app = typer.Typer(
    help="How a card's power is read, what operations and data draw, and where power goes.",
    no_args_is_help=True,
)
app.command("sensor")(sensor)
app.command("kernel")(kernel)
app.command("input")(input_power)
app.command("components")(components)
app.command("tensor")(tensor)
app.command("train")(train)
app.command("reorder")(reorder)
