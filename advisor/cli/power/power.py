"""`advisor power`: the group."""

import typer

from advisor.cli.power.sensor import sensor

app = typer.Typer(help="What the power sensors of a card do.", no_args_is_help=True)
app.command("sensor")(sensor)
