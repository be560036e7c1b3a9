"""Lines, tables and screens of all commands: names and units are text, never markup."""

import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from advisor.core.wording import printable
from advisor.formats.wire import as_answer, write
from advisor.settings import SUITE

if TYPE_CHECKING:
    from advisor.wire.answers import Said

T = TypeVar("T")

Columns: TypeAlias = Iterable[tuple[str, Callable[[T], object]]]
"""Heading and cell of each column, for rows of one type."""

PIPE_WIDTH = 400
"""Characters; no table is wider."""

NARROWEST = 20
"""Characters; what has no size, as a terminal on a serial line, says 0."""

_NUMBER = re.compile(r"[-+~?]?\d|-?$")


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


def plain_console(
    *,
    stderr: bool = False,
    highlight: bool = True,
    width: int | None = None,
    least: int = NARROWEST,
    most: int = 1000,
) -> Console:
    """A console that prints every text as it is, brackets and colons too; none steers the terminal.

    Anyone with a `write` token chooses some of the names that commands print; `[/b]` in one would
    end the command, and `[red]` be left out.

    Args:
        stderr: Write there.
        highlight: Whether numbers stand out.
        width: Characters; None: of the terminal.
        least: Characters; on a narrower terminal lines wrap, and nothing is cut off.
        most: Characters; a wider terminal has an empty margin.
    """
    console = _Console(stderr=stderr, highlight=highlight, width=width, markup=False, emoji=False)
    console.width = min(max(console.width, least), most)
    return console


class _Console(Console):
    """Colours are those of styles alone: escapes within a text are shown."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        yield from (
            Segment(text if control else printable(text), style, control)
            for text, style, control in super().render(renderable, options)
        )


def show_chart(chart: str) -> None:
    """Print a chart, or say why there is none."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        chart.encode(encoding)
    except UnicodeEncodeError:
        chart = f"the chart is left out: {encoding} has no characters for it; UTF-8 has"
    say(chart)


def plain_table(
    headings: Sequence[str], rows: Iterable[Iterable[str | Text]], whole: Collection[str] = ()
) -> Table:
    """A table without lines; columns of numbers are right-aligned, those of `whole` never wrap."""
    table, cells = Table(box=None, pad_edge=False, header_style="bold"), [[*row] for row in rows]
    for place, name in enumerate(headings):
        numbers = all(_NUMBER.match(str(row[place])) for row in cells)
        justify = "right" if numbers else "left"
        table.add_column(Text(name), justify=justify, no_wrap=name in whole, overflow="fold")
    for row in cells:
        # The name of a folder may have lines, of which one could pass for another row.
        table.add_row(*(Text(t.replace("\n", r"\n")) if isinstance(t, str) else t for t in row))
    return table


def table_of(columns: Columns[T], rows: Iterable[T], whole: Collection[str] = ()) -> Table:
    """A `plain_table` of things by the heading and the cell of each column; None is empty."""
    headings, cells = zip(*columns, strict=True)
    values = ([cell(row) for cell in cells] for row in rows)
    texts = ([v if isinstance(v, Text) else "" if v is None else str(v) for v in r] for r in values)
    return plain_table(headings, texts, whole)


def print_table(table: Table, width: int = 80) -> None:
    """Print a table; in a pipe nothing is cut off, and no line ends in spaces.

    It is drawn for a screen of `width` at least; lines wrap where that is narrower.
    """
    if sys.stdout.isatty():
        plain_console(least=width).print(table)
        return
    console = plain_console(width=PIPE_WIDTH)
    with console.capture() as drawn:
        console.print(table)
    for line in drawn.get().splitlines():
        typer.echo(line.rstrip())


MOST_WIDTH = 100
"""Of a line in a pipe; in a terminal lines end where it ends."""


def print_screen(screen: "Said") -> Console:
    """Print headline and lines, none longer than the console, which is returned."""
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
