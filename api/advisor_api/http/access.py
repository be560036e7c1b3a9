"""Who sends a request, and what they may do: bearer tokens, and users of a Unix socket."""

import asyncio
import hashlib
import itertools
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, TypeAlias, cast

from cachetools import LRUCache
from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from advisor_api.http.limits import Buckets
from advisor_data.state import Token

# So a revoked token is refused after a second at the latest.
_REMEMBERED_S = 1.0

# Good tokens that are kept, and as many wrong ones next to them.
_KEPT = 4096

# Secrets of one read.
_AT_ONCE = 500

_SECRET = re.compile(r"adv_[A-Za-z0-9_-]{20,100}")

# Wrong secrets of an address that are reported as wrong; more get 429, and no line in the log.
_WRONG_PER_S, _WRONG_BURST = 20.0, 100

# When a secret was looked up, and what was found.
_Looked = tuple[float, Token | None]


class TokenCache:
    """Finds the token of a secret; the same answer whether it is wrong, expired or revoked.

    Secrets are looked up many in one read, which may raise a StoreError.
    """

    def __init__(self, find: Callable[[Collection[str]], Mapping[str, Token]]) -> None:
        self._find = find
        # Apart, so that guesses push no good one out.
        self._good = LRUCache[bytes, _Looked](_KEPT)
        self._bad = LRUCache[bytes, _Looked](_KEPT)
        self._wrong = Buckets(_WRONG_PER_S, _WRONG_BURST)
        self._waiting = dict[str, asyncio.Future[_Looked]]()
        self._reader: asyncio.Task[None] | None = None

    async def find(self, secret: str, address: str) -> Token | None:
        """The token of a secret that came from an address, if it is good now.

        Raises:
            HTTPException: 429, it is wrong, as were too many others from this address.
            StoreError: the database does not answer.
        """
        # Looked up by hash, so how long it takes says nothing about the secrets that are kept.
        key = hashlib.sha256(secret.encode()).digest()
        looked = self._good.get(key) or self._bad.get(key)
        if looked is None or time.monotonic() - looked[0] >= _REMEMBERED_S:
            looked = (0.0, None)
            if _SECRET.fullmatch(secret):
                looked = await self._looked_up(secret)
                ours, other = (self._good, self._bad) if looked[1] else (self._bad, self._good)
                other.pop(key, None)
                ours[key] = looked
        if looked[1] is None:
            self._wrong.take(address)
        return looked[1]

    async def _looked_up(self, secret: str) -> _Looked:
        if secret not in self._waiting:
            self._waiting[secret] = asyncio.get_running_loop().create_future()
        lookup = self._waiting[secret]
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        # Anyone who goes away takes the look from nobody else.
        return await asyncio.shield(lookup)

    async def _read(self) -> None:
        """Look up all that wait, one read after the other, until nobody does."""
        while self._waiting:
            now = dict(itertools.islice(self._waiting.items(), _AT_ONCE))
            for secret in now:
                del self._waiting[secret]
            began = time.monotonic()
            try:
                tokens = await asyncio.to_thread(self._find, now.keys())
            except Exception as error:  # noqa: BLE001 else all that wait would wait for ever
                for future in now.values():
                    future.set_exception(error)
                    future.exception()  # somebody who waited may be gone
            else:
                for secret, future in now.items():
                    future.set_result((began, tokens.get(secret)))
        self._reader = None


_IMPLIED = {
    "read": frozenset({"read"}),
    "write": frozenset({"read", "write"}),
    "launch": frozenset({"read", "launch"}),
    "admin": frozenset({"read", "write", "launch", "admin"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request.

    Attributes:
        name: Of the token; of a process of this host its user, such as `uid:1000`; else
            `anonymous`.
        scopes: Those that others imply, too.
        identified: Whether the caller is identified.
    """

    name: str
    scopes: frozenset[str]
    identified: bool = True


ANONYMOUS = Caller(name="anonymous", scopes=frozenset(), identified=False)
ANONYMOUS_READER = Caller(name="anonymous", scopes=frozenset({"read"}), identified=False)


async def caller_of(authorization: bytes, address: str, tokens: TokenCache) -> Caller:
    """The caller that an Authorization header names.

    Raises:
        HTTPException: 401, no bearer token or no good one; 429, too many wrong ones.
        StoreError: the database does not answer.
    """
    scheme, _, secret = authorization.decode("latin-1").partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthorized("only bearer tokens are known here")
    if (token := await tokens.find(secret.strip(), address)) is None:
        raise _unauthorized("the token is wrong, expired or revoked", error="invalid_token")
    scopes = frozenset[str]().union(*(_IMPLIED[scope] for scope in token.scopes))
    return Caller(name=token.name, scopes=scopes)


class _Needs(SecurityBase):
    """The caller, if it has the scope; in OpenAPI, the token that the route asks for."""

    def __init__(self, scope: str) -> None:
        self.model = HTTPBearer(description="Made by `advisor tokens create NAME --scope SCOPE`.")
        self.scheme_name = "token"
        self.scope = scope

    async def __call__(self, request: Request) -> Caller:
        caller = cast("Caller", request.scope["advisor.caller"])
        if self.scope in caller.scopes:
            return caller
        if not caller.identified:
            raise _unauthorized(f"this needs a token with the scope {self.scope}", self.scope)
        raise HTTPException(
            403,
            f"the token {caller.name} has not the scope {self.scope}. "
            f"Make one: advisor tokens create NAME --scope {self.scope}.",
        )


def say_where_no_token_is_needed(routes: Iterable[BaseRoute]) -> None:
    """Let OpenAPI say of routes that read that some services ask for no token."""
    for route in routes:
        if isinstance(route, APIRoute):
            calls = (dependency.call for dependency in route.dependant.dependencies)
            if {call.scope for call in calls if isinstance(call, _Needs)} == {"read"}:
                route.openapi_extra = {"security": [{}]}


def _unauthorized(what: str, scope: str = "read", *, error: str = "") -> HTTPException:
    challenge = f'Bearer realm="advisor", error="{error}"' if error else 'Bearer realm="advisor"'
    return HTTPException(
        401,
        f"{what}. Make one: advisor tokens create NAME --scope {scope}, and send it as "
        "Authorization: Bearer TOKEN.",
        headers={"WWW-Authenticate": challenge},
    )


Reader: TypeAlias = Annotated[Caller, Depends(_Needs("read"))]
"""The parameter of a route that reads."""

Writer: TypeAlias = Annotated[Caller, Depends(_Needs("write"))]
"""The parameter of a route that changes points or observations."""

Launcher: TypeAlias = Annotated[Caller, Depends(_Needs("launch"))]
"""The parameter of a route that starts or stops jobs."""

Admin: TypeAlias = Annotated[Caller, Depends(_Needs("admin"))]
"""The parameter of a route that changes models or reads the audit log."""

# Process, user and group (`struct ucred` of Linux).
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """A process of this host as it was when it connected."""

    uid: int
    gids: frozenset[int]

    @property
    def name(self) -> str:
        """As logs have it; no token can have this name."""
        return f"uid:{self.uid}"


def peer_of(connection: int) -> Peer:
    """Who opened a connection; it is the file descriptor of a Unix socket that was accepted.

    Raises:
        OSError: it is none.
    """
    with socket.socket(fileno=os.dup(connection)) as ours:
        credentials = ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, gid = _CREDENTIALS.unpack(credentials)
        more = b""
        with suppress(OSError):  # too many, or the kernel does not say
            # SO_PEERGROUPS of asm-generic/socket.h, for which Python has no name, and 256 groups.
            more = ours.getsockopt(socket.SOL_SOCKET, 59, 1024)
        return Peer(uid, frozenset((gid, *struct.unpack(f"{len(more) // 4}I", more))))


def caller_of_peer(peer: Peer, group: int | None) -> Caller | None:
    """What a process of this host may do without a token; None: as much as anybody.

    Members of the group may read, write and launch.
    """
    if peer.uid in (0, os.geteuid()):
        return Caller(name=peer.name, scopes=_IMPLIED["admin"])
    if group in peer.gids:
        return Caller(name=peer.name, scopes=frozenset({"read", "write", "launch"}))
    return None
