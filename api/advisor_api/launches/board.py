"""The overview of a service, made at most once a second however many look at it."""

import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime

from advisor.core.gpu import Gpu
from advisor.formats.wire import write_bytes
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.history import History, read_history
from advisor.launch.records.overview import Seen, entry_of, overview
from advisor_api.http.access import Caller
from advisor_api.launches.books import Books
from advisor_api.launches.launching import listed
from advisor_api.launches.steps import HOST, launches_folder
from advisor_api.launches.view import visible_launch
from advisor_api.service.service import Service

FRESH_S = 1.0
"""Supervisors write once a second."""

_MOST_RUNNING = 64
"""Launches that are drawn."""


LookAtCards = Callable[[Collection[str]], list[tuple[Gpu, float | None]]]


def local_now() -> datetime:
    """This moment, in the zone of the host."""
    return datetime.now().astimezone()


class Board:
    """What `GET /v1/overview` answers.

    Args:
        service: Whose launches these are.
        cards: Looks at the GPUs of this host; it is told which of them are held.
        now: The moment.
    """

    def __init__(
        self, service: Service, cards: LookAtCards, now: Callable[[], datetime] = local_now
    ) -> None:
        self._service, self._cards, self._now = service, cards, now
        self._books = Books(service.state)
        self._lock = threading.Lock()
        self._kept: dict[bool, tuple[float, bytes]] = {}
        self._ended: dict[str, History | None] = {}

    def answer(self, caller: Caller) -> bytes:
        """The JSON, as `caller` may see it.

        Raises:
            StoreError: the database does not answer.
        """
        told = "launch" in caller.scopes
        with self._lock:
            made_s, text = self._kept.get(told, (-FRESH_S, b""))
            if time.monotonic() - made_s >= FRESH_S:
                text = self._made(caller)
                self._kept[told] = time.monotonic(), text
            return text

    def _made(self, caller: Caller) -> bytes:
        service, now = self._service, self._now()
        active = listed(service, active=True, limit=_MOST_RUNNING, before=None)
        self._books.look((status.launch_id for status, _ in active), now)
        running = [entry for status, _ in active if (entry := entry_of(status))]
        seen = Seen(
            now=now,
            running=[visible_launch(*one, caller) for one in active],
            ended=[visible_launch(*one, caller) for one in self._books.newest.values()],
            entries=[*self._books.entries(), *running],
            cards=self._cards(
                {status.gpu_uuid or "" for status, _ in active if status.silent_s is None}
            ),
            host=HOST,
            replayed=service.options.replayed,
        )
        return write_bytes(overview(seen, self._history, service.settings.prices))

    def _history(self, launch_id: str) -> History | None:
        """Of one that is over it is read once."""
        if launch_id in self._ended:
            return self._ended[launch_id]
        found = read_history(LaunchFolder(launches_folder(self._service.settings) / launch_id))
        newest = self._books.newest
        if launch_id in newest:
            self._ended[launch_id] = found
            self._ended = {name: self._ended[name] for name in self._ended if name in newest}
        return found
