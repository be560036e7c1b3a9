"""What paths, queries and headers may say, and the page of a long list that they ask for."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Header, Path, Query
from pydantic import BeforeValidator

from advisor.wire.requests import LAUNCH_ID, NAME, PRINTABLE, SET_OF_NAMES, VERSION
from advisor_data.lists import Position, Span, us_of

CURSOR = r"^-?[0-9]{1,18}\.[0-9a-f]{32}$"

JobInPath: TypeAlias = Annotated[str, Path(pattern=NAME, description="name of a job")]
JobsInPath: TypeAlias = Annotated[
    str,
    Path(
        pattern=SET_OF_NAMES,
        description="names of two to seven jobs, such as a+a+b: copies so often as they run",
    ),
]
VersionInPath: TypeAlias = Annotated[
    str, Path(pattern=VERSION, description="version of a model, or `bundled`")
]
GpuModelInQuery: TypeAlias = Annotated[
    str | None, Query(pattern=PRINTABLE, description="only this GPU model")
]
LimitInQuery: TypeAlias = Annotated[
    int, Query(ge=1, le=1000, description="most entries in the answer")
]


def _moment(text: Any) -> Any:
    # Not pydantic's own reading, which takes a bare number for seconds since 1970.
    return datetime.fromisoformat(text) if isinstance(text, str) else text


BeforeInQuery: TypeAlias = Annotated[
    datetime | None,
    BeforeValidator(_moment),
    Query(description="only those that started before this moment; without a zone it is UTC"),
]
LaunchInPath: TypeAlias = Annotated[str, Path(pattern=LAUNCH_ID, description="id of a launch")]
JoinInPath: TypeAlias = Annotated[
    str, Path(pattern=r"^[0-9a-f]{16}$", description="`join_id` of a job that was to join")
]
LaunchInQuery: TypeAlias = Annotated[
    str | None, Query(pattern=LAUNCH_ID, description="only launches before this one")
]
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,200}$",
        description="the same key with the same body starts a thing once, however often sent",
    ),
]
ActiveInQuery: TypeAlias = Annotated[bool, Query(description="only launches that are not over")]


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
