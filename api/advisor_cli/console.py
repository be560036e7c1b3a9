"""What all commands share: options with one meaning, lines, tables and screens.

Names and units are text, never markup.
"""

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, get_type_hints

import typer
import typer.core
import typer.main
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from advisor.core.gpu import parse_memory_mib
from advisor.core.objectives import ADVISED, read_gain
from advisor.core.wording import folded, printable
from advisor.formats.wire import as_answer, write
from advisor.settings import SUITE, job_folders, read_settings

if TYPE_CHECKING:
    from advisor.wire.answers import Said

T = TypeVar("T")

Columns: TypeAlias = Iterable[tuple[str, Callable[[T], object]]]
"""Heading and cell of each column, for rows of one type."""

PIPE_WIDTH = 400
"""Characters; no table is wider."""

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
    # What has no size, as a terminal on a serial line, says 0.
    least: int = 20,
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


Curve: TypeAlias = tuple[Sequence[float], Sequence[float | None], dict[str, str]]
"""Places along the two axes, and the words of plotext for label, marker and axis."""


def show_chart(
    curves: Iterable[Curve], *, title: str | None = None, below: str, height: int = 16
) -> None:
    """Draw curves as text, or say why not; `below` names the lower axis."""
    import plotext  # most commands draw nothing

    canvas: Any = plotext
    canvas.clear_figure()
    canvas.theme("clear")
    canvas.plotsize(78, height)
    for along, up, words in curves:
        canvas.plot([*along], [*up], **words)
    canvas.title(title)
    canvas.xlabel(below)
    # It ends each line with a colour code even where there is no colour.
    chart, encoding = str(canvas.uncolorize(canvas.build())), sys.stdout.encoding or "ascii"
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
        justify = "right" if all(_NUMBER.match(str(row[place])) for row in cells) else "left"
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


# Characters; longer ones are sentences.
_SENTENCE = 60

# Characters; longer ones, such as paths, are broken where a table is too wide for the terminal.
_LONGEST_WORD = 40


def print_table(table: Table) -> None:
    """Print a table; in a pipe a row is a line, and no column of sentences is filled with blanks.

    In a terminal the widest columns wrap, between words: names are there to be typed.
    """
    if sys.stdout.isatty():
        console = plain_console()
        console.width = max(console.width, _fit(table, console.width))
        console.print(table)
        return
    columns = [[str(cell) for cell in (of.header, *of.cells)] for of in table.columns]
    widths = [width if (width := max(map(len, of))) <= _SENTENCE else 0 for of in columns]
    forms = [
        f"{'>' if of.justify == 'right' else '<'}{width}"
        for of, width in zip(table.columns, widths, strict=True)
    ]
    for row in zip(*columns, strict=True):
        say("  ".join(map(format, row, forms)).rstrip())


def _fit(table: Table, most: int) -> int:
    """Set the widths of columns so that a table has `most` characters, or the fewest that it can.

    Returns:
        How wide it is.
    """
    columns = [[str(cell) for cell in (of.header, *of.cells)] for of in table.columns]
    widths = [max(map(len, texts)) for texts in columns]
    least = [
        width
        if column.no_wrap
        else min(_LONGEST_WORD, max(map(len, re.split(r" (?!%)", " ".join(texts)))))
        for column, texts, width in zip(table.columns, columns, widths, strict=True)
    ]
    gaps = 2 * (len(widths) - 1)
    while sum(widths) + gaps > most and (wide := [n for n, w in enumerate(widths) if w > least[n]]):
        widths[max(wide, key=widths.__getitem__)] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    return sum(widths) + gaps


# Of a line in a pipe; in a terminal lines end where it ends.
_MOST_WIDTH = 100


def print_screen(screen: "Said", table: Table | None = None) -> Console:
    """Print headline, table and lines, none longer than the console, which is returned."""
    console = plain_console(highlight=False, most=_MOST_WIDTH)
    console.print(Text(folded(screen.headline, console.width), style="bold"), soft_wrap=True)
    if table:
        print_table(table)
    for name, text in screen.lines:
        console.print(Text(folded(text, console.width, f"  {name:<8}")), soft_wrap=True)
    return console


def print_list(console: Console, title: str, mark: str, lines: Sequence[str]) -> None:
    """Lines under a title, each behind its mark; behind a blank they are there to be copied."""
    if lines:
        console.print(Text(title, style="bold"))
    for line in lines:
        text = folded(line, console.width, f"  {mark} ") if mark.strip() else f"    {line}"
        console.print(Text(text), soft_wrap=True)


def job_names(incomplete: str) -> list[str]:
    """Jobs that a shell completes a name to: by their files, which is fast."""
    folders = job_folders(read_settings().jobs_dir)
    files = (file for folder in folders for file in folder.glob("*.yaml"))
    return sorted({file.stem for file in files if file.stem.startswith(incomplete)})


REPLAY = "replay"
"""The GPU that gives what was recorded."""

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="As JSON on stdout")]

WithBundled: TypeAlias = Annotated[
    bool, typer.Option("--with-bundled", help="Include the points bundled with advisor")
]

WithLaunches: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--launches/--no-launches", help="Learn from the launches of this host as well (default)"
    ),
]

ProfilesOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="File of solo points that replace stored and bundled ones")
]

ObjectiveOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=f"Objective: {', '.join(ADVISED)} (default: cost if prices are set, else energy)"
    ),
]

Tries: TypeAlias = Annotated[
    int,
    typer.Option(
        "--try",
        min=1,
        max=3,
        help="Number of best options to run for 10 s each; the one with the most work "
        "per joule continues. Job files must say restartable: true",
    ),
]

MinSpeed: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Minimum speed, JOB=0.5 or 0.5 for all jobs; 1 is the speed alone, 0 is "
        "no minimum (default: 0.4)"
    ),
]

MinGain: TypeAlias = Annotated[
    float | None,
    typer.Option(
        parser=read_gain,
        metavar="PART",
        help="Minimum gain for sharing a GPU, 0.05 or 5% (default: 1%)",
    ),
]

MaxP99: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="Maximum p99 latency, JOB=50ms, or 50ms for all servers"),
]

PowerLimit: TypeAlias = Annotated[
    float | None, typer.Option(help="Power limit of the GPU, W, if lower than that of the profiles")
]

Cores: TypeAlias = Annotated[
    float | None, typer.Option(help="Host cores for all jobs together (default: no limit)")
]

Notes: TypeAlias = Annotated[bool, typer.Option("--notes", help="Print warnings")]

GpuModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option(help="GPU model, such as 'NVIDIA H200', if jobs have profiles of several"),
]

GpuUuidOption: TypeAlias = Annotated[
    str | None, typer.Option(help="UUID of the GPU, to correct power by its own measurements")
]

AllowUnsafe: TypeAlias = Annotated[
    bool, typer.Option("--allow-unsafe", help="Allow SM counts with wrong results")
]

LogLevel: TypeAlias = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option(
        metavar="LEVEL",
        help="Log level: debug, info, warning or error; requests are logged at info",
    ),
]

LogFormat: TypeAlias = Annotated[
    Literal["text", "json"], typer.Option(help="Format of log lines: text, or one JSON object each")
]

ServiceAddress: TypeAlias = Annotated[
    str, typer.Option(help="Address of advisor serve; its token is in ADVISOR_TOKEN")
]

ServiceCa: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="PEM file of the authority that signed the service's certificate"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """What jobs that share a GPU must keep, and what is known of them."""

    min_speed: MinSpeed = None
    max_p99: MaxP99 = None
    max_power: Annotated[float | None, typer.Option(help="Maximum power of a GPU, W")] = None
    memory: Annotated[
        float | None,
        typer.Option(
            parser=parse_memory_mib,
            metavar="SIZE",
            help="Memory of a GPU: 143771 (MiB), 80GiB or 141GB (default: by GPU model)",
        ),
    ] = None
    gpu_model: GpuModelOption = None
    profiles: ProfilesOption = None


def grouped(command: Callable[..., T]) -> Callable[..., T]:
    """A command that takes each of its dataclasses field by field, as Typer reads it."""
    kinds: dict[str, Any] = {}
    flat: dict[str, inspect.Parameter] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            kinds[parameter.name] = parameter.annotation
            flat |= {each.name: each for each in _fields(parameter.annotation)}
        else:
            flat[parameter.name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)

    @functools.wraps(command)
    def taken(**given: Any) -> T:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in kinds.items()
        }
        return command(**given, **made)

    taken.__signature__ = inspect.Signature([*flat.values()])  # pyright: ignore[reportAttributeAccessIssue]
    taken.__annotations__ = {each.name: each.annotation for each in flat.values()}
    return taken


def _fields(kind: Any) -> Iterator[inspect.Parameter]:
    """Its own fields before those that it has in common with others, as help lists them."""
    types, annotations = get_type_hints(kind, include_extras=True), kind.__annotations__
    yield from (
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=types[field.name],
        )
        for field in sorted(fields(kind), key=lambda field: field.name not in annotations)
    )


HELP: Any = {"help_option_names": ["--help", "-h"]}
"""What every command takes for a wish for help."""


class LazyGroup(typer.core.TyperGroup):
    """Holds the name and the line of help of each command, and imports the one that is called."""

    load: Callable[[str], Any]
    """Imports the command of a name, with all its options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Flags without a type, as those of commands."""
        return [_name_no_type(parameter) for parameter in super().get_params(ctx)]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace its line of help with the command itself."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and self.load(name), rest


def _name_no_type(parameter: Any) -> Any:
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    return parameter


def imported(module: str, name: str, function: str | None = None) -> Any:
    """The command of a module: its function or group, by default the one of that name or `app`."""
    holds = importlib.import_module(module)
    command, parent = getattr(holds, function or name, None) or holds.app, typer.Typer()
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
    else:
        parent.command(name)(command)
    return _readable(typer.main.get_group(parent).commands[name])


def _readable(command: Any) -> Any:
    """The command with paragraphs of help that fill their lines, and no type of its flags."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = with_places("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))
    for parameter in command.get_params(typer.Context(command, **HELP)):
        _name_no_type(parameter)
    command.format_help = functools.partial(_format_help, command, command.format_help)
    for part in getattr(command, "commands", {}).values():
        _readable(part)
    return command


def _format_help(command: Any, print_help: Callable[..., None], *of: Any) -> None:
    """Print help with short types and one column of names, or neither names nor words have room."""
    for parameter in command.params:
        if getattr(parameter, "min", None) is not None:
            parameter.metavar = "N"  # its range stands beside it
        if off := getattr(parameter, "secondary_opts", ()):
            parameter.opts, parameter.secondary_opts = [*parameter.opts, f"\n{off[0]}"], []
            parameter.show_default = False
    print_help(*of)
