"""A real server process that is spoken to in bytes, for what no well-behaved client sends."""

import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from forked import Forked, start_forked
from reading import answer_of
from waiting import PATIENCE_S

from advisor_data.state import ServiceState

JSON = {"Content-Type": "application/json"}

_WITH_OPTIONS = """
import json, sys
from advisor.settings import read_settings
from advisor_api.http.access import ServeOptions
from advisor_api.server import serve
options = ServeOptions(port=0, **json.loads(sys.argv[1]))
serve(read_settings(), options, lambda real: print("advisor listens on", real.url, flush=True))
"""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def plain(self) -> Any:
        """All that was sent."""
        return json.loads(self.body)

    @property
    def json(self) -> Any:
        return answer_of(self.body)

    @property
    def code(self) -> str:
        """The code of an error; checks its form."""
        error = self.json["error"]
        assert set(error) == {"code", "message", "request_id"}
        assert error["request_id"] == self.headers["x-request-id"]
        return error["code"]


@dataclass(frozen=True)
class RawServer:
    """A running server; `home` is its `ADVISOR_HOME`, `log` what it writes to standard error."""

    process: Forked | subprocess.Popen[str]
    port: int
    home: Path
    log: Path

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Answer:
        return ask(self.port, method, path, body, headers, tls)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def state(self) -> ServiceState:
        """Its tokens and audit log, in its SQLite file."""
        return ServiceState(None, self.home)


def ask(
    port: int | None,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """One request to a server on this host, on a connection of its own."""
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=tls)
        if tls
        else http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    )
    try:
        connection.request(method, path, body, dict(headers or {}))
        return _answer(connection.getresponse())
    finally:
        connection.close()


def guessed(port: int, secrets: Iterable[str]) -> list[int]:
    """What a client is answered that sends each wrong token before it reads what the first got.

    So they come as fast as the server reads, on a busy machine, too.
    """
    head = "GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
    asked = [f"{head}{secret}\r\n\r\n".encode() for secret in secrets]
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(b"".join(asked))
        read = b""
        while len(found := re.findall(rb"HTTP/1\.1 (\d{3}) ", read)) < len(asked):
            more = client.recv(2**16)
            assert more, read
            read += more
    return [int(status) for status in found]


def _answer(response: http.client.HTTPResponse) -> Answer:
    names = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, names, response.read())


@contextmanager
def raw_server(home: Path, *arguments: str, url: str | None = None) -> Generator[RawServer]:
    """`advisor serve` with these options, on a free port unless they say another."""
    words = ["serve", *arguments, *([] if "--port" in arguments else ["--port", "0"])]

    def start(errors: IO[str]) -> Forked:
        return start_forked(words, environment(home, url), errors=errors)

    with _running(home, start) as served:
        yield served


@contextmanager
def raw_server_with(home: Path, **options: Any) -> Generator[RawServer]:
    """The same with any `ServeOptions`, such as short times."""
    command = [sys.executable, "-c", _WITH_OPTIONS, json.dumps(options)]

    def start(errors: IO[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(home)
        )

    with _running(home, start) as served:
        yield served


def environment(home: Path, url: str | None = None) -> dict[str, str]:
    """Of a server: its own home, and no settings of anyone who runs the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")}
    more = {} if url is None else {"ADVISOR_DATABASE_URL": url}
    return {**kept, "ADVISOR_HOME": str(home), **more}


@contextmanager
def _running(
    home: Path, start: Callable[[IO[str]], Forked | subprocess.Popen[str]]
) -> Generator[RawServer]:
    home.mkdir(mode=0o700, exist_ok=True)
    log = home / "log"
    with log.open("a") as errors:
        process = start(errors)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"listens on https?://\S+:(\d+)$", line.strip())
        assert found, (line, log.read_text())
        yield RawServer(process, int(found[1]), home, log)
    finally:
        process.kill()
        process.communicate(timeout=20)
