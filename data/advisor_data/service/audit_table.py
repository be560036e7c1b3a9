"""The audit log in the database: who changed or launched what, and what came of it."""

import dataclasses

from sqlalchemy import Connection, select
from sqlalchemy import delete as sql_delete
from sqlalchemy import insert as sql_insert

from advisor.wire.lists import AuditEntry
from advisor_data.store.tables import audit_log

_LONGEST = 500

_LARGEST_NUMBER = 2**63 - 1
"""What an SQL BIGINT holds."""


def insert(connection: Connection, entry: AuditEntry) -> None:
    """Append an entry; what does not print or is very long is cut."""
    fields = dataclasses.asdict(entry)
    del fields["number"]
    values = {name: _line(text) for name, text in fields.items()}
    connection.execute(sql_insert(audit_log).values(values))


def read(connection: Connection, limit: int, before: int | None) -> list[AuditEntry]:
    """Entries, the newest first."""
    wanted = select(audit_log).order_by(audit_log.c.number.desc()).limit(limit)
    if before is not None and before <= _LARGEST_NUMBER:
        wanted = wanted.where(audit_log.c.number < max(before, 0))
    return [AuditEntry(**row) for row in connection.execute(wanted).mappings()]


def delete_before(connection: Connection, at: str) -> int:
    """Remove the entries before a moment (ISO 8601, UTC, as entries have it); how many went."""
    return connection.execute(sql_delete(audit_log).where(audit_log.c.at < at)).rowcount


def _line(text: str) -> str:
    # A client chooses some of it: line ends would forge entries, and NUL cannot be stored.
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])
