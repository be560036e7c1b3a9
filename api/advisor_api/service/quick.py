"""The short way of the request that comes most: a recommendation that is a plain success.

FastAPI's way to an endpoint takes as long as all else together. Whatever is no plain success, such
as a body with a fault or a caller who may not read, goes that way, to be told as everywhere.
"""

from types import SimpleNamespace
from typing import cast

from starlette.types import ASGIApp, Receive, Scope, Send

from advisor.errors import AdvisorError
from advisor.formats.wire import read
from advisor.wire.requests import RecommendationRequest
from advisor_api.http.access import Caller
from advisor_api.http.body import replayed
from advisor_api.service.service import Service

PATH = "/v1/recommendations"

_ROUTE = SimpleNamespace(path=PATH)
"""What metrics know the request by."""

_JSON = (b"content-type", b"application/json")


class QuickRecommendations:
    """ASGI middleware behind the gate, which hands over whole bodies.

    Args:
        app: What answers all else.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        plain = scope["type"] == "http" and scope["path"] == PATH and not scope["query_string"]
        if not plain or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body: bytes = (await receive()).get("body", b"")
        text = await _answer(scope, body)
        if text is None:
            await self._app(scope, replayed(body, receive), send)
            return
        scope["route"] = _ROUTE
        headers = [_JSON, (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


async def _answer(scope: Scope, body: bytes) -> bytes | None:
    """The answer; None where there is none, or none that this caller may see."""
    caller = cast("Caller", scope["advisor.caller"])
    if "read" not in caller.scopes:
        return None
    service = cast("Service", scope["app"].state.service)
    try:
        return await service.engine.recommend(read(RecommendationRequest, body))
    except AdvisorError:
        return None
