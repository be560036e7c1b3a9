"""Databases as earlier versions of advisor left them."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, MetaData, Table, create_engine, insert, inspect, text

from advisor.core.observations import Record
from advisor.core.records import SoloPoint
from advisor.formats.flat_rows import nested
from advisor.formats.rows import record_from_row, to_row
from advisor_data.store.pages import position

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011")

FILES = Path(__file__).parents[1] / "fixtures/schema-5"
"""Measured points and observed launches, as version 5 wrote them."""

SECRET = "adv_of_an_old_database"

_STORED = {"solo": "solo_points", "pairs": "pair_points", "observations": "observations"}

_SOLO_ROW = text("""
INSERT INTO solo_points (
  point_id, job, gpu_model, gpu_uuid, mode, share_percent, rate, rate_unit, power_w, throttled,
  window_s, started_at, run, repeat, flags
) VALUES (
  :point_id, 'gemm', 'NVIDIA H200', 'GPU-1', 'mps', 50, :rate, 'steps', 300.5, true,
  5, :started_at, 'r1', 0, 'noisy-rate;throttled'
)
""")

_SERVICE_ROWS: dict[str, dict[str, Any]] = {
    "advisor_tokens": {
        "secret_sha256": hashlib.sha256(SECRET.encode()).hexdigest(),
        "name": "ci",
        "scopes": "read write",
        "created_at": "2026-11-01T00:00:00+00:00",
    },
    "advisor_launches": {
        "launch_id": "20261121-222951-387ff1",
        "host": "node1",
        "gpu": "0",
        "state": "finished",
        "spec": "{}",
        "status": "{}",
        "asked_by": "ci",
        "request_hash": "0",
        "created_at": "2026-11-21T22:29:51+00:00",
        "updated_at": "2026-11-21T22:31:00+00:00",
    },
}


def make_old(url: str, points: int, revision: str = "0001") -> None:
    """Make the tables of an old schema revision at an SQLAlchemy URL, with solo points in them."""
    engine = create_engine(url)
    with engine.begin() as connection:
        _make_tables(connection, revision)
        rows = [
            {"point_id": f"{n:032}", "rate": n + 0.5, "started_at": f"2026-01-31T12:00:{n:02}Z"}
            for n in range(points)
        ]
        connection.execute(_SOLO_ROW, rows)
    engine.dispose()


def fill_old(url: str, revision: str) -> list[Record]:
    """Make the tables of an old schema revision with all kinds of rows that it had.

    Returns:
        The records as they have to come back.
    """
    engine = create_engine(url)
    with engine.begin() as connection:
        _make_tables(connection, revision)
        found = MetaData()
        found.reflect(connection)
        for name, row in _SERVICE_ROWS.items():
            if name in found.tables:
                connection.execute(insert(found.tables[name]), row)
        records = [
            record
            for kind, table in _STORED.items()
            if table in found.tables
            for record in _fill(connection, found.tables[table], kind)
        ]
    engine.dispose()
    return records


def _make_tables(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", "advisor_data:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _fill(connection: Connection, table: Table, kind: str) -> Iterator[Record]:
    parts = _parts_of(connection, table.name)
    for line in (FILES / f"{kind}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if parts is not None:
            yield _fill_nested(connection, table, parts, nested(row))
            continue
        row = {name: value for name, value in row.items() if name in table.columns}
        record = record_from_row(row)
        more: dict[str, Any] = {"point_id": record.point_id, "flags": ";".join(record.flags)}
        if "started_at_us" in table.columns:
            more["started_at_us"] = position(record).started_at_us
        connection.execute(insert(table), {**row, **more})
        yield record


def _parts_of(connection: Connection, table: str) -> Table | None:
    """The table of parts, of revisions that have one for these records."""
    name = f"{table.removesuffix('s')}_parts"
    return (
        Table(name, MetaData(), autoload_with=connection)
        if inspect(connection).has_table(name)
        else None
    )


def _fill_nested(
    connection: Connection, table: Table, parts: Table, row: Mapping[str, Any]
) -> Record:
    """A record with its parts in a table of their own."""
    record = record_from_row(row)
    assert not isinstance(record, SoloPoint)
    place = {"point_id": record.point_id, "started_at_us": position(record).started_at_us}
    own = {name: value for name, value in row.items() if name in table.columns}
    jobs = json.dumps(sorted(record.jobs))
    connection.execute(
        insert(table), {**own, **place, "flags": ";".join(record.flags), "jobs": jobs}
    )
    for number, part in enumerate(to_row(record)["jobs"]):
        old = {name: value for name, value in part.items() if name in parts.columns}
        connection.execute(insert(parts), {**old, **place, "position": number})
    return record
