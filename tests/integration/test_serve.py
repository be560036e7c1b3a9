"""The service as a real process: what it tells, who may ask, how it starts and ends."""

import contextlib
import grp
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import postgres
import pytest
from certificates import Made, make_certificate
from forked import Forked, run_forked, start_forked
from raw_server import JSON, Answer, RawServer, environment, raw_server, raw_server_with
from reading import some
from waiting import PATIENCE_S

from advisor.client import ApiError, Client
from advisor.runtime.processes import cpu_s, descendants, is_stopped, wait_until
from advisor.settings import read_settings
from advisor_api.app import CONTRACT, PAGES
from advisor_api.server import Systemd

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


_HANGS = """
import asyncio, os, signal, socket, threading, time
from starlette.applications import Starlette
from starlette.routing import Route
from advisor_api import server
from advisor_api.http.routing import HttpMetrics
from advisor_api.http.access import ServeOptions

def hang(_=None):
    held.append(1)
    threading.Event().wait()

async def hang_in_thread(_):
    await asyncio.to_thread(hang)

def make(_):
    app = Starlette(routes=[Route("/0", hang), Route("/1", hang_in_thread)])
    app.state.metrics = HttpMetrics()
    return app

def ask_and_stop(port):
    asked = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
    for n, client in enumerate(asked):
        client.sendall(b"GET /%d HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n" % n)
    while len(held) < 2:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

def started(real):
    threading.Thread(target=ask_and_stop, args=[real.port], daemon=True).start()

held, server._CLOSE_S = [], 0.5
server.serve_app(make, ServeOptions(port=0, drain_s=0.5), started, {})
"""


def test_a_stop_waits_for_no_thread_that_hangs() -> None:
    """As one that reads from a disk of the network that is gone; such threads are named."""
    done = subprocess.run(
        [sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0
    assert "left with threads that do not end: MainThread" in done.stderr


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


# `advisor serve --socket`: the kernel says who asks, so this user needs no token.


NOBODY = 65534


@contextmanager
def _served(folder: Path, *options: str) -> Generator[tuple[Path, Forked]]:
    path = folder / "advisor.sock"
    words = ("serve", "--socket", str(path), *options)
    with (
        Path(os.devnull).open("w") as errors,
        start_forked(words, environment(folder / "home"), errors=errors) as process,
    ):
        try:
            assert some(process.stdout).readline().startswith(f"advisor listens on unix:{path}")
            yield path, process
        finally:
            process.kill()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for the path of a socket, and open to others of this host."""
    with tempfile.TemporaryDirectory(prefix="adv", dir="/var/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.mark.slow
def test_this_user_may_do_everything_without_a_token(folder: Path) -> None:
    """It is written down by the number of the user; the socket goes with the service.

    With a token it may do what the token allows, and no more.
    """
    with _served(folder) as (path, process):
        with Client(f"unix:{path}") as client:
            assert client.jobs()
            with pytest.raises(ApiError, match="no points of gemm"):
                client.delete_profile("gemm")
            entries = client.audit(limit=1)
        assert {(e.who, e.client) for e in entries} == {(f"uid:{os.geteuid()}",) * 2}
        words = ("tokens", "create", "reader", "--scope", "read", "--json")
        made = run_forked(words, environment(folder / "home"), folder)
        with Client(f"unix:{path}", json.loads(made.stdout)["secret"]) as reader:
            assert reader.jobs()
            with pytest.raises(ApiError, match="scope admin"):
                reader.audit()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert not path.exists()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_needs_a_token_or_the_group(folder: Path) -> None:
    """A stranger of the host is nobody; a member of the group may read, write and launch."""
    name = grp.getgrgid(NOBODY).gr_name
    with _served(folder) as (path, _):
        assert _as_nobody(path, "GET", "/v1/jobs?limit=1") == 401
        assert _as_nobody(path, "GET", "/healthz") == 200
    with _served(folder, "--socket-group", name) as (path, _):
        assert _as_nobody(path, "GET", "/v1/jobs?limit=1") == 200
        assert _as_nobody(path, "DELETE", "/v1/profiles/gemm") == 404
        assert _as_nobody(path, "GET", "/v1/audit") == 403


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--socket", "s", "--socket-group", "no-such-group"], "no group no-such-group"),
        (["--socket-group", "root"], "--socket PATH"),
    ],
)
def test_options_that_do_not_fit_are_told(folder: Path, options: list[str], told: str) -> None:
    done = run_forked(("serve", *options), environment(folder / "home"), folder)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def _as_nobody(path: Path, method: str, target: str) -> int:
    if not (curl := shutil.which("curl")):
        pytest.skip("needs curl")
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    command = [*user, curl, "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}"]
    command += ["-X", method, "--unix-socket", str(path), f"http://localhost{target}"]
    return int(subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=20).stdout)


# What the service tells systemd, on a real datagram socket as systemd has one.


WATCHDOG_S = 0.8


SERVICE = """
import signal, time
from advisor_cli.app import app

# Python runs it in the thread of the event loop; all others go on.
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3))
app(["serve", "--port", "0"])
"""


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener


@contextmanager
def service(folder: Path, address: str) -> Generator[subprocess.Popen[bytes]]:
    more = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(int(1e6 * WATCHDOG_S))}
    with subprocess.Popen(
        [sys.executable, "-c", SERVICE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(folder / "home") | more,
        cwd=folder,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_service_says_ready_and_pings_until_it_stops(
    manager: socket.socket, tmp_path: Path
) -> None:
    """READY once it listens, more pings than systemd needs, and STOPPING at once.

    While its event loop stands still its other threads do not speak for it.
    """
    # An address that is no file; the tests below have files.
    name = f"advisor-test-{os.getpid()}"
    manager.bind(f"\0{name}")
    with service(tmp_path, f"@{name}") as process:
        assert manager.recv(4096).startswith(b"READY=1\nSTATUS=listens on http://127.0.0.1:")
        assert {manager.recv(4096) for _ in range(6)} == {b"WATCHDOG=1"}
        process.send_signal(signal.SIGUSR1)
        manager.settimeout(1.5)
        with pytest.raises(TimeoutError):
            assert not [manager.recv(4096) for _ in range(100)]
        manager.settimeout(PATIENCE_S)
        assert manager.recv(4096) == b"WATCHDOG=1"
        process.send_signal(signal.SIGTERM)
        assert wait_until(lambda: manager.recv(4096).startswith(b"STOPPING=1"), PATIENCE_S)
        assert process.wait(PATIENCE_S) == 0


def test_a_ping_for_another_process_is_not_sent(manager: socket.socket, tmp_path: Path) -> None:
    """WATCHDOG_PID names whom systemd watches; without a watchdog nobody pings at all."""
    manager.bind(str(tmp_path / "notify"))
    base = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000"}
    Systemd({**base, "WATCHDOG_PID": "1"}).turn()
    Systemd({"NOTIFY_SOCKET": base["NOTIFY_SOCKET"]}).turn()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)
    Systemd({**base, "WATCHDOG_PID": str(os.getpid())}).turn()
    assert manager.recv(4096) == b"WATCHDOG=1"


def test_where_nobody_listens_nothing_happens(tmp_path: Path) -> None:
    for address in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        told = Systemd({**address, "WATCHDOG_USEC": "1000"})
        told.ready("listens")
        told.turn()
        told.stopping()
    assert not list(tmp_path.iterdir())


def test_jobs_do_not_speak_for_the_service() -> None:
    names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
    settings = read_settings(dict.fromkeys(names, "1") | {"HOME": "/home/someone"})
    assert not {*names} & {*settings.job_environment()}


# What one body may cost the service: its length, its keys, and the list of its faults.


RECOMMEND, PLACE, POINTS = "/v1/recommendations", "/v1/placements", "/v1/points"


SHORT, LONG = 64 * 1024, 1024 * 1024


@pytest.fixture(scope="module")
def writer(served: RawServer) -> dict[str, str]:
    with served.state() as state:
        return {**JSON, "Authorization": f"Bearer {state.make_token('all', ('admin',))[1]}"}


def _keys(count: int, value: Any = 0) -> dict[str, Any]:
    return {f"k{number}": value for number in range(count)}


PAIR = {"jobs": [{"job": "gemm"}, {"job": "triad"}]}


# Values are made by the tests, not by every process that collects this file.
DEAR: dict[str, tuple[str, Callable[[], Any]]] = {
    "counts of jobs": (PLACE, lambda: {"gpus": 1, "jobs": [_keys(110_000)]}),
    "speeds": (RECOMMEND, lambda: {"jobs": [_keys(90_000, "x")]}),
    "unknown fields": (RECOMMEND, lambda: _keys(95_000)),
    "a short list of names": (PLACE, lambda: {"gpus": 1, "jobs": [0] * 32_000}),
    "unknown fields of one request": (f"{RECOMMEND}/batch", lambda: {"requests": [_keys(90_000)]}),
    "unknown columns of one row": (POINTS, lambda: {"points": [_keys(90_000)]}),
    "unknown columns of all rows": (POINTS, lambda: {"points": [_keys(90)] * 1000}),
    "rows without end": (POINTS, lambda: {"points": [0] * 500_000}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEAR)
def test_a_wrong_body_holds_up_nobody(served: RawServer, writer: dict[str, str], kind: str) -> None:
    """However many faults a body has, it takes little of the service's time, and few are named."""
    path, value = DEAR[kind]
    body = json.dumps(value(), separators=(",", ":")).encode()
    before_s = _cpu_s(served.process.pid)
    answer = served.ask("POST", path, body, writer)
    assert answer.status in (413, 422)
    assert len(answer.body) < 2000
    # CPU time, which is the same beside whatever else runs; listing all faults took half a second.
    assert _cpu_s(served.process.pid) - before_s < 0.25


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# The service as a real process under clients that hold on, TLS, and a database that goes away.


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


# Placements that take long: one that is killed, and what is left of one when the service ends.


NAMES = ("fft", "gemm", "triad", "walsh")
LONG_QUEUE = {"jobs": [{"job": job, "count": 20_000, "work_s": 60.0} for job in NAMES]}


@pytest.mark.slow
def test_placements_go_on_where_somebody_stops_their_process(tmp_path: Path) -> None:
    """While it waits and while it works: whoever asked would wait for ever, and all who follow."""
    with raw_server(tmp_path / "home") as served, ThreadPoolExecutor() as pool:
        assert _place(served, {"jobs": [{"job": "fft", "count": 2}]}).status == 200
        [pid] = descendants(served.process.pid)
        os.kill(pid, signal.SIGSTOP)
        asked, _ = _long(served, pool)
        os.kill(pid, signal.SIGSTOP)
        assert wait_until(lambda: not is_stopped(pid), 60)
        assert not asked.done()
        os.kill(pid, signal.SIGKILL)
        assert asked.result(30).code == "process-ended"


@pytest.mark.slow
def test_no_placement_outlives_a_service_that_is_stopped(tmp_path: Path) -> None:
    # It goes on with the placement, in vain, for as long as requests may end in.
    with raw_server_with(tmp_path / "home", drain_s=1) as served, ThreadPoolExecutor() as pool:
        asked, pid = _long(served, pool)
        os.kill(served.process.pid, signal.SIGTERM)
        assert wait_until(lambda: not Path(f"/proc/{pid}").exists(), 30)
        assert asked.exception(30) or asked.result().status in (200, 503)


def _long(served: RawServer, pool: ThreadPoolExecutor) -> tuple[Future[Answer], int]:
    """A placement that is worked out, and the process that does."""
    asked = pool.submit(_place, served, LONG_QUEUE)

    def at_work() -> list[int]:
        # Starting takes most of a second of CPU time; what comes after it is the work.
        return [pid for pid in descendants(served.process.pid) if cpu_s([pid]) > 1.5]

    # It gives way to whatever else the machine does.
    assert wait_until(lambda: asked.done() or bool(at_work()), 240)
    assert not asked.done(), "it was placed before it could be looked at"
    return asked, at_work()[0]


def _place(served: RawServer, queue: Mapping[str, object]) -> Answer:
    return served.ask("POST", "/v1/placements", json.dumps({**queue, "gpus": 100}).encode(), JSON)
