"""A service that replays a recorded day of launches, for a laptop without a GPU.

`demo.json.gz` holds four GPUs and the launches of one day: of each its spec, its status every ten
minutes and its observations. They were recorded from windows measured on an H100 and an H200.
Jobs without limits are held against the rates that they had alone on the host of their window.
"""

import gzip
import json
import re
import secrets
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Collection, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from advisor.core.gpu import Gpu
from advisor.core.records import Observation
from advisor.errors import AdvisorError
from advisor.files import belongs_to_us, serving_home
from advisor.formats.moments import now, to_text
from advisor.formats.rows import from_row
from advisor.formats.wire import read, write
from advisor.launch.folder import (
    HistoryKeeper,
    append_observation,
    create_folder,
    midnight,
    write_history,
)
from advisor.launch.spec import LaunchSpec, LaunchStatus
from advisor.settings import SUITE, Settings
from advisor_api.service import looking

RECORD = Path(__file__).with_name("demo.json.gz")
# Midnight of the recorded day.
_DAY = datetime(2026, 1, 5, tzinfo=UTC)
_MOMENT = re.compile(r"2026-01-0[56]T[^\"]+")
# Seconds between two statuses of the record.
_STEP_S = 600.0

SPEED = 144
"""A day in ten minutes."""
_TICK_S = 1.0


class _RecordedLaunch:
    """One launch of the record, written into its folder as a supervisor writes it."""

    def __init__(self, root: Path, record: dict[str, Any], shift: timedelta) -> None:
        text = _MOMENT.sub(
            lambda match: to_text(datetime.fromisoformat(match[0]) + shift), json.dumps(record)
        )
        moved = json.loads(text.replace("20260105-", f"{_DAY + shift:%Y%m%d}-"))
        self._observations = [from_row(Observation, row) for row in moved["observations"]]
        statuses = (
            read(LaunchStatus, write(status), tolerant=True) for status in moved["statuses"]
        )
        self._left = deque(
            (datetime.fromisoformat(status.updated_at), status) for status in statuses
        )
        self._begin, self._status = self._left[0]
        self._keeper = HistoryKeeper(to_text(self._begin), _STEP_S)
        self._folder = create_folder(root, read(LaunchSpec, write(moved["spec"]), tolerant=True))
        self._held = ExitStack()
        self._held.enter_context(self._folder.supervising())

    def replay(self, moment: datetime) -> bool:
        """Write where it stands at a moment; returns whether it runs on."""
        while self._left and self._left[0][0] <= moment:
            at, self._status = self._left.popleft()
            self._keeper.add((at - self._begin).total_seconds(), self._status)
        write_history(self._folder, self._keeper.history)
        if not self._left:
            for observation in self._observations:
                append_observation(self._folder.path, observation)
        # The real time: readers take an old status for that of a silent supervisor.
        self._folder.write_status(replace(self._status, updated_at=now()))
        if not self._left:
            self.close()
        return bool(self._left)

    def close(self) -> None:
        self._held.close()


class Replay:
    """The recorded day again and again, `SPEED` times as fast, from some days ago on."""

    def __init__(self, settings: Settings) -> None:
        record = json.loads(gzip.decompress(RECORD.read_bytes()))
        self._root, self._launches = settings.home / "launches", record["launches"]
        self._cards = [
            (read(Gpu, write(gpu["gpu"]), tolerant=True), gpu["idle_w"]) for gpu in record["gpus"]
        ]
        # No replayed moment is in the future: after an hour it reaches the present, and goes on in
        # real time.
        self._begin = midnight(datetime.now().astimezone(), 6)
        self._started_s, self._next = time.monotonic(), 0
        self._running: list[_RecordedLaunch] = []
        self.look()  # the first request finds the day as it stands

    def now(self) -> datetime:
        """The replayed moment."""
        # So much is there at the start, with a launch on each GPU that does as was predicted.
        passed = timedelta(seconds=9.5 * 3600.0 + SPEED * (time.monotonic() - self._started_s))
        return min(self._begin + passed, datetime.now().astimezone())

    def cards(self, held: Collection[str]) -> list[tuple[Gpu, float | None]]:
        """The GPUs, and the idle power of those that no launch holds, W."""
        return [(gpu, None if gpu.uuid in held else idle_w) for gpu, idle_w in self._cards]

    def look(self) -> None:
        """Bring all launches to the replayed moment."""
        moment = self.now()
        while True:
            days, number = divmod(self._next, len(self._launches))
            record = self._launches[number]
            shift = self._begin - _DAY + timedelta(days=days)
            if datetime.fromisoformat(record["statuses"][0]["updated_at"]) + shift > moment:
                break
            self._running.append(_RecordedLaunch(self._root, record, shift))
            self._next += 1
        self._running = [launch for launch in self._running if launch.replay(moment)]

    def close(self) -> None:
        """Release all folders."""
        for launch in self._running:
            launch.close()


@contextmanager
def replaying(settings: Settings) -> Generator[Replay]:
    """Replay until the end of the block."""
    with closing(Replay(settings)) as replay, looking("demo", replay.look, _TICK_S):
        yield replay


@contextmanager
def demo_settings(settings: Settings) -> Generator[Settings]:
    """Settings of a service that touches no file of the user and leaves none behind.

    Folders of demonstrations that were killed are removed at the start.
    """
    folder = Path(tempfile.gettempdir())
    for left in folder.glob("advisor-demo-*"):
        # One that starts now has no lock yet; that of a killed one is free.
        with suppress(AdvisorError, OSError):
            if belongs_to_us(left) and time.time() - left.stat().st_mtime > 60:
                with serving_home(left):
                    shutil.rmtree(left)
    home = folder / f"advisor-demo-{secrets.token_hex(8)}"
    # A signal that ends the service may come while the folder is made: `TemporaryDirectory` would
    # not know of it yet.
    try:
        home.mkdir(0o700)
        yield replace(
            settings,
            home=home,
            runtime_dir=home / "run",
            lock_dir=home / "locks",
            jobs_dir=SUITE / "jobs",
            database_url=None,
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)


KEY = b'"replayed":true'


class Marked:
    """ASGI middleware that marks every answer as replayed: a header, and a key in all JSON."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        start: Message | None = None

        async def marking(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["advisor-replayed"] = "true"
                if headers.get("content-type", "").startswith("application/json"):
                    start = message  # its length is known with the body
                    return
            elif start is not None:
                headers, body = MutableHeaders(scope=start), message.get("body", b"")
                message = {**message, "body": with_mark(body)}
                if length := headers.get("content-length"):
                    headers["content-length"] = str(int(length) + len(message["body"]) - len(body))
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, marking)


def with_mark(body: bytes) -> bytes:
    """A JSON object that says first that it is of a record; anything else as it is."""
    # An overview already has the mark in its first bytes.
    if not body.startswith(b"{") or KEY in body[:64]:
        return body
    rest = body[1:].lstrip()
    return b"{" + KEY + (b"" if rest.startswith(b"}") else b",") + rest
