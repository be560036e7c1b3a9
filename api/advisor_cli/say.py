"""How all commands print lines."""

import re
from collections.abc import Iterable
from typing import Any

import typer

from advisor.core.wording import printable
from advisor.formats.wire import as_answer, write
from advisor.settings import SUITE


def say(text: object = "", *, err: bool = False) -> None:
    """Print a line or several; what a text of others might tell the terminal is shown instead.

    Args:
        text: What to print.
        err: Print it on stderr.
    """
    typer.echo(printable(str(text)), err=err)


def say_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print lines as they come, each as `say` does."""
    for line in lines:
        say(line, err=err)


def as_json_text(answer: Any) -> str:
    """What a command answers with `--json`: an object.

    Raises:
        WireError: a number that JSON has no word for.
    """
    return as_answer(write(answer).encode()).decode()


def with_places(text: str) -> str:
    """A text with the places of the pages that it names, as they came with this installation."""
    return re.sub(r"(?<![\w/.])docs/[\w-]+\.md", lambda page: f"{SUITE / page[0]}", text)
