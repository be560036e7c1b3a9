"""How long answers of `advisor serve` take beside load, in one run beside another checkout.

    .venv/bin/python docs/measurements/serve_load.py [--beside CHECKOUT] [--rounds 5] [--seconds 6]

Starts each checkout's service on a free port with a new home, so with the bundled profiles and
model. In every round each answers beside each load in turn: nobody; 16 connections that ask for
sets of five jobs that nobody has asked; 300 pages that look at the overview each second, with the
ETag that they have; somebody who places 20,000 jobs again and again. Meanwhile five other callers,
told apart by address, ask one kind of question each, 12 times a second. Printed are p50 and p99 of
those, ms, over all rounds, how much of a core the service took (without its processes for
placements), and the statuses that the load got. The load is another process on the same cores.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Generator, Iterable
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import numpy as np

from advisor_data.bundled import GPU_MODEL, bundled_solo_points

HERE = Path(__file__).resolve().parents[2]
_COMPONENTS = (".", "profiling", "training", "models", "data", "api")
# One GPU model, and no server: some pairs with one have no split that keeps its demand.
_FOUND = (p for p in bundled_solo_points() if p.gpu_model == GPU_MODEL and not p.offered_rate)
NAMES = sorted({point.job for point in _FOUND})
QUEUE = [{"job": name, "count": 20_000 // len(NAMES), "work_s": 3600} for name in NAMES]
Question = tuple[str, dict[str, object] | None]


def advice(count: int, *, is_new: bool = True) -> Question:
    """About so many jobs, which nobody has asked, or always the same."""
    names = random.sample(NAMES, count) if is_new else NAMES[:count]
    least = random.uniform(0.0, 0.2) if is_new else 0.1
    return "/v1/recommendations", {"jobs": [{"job": name} for name in names], "min_speed": least}


def placement() -> Question:
    """Of a queue on 1,000 GPUs."""
    return "/v1/placements", {"jobs": QUEUE, "gpus": 1000, "min_speed": random.uniform(0.0, 0.2)}


PROBES: dict[str, Callable[[], Question]] = {
    "kept pair": lambda: advice(2, is_new=False),
    "kept set of 5": lambda: advice(5, is_new=False),
    "new pair": lambda: advice(2),
    "new set of 5": lambda: advice(5),
    "/readyz": lambda: ("/readyz", None),
}
LOADS: dict[str, tuple[int, float, Callable[[], Question]]] = {
    "nobody": (0, 0.0, placement),
    "16 of sets": (16, 0.0, lambda: advice(5)),
    "300 pages": (300, 1.0, lambda: ("/v1/overview", None)),
    "20,000 jobs": (1, 0.0, placement),
}
"""Connections, seconds between an answer and the next question of each, and what they ask."""


@contextlib.contextmanager
def running_service(home: Path, checkout: Path) -> Generator[tuple[str, int]]:
    """The URL and process number of a checkout's service with a new home."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "CUDA_"))}
    environment |= {"ADVISOR_HOME": str(home / "home"), "ADVISOR_RUNTIME_DIR": str(home / "run")}
    environment["PYTHONPATH"] = os.pathsep.join(str(checkout / folder) for folder in _COMPONENTS)
    command = [sys.executable, "-m", "advisor_cli", "serve", "--port", "0"]
    # One line for each request goes to a file, as where it runs as a service.
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, cwd=checkout
        ) as process,
    ):
        try:
            found = (re.search(rb"https?://\S+:\d+", line) for line in process.stdout or ())
            yield next(filter(None, found))[0].decode(), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


async def ask(
    url: str, source: str, make: Callable[[], Question], every_s: float, told: list[Any]
) -> None:
    """Ask on and on over one connection from an address: status and ms of each answer."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(
        address.hostname, address.port, local_addr=(source, 0)
    )
    await asyncio.sleep(random.random() * every_s)
    etag = ""
    while True:
        path, body = make()
        sent = "" if body is None else json.dumps(body)
        kind = f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n"
        head = f"{'POST' if sent else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\n"
        began = time.perf_counter()
        writer.write(f"{head}{kind if sent else etag}\r\n{sent}".encode())
        found = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", found)
        await reader.readexactly(int(length[1]) if length else 0)
        told.append((int(found.split()[1]), 1e3 * (time.perf_counter() - began)))
        tag = re.search(r"etag: (\S+)", found)
        etag = f"If-None-Match: {tag[1]}\r\n" if tag else ""
        await asyncio.sleep(1.0 if told[-1][0] in (429, 503) else every_s)


async def for_seconds(seconds: float, asking: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Let all ask for a while; what one raises ends it."""
    tasks = [asyncio.create_task(one) for one in (asyncio.sleep(seconds), *asking)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def load(name: str, url: str, seconds: float, statuses: Any) -> None:
    """All connections of a load, in a process of their own; says at the end how it was answered."""
    (many, every_s, make), told = LOADS[name], list[Any]()
    asyncio.run(
        for_seconds(seconds, [ask(url, "127.0.0.2", make, every_s, told) for _ in range(many)])
    )
    statuses.put(Counter(status for status, _ in told))


def probed(url: str, seconds: float) -> dict[str, list[Any]]:
    """Statuses and ms of each kind of question."""
    told = defaultdict[str, list[Any]](list)
    asking = [
        ask(url, f"127.0.1.{number}", make, 1 / 12, told[name])
        for number, (name, make) in enumerate(PROBES.items(), 1)
    ]
    asyncio.run(for_seconds(seconds, asking))
    return told


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Run all rounds, and print what came."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--beside", type=Path, help="another checkout, which is printed first")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each load")
    given, statuses = parser.parse_args(), cast("Any", multiprocessing.SimpleQueue())
    took, used = defaultdict[object, list[float]](list), Counter[object]()
    told, services = defaultdict[object, Counter[int]](Counter), list[tuple[str, int]]()
    with contextlib.ExitStack() as stack:
        for checkout in filter(None, (given.beside, HERE)):
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="advisor-load-")))
            services.append(stack.enter_context(running_service(home, checkout)))
            probed(services[-1][0], 3)
        order = itertools.product(range(given.rounds), LOADS, enumerate(services))
        for _, name, (n, (url, pid)) in order:
            wanted = (name, url, given.seconds + 1, statuses)
            (loading := multiprocessing.Process(target=load, args=wanted)).start()
            time.sleep(1)
            before_s = cpu_s(pid)
            for kind, answers in probed(url, given.seconds - 1).items():
                assert {status for status, _ in answers} == {200}, kind
                took[n, name, kind] += [ms for _, ms in answers]
            used[n, name] += (cpu_s(pid) - before_s) / (given.seconds - 1) / given.rounds
            told[n, name] += statuses.get()
            loading.join()
    for name, n in itertools.product(LOADS, range(len(services))):
        cells = [np.percentile(took[n, name, kind], (50, 99)) for kind in PROBES]
        shown = " | ".join(f"{p50:.1f} / {p99:.1f}" for p50, p99 in cells)
        print(f"| {name} | {shown} | {used[n, name]:.2f} | {dict(told[n, name])} |")


if __name__ == "__main__":
    main()
