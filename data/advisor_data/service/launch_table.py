"""Launches in the database: one at a time for each GPU, and none twice for one request."""

import dataclasses
from dataclasses import dataclass

from sqlalchemy import Boolean, ColumnElement, Connection, literal_column, or_, select, update

from advisor.errors import BusyError, IdempotencyError, InputError
from advisor.launch.folder import now
from advisor_data.store.sql_engine import OpenDatabase, insert_new
from advisor_data.store.tables import launches

_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRow:
    """One launch.

    Attributes:
        launch_id: From advisor.launch.folder.new_launch_id, so that ids sort by time.
        gpu: As in the spec: index or UUID; `gpu_uuid` where that is known.
        state: One of advisor.launch.status.State.
        spec: advisor.launch.spec.LaunchSpec as JSON text.
        status: advisor.launch.status.LaunchStatus as JSON text.
        asked_by: Name of the token.
        idempotency_key: What the asker sent, so that asking again does not launch again.
        request_hash: Of what was asked for under that key.
        created_at: ISO 8601, UTC; `updated_at` too.
        home: Name of the home whose service looks after it; None: it is of an older version, and
            the services of its host do.
    """

    launch_id: str
    host: str
    gpu: str
    gpu_uuid: str | None = None
    state: str
    spec: str
    status: str
    asked_by: str
    idempotency_key: str | None = None
    request_hash: str
    created_at: str
    updated_at: str
    home: str | None = None


class Launches(OpenDatabase):
    """The launches at one database."""

    def add_launch(self, row: LaunchRow) -> LaunchRow:
        """Keep a new launch, which holds its GPU from now on until its state is over.

        The answer is it, or the earlier one with the same `asked_by` and `idempotency_key`.

        Raises:
            BusyError: another launch holds that GPU of that host.
            IdempotencyError: the earlier one was asked for with another `request_hash`.
            InputError: a launch with that id is there.
        """
        values, key = dataclasses.asdict(row), row.idempotency_key
        with self._writing() as connection:
            for _ in range(_TRIES):
                # Written first and explained afterwards: looking first would let two of them in.
                if connection.execute(insert_new(connection, launches), [values]).rowcount:
                    return row
                earlier = key and _asked_before(connection, row.asked_by, key, row.request_hash)
                if earlier:
                    return earlier
                _refuse_busy(connection, row)
                if _first(connection, launches.c.launch_id == row.launch_id):
                    raise InputError(f"there is a launch {row.launch_id} already")
                # Who held the GPU has let go since.
        raise BusyError(
            f"GPU {row.gpu} of {row.host} is taken and let go all the time", fix="ask again"
        )

    def update_launch(self, launch_id: str, state: str, status: str) -> bool:
        """Keep where a launch stands; False: it is over, and stays as it is.

        `state` is one of advisor.launch.status.State, `status` the whole status, JSON text.
        """
        change = update(launches).where(launches.c.launch_id == launch_id, _active())
        values = {"state": state, "status": status, "updated_at": now()}
        with self._writing() as connection:
            return connection.execute(change.values(values)).rowcount == 1

    def asked_before(
        self, asked_by: str, idempotency_key: str, request_hash: str
    ) -> LaunchRow | None:
        """The launch that was asked for by this key; None where none was.

        Raises:
            IdempotencyError: the key was used with another `request_hash`.
        """
        with self._reading() as connection:
            return _asked_before(connection, asked_by, idempotency_key, request_hash)

    def launch(self, launch_id: str) -> LaunchRow | None:
        """The launch of that id."""
        if not launch_id.isprintable():  # PostgreSQL takes no NUL, and no id has one
            return None
        with self._reading() as connection:
            return _first(connection, launches.c.launch_id == launch_id)

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
        matches: list[ColumnElement[bool]] = []
        of_host = launches.c.host == host
        if home is not None:
            matches.append(or_(launches.c.home == home, launches.c.home.is_(None) & of_host))
        elif host is not None:
            matches.append(of_host)
        if active_only:
            matches.append(_active())
        if before is not None:
            matches.append(launches.c.launch_id < before)
        wanted = select(launches).where(*matches).order_by(launches.c.launch_id.desc())
        with self._reading() as connection:
            found = connection.execute(wanted.limit(limit)).mappings()
            return [LaunchRow(**row) for row in found]


def _asked_before(
    connection: Connection, asked_by: str, key: str, request_hash: str
) -> LaunchRow | None:
    same_key = launches.c.idempotency_key == key
    earlier = _first(connection, launches.c.asked_by == asked_by, same_key)
    if earlier and earlier.request_hash != request_hash:
        raise IdempotencyError(
            "the idempotency key was used for another request",
            why=f"the launch {earlier.launch_id} was asked for with it",
            fix="send a new key with a new request",
        )
    return earlier


def _refuse_busy(connection: Connection, row: LaunchRow) -> None:
    same_gpu = launches.c.gpu == row.gpu
    if row.gpu_uuid is not None:
        same_gpu = or_(same_gpu, launches.c.gpu_uuid == row.gpu_uuid)
    holder = _first(connection, launches.c.host == row.host, same_gpu, _active())
    if holder:
        raise BusyError(
            f"GPU {row.gpu} of {row.host} is held by the launch {holder.launch_id}",
            fix="wait until it is over, stop it, or take another GPU",
        )


def _active() -> ColumnElement[bool]:
    # As the index of the table has it: with parameters it would not be used.
    return literal_column("state NOT IN ('finished', 'stopped', 'failed')", Boolean)


def _first(connection: Connection, *matches: ColumnElement[bool]) -> LaunchRow | None:
    row = connection.execute(select(launches).where(*matches).limit(1)).mappings().one_or_none()
    return LaunchRow(**row) if row else None
