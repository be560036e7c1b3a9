"""`advisor power`: the group."""

import typer

from advisor.cli.power.components import components
from advisor.cli.power.sensor import sensor

app = typer.Typer(
    help="What the power sensors of a card do, and where its power goes.", no_args_is_help=True
)
app.command("sensor")(sensor)
app.command("components")(components)
