"""How many recommendations a second `advisor serve` answers, beside an empty FastAPI endpoint.

    .venv/bin/python docs/measurements/serve_load.py [--seconds 10] [--minutes 5] [--database URL]
    .venv/bin/python docs/measurements/serve_load.py --beside CHECKOUT [--rounds 20]

Starts the service on a free port with a new home, so with the bundled profiles and model, and an
empty FastAPI endpoint in another process. Each is loaded with 1, 16 and 64 connections, the load
generator beside them on the same cores: `wrk` (Debian package wrk), whose lines are printed as they
come. Requests go over all pairs of the bundled jobs by three objectives, 1,890 bodies; every body
is asked once before, so that what is measured are warm profiles and answers. `--minutes` adds a
soak, with the memory of the service after each quarter. `--database` keeps points in PostgreSQL.

`--beside` compares with the code of another checkout, of commit bddd4a36, without `wrk`: both
services answer the same pairs and sets of five jobs, none of which was asked before, in turns of
one connection. CPU time is that of the service; brackets are 95 % intervals over rounds.
"""

import argparse
import functools
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Sequence
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from service_processes import cpu_s, memory_mib, running_endpoint, running_service

from advisor_data.bundled import GPU_MODEL, bundled_pair_points, bundled_solo_points

CONNECTIONS = (1, 16, 64)
OBJECTIVES = ("throughput-per-watt", "raw-throughput-per-watt", "max-min")
PATH = "/v1/recommendations"
MIDDLE = 16
PER_ROUND = 25

WARM = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
local turn = 0
request = function()
  turn = turn %% #bodies + 1
  return wrk.format("POST", "%s", {["Content-Type"] = "application/json"}, bodies[turn])
end
"""

DONE = """
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("p50 %.2f ms, p99 %.2f ms, %d requests, %d errors\\n",
    latency:percentile(50) / 1000, latency:percentile(99) / 1000, summary.requests,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def main() -> None:
    """Run all of it and print what came."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="advisor-load-") as folder:
        if options.beside:
            _compare(Path(folder), options)
        elif not shutil.which("wrk"):
            sys.exit("the load generator wrk is not here: apt-get install wrk")
        else:
            _measure(Path(folder), options)


def _compare(folder: Path, options: argparse.Namespace) -> None:
    for name in ("other", "this"):
        (folder / name).mkdir()
    points = (p for p in bundled_pair_points() if p.gpu_model == GPU_MODEL)
    jobs, dice = sorted({job for point in points for job in point.jobs}), random.Random(1)
    pairs = dice.sample([*itertools.combinations(jobs, 2)], (options.rounds + 1) * PER_ROUND)
    fives = [dice.sample(jobs, 5) for _ in pairs]
    with (
        running_service(folder / "other", None, options.beside.resolve()) as other,
        running_service(folder / "this", None) as this,
    ):
        print("| jobs | other, CPU ms | this, CPU ms | ratio | of a core, other, 1/s | this, 1/s |")
        print("|---|--:|--:|--:|--:|--:|")
        for asked, path in ((pairs, PATH), (fives, "/v1/sets")):
            rounds = [asked[n : n + PER_ROUND] for n in range(0, len(asked), PER_ROUND)]
            costs = np.array(
                [(_cost(own, path, *other), _cost(own, PATH, *this)) for own in rounds]
            )
            costs = 1e3 * costs[1:] / PER_ROUND  # the first round reads profiles
            sampled = np.random.default_rng(1).choice(costs, (2000, len(costs))).mean(axis=1)
            low, high = np.quantile(sampled[:, 1] / sampled[:, 0], [0.025, 0.975])
            before, now = costs.mean(axis=0)
            ratio = f"{now / before:.3f} [{low:.3f} {high:.3f}]"
            per_s = f"{1e3 / before:.0f} | {1e3 / now:.0f}"
            print(f"| {len(asked[0])} | {before:.1f} | {now:.1f} | {ratio} | {per_s} |")


def _cost(asked: Sequence[Sequence[str]], path: str, url: str, pid: int) -> float:
    """CPU time of the service, s."""
    kept, begun_s = HTTPConnection(url.rpartition("/")[2]), cpu_s(pid)
    for jobs in asked:
        body = json.dumps({"jobs": [{"job": job} for job in jobs], "gpu_model": GPU_MODEL})
        kept.request("POST", path, body, {"Content-Type": "application/json"})
        kept.getresponse().read()
    kept.close()
    return cpu_s(pid) - begun_s


def _script(kept: Path, url: str) -> str:
    """What loads a service: bodies that it keeps answers to, each asked once before."""
    bodies = make_bodies()
    kept.write_text("\n".join(bodies) + "\n")
    _warm_up(url, bodies)
    return WARM % (kept, PATH) + DONE


def _measure(folder: Path, options: argparse.Namespace) -> None:
    bodies = make_bodies()
    with running_endpoint() as empty, running_service(folder, options.database) as (url, pid):
        warm = _script(folder / "bodies", url)
        size = len(ask(url + PATH, bodies[0]))
        where = "PostgreSQL" if options.database else "SQLite"
        print(f"{os.cpu_count()} cores, {where}, {len(bodies)} bodies, answers of {size} bytes")
        print(f"memory before: {memory_mib(pid):.0f} MiB")
        load = functools.partial(_load, folder / "load.lua")
        for n in CONNECTIONS:
            load(f"empty endpoint, {n} connections", empty, DONE, n, options.seconds)
            load(f"recommendations, {n} connections", url, warm, n, options.seconds)
        print(f"memory after: {memory_mib(pid):.0f} MiB")
        for quarter in range(1, 5 if options.minutes else 1):
            load(f"soak, quarter {quarter}", url, warm, MIDDLE, options.minutes * 15)
            print(f"memory: {memory_mib(pid):.0f} MiB")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=10, help="of each measurement")
    parser.add_argument("--minutes", type=int, default=0, help="of a soak afterwards")
    parser.add_argument("--beside", type=Path, help="a checkout to compare with")
    parser.add_argument("--rounds", type=int, default=20, help="of 25 questions, to compare")
    parser.add_argument("--database", help="URL of a database; else SQLite in the new home")
    return parser.parse_args()


def make_bodies() -> list[str]:
    """Requests for all pairs of bundled jobs, by three objectives."""
    # One GPU model, and no server: some pairs with one have no split that keeps its demand.
    found = (p for p in bundled_solo_points() if p.gpu_model == GPU_MODEL)
    names = sorted({point.job for point in found if point.offered_rate is None})
    pairs = itertools.combinations_with_replacement(names, 2)
    return [
        json.dumps(
            {"jobs": [{"job": job} for job in pair], "objective": objective}, separators=(",", ":")
        )
        for pair in pairs
        for objective in OBJECTIVES
    ]


def _warm_up(url: str, bodies: Iterable[str]) -> None:
    began = time.monotonic()
    count = sum(1 for body in bodies if ask(url + PATH, body))
    print(f"first answers: {count} in {time.monotonic() - began:.1f} s, one after the other")


def ask(url: str, body: str) -> bytes:
    """The answer to one of them."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def _load(lua: Path, what: str, url: str, script: str, connections: int, seconds: int) -> None:
    """Load with one of `wrk`'s scripts, and print its lines that count."""
    print(f"{what}:", flush=True)
    for line in _lines(lua, url, script, connections, seconds):
        if line.startswith(("Requests/sec", "p50", "  Socket errors", "  Non-2xx")):
            print(f"    {line.strip()}", flush=True)


def _lines(lua: Path, url: str, script: str, connections: int, seconds: int) -> list[str]:
    lua.write_text(script)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(lua), url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    main()
