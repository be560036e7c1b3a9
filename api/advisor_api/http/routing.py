"""Routes of the service: how they read bodies, write answers and say errors, how they are added.

Every error is `{"error": {"code", "message", "request_id"}}`.
"""

import asyncio
import functools
import gzip
import hashlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from advisor.core.wording import shown
from advisor.errors import AdvisorError, InputError
from advisor.formats.wire import T, as_answer, fault_text, read, write_bytes
from advisor_api.http.access import LONG_BYTES, say_where_no_token_is_needed
from advisor_api.worker_process import worked

LOG = logging.getLogger("advisor.service")

# The status of our own errors by their code; others are internal errors.
_STATUS_OF_CODE = {
    "bad-input": 422,
    "busy": 409,
    "disputed": 409,
    "idempotency-conflict": 409,
    "job": 409,
    "launching-off": 403,
    "limit-broken": 409,
    "limit-not-proven": 409,
    "model": 503,
    "no-split": 422,
    "not-ready": 503,
    "other-host": 409,
    "partition": 503,
    "process-ended": 503,
    "source": 503,
    "store": 503,
    "survivors": 409,
    "unsafe-count": 422,
}

# The code of what HTTP itself refuses, by its status.
_CODE_OF_STATUS = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    409: "conflict",
    413: "body-too-large",
    414: "path-too-long",
    415: "not-json",
    421: "wrong-host",
    422: "bad-input",
    429: "too-many-requests",
    431: "head-too-large",
    503: "overloaded",
}

# How the library names the types of which a value may be one.
_TYPE = re.compile(r"constrained-|(dict|list|tuple|union|function-[a-z]+)\[")

# Characters of a name out of a body that are repeated.
_LONGEST = 80


class ErrorFields(BaseModel):
    """What went wrong.

    Attributes:
        code: Stable name of the kind of error.
        message: What happened, why, and what to do next.
        request_id: The same as in the header `X-Request-Id` and in the server's log.
    """

    code: str
    message: str
    request_id: str


class ErrorAnswer(BaseModel):
    """The body of every answer that is no success."""

    error: ErrorFields


ERROR_ANSWERS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorAnswer, "description": "Why there is no answer"}
}
"""The text in the description of a route."""

REFUSALS: Mapping[int, str] = {
    401: "No token where one is needed, or a wrong, expired or revoked one",
    403: "The token lacks the scope, or the service does not launch",
    404: "There is none of that name",
    409: "Not now, or not here",
    413: "The body is too large",
    422: "A field, job or limit that cannot be meant, or nothing that keeps every limit",
    429: "Too many requests; the header `Retry-After` says when to come back",
    503: "A part of the server does not work, or it has too much to do",
}
"""What routes say of themselves: when there is no answer, by status."""


def may_refuse(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route, with what it refuses beside that which all routes of its kind do."""
    return {status: {"description": REFUSALS[status]} for status in statuses}


def codes_of(status: int) -> list[str]:
    """The codes that errors of a status may have."""
    return sorted(
        {_CODE_OF_STATUS[status], *(code for code, of in _STATUS_OF_CODE.items() if of == status)}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error as a caller sees it; `headers` are those that its status asks for."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str]


def fault_of(error: Exception) -> Fault:
    """How an error is reported to a caller; causes that are none of theirs stay in the log."""
    match error:
        case RequestValidationError():
            return Fault(status=422, code="bad-input", message=_faults_of_input(error), headers={})
        case HTTPException():
            return Fault(
                status=error.status_code,
                code=_CODE_OF_STATUS.get(error.status_code, f"http-{error.status_code}"),
                message=str(error.detail),
                headers=error.headers or {},
            )
        case AdvisorError(code="store"):
            return _hidden(503, "store", "the database did not answer as it should")
        case AdvisorError(code="unsafe-file" as code):
            return _hidden(503, code, "files of the server are open to other users of its host")
        case AdvisorError(code=code):
            return Fault(
                status=_STATUS_OF_CODE.get(code, 500), code=code, message=str(error), headers={}
            )
        case OSError():
            return _hidden(503, "disk", "the server cannot read or write its files")
        case _:
            return _hidden(500, "internal", "the server has a fault of its own")


def error_body(fault: Fault, request_id: str) -> bytes:
    """The JSON of a fault; ASCII, as a body may have held half a character."""
    fields = {"code": fault.code, "message": fault.message, "request_id": request_id}
    return as_answer(json.dumps({"error": fields}).encode())


def answer_errors(app: Starlette) -> None:
    """Let the application tell the errors of its routes in our own way."""
    for kind in (RequestValidationError, HTTPException, AdvisorError):
        app.add_exception_handler(kind, _answer)


def log_fault(error: Exception, fault: Fault, request_id: str) -> None:
    """Keep what the caller does not see: the cause of every fault that is not the caller's."""
    if fault.code == "internal":
        LOG.error("%s: an internal error", request_id, exc_info=error)
    elif fault.status >= 500 and not isinstance(error, HTTPException):
        LOG.error("%s: %s: %s", request_id, fault.code, str(error) or repr(error))


async def _answer(request: Request, error: Exception) -> Response:
    request_id = cast("str", request.scope["advisor.request_id"])
    fault = fault_of(error)
    # What the library says of a path or a method that no route has.
    if fault.message in ("Not Found", "Method Not Allowed"):
        target = f"{request.method} {shown(request.url.path)}"
        fault = replace(
            fault, message=f"there is no {target} here. GET /openapi.json says what there is."
        )
    log_fault(error, fault, request_id)
    headers = dict(fault.headers)
    if fault.status == 405:
        # All methods of a path (RFC 9110, section 15.5.6); a route knows its own alone.
        headers["Allow"] = ", ".join(
            method
            for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
            if any(
                route.matches({**request.scope, "method": method})[0] is Match.FULL
                for route in request.app.routes
            )
        )
    return Response(
        error_body(fault, request_id),
        status_code=fault.status,
        headers=headers,
        media_type="application/json",
    )


def _hidden(status: int, code: str, what: str) -> Fault:
    """A fault whose cause may name files, hosts and users of the server."""
    text = f"{what}. Try again later; the server's log has the cause under this request_id."
    return Fault(status=status, code=code, message=text, headers={})


def _faults_of_input(error: RequestValidationError) -> str:
    places: dict[str, list[Mapping[str, Any]]] = {}
    for fault in cast("Sequence[Mapping[str, Any]]", error.errors()):
        # Without the names that the library has for types.
        names = [str(name) for name in fault["loc"] if not _TYPE.match(str(name))]
        places.setdefault(".".join(name[:_LONGEST] for name in names), []).append(fault)
    return f"{fault_text(places)}."


def not_found(what: str, fix: str) -> HTTPException:
    """404 with what is not there, and where to look."""
    return HTTPException(404, f"{what}. {fix}.")


JSON = "application/json"


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A dataclass of `advisor.wire` as it is sent."""
    return Response(as_answer(write_bytes(value)), status, headers, media_type=JSON)


def kept_answer(text: bytes) -> Response:
    """An answer that is at hand as JSON."""
    return Response(as_answer(text), media_type=JSON)


def ready_answer(
    content: bytes, tagged: bytes, media_type: str, keep: str
) -> Callable[[Request], Response]:
    """What is sent to many as it is: whole, zipped, or as unchanged to one who has it already.

    `tagged` is what counts of it, and `keep` says what a browser may keep.
    """
    headers = {
        "Content-Type": media_type,
        "Cache-Control": keep,
        "ETag": f'W/"{hashlib.sha256(tagged).hexdigest()[:32]}"',
        "Vary": "Accept-Encoding",
    }
    whole, unchanged = Response(content, headers=headers), Response(None, 304, headers)
    small = gzip.compress(content, 6, mtime=0)
    zipped = Response(small, headers={**headers, "Content-Encoding": "gzip"})

    def fitting(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return unchanged
        return zipped if "gzip" in request.headers.get("accept-encoding", "") else whole

    return fitting


async def long_answer(make: Callable[[], Any]) -> Response:
    """What takes long to read or to write down."""
    return kept_answer(await worked(lambda: write_bytes(make())))


# A lock of the database is waited for half as long.
_MOST_S = 60.0


class _SentRoute(APIRoute):
    """A route whose body, if it has one, is a dataclass or a model."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI's, but the body is read by `advisor.formats`, and its faults are told last."""
        unbounded = super().get_route_handler()

        async def usual(request: Request) -> Response:
            # A thread may wait forever, as for a disk of the network that is gone.
            async with asyncio.timeout(_MOST_S):
                return await unbounded(request)

        if self.body_field is None:
            return usual
        kind = cast("type[Any]", self.body_field.field_info.annotation)

        async def handler(request: Request) -> Response:
            if not (body := await request.body()):  # told as a field that is missing
                return await usual(request)
            value, fault = None, None
            try:
                value = await _read(kind, body)
            except InputError as error:
                fault = error
            try:
                return await usual(_Sent(request, value))
            except RequestValidationError as other:
                # Only now: a caller without access learns only that, and nothing about the body.
                raise fault or other from None

        return handler


class DirectRoute(APIRoute):
    """A route that calls its endpoint itself, with a body, if any, and what its dependencies give.

    To find the parameters of an endpoint takes FastAPI longer than all else that an answer takes
    which is kept as bytes. Such a route is described, found and refused as any other; its endpoint
    is a coroutine that has no parameters of the path, the query or the head, and no dependencies
    that have some.
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
        for field in self.dependant.body_params:
            kind = cast("type[Any]", field.field_info.annotation)
            # The gate hands it over in one piece.
            body: bytes = (await receive()).get("body", b"")
            if not body:
                raise RequestValidationError(
                    [{"type": "missing", "loc": ("body",), "msg": "Field required"}]
                )
            values[field.name] = await _read(kind, body)
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
        return await worked(lambda: read(kind, body, name="the body"))
    # A short question is likely to come again, letter by letter.
    return _read_again(kind, body) if len(body) <= 512 else read(kind, body, name="the body")


def v1_router(tag: str, route_class: type[APIRoute] = _SentRoute) -> APIRouter:
    """A router below `/v1`, with one tag for the description of the service."""
    return APIRouter(
        prefix="/v1",
        tags=[tag],
        dependencies=[CHECKED_QUERY],
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


async def _checked_query(request: Request) -> None:
    if not request.scope["query_string"]:
        return
    allowed = set(_parameters(request.scope["route"].dependant))
    given = [name for name, _ in request.query_params.multi_items()]
    if strangers := sorted(set(given) - allowed):
        there = ", ".join(sorted(allowed)) or "none"
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


CHECKED_QUERY = Depends(_checked_query)
"""For routers whose routes have parameters: a slip in one would answer another question."""
