"""A server that answers with what a test says, in turn, and keeps what it was asked."""

import json
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer; without a status the connection ends instead.

    Attributes:
        body: Bytes as they are, what a function makes of the request, anything else as JSON.
        after_s: How long it takes.
    """

    status: int | None = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Attributes: body: What was read from JSON; of another type the text; None: nothing."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


Answer: TypeAlias = Callable[[Seen], Reply]


@dataclass(frozen=True, slots=True)
class Scripted:
    """The server; the last reply answers all further requests, too."""

    url: str
    seen: list[Seen]
    _server: "_Server"

    def will(self, *replies: Reply) -> None:
        """Answer with these from now on, and forget what was seen."""
        self._server.replies = list(replies)
        self.seen.clear()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer: Answer | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer or self._next
        self.replies: list[Reply] = []
        self.seen: list[Seen] = []
        self.ended = threading.Event()

    def _next(self, _: Seen) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        server = cast("_Server", self.server)
        text = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        is_json = "json" in self.headers.get("Content-Type", "")
        body = json.loads(text) if text and is_json else text or None
        seen = Seen(self.command, self.path, dict(self.headers.items()), body)
        server.seen.append(seen)
        reply = server.answer(seen)
        server.ended.wait(reply.after_s)
        if reply.status is None:
            self.close_connection = True
            return
        said = reply.body(body) if callable(reply.body) else reply.body
        content = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 the names that http.server calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 as in the base
        """Not on the terminal."""


@contextmanager
def scripted_http(answer: Answer | None = None) -> Generator[Scripted]:
    """Answers what it will, or what a function makes of each request."""
    with _Server(answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Scripted(f"http://127.0.0.1:{server.server_port}", server.seen, server)
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()


@contextmanager
def dripping(begun: bytes) -> Generator[str]:
    """The address of a server that says so much, and then a letter now and then, without end."""
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        with listener.accept()[0] as client, suppress(OSError):
            client.sendall(begun)
            while not ended.wait(0.01):
                client.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        thread.join()
