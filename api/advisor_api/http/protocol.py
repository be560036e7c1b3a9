"""HTTP connections that starve nobody: how many may be open, and how long one may say nothing."""

import os
import socket
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, TypeAlias, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from advisor_api.http.body import WHOLE
from advisor_api.http.errors import Fault, error_body
from advisor_api.http.metrics import HttpMetrics
from advisor_api.http.options import ServeOptions
from advisor_api.http.peers import Peer, peer_of

_Queue: TypeAlias = "OrderedDict[LimitedProtocol, float]"


class Connections:
    """All open connections, and since when each has kept us waiting.

    A connection waits for the head of a request (`new` for its first, `kept` for a further one) or
    for its client to read an answer (`stuck`). Each queue is in the order of time, so both the
    oldest and those whose time is over are found without a look at the others.
    """

    def __init__(self, options: ServeOptions, metrics: HttpMetrics) -> None:
        self._most, self._metrics = options.max_connections, metrics
        self.new: _Queue = OrderedDict()
        self.kept: _Queue = OrderedDict()
        self.stuck: _Queue = OrderedDict()
        self._limits = (
            (self.new, options.header_s),
            (self.kept, options.idle_s),
            (self.stuck, options.write_s),
        )
        self.max_head_bytes = options.max_head_bytes
        self.idle_s = options.idle_s
        self._open = 0
        metrics.open_connections.set_function(lambda: self._open)

    def admit(self, connection: "LimitedProtocol") -> bool:
        """Count a new connection in; the one that has waited longest makes room.

        Returns:
            Whether there was room: not where all others are being answered.
        """
        self._open += 1
        if self._open > self._most:
            self._metrics.refused_connections.inc()
            waiting = [next(iter(q.items())) for q in (self.new, self.kept) if q]
            if not waiting:
                return False
            self._end(min(waiting, key=lambda pair: pair[1])[0])
        self.new[connection] = time.monotonic()
        return True

    def forget(self, connection: "LimitedProtocol") -> None:
        """Count a closed connection out."""
        self._open -= 1
        self._leave(connection)

    def sweep(self) -> None:
        """End connections whose time is over."""
        now = time.monotonic()
        for queue, limit_s in self._limits:
            while queue:
                connection, since = next(iter(queue.items()))
                if now - since < limit_s:
                    break
                self._end(connection)

    def _end(self, connection: "LimitedProtocol") -> None:
        self._leave(connection)
        # Not `close`: that waits until the client has read what is left.
        connection.transport.abort()

    def _leave(self, connection: "LimitedProtocol") -> None:
        for queue, _ in self._limits:
            queue.pop(connection, None)


CERTIFIED = "advisor.certified"
"""Key of a scope: the client has shown a certificate, and the service trusts who signed it."""


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds on what a client may keep open, send and leave unread."""

    def __init__(self, config: Config, server_state: ServerState, connections: Connections) -> None:
        super().__init__(config, server_state, {})
        self._all = connections
        self._in_head, self._head_bytes = True, 0
        self._too_large = False
        self._peer: Peer | None = None
        self._certified = False

    def connection_made(self, transport: Any) -> None:
        """Count the connection in, or end it; at a Unix socket the kernel says whose it is."""
        super().connection_made(transport)
        ours = transport.get_extra_info("socket")
        if ours.family == socket.AF_UNIX:
            self._peer = peer_of(ours.fileno())
            # Rates, the audit log and what is refused go by user, as by address elsewhere.
            self.client = (self._peer.name, 0)
        self._certified = bool(transport.get_extra_info("peercert"))
        if not self._all.admit(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection out, whichever list it is in."""
        self._all.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came; a head that grows too long without an end is refused."""
        self._unset_keepalive_if_required()
        try:
            self._parse(memoryview(data))
        except (httptools.HttpParserError, ValueError):
            self.send_400_response("")
            return
        if self._in_head:
            # A head that does not end never reaches the check below.
            self._head_bytes += len(data)
            if self._head_bytes > self._all.max_head_bytes and not self.transport.is_closing():
                self._too_large = True
                self.send_400_response("")

    def _parse(self, rest: memoryview) -> None:
        """Read on; a request that offers another protocol is read again without its offer."""
        while rest:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
                version = self.parser.get_http_version()
                head = without_offer(self.parser.get_method(), self.url, version, self.headers)
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(head)

    def on_message_begin(self) -> None:
        """A request begins: its head is counted from 0."""
        # What came with the body before is not counted: one read more or less does no harm.
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()
        if self._peer is not None:
            cast("dict[str, Any]", self.scope)["advisor.peer"] = self._peer
        if self._certified:
            cast("dict[str, Any]", self.scope)[CERTIFIED] = True

    def on_headers_complete(self) -> None:
        """The head is there: bound it, and end the connection's wait for one.

        Raises:
            ValueError: the head is too large, or the request is for a proxy.
        """
        self._in_head = False
        # With the four bytes around name and value: thousands of empty headers are large too.
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._all.max_head_bytes:
            self._too_large = True
            raise ValueError  # the parser ends, and `send_400_response` is called
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":  # this is no proxy
                raise ValueError
            return  # read again without the offer
        if not self.url.startswith(b"/"):
            self._take_whole_address()
        self._all.new.pop(self, None)
        self._all.kept.pop(self, None)
        super().on_headers_complete()

    def _take_whole_address(self) -> None:
        """What the target says of the host goes before the header, which must be there as well."""
        self.url, host = of_whole_address(self.url)
        for place, (name, _) in enumerate(self.headers):
            if name == b"host":
                self.headers[place] = (name, host)

    def on_message_complete(self) -> None:
        """A request is here with its body; one that offers another protocol is read again first."""
        if not self.parser.should_upgrade():
            # Mostly all of it comes at once; then nobody need wait for the body, nor set a clock.
            cast("dict[str, Any]", self.scope)[WHOLE] = True
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """The connection waits for its next request from now on, unless that is here already."""
        queued = bool(self.pipeline)
        super().on_response_complete()
        if not queued and not self.transport.is_closing():
            self._all.kept[self] = time.monotonic()

    def pause_writing(self) -> None:
        """The client reads too slowly: how long it does is counted from now."""
        self._all.stuck[self] = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._all.stuck.pop(self, None)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP, in the form of all our errors, and closes."""
        status, code, text = "400 Bad Request", "bad-request", "this is no HTTP request."
        if self._too_large:
            status, code = "431 Request Header Fields Too Large", "head-too-large"
            text = f"a request may have {self._all.max_head_bytes} bytes before its body."
        request_id = f"http-{os.urandom(6).hex()}"
        fault = Fault(status=int(status[:3]), code=code, message=text, headers={})
        body = error_body(fault, request_id)
        head = (
            f"HTTP/1.1 {status}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {request_id}\r\nx-content-type-options: nosniff\r\n"
            "cache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


_OFFERS = (b"upgrade", b"http2-settings")
"""Header fields of an offer, and what `Connection` says of them."""


def without_offer(
    method: bytes, url: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """The head of a request as it would be without the offer of another protocol.

    The names of its headers are in lower case.

    Raises:
        ValueError: a value with a line end, which could begin another header.
    """
    lines = [b"%s %s HTTP/%s" % (method, url, version.encode())]
    for name, value in headers:
        if b"\r" in value or b"\n" in value:
            raise ValueError(name)
        if name == b"connection":
            value = b",".join(t for t in value.split(b",") if t.strip().lower() not in _OFFERS)
        if name not in _OFFERS:
            lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def of_whole_address(url: bytes) -> tuple[bytes, bytes]:
    """Target and host of a request that names the whole address (RFC 9112, section 3.2.2).

    Returns:
        The target from its path on, and the host that stands for the header `Host`.

    Raises:
        ValueError: another scheme, a user, or no host.
        HttpParserError: no address at all.
    """
    parts = httptools.parse_url(url)
    if parts.schema.lower() not in (b"http", b"https") or not parts.host or parts.userinfo:
        raise ValueError(url)
    bare = b"[%s]" % parts.host if b":" in parts.host else parts.host
    host = b"%s:%d" % (bare, parts.port) if parts.port else bare
    query = b"?" + parts.query if parts.query else b""
    return (parts.path or b"/") + query, host
