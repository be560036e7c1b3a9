"""The overview of a service, made at most once a second however many look at it."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from advisor.core.gpu import Gpu
from advisor.formats.wire import as_answer, write_bytes
from advisor.launch.folder import MOST_ENDED, LaunchFolder, overview, read_history
from advisor.launch.spec import OVER, History, LaunchStatus
from advisor_api.http.access import Caller
from advisor_api.http.routing import JSON, ready_answer
from advisor_api.launches.launching import (
    HOST,
    launches_folder,
    listed,
    stored_status,
    visible_launch,
)
from advisor_api.service import Service
from advisor_data.state import LaunchRow, ServiceState

# Rows at the first look, and at each later one, which finds few that are new.
_PAGE, _FEW = 500, 20

# One that ended this week and began earlier is not found after a restart.
_LONGEST = timedelta(days=14)


class Books:
    """The launches of a database that are over.

    Attributes:
        newest: The last ones that began.
        ended: All of them, without what their jobs did.
    """

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self.ended: dict[str, LaunchStatus] = {}
        self._active = frozenset[str]()
        self._is_first = True
        self.newest: dict[str, LaunchStatus] = {}

    def look(self, active: Iterable[str], now: datetime) -> None:
        """Take in what has ended since the last look, beside the launches that run now.

        Raises:
            StoreError: the database does not answer.
        """
        horizon, there = f"{now - _LONGEST:%Y%m%d}", frozenset(active)
        # One that ran for long may stand behind many that are newer.
        gone = (
            self._state.launch(launch_id) for launch_id in self._active - there - self.ended.keys()
        )
        self._take(row for row in gone if row)
        for rows in self._pages(_PAGE if self._is_first else _FEW):
            if not (self._take(rows) or self._is_first) or rows[-1].launch_id < horizon:
                break
        self._active, self._is_first = there, False
        oldest = now - _LONGEST
        self.ended = {
            launch_id: status
            for launch_id, status in self.ended.items()
            if launch_id >= horizon or ((ran := status.ran(now)) and ran[1] > oldest)
        }
        shown = sorted(self.newest, reverse=True)[:MOST_ENDED]
        self.newest = {launch_id: self.newest[launch_id] for launch_id in shown}

    def _take(self, rows: Iterable[LaunchRow]) -> bool:
        """Whether one of them is over that was not known to be."""
        ended = [row for row in rows if row.state in OVER and row.launch_id not in self.ended]
        for row in ended:
            status = stored_status(row)
            # There may be thousands.
            self.ended[row.launch_id] = replace(status, jobs=(), forecast=None, warnings=())
            if len(self.newest) < MOST_ENDED or row.launch_id > min(self.newest):
                self.newest[row.launch_id] = status
        return bool(ended)

    def _pages(self, size: int) -> Iterator[list[LaunchRow]]:
        before, count = None, 0
        # A launch a minute for two weeks.
        while count < 20_000 and (rows := self._state.launches(limit=size, before=before)):
            yield rows
            before, count = rows[-1].launch_id, count + len(rows)


# Supervisors write once a second.
_FRESH_S = 1.0

LookAtCards = Callable[[Collection[str]], list[tuple[Gpu, float | None]]]


class Board:
    """What `GET /v1/overview` answers.

    Args:
        service: Whose launches these are.
        cards: Looks at the GPUs of this host; it is told which of them are held.
        now: The moment; None: the present one, in the zone of the host.
    """

    def __init__(
        self, service: Service, cards: LookAtCards, now: Callable[[], datetime] | None = None
    ) -> None:
        self._service, self._cards = service, cards
        self._now = now or (lambda: datetime.now().astimezone())
        self._books, self._lock = Books(service.state), threading.Lock()
        self._kept: dict[bool, tuple[float, asyncio.Task[Callable[[Request], Response]]]] = {}
        self._ended: dict[str, History | None] = {}

    async def answer(self, caller: Caller) -> Callable[[Request], Response]:
        """The JSON, as `caller` may see it; all that look within a second see the same.

        Raises:
            StoreError: the database does not answer.
        """
        in_full, now_s = "launch" in caller.scopes, time.monotonic()
        began_s, made = self._kept.get(in_full, (-_FRESH_S, None))
        if made is None or (made.done() and now_s - began_s >= _FRESH_S):
            made = asyncio.create_task(asyncio.to_thread(self._made, caller))
            self._kept[in_full] = now_s, made
        return await asyncio.shield(made)

    def _made(self, caller: Caller) -> Callable[[Request], Response]:
        with self._lock:
            service, now = self._service, self._now()
            active = listed(service, active=True, limit=64, before=None)
            self._books.look((launch.launch_id for launch in active), now)
            made = overview(
                now=now,
                running=[visible_launch(launch, caller) for launch in active],
                ended=[visible_launch(launch, caller) for launch in self._books.newest.values()],
                entries=[*self._books.ended.values(), *active],
                cards=self._cards(
                    {uuid for launch in active if launch.silent_s is None for uuid in launch.gpus}
                ),
                host=HOST,
                history_of=self._history,
                prices=service.settings.policy.prices,
                replayed=service.options.replayed,
            )
            same = write_bytes(replace(made, at=""))
            return ready_answer(as_answer(write_bytes(made)), same, JSON, "no-store")

    def _history(self, launch_id: str) -> History | None:
        """Of one that is over it is read once."""
        if launch_id in self._ended:
            return self._ended[launch_id]
        history = read_history(LaunchFolder(launches_folder(self._service.settings) / launch_id))
        newest = self._books.newest
        if launch_id in newest:
            self._ended[launch_id] = history
            self._ended = {name: self._ended[name] for name in self._ended if name in newest}
        return history
