"""The service as a real process under clients that hold on, TLS, and a database that goes away."""

import contextlib
import http.client
import ssl
import time
from pathlib import Path

import postgres
import pytest
from certificates import Made, make_certificate
from raw_server import raw_server, raw_server_with

from advisor.runtime.processes import wait_until

# clients that hold on


@pytest.mark.slow
def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    """The service looks after that by itself, many times a second."""
    with raw_server_with(tmp_path / "home", header_s=1.0) as served, served.connect() as client:
        began = time.monotonic()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
        assert time.monotonic() - began > 0.5


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
