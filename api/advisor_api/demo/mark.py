"""Marks every answer of a service that plays records: a header, and a key in all JSON."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = (b"advisor-replayed", b"true")
KEY = b'"replayed":true'
_BEGIN_BYTES = 64
"""Where an overview says it by itself."""


class Marked:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        start: Message | None = None
        body = b""

        async def marking(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = {**message, "headers": [*message["headers"], HEADER]}
                if not _is_json(start):
                    await send(start)
                return
            assert start is not None
            if not _is_json(start):
                await send(message)
                return
            body += message.get("body", b"")
            if not message.get("more_body"):
                text = with_mark(body)
                length = (b"content-length", str(len(text)).encode())
                kept = [one for one in start["headers"] if one[0].lower() != length[0]]
                await send({**start, "headers": [*kept, length]})
                await send({"type": "http.response.body", "body": text})

        await self._app(scope, receive, marking)


def with_mark(body: bytes) -> bytes:
    """A JSON object that says first that it is of a record; anything else as it is."""
    if not body.startswith(b"{") or KEY in body[:_BEGIN_BYTES]:
        return body
    rest = body[1:].lstrip()
    return b"{" + KEY + (b"" if rest.startswith(b"}") else b",") + rest


def _is_json(start: Message) -> bool:
    headers = {name.lower(): value for name, value in start["headers"]}
    return headers.get(b"content-type", b"").startswith(b"application/json")
