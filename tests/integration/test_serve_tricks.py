"""The service as a real process under paths, headers and bodies that no honest client sends."""

from collections.abc import Iterator

import pytest
from raw_server import JSON, RawServer, raw_server

HOST = b"Host: localhost\r\n"
CLOSE = b"Connection: close\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawServer]:
    with raw_server(tmp_path_factory.mktemp("serve") / "home") as server:
        yield server


# tricks with paths and headers

GET = b"GET /healthz HTTP/1.1\r\n"
POST = b"POST /v1/recommendations HTTP/1.1\r\n" + HOST
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


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_are_refused_with_a_code(served: RawServer, trick: str) -> None:
    """Whatever a path or header tries ends in an error with a code, never in another route."""
    head, status = TRICKS[trick]
    answer = served.send(head + CLOSE + b"\r\n")
    assert (answer.status, answer.code) == (status, CODES[status])


def test_a_head_without_end_is_cut_off(served: RawServer) -> None:
    """One header that never ends takes no memory."""
    with served.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + HOST + b"X: ")
        with pytest.raises(OSError):  # noqa: PT011 reset or broken pipe, as the system likes
            client.sendall(b"a" * 64 * 1024 * 1024)


def test_forwarded_headers_change_nothing(served: RawServer) -> None:
    """Nobody chooses the address that is logged and limited."""
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

BODIES = {
    "malformed": (b'{"jobs": [', 422),
    "no object": (b"[]", 422),
    "NaN": (b'{"jobs": [{"job": "a"}, {"job": "b"}], "max_power_w": NaN}', 422),
    "a lone surrogate as a name": (b'{"\\udfff": 1}', 422),
    "deeply nested": (b"[" * 30_000 + b"]" * 30_000, 422),
    "a wrong unit": (b'{"jobs": [{"job": "a"}, {"job": "b"}], "max_power_kw": 1}', 422),
    "huge": (b'{"jobs": "' + b"a" * 1024 * 1024 + b'"}', 413),
}


@pytest.mark.parametrize("kind", BODIES)
def test_bad_bodies_are_refused_with_a_code(served: RawServer, kind: str) -> None:
    """No body ends in an internal error, and the server goes on."""
    body, status = BODIES[kind]
    answer = served.ask("POST", "/v1/recommendations", body, JSON)
    expected = {413: "body-too-large"}.get(status, "bad-input")
    assert (answer.status, answer.code) == (status, expected)
    assert len(answer.body) < 2000


def test_a_body_must_say_that_it_is_json(served: RawServer) -> None:
    """A form of another site, which a browser sends without asking, is refused."""
    forms = ("text/plain", "application/x-www-form-urlencoded", "", "application/json;charset=x")
    for kind in forms:
        answer = served.ask("POST", "/v1/recommendations", b"{}", {"Content-Type": kind})
        assert (answer.status, answer.code) == (415, "not-json")


def test_chunks_without_end_are_cut_off(served: RawServer) -> None:
    """A body without a length is counted as it comes."""
    head = POST + b"Content-Type: application/json\r\n"
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    answer = served.send(head + CHUNKS + b"\r\n" + chunk * 17)
    assert (answer.status, answer.code) == (413, "body-too-large")
