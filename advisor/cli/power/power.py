"""`advisor power`: what a GPU's power is, and where it goes."""

import typer

from advisor.cli.power.components import components

app = typer.Typer(help="Where the power of a GPU goes.", no_args_is_help=True)


@app.callback()
def power() -> None:
    """Where the power of a GPU goes."""


app.command("components")(components)
