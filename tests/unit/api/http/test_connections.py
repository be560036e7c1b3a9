"""Connections to the gate in this process: what is taken for a request, and for how long.

Offers of other protocols, and targets that are whole addresses, are as RFC 9110 and 9112 have them.
"""

import asyncio
import contextlib
import email.message
import http.client
import io
import json
import os
import socket
import stat
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from certificates import Made, make_certificate
from gated import behind_gate
from hypothesis import given, strategies as st
from uvicorn.config import Config
from uvicorn.server import ServerState

from advisor.errors import InputError
from advisor_api.http.access import ServeOptions, peer_of
from advisor_api.http.connections import (
    Certificate,
    Connections,
    LimitedProtocol,
    listening,
    without_offer,
)
from advisor_api.service import Metrics

pytestmark = pytest.mark.anyio

Answers = list[tuple[int, email.message.Message, Any]]
"""Status, headers and JSON of each."""


@dataclass(frozen=True)
class Gated:
    """A service in this process; `connect` opens a connection to it."""

    connections: Connections
    metrics: Metrics
    connect: Callable[[], Any]

    async def ask(self, data: bytes) -> Answers:
        """All answers to these bytes, until the service closes."""
        reader, writer = await self.connect()
        writer.write(data)
        async with asyncio.timeout(20):
            return answers(await reader.read())


def answers(data: bytes) -> Answers:
    stream, found = io.BytesIO(data), Answers()
    while line := stream.readline():
        head = http.client.parse_headers(stream)
        body = stream.read(int(head["content-length"]))
        found.append((int(line.split()[1]), head, json.loads(body)))
    return found


@contextlib.asynccontextmanager
async def gated(**options: Any) -> AsyncGenerator[Gated]:
    wanted = ServeOptions(port=0, **options)
    app, metrics = behind_gate(**options)
    connections, state = Connections(wanted, metrics), ServerState()
    config = Config(app, lifespan="off", ws="none", log_config=None, proxy_headers=False)
    config.load()
    protocol = partial(LimitedProtocol, config, state, connections)
    loop = asyncio.get_running_loop()
    with listening(wanted) as listener:
        if wanted.socket:
            server = await loop.create_unix_server(protocol, sock=listener)
            dial: Callable[[], Any] = partial(asyncio.open_unix_connection, wanted.socket)
        else:
            server = await loop.create_server(protocol, sock=listener)
            dial = partial(asyncio.open_connection, *listener.getsockname())

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await dial()
            writers.append(writer)
            return reader, writer

        writers: list[asyncio.StreamWriter] = []
        yield Gated(connections, metrics, connect)
        for one in (*writers, *(open_one.transport for open_one in state.connections)):
            one.close()
        await asyncio.sleep(0.01)
        server.close()


HOST = b"Host: localhost\r\n"
CLOSE = b"Connection: close\r\n"
EVIL = b"Host: evil.example\r\n"
GET = b"GET /seen HTTP/1.1\r\n"
POST = b"POST /length HTTP/1.1\r\n" + HOST
SENT = POST + b"Content-Type: application/json\r\n"
LENGTH, CHUNKS = b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n"
ASKED = GET + HOST + CLOSE + b"\r\n"


def _asking(path: bytes) -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST


TRICKS = {
    "another site's name": (GET + EVIL, 421),
    "no host": (GET, 400),
    "an empty host": (GET + b"Host:\r\n", 400),
    "a host twice": (GET + HOST + HOST, 400),
    "a forwarded host": (GET + EVIL + b"X-Forwarded-Host: localhost\r\n", 421),
    "two lengths": (POST + LENGTH + b"Content-Length: 3\r\n", 400),
    "a length and chunks": (POST + LENGTH + CHUNKS, 400),
    "two encodings": (POST + CHUNKS + b"Transfer-Encoding: identity\r\n", 400),
    "two tokens": (GET + HOST + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", 400),
    "two keys": (SENT + b"Idempotency-Key: a\r\nIdempotency-Key: b\r\n" + LENGTH, 400),
    "a negative length": (POST + b"Content-Length: -1\r\n", 400),
    "dots": (_asking(b"/v1/../seen"), 404),
    "dots in hex": (_asking(b"/v1/%2e%2e/seen"), 404),
    "two slashes": (_asking(b"//seen"), 404),
    "another host in the path": (_asking(b"//evil.example/%2e%2e"), 404),
    "a slash more": (_asking(b"/seen/"), 404),
    "NUL": (_asking(b"/a%00b"), 400),
    "NUL in the query": (_asking(b"/seen?job=%00"), 400),
    "a new line": (_asking(b"/a%0aINFO"), 400),
    "a long path": (_asking(b"/" + b"a" * 8192), 414),
    "a long query": (_asking(b"/seen?" + b"a" * 8188), 414),
    "a longer path": (_asking(b"/" + b"a" * 40000), 431),
    "many headers": (GET + HOST + b"X-Y: z\r\n" * 6000, 431),
    "empty headers": (GET + HOST + b"X:\r\n" * 7000, 431),
    "a tunnel": (b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST, 400),
    "another method": (b"PATCH /seen HTTP/1.1\r\n" + HOST, 405),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "bytes in the path": (_asking(b"/\xff"), 400),
    "NUL in a header": (GET + HOST + b"X: a\0b\r\n", 400),
    "an offer with two lengths": (
        SENT + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + LENGTH + b"Content-Length: 3\r\n", 400
    ),
    "another server's address": (b"GET http://evil.example/seen HTTP/1.1\r\n" + HOST, 421),
    "a user in an address": (b"GET http://a@localhost/seen HTTP/1.1\r\n" + HOST, 400),
    "another scheme": (b"GET ftp://localhost/seen HTTP/1.1\r\n" + HOST, 400),
    "no path": (b"GET * HTTP/1.1\r\n" + HOST, 400),
    "a form": (POST + b"Content-Type: text/plain\r\n" + LENGTH, 415),
    "no type": (POST + LENGTH, 415),
    "another charset": (POST + b"Content-Type: application/json;charset=x\r\n" + LENGTH, 415),
    "a body to be asked for": (SENT + b"Expect: 100-continue\r\nContent-Length: 99999\r\n", 413),
    "a long length": (POST + b"Content-Length: 1000000000000000000\r\n", 400),
    "a body that does not come": (SENT + b"Content-Length: 9\r\n", 408),
    "long chunks": (
        SENT + CHUNKS + b"\r\n" + (b"8000\r\n%b\r\n" % (b" " * 32768)) * 3 + b"0\r\n", 413
    ),
}  # fmt: skip

CODES = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    413: "body-too-large",
    414: "path-too-long",
    415: "not-json",
    421: "wrong-host",
    431: "head-too-large",
}


@pytest.mark.parametrize("trick", TRICKS)
async def test_tricks_are_refused_with_a_code(trick: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: the rest of a body that is here already is not waited for."""
    monkeypatch.setattr("advisor_api.http.access._DRAINED_S", 1000)
    head, status = TRICKS[trick]
    line, _, rest = head.partition(b"\r\n")
    sent = line + b"\r\n" + CLOSE + rest + b"\r\n" + (b"{}" if LENGTH in head else b"")
    async with gated(body_s=0.05) as service:
        [(got, headers, body)] = await service.ask(sent)
    assert (got, body["error"]["code"]) == (status, CODES[status])
    assert body["error"]["request_id"] == headers["x-request-id"]
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")
    assert headers["content-type"] == "application/json"
    assert headers["allow"] == ("GET" if status == 405 else None)


async def test_a_head_without_end_is_cut_off() -> None:
    """However small its pieces are; what came with the request before does not count."""
    async with gated(max_head_bytes=1000) as service:
        reader, writer = await service.connect()
        writer.write(GET + HOST + b"\r\n" + GET + HOST + b"X: ")
        assert b"200 OK" in await reader.readuntil(b"}")
        for size in (450, 450, 100):
            assert service.connections.kept
            writer.write(b"a" * size)
            await asyncio.sleep(0.01)
        [(status, _, body)] = answers(await reader.read())
    assert (status, body["error"]["code"]) == (431, "head-too-large")
    assert "may have 1000 bytes before its body" in body["error"]["message"]


OFFERS = {
    "HTTP/2": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAA\r\n",
    "HTTP/2 alone": b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "a web socket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
    "in capitals": b"CONNECTION: UPGRADE\r\nUPGRADE: TLS/1.0\r\n",
}


@pytest.mark.parametrize("kind", OFFERS)
@pytest.mark.parametrize("chunked", [False, True])
async def test_an_offer_is_ignored_and_its_body_is_no_request(kind: str, *, chunked: bool) -> None:
    """However the body comes; what follows in the same packet is read on, also another offer."""
    inner = ASKED + b" " * 30_000
    length = CHUNKS if chunked else b"Content-Length: %d\r\n" % len(inner)
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner) if chunked else inner
    once = GET + HOST + OFFERS[kind] + b"\r\n"
    async with gated() as service:
        reader, writer = await service.connect()
        writer.write(once + SENT + OFFERS[kind] + length + b"\r\n")
        first = await reader.readuntil(b"}")
        writer.write(body + once + ASKED)
        found = answers(first + await reader.read())
    assert ([status for status, *_ in found], found[1][2]) == ([200] * 4, len(inner))
    assert not any("upgrade" in headers for _, headers, _ in found)


@pytest.mark.parametrize(
    ("target", "sent", "seen"),
    [
        (b"http://localhost/seen", EVIL, "localhost"),
        (b"HTTPS://localhost:8765/seen?a=b", HOST, "localhost:8765"),
        (b"http://[::1]:80/seen", HOST, "[::1]:80"),
        (b"/seen", b"HOST: LocalHost\r\n", "LocalHost"),
    ],
)
async def test_the_host_of_a_whole_address_counts(target: bytes, sent: bytes, seen: str) -> None:
    async with gated() as service:
        request = b"GET %b HTTP/1.1\r\nA: b\r\nA: c\r\n%b\r\n" % (target, sent + CLOSE)
        [(status, _, body)] = await service.ask(request)
    assert (status, body["host"], body["from"], body["peer"]) == (200, seen, "127.0.0.1", None)


async def test_a_request_that_is_whole_is_known_to_be() -> None:
    async with gated() as service:
        answered = await service.ask((GET + HOST + b"\r\n") * 3 + ASKED)
    assert [body["whole"] for *_, body in answered] == [True] * 4


NAME = st.from_regex(rb"[a-z-]{1,12}", fullmatch=True)
VALUE = st.from_regex(rb"[!-~]{1,20}", fullmatch=True)


@given(st.lists(st.tuples(NAME, VALUE)))
def test_all_other_headers_stay(headers: list[tuple[bytes, bytes]]) -> None:
    offer = [(b"upgrade", b"h2c"), (b"http2-settings", b"AA")]
    kept = [(n, v) for n, v in headers if n not in (b"upgrade", b"http2-settings", b"connection")]
    head = without_offer(b"GET", b"/a?b", "1.1", [*offer, *kept, (b"connection", b"Upgrade, x")])
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert first == b"GET /a?b HTTP/1.1"
    assert lines == [b"%b: %b" % pair for pair in kept] + [b"connection:  x"]


def test_a_value_with_a_line_end_begins_no_header() -> None:
    """What the parser might take for a folded line is refused where it would be written again."""
    with pytest.raises(ValueError, match="x"):
        without_offer(b"GET", b"/", "1.1", [(b"x", b"a\r\nhost: evil")])


# how long a connection may wait


def _queues(service: Gated) -> list[int]:
    every = service.connections
    return [len(queue) for queue in (every.new, every.kept, every.stuck)]


async def test_connections_wait_in_the_queue_of_what_they_wait_for() -> None:
    """A new one for its first head, a kept one for the next, and none while it is answered."""
    async with gated() as service:
        _, writer = await service.connect()
        for request, waiting in (
            (b"", [1, 0, 0]),
            (GET + HOST + b"\r\n", [0, 1, 0]),
            (GET + HOST + b"\r\n", [0, 1, 0]),
            (b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n", [0, 0, 0]),
        ):
            writer.write(request)
            await asyncio.sleep(0.1)
            assert _queues(service) == waiting
        assert b"advisor_connections_open 1.0" in service.metrics.text()
        writer.close()
        await asyncio.sleep(0.05)
        assert _queues(service) == [0, 0, 0]
        assert b"advisor_connections_open 0.0" in service.metrics.text()


@pytest.mark.parametrize("reads", [False, True])
async def test_a_client_that_does_not_read_is_cut_off(*, reads: bool) -> None:
    async with gated(write_s=0.0) as service:
        reader, writer = await service.connect()
        writer.write(b"GET /large HTTP/1.1\r\n" + HOST + CLOSE + b"\r\n")
        while not service.connections.stuck:
            await asyncio.sleep(0.01)
        if not reads:
            service.connections.sweep()
        with contextlib.suppress(ConnectionError):
            assert (len(await reader.read()) > 30_000_000) == reads
        assert _queues(service) == [0, 0, 0]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


@pytest.mark.parametrize(("queue", "limit_s"), [("new", 10.0), ("kept", 30.0), ("stuck", 20.0)])
def test_a_connection_ends_when_its_time_is_over(
    now: list[float], queue: str, limit_s: float
) -> None:
    every = Connections(ServeOptions(write_s=20.0), Metrics())
    old, young = Mock(), Mock()
    getattr(every, queue).update({old: now[0], young: now[0] + 1})
    for after_s in (limit_s - 0.5, limit_s):
        now[0] = 100.0 + after_s
        every.sweep()
        assert old.transport.abort.called == (after_s == limit_s)
    assert list(getattr(every, queue)) == [young]
    assert not young.transport.abort.called


def test_the_connection_that_waited_longest_makes_room(now: list[float]) -> None:
    """Of new and kept ones; where all others are being answered, the newest is refused."""
    metrics = Metrics()
    every = Connections(ServeOptions(max_connections=2), metrics)
    first, second, third, fourth = (Mock() for _ in range(4))
    for one in (first, second, third):
        assert every.admit(one)
        now[0] += 1
        every.kept.update(every.new if one is first else {})
    assert [one.transport.abort.called for one in (first, second, third)] == [True, False, False]
    every.forget(first)
    every.new.clear()
    assert not every.admit(fourth)
    every.forget(fourth)
    text = metrics.text()
    assert b"advisor_connections_refused_total 2.0" in text
    assert b"advisor_connections_open 2.0" in text
    assert not every.new


# where it listens


async def test_at_a_unix_socket_the_kernel_says_who_asks(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with gated(socket=path) as service:
        assert stat.S_IMODE(path.lstat().st_mode) == 0o666
        [(status, _, body)] = await service.ask(ASKED)
    ours = f"uid:{os.geteuid()}"
    assert (status, body["from"], body["caller"], body["peer"]) == (200, ours, ours, os.geteuid())
    assert not path.exists()


def test_a_peer_has_its_user_and_groups() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = peer_of(ours.fileno())
    assert (peer.uid, peer.gids) == (os.geteuid(), {os.getegid(), *os.getgroups()})


def test_one_service_for_each_socket(tmp_path: Path) -> None:
    """One that was killed leaves nothing in the way; that of a later one is not taken away."""
    path, kept = tmp_path / "s", tmp_path / "kept"
    options = ServeOptions(socket=path)
    with listening(options):
        with pytest.raises(InputError, match="another server listens on"), listening(options):
            pass
        path.unlink()
        with listening(options):
            path.rename(kept)
        kept.rename(path)
    assert path.is_socket()
    with listening(options):
        assert path.is_socket()
    assert not path.exists()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("notes", "is not a socket of yours"),
        ("link", "is not a socket of yours"),
        ("nowhere/s", "cannot listen on .*at most 100 characters"),
        ("s" * 200, "cannot listen on "),
    ],
)
def test_what_is_no_socket_is_left_alone(tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "notes").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "notes")
    with (
        pytest.raises(InputError, match=said),
        listening(ServeOptions(socket=tmp_path / path)),
    ):
        pass
    assert (tmp_path / "notes").read_text() == "precious"


def test_an_address_that_cannot_be_listened_on_is_told() -> None:
    with listening(ServeOptions(port=0)) as taken:
        for options, said in (
            (ServeOptions(port=taken.getsockname()[1]), "end the other process"),
            (ServeOptions(host="192.0.2.1", port=0), "Cannot assign.*an address of this host and"),
            (ServeOptions(host="no such host"), "give an address of this host: --host"),
        ):
            with pytest.raises(InputError, match=said), listening(options):
                pass


# the certificate


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_a_certificate_is_renewed_as_a_pair(
    files: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of a new pair, or a file that is gone, leaves the old one in use."""
    caplog.set_level("INFO")
    certificate, key = tmp_path / "a.crt", tmp_path / "a.key"
    certificate.write_bytes(files.certificate.read_bytes())
    key.write_bytes(files.key.read_bytes())
    made = Certificate(certificate, key)
    other = make_certificate(tmp_path / "other", "other")
    for file, content, said in (
        (key, None, []),
        (key, files.key.read_bytes(), ["loaded the new certificate of"]),
        (certificate, other.certificate.read_bytes(), ["cannot be used, the old one stays"]),
        (key, other.key.read_bytes(), ["loaded the new certificate of"]),
    ):
        caplog.clear()
        file.unlink() if content is None else file.write_bytes(content)
        for _ in range(2):
            made.renew()
        assert len(caplog.messages) == len(said)
        assert all(text in message for text, message in zip(said, caplog.messages, strict=True))


def test_files_that_are_no_certificate_are_told(files: Made, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    for key, ca, said in (
        (tmp_path / "key", None, "TLS cannot use .* with .*key"),
        (tmp_path / "none", None, "TLS cannot use"),
        (files.key, tmp_path / "none", "none cannot be read as certificates"),
    ):
        with pytest.raises(InputError, match=said):
            Certificate(files.certificate, key, ca)
    trusting = Certificate(*files, files.certificate).context
    assert (trusting.verify_mode.name, trusting.minimum_version.name) == (
        "CERT_OPTIONAL",
        "TLSv1_2",
    )
    assert len(trusting.get_ca_certs()) == 1
    assert Certificate(*files).context.verify_mode.name == "CERT_NONE"


async def test_a_client_that_left_its_questions_is_no_fault(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted and logged as gone; what stood in line behind the first is not begun."""
    async with gated() as service, asyncio.timeout(20):
        _, writer = await service.connect()
        writer.write(_asking(b"/kept") + b"\r\n")
        while not service.connections.kept:
            await asyncio.sleep(0.01)
        [connection] = service.connections.kept
        writer.write(2 * (_asking(b"/slow") + b"\r\n"))
        while b"in_flight 1.0" not in service.metrics.text():
            await asyncio.sleep(0.01)
        connection.transport.abort()
        while b"in_flight 0.0" not in service.metrics.text():
            await asyncio.sleep(0.01)
    assert b'route="/slow",status="499"} 1.0' in service.metrics.text()
    assert (capsys.readouterr().err.count(" 499 "), caplog.records) == (1, [])
