"""Answers of routes as JSON, written by the one writer; long ones in a thread."""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi.responses import Response

from advisor.formats.wire import write
from advisor_api.engine.long_work import in_thread

JSON = "application/json"


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A dataclass of `advisor.wire` as it is sent."""
    return Response(write(value), status, headers, media_type=JSON)


async def long_answer(make: Callable[[], Any]) -> Response:
    """What takes long to read or to write down."""
    return Response(await in_thread(lambda: write(make())), media_type=JSON)
