"""How long the service stands still while it reads bodies with very many faults.

    .venv/bin/python docs/measurements/body_cost.py [--advisor COMMAND]

Starts `advisor serve` with a new home, sends each body five times, and meanwhile asks for /healthz
again and again over one connection: the longest wait is about the longest time that the event loop
did nothing else. `--advisor` measures another checkout: the interpreter of its environment.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

TIMES = 5


def main() -> None:
    """Measure all bodies, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--advisor", default=sys.executable, help="interpreter that has advisor")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with _service(options.advisor) as (port, token):
        _wait_ms(port, token, "/v1/recommendations", b"{}")
        rows = [
            {"bytes": len(body), "body": name, "status": status, "wait_ms": round(wait_ms, 1)}
            for most in (64 * 1024 - 1, 1024 * 1024 - 1)
            for name, path, body in _bodies(most)
            for status, wait_ms in [_wait_ms(port, token, path, body)]
        ]
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['bytes']:8} {row['body']:40} {row['status']}  {row['wait_ms']:8.1f} ms")


def _bodies(most: int) -> Generator[tuple[str, str, bytes]]:
    """Bodies of that many bytes at most, each with its name and path."""
    ask, place, batch, points = (
        "/v1/recommendations",
        "/v1/placements",
        "/v1/recommendations/batch",
        "/v1/points",
    )
    speeds = '{"jobs":[{"job":"gemm"},{"job":"triad"}],"min_speed":'
    for name, path, start, make, end in (
        ("placement, unknown fields of a job", place, '{"gpus":1,"jobs":[', _keys, "]}"),
        ("placement, names are numbers", place, '{"gpus":1,"jobs":[', _zeros, "]}"),
        ("recommendation, speeds are text", ask, speeds, _texts, "}"),
        ("recommendation, unknown fields", ask, "", _keys, ""),
        ("batch, a request of unknown fields", batch, '{"requests":[', _keys, "]}"),
        ("batch, requests with faults", batch, '{"requests":[', _requests, "]}"),
        ("points, a row of unknown columns", points, '{"points":[', _keys, "]}"),
        ("points, rows of unknown columns", points, '{"points":[', _rows, "]}"),
    ):
        yield name, path, _full(start, make, end, most)


def _requests(count: int) -> str:
    return ",".join(f'{{"jobs":[{{"job":"gemm"}},1],"u{n}":0}}' for n in range(min(count, 1000)))


def _rows(count: int) -> str:
    row = _keys(90)
    return ",".join([row] * min(count, 1000))


def _keys(count: int) -> str:
    return "{" + ",".join(f'"k{n}":0' for n in range(count)) + "}"


def _texts(count: int) -> str:
    return "{" + ",".join(f'"k{n}":"x"' for n in range(count)) + "}"


def _zeros(count: int) -> str:
    return ",".join("0" * count)


def _full(start: str, make: Callable[[int], str], end: str, most: int) -> bytes:
    """As many of them as a body of `most` bytes holds."""
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        fits = len(start) + len(make(middle)) + len(end) <= most
        low, high = (middle, high) if fits else (low, middle)
    return (start + make(low) + end).encode()


def _wait_ms(port: int, token: str, path: str, body: bytes) -> tuple[int, float]:
    """Status of the answer, and the longest wait of another client, ms."""
    statuses: list[int] = []
    sender = threading.Thread(
        target=lambda: statuses.extend(_send(port, token, path, body) for _ in range(TIMES))
    )
    longest_s = 0.0
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as other:
        sender.start()
        while sender.is_alive():
            began = time.perf_counter()
            other.request("GET", "/healthz")
            other.getresponse().read()
            longest_s = max(longest_s, time.perf_counter() - began)
    return statuses[-1], 1000 * longest_s


def _send(port: int, token: str, path: str, body: bytes) -> int:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as sender:
        sender.request("POST", path, body, headers)
        answer = sender.getresponse()
        answer.read()
        return answer.status


@contextmanager
def _service(python: str) -> Generator[tuple[int, str]]:
    with tempfile.TemporaryDirectory(prefix="advisor-bodies-") as folder:
        yield from _serving(python, Path(folder))


def _serving(python: str, folder: Path) -> Generator[tuple[int, str]]:
    environment = {**os.environ, "ADVISOR_HOME": str(folder / "home")}
    advisor = [python, "-m", "advisor_cli"]
    token = subprocess.run(
        [*advisor, "tokens", "create", "bodies", "--scope", "write", "--json"],
        env=environment,
        check=True,
        capture_output=True,
        cwd=folder,
    )
    with subprocess.Popen(
        [*advisor, "serve", "--port", "0", "--log-level", "error"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"listens on \S+:(\d+)", process.stdout.readline())
            assert found, "the service did not start"
            yield int(found[1]), json.loads(token.stdout)["secret"]
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
