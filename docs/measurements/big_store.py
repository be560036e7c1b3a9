"""How the service does on a large store: advice, jobs and observations, start, memory, a long mix.

    .venv/bin/python docs/measurements/big_store.py [--postgres] [--scale 1] [--requests 200000]
        [--times 200] [--json]

Fills a new store with 5,000 profiles, a million points (half alone, half in pairs) and a million
observations by bulk inserts, all times `--scale`, and starts `advisor serve` on it. Advice is asked
for random pairs, one after the other: `advice` has jobs that were not asked about before, so both
profiles are read, `advice again` the same pairs with other limits, `advice kept` the same requests.
`advice beside a write` comes right after a point was stored, so what was kept is read again. Then
come the requests of the mix, by 8 clients, with the memory and descriptors of the service after
each tenth of them. `--postgres` starts a server of its own (Debian package postgresql).
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from filled_store import OBSERVATIONS, PAIR_POINTS, SOLO_POINTS, fill, postgres
from service_processes import memory_mib

from advisor.formats.rows import to_row
from advisor_data.bundled import bundled_solo_points
from advisor_data.state import open_service_state

CLIENTS = 8
TIMES = 200

Asks = Iterator[tuple[str, str, Any]]
"""Method, path and body of one request after the other."""


def main() -> None:
    """Fill, measure, and print a table."""
    options = _options()
    say = _nothing if options.json else print
    with _folder() as folder, contextlib.ExitStack() as stack:
        url = f"sqlite:///{folder / 'home' / 'advisor.db'}"
        if options.postgres:
            url = stack.enter_context(postgres(folder / "pg"))
        (folder / "home").mkdir()
        began = time.monotonic()
        names = fill(url, options.scale, say)
        filled_s = time.monotonic() - began
        found = _measure(folder, url, names, options, say)
    found = {
        "store": "PostgreSQL" if options.postgres else "SQLite",
        "profiles": len(names),
        "points": round((SOLO_POINTS + PAIR_POINTS) * options.scale),
        "observations": round(OBSERVATIONS * options.scale),
        "filled_s": round(filled_s, 1),
        **found,
    }
    if options.json:
        print(json.dumps(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL server of its own")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the million")
    parser.add_argument("--requests", type=int, default=200_000, help="of the mix")
    parser.add_argument("--times", type=int, default=TIMES, help="each kind of request alone")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def _nothing(*_: object, **__: object) -> None:
    pass


# the service


@dataclass(frozen=True, slots=True)
class Service:
    """A running service.

    Attributes:
        port: On loopback.
        pid: Of its process.
        token: May do everything.
    """

    port: int
    pid: int
    token: str

    def ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
    ) -> bytes:
        """The answer, which is a success."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 422) or (answer.status == 422 and b"no-split" not in text):
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return text

    def connect(self) -> http.client.HTTPConnection:
        """A connection that is kept."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def files(self) -> int:
        """Open descriptors."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


def _measure(
    folder: Path, url: str, names: list[str], options: argparse.Namespace, say: Callable[..., None]
) -> dict[str, Any]:
    with _service(folder, url) as (service, start_s):
        say(f"ready after {start_s:.1f} s, {memory_mib(service.pid):.0f} MiB")
        questions = _questions(service, names)
        rows = {name: _times(service, asks, options.times) for name, asks in questions}
        for name, row in rows.items():
            say(f"{name:28} p50 {row['p50_ms']:8.1f} ms  p99 {row['p99_ms']:8.1f} ms")
        say(f"{memory_mib(service.pid):.0f} MiB, {service.files()} descriptors")
        mix = _mix(service, names, options.requests, say)
        return {
            "start_s": round(start_s, 2),
            "latency": rows,
            "mix": mix,
        }


def _times(service: Service, asks: Asks, times: int) -> dict[str, float]:
    times_ms: list[float] = []
    with contextlib.closing(service.connect()) as connection:
        for method, path, body in itertools.islice(asks, times):
            if method == "PUT":  # a write that the next request comes after
                service.ask(connection, "POST", path, body)
                continue
            began = time.perf_counter()
            service.ask(connection, method, path, body)
            times_ms.append(1000 * (time.perf_counter() - began))
    cuts = statistics.quantiles(times_ms, n=100)
    return {"p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2)}


def _questions(service: Service, names: list[str]) -> Iterator[tuple[str, Asks]]:
    chance = random.Random(3)
    once = random.Random(4).sample(names, min(len(names), 2 * TIMES))
    pairs = [list(pair) for pair in zip(once[::2], once[1::2], strict=False)]
    ask = "/v1/recommendations"
    yield "advice", (("POST", ask, {"jobs": _jobs(pair)}) for pair in pairs)
    low = {"min_speed": 0.3}
    again = ({"jobs": _jobs(pair), **low} for pair in pairs)
    yield "advice again", (("POST", ask, body) for body in again)
    yield "advice kept", (("POST", ask, {"jobs": _jobs(pair)}) for pair in pairs)
    yield "advice beside a write", _beside_writes(pairs)
    yield "jobs, 1000 names", itertools.repeat(("GET", "/v1/jobs", None))
    after = (f"/v1/jobs?limit=100&after={chance.choice(names)}" for _ in itertools.count())
    yield "jobs, 100 names", (("GET", path, None) for path in after)
    yield "observations, 10", itertools.repeat(("GET", "/v1/observations?limit=10", None))
    yield "observations, 1000", itertools.repeat(("GET", "/v1/observations?limit=1000", None))
    of_job = (f"/v1/observations?limit=100&job={chance.choice(names)}" for _ in itertools.count())
    yield "observations of a job, 100", (("GET", path, None) for path in of_job)
    profile = (f"/v1/profiles/{chance.choice(names)}?limit=100" for _ in itertools.count())
    yield "profile, 100 points", (("GET", path, None) for path in profile)
    yield "observations, all by cursor", _by_cursor(service)


def _jobs(names: list[str]) -> list[dict[str, str]]:
    return [{"job": name} for name in names]


def _beside_writes(pairs: list[list[str]]) -> Asks:
    for number, pair in enumerate(pairs):
        yield "PUT", "/v1/points", {"points": [_point(number)]}
        yield "POST", "/v1/recommendations", {"jobs": _jobs(pair), "objective": "throughput"}


def _by_cursor(service: Service) -> Asks:
    """From the newest on, each page where the one before ended."""
    path = "/v1/observations?limit=1000"
    with contextlib.closing(service.connect()) as connection:
        cursor = ""
        while True:
            yield "GET", f"{path}{cursor}", None
            found = json.loads(service.ask(connection, "GET", f"{path}{cursor}"))
            cursor = f"&cursor={found['next']}" if found["next"] else ""


def _point(number: int) -> dict[str, Any]:
    first = bundled_solo_points()[0]
    started_at = (datetime.now(UTC) + timedelta(microseconds=number)).isoformat()
    point = replace(first, job="written", run="write", started_at=started_at)
    row = {name: value for name, value in to_row(point).items() if value is not None}
    return {**row, "flags": []}


def _mix(
    service: Service, names: list[str], count: int, say: Callable[..., None]
) -> dict[str, Any]:
    """Memory and descriptors after each tenth of the requests; requests a second of all."""
    tenths: list[dict[str, float]] = []
    began = time.monotonic()
    for tenth in range(10):
        workers = [
            threading.Thread(target=_work, args=(service, names, count // 10 // CLIENTS, tenth, n))
            for n in range(CLIENTS)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        tenths.append({"memory_mib": round(memory_mib(service.pid)), "files": service.files()})
        say(f"after {(tenth + 1) * count // 10} requests: {tenths[-1]}", flush=True)
    per_s = count / (time.monotonic() - began)
    say(f"{per_s:.0f} requests a second")
    return {"requests": count, "per_s": round(per_s, 1), "tenths": tenths}


def _work(service: Service, names: list[str], count: int, tenth: int, worker: int) -> None:
    chance = random.Random(100 * tenth + worker)
    with contextlib.closing(service.connect()) as connection:
        for _ in range(count):
            service.ask(connection, *_any(chance, names))


def _any(chance: random.Random, names: list[str]) -> tuple[str, str, Any]:
    kind, name = chance.random(), chance.choice(names)
    if kind < 0.93:
        # Of some thousand jobs most questions are about the same ones.
        jobs = chance.choices(names[:20], k=2)
        return "POST", "/v1/recommendations", {"jobs": _jobs(jobs)}
    if kind < 0.94:
        return "POST", "/v1/recommendations", {"jobs": _jobs([name, chance.choice(names)])}
    if kind < 0.96:
        return "GET", f"/v1/profiles/{name}?limit=20", None
    if kind < 0.98:
        return "GET", f"/v1/observations?limit=20&job={name}", None
    if kind < 0.9999:
        return "GET", f"/v1/jobs?limit=20&after={name}", None
    return "POST", "/v1/points", {"points": [_point(chance.randrange(10**6))]}


@contextlib.contextmanager
def _service(folder: Path, url: str) -> Generator[tuple[Service, float]]:
    home = folder / "home"
    with open_service_state(url, home) as state:
        token = state.make_token("measure", ("admin",))[1]
    environment = {**os.environ, "ADVISOR_HOME": str(home), "ADVISOR_DATABASE_URL": url}
    command = [sys.executable, "-m", "advisor_cli", "serve", "--port", "0"]
    command += ["--requests-per-s", "1000000", "--log-level", "warning"]
    began = time.monotonic()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        try:
            assert process.stdout is not None
            listens = re.search(r"listens on \S+:(\d+)", process.stdout.readline())
            assert listens, "the service did not start"
            service = Service(int(listens[1]), process.pid, token)
            with contextlib.closing(service.connect()) as connection:
                service.ask(connection, "GET", "/readyz")
            yield service, time.monotonic() - began
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def _folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="advisor-big-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server of PostgreSQL is another user
        yield folder


if __name__ == "__main__":
    main()
