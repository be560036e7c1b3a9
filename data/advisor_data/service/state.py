"""What a service keeps next to points: tokens, launches, the audit log, and the count of changes.

In the same database as the points; several servers may use one at once. What holds for all of
them, such as one launch per GPU, is an index of the database (advisor_data/store/tables.py).
"""

from collections.abc import Collection
from pathlib import Path
from typing import Self

from sqlalchemy import Engine, select

from advisor.errors import InputError
from advisor.formats.moments import now
from advisor.wire.lists import AuditEntry
from advisor_data.service import audit_table, launch_table, token_table
from advisor_data.service.launch_table import LaunchRow
from advisor_data.service.token_table import Scope, Token
from advisor_data.store.sql_engine import open_engine, store_errors
from advisor_data.store.store import FILES_PREFIX, default_url
from advisor_data.store.tables import changes

__all__ = ["AuditEntry", "LaunchRow", "Scope", "ServiceState", "Token", "open_service_state"]


class ServiceState:
    """The state at one database; safe for several processes and threads.

    Every method raises StoreError where the database does not answer. What was written before is
    safe, and the same object works again when the database does.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def make_token(
        self, name: str, scopes: Collection[str], expires_at: str | None = None
    ) -> tuple[Token, str]:
        """A new token, and its secret, which nothing else ever tells.

        The name stands in logs; the end is a moment in UTC, ISO 8601, or never.

        Raises:
            InputError: a living token has that name, or an argument is not as it should be.
        """
        token = token_table.new_token(name, scopes, expires_at)
        secret = token_table.new_secret()
        with store_errors(self._engine.url), self._engine.begin() as connection:
            token_table.insert(connection, token, secret)
        return token, secret

    def find_tokens(self, secrets: Collection[str]) -> dict[str, Token]:
        """The living tokens with these secrets, by secret, in one read."""
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return token_table.find(connection, secrets)

    def tokens(self) -> list[Token]:
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return token_table.read(connection)

    def revoke_token(self, name: str) -> None:
        """End a token.

        Raises:
            InputError: no living token has that name.
        """
        with store_errors(self._engine.url), self._engine.begin() as connection:
            token_table.revoke(connection, name)

    def add_launch(self, row: LaunchRow) -> LaunchRow:
        """Keep a new launch, which holds its GPU from now on until its state is over.

        The answer is it, or the earlier one with the same `asked_by` and `idempotency_key`.

        Raises:
            BusyError: another launch holds that GPU of that host.
            IdempotencyError: the earlier one was asked for with another `request_hash`.
            InputError: a launch with that id is there.
        """
        with store_errors(self._engine.url), self._engine.begin() as connection:
            return launch_table.insert(connection, row)

    def update_launch(self, launch_id: str, state: str, status: str) -> bool:
        """Keep where a launch stands; False: it is over, and stays as it is.

        `state` is one of advisor.launch.records.status.State, `status` the whole status, JSON text.
        """
        with store_errors(self._engine.url), self._engine.begin() as connection:
            return launch_table.update(connection, launch_id, state, status)

    def asked_before(
        self, asked_by: str, idempotency_key: str, request_hash: str
    ) -> LaunchRow | None:
        """The launch that was asked for by this key; None where none was.

        Raises:
            IdempotencyError: the key was used with another `request_hash`.
        """
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return launch_table.asked_before(connection, asked_by, idempotency_key, request_hash)

    def launch(self, launch_id: str) -> LaunchRow | None:
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return launch_table.find(connection, launch_id)

    def launches(
        self,
        host: str | None = None,
        home: str | None = None,
        active_only: bool = False,
        limit: int = 100,
        before: str | None = None,
    ) -> list[LaunchRow]:
        """Launches by id, the last first, those before an id: the last of the page before.

        Of a home they are on whatever host, with those of `host` that have none; `active_only` are
        those that are not over.
        """
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return launch_table.read(connection, host, home, active_only, limit, before)

    def audit(self, entry: AuditEntry) -> None:
        """Append to the audit log; it is on disk when this returns."""
        with store_errors(self._engine.url), self._engine.begin() as connection:
            audit_table.insert(connection, entry)

    def audit_log(self, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """Entries, the newest first, below a number: the last of the page before."""
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return audit_table.read(connection, limit, before)

    def prune_audit_log(self, before: str, who: str) -> int:
        """Remove entries of the audit log, and note in it that they went, and by whom; how many.

        They are those before a moment, ISO 8601, UTC.
        """
        with store_errors(self._engine.url), self._engine.begin() as connection:
            count = audit_table.delete_before(connection, before)
            if count:
                subject = f"{count} entries before {before}"
                audit_table.insert(
                    connection,
                    AuditEntry(
                        at=now(), who=who, action="audit.prune", subject=subject, outcome="done"
                    ),
                )
            return count

    def change_count(self) -> int:
        """Grows with every write that answers may depend on: solo points added, replaced, deleted.

        Two equal counts: profiles that were read at the first are still those of the database.
        """
        with store_errors(self._engine.url), self._engine.connect() as connection:
            return connection.execute(select(changes.c.count)).scalar_one()

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


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
