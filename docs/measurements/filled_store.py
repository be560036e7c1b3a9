"""A large store for figures: made-up profiles, points and observations, inserted in bulk.

`big_store.py` fills one; the server of PostgreSQL is a Debian package.
"""

import contextlib
import itertools
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from advisor.core.observations import Observation, Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import from_row, to_row
from advisor_data import migrate
from advisor_data.bundled import bundled_pair_points, bundled_solo_points
from advisor_data.database import count_change, make_engine, tables
from advisor_data.store import renew_all, row_of

PROFILES, SOLO_POINTS, PAIR_POINTS, OBSERVATIONS = 5_000, 500_000, 500_000, 1_000_000
AT_ONCE = 20_000
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
GPU_MODEL = "NVIDIA H200"


def fill(url: str, scale: float, say: Callable[..., None]) -> list[str]:
    """Fill an empty store; names of the jobs that it has profiles of then."""
    migrate(url, Path())
    names = [f"job-{number:05}" for number in range(round(PROFILES * scale))]
    engine = make_engine(url)
    with engine.begin() as connection:
        count_change(connection)
        for kind, rows in (
            (SoloPoint, _solo_rows(names, round(SOLO_POINTS * scale))),
            (PairPoint, _pair_rows(names, round(PAIR_POINTS * scale))),
            (Observation, _observation_rows(names, round(OBSERVATIONS * scale))),
        ):
            began = time.monotonic()
            count = _insert(connection, kind, rows)
            say(f"{count} rows of {kind.__name__} in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        renew_all(connection)
        say(f"rows of all profiles in {time.monotonic() - began:.0f} s")
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()
    return names


def _insert(connection: Connection, kind: type[Record], rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    while some := list(itertools.islice(rows, AT_ONCE)):
        connection.execute(insert(tables[kind]), [row_of(from_row(kind, row)) for row in some])
        count += len(some)
    return count


def _solo_rows(names: list[str], count: int) -> Iterator[dict[str, Any]]:
    """Sweeps of a bundled job over and over, each with a moment of its own."""
    of_job: dict[str, list[dict[str, Any]]] = {}
    for point in bundled_solo_points():
        if point.gpu_model == GPU_MODEL:
            of_job.setdefault(point.job, []).append(to_row(point))
    sweeps = list(of_job.values())
    turns = itertools.cycle(enumerate(names))
    made = 0
    for sweep in itertools.count():
        number, name = next(turns)
        for row in sweeps[number % len(sweeps)]:
            if made == count:
                return
            more = {"job": name, "run": f"run-{sweep}", "flags": (), "results": "right"}
            yield {**row, **more, "started_at": _moment(made)}
            made += 1


def _pair_rows(names: list[str], count: int) -> Iterator[dict[str, Any]]:
    rows = [to_row(point) for point in bundled_pair_points()[:1000]]
    for made, jobs in _pairs(names, count, 1):
        row = rows[made % len(rows)]
        yield {**row, "started_at": _moment(made), "jobs": _named(row["jobs"], jobs)}


def _observation_rows(names: list[str], count: int) -> Iterator[dict[str, Any]]:
    parts = [{"share_percent": 50.0, "rate": rate} for rate in (10.0, 20.0)]
    for made, jobs in _pairs(names, count, 2):
        yield {
            "launch_id": f"launch-{made}",
            "jobs": _named(parts, jobs),
            "gpu_model": GPU_MODEL,
            "gpu_uuid": "GPU-1",
            "power_w": 500.0,
            "overlap_s": 600.0,
            "state": "finished",
            "started_at": _moment(made),
        }


def _pairs(names: list[str], count: int, seed: int) -> Iterator[tuple[int, list[str]]]:
    chance = random.Random(seed)
    return ((made, sorted(chance.choices(names, k=2))) for made in range(count))


def _named(parts: list[dict[str, Any]], jobs: list[str]) -> list[dict[str, Any]]:
    return [{**part, "job": job} for part, job in zip(parts, jobs, strict=True)]


def _moment(number: int) -> str:
    return (BEGIN + timedelta(seconds=20 * number)).isoformat()


@contextlib.contextmanager
def postgres(folder: Path) -> Generator[str]:
    """Address of a database of a server of its own, which ends with the block."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        sys.exit("there is no PostgreSQL: apt-get install postgresql")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir()
    user: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def run(program: str, *arguments: str) -> None:
        command = [*user, str(found[-1].parent / program), "-D", str(folder / "data"), *arguments]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)

    run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8")
    settings = f"-c listen_addresses=127.0.0.1 -p {port} -k {folder}"
    run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", settings, "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-w", "-m", "fast", "stop")
