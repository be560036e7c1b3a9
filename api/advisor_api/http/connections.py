"""Connections: where the service listens, its certificate, and how many are open for how long."""

import errno
import os
import socket
import ssl
import stat
import time
from collections import OrderedDict
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from advisor.errors import InputError, undone_by
from advisor_api.http.access import GONE, WHOLE, Peer, ServeOptions, peer_of
from advisor_api.http.routing import LOG, Fault, HttpMetrics, error_body

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
        self.max_head_bytes, self._open = options.max_head_bytes, 0
        metrics.open_connections.set_function(lambda: self._open)

    def admit(self, connection: "LimitedProtocol") -> bool:
        """Count a new connection in; the one that has waited longest makes room.

        Returns:
            Whether there was room: not where all others are being answered.
        """
        self._open += 1
        if self._open > self._most:
            self._metrics.refused_connections.inc()
            if not (waiting := [next(iter(q.items())) for q in (self.new, self.kept) if q]):
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
"""Key of a scope: the client has shown a certificate of a trusted CA."""


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds on what a client may keep open, send and leave unread."""

    def __init__(self, config: Config, server_state: ServerState, connections: Connections) -> None:
        super().__init__(config, server_state, {})
        self._all = connections
        self._in_head, self._head_bytes = True, 0
        self._too_large = self._certified = False
        self._peer: Peer | None = None
        self._answered: RequestResponseCycle | None = None

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
        """Count the connection out, whichever list it is in; its answer has no reader now."""
        self._all.forget(self)
        # uvicorn tells the last request that came, which one before it may still keep waiting.
        if (cycle := self._answered) and not cycle.response_complete:
            cycle.disconnected = True
            cast("dict[str, Any]", cycle.scope)[GONE] = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

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
                head = without_offer(
                    self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers
                )
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
            # The header must be there as well, but the target says which host is meant.
            self.url, host = _of_whole_address(self.url)
            self.headers[:] = [
                (name, host if name == b"host" else value) for name, value in self.headers
            ]
        self._all.new.pop(self, None)
        self._all.kept.pop(self, None)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is here with its body; one that offers another protocol is read again first."""
        if not self.parser.should_upgrade():
            # Mostly all of it comes at once; then there is no wait for the body, and no clock.
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
        body = error_body(
            Fault(status=int(status[:3]), code=code, message=text, headers={}), request_id
        )
        head = (
            f"HTTP/1.1 {status}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {request_id}\r\nx-content-type-options: nosniff\r\n"
            "cache-control: no-store\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


# Header fields of an offer, and what `Connection` says of them.
_OFFERS = (b"upgrade", b"http2-settings")


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


def _of_whole_address(url: bytes) -> tuple[bytes, bytes]:
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
    return (parts.path or b"/") + (b"?" + parts.query if parts.query else b""), host


BACKLOG = 2048


@contextmanager
def listening(options: ServeOptions) -> Generator[socket.socket]:
    """A socket that listens as the options say; what it made in the file system goes with it.

    Raises:
        InputError: the address cannot be listened on, or another server does.
    """
    if options.socket is None:
        with closing(_tcp(options)) as listener:
            yield listener
        return
    with closing(_unix(options.socket)) as listener:
        ours = options.socket.lstat().st_ino
        try:
            yield listener
        finally:
            with suppress(OSError):
                if options.socket.lstat().st_ino == ours:  # not that of a server that came after
                    options.socket.unlink()


def _unix(path: Path) -> socket.socket:
    _remove_left_over(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with (
        InputError.instead_of(
            OSError,
            f"cannot listen on {path}",
            fix="give a path of at most 100 characters in a folder of yours: --socket PATH",
        ),
        undone_by(listener.close),
    ):
        listener.bind(str(path))
        # Every user may connect: the kernel tells the user, and others need a token. No connection
        # succeeds before it listens.
        path.chmod(0o666)
        listener.listen(BACKLOG)
    return listener


def _remove_left_over(path: Path) -> None:
    """Take away the socket of a server that was killed."""
    try:
        state = path.lstat()
    except OSError:
        return  # nothing is there, or `bind` says why not
    if not stat.S_ISSOCK(state.st_mode) or state.st_uid not in (0, os.geteuid()):
        raise InputError(
            f"{path} is there already, and is not a socket of yours",
            fix="give another path: --socket",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        try:
            other.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise InputError(
        f"another server listens on {path}", fix="end it, or give another path: --socket"
    )


def _tcp(options: ServeOptions) -> socket.socket:
    what = f"cannot listen on {options.host} port {options.port}"
    with InputError.instead_of(OSError, what, fix="give an address of this host: --host"):
        addresses = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
    family, *_, address = addresses[0]
    # Where the host is `::`, by IPv4 as well.
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        fix = (
            "end the other process, or give another port: --port"
            if error.errno == errno.EADDRINUSE
            else "give an address of this host and a port that you may use: --host, --port"
        )
        raise InputError(what, why=os.strerror(error.errno or 0), fix=fix) from error


class Certificate:
    """A certificate and its key, in PEM files, as new connections see them.

    Connections that are open keep what they have. Where `client_ca` is given, clients may show
    a certificate that one of those in it has signed; another one ends the connection.

    Raises:
        InputError: the files cannot be used together.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._files = (certificate, key)
        self._loaded_state = self._state()
        self.context = _context()
        with InputError.instead_of(
            (OSError, ValueError),
            f"TLS cannot use {certificate} with {key}",
            fix="give a certificate and its key, without a password, as PEM files",
        ):
            _load(self.context, self._files)
        if client_ca is not None:
            with InputError.instead_of(
                OSError,
                f"{client_ca} cannot be read as certificates",
                fix="give a PEM file with the certificate that signs those of clients",
            ):
                self.context.load_verify_locations(cafile=str(client_ca))
            self.context.verify_mode = ssl.CERT_OPTIONAL

    def renew(self) -> None:
        """Load the files again where they changed; what cannot be used leaves the old ones."""
        state = self._state()
        if state == self._loaded_state or None in state:
            return
        self._loaded_state = state
        try:
            # First elsewhere: half of a new pair would spoil the context that is in use.
            _load(_context(), self._files)
            _load(self.context, self._files)
        except (OSError, ValueError) as error:
            LOG.error("the new certificate cannot be used, the old one stays: %s", error)
        else:
            LOG.info("loaded the new certificate of %s", self._files[0])

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_state_of, self._files))


def _state_of(file: Path) -> tuple[int, int, int] | None:
    try:
        state = file.stat()
    except OSError:
        return None  # being replaced, or lost: the one that is loaded goes on
    return state.st_ino, state.st_mtime_ns, state.st_size


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, files: tuple[Path, Path]) -> None:
    # A prompt for a password would wait forever without a terminal.
    context.load_cert_chain(*files, password=lambda: "")
