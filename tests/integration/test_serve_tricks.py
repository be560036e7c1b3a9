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

TRICKS = {
    "another site's name": (b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n", 421, "wrong-host"),
    "no host": (b"GET /healthz HTTP/1.1\r\n", 400, "bad-request"),
    "an empty host": (b"GET /healthz HTTP/1.1\r\nHost:\r\n", 400, "bad-request"),
    "a host twice": (b"GET /healthz HTTP/1.1\r\n" + HOST + HOST, 400, "bad-request"),
    "a forwarded host": (
        b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\n",
        421,
        "wrong-host",
    ),
    "two lengths": (
        b"POST /v1/recommendations HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n" + HOST,
        400,
        "bad-request",
    ),
    "a length and chunks": (
        b"POST /v1/recommendations HTTP/1.1\r\nContent-Length: 2\r\n"
        b"Transfer-Encoding: chunked\r\n" + HOST,
        400,
        "bad-request",
    ),
    "two encodings": (
        b"POST /v1/recommendations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
        b"Transfer-Encoding: identity\r\n" + HOST,
        400,
        "bad-request",
    ),
    "two tokens": (
        b"GET /v1/jobs HTTP/1.1\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n" + HOST,
        400,
        "bad-request",
    ),
    "a negative length": (
        b"POST /v1/recommendations HTTP/1.1\r\nContent-Length: -1\r\n" + HOST,
        400,
        "bad-request",
    ),
    "dots": (b"GET /v1/../healthz HTTP/1.1\r\n" + HOST, 404, "not-found"),
    "dots in hex": (b"GET /v1/%2e%2e/healthz HTTP/1.1\r\n" + HOST, 404, "not-found"),
    "two slashes": (b"GET //healthz HTTP/1.1\r\n" + HOST, 404, "not-found"),
    "another host in the path": (
        b"GET //evil.example/%2e%2e HTTP/1.1\r\n" + HOST,
        404,
        "not-found",
    ),
    "a slash more": (b"GET /v1/jobs/ HTTP/1.1\r\n" + HOST, 404, "not-found"),
    "a slash in hex": (b"GET /v1/profiles/a%2f..%2fb HTTP/1.1\r\n" + HOST, 404, "not-found"),
    "NUL": (b"GET /v1/profiles/a%00b HTTP/1.1\r\n" + HOST, 400, "bad-request"),
    "NUL in the query": (b"GET /v1/observations?job=%00 HTTP/1.1\r\n" + HOST, 400, "bad-request"),
    "a new line": (b"GET /v1/profiles/a%0aINFO HTTP/1.1\r\n" + HOST, 400, "bad-request"),
    "a long path": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST, 414, "path-too-long"),
    "a longer path": (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n" + HOST, 431, "head-too-large"),
    "many headers": (
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-Y: z\r\n" * 6000,
        431,
        "head-too-large",
    ),
    "another method": (b"PATCH /healthz HTTP/1.1\r\n" + HOST, 405, "method-not-allowed"),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "bad-request"),
    "bytes in the path": (b"GET /v1/profiles/\xff HTTP/1.1\r\n" + HOST, 400, "bad-request"),
    "NUL in a header": (b"GET /healthz HTTP/1.1\r\nX: a\0b\r\n" + HOST, 400, "bad-request"),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_are_refused_with_a_code(served: RawServer, trick: str) -> None:
    """Whatever a path or header tries ends in an error with a code, never in another route."""
    head, status, code = TRICKS[trick]
    answer = served.send(head + CLOSE + b"\r\n")
    assert (answer.status, answer.code) == (status, code)


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
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "application/json;charset=x",
    ):
        answer = served.ask("POST", "/v1/recommendations", b"{}", {"Content-Type": kind})
        assert (answer.status, answer.code) == (415, "not-json")


def test_chunks_without_end_are_cut_off(served: RawServer) -> None:
    """A body without a length is counted as it comes."""
    head = b"POST /v1/recommendations HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    answer = served.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 17)
    assert (answer.status, answer.code) == (413, "body-too-large")
