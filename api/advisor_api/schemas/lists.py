"""Which page of a long list a request asks for, and the answer, made in a thread."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Query
from fastapi.responses import Response

from advisor_api.engine.engine import encoded
from advisor_api.engine.long_work import in_thread
from advisor_api.schemas.requests import BeforeInQuery, GpuModelInQuery, LimitInQuery
from advisor_data.store.pages import Position, Span, us_of

CURSOR = r"^-?[0-9]{1,18}\.[0-9a-f]{32}$"


def _span_of(usual: int) -> Callable[..., Awaitable[Span]]:
    """What reads a page's parameters, with its usual number of entries."""

    async def span(
        gpu_model: GpuModelInQuery = None,
        limit: LimitInQuery = usual,
        before: BeforeInQuery = None,
        cursor: Annotated[
            str | None, Query(pattern=CURSOR, description="`next` of the page before")
        ] = None,
    ) -> Span:
        return Span(
            limit=limit,
            gpu_model=gpu_model,
            before_us=None if before is None else us_of(before),
            after=None if cursor is None else Position.parse(cursor),
        )

    return span


SpanOfPoints: TypeAlias = Annotated[Span, Depends(_span_of(1000))]
"""The parameter of a route that lists points."""

SpanOfObservations: TypeAlias = Annotated[Span, Depends(_span_of(100))]
"""The parameter of a route that lists observations."""


async def long_json(make: Callable[[], dict[str, Any]]) -> Response:
    """What takes long to read or to write down, as JSON."""
    return Response(await in_thread(lambda: encoded(make())), media_type="application/json")
