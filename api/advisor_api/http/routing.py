"""Routes of the service: how they read bodies and write answers, and how they are added."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, cast

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from advisor.core.wording import shown
from advisor.errors import InputError
from advisor.formats.wire import T, as_answer, read, write_bytes
from advisor_api.http.access import say_where_no_token_is_needed
from advisor_api.http.errors import ERROR_ANSWERS
from advisor_api.http.limits import LONG_BYTES

P = ParamSpec("P")

JSON = "application/json"

_FEW_BYTES = 512
"""A question of this length is likely to come again, letter by letter."""

_THREADS = 4
"""Python runs one at a time; more would only make the event loop wait for its turn."""

_POOL = ThreadPoolExecutor(_THREADS, "long-work")


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A dataclass of `advisor.wire` as it is sent."""
    return Response(as_answer(write_bytes(value)), status, headers, media_type=JSON)


def kept_answer(text: bytes) -> Response:
    """An answer that is at hand as JSON."""
    return Response(as_answer(text), media_type=JSON)


async def long_answer(make: Callable[[], Any]) -> Response:
    """What takes long to read or to write down."""
    return kept_answer(await _in_thread(lambda: write_bytes(make())))


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns or raises; the event loop goes on meanwhile."""
    call = functools.partial(work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_POOL, call)


class _SentRoute(APIRoute):
    """A route whose body, if it has one, is a dataclass or a model."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI's, but the body is read by `advisor.formats`, and its faults are told last."""
        usual = super().get_route_handler()
        if self.body_field is None:
            return usual
        kind = cast("type[Any]", self.body_field.field_info.annotation)

        async def handler(request: Request) -> Response:
            body = await request.body()
            if not body:  # told as a field that is missing
                return await usual(request)
            value, fault = None, None
            try:
                value = await _read(kind, body)
            except InputError as error:
                fault = error
            try:
                return await usual(_Sent(request, value))
            except RequestValidationError as other:
                # Only now: who may not ask at all learns only that, and nothing about the body.
                raise fault or other from None

        return handler


class DirectRoute(APIRoute):
    """A route that calls its endpoint itself, with the body and what its dependencies give.

    To find the parameters of an endpoint takes FastAPI longer than all else that an answer takes
    which is kept as bytes. Such a route is described, found and refused as any other; its endpoint
    is a coroutine that has a body, no parameters of the path, the query or the head, and no
    dependencies that have some.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["method"] not in self.methods:
            await super().handle(scope, receive, send)  # refused
            return
        request, values = Request(scope, receive), dict[str, Any]()
        for wanted in self.dependant.dependencies:
            value = await cast("Callable[[Request], Awaitable[Any]]", wanted.call)(request)
            if wanted.name:
                values[wanted.name] = value
        [field] = self.dependant.body_params
        kind = cast("type[Any]", field.field_info.annotation)
        # The gate hands it over in one piece.
        body: bytes = (await receive()).get("body", b"")
        if not body:
            missing = {"type": "missing", "loc": ("body",), "msg": "Field required"}
            raise RequestValidationError([missing])
        few = len(body) <= _FEW_BYTES
        values[field.name] = _read_again(kind, body) if few else await _read(kind, body)
        response: Response = await self.endpoint(**values)
        await response(scope, receive, send)


class _Sent(Request):
    """A request whose body was read already: FastAPI takes a value of the right class as it is."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._body, self._json = b"read", value


@functools.lru_cache(maxsize=8192)
def _read_again(kind: type[T], body: bytes) -> T:
    """As `read`; what was read from the same bytes before is given again, since it is frozen."""
    return read(kind, body, name="the body")


async def _read(kind: type[T], body: bytes) -> T:
    if len(body) > LONG_BYTES:
        return await _in_thread(read, kind, body, name="the body")
    return read(kind, body, name="the body")


def v1_router(tag: str, route_class: type[APIRoute] = _SentRoute) -> APIRouter:
    """A router below `/v1`, with one tag for the description of the service."""
    return APIRouter(
        prefix="/v1",
        tags=[tag],
        dependencies=[KNOWN_QUERY],
        route_class=route_class,
        responses=ERROR_ANSWERS,
    )


def add_routes(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Add the routes of routers one by one: to find one in a router takes two searches."""
    for router in routers:
        say_where_no_token_is_needed(router.routes)
        for route in router.routes:
            # Programs are generated from it: its function's name reads better than the path.
            cast("APIRoute", route).unique_id = cast("APIRoute", route).name
        app.router.routes.extend(router.routes)


async def _known_query(request: Request) -> None:
    if not request.scope["query_string"]:
        return
    known = set(_parameters(request.scope["route"].dependant))
    given = [name for name, _ in request.query_params.multi_items()]
    if strangers := sorted(set(given) - known):
        there = ", ".join(sorted(known)) or "none"
        raise HTTPException(
            422, f"there is no query parameter {shown(strangers[0])}. There is {there}."
        )
    if len(set(given)) < len(given):
        twice = next(name for name in given if given.count(name) > 1)
        raise HTTPException(422, f"the query parameter {twice} is there twice. Leave one out.")


def _parameters(dependant: Any) -> Iterator[str]:
    """Of a route, and of what its parameters are made of."""
    yield from (parameter.alias for parameter in dependant.query_params)
    for other in dependant.dependencies:
        yield from _parameters(other)


KNOWN_QUERY = Depends(_known_query)
"""For routers whose routes have parameters: a slip in one would answer another question."""
