"""The one way in: every request is checked, named, counted and logged before any route sees it."""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast
from weakref import WeakValueDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from advisor_api.http.access import (
    ANONYMOUS,
    ANONYMOUS_READER,
    GONE,
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
)
from advisor_api.http.routing import error_body, fault_of, log_fault
from advisor_api.worker_process import ASKING, service_ends

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

# Of one caller: what reads, of four at a time, and what is worked out, of one. Further ones wait.
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
        start = {"type": "http.response.start", "status": fault.status}
        await self.send({**start, "headers": [_JSON, length, *more]})
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
        if not self._as_json:
            line = f"{at} INFO {method} {text} {status} {took_ms} ms {who} {request_id}"
        else:
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
