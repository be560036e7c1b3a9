"""Routes of the service: how they read bodies, write answers and say errors; the gate before them.

Every error is `{"error": {"code", "message", "request_id"}}`. The gate is the one way in: every
request is checked, named, counted and logged before any route sees it.
"""

import asyncio
import gzip
import hashlib
import itertools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, cast
from weakref import WeakValueDictionary

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from advisor.core.wording import shown
from advisor.errors import AdvisorError, InputError
from advisor.formats.wire import T, as_answer, fault_text, read, write_bytes
from advisor_api.http.access import (
    ANONYMOUS,
    ANONYMOUS_READER,
    GONE,
    LONG_BYTES,
    WHOLE,
    Bodies,
    Buckets,
    Caller,
    Hosts,
    Most,
    Peer,
    ServeOptions,
    caller_of,
    caller_of_peer,
    checked_headers,
    length_of,
    most_of,
    say_where_no_token_is_needed,
)
from advisor_api.worker_process import ASKING, service_ends, worked

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
            places: dict[str, list[Mapping[str, Any]]] = {}
            for fault in cast("Sequence[Mapping[str, Any]]", error.errors()):
                # Without the names that the library has for types.
                names = [str(name) for name in fault["loc"] if not _TYPE.match(str(name))]
                places.setdefault(".".join(name[:_LONGEST] for name in names), []).append(fault)
            return Fault(status=422, code="bad-input", message=f"{fault_text(places)}.", headers={})
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
    zipped = Response(
        gzip.compress(content, 6, mtime=0), headers={**headers, "Content-Encoding": "gzip"}
    )

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


@lru_cache(maxsize=8192)
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


_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class HttpMetrics:
    """The numbers of one process; what else is to be shown is made with its registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self.counter(
            "requests", "Requests answered", ("route", "method", "status")
        )
        self._latency = Histogram(
            "advisor_request_duration_seconds",
            "From the head of a request to the end of its answer, s",
            ("route",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self.in_flight = self.gauge("requests_in_flight", "Requests being answered")
        self.open_connections = self.gauge("connections_open", "Open connections")
        self.refused_tokens = self.counter("tokens_refused", "Requests with no good token")
        self.refused_connections = self.counter(
            "connections_refused", "Connections closed to make room, or at once for want of it"
        )
        # To look children up by their labels takes a lock each time.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count an answer by the template of its path: names in paths make no new series."""
        key = (route, method, status)
        if (children := self._children.get(key)) is None:
            children = (self._requests.labels(*map(str, key)), self._latency.labels(route))
            self._children[key] = children
        children[0].inc()
        children[1].observe(duration_s)

    def text(self) -> bytes:
        """All numbers in the text format of Prometheus."""
        return generate_latest(self.registry)

    def gauge(self, name: str, text: str) -> Gauge:
        """A new number that goes up and down."""
        return Gauge(f"advisor_{name}", text, registry=self.registry)

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        """A new number that only goes up."""
        return Counter(f"advisor_{name}", text, labels, registry=self.registry)


def family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    text: str,
    labels: Sequence[str],
    values: Iterable[tuple[Sequence[str | None], float | None]],
) -> Metric:
    """What a collector gives: a metric with the values that are known, of labels that are."""
    metric = kind(f"advisor_{name}", text, labels=labels)
    for of, value in values:
        labels_of = [label for label in of if label is not None]
        if value is not None and len(labels_of) == len(of):
            metric.add_metric(labels_of, float(value))
    return metric


# On every answer that has not its own: scripts, styles and data come from here alone, no page may
# be framed, and nothing is kept.
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]

_JSON = (b"content-type", b"application/json")

# Logged where the client went away before its answer.
_GONE = 499

# What a request counts as before anything is worked out, and so many bytes of a body to read, ms.
_REQUEST_MS, _BYTES_OF_A_REQUEST = 0.1, 2048

# Of one caller at a time: requests that are read, and those that are worked out. Further ones wait.
_AT_ONCE = (2, 1)

_Semaphores = WeakValueDictionary[str, asyncio.Semaphore]

_LONGEST_PATH = 200


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        options: ServeOptions,
        metrics: HttpMetrics,
        most_of: Callable[[str], Most] = most_of,
    ) -> None:
        self._app, self._metrics, self._most_of = app, metrics, most_of
        self._hosts, self._bodies = Hosts(options), Bodies(options)
        self._rates = Buckets(options.ms_per_s, options.burst_ms, unit="ms of work")
        self._nobody = ANONYMOUS_READER if options.anonymous else ANONYMOUS
        self._group = options.socket_group
        self._most, self._in_flight = options.max_in_flight, 0
        # Of each caller, requests that are being answered, and their work.
        self._semaphores = [(_Semaphores(), most) for most in (max(1, self._most // 2), *_AT_ONCE)]
        metrics.in_flight.set_function(lambda: self._in_flight)
        self._log = _AccessLog(
            enabled=options.log_level in ("debug", "info"), as_json=options.log_format == "json"
        )
        # Of our own: one that a client chose could be another's, in the log and in the audit.
        self._ids = map(f"{os.urandom(4).hex()}-{{:x}}".format, itertools.count(1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        scope["advisor.request_id"] = request_id = next(self._ids)
        answer = _Answer(request_id, send)
        try:
            await self._admit(scope, receive, answer.send)
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:
            # Only the server cancels: at the end of its time to stop. Without this the answer would
            # be a 500.
            await answer.refuse(service_ends())
        except Exception as error:  # noqa: BLE001 the last resort: a code for any fault, logged
            await answer.refuse(error)
        finally:
            duration_s = time.perf_counter() - began
            status = _GONE if GONE in scope else answer.status
            template = cast("str", getattr(scope.get("route"), "path", "none"))
            self._metrics.count(template, scope["method"], status, duration_s)
            caller: Caller | None = scope.get("advisor.caller")
            who = caller.name if caller else "-"
            self._log.note(scope["method"], scope["raw_path"], status, duration_s, who, request_id)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = checked_headers(scope)
        address = scope["client"][0] if scope["client"] else ""
        self.check_host(scope, headers)
        scope["advisor.caller"] = caller = await self.caller(scope, headers, address)
        who = caller.name if caller.identified else f"@{address}"
        self._rates.take(who, _REQUEST_MS)
        if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
            # No body follows.
            await self._pass(scope, receive, send, who)
            return
        most, is_here = self._most_of(scope["path"]), WHOLE in scope
        # By its declared length, before it takes room: a slow sender would keep others out.
        if counted := min(length_of(headers), most.bytes) // _BYTES_OF_A_REQUEST:
            self._rates.take(who, counted * _REQUEST_MS)
        body = await self._bodies.receive(headers, receive, most, is_here=is_here)
        if more := len(body) // _BYTES_OF_A_REQUEST - counted:
            self._rates.take(who, more * _REQUEST_MS)
        with self._bodies.received(len(body)):
            await self._pass(scope, _again(body, receive), send, who)

    async def caller(self, scope: Scope, headers: Mapping[bytes, bytes], address: str) -> Caller:
        """The caller.

        Raises:
            HTTPException: 401 or 429, the token is not good.
        """
        # Anyone who sends a token wants to be no more than it allows.
        if b"authorization" in headers:
            tokens = scope["app"].state.service.tokens
            try:
                return await caller_of(headers[b"authorization"], address, tokens)
            except HTTPException:
                self._metrics.refused_tokens.inc()
                raise
        peer: Peer | None = scope.get("advisor.peer")
        return (peer and caller_of_peer(peer, self._group)) or self._nobody

    def check_host(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Let the Host header pass.

        Raises:
            HTTPException: 421, it names another server; 400, it is none.
        """
        self._hosts.check(headers.get(b"host", b""), (scope.get("server") or ("",))[0])

    async def _pass(self, scope: Scope, receive: Receive, send: Send, who: str) -> None:
        # Callers of /healthz end the process if it does not answer.
        if scope["path"] == "/healthz":
            await self._app(scope, receive, send)
            return
        mine, reading, working = (
            semaphores.setdefault(who, asyncio.Semaphore(most))
            for semaphores, most in self._semaphores
        )
        # What a caller leaves over is for others.
        if (is_his := mine.locked()) or self._in_flight >= self._most:
            text = (
                f"too many requests{' of yours' if is_his else ''} are being answered. Try again."
            )
            raise HTTPException(429 if is_his else 503, text, headers={"Retry-After": "1"})
        ASKING.set((reading, working, partial(self._rates.charge, who)))
        self._in_flight += 1
        try:
            async with mine:
                await self._app(scope, receive, send)
        finally:
            self._in_flight -= 1


def _again(body: bytes, receive: Receive) -> Receive:
    """Hands out a body that was received already, then what comes after it."""
    whole = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def next_message() -> Message:
        return next(whole, None) or await receive()

    return next_message


class _Answer:
    """Adds to an answer what every answer has, and keeps its status."""

    __slots__ = ("_request_id", "_send", "status")

    def __init__(self, request_id: str, send: Send) -> None:
        self._request_id, self._send = request_id, send
        self.status = _GONE

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer; the first one gets the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given: list[tuple[bytes, bytes]] = message.get("headers", [])
            names = {name for name, _ in given}
            more = [pair for pair in _HEADERS if pair[0] not in names]
            message["headers"] = [*given, (b"x-request-id", self._request_id.encode()), *more]
        await self._send(message)

    async def refuse(self, error: Exception) -> None:
        """Answers with an error; where the answer has begun, the connection is all that can end."""
        fault = fault_of(error)
        log_fault(error, fault, self._request_id)
        if self.status != _GONE:
            raise error
        body = error_body(fault, self._request_id)
        more = [(name.lower().encode(), text.encode()) for name, text in fault.headers.items()]
        length = (b"content-length", str(len(body)).encode())
        await self.send(
            {
                "type": "http.response.start",
                "status": fault.status,
                "headers": [_JSON, length, *more],
            }
        )
        await self.send({"type": "http.response.body", "body": body})


class _AccessLog:
    """One line per request on standard error; a tenth of what the logging module costs."""

    def __init__(self, *, enabled: bool, as_json: bool = False) -> None:
        self._enabled, self._as_json = enabled, as_json
        self._second, self._text = 0, ""
        self._refused_at = 0

    def note(
        self, method: str, path: bytes, status: int, duration_s: float, who: str, request_id: str
    ) -> None:
        """Log a request; of those that come too often, one in a second.

        The path is as it came, without the query, which may hold anything; decoded, it could hold
        the end of a line. The caller's name is logged, never the token.
        """
        if not self._enabled:
            return
        now = time.time()
        if (second := int(now)) != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        # Anyone who asks without end would fill the log; /metrics counts all of them.
        if status == 429:
            if self._refused_at == second:
                return
            self._refused_at = second
        text = path[:_LONGEST_PATH].decode("ascii", "backslashreplace")
        at, took_ms = f"{self._text}.{int(1000 * (now - second)):03d}Z", f"{1000 * duration_s:.1f}"
        line = f"{at} INFO {method} {text} {status} {took_ms} ms {who} {request_id}"
        if self._as_json:
            line = json.dumps(
                {
                    "time": at,
                    "level": "info",
                    "method": method,
                    "path": text,
                    "status": status,
                    "duration_ms": float(took_ms),
                    "caller": who,
                    "request_id": request_id,
                }
            )
        sys.stderr.write(f"{line}\n")
