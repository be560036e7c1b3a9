"""The body of a request: received whole, in time and in bounds; `sent.py` reads it."""

import asyncio
import contextlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from advisor.core.wording import shown
from advisor_api.http.limits import Most
from advisor_api.http.options import ServeOptions

LONG_BYTES = 16 * 1024
"""Longer bodies are read in a thread: what takes a millisecond on the event loop is short."""

WHOLE = "advisor.whole"
"""Key of a scope: all of the request has come."""

_CLOSE = {"Connection": "close"}
"""After an answer to half a request, what follows on the connection is the rest of its body."""

_DRAINED_S, _DRAINED_BYTES = 2.0, 16 * 1024 * 1024
"""How long, and how much of, a body that is too large is read: who is cut off sees no answer."""


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
        try:
            self._check_size(length_of(headers), most)
            _check_type(headers)
            if is_here:
                body = await self._gather(receive, most)
            else:
                async with asyncio.timeout(self._body_s):
                    body = await self._gather(receive, most)
        except TimeoutError as error:
            text = f"the body did not come within {self._body_s:g} s."
            raise HTTPException(408, text, headers=_CLOSE) from error
        except HTTPException:
            # Who waits to be asked for the body would be asked for it by reading on.
            if b"expect" not in headers:
                await _drain(receive)
            raise
        _check_keys(body, most)
        return body

    async def _gather(self, receive: Receive, most: Most) -> bytes:
        chunks: list[bytes] = []
        size, more = 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunk: bytes = message.get("body", b"")
                chunks.append(chunk)
                size += len(chunk)
                self._room -= len(chunk)
                self._check_size(size, most)
                more = message.get("more_body", False)
        finally:
            self._room += size
        return b"".join(chunks)

    def _check_size(self, size: int, most: Most) -> None:
        if size > most.bytes:
            text = f"a body may have {most.bytes} bytes here. Send less at once."
            raise HTTPException(413, text, headers=_CLOSE)
        if self._room < 0:
            text = "too many large bodies come at once. Try again."
            raise HTTPException(503, text, headers={**_CLOSE, "Retry-After": "1"})


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body follows."""
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def length_of(headers: Mapping[bytes, bytes]) -> int:
    """What a body says of its length; 0 where it comes in chunks.

    Raises:
        HTTPException: 400, it is no number.
    """
    text = headers.get(b"content-length", b"0")
    # More digits than a body of any size has.
    if not text.isdigit() or len(text) > 18:
        given = shown(text.decode("latin-1"))
        raise HTTPException(
            400, f"the header content-length is {given}, no number.", headers=_CLOSE
        )
    return int(text)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Hands out a body that was received already, then what comes after it."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def _check_keys(body: bytes, most: Most) -> None:
    # Each one that is unknown is a fault of its own; a colon in a text counts as a key.
    if (keys := body.count(b":")) > most.keys:
        text = f"the body has about {keys} keys, and may have {most.keys}. Send less at once."
        raise HTTPException(422, text)


async def _drain(receive: Receive) -> None:
    size, more = 0, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAINED_S):
            while more and size < _DRAINED_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                more = message.get("more_body", False)


def _check_type(headers: Mapping[bytes, bytes]) -> None:
    kind, _, parameter = headers.get(b"content-type", b"").lower().partition(b";")
    charset = parameter.strip().removeprefix(b"charset=").strip(b'"')
    if kind.strip() != b"application/json" or charset not in (b"", b"utf-8"):
        given = shown(headers.get(b"content-type", b"").decode("latin-1"))
        text = f"Content-Type is {given}, and a body must be JSON. Send application/json."
        raise HTTPException(415, text, headers=_CLOSE)
