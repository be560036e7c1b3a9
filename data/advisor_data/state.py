"""What a service keeps beside the points: tokens, launches, the audit log, the count of changes.

In the same database as the points; several servers may use one at once. What holds for all of
them, such as one launch per GPU, is a unique index of the database.

Folders of launches that have ended are removed where they are beyond the bounds of
`advisor.settings`: never one that runs, and never one of which anything is not kept elsewhere: what
its jobs did has to be in the store first, and its end in the table of launches where a service
looks after it.
"""

import hashlib
import re
import secrets
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, cast

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    RowMapping,
    delete,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from advisor.core.records import Observation
from advisor.errors import AdvisorError, BusyError, IdempotencyError, InputError, StoreError
from advisor.files import open_home
from advisor.formats.moments import now, to_text
from advisor.formats.rows import from_row, json_row
from advisor.launch.folder import (
    EndedLaunch,
    LaunchFolder,
    beyond,
    ended_launch,
    half_removed,
    list_folders,
    observation_lines,
    remove,
)
from advisor.launch.spec import OVER
from advisor.settings import Retention
from advisor.wire.answers import AuditEntry
from advisor_data import Store
from advisor_data.store import (
    OpenDatabase,
    audit_log,
    changes,
    insert_new,
    launches,
    tokens,
)


def _append(connection: Connection, entry: AuditEntry) -> None:
    # A client chooses some of it: line ends would forge entries, and NUL cannot be stored.
    values = {
        name: "".join(c if c.isprintable() else "?" for c in text[:500])
        for name, text in asdict(entry).items()
        if name != "number"
    }
    connection.execute(insert(audit_log).values(values))


Scope = Literal["read", "write", "launch", "admin"]

SCOPES: tuple[Scope, ...] = ("read", "write", "launch", "admin")
"""What a token may do: ask; bring in points and observations; launch; all of it."""

# Secrets begin with it, so that leak scanners recognise one.
_PREFIX = "adv_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is known of a token; its secret is not.

    Attributes:
        created_at: ISO 8601, UTC; the other moments too.
        expires_at: None: never.
        revoked_at: None: not yet.
    """

    name: str
    scopes: tuple[Scope, ...]
    created_at: str
    expires_at: str | None = None
    revoked_at: str | None = None

    def lives(self) -> bool:
        """Neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now())


def _digest(secret: str) -> str:
    # A slow hash protects secrets that people choose; 256 random bits cannot be tried out, and
    # this is computed for every request.
    return hashlib.sha256(secret.encode()).hexdigest()


def _token(row: RowMapping) -> Token:
    fields = {name: row[name] for name in ("name", "created_at", "expires_at", "revoked_at")}
    return Token(scopes=cast("tuple[Scope, ...]", tuple(row["scopes"].split())), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRow:
    """One launch.

    Attributes:
        launch_id: From advisor.launch.folder.new_launch_id, so that ids sort by time.
        gpu: As in the spec: index or UUID; `gpu_uuid` where that is known.
        state: One of advisor.launch.spec.State.
        spec: advisor.launch.spec.LaunchSpec as JSON text.
        status: advisor.launch.spec.LaunchStatus as JSON text.
        asked_by: Name of the token.
        idempotency_key: What the asker sent, so that asking again does not launch again.
        request_hash: Of what was asked for under that key.
        created_at: ISO 8601, UTC; `updated_at` too.
        home: Name of the home whose service looks after it.
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
    home: str


def _earlier_launch(
    connection: Connection, asked_by: str, key: str, request_hash: str
) -> LaunchRow | None:
    earlier = _first(connection, launches.c.asked_by == asked_by, launches.c.idempotency_key == key)
    if earlier and earlier.request_hash != request_hash:
        raise IdempotencyError(
            "the idempotency key was used for another request",
            why=f"the launch {earlier.launch_id} was asked for with it",
            fix="send a new key with a new request",
        )
    return earlier


def _active() -> ColumnElement[bool]:
    # As the index of the table has it: with parameters it would not be used.
    return literal_column("state NOT IN ('finished', 'stopped', 'failed')", Boolean)


def _first(connection: Connection, *matches: ColumnElement[bool]) -> LaunchRow | None:
    row = connection.execute(select(launches).where(*matches).limit(1)).mappings().one_or_none()
    return LaunchRow(**row) if row else None


class ServiceState(OpenDatabase):
    """The state at one database."""

    def make_token(
        self, name: str, scopes: Collection[str], expires_at: str | None = None
    ) -> tuple[Token, str]:
        """A new token, and its secret, which nothing else ever tells.

        The name stands in logs; the end is a moment in UTC, ISO 8601, or never.

        Raises:
            InputError: a living token has that name, or an argument is not as it should be.
        """
        if not re.fullmatch(r"(?!(?i:anonymous)$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
            raise InputError(
                f"{name!r} is not a valid token name",
                fix="up to 64 letters, digits, dots, dashes and underscores, a letter or digit "
                "first; not anonymous",
            )
        if not scopes or set(scopes) - set(SCOPES):
            raise InputError(
                f"the scopes {', '.join(scopes) or '(none)'} are not all known",
                fix=f"give one or more of {', '.join(SCOPES)}",
            )
        end = None
        if expires_at is not None:
            with InputError.instead_of(
                (ValueError, OverflowError),
                f"{expires_at!r} is not a time in UTC",
                why="",
                fix="write it as 2026-01-31T12:00:00+00:00",
            ):
                moment = datetime.fromisoformat(expires_at)
                if moment.tzinfo is None:
                    raise ValueError(expires_at)
                end = to_text(moment)  # moments are compared as text of one form
        in_order: tuple[Scope, ...] = tuple(scope for scope in SCOPES if scope in scopes)
        token = Token(name=name, scopes=in_order, created_at=now(), expires_at=end)
        if not token.lives():
            raise InputError(f"the token would have expired at {end}", fix="give a moment to come")
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._writing() as connection:
            # A token that expired gives its name back.
            expired = (tokens.c.name == name) & (tokens.c.expires_at <= token.created_at)
            connection.execute(
                update(tokens)
                .where(expired, tokens.c.revoked_at.is_(None))
                .values(revoked_at=tokens.c.expires_at)
            )
            row = {
                "secret_sha256": _digest(secret),
                "name": name,
                "scopes": " ".join(token.scopes),
                "created_at": token.created_at,
                "expires_at": token.expires_at,
                "revoked_at": None,
            }
            if not connection.execute(insert_new(connection, tokens), [row]).rowcount:
                raise InputError(
                    f"there is a token {name} already",
                    fix=f"take another name, or first: advisor tokens revoke {name}",
                )
        return token, secret

    def find_tokens(self, secrets: Collection[str]) -> dict[str, Token]:
        """The living tokens with these secrets, by secret, in one read."""
        possible = (text for text in secrets if text.isascii() and len(text) <= 100)
        # Found by their hashes, so how long the search takes tells nothing about any secret.
        by_digest = {_digest(secret): secret for secret in possible}
        wanted = select(tokens).where(tokens.c.secret_sha256.in_(by_digest))
        with self._reading() as connection:
            rows = connection.execute(wanted).mappings().all()
        token_by_secret = {by_digest[row["secret_sha256"]]: _token(row) for row in rows}
        return {secret: token for secret, token in token_by_secret.items() if token.lives()}

    def tokens(self) -> list[Token]:
        """All there ever were, the newest first."""
        wanted = select(tokens).order_by(tokens.c.created_at.desc(), tokens.c.name)
        with self._reading() as connection:
            return [_token(row) for row in connection.execute(wanted).mappings()]

    def revoke_token(self, name: str) -> None:
        """End a token.

        Raises:
            InputError: no living token has that name.
        """
        living = update(tokens).where(tokens.c.name == name, tokens.c.revoked_at.is_(None))
        with self._writing() as connection:
            is_ended = connection.execute(living.values(revoked_at=now())).rowcount
        if not is_ended:
            raise InputError(
                f"there is no valid token {name!r}", fix="list them: advisor tokens list"
            )

    def add_launch(self, row: LaunchRow) -> LaunchRow:
        """Keep a new launch, which holds its GPU from now on until its state is over.

        The answer is it, or the earlier one with the same `asked_by` and `idempotency_key`.

        Raises:
            BusyError: another launch holds that GPU of that host.
            IdempotencyError: the earlier one was asked for with another `request_hash`.
            InputError: a launch with that id is there.
        """
        values, key = asdict(row), row.idempotency_key
        with self._writing() as connection:
            for _ in range(5):
                # Written first and explained afterwards: looking first would let two of them in.
                if connection.execute(insert_new(connection, launches), [values]).rowcount:
                    return row
                earlier = key and _earlier_launch(connection, row.asked_by, key, row.request_hash)
                if earlier:
                    return earlier
                same_gpu = launches.c.gpu == row.gpu
                if row.gpu_uuid is not None:
                    same_gpu = or_(same_gpu, launches.c.gpu_uuid == row.gpu_uuid)
                holder = _first(connection, launches.c.host == row.host, same_gpu, _active())
                if holder:
                    raise BusyError(
                        f"GPU {row.gpu} of {row.host} is held by the launch {holder.launch_id}",
                        fix="wait until it is over, stop it, or take another GPU",
                    )
                if _first(connection, launches.c.launch_id == row.launch_id):
                    raise InputError(f"there is a launch {row.launch_id} already")
                # The holder of the GPU has ended since.
        raise BusyError(
            f"GPU {row.gpu} of {row.host} is taken and let go all the time", fix="ask again"
        )

    def update_launch(self, launch_id: str, state: str, status: str) -> bool:
        """Keep where a launch stands; False: it is over, and stays as it is.

        `state` is one of advisor.launch.spec.State, `status` the whole status, JSON text.
        """
        change = update(launches).where(launches.c.launch_id == launch_id, _active())
        values = {"state": state, "status": status, "updated_at": now()}
        with self._writing() as connection:
            return connection.execute(change.values(values)).rowcount == 1

    def earlier_launch(
        self, asked_by: str, idempotency_key: str, request_hash: str
    ) -> LaunchRow | None:
        """The launch that was asked for by this key; None where none was.

        Raises:
            IdempotencyError: the key was used with another `request_hash`.
        """
        with self._reading() as connection:
            return _earlier_launch(connection, asked_by, idempotency_key, request_hash)

    def launch(self, launch_id: str) -> LaunchRow | None:
        """The launch of that id."""
        if not launch_id.isprintable():  # PostgreSQL takes no NUL, and no id has one
            return None
        with self._reading() as connection:
            return _first(connection, launches.c.launch_id == launch_id)

    def launches(
        self,
        home: str | None = None,
        active_only: bool = False,
        limit: int = 100,
        before: str | None = None,
    ) -> list[LaunchRow]:
        """Launches by id, the last first, those before an id: the last of the page before.

        Of a home they are on whatever host; `active_only` are those that are not over.
        """
        matches: list[ColumnElement[bool]] = []
        if home is not None:
            matches.append(launches.c.home == home)
        if active_only:
            matches.append(_active())
        if before is not None:
            matches.append(launches.c.launch_id < before)
        wanted = select(launches).where(*matches).order_by(launches.c.launch_id.desc())
        with self._reading() as connection:
            return [LaunchRow(**row) for row in connection.execute(wanted.limit(limit)).mappings()]

    def audit(self, entry: AuditEntry) -> None:
        """Append an entry; it is on disk when this returns. What is very long is cut."""
        with self._writing() as connection:
            _append(connection, entry)

    def audit_log(self, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """Entries, the newest first, below a number: the last of the page before."""
        wanted = select(audit_log).order_by(audit_log.c.number.desc()).limit(limit)
        # More than an SQL BIGINT holds is above all numbers.
        if before is not None and before < 2**63:
            wanted = wanted.where(audit_log.c.number < max(before, 0))
        with self._reading() as connection:
            return [AuditEntry(**row) for row in connection.execute(wanted).mappings()]

    def prune_audit_log(self, before: str, who: str) -> int:
        """Remove entries of the audit log, and note in it that they went, and the user; how many.

        They are those before a moment (ISO 8601, UTC, as entries have it).
        """
        with self._writing() as connection:
            if count := connection.execute(
                delete(audit_log).where(audit_log.c.at < before)
            ).rowcount:
                subject = f"{count} entries before {before}"
                _append(
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
        with self._reading() as connection:
            return connection.execute(select(changes.c.count)).scalar_one()


ACTION = "launch.remove"
"""In the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cleaned:
    """What was removed, and what could not be.

    Attributes:
        dry_run: Nothing was removed: this is what would be.
    """

    dry_run: bool
    removed: tuple[EndedLaunch, ...]
    kept: tuple[EndedLaunch, ...]


def clean_launches(
    root: Path,
    bounds: Retention,
    store: Store,
    state: ServiceState,
    who: str,
    *,
    dry_run: bool = False,
) -> _Cleaned:
    """Remove what is beyond the bounds; a launch that cannot go keeps no other one.

    Args:
        root: `launches` in the home.
        bounds: What may stay.
        store: Where observations have to be before their launch goes.
        state: Where launches and the audit log are.
        who: For the audit log.
        dry_run: Whether to remove nothing.

    Raises:
        UnsafeFileError: other users may write to the folder of launches.
    """
    if not root.is_dir():
        return _Cleaned(dry_run=dry_run, removed=(), kept=())
    root = open_home(root.parent, root.name)
    ended: list[EndedLaunch] = []
    kept: list[EndedLaunch] = []
    for folder in list_folders(root):
        try:
            if launch := ended_launch(folder):
                ended.append(launch)
        except OSError as error:
            why = f"it cannot be read: {error.strerror}"
            kept.append(EndedLaunch(launch_id=folder.launch_id, why=why))
    if not dry_run:
        # What removals that were killed have left.
        for path in half_removed(root):
            try:
                shutil.rmtree(path)
            except OSError as error:
                why = f"it cannot be removed: {error}"
                kept.append(EndedLaunch(launch_id=path.name, why=why))
    removed: list[EndedLaunch] = []
    for launch in beyond(ended, bounds, time.time()):
        if why := _obstacle(root / launch.launch_id, store, state, who, dry_run=dry_run):
            kept.append(replace(launch, why=why))
        else:
            removed.append(launch)
    return _Cleaned(dry_run=dry_run, removed=tuple(removed), kept=tuple(kept))


def _obstacle(
    folder: Path, store: Store, state: ServiceState, who: str, *, dry_run: bool
) -> str | None:
    """Remove a launch; why it stays, None where it went, or would go."""
    try:
        row = state.launch(folder.name)
        if row and row.state not in OVER:
            raise StoreError(
                f"the service has not noticed yet that {folder.name} has ended",
                fix="start the service, which does that at once",
            )
        # What its jobs did and the store does not have; found by reading, as a full disk
        # allows.
        lines = observation_lines(LaunchFolder(folder))
        with InputError.instead_of(
            InputError,
            f"an observation of {folder.name} cannot be read",
            fix="look at its observations.jsonl, and remove the folder by hand",
        ):
            observations = [from_row(Observation, json_row(line)) for line in lines]
        missing = [
            observation
            for observation in observations
            if observation.point_id
            not in {o.point_id for o in store.observations(jobs=observation.jobs)}
        ]
        if dry_run:
            return None
        store.add(missing)
        remove(folder)
        entry = AuditEntry(at=now(), who=who, action=ACTION, subject=folder.name, outcome="done")
        # It is gone: an error now would tell a lie, and room is freed on a full disk, too.
        with suppress(StoreError):
            state.audit(entry)
    except FileNotFoundError:
        # Another process removed it at the same moment.
        return None
    except AdvisorError as error:
        return str(error)
    except OSError as error:
        return f"it cannot be removed: {error.strerror}"
    return None
