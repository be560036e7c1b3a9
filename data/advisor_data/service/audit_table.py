"""The audit log in the database: who changed or launched what, and what came of it."""

import dataclasses

from sqlalchemy import Connection, delete, insert, select

from advisor.formats.moments import now
from advisor.wire.lists import AuditEntry
from advisor_data.store.sql_engine import OpenDatabase
from advisor_data.store.tables import audit_log

_LONGEST = 500

_LARGEST_NUMBER = 2**63 - 1
"""What an SQL BIGINT holds."""


class AuditEntries(OpenDatabase):
    """The audit log at one database."""

    def audit(self, entry: AuditEntry) -> None:
        """Append an entry; it is on disk when this returns. What is very long is cut."""
        with self._writing() as connection:
            _append(connection, entry)

    def audit_log(self, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """Entries, the newest first, below a number: the last of the page before."""
        wanted = select(audit_log).order_by(audit_log.c.number.desc()).limit(limit)
        if before is not None and before <= _LARGEST_NUMBER:
            wanted = wanted.where(audit_log.c.number < max(before, 0))
        with self._reading() as connection:
            return [AuditEntry(**row) for row in connection.execute(wanted).mappings()]

    def prune_audit_log(self, before: str, who: str) -> int:
        """Remove entries of the audit log, and note in it that they went, and by whom; how many.

        They are those before a moment (ISO 8601, UTC, as entries have it).
        """
        with self._writing() as connection:
            old = delete(audit_log).where(audit_log.c.at < before)
            if count := connection.execute(old).rowcount:
                subject = f"{count} entries before {before}"
                done = AuditEntry(
                    at=now(), who=who, action="audit.prune", subject=subject, outcome="done"
                )
                _append(connection, done)
            return count


def _append(connection: Connection, entry: AuditEntry) -> None:
    fields = dataclasses.asdict(entry)
    del fields["number"]
    # A client chooses some of it: line ends would forge entries, and NUL cannot be stored.
    values = {
        name: "".join(c if c.isprintable() else "?" for c in text[:_LONGEST])
        for name, text in fields.items()
    }
    connection.execute(insert(audit_log).values(values))
