"""Which launches ran of late: each is found once, wherever it stands among others."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from launch_writer import row

from advisor.formats.wire import write
from advisor.launch.folder import MOST_ENDED
from advisor.launch.spec import LaunchStatus, Ledger, State
from advisor_api.launches.board import Books
from advisor_data.state import ServiceState, open_service_state

NOW = datetime(2026, 1, 31, 20, tzinfo=UTC)
LEDGER = Ledger(held_s=10, energy_j=20, alone_s=30, alone_j=40, freed_idle_j=5)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ServiceState]:
    with open_service_state(None, tmp_path) as opened:
        yield opened


def status(launch_id: str, state: State) -> LaunchStatus:
    at = "2026-01-31T12:00:00+00:00"
    return LaunchStatus(
        launch_id=launch_id, state=state, updated_at=at, started_at=at, overlap_s=5, ledger=LEDGER
    )


def add(state: ServiceState, number: int, ends: State = "finished") -> str:
    name = f"20260131-12{number:04}-000000"
    one = status(name, ends)
    state.add_launch(replace(row(name, str(number)), state=ends, status=write(one)))
    return name


def test_all_that_are_over_are_found_and_read_once(state: ServiceState) -> None:
    """Those of before the first look, and those that came and went between two."""
    for number in range(50):
        add(state, number)
    books = Books(state)
    books.look((), NOW)
    assert len(books.ended) == 50
    for number in range(50, 90):
        add(state, number)
    books.look((), NOW)
    assert len(books.ended) == 90
    newest = [f"20260131-12{number:04}-000000" for number in range(89, 89 - MOST_ENDED, -1)]
    assert list(books.newest) == newest


def test_one_that_ran_for_long_is_found_behind_newer_ones(state: ServiceState) -> None:
    name = add(state, 0, "running")
    for number in range(1, 100):
        add(state, number)
    books = Books(state)
    books.look([name], NOW)
    assert len(books.ended) == 99
    state.update_launch(name, "finished", write(status(name, "finished")))
    books.look((), NOW)
    assert len(books.ended) == 100
