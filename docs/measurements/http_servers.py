"""Kept answers a second, and what slow clients may do, under other servers and FastAPI's own way.

    pip install granian hypercorn
    .venv/bin/python docs/measurements/http_servers.py [--rounds 5] [--seconds 2] [VARIANT ...]

Variants run the same application, gate included, beside each other: they are loaded in turns
(`wrk`, 16 connections, on the same cores), so ratios to the first one are what counts on a busy
machine. Then raw sockets try what a server alone must stop. A variant is a server, or `service`
with one part taken away: `fastapi` (routes and dependencies by FastAPI instead of `DirectRoute`),
`nested` (the same, with routers within the application's), `read` (each body read anew), `log`
(requests logged by the module `logging`).
"""

import argparse
import contextlib
import logging
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from serve_load import DONE, PATH, WARM, ask, make_bodies
from service_processes import cpu_s

VARIANTS = ("service", "read", "log", "fastapi", "nested", "uvicorn", "granian", "hypercorn")
_PARTS = ("read", "log", "fastapi", "nested")

WAIT_S = 1.5
"""For a head, where the server has such a limit."""

ACCESS = logging.getLogger("access")

PLACES = 50
"""For connections, where the server has a limit of these, else for requests."""


def main() -> None:
    """Start all, load them in turns, attack each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("variants", nargs="*", default=VARIANTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _serve(options.variants[0], options.serve)
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="http-servers-")))
        servers = {v: _start(stack, folder, v) for v in options.variants}
        kept = make_bodies()[:600]
        (folder / "bodies").write_text("\n".join(kept) + "\n")
        (folder / "load.lua").write_text(WARM % (folder / "bodies", PATH) + DONE)
        for port, _ in servers.values():
            for body in kept:
                ask(f"http://127.0.0.1:{port}", body)
        _compare(servers, folder / "load.lua", options.rounds, options.seconds)
        print("\n| | " + " | ".join(ATTACKS) + " |\n|" + " --- |" * (len(ATTACKS) + 1))
        attacked = [name for name in servers if name not in _PARTS]
        with ThreadPoolExecutor() as pool:
            found = pool.map(_attack, (servers[name][0] for name in attacked))
            for name, cells in zip(attacked, found, strict=True):
                print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _attack(port: int) -> list[str]:
    return [attack(port) for attack in ATTACKS.values()]


def _compare(servers: dict[str, tuple[int, int]], lua: Path, rounds: int, seconds: int) -> None:
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in servers}
    for _ in range(rounds):
        for name, (port, pid) in servers.items():
            found[name].append(_load(lua, port, pid, seconds))
    [first, *_] = found.values()
    print("| | answers/s | of the first | CPU time, µs | p99, ms |\n|" + " --- |" * 5)
    for name, rows in found.items():
        ratios = sorted(a[0] / b[0] for a, b in zip(rows, first, strict=True))
        rate, cpu_us, p99_ms = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {name} | {rate:,.0f} | {ratio} | {cpu_us:.0f} | {p99_ms:.1f} |", flush=True)


def _load(lua: Path, port: int, pid: int, seconds: int) -> tuple[float, float, float]:
    """Answers a second, microseconds of CPU time for each, and p99 in ms."""
    begun_s = cpu_s(pid)
    command = ["wrk", "-t1", "-c16", f"-d{seconds}s", "-s", str(lua), f"http://127.0.0.1:{port}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    took_s = cpu_s(pid) - begun_s
    p99_ms, count = re.findall(r"p99 ([\d.]+) ms, (\d+) requests, 0 errors", said)[0]
    [rate] = re.findall(r"Requests/sec:\s+([\d.]+)", said)
    return float(rate), 1e6 * took_s / int(count), float(p99_ms)


def _start(stack: contextlib.ExitStack, folder: Path, variant: str) -> tuple[int, int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"ADVISOR_HOME": str(folder / variant)}
    log = stack.enter_context((folder / f"{variant}.log").open("wb"))
    command = [sys.executable, __file__, "--serve", str(port), variant]
    process = stack.enter_context(
        subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    )
    stack.callback(process.terminate)
    for _ in range(600):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return port, process.pid
        time.sleep(0.1)
    raise SystemExit((folder / f"{variant}.log").read_text())


def _serve(variant: str, port: int) -> None:
    from advisor.settings import read_settings
    from advisor_api.http import gate, routing, sent
    from advisor_api.http.options import ServeOptions

    if variant == "read":
        sent._read_again = sent._read_again.__wrapped__
    if variant == "log":
        gate.AccessLog.note = _note
    if variant in ("fastapi", "nested"):
        sent.DirectRoute = sent.SentRoute
    if variant == "nested":
        routing.add_routes = _nested
    options = ServeOptions(
        port=port,
        requests_per_s=1e6,
        burst=10**6,
        header_s=WAIT_S,
        idle_s=WAIT_S,
        write_s=WAIT_S,
        max_connections=PLACES,
    )
    if variant in _OTHERS:
        from advisor_api.app import create_app

        _OTHERS[variant](create_app(read_settings(), options), port)
        return
    from advisor_api.server import serve

    serve(read_settings(), options, lambda _: None)


def _note(_: Any, method: str, path: bytes, status: int, took_s: float, *more: str) -> None:
    text = path.decode("ascii", "backslashreplace")
    ACCESS.info("%s %s %d %.1f ms %s %s", method, text, status, 1000 * took_s, *more)


def _nested(app: Any, routers: Any) -> None:
    from advisor_api.http.access import say_where_no_token_is_needed

    for router in routers:
        say_where_no_token_is_needed(router.routes)
        app.include_router(router)


def _uvicorn(app: Any, port: int) -> None:
    import uvicorn

    uvicorn.run(
        app, port=port, loop="uvloop", http="httptools", ws="none", access_log=False,
        log_level="error", limit_concurrency=PLACES, timeout_keep_alive=round(WAIT_S),
    )  # fmt: skip


def _granian(app: Any, port: int) -> None:
    import uvloop
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    async def run() -> None:
        # Its threads of Rust work beside the one of Python.
        heads = HTTP1Settings(header_read_timeout=round(1000 * WAIT_S), max_buffer_size=32 * 1024)
        await Server(
            app, port=port, interface=Interfaces.ASGI, http=HTTPModes.http1, http1_settings=heads,
            backpressure=PLACES, websockets=False, log_enabled=False,
        ).serve()  # fmt: skip

    uvloop.run(run())


def _hypercorn(app: Any, port: int) -> None:
    import uvloop
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind, config.accesslog, config.errorlog = [f"127.0.0.1:{port}"], None, None
    config.keep_alive_timeout = config.read_timeout = round(WAIT_S)
    uvloop.run(serve(app, config))


_OTHERS: dict[str, Callable[[Any, int], None]] = {
    "uvicorn": _uvicorn, "granian": _granian, "hypercorn": _hypercorn,
}  # fmt: skip


# What a server alone must stop.

HOST = b"Host: localhost\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"


def _silent(port: int) -> str:
    """A connection that never says anything."""
    with socket.create_connection(("127.0.0.1", port), 8) as client:
        return _closed(client)


def _idle(port: int) -> str:
    """One that has asked, and then sends half a head."""
    with socket.create_connection(("127.0.0.1", port), 8) as client:
        client.sendall(HEALTH)
        seen = b""
        while not seen.endswith(b"}"):
            seen += client.recv(65536)
        client.sendall(b"GET /hea")
        return _closed(client)


def _slow_head(port: int) -> str:
    """A head, byte by byte."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 8) as client, contextlib.suppress(OSError):
        for byte in HEALTH[:-2] + b"X-Slow: " + b"y" * 200:
            client.sendall(bytes([byte]))
            time.sleep(0.04)
    return _verdict(time.monotonic() - began)


def _unread(port: int) -> str:
    """Answers that nobody reads for 8 s: is the connection cut, or are they all kept?"""
    request = b"GET /v1/openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(4)
        client.connect(("127.0.0.1", port))
        client.sendall(request * 60)
        time.sleep(8)
        seen = b""
        with contextlib.suppress(OSError):
            while part := client.recv(1 << 20):
                seen += part
    count = seen.count(b"HTTP/1.1 200")
    return "all kept" if count == 60 else f"cut after {count}"


def _large_head(port: int) -> str:
    """A head of 128 KiB, complete."""
    head = b"GET /healthz HTTP/1.1\r\n" + HOST + b"X-A: " + b"a" * 131_072 + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 8) as client, contextlib.suppress(OSError):
        client.sendall(head)
        return client.recv(64).partition(b"\r\n")[0].decode() or "cut"
    return "cut"


def _crowd(port: int) -> str:
    """Silent connections that take all places: when is the next one answered?"""
    with contextlib.ExitStack() as stack:
        for _ in range(PLACES + 10):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 8))
        time.sleep(0.2)
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), 8) as client:
            client.sendall(HEALTH)
            with contextlib.suppress(OSError):
                status = client.recv(65536).partition(b"\r\n")[0].decode()
                return f"{status or 'cut'}, {time.monotonic() - began:.1f} s"
    return "no answer"


def _offer(port: int) -> str:
    """A body behind an offer of HTTP/2 that is a request itself: how many answers?"""
    head = b"POST /v1/recommendations HTTP/1.1\r\nContent-Type: application/json\r\n" + HOST
    head += b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(HEALTH)
    seen = b""
    with socket.create_connection(("127.0.0.1", port), 3) as client:
        client.sendall(head + HEALTH + HEALTH)
        with contextlib.suppress(OSError):
            while part := client.recv(65536):
                seen += part
    statuses = [s.decode() for s in re.findall(rb"HTTP/1.1 (\d+)", seen)]
    return "read" if statuses == ["422", "200"] else f"{', '.join(statuses)}"


def _closed(client: socket.socket) -> str:
    began = time.monotonic()
    with contextlib.suppress(OSError):
        client.recv(65536)
    return _verdict(time.monotonic() - began)


def _verdict(took_s: float) -> str:
    return f"{took_s:.1f} s" if took_s < 7 else "no"


ATTACKS: dict[str, Callable[[int], str]] = {
    "silence ends": _silent,
    "a slow head ends": _slow_head,
    "idle, then half a head ends": _idle,
    "60 large answers unread": _unread,
    "a head of 128 KiB": _large_head,
    "all places taken": _crowd,
    "body behind `Upgrade`": _offer,
}


if __name__ == "__main__":
    main()
