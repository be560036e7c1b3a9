"""The one console of all commands: what names and units say is text, never markup."""

from rich.console import Console


def plain_console(
    *, stderr: bool = False, highlight: bool = True, width: int | None = None
) -> Console:
    """A console that prints every text as it is, brackets and colons too.

    Anyone with a `write` token chooses some of the names that commands print; `[/b]` in one would
    end the command, and `[red]` be left out.

    Args:
        stderr: Write there.
        highlight: Whether numbers stand out.
        width: Characters; None: of the terminal.
    """
    return Console(stderr=stderr, highlight=highlight, width=width, markup=False, emoji=False)
