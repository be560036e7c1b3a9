"""`advisor report`: what measurements say together."""

import typer

from advisor_cli.learn.report_power import power

app = typer.Typer(help="Pages made from measurements.", no_args_is_help=True)

app.command("power")(power)


@app.callback()
def group() -> None:
    """Pages made from measurements."""
