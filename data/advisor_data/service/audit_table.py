"""The audit log in the database: who changed or launched what, and what came of it."""

import dataclasses
from dataclasses import dataclass

from sqlalchemy import Connection, select
from sqlalchemy import insert as sql_insert

from advisor_data.store.tables import audit_log

_LONGEST = 500

_LARGEST_NUMBER = 2**63 - 1
"""What an SQL BIGINT holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One thing that was done or refused. None of it may hold a secret.

    Attributes:
        at: ISO 8601, UTC.
        who: Name of a token, or of a user of the host.
        action: What was asked for, such as `launch.create`.
        subject: What it was done to, such as a job or a launch.
        outcome: `ok`, or the code of the error.
        request_id: Of the HTTP request; empty at the command line.
        client: Address that the request came from; empty at the command line.
        number: Place in the log, from 1; the log gives it.
    """

    at: str
    who: str
    action: str
    subject: str
    outcome: str
    request_id: str = ""
    client: str = ""
    number: int | None = None


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


def _line(text: str) -> str:
    # A client chooses some of it: line ends would forge entries, and NUL cannot be stored.
    return "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])
