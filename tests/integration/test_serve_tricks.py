"""The service as a real process under paths, headers and bodies that no honest client sends.

Offers of other protocols, and targets that are whole addresses, are as RFC 9110 and 9112 have them.
"""

import re
import socket
import time

import pytest
from raw_server import RawServer
from reading import some

HOST = b"Host: localhost\r\n"
CLOSE = b"Connection: close\r\n"


# tricks with paths and headers

GET = b"GET /healthz HTTP/1.1\r\n"
POST = b"POST /v1/recommendations HTTP/1.1\r\n" + HOST
SENT = POST + b"Content-Type: application/json\r\n"
LENGTH, CHUNKS = b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n"
EVIL = b"Host: evil.example\r\n"


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
    "a negative length": (POST + b"Content-Length: -1\r\n", 400),
    "dots": (_asking(b"/v1/../healthz"), 404),
    "dots in hex": (_asking(b"/v1/%2e%2e/healthz"), 404),
    "two slashes": (_asking(b"//healthz"), 404),
    "another host in the path": (_asking(b"//evil.example/%2e%2e"), 404),
    "a slash more": (_asking(b"/v1/jobs/"), 404),
    "a slash in hex": (_asking(b"/v1/profiles/a%2f..%2fb"), 404),
    "NUL": (_asking(b"/v1/profiles/a%00b"), 400),
    "NUL in the query": (_asking(b"/v1/observations?job=%00"), 400),
    "a new line": (_asking(b"/v1/profiles/a%0aINFO"), 400),
    "a long path": (_asking(b"/" + b"a" * 9000), 414),
    "a longer path": (_asking(b"/" + b"a" * 40000), 431),
    "many headers": (GET + HOST + b"X-Y: z\r\n" * 6000, 431),
    "a tunnel": (b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST, 400),
    "another method": (b"PATCH /healthz HTTP/1.1\r\n" + HOST, 405),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "bytes in the path": (_asking(b"/v1/profiles/\xff"), 400),
    "NUL in a header": (GET + HOST + b"X: a\0b\r\n", 400),
}

CODES = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    414: "path-too-long",
    421: "wrong-host",
    431: "head-too-large",
}


@pytest.mark.slow
@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_are_refused_with_a_code(served: RawServer, trick: str) -> None:
    head, status = TRICKS[trick]
    answer = served.send(head + CLOSE + b"\r\n")
    assert (answer.status, answer.code) == (status, CODES[status])


def test_a_head_without_end_is_cut_off(served: RawServer) -> None:
    with served.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"X: ")
        with pytest.raises(OSError):  # noqa: PT011 reset or broken pipe, as the system likes
            client.sendall(b"a" * 64 * 1024 * 1024)


def test_forwarded_headers_change_nothing(served: RawServer) -> None:
    with served.state() as state:
        _, secret = state.make_token("forwarder", ("write",))
    headers = {
        "Authorization": f"Bearer {secret}",
        "X-Forwarded-For": "203.0.113.9",
        "Forwarded": "for=203.0.113.9",
    }
    served.ask("DELETE", "/v1/profiles/forwarded", headers=headers)
    with served.state() as state:
        entry = next(e for e in state.audit_log() if e.who == "forwarder")
    assert entry.client == "127.0.0.1"


# bodies


def test_a_body_must_say_that_it_is_json(served: RawServer) -> None:
    """A form of another site, which a browser sends without asking, is refused."""
    forms = ("text/plain", "application/x-www-form-urlencoded", "", "application/json;charset=x")
    for kind in forms:
        answer = served.ask("POST", "/v1/recommendations", b"{}", {"Content-Type": kind})
        assert (answer.status, answer.code) == (415, "not-json")


def test_chunks_without_end_are_cut_off(served: RawServer) -> None:
    answer = served.send(SENT + CHUNKS + b"\r\n" + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 17)
    assert (answer.status, answer.code) == (413, "body-too-large")


def test_a_body_that_is_too_large_is_not_asked_for(served: RawServer) -> None:
    """A client that waits for 100 has its answer before it sends anything."""
    head = SENT + b"Expect: 100-continue\r\nContent-Length: 100000000\r\n\r\n"
    with served.connect() as client:
        client.sendall(head)
        assert client.recv(12) == b"HTTP/1.1 413"


# offers of other protocols, and whole addresses

PAIR = b'{"jobs": [{"job": "gemm"}, {"job": "triad"}]}'
_SPACES = b" " * 30_000
OFFERS = {
    "HTTP/2": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAA\r\n",
    "HTTP/2 alone": b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "a web socket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
    "in capitals": b"CONNECTION: UPGRADE\r\nUPGRADE: TLS/1.0\r\n",
}


@pytest.mark.parametrize("kind", OFFERS)
def test_an_offer_is_ignored_and_its_body_read(served: RawServer, kind: str) -> None:
    for body in (PAIR, PAIR + _SPACES):
        head = SENT + OFFERS[kind] + b"Content-Length: %d\r\n\r\n" % len(body)
        answer = served.send(head + body)
        assert answer.status == 200
        assert "upgrade" not in answer.headers


@pytest.mark.parametrize("kind", OFFERS)
def test_nothing_is_smuggled_behind_an_offer(served: RawServer, kind: str) -> None:
    """The body of a request with an offer is a body, not the next request, however it comes."""
    inner = b"GET /v1/jobs?limit=1 HTTP/1.1\r\n" + HOST + b"\r\n"
    bodies = {
        b"Content-Length: %d\r\n" % len(inner): inner,
        b"Transfer-Encoding: chunked\r\n": (b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)),
    }
    for length, body in bodies.items():
        with served.connect() as client:
            client.sendall(SENT + OFFERS[kind] + length + b"\r\n")
            time.sleep(0.05)
            client.sendall(body + b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
            assert _answers(client, 2) == [(422, b"error"), (200, b"status")]


def test_offers_without_a_body_and_in_a_row(served: RawServer) -> None:
    """What follows an offer in the same packet is read on, also another offer."""
    one = b"GET /healthz HTTP/1.1\r\n" + HOST + OFFERS["HTTP/2"] + b"\r\n"
    with served.connect() as client:
        client.sendall(one * 3)
        assert _answers(client, 3) == [(200, b"status")] * 3


def test_an_offer_with_two_lengths_is_refused(served: RawServer) -> None:
    """What is refused without an offer is refused with one."""
    for more in (
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
    ):
        answer = served.send(SENT + OFFERS["HTTP/2"] + more + b"\r\n{}")
        assert (answer.status, answer.code) == (400, "bad-request")


def test_the_host_of_a_whole_address_counts(served: RawServer) -> None:
    """`GET http://evil/` with a good Host is for another server; our own address is answered."""
    for target, status, code in (
        (b"http://evil.example/v1/jobs", 421, "wrong-host"),
        (b"http://a@localhost/healthz", 400, "bad-request"),
        (b"ftp://localhost/healthz", 400, "bad-request"),
        (b"*", 400, "bad-request"),
    ):
        answer = served.send(b"GET %b HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (target, HOST))
        assert (answer.status, answer.code) == (status, code)
    ours = b"GET http://localhost:%d/v1/jobs?limit=1 HTTP/1.1\r\n%b\r\n" % (served.port, HOST)
    assert served.send(ours).status == 200
    strange = b"GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    assert served.send(strange).status == 200


def test_an_idempotency_key_twice_is_refused(served: RawServer) -> None:
    head = b"POST /v1/launches HTTP/1.1\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n" + HOST
    answer = served.send(head + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    assert (answer.status, answer.code) == (400, "bad-request")


def _answers(client: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Status, and first key of the body behind `schema`, of so many answers of one connection."""
    found: list[tuple[int, bytes]] = []
    with client.makefile("rb") as stream:
        for _ in range(count):
            status = int(stream.readline().split()[1])
            head = b"".join(iter(stream.readline, b"\r\n"))
            length = some(re.search(rb"(?i)content-length: (\d+)", head))
            found.append((status, stream.read(int(length[1])).split(b'"')[3]))
    return found
