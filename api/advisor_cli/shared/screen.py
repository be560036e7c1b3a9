"""The first screen of an answer: a headline, and lines with a name each."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from advisor_cli.shared.console import plain_console

MOST_WIDTH = 100
"""Of a line in a pipe; in a terminal lines end where it ends."""


@dataclass(frozen=True, slots=True)
class Screen:
    """A headline, and the name and text of each line."""

    headline: str
    lines: Iterable[tuple[str, str]]


def print_screen(screen: Screen) -> Console:
    """Print it, no line longer than the console, which is returned."""
    console = plain_console(highlight=False, most=MOST_WIDTH)
    for line in _folded(screen.headline, console.width):
        console.print(Text(line, style="bold"))
    for name, text in screen.lines:
        print_folded(console, f"  {name:<8}", text)
    return console


def print_folded(console: Console, before: str, text: str) -> None:
    """Lines no longer than the console, all but the first indented; commands stay whole."""
    for n, line in enumerate(_folded(text, console.width - len(before))):
        console.print(Text(f"{' ' * len(before) if n else before}{line}"), soft_wrap=True)


def print_list(console: Console, title: str, mark: str, lines: Sequence[str]) -> None:
    """Lines under a title, each behind its mark; behind a blank they are there to be copied."""
    if lines:
        console.print(Text(title, style="bold"))
    for line in lines:
        if mark == " ":
            console.print(Text(f"    {line}"), soft_wrap=True)
        else:
            print_folded(console, f"  {mark} ", line)


def _folded(text: str, width: int) -> list[str]:
    """Lines of a text; names of jobs stay whole."""
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
