"""Bounds of a request before its meaning: host, path, rate and body."""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from cachetools import LRUCache
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from advisor.core.wording import shown
from advisor.scrape.fetch import is_loopback
from advisor_api.http.options import ServeOptions

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
    """A token bucket for each caller: a burst at once, and a steady rate that goes on for ever."""

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
        names = ("localhost", options.host, *options.allowed_hosts)
        self._names = {name.lower().strip("[]") for name in names}
        # Those that were found good, as they came: to look is cheaper than to read.
        self._good: set[bytes] = set()

    def check(self, host: bytes, local_address: str) -> None:
        """Let a host pass.

        Raises:
            HTTPException: 421, it is another's; 400, it is none.
        """
        if host in self._good:
            return
        name = _name_of(host)
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


def _name_of(host: bytes) -> str:
    text = host.decode("latin-1").lower()
    if not (match := _HOST.fullmatch(text)):
        raise HTTPException(400, f"Host is {shown(text)}, and should be the name of the server.")
    return match["address"] or match["name"]


LONG_BYTES = 16 * 1024
"""Longer bodies are read in a thread: what takes a millisecond on the event loop is short."""

WHOLE = "advisor.whole"
"""Key of a scope: all of the request has come."""

GONE = "advisor.gone"
"""Key of a scope: the client went away before the end of its answer."""

# After an answer to half a request, what follows on the connection is the rest of its body.
_CLOSE = {"Connection": "close"}

# How long, and how much of, a body that is too large is read: who is cut off sees no answer.
_DRAINED_S, _DRAINED_BYTES = 2.0, 16 * 1024 * 1024


class Bodies:
    """Receives bodies, all of them together in a bounded space."""

    def __init__(self, options: ServeOptions) -> None:
        self._room = options.max_bodies_bytes
        self._body_s = options.body_s

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
            _check_type(headers)
            async with asyncio.timeout(None if is_here else self._body_s):
                body = await self._gather(chunks, most)
        except TimeoutError as error:
            text = f"the body did not come within {self._body_s:g} s."
            raise HTTPException(408, text, headers=_CLOSE) from error
        except HTTPException:
            # Who waits to be asked for the body would be asked for it by reading on.
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


def _check_type(headers: Mapping[bytes, bytes]) -> None:
    kind, _, parameter = headers.get(b"content-type", b"").lower().partition(b";")
    charset = parameter.strip().removeprefix(b"charset=").strip(b'"')
    if kind.strip() != b"application/json" or charset not in (b"", b"utf-8"):
        given = shown(headers.get(b"content-type", b"").decode("latin-1"))
        raise HTTPException(
            415,
            f"Content-Type is {given}, and a body must be JSON. Send application/json.",
            headers=_CLOSE,
        )
