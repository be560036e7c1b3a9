"""Does the service hold under mixed load, beside a placement of 20,000 jobs, and after its start?

    .venv/bin/python docs/measurements/mixed_load.py [--seconds 60] [--rounds 1]
        [--beside CHECKOUT]

Starts `advisor serve` on a free port with a new home, so with the bundled profiles and model, and
prints a line of a table for each part:

- first seconds: three of them, of advice, after `/readyz` has said so for the first time;
- alone: advice that was asked for before;
- mixed: 40 requests a second, a third of them advice that was asked for before (what was kept of it
  goes with each write, and is worked out anew), without and beside placements of 20,000 jobs, one
  after the other.

Then come questions that were never asked (limits that never come again) from 16 connections of
`wrk` (Debian package wrk) to that service, and to it and a second one with a home of its own.

Requests are sent at times that were fixed before, whether others were answered or not, and their
latency counts from that time. They come from this one process; its CPU time for each is printed,
and by how much it sent them too late, which is part of their latency. CPU time of the service is
of its process and of those that it has started, memory of each of them.

`--beside` does the same to the code of another checkout, in turns. The load average at the end of
each line says how much others took of the cores.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import uvloop
from serve_load import MIDDLE, make_bodies, rate_and_cost, scripts
from service_processes import HERE, cpu_s, family, memory_mib, running_service

from advisor.core.observations import Observation, ObservedPart
from advisor.formats.moments import now
from advisor.formats.rows import to_row
from advisor.formats.wire import write
from advisor_data.bundled import GPU_MODEL, bundled_solo_points
from advisor_data.state import open_service_state

PER_S = 40
FIRST_S = 3.0
NEVER_ASKED_S = 10
WARM_QUESTIONS = 100
QUEUE, PLACED_TYPES, GPUS = 20_000, 12, 400
ADVICE, WARM, OTHERS = "/v1/recommendations", "warm advice", "all others"

NAMES = sorted({job["job"] for body in make_bodies() for job in json.loads(body)["jobs"]})

Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Sent:
    """A request: its kind, and its bytes."""

    kind: str
    head: bytes


@dataclass(slots=True)
class Client:
    """Sends to one service at fixed times, on as many connections as it takes.

    Attributes:
        took_ms: By kind, from the time at which a request was to be sent until its answer was here.
        late_ms: By how much requests were sent too late.
    """

    port: int
    took_ms: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    late_ms: list[float] = field(default_factory=list[float])
    faults: int = 0
    _idle: list[Connection] = field(default_factory=list[Connection])

    async def at_times(self, requests: Sequence[Sent]) -> None:
        """Send them, so many a second, and wait for the last."""
        began, tasks = time.perf_counter() + 0.1, list[asyncio.Task[None]]()
        for number, sent in enumerate(requests):
            due = began + number / PER_S
            await asyncio.sleep(due - time.perf_counter())
            tasks.append(asyncio.create_task(self._timed(sent, due)))
        await asyncio.gather(*tasks)

    async def _timed(self, sent: Sent, due: float) -> None:
        self.late_ms.append(1e3 * (time.perf_counter() - due))
        status = await self.ask(sent)
        self.took_ms.setdefault(sent.kind, []).append(1e3 * (time.perf_counter() - due))
        self.faults += status >= 500

    async def ask(self, sent: Sent) -> int:
        """The status of its answer, all of which has come."""
        idle = self._idle.pop() if self._idle else await asyncio.open_connection(port=self.port)
        reader, writer = idle
        writer.write(sent.head)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        left = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while left:
            left -= len(await reader.read(min(left, 65_536)))
        self._idle.append(idle)
        return int(head.split(maxsplit=2)[1])


def main() -> None:
    """Measure, and print a table."""
    options = _options()
    if not shutil.which("wrk"):
        sys.exit("the load generator wrk is not here: apt-get install wrk")
    checkouts = {"other": options.beside.resolve()} if options.beside else {}
    checkouts["this"] = HERE
    print(f"{os.cpu_count()} cores; latencies in ms")
    print("| code | part | requests | p50 | p99 | worst | late p99 | load |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for _ in range(options.rounds):
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory(prefix="advisor-mixed-") as folder:
                _measure(Path(folder), name, checkout, options.seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="of each part")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--beside", type=Path, help="a checkout to compare with")
    return parser.parse_args()


def _measure(folder: Path, name: str, checkout: Path, seconds: int) -> None:
    first, second = folder / "first", folder / "second"
    tokens = [_token(home / "home") for home in (first, second)]
    began = time.perf_counter()
    with running_service(first, None, checkout) as one:
        listens_s = time.perf_counter() - began
        port, pid = int(urlsplit(one[0]).port or 0), one[1]
        uvloop.run(_parts(port, pid, tokens[0], name, seconds, listens_s))
        _never_asked(f"{name}, one service", {first: one})
        with running_service(second, None, checkout) as other:
            _never_asked(f"{name}, two services", {first: one, second: other})


def _never_asked(name: str, services: Mapping[Path, tuple[str, int]]) -> None:
    """Load all at once, each from a `wrk` of its own."""
    texts = [scripts(folder / "bodies", url)[1] for folder, (url, _) in services.items()]
    with ThreadPoolExecutor() as pool:
        loads = [
            pool.submit(rate_and_cost, folder / "load.lua", MIDDLE, NEVER_ASKED_S, text, *at)
            for (folder, at), text in zip(services.items(), texts, strict=True)
        ]
    found = [load.result() for load in loads]
    each_ms = statistics.mean(cost_us for _, cost_us in found) / 1e3
    memory = ", ".join(_memory(pid) for _, pid in services.values())
    print(f"{name}: {sum(per_s for per_s, _ in found):,.0f} never asked a second, "
          f"{each_ms:.2f} ms of CPU each, {memory}, load {_load()}", flush=True)  # fmt: skip


async def _parts(
    port: int, pid: int, token: str, name: str, seconds: int, listens_s: float
) -> None:
    chance = random.Random(7)
    warm = [_request(ADVICE, b, kind=WARM) for b in chance.sample(make_bodies(), WARM_QUESTIONS)]
    began = time.perf_counter()
    while await Client(port).ask(_request("/readyz")) != 200:
        await asyncio.sleep(0.01)
    print(f"{name}: listens after {listens_s:.2f} s, ready after "
          f"{time.perf_counter() - began:.2f} s more", flush=True)  # fmt: skip
    first = chance.choices(warm, k=round(FIRST_S * PER_S))
    await _part(name, "first seconds", port, first)
    for one in warm:
        await Client(port).ask(one)
    count = seconds * PER_S
    await _part(name, "alone", port, chance.choices(warm, k=count // 2))
    await _part(name, "mixed", port, _mixed(chance, warm, token, count))
    mixed, took_s = _mixed(chance, warm, token, count), list[float]()
    used_s, own_s = cpu_s(pid), time.process_time()
    placing = asyncio.create_task(_placing(port, took_s))
    await _part(name, "beside placements", port, mixed)
    if not placing.cancel():
        placing.result()  # says why it ended
    own_ms = 1e3 * (time.process_time() - own_s) / count
    print(f"{name}: {len(took_s)} placements, {max(took_s, default=0):.1f} s at most; {own_ms:.2f} "
          f"ms of CPU here for each request, {cpu_s(pid) - used_s:.0f} s in the service, "
          f"{_memory(pid)}", flush=True)  # fmt: skip


async def _part(name: str, part: str, port: int, requests: Sequence[Sent]) -> None:
    client = Client(port)
    await client.at_times(requests)
    late = _percentile(client.late_ms, 99)
    for kind, took_ms in sorted(client.took_ms.items(), reverse=True):
        print(f"| {name} | {part}: {kind} | {len(took_ms)} | {statistics.median(took_ms):.1f} "
              f"| {_percentile(took_ms, 99):.1f} | {max(took_ms):.1f} | {late:.1f} | {_load()} |",
              flush=True)  # fmt: skip
    if client.faults:
        print(f"{name}: {client.faults} requests failed")


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _memory(pid: int) -> str:
    return f"{' + '.join(f'{memory_mib(one):.0f}' for one in family(pid))} MiB"


async def _placing(port: int, took_s: list[float]) -> None:
    """One placement after the other until cancelled, and how long each took."""
    each = QUEUE // PLACED_TYPES + 1
    jobs = [{"job": job, "count": each, "work_s": 3600} for job in NAMES[:PLACED_TYPES]]
    jobs[-1]["count"] = QUEUE - each * (PLACED_TYPES - 1)
    sent = _request("/v1/placements", json.dumps({"jobs": jobs, "gpus": GPUS}))
    client = Client(port)
    while True:
        began = time.perf_counter()
        if (status := await client.ask(sent)) != 200:
            sys.exit(f"a placement was answered {status}")
        took_s.append(time.perf_counter() - began)


def _mixed(chance: random.Random, warm: Sequence[Sent], token: str, count: int) -> list[Sent]:
    """As schedulers, people and pages ask; shares in percent."""
    kinds: dict[Callable[[], Sent], int] = {
        lambda: chance.choice(warm): 33,
        lambda: _advice(chance.choices(NAMES, k=2), min_speed=chance.uniform(0.2, 0.5)): 22,
        lambda: _advice(chance.choices(NAMES, k=2), fine=True, components=True): 2,
        lambda: _request("/v1/jobs?limit=100"): 7,
        lambda: _request(f"/v1/profiles/{chance.choice(NAMES)}?limit=20"): 7,
        lambda: _request("/v1/observations?limit=20"): 7,
        lambda: _point(chance, token): 3,
        lambda: _observation(chance, token): 3,
        lambda: _request(ADVICE, '{"jobs": 1}'): 6,
        lambda: _request("/v1/jobs", token="advisor_wrong"): 5,
        lambda: _request("/metrics"): 5,
    }
    return [make() for make in chance.choices(list(kinds), list(kinds.values()), k=count)]


def _advice(names: Sequence[str], **fields: Any) -> Sent:
    return _request(ADVICE, json.dumps({"jobs": [{"job": n} for n in names], **fields}))


def _point(chance: random.Random, token: str) -> Sent:
    """A new point of a job that nobody asks about."""
    row = {k: v for k, v in to_row(bundled_solo_points()[0]).items() if v is not None}
    row |= {"job": "written", "run": f"run-{chance.getrandbits(60):x}", "flags": []}
    return _request("/v1/points", json.dumps({"points": [row]}), token)


def _observation(chance: random.Random, token: str) -> Sent:
    """What a launch of such jobs did."""
    seen = Observation(
        launch_id=f"launch-{chance.getrandbits(60):x}",
        parts=tuple(ObservedPart(job=job, share_percent=50.0, rate=9.0) for job in ("x", "y")),
        gpu_model=GPU_MODEL,
        gpu_uuid="GPU-1",
        power_w=500.0,
        overlap_s=600.0,
        state="finished",
        started_at=now(),
    )
    return _request("/v1/observations", write({"observations": [seen]}), token)


def _request(path: str, body: str | None = None, token: str = "", kind: str = OTHERS) -> Sent:
    """`POST` where there is a body, else `GET`."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: localhost"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return Sent(kind, "\r\n".join((*lines, "", body or "")).encode())


def _token(home: Path) -> str:
    home.mkdir(mode=0o700, parents=True)
    with open_service_state(f"sqlite:///{home / 'advisor.db'}", home) as state:
        return state.make_token("measure", ("admin",))[1]


if __name__ == "__main__":
    main()
