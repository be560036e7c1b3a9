"""The body of a request: received whole, in time and in bounds, and JSON that is safe to parse."""

import asyncio
import contextlib
import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from advisor_api.engine.long_work import in_thread
from advisor_api.http.limits import Most
from advisor_api.http.options import ServeOptions

_DEEPEST = 32
"""Brackets within brackets; ours have five. A parser that recurses ends at about a thousand."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A text, or the rest where it does not end: were that no match, each of its quotes would begin
another try, and a long body take minutes."""

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

_ONE_KIND = bytes.maketrans(b"{}", b"[]")

_NO_NUMBERS = (b"NaN", b"Infinity", b"0" * 400)
"""No float has so many digits before its point; Python refuses to read more than 4,300."""

_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)

_RARE_TEXT = re.compile(rb"\\u(?:[dD][89a-fA-F]|0000)")
"""How half characters and NUL are written; whole ones of two halves, too."""

LONG_BYTES = 16 * 1024
"""Longer bodies are looked at in a thread: what takes a millisecond on the event loop is short."""

_CLOSE = {"Connection": "close"}
"""After an answer to half a request, what follows on the connection is the rest of its body."""

_DRAINED_S, _DRAINED_BYTES = 2.0, 16 * 1024 * 1024
"""How long, and how much of, a body that is too large is read: who is cut off sees no answer."""


class Bodies:
    """Receives bodies, all of them together in a bounded space.

    Args:
        options: The limits.
    """

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

    async def receive(self, headers: Mapping[bytes, bytes], receive: Receive, most: Most) -> bytes:
        """The whole body, which is JSON as far as can be told without a parser.

        Args:
            headers: Of the request.
            receive: Hands out the body.
            most: What it may have.

        Raises:
            HTTPException: 400, 408, 413, 415, 422 or 503.
            ClientDisconnect: the client is gone.
        """
        try:
            self._check_size(_length(headers), most)
            _check_type(headers)
            async with asyncio.timeout(self._body_s):
                body = await self._gather(receive, most)
        except TimeoutError as error:
            text = f"the body did not come within {self._body_s:g} s."
            raise HTTPException(408, text, headers=_CLOSE) from error
        except HTTPException:
            await _drain(receive)
            raise
        if len(body) > LONG_BYTES:
            await in_thread(check_json, body, most.keys)
        else:
            check_json(body, most.keys)
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


def check_json(body: bytes, most_keys: int) -> None:
    """Refuse what Python's parser takes, or trips over, and JSON does not know.

    Args:
        body: As it came.
        most_keys: Keys of objects that it may have; a colon in a text counts as one.

    Raises:
        HTTPException: 422, the body is not UTF-8, has NaN or infinity, half characters or NUL,
            brackets within brackets without end, or too many keys.
    """
    if (keys := body.count(b":")) > most_keys:
        text = f"the body has about {keys} keys, and may have {most_keys}. Send less at once."
        raise HTTPException(422, text)
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise HTTPException(422, f"the body is not UTF-8 at byte {error.start}.") from error
    # JSON has no NUL anywhere, and Python would take it for a sign of UTF-16 or UTF-32.
    if b"\0" in body or body[:3] == b"\xef\xbb\xbf":
        raise HTTPException(422, "the body is not JSON in UTF-8.")
    if body.count(b"[") + body.count(b"{") > _DEEPEST:
        _check_depth(_STRING.sub(b"", body))
    if _has_no_number(body):
        _check_numbers(_STRING.sub(b"", body))
    if _RARE_TEXT.search(body):
        _check_text(body)


def _check_depth(outside: bytes) -> None:
    """Takes the innermost pairs away, layer by layer: each is one fast pass."""
    left = outside.translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(_DEEPEST):
        left = left.replace(b"[]", b"")
    if left:
        raise HTTPException(
            422, f"brackets are more than {_DEEPEST} deep in each other, or do not match."
        )


def _has_no_number(text: bytes) -> bool:
    digits = text.translate(_ZEROS)
    return any(sign in digits for sign in _NO_NUMBERS)


def _check_numbers(outside: bytes) -> None:
    if _has_no_number(outside):
        text = "NaN, Infinity and numbers of 400 digits are refused; leave out what is not known."
        raise HTTPException(422, text)


def _check_text(body: bytes) -> None:
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError as error:
        raise HTTPException(422, "the body has half a character (a lone surrogate).") from error
    except (ValueError, RecursionError):
        return  # whoever parses it says where
    if "\\u0000" in text.replace("\\\\", ""):
        raise HTTPException(422, "the body has text with NUL.")


async def _drain(receive: Receive) -> None:
    size, more = 0, True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAINED_S):
            while more and size < _DRAINED_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                more = message.get("more_body", False)


def _length(headers: Mapping[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    # More digits than a body of any size has.
    if not text.isdigit() or len(text) > 18:
        raise HTTPException(400, "the header content-length is no number.", headers=_CLOSE)
    return int(text)


def _check_type(headers: Mapping[bytes, bytes]) -> None:
    kind, _, parameter = headers.get(b"content-type", b"").lower().partition(b";")
    charset = parameter.strip().removeprefix(b"charset=").strip(b'"')
    if kind.strip() != b"application/json" or charset not in (b"", b"utf-8"):
        text = "a body must be JSON. Send Content-Type: application/json."
        raise HTTPException(415, text, headers=_CLOSE)
