"""How many recommendations a second `advisor serve` answers, beside an empty FastAPI endpoint.

    .venv/bin/python docs/measurements/serve_load.py [--seconds 10] [--minutes 5] [--database URL]

Starts the service on a free port with a new home, so with the bundled profiles and model, and an
empty FastAPI endpoint in another process. Each is loaded with 1, 16 and 64 connections, the load
generator beside them on the same cores: `wrk` (Debian package wrk), whose lines are printed as they
come. Requests go over all pairs of the bundled jobs by three objectives, 1,890 bodies; every body
is asked once before, so that what is measured are warm profiles and answers. `--minutes` adds a
soak, with the memory of the service after each quarter. `--database` keeps points in PostgreSQL.
"""

import argparse
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from service_processes import memory_mib, running_endpoint, running_service

from advisor_data.bundled import GPU_MODEL, bundled_solo_points

CONNECTIONS = (1, 16, 64)
OBJECTIVES = ("throughput-per-watt", "raw-throughput-per-watt", "max-min")
PATH = "/v1/recommendations"
MIDDLE = 16

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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=10, help="of each measurement")
    parser.add_argument("--minutes", type=int, default=0, help="of a soak afterwards")
    parser.add_argument("--database", help="URL of a database; else SQLite in the new home")
    if not shutil.which("wrk"):
        sys.exit("the load generator wrk is not here: apt-get install wrk")
    with tempfile.TemporaryDirectory(prefix="advisor-load-") as folder:
        _measure(Path(folder), parser.parse_args())


def _measure(folder: Path, options: argparse.Namespace) -> None:
    bodies = make_bodies()
    with running_endpoint() as empty, running_service(folder, options.database) as (url, pid):
        kept, began = folder / "bodies", time.monotonic()
        kept.write_text("\n".join(bodies) + "\n")
        count = sum(1 for body in bodies if ask(url + PATH, body))
        print(f"first answers: {count} in {time.monotonic() - began:.1f} s, one after the other")
        warm = WARM % (kept, PATH) + DONE
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


def ask(url: str, body: str) -> bytes:
    """The answer to one of them."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def _load(lua: Path, what: str, url: str, script: str, connections: int, seconds: int) -> None:
    """Load with one of `wrk`'s scripts, and print its lines that count."""
    lua.write_text(script)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(lua), url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"{what}:", flush=True)
    for line in done.stdout.splitlines():
        if line.startswith(("Requests/sec", "p50", "  Socket errors", "  Non-2xx")):
            print(f"    {line.strip()}", flush=True)


if __name__ == "__main__":
    main()
