"""The service as a real process: what it tells, who may ask, how it starts and ends."""

import re
import signal
import socket
from pathlib import Path

import pytest
from raw_server import RawServer, raw_server, start_refused

from advisor.runtime.processes import wait_until
from advisor_api.routes.pages import CONTRACT, PAGES

HOST = b"Host: localhost\r\n"


@pytest.fixture(scope="module")
def secrets(served: RawServer) -> dict[str, str]:
    with served.state() as state:
        return {s: state.make_token(s, (s,))[1] for s in ("read", "write", "launch", "admin")}


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_metrics_count_requests_by_route_and_show_the_model(served: RawServer) -> None:
    """Prometheus sees requests by the template of their route, never by the names in paths."""
    served.ask("GET", "/v1/profiles/nobody-has-this-name")
    text = served.ask("GET", "/metrics").body.decode()
    assert re.search(r'advisor_requests_total{.*route="/v1/profiles/{job}",status="404"} 1', text)
    assert "nobody-has-this-name" not in text
    assert re.search(r'advisor_model_info{version="[^"]+"} 1', text)
    assert "advisor_connections_open 1.0" in text


@pytest.mark.slow
def test_every_answer_has_an_id_and_safe_headers(served: RawServer) -> None:
    """Pages run no script but ours, nobody frames them, and answers are kept by nobody."""
    for path in ("/healthz", "/nowhere", "/set"):
        headers = served.ask("GET", path).headers
        assert headers["x-request-id"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == ("no-cache" if path == "/set" else "no-store")
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "server" not in headers


def test_what_it_answers_is_where_programs_and_people_look(served: RawServer) -> None:
    """The page is our own: the usual ones load what other hosts have."""
    assert b'src="/pages/api.js"' in served.ask("GET", "/docs").body
    assert served.ask("GET", "/redoc").status == 404
    usual, ours = served.ask("GET", "/openapi.json"), served.ask("GET", "/v1/openapi.json")
    assert (usual.status, usual.plain) == (200, ours.plain)


# tokens


@pytest.mark.slow
def test_what_nobody_needs_a_token_for_is_written_down(tmp_path: Path) -> None:
    """Files of the release, and whether it lives: all that this host has needs a token there."""
    page = (Path(__file__).parents[2] / "docs/threat-model.md").read_text()
    (told,) = re.findall(r"\*\*What asks for no token:\*\*(.*?)\n- ", page, re.S)
    with raw_server(tmp_path, "--no-anonymous-read") as closed:
        asked = closed.ask("GET", "/openapi.json").plain["paths"]
        paths = [path for path, methods in asked.items() if "get" in methods and "{" not in path]
        paths += [*PAGES, *CONTRACT]
        without = {path for path in paths if closed.ask("GET", path).status != 401}
    assert without - (PAGES.keys() - {"/docs"}) == set(re.findall(r"`(/[\w./]*)`", told))


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    ["Bearer adv_" + "x" * 43, "Bearer ", "Basic dXNlcjpwYXNz", "adv_", "Bearer \xff"],
)
def test_a_wrong_token_is_refused_even_where_none_is_needed(served: RawServer, value: str) -> None:
    """Anyone who sends a token learns that it is no good, instead of being somebody else."""
    for path in ("/v1/jobs", "/healthz"):
        assert served.ask("GET", path).status == 200
        answer = served.ask("GET", path, headers={"Authorization": value})
        assert (answer.status, answer.code) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_log_names_callers_and_never_their_tokens(
    served: RawServer, secrets: dict[str, str]
) -> None:
    """One line per request: method, path without query, status, time, caller, id; no secret."""
    query = "?gpu_model=adv_in-the-query"
    answer = served.ask("GET", f"/v1/profiles/triad{query}", headers=bearer(secrets["read"]))
    served.ask("GET", "/v1/jobs", headers=bearer("adv_" + "s3cret" * 8))
    lines = served.log.read_text().splitlines()
    request_id = answer.headers["x-request-id"]
    [line] = [line for line in lines if line.endswith(request_id)]
    assert re.search(r"Z INFO GET /v1/profiles/triad 404 \d+\.\d ms read \S+$", line)
    for secret in (*secrets.values(), "s3cret", "adv_"):
        assert secret not in served.log.read_text()


# starting and ending


def test_a_taken_port_is_told(served: RawServer, tmp_path: Path) -> None:
    said = start_refused(tmp_path, "--port", str(served.port))
    assert f"port {served.port}" in said
    assert "--port" in said


@pytest.mark.slow
def test_a_stop_lets_requests_end(tmp_path: Path) -> None:
    """SIGTERM: a request that has begun is answered, then the process ends with status 0.

    The start says where the description of the API is, whether jobs can be launched, and how to get
    a token.
    """
    body = b'{"jobs": [{"job": "triad"}, {"job": "gemm"}]}'
    head = b"POST /v1/recommendations HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST
    with raw_server(tmp_path) as served, served.connect() as client, served.connect() as idle:
        client.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
        served.ask("GET", "/healthz")
        served.process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: _refuses(served.port), 30)
        client.sendall(body[5:])
        with client.makefile("rb") as reader:
            assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
        assert idle.recv(1) == b""
        assert served.process.wait(20) == 0
        said = served.process.stdout.read() if served.process.stdout else ""
    for words in ("/v1/openapi.json", "launching: off", "advisor tokens create"):
        assert words in said


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False
