"""Bounds of a request before its meaning: host, path, rate, body, and its caller with its rights.

How the service is to run comes first: what the command line says, checked once. Callers are known
by bearer tokens, or as users of a Unix socket.
"""

import asyncio
import hashlib
import itertools
import math
import os
import re
import socket
import struct
import time
from collections.abc import AsyncIterable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias, cast

from cachetools import LRUCache
from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope

from advisor.core.wording import shown
from advisor.errors import InputError
from advisor.scrape.fetch import is_loopback
from advisor_data.state import Token


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of `advisor serve`.

    Attributes:
        host: Address or name to listen on.
        port: TCP port; 0 lets the system choose one.
        socket: Path of a Unix socket to listen on instead; the kernel tells the user there.
        socket_group: Number of a group whose members may read, write and launch there.
        tls_certificate: PEM file with the certificate and those that signed it.
        tls_key: PEM file with its private key, without a password.
        client_ca: PEM file with the CAs of client certificates; None: clients need none.
        insecure: Listen on other addresses than loopback without TLS.
        launching: Requests may launch registered jobs.
        anonymous_read: Whether reading needs no token; None: on a port that only this host
            can reach.
        allowed_hosts: Names that a Host header may have, next to loopback and the address itself.
        ms_per_s: Work that each caller (a token, or an address without one) may ask for, ms.
        burst_ms: What a caller may ask for at once before the rate holds.
        max_in_flight: Requests being answered at the same time; more get 503, and half of it are
            those of one caller, who gets 429 for more.
        max_connections: Open connections; the one that has waited longest makes room for a new one.
        max_bodies_bytes: All bodies that are being received or answered, together.
        max_head_bytes: Longest request line and headers of a request.
        header_s: Time for a new connection to send the head of its first request, s.
        idle_s: The same for each further request, from the answer before, s.
        body_s: Time for a body, from its head, s.
        write_s: Time that an answer may wait for a client that does not read, s.
        drain_s: Time for requests to end when the service is stopped, s.
        replayed: All figures were recorded earlier; every answer is marked.
        log_level: `debug`, `info`, `warning` or `error`; requests are logged at `info`.
        log_format: `text`, or `json` for an object a line.
        otel: Send traces and metrics to where the `OTEL_` variables say.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    socket: Path | None = None
    socket_group: int | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    insecure: bool = False
    launching: bool = False
    anonymous_read: bool | None = None
    allowed_hosts: tuple[str, ...] = ()
    ms_per_s: float = 500.0
    burst_ms: float = 10_000.0
    max_in_flight: int = 256
    max_connections: int = 4096
    max_bodies_bytes: int = 64 * 1024 * 1024
    max_head_bytes: int = 32 * 1024
    header_s: float = 10.0
    idle_s: float = 30.0
    body_s: float = 10.0
    write_s: float = 30.0
    drain_s: float = 10.0
    replayed: bool = False
    log_level: str = "info"
    log_format: str = "text"
    otel: bool = False

    @property
    def anonymous(self) -> bool:
        """Whether reading needs no token."""
        on_this_host = is_loopback(self.host) and self.socket is None
        return on_this_host if self.anonymous_read is None else self.anonymous_read

    @property
    def url(self) -> str:
        """The address that clients on this host use."""
        if self.socket is not None:
            return f"unix:{self.socket}"
        scheme = "https" if self.tls_certificate else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


def check_options(options: ServeOptions) -> None:
    """Refuse what would be unsafe or could not work.

    Raises:
        InputError: half of TLS is given, or neither TLS nor `insecure` on an open address.
    """
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise InputError(
            "TLS needs both a certificate and its key",
            fix="give --tls-certificate FILE and --tls-key FILE",
        )
    if options.socket is not None and options.tls_certificate is not None:
        raise InputError(
            "a Unix socket has no TLS",
            why="its traffic does not leave the host",
            fix="give --socket or --tls-certificate",
        )
    if options.socket_group is not None and options.socket is None:
        raise InputError("a group is let in on a Unix socket only", fix="give --socket PATH")
    closed = options.socket or is_loopback(options.host) or options.tls_certificate
    if not (closed or options.insecure):
        raise InputError(
            f"{options.host} can be reached from other hosts, and there is no TLS",
            why="tokens would cross the network in plain text",
            fix="give --tls-certificate and --tls-key; or --insecure where something in front of "
            "it does TLS",
        )


# A name, or an IPv6 address in brackets, and a port.
_HOST = re.compile(r"(?:\[(?P<address>[^]]+)\]|(?P<name>[^:[][^:]*))(?::[0-9]*)?")

# Bytes of a path.
_LONGEST_PATH = 8192

_NEEDED_ONCE = (b"host", b"content-length", b"content-type", b"authorization", b"idempotency-key")


@dataclass(frozen=True, slots=True)
class Most:
    """What a body may have at most.

    Attributes:
        keys: Of all its objects together: each that is wrong costs time.
    """

    bytes: int
    keys: int


QUESTION = Most(64 * 1024, 1_000)
"""Some names, and a number for each."""

BATCH = Most(1024 * 1024, 20_000)
"""A thousand questions."""

ROWS = Most(1024 * 1024, 100_000)
"""A thousand rows of up to a hundred columns."""

_LONGER = {
    "/v1/recommendations/batch": BATCH,
    "/v1/power/input": BATCH,
    "/v1/points": ROWS,
    "/v1/observations": ROWS,
}


def most_of(path: str) -> Most:
    """What the body of a request to this path may have."""
    return _LONGER.get(path, ROWS if path.startswith("/v1/profiles/") else QUESTION)


class Buckets:
    """A token bucket for each caller: a burst at once, and a steady rate after it."""

    def __init__(
        self,
        per_s: float,
        burst: float,
        now: Callable[[], float] = time.monotonic,
        unit: str = "requests",
    ) -> None:
        self._per_s, self._burst, self._now, self._unit = per_s, float(burst), now, unit
        # A caller whose rate was forgotten starts again.
        self._left = LRUCache[str, tuple[float, float]](10_000)

    def take(self, caller: str, cost: float = 1) -> None:
        """Count a request as so many; one that costs more than a burst needs a whole one.

        Raises:
            HTTPException: 429, it came too soon; with the time to wait.
        """
        cost = min(cost, self._burst)
        if (lacking := cost - self._refilled(caller)) > 0:
            wait_s = math.ceil(lacking / self._per_s)
            raise HTTPException(
                429,
                f"{self._per_s:g} {self._unit} a second are allowed. Wait {wait_s} s.",
                headers={"Retry-After": str(wait_s)},
            )
        self.charge(caller, cost)

    def charge(self, caller: str, cost: float) -> None:
        """Charge a caller for a request that has ended; the debt is one burst at most."""
        self._left[caller] = (max(self._refilled(caller) - cost, -self._burst), self._now())

    def _refilled(self, caller: str) -> float:
        now = self._now()
        left, since = self._left.get(caller, (self._burst, now))
        return min(self._burst, left + (now - since) * self._per_s)


class Hosts:
    """Which Host headers are ours: a page of another site may have its name lead to us."""

    def __init__(self, options: ServeOptions) -> None:
        self._names = {
            name.lower().strip("[]") for name in ("localhost", options.host, *options.allowed_hosts)
        }
        # Those that were found good, as they came: to look is cheaper than to read.
        self._good: set[bytes] = set()

    def check(self, host: bytes, local_address: str) -> None:
        """Let a host pass.

        Raises:
            HTTPException: 421, it is another's; 400, it is none.
        """
        if host in self._good:
            return
        text = host.decode("latin-1").lower()
        if not (match := _HOST.fullmatch(text)):
            raise HTTPException(
                400, f"Host is {shown(text)}, and should be the name of the server."
            )
        name = match["address"] or match["name"]
        ours = name in self._names or is_loopback(name)
        if not (ours or name == local_address):
            raise HTTPException(
                421,
                f"this server is not {shown(name)}. Allow the name: "
                "advisor serve --allowed-host NAME.",
            )
        if ours and len(self._good) < 64:
            self._good.add(host)


def checked_headers(scope: Scope) -> dict[bytes, bytes]:
    """All headers by name; those that decide something are there once, below a path that is good.

    One is that can be printed and be a name in a database.

    Raises:
        HTTPException: 400 or 414, a header is there twice, or the path is none.
    """
    pairs: list[tuple[bytes, bytes]] = scope["headers"]
    headers = dict(pairs)
    if len(headers) < len(pairs):
        names = [name for name, _ in pairs]
        for name in _NEEDED_ONCE:
            if names.count(name) > 1:
                raise HTTPException(400, f"the header {name.decode()} is there twice.")
    if (size := len(scope["raw_path"]) + len(scope["query_string"])) > _LONGEST_PATH:
        raise HTTPException(
            414, f"a path may have {_LONGEST_PATH} bytes with its query, and has {size}."
        )
    if not scope["path"].isprintable() or b"%00" in scope["query_string"]:
        raise HTTPException(
            400, f"the path has characters that cannot be printed: {shown(scope['path'])}."
        )
    return headers


LONG_BYTES = 16 * 1024
"""Longer bodies are read in a thread: what takes a millisecond on the event loop is short."""

WHOLE = "advisor.whole"
"""Key of a scope: all of the request has come."""

GONE = "advisor.gone"
"""Key of a scope: the client went away before the end of its answer."""

# After an answer to half a request, what follows on the connection is the rest of its body.
_CLOSE = {"Connection": "close"}

# How long, and how much of, a too large body is read: after a cut the caller sees no answer.
_DRAINED_S, _DRAINED_BYTES = 2.0, 16 * 1024 * 1024


class Bodies:
    """Receives bodies, all of them together in a bounded space."""

    def __init__(self, options: ServeOptions) -> None:
        self._room, self._body_s = options.max_bodies_bytes, options.body_s

    @contextmanager
    def received(self, size: int) -> Generator[None]:
        """Keep room for a body while it is answered."""
        self._room -= size
        try:
            yield
        finally:
            self._room += size

    async def receive(
        self, headers: Mapping[bytes, bytes], receive: Receive, most: Most, *, is_here: bool = False
    ) -> bytes:
        """The whole body; where all of it `is_here`, it is not waited for.

        Raises:
            HTTPException: 400, 408, 413, 415, 422 or 503.
            ClientDisconnect: the client is gone.
        """
        # Of one stream, also where it is drained: it knows whether the end has come already.
        chunks = Request({"type": "http"}, receive).stream()
        try:
            self._check_size(length_of(headers), most)
            kind, _, parameter = headers.get(b"content-type", b"").lower().partition(b";")
            charset = parameter.strip().removeprefix(b"charset=").strip(b'"')
            if kind.strip() != b"application/json" or charset not in (b"", b"utf-8"):
                given = shown(headers.get(b"content-type", b"").decode("latin-1"))
                raise HTTPException(
                    415,
                    f"Content-Type is {given}, and a body must be JSON. Send application/json.",
                    headers=_CLOSE,
                )
            async with asyncio.timeout(None if is_here else self._body_s):
                body = await self._gather(chunks, most)
        except TimeoutError as error:
            text = f"the body did not come within {self._body_s:g} s."
            raise HTTPException(408, text, headers=_CLOSE) from error
        except HTTPException:
            # Reading on would ask a waiting client (`Expect`) for the body.
            if b"expect" not in headers:
                await _drain(chunks)
            raise
        # Each one that is unknown is a fault of its own; a colon in a text counts as a key.
        if (keys := body.count(b":")) > most.keys:
            text = f"the body has about {keys} keys, and may have {most.keys}. Send less at once."
            raise HTTPException(422, text)
        return body

    async def _gather(self, chunks: AsyncIterable[bytes], most: Most) -> bytes:
        body = bytearray()
        try:
            async for chunk in chunks:
                body += chunk
                self._room -= len(chunk)
                self._check_size(len(body), most)
        finally:
            self._room += len(body)
        return bytes(body)

    def _check_size(self, size: int, most: Most) -> None:
        if size > most.bytes:
            text = f"a body may have {most.bytes} bytes here. Send less at once."
            raise HTTPException(413, text, headers=_CLOSE)
        if self._room < 0:
            text = "too many large bodies come at once. Try again."
            raise HTTPException(503, text, headers={**_CLOSE, "Retry-After": "1"})


def length_of(headers: Mapping[bytes, bytes]) -> int:
    """What a body says of its length; 0 where it comes in chunks.

    Raises:
        HTTPException: 400, it is no number.
    """
    text = headers.get(b"content-length", b"0")
    # More digits than a body of any size has.
    if not text.isdigit() or len(text) > 18:
        said = f"the header content-length is {shown(text.decode('latin-1'))}, no number."
        raise HTTPException(400, said, headers=_CLOSE)
    return int(text)


async def _drain(chunks: AsyncIterable[bytes]) -> None:
    size = 0
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(_DRAINED_S):
            async for chunk in chunks:
                if (size := size + len(chunk)) >= _DRAINED_BYTES:
                    return


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
        # A caller that goes away does not cancel the look of others.
        return await asyncio.shield(lookup)

    async def _read(self) -> None:
        """Look up all waiting secrets, one read after the other, until none waits."""
        while self._waiting:
            now = dict(itertools.islice(self._waiting.items(), _AT_ONCE))
            for secret in now:
                del self._waiting[secret]
            began = time.monotonic()
            try:
                tokens = await asyncio.to_thread(self._find, now.keys())
            except Exception as error:  # noqa: BLE001 else all that wait would wait forever
                for future in now.values():
                    future.set_exception(error)
                    future.exception()  # the caller may be gone
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
    """The caller of a request.

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
    return Caller(
        name=token.name, scopes=frozenset[str]().union(*(_IMPLIED[scope] for scope in token.scopes))
    )


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
    """The user of a connection, by the file descriptor of an accepted Unix socket.

    Raises:
        OSError: it is none.
    """
    with socket.socket(fileno=os.dup(connection)) as ours:
        _, uid, gid = _CREDENTIALS.unpack(
            ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
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
    may_launch = frozenset({"read", "write", "launch"})
    return Caller(name=peer.name, scopes=may_launch) if group in peer.gids else None
