"""The service as a real process: what it tells, who may ask, how it starts and ends."""

import re
import signal
import socket
from pathlib import Path

import pytest
from raw_server import RawServer, raw_server

from advisor.runtime.processes import wait_until
from advisor_api.routes.pages import CONTRACT, PAGES

HOST = b"Host: localhost\r\n"


def test_metrics_count_requests_by_route_and_show_the_model(served: RawServer) -> None:
    """Prometheus sees requests by the template of their route, never by the names in paths."""
    served.ask("GET", "/v1/profiles/nobody-has-this-name")
    text = served.ask("GET", "/metrics").body.decode()
    assert re.search(r'advisor_requests_total{.*route="/v1/profiles/{job}",status="404"} 1', text)
    assert "nobody-has-this-name" not in text
    assert re.search(r'advisor_model_info{version="[^"]+"} 1', text)
    assert "advisor_connections_open 1.0" in text


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


# starting and ending


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
