"""What a service keeps next to points: tokens, launches, the audit log, and the count of changes.

In the same database as the points; several servers may use one at once. What holds for all of
them, such as one launch per GPU, is an index of the database (advisor_data/store/tables.py).
"""

from pathlib import Path

from sqlalchemy import select

from advisor.errors import InputError
from advisor.wire.lists import AuditEntry
from advisor_data.service.audit_table import AuditEntries
from advisor_data.service.launch_table import Launches, LaunchRow
from advisor_data.service.token_table import Scope, Token, Tokens
from advisor_data.store.sql_engine import open_engine
from advisor_data.store.store import FILES_PREFIX, default_url
from advisor_data.store.tables import changes

__all__ = ["AuditEntry", "LaunchRow", "Scope", "ServiceState", "Token", "open_service_state"]


class ServiceState(Tokens, Launches, AuditEntries):
    """The state at one database."""

    def change_count(self) -> int:
        """Grows with every write that answers may depend on: solo points added, replaced, deleted.

        Two equal counts: profiles that were read at the first are still those of the database.
        """
        with self._reading() as connection:
            return connection.execute(select(changes.c.count)).scalar_one()


def open_service_state(url: str | None, home: Path) -> ServiceState:
    """The state in the database of the points, found as `advisor_data.open_store` finds it.

    Raises:
        InputError: the points are in files, or the URL is none.
        StoreError: the database cannot be used, or its schema is not the one of this version.
    """
    url = url or default_url(home)
    if url.startswith(FILES_PREFIX):
        raise InputError(
            f"a service cannot keep its state in {url}",
            why="tokens, launches and the audit log need a database",
            fix="set ADVISOR_DATABASE_URL to sqlite:///FILE or postgresql://USER@HOST/DATABASE, "
            "and bring the points in: advisor data import FOLDER/*.jsonl",
        )
    return ServiceState(open_engine(url))
