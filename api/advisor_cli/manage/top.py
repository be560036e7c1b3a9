"""`advisor top`: the GPUs, who runs on them and what is saved, in a terminal."""

import os
import select
import socket
import sys
import termios
import time
import tty
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from advisor.errors import AdvisorError, InputError
from advisor.installed import install
from advisor.launch.folder import LaunchFolder, list_folders
from advisor.launch.overview import (
    Entry,
    Launch,
    Overview,
    Seen,
    entry_of,
    launch_of,
    overview,
    read_history,
)
from advisor.settings import Settings, read_settings
from advisor_api.launches.cards import HostCards
from advisor_cli.manage.overview_screen import letters_of, overview_screen
from advisor_cli.manage.scrolled import Scrolled
from advisor_cli.shared.console import PIPE_WIDTH, plain_console
from advisor_cli.shared.options import AsJson, ServiceCa
from advisor_cli.shared.say import as_json_text, say

_EVERY_S = 2.0
_SERVICE = "http://127.0.0.1:8765"
_LOCAL_S, _FAR_S = 1.0, 10.0
"""Who has named no service does not wait for one that hangs."""

_Look = Callable[[], Overview]


def top(
    once: Annotated[bool, typer.Option("--once", help="Show it once, as in a pipe")] = False,
    as_json: AsJson = False,
    service: Annotated[
        str | None,
        typer.Option(
            help=f"Address of advisor serve; if not given {_SERVICE}, and the launches of this "
            "host where nobody answers there"
        ),
    ] = None,
    service_ca: ServiceCa = None,
) -> None:
    """Show GPUs, who runs on them, and what was saved; j and k move, q ends it.

    Where the service wants a token, it is in ADVISOR_TOKEN.

    Example: advisor top
    """
    with ExitStack() as stack:
        look, source = _opened(stack, service, service_ca, read_settings())
        if as_json:
            say(as_json_text(look()))
        elif once or not sys.stdout.isatty():
            width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
            plain_console(highlight=False, width=width).print(_screen(look(), source))
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
        from advisor_cli.manage.node_agent import client_of
    except ModuleNotFoundError as error:
        if service:
            raise InputError("a service is asked by httpx", fix=install("client")) from error
    else:
        wait_s = _FAR_S if service else _LOCAL_S
        client = stack.enter_context(client_of(address, service_ca, settings, wait_s))
        if service or client.healthy():
            return client.overview, address
    host = stack.enter_context(closing(HostLaunches(settings)))
    return host.look, "launches of this host"


def _follow(look: _Look, source: str) -> None:
    """Show it again every two seconds, or after a key, until q or Ctrl-C."""
    console = plain_console(highlight=False)
    screen = Scrolled()
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            screen.whole = _shown(look, source)
            live.update(screen, refresh=True)
            try:
                while keys := pressed(_EVERY_S):
                    if keys in ("q", "Q"):
                        return
                    screen.press(keys)
                    live.refresh()
            except KeyboardInterrupt:
                return


def _shown(look: _Look, source: str) -> RenderableType:
    """What goes wrong is shown in its place: a service that is started again is found again."""
    try:
        return _screen(look(), source)
    except AdvisorError as error:
        return Text(f"{source}: {error}")


def _screen(seen: Overview, source: str) -> RenderableType:
    return overview_screen(seen, source, letters_of(sys.stdout.encoding))


@contextmanager
def _keys() -> Generator[Callable[[float], str]]:
    """Waits so long for a key, which is read as it is pressed; empty where none was."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    before = termios.tcgetattr(sys.stdin)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([sys.stdin], [], [], seconds)
        # An arrow is three bytes.
        return os.read(sys.stdin.fileno(), 8).decode(errors="replace") if ready else ""

    try:
        tty.setcbreak(sys.stdin)
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""


HOST = socket.gethostname()


class HostLaunches:
    """Each folder of a launch that is over is read once."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._root = settings, settings.home / "launches"
        self._cards = HostCards(settings)
        self._ended: dict[str, tuple[Launch, Entry | None]] = {}

    def look(self) -> Overview:
        """All at one look."""
        running: list[Launch] = []
        for folder in list_folders(self._root):
            if folder.launch_id in self._ended:
                continue
            one = launch_of(folder.read_status(), HOST)
            if one.over:
                self._ended[folder.launch_id] = one, entry_of(one)
            else:
                running.append(one)
        ended = [self._ended[name] for name in sorted(self._ended, reverse=True)]
        entries = [*(entry for _, entry in ended), *map(entry_of, running)]
        seen = Seen(
            now=datetime.now().astimezone(),
            running=running,
            ended=[launch for launch, _ in ended],
            entries=[entry for entry in entries if entry is not None],
            cards=self._cards.look({one.gpu_uuid or "" for one in running}),
            host=HOST,
        )
        return overview(
            seen, lambda name: read_history(LaunchFolder(self._root / name)), self._settings.prices
        )

    def close(self) -> None:
        """Let go of the driver."""
        self._cards.close()
