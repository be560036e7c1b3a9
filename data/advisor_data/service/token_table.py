"""Bearer tokens in the database: made, found by their secret, revoked."""

import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from sqlalchemy import RowMapping, select, update

from advisor.errors import InputError
from advisor.formats.moments import now, to_text
from advisor_data.store.sql_engine import OpenDatabase, insert_new
from advisor_data.store.tables import tokens

Scope = Literal["read", "write", "launch", "admin"]

SCOPES: tuple[Scope, ...] = ("read", "write", "launch", "admin")
"""What a token may do: ask; bring in points and observations; launch; all of it."""

PREFIX = "adv_"
"""Secrets begin with it, so that one that leaked is recognised by those who look for leaks."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_LONGEST_SECRET = 100


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


class Tokens(OpenDatabase):
    """The tokens at one database."""

    def make_token(
        self, name: str, scopes: Collection[str], expires_at: str | None = None
    ) -> tuple[Token, str]:
        """A new token, and its secret, which nothing else ever tells.

        The name stands in logs; the end is a moment in UTC, ISO 8601, or never.

        Raises:
            InputError: a living token has that name, or an argument is not as it should be.
        """
        token = _new_token(name, scopes, expires_at)
        secret = PREFIX + secrets.token_urlsafe(32)
        with self._writing() as connection:
            # A token that expired gives its name back.
            expired = (tokens.c.name == name) & (tokens.c.expires_at <= token.created_at)
            still_named = update(tokens).where(expired, tokens.c.revoked_at.is_(None))
            connection.execute(still_named.values(revoked_at=tokens.c.expires_at))
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
        possible = (text for text in secrets if text.isascii() and len(text) <= _LONGEST_SECRET)
        # Found by their hashes, so how long the search takes tells nothing about any secret.
        by_digest = {_digest(secret): secret for secret in possible}
        wanted = select(tokens).where(tokens.c.secret_sha256.in_(by_digest))
        with self._reading() as connection:
            rows = connection.execute(wanted).mappings().all()
        found = {by_digest[row["secret_sha256"]]: _token(row) for row in rows}
        return {secret: token for secret, token in found.items() if token.lives()}

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


def _new_token(name: str, scopes: Collection[str], expires_at: str | None) -> Token:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not a valid token name",
            fix="up to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
        )
    if not scopes or set(scopes) - set(SCOPES):
        raise InputError(
            f"the scopes {', '.join(scopes) or '(none)'} are not all known",
            fix=f"give one or more of {', '.join(SCOPES)}",
        )
    end = None if expires_at is None else _moment(expires_at)
    in_order: tuple[Scope, ...] = tuple(scope for scope in SCOPES if scope in scopes)
    token = Token(name=name, scopes=in_order, created_at=now(), expires_at=end)
    if not token.lives():
        raise InputError(f"the token would have expired at {end}", fix="give a moment to come")
    return token


def _digest(secret: str) -> str:
    # A slow hash protects secrets that people choose; 256 random bits cannot be tried out, and
    # this is computed for every request.
    return hashlib.sha256(secret.encode()).hexdigest()


def _token(row: RowMapping) -> Token:
    fields = {name: row[name] for name in ("name", "created_at", "expires_at", "revoked_at")}
    return Token(scopes=cast("tuple[Scope, ...]", tuple(row["scopes"].split())), **fields)


def _moment(text: str) -> str:
    """The moment as it is compared here: as text of one form."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError(text)
        return to_text(moment)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{text!r} is not a time in UTC", fix="write it as 2026-01-31T12:00:00+00:00"
        ) from error
