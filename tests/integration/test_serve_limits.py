"""The service as a real process under clients that hold on, TLS, and a database that goes away."""

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from certificates import Made, make_certificate
from raw_server import RawServer, raw_server, raw_server_with, read_answer, start_refused

from advisor.runtime.processes import wait_until

HOST = b"Host: localhost\r\n"
POST = b"POST /v1/recommendations HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST


# clients that hold on


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawServer]:
    """A server that waits a second where others wait for ten and more."""
    home = tmp_path_factory.mktemp("serve") / "home"
    times = {"header_s": 1.0, "idle_s": 1.5, "body_s": 1.0, "write_s": 1.0}
    with raw_server_with(home, **times, max_connections=50) as server:
        yield server


@pytest.mark.slow
def test_a_connection_that_says_nothing_is_closed(impatient: RawServer) -> None:
    with impatient.connect() as client:
        assert _seconds_until_closed(client) > 0.5


@pytest.mark.slow
def test_a_slow_head_is_cut_off(impatient: RawServer) -> None:
    with impatient.connect() as client, pytest.raises(OSError):  # noqa: PT011, PT012 reset or broken pipe
        for byte in b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 1000:
            client.sendall(bytes([byte]))
            time.sleep(0.05)


def test_a_kept_connection_is_closed_when_idle(impatient: RawServer) -> None:
    """Also one that has asked before, and then sends its next head slowly."""
    with impatient.connect() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
        assert read_answer(client).status == 200
        client.sendall(b"GET /hea")
        assert _seconds_until_closed(client) > 0.5


def test_a_slow_body_gets_408(impatient: RawServer) -> None:
    with impatient.connect() as client:
        client.sendall(POST + b"Content-Length: 1000\r\n\r\n{")
        answer = read_answer(client)
        assert (answer.status, answer.code) == (408, "too-slow")
        assert answer.headers["connection"] == "close"


@pytest.mark.slow
def test_a_client_that_does_not_read_is_cut_off(impatient: RawServer) -> None:
    request = b"GET /v1/openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", impatient.port))
        client.sendall(request * 200)
        assert wait_until(lambda: _open_connections(impatient) == 1, 20)
        assert impatient.ask("GET", "/healthz").status == 200


def test_the_connection_that_waited_longest_makes_room(impatient: RawServer) -> None:
    """Where all places are taken by silent clients, a new one is answered at once."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(impatient.connect()) for _ in range(60)]
        assert impatient.ask("GET", "/healthz").status == 200
        assert clients[0].recv(1) == b""


@pytest.mark.slow
def test_each_caller_has_a_rate(tmp_path: Path) -> None:
    with raw_server(tmp_path / "home", "--requests-per-s", "1") as served:
        with served.state() as state:
            _, secret = state.make_token("other", ("read",))
        refused = [served.ask("GET", "/healthz") for _ in range(4)][-1]
        assert (refused.status, refused.code) == (429, "too-many-requests")
        assert int(refused.headers["retry-after"]) >= 1
        headers = {"Authorization": f"Bearer {secret}"}
        assert served.ask("GET", "/healthz", headers=headers).status == 200


# TLS


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.slow
def test_tls_works_and_plain_http_ends_cleanly(files: Made, tmp_path: Path) -> None:
    """With TLS an address that is not loopback is allowed; reading then needs a token."""
    options = [f"--tls-certificate={files.certificate}", f"--tls-key={files.key}"]
    trusting = ssl.create_default_context(cafile=files.certificate)
    with raw_server(tmp_path / "home", *options, "--host", "0.0.0.0") as served:
        assert served.ask("GET", "/healthz", tls=trusting).status == 200
        assert served.ask("GET", "/v1/jobs", tls=trusting).status == 401
        assert served.ask("GET", "/metrics", tls=trusting).status == 401
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            served.ask("GET", "/healthz")
        assert served.ask("GET", "/healthz", tls=trusting).status == 200
        assert "Traceback" not in served.log.read_text()


def test_a_wrong_key_is_told(files: Made, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("no key")
    options = [f"--tls-certificate={files.certificate}", f"--tls-key={key}"]
    assert "key.pem" in start_refused(tmp_path, "--port", "0", *options)


# the database


@pytest.mark.slow
@pytest.mark.postgres
def test_the_database_goes_and_comes_back(
    postgres_server: postgres.Server, postgres_url: str, tmp_path: Path
) -> None:
    """Without its database the service lives, says so with a code, and goes on by itself."""
    with raw_server(tmp_path / "home", url=postgres_url) as served:
        assert served.ask("GET", "/readyz").status == 200
        postgres_server.stop()
        try:
            assert wait_until(lambda: served.ask("GET", "/readyz").status == 503, 30)
            answer = served.ask("GET", "/readyz")
            assert (answer.code, b"database" in answer.body) == ("not-ready", True)
            assert served.ask("GET", "/healthz").status == 200
            refused = served.ask("GET", "/v1/profiles/triad")
            token = {"Authorization": "Bearer adv_" + "x" * 43}
            for told in (refused, served.ask("GET", "/v1/jobs", headers=token)):
                assert (told.status, told.code) == (503, "store")
                assert b"postgres" not in told.body
        finally:
            postgres_server.start()
        assert wait_until(lambda: served.ask("GET", "/readyz").status == 200, 30)
        assert served.ask("GET", "/v1/profiles/triad").status in (200, 404)


def _seconds_until_closed(client: socket.socket) -> float:
    began = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    return time.monotonic() - began


def _open_connections(served: RawServer) -> int:
    lines = served.ask("GET", "/metrics").body.decode().splitlines()
    [line] = [line for line in lines if line.startswith("advisor_connections_open ")]
    return round(float(line.split()[1]))
