"""Which launches ran of late: each is found once, wherever it stands among others."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fastapi import Request
from launch_writer import row

from advisor.core.objectives import Prices
from advisor.formats.wire import write
from advisor.launch.folder import MOST_ENDED
from advisor.launch.spec import LaunchStatus, Ledger, State
from advisor_api.http.access import ANONYMOUS_READER
from advisor_api.launches.launching import Board, Books
from advisor_data.state import ServiceState

NOW = datetime(2026, 1, 31, 20, tzinfo=UTC)
LEDGER = Ledger(held_s=10, energy_j=20, alone_s=30, alone_j=40, freed_idle_j=5)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[ServiceState]:
    with ServiceState(None, tmp_path) as opened:
        yield opened


def status(launch_id: str, state: State) -> LaunchStatus:
    at = "2026-01-31T12:00:00+00:00"
    return LaunchStatus(
        launch_id=launch_id, state=state, updated_at=at, started_at=at, overlap_s=5, ledger=LEDGER
    )


def add(state: ServiceState, number: int, ends: State = "finished") -> str:
    name = f"20260131-12{number:04}-000000"
    state.add_launch(replace(row(name, str(number)), state=ends, status=write(status(name, ends))))
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


def test_all_that_look_within_a_second_see_the_same(
    state: ServiceState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bytes, with an ETag of all but the moment."""
    clock, service = [100.0], Mock(state=state)
    service.settings.home = tmp_path
    service.settings.policy.prices, service.options.replayed = Prices(), False
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    moments = (NOW.replace(second=second) for second in range(9))
    board = Board(service, lambda _: [], moments.__next__)

    async def seen(step_s: float) -> Any:
        clock[0] += step_s
        several = await asyncio.gather(*(board.answer(ANONYMOUS_READER) for _ in range(30)))
        assert len({id(one) for one in several}) == 1
        return several[0](Request({"type": "http", "headers": []}))

    async def looked() -> tuple[Any, ...]:
        first, same, later = [await seen(step_s) for step_s in (0.0, 0.9, 0.2)]
        add(state, 1)
        return first, same, later, await seen(1.0)

    first, same, later, other = asyncio.run(looked())
    assert (same is first, later.body == first.body) == (True, False)
    assert later.headers["etag"] == first.headers["etag"] != other.headers["etag"]
