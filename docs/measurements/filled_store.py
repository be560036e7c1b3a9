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

from advisor.core.records import Observation, ObservedPart, PairPoint, Record, SoloPoint
from advisor_data import migrate
from advisor_data.files.bundled import bundled_pair_points, bundled_solo_points
from advisor_data.store.profile_table import renew_all
from advisor_data.store.sql_engine import count_change, make_engine
from advisor_data.store.tables import jobs_text, parts_tables, parts_to_sql, tables, to_sql

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
    """Rows of a kind; those of several jobs with the rows of their parts."""
    count = 0
    while some := list(itertools.islice(rows, AT_ONCE)):
        parts = [part for row in some for part in row.pop("parts", ())]
        connection.execute(insert(tables[kind]), some)
        if parts:
            connection.execute(insert(parts_tables[kind]), parts)
        count += len(some)
    return count


def _solo_rows(names: list[str], count: int) -> Iterator[dict[str, Any]]:
    """Sweeps of a bundled job over and over, each with a moment of its own."""
    of_job: dict[str, list[SoloPoint]] = {}
    for point in bundled_solo_points():
        if point.gpu_model == GPU_MODEL:
            of_job.setdefault(point.job, []).append(point)
    sweeps = [[to_sql(point) for point in points] for points in of_job.values()]
    turns = itertools.cycle(enumerate(names))
    made = 0
    for sweep in itertools.count():
        number, name = next(turns)
        for row in sweeps[number % len(sweeps)]:
            if made == count:
                return
            more = {"job": name, "run": f"run-{sweep}", "flags": "", "results": "right"}
            yield {**row, **more, **_identity("solo", made)}
            made += 1


def _pair_rows(names: list[str], count: int) -> Iterator[dict[str, Any]]:
    rows = [(to_sql(point), parts_to_sql(point)) for point in bundled_pair_points()[:1000]]
    chance = random.Random(1)
    for made in range(count):
        jobs = sorted(chance.choices(names, k=2))
        yield _of_jobs(*rows[made % len(rows)], jobs, _identity("pair", made))


def _observation_rows(names: list[str], count: int) -> Iterator[dict[str, Any]]:
    one = Observation(
        launch_id="x",
        parts=(
            ObservedPart(job="a", share_percent=50.0, rate=10.0),
            ObservedPart(job="b", share_percent=50.0, rate=20.0),
        ),
        gpu_model=GPU_MODEL,
        gpu_uuid="GPU-1",
        power_w=500.0,
        overlap_s=600.0,
        state="finished",
        started_at=BEGIN.isoformat(),
    )
    row, parts, chance = to_sql(one), parts_to_sql(one), random.Random(2)
    for made in range(count):
        jobs = sorted(chance.choices(names, k=2))
        of = {**row, "launch_id": f"launch-{made}"}
        yield _of_jobs(of, parts, jobs, _identity("observation", made))


def _of_jobs(
    row: dict[str, Any], parts: list[dict[str, Any]], jobs: list[str], place: dict[str, Any]
) -> dict[str, Any]:
    """A row of other jobs at another place, with the rows of its parts."""
    where = {name: place[name] for name in ("point_id", "started_at_us")}
    theirs = [{**part, **where, "job": job} for part, job in zip(parts, jobs, strict=True)]
    return {**row, **place, "jobs": jobs_text(jobs), "parts": theirs}


def _identity(kind: str, number: int) -> dict[str, Any]:
    moment = BEGIN + timedelta(seconds=20 * number)
    microseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    point_id = f"{number:024x}{kind.encode().hex()[:8]}"
    return {"point_id": point_id, "started_at": moment.isoformat(), "started_at_us": microseconds}


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
