"""`advisor power`: what a GPU draws, as exactly as its sensors can tell."""

import typer

from advisor.cli.power.kernel import kernel

app = typer.Typer(
    help="What a GPU draws, as exactly as its sensors can tell.", no_args_is_help=True
)
app.command("kernel")(kernel)


@app.callback()
def power() -> None:
    """What a GPU draws, as exactly as its sensors can tell."""
