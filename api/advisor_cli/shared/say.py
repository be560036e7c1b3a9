"""How all commands print lines."""

import typer

from advisor.core.wording import printable


def say(text: object = "", *, err: bool = False) -> None:
    """Print a line or several; what a text of others might tell the terminal is shown instead.

    Args:
        text: What to print.
        err: Print it on stderr.
    """
    typer.echo(printable(str(text)), err=err)
