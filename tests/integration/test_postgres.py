"""Points in a real PostgreSQL server."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import store_points
from postgres import Server

from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import StoreError
from advisor_data import open_store
from advisor_data.store import migrate

pytestmark = pytest.mark.postgres


ODD: dict[str, Any] = {"window_s": 1.7976931348623157e308, "throttled": True}
JOB = "größe, 'quoted'"


def point(number: int) -> SoloPoint:
    """Its columns are of every type; each number is another measurement."""
    return store_points.point(
        number, job=JOB, share_percent=100 / 3, rate=0.1 + number, power_w=5e-324,
        units_total=132, flags=("noisy", "cpu-bound"), **ODD,
    )  # fmt: skip


def pair_point(number: int) -> PairPoint:
    """As `point`, for a pair; odd ones have no rates."""
    failed = {"rate_1": None, "flags": ("failed",), "error": "größe: no memory; 100 % full"}
    return store_points.pair_point(
        number, job_1=JOB, job_2="zwei", share_1_percent=100 / 3, units_1=44, **ODD,
        **(failed if number % 2 else {}),
    )  # fmt: skip


def test_a_database_without_tables_is_refused(postgres_empty: str, tmp_path: Path) -> None:
    """A server is never changed on the way; the message has the command that does it."""
    with pytest.raises(StoreError, match="advisor data migrate"):
        open_store(postgres_empty, tmp_path)
    migrate(postgres_empty, Path())
    migrate(postgres_empty, Path())
    open_store(postgres_empty, tmp_path).close()


def test_points_come_back_and_are_added_once(postgres_url: str, tmp_path: Path) -> None:
    """Every column survives to the last digit, and adding again changes nothing."""
    points, pairs = [point(n) for n in range(200)], [pair_point(n) for n in range(200)]
    with open_store(postgres_url, tmp_path) as store:
        assert (
            store.add([*points[:150], points[0], *pairs[:150], pairs[0]]),
            store.add([*pairs, *points]),
            store.solo_points(),
        ) == (300, 100, points)
        assert (
            store.solo_points(job="none"),
            store.pair_points(),
            store.pair_points(jobs=("zwei", JOB)),
            store.pair_points(run="none"),
        ) == ([], pairs, pairs, [])


def test_two_writers_at_once(postgres_url: str, tmp_path: Path) -> None:
    """Writers of the same points in opposite order neither wait for each other nor add twice."""
    points = [*map(point, range(300)), *map(pair_point, range(300))]
    start = threading.Barrier(2)

    def write(batch: list[SoloPoint | PairPoint]) -> int:
        with open_store(postgres_url, tmp_path) as store:
            start.wait()
            return store.add(batch)

    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(write, (points, points[::-1]))) == 600
    with open_store(postgres_url, tmp_path) as store:
        assert [*store.solo_points(), *store.pair_points()] == points


def test_two_migrations_at_once(postgres_empty: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as threads:
        assert len([*threads.map(migrate, [postgres_empty] * 3, [Path()] * 3)]) == 3
    open_store(postgres_empty, tmp_path).close()


def test_a_lock_that_is_not_let_go_of(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was stopped within a transaction holds up nobody for ever, nor the start."""
    monkeypatch.setattr("advisor_data.store._LOCK_S", 0.1)
    with open_store(postgres_url, tmp_path) as store:
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE solo_points IN ACCESS EXCLUSIVE MODE")
            for ask in (lambda: store.add([point(1)]), store.solo_points):
                with pytest.raises(StoreError, match="another process holds a lock"):
                    ask()
        assert store.add([point(1)]) == 1


def test_a_database_that_is_not_there(postgres_server: Server, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='database "nowhere" does not exist'):
        open_store(postgres_server.url("nowhere"), tmp_path)
