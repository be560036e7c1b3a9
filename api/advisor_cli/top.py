"""`advisor top`: the GPUs, the jobs on them and what is saved, in a terminal."""

import os
import select
import socket
import sys
import termios
import tty
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from advisor.core.wording import count_of, counted, energy_text
from advisor.errors import AdvisorError, InputError, install
from advisor.formats.moments import duration_text
from advisor.launch.folder import (
    CardNow,
    LaunchFolder,
    Overview,
    list_folders,
    overview,
    read_history,
)
from advisor.launch.spec import GOING, HistoryValues, JobStatus, LaunchStatus, Saved
from advisor.settings import Settings, read_settings
from advisor_api.launches.cards import HostCards
from advisor_cli.console import (
    PIPE_WIDTH,
    AsJson,
    Columns,
    ServiceCa,
    as_json_text,
    plain_console,
    plain_table,
    say,
    table_of,
)
from advisor_cli.launches import speed_text

# Without a named service there is no wait for one that hangs.
_SERVICE = "http://127.0.0.1:8765"

_Look = Callable[[], Overview]


def top(
    once: Annotated[bool, typer.Option("--once", help="Print once and exit, as in a pipe")] = False,
    as_json: AsJson = False,
    service: Annotated[
        str | None,
        typer.Option(
            help=f"Address of advisor serve (default: {_SERVICE}, else the launches of this host)"
        ),
    ] = None,
    service_ca: ServiceCa = None,
) -> None:
    """Show GPUs, the jobs on them, and what was saved; j and k scroll, q quits.

    If the service needs a token, set ADVISOR_TOKEN.

    Example: advisor top
    """
    with ExitStack() as stack:
        look, source = _opened(stack, service, service_ca, read_settings())
        if as_json:
            say(as_json_text(look()))
        elif once or not sys.stdout.isatty():
            width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
            plain_console(highlight=False, width=width).print(_drawn(look(), source))
        else:
            _follow(look, source)


def _opened(
    stack: ExitStack, service: str | None, service_ca: Path | None, settings: Settings
) -> tuple[_Look, str]:
    """What is looked at, and its name: the service, where one answers or is named.

    Raises:
        AdvisorError: the service that is named does not answer.
    """
    address = service or _SERVICE
    try:
        from advisor_cli.node_agent import client_of
    except ModuleNotFoundError as error:
        if service:
            raise InputError("a service is asked by httpx", fix=install("client")) from error
    else:
        client = stack.enter_context(
            client_of(address, service_ca, settings, 10.0 if service else 1.0)
        )
        if service or client.healthy():
            return client.overview, address
    cards = stack.enter_context(closing(HostCards(settings)))
    return _HostLaunches(settings, cards).look, "launches of this host"


def _follow(look: _Look, source: str) -> None:
    """Show it again every two seconds, or after a key, until q or Ctrl-C."""
    console = plain_console(highlight=False)
    screen = Scrolled()
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            screen.whole = _shown(look, source)
            live.update(screen, refresh=True)
            try:
                while keys := pressed(2.0):
                    if keys in ("q", "Q"):
                        return
                    screen.press(keys)
                    live.refresh()
            except KeyboardInterrupt:
                return


def _shown(look: _Look, source: str) -> RenderableType:
    """What goes wrong is shown in its place: a service that is started again is found again."""
    try:
        return _drawn(look(), source)
    except AdvisorError as error:
        return Text(f"{source}: {error}")


def _drawn(overview: Overview, source: str) -> RenderableType:
    return overview_screen(overview, source, letters_of(sys.stdout.encoding))


@contextmanager
def _keys() -> Generator[Callable[[float], str]]:
    """Waits so long for a key, which is read as it is pressed; empty where none was."""
    before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin] if before else [], [], [], seconds)
        # An arrow is three bytes.
        return os.read(sys.stdin.fileno(), 8).decode(errors="replace") if ready else ""

    try:
        if before:
            tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        if before:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


HOST = socket.gethostname()


class _HostLaunches:
    """Each folder of a launch that is over is read once."""

    def __init__(self, settings: Settings, cards: HostCards) -> None:
        self._settings, self._root, self._cards = settings, settings.home / "launches", cards
        self._ended: dict[str, LaunchStatus] = {}

    def look(self) -> Overview:
        folders = [f for f in list_folders(self._root) if f.launch_id not in self._ended]
        statuses = [replace(folder.read_status(), host=HOST) for folder in folders]
        self._ended |= {status.launch_id: status for status in statuses if status.over}
        running = [status for status in statuses if not status.over]
        ended = [self._ended[name] for name in sorted(self._ended, reverse=True)]
        return overview(
            now=datetime.now().astimezone(),
            running=running,
            ended=ended,
            entries=[*ended, *running],
            cards=self._cards.look({uuid for launch in running for uuid in launch.gpus}),
            host=HOST,
            history_of=lambda name: read_history(LaunchFolder(self._root / name)),
            prices=self._settings.policy.prices,
        )


_BAR_WIDTH, _LINE_WIDTH = 10, 8
_KWH_J, _HOUR_S = 3.6e6, 3600.0


@dataclass(frozen=True, slots=True)
class Letters:
    """What bars and lines are drawn with; a line of no letters is left out."""

    full: str
    empty: str
    line: str
    between: str

    def bar(self, part: float) -> Text:
        """A part of 1."""
        full = round(_BAR_WIDTH * min(1.0, max(0.0, part)))
        return Text.assemble((self.full * full, "cyan"), (self.empty * (_BAR_WIDTH - full), "dim"))

    def line_of(self, series: HistoryValues) -> Text:
        """All of it in a few letters, between its least and its most."""
        values, steps = [value for value in series if value is not None], self.line
        if len(values) < _LINE_WIDTH or not steps:
            return Text("")
        shown = [values[n * (len(values) - 1) // (_LINE_WIDTH - 1)] for n in range(_LINE_WIDTH)]
        # What hardly moves is not drawn as if it did.
        low, span = min(shown), max(max(shown) - min(shown), 0.1 * max(shown), 1e-9)
        return Text("".join(steps[round((v - low) / span * (len(steps) - 1))] for v in shown))


BLOCKS = Letters("█", "·", "▁▂▃▄▅▆▇█", " · ")
ASCII = Letters("#", ".", "", ", ")


def letters_of(encoding: str | None) -> Letters:
    """Those that an output of this encoding has."""
    try:
        (BLOCKS.full + BLOCKS.line + BLOCKS.empty).encode(encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return BLOCKS


def overview_screen(overview: Overview, source: str, letters: Letters = BLOCKS) -> RenderableType:
    """What is saved, each card with its launch, and what has ended; `source`: where it is from."""
    launches = {launch.launch_id: launch for launch in overview.running}
    saved = [("saved today", overview.today), ("this week", overview.week)]
    head = Text.assemble(("advisor", "bold"), f"  {_clock(overview.at)}  {source}")
    if overview.replayed:
        head.append("  replayed, no GPU is in use", style="yellow")
    parts = [head, table_of(_SAVED_COLUMNS, saved), Text(_basis(overview), style="dim"), Text()]
    cards = [
        _card(card, launches.get(card.launch_id or ""), overview.at, letters)
        for card in overview.gpus
    ]
    if not (cards or overview.ended):
        cards = [Text("No GPU is seen, and nothing was launched: advisor launch A B")]
    if overview.ended:
        columns = ("began", "jobs", "lasted", "speed", "W", "saved", "in all")
        rows = (_row(launch, overview.at) for launch in overview.ended)
        ended = plain_table(columns, rows, whole=[name for name in columns if name != "jobs"])
        cards += [Text("\nEnded: observed (predicted)", style="bold"), ended]
    return Group(*parts, *cards)


def _card(card: CardNow, launch: LaunchStatus | None, at: str, letters: Letters) -> RenderableType:
    limit = f" of {card.power_limit_w:.0f} W" if card.power_limit_w else ""
    watts = "power not read" if card.power_w is None else f"{card.power_w:.0f} W{limit}"
    part = (card.power_w or 0.0) / card.power_limit_w if card.power_limit_w else 0.0
    name = f" {card.host} {_short(card.gpu_uuid)}  "
    head = Text.assemble((card.gpu_model or "GPU", "bold"), name, letters.bar(part), f" {watts}")
    if launch is None:
        return head.append("  free", style="dim")
    if card.gpu_uuid in launch.beside:
        return head.append(f"  with {_short(launch.gpus[0])}", style="dim")
    table = plain_table(("", "", "", "", "", ""), _seats(launch, letters))
    table.show_header = False
    style = "dim" if launch.silent_s is None else "red"
    return Group(head, Text(f"  {letters.between.join(_standing(launch, at))}", style=style), table)


def _standing(launch: LaunchStatus, at: str) -> Iterator[str]:
    yield launch.launch_id
    yield launch.standing
    if launch.started_at:
        passed = datetime.fromisoformat(at) - datetime.fromisoformat(launch.started_at)
        passed_s = max(0, passed.total_seconds())
        yield f"since {_clock(launch.started_at, at)} ({duration_text(passed_s)})"
    if (gain_j := _gain_j(launch)) is not None:
        yield f"{energy_text(abs(gain_j))} {'saved' if gain_j >= 0 else 'LOST'}"
    if launch.speed_drift:
        yield f"drift {launch.speed_drift.ratio - 1:+.0%}"


def _seats(launch: LaunchStatus, letters: Letters) -> Iterator[tuple[str | Text, ...]]:
    history = launch.history
    overflow = "ellipsis" if letters is BLOCKS else "crop"
    for n, job in enumerate(launch.jobs):
        speeds = history.jobs[n].speeds if history and n < len(history.jobs) else ()
        name = Text(f"  {job.job}", no_wrap=True, overflow=overflow)
        bar, line = letters.bar(job.speed or 0.0), letters.line_of(speeds)
        yield name, _share(launch, job), bar, _speed(launch, n), _p99(job), line


_SAVED_COLUMNS: Columns[tuple[str, Saved]] = (
    ("", lambda row: row[0]),
    ("energy", lambda row: _signed(row[1].kwh_saved * _KWH_J)),
    (
        "if freed GPUs idle",
        lambda row: _signed(row[1].kwh_saved_idle and row[1].kwh_saved_idle * _KWH_J),
    ),
    ("GPU hours", lambda row: _signed(row[1].gpu_hours_saved, "{:.1f}".format)),
    ("money", lambda row: _signed(row[1].cost_saved, "{:.2f}".format)),
)


def _short(gpu_uuid: str) -> str:
    return gpu_uuid.removeprefix("GPU-")[:8]


def _basis(overview: Overview) -> str:
    week = overview.week
    left = f", {week.uncounted} not counted" if week.uncounted else ""
    unread_s = week.gpu_hours_unread * _HOUR_S
    dark = f"; energy not known for {duration_text(unread_s)}, not saved" if unread_s >= 1 else ""
    return (
        f"observed in {count_of(week.launches, 'launch')} this week{left}, against each job alone "
        f"on a whole GPU{dark}"
    )


def _share(launch: LaunchStatus, job: JobStatus) -> str:
    if job.outcome not in GOING:
        return job.outcome
    if job.below_normal:
        return job.share_text
    if launch.sharing != "limited" or job.share_percent >= 100:
        return "time-sliced" if launch.sharing == "time-sliced" else "no limit"
    units = "" if job.units_granted is None else f" {job.units_granted} SMs"
    return f"{job.share_percent:g} %{units}"


def _speed(launch: LaunchStatus, n: int) -> str:
    job = launch.jobs[n]
    if job.speed is None:
        return "-"
    expected = launch.forecast and not job.joined_at and launch.forecast.jobs[n]
    said = f" ({100 * expected.rate.value / expected.solo_rate:.0f})" if expected else ""
    return speed_text(job.speed) + said


def _p99(job: JobStatus) -> Text:
    p99_ms = job.mean_p99_ms if job.latency_p99_ms is None else job.latency_p99_ms
    if p99_ms is None:
        return Text("")
    if job.max_p99_ms is None:
        return Text(f"p99 {p99_ms:.3g} ms")
    style = "red" if p99_ms > job.max_p99_ms else "green"
    return Text(f"p99 {p99_ms:.3g}/{job.max_p99_ms:g} ms", style=style)


def _row(launch: LaunchStatus, at: str) -> tuple[str | Text, ...]:
    speeds = [job.speed for job in launch.jobs if job.speed is not None]
    jobs, forecast = counted(job.job for job in launch.jobs), launch.forecast
    saved = _signed(launch.part_saved, "{:.0%}".format)
    if forecast and forecast.energy_saved and launch.part_saved is not None:
        saved.append(f" ({100 * forecast.energy_saved.value:.0f})", style="dim")
    return (
        _clock(launch.started_at or launch.updated_at, at),
        f"{jobs}: failed" if launch.state == "failed" else jobs,
        duration_text(launch.overlap_s + launch.rest_s),
        f"{100 * sum(speeds) / len(speeds):.0f} %" if speeds else "-",
        "-" if launch.watts is None else f"{launch.watts:.0f}",
        saved,
        _signed(_gain_j(launch)),
    )


def _gain_j(launch: LaunchStatus) -> float | None:
    return launch.ledger and launch.ledger.alone_j - launch.ledger.energy_j


def _signed(saved: float | None, text: Callable[[float], str] = energy_text) -> Text:
    """A saving with its sign; a loss is red."""
    if saved is None:
        return Text("-")
    return Text(f"{'+' if saved > 0 else ''}{text(saved)}", style="red" if saved < 0 else "green")


def _clock(text: str, at: str = "") -> str:
    """In the zone of this host; with its day where that is not the one of `at`."""
    moment = datetime.fromisoformat(text).astimezone()
    today = not at or moment.date() == datetime.fromisoformat(at).astimezone().date()
    return f"{moment:%H:%M}" if today else f"{moment:%m-%d %H:%M}"


@dataclass(slots=True)
class Scrolled:
    """What is shown, from a line on.

    Attributes:
        whole: All of it.
        first: The line on top, counted from 0.
        room: Lines that the terminal had when it was drawn last.
    """

    whole: RenderableType = ""
    first: int = 0
    room: int = 0

    def press(self, keys: str) -> None:
        """Move by a key, as `less` does, or by arrows."""
        page_down, page_up = "\x1b[6~", "\x1b[5~"
        lines = {"j": 1, "\x1b[B": 1, "k": -1, "\x1b[A": -1}
        pages = {" ": 1, page_down: 1, "b": -1, page_up: -1}
        self.first += lines.get(keys, 0) + self.room * pages.get(keys, 0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What rich asks for."""
        lines = console.render_lines(self.whole, options.update(height=None), pad=False)
        fits = len(lines) <= console.height
        self.room = len(lines) if fits else max(1, console.height - 1)
        self.first = max(0, min(self.first, len(lines) - self.room))
        last = self.first + self.room
        for number, line in enumerate(lines[self.first : last]):
            yield from ([Segment.line()] if number else [])
            yield from line
        if not fits:
            hint = f"lines {self.first + 1} to {last} of {len(lines)}: j and k scroll, q quits"
            yield Segment.line()
            yield Text(hint, style="dim", end="")
