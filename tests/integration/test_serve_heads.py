"""Heads of requests as RFC 9110 and 9112 have them: offers of other protocols, whole addresses."""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_server import RawServer, raw_server

from advisor_api.http.protocol import of_whole_address, without_offer

HOST = b"Host: localhost\r\n"
PAIR = b'{"jobs": [{"job": "gemm"}, {"job": "triad"}]}'
OFFERS = {
    "HTTP/2": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAA\r\n",
    "HTTP/2 alone": b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "a web socket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
    "in capitals": b"CONNECTION: UPGRADE\r\nUPGRADE: TLS/1.0\r\n",
}
POST = b"POST /v1/recommendations HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawServer]:
    with raw_server(tmp_path_factory.mktemp("serve") / "home") as server:
        yield server


@pytest.mark.parametrize("kind", OFFERS)
def test_an_offer_is_ignored_and_its_body_read(served: RawServer, kind: str) -> None:
    """A request that offers another protocol is answered as if it did not, with all its body."""
    head = POST + OFFERS[kind] + b"Content-Length: %d\r\n\r\n" % len(PAIR)
    answer = served.send(head + PAIR)
    assert answer.status == 200
    assert "upgrade" not in answer.headers


@pytest.mark.parametrize("kind", OFFERS)
def test_nothing_is_smuggled_behind_an_offer(served: RawServer, kind: str) -> None:
    """The body of a request with an offer is a body, not the next request, however it comes."""
    inner = b"GET /v1/jobs?limit=1 HTTP/1.1\r\n" + HOST + b"\r\n"
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)
    bodies = {
        b"Content-Length: %d\r\n" % len(inner): inner,
        b"Transfer-Encoding: chunked\r\n": chunked,
    }
    for length, body in bodies.items():
        with served.connect() as client:
            client.sendall(POST + OFFERS[kind] + length + b"\r\n")
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
        answer = served.send(POST + OFFERS["HTTP/2"] + more + b"\r\n{}")
        assert (answer.status, answer.code) == (400, "bad-request")


def test_a_tunnel_is_refused(served: RawServer) -> None:
    """This is no proxy."""
    answer = served.send(b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST + b"\r\n")
    assert (answer.status, answer.code) == (400, "bad-request")


def test_curl_with_an_offer_of_http2(served: RawServer) -> None:
    """`curl --http2 -d` works, also with more than it sends at once."""
    if not (curl := shutil.which("curl")):
        pytest.skip("needs curl")
    url = f"http://127.0.0.1:{served.port}/v1/recommendations"
    spaces = " " * 30_000
    for body in (PAIR.decode(), PAIR.decode() + spaces):
        command = [curl, "-s", "--http2", "-m", "20", "-d", body, url]
        command += ["-H", "Content-Type: application/json", "-w", "%{http_code}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if "HTTP2" in done.stderr or done.returncode == 2:
            pytest.skip("this curl has no HTTP/2")
        assert done.stdout.endswith("200")


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
    """Which of two keys was meant, nobody knows."""
    head = b"POST /v1/launches HTTP/1.1\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n" + HOST
    answer = served.send(head + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
    assert (answer.status, answer.code) == (400, "bad-request")


def _answers(client: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Status, and first key of the body, of so many answers of one connection."""
    found: list[tuple[int, bytes]] = []
    with client.makefile("rb") as stream:
        for _ in range(count):
            status = int(stream.readline().split()[1])
            head = b"".join(iter(stream.readline, b"\r\n"))
            length = re.search(rb"(?i)content-length: (\d+)", head)
            assert length
            found.append((status, stream.read(int(length[1])).split(b'"')[1]))
    return found


NAME = st.from_regex(rb"[a-z-]{1,12}", fullmatch=True)
VALUE = st.from_regex(rb"[!-~]{1,20}", fullmatch=True)


@given(st.lists(st.tuples(NAME, VALUE)))
def test_all_other_headers_stay(headers: list[tuple[bytes, bytes]]) -> None:
    """Nothing but the offer goes, and the order stays."""
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


def test_whole_addresses_in_parts() -> None:
    """Path, query and port are kept; an address without a path means its root."""
    assert of_whole_address(b"http://[::1]:80/a?b=c") == (b"/a?b=c", b"[::1]:80")
    assert of_whole_address(b"HTTPS://localhost") == (b"/", b"localhost")
