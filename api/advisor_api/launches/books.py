"""Which launches ran of late and what they took; each is read once when it is over."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from advisor.launch.records.overview import MOST_ENDED, Entry, entry_of
from advisor.launch.records.status import OVER, LaunchStatus
from advisor_api.launches.view import stored_status
from advisor_data.service.state import LaunchRow, ServiceState

_PAGE, _FEW = 500, 20
"""Rows at the first look, and at each later one, which finds few that are new."""

_MOST_ROWS = 20_000
"""A launch a minute for two weeks."""

_LONGEST = timedelta(days=14)
"""One that ended this week and began earlier is not found after a restart."""


class Books:
    """The launches of a database that are over.

    Attributes:
        newest: The last ones that began, with their hosts.
    """

    def __init__(self, state: ServiceState) -> None:
        self._state = state
        self._ended: dict[str, Entry | None] = {}
        self._active = frozenset[str]()
        self._is_first = True
        self.newest: dict[str, tuple[LaunchStatus, str]] = {}

    def look(self, active: Iterable[str], now: datetime) -> None:
        """Take in what has ended since the last look, beside the launches that run now.

        Raises:
            StoreError: the database does not answer.
        """
        horizon, there = f"{now - _LONGEST:%Y%m%d}", frozenset(active)
        # One that ran for long may stand behind many that are newer.
        gone = (self._state.launch(one) for one in self._active - there - self._ended.keys())
        self._take(row for row in gone if row)
        for rows in self._pages(_PAGE if self._is_first else _FEW):
            news = self._take(rows)
            if not (news or self._is_first) or rows[-1].launch_id < horizon:
                break
        self._active, self._is_first = there, False
        oldest = now - _LONGEST
        self._ended = {
            one: entry
            for one, entry in self._ended.items()
            if one >= horizon or (entry and entry.ended and entry.ended > oldest)
        }
        shown = sorted(self.newest, reverse=True)[:MOST_ENDED]
        self.newest = {one: self.newest[one] for one in shown}

    def entries(self) -> list[Entry]:
        """Of those that ran."""
        return [entry for entry in self._ended.values() if entry is not None]

    def _take(self, rows: Iterable[LaunchRow]) -> bool:
        """Whether one of them is over that was not known to be."""
        found = [row for row in rows if row.state in OVER and row.launch_id not in self._ended]
        for row in found:
            status = stored_status(row)
            self._ended[row.launch_id] = entry_of(status)
            if len(self.newest) < MOST_ENDED or row.launch_id > min(self.newest):
                self.newest[row.launch_id] = status, row.host
        return bool(found)

    def _pages(self, size: int) -> Iterator[list[LaunchRow]]:
        before, count = None, 0
        while count < _MOST_ROWS and (rows := self._state.launches(limit=size, before=before)):
            yield rows
            before, count = rows[-1].launch_id, count + len(rows)
