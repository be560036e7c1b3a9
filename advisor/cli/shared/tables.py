"""Tables on the screen: whole where they go on into a file or another program."""

import sys

import typer
from rich.table import Table

from advisor.cli.shared.console import plain_console

PIPE_WIDTH = 400
"""Characters; no table of ours is wider."""


def print_table(table: Table, width: int = 0) -> None:
    """Print a table; in a pipe nothing is cut off, and no line ends in spaces.

    Args:
        table: What to print.
        width: Least width of the screen to draw for; lines wrap where it is narrower.
    """
    if sys.stdout.isatty():
        console = plain_console()
        console.width = max(console.width, width)
        console.print(table)
        return
    console = plain_console(width=PIPE_WIDTH)
    with console.capture() as drawn:
        console.print(table)
    for line in drawn.get().splitlines():
        typer.echo(line.rstrip())
