"""An audit of 4,000 GPUs for a week: time, memory, and what the server is asked.

    .venv/bin/python docs/measurements/audit/many.py --gpus 4000 --days 7

The server is a process of its own on loopback that makes the samples of a page from a formula: jobs
of recorded profiles one after the other on each GPU, with a sample a minute and the ten metrics of
dcgm-exporter's default counters that an audit reads.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import requests
from truth import run_audit
from week import CHANNELS, MODEL, means, profiles

from advisor_audit.sources.prometheus import Prometheus
from advisor_audit.sources.series import METRICS, POWER

BEGIN_S, STEP_S = 1_790_000_400.0, 60.0
OF_TEAM, NOISES, GAP = 80, 64, 15
_QUERY = re.compile(r'\w+_over_time\((\w+)\{UUID=~"\((.*)\)\(::\.\*\)\?"\}\[60s\]\)')


class Cluster:
    """Series by formula; all that is kept are texts of values."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        random = np.random.default_rng(0)
        known = profiles()
        self.kinds = sorted(known)
        names = {channel: next(iter(METRICS[channel].items())) for channel in CHANNELS}
        names[POWER] = ("DCGM_FI_DEV_POWER_USAGE", 1.0)
        names.pop("sm_active_percent")
        self.texts: dict[str, dict[str, list[str]]] = {}
        for channel, (name, scale) in names.items():
            self.texts[name] = {"": ["0"] * NOISES}
            for kind in self.kinds:
                value = means(known[kind]).get(channel, 0.0) / scale
                noisy = value * random.normal(1, 0.03, NOISES)
                self.texts[name][kind] = [f"{v:.6g}" for v in noisy]

    def range(self, name: str, gpus: Sequence[int], start_s: float, end_s: float) -> bytes:
        """The answer to a range query."""
        first, count = round((start_s - BEGIN_S) / STEP_S), round((end_s - start_s) / STEP_S) + 1
        times = [f'[{start_s + STEP_S * n:.0f},"' for n in range(count)]
        result = [
            f'{{"metric":{json.dumps(labels)},"values":['
            + ",".join(f'{times[n - first]}{values[n % NOISES]}"]' for n in range(max(a, first), b))
            + "]}"
            for gpu in gpus
            for labels, values, a, b in self._parts(name, gpu, first, first + count)
        ]
        head = '{"status":"success","data":{"resultType":"matrix","result":['
        return (head + ",".join(result) + "]}}").encode()

    def _parts(self, name: str, gpu: int, first: int, last: int) -> list[tuple[Any, ...]]:
        """Labels, values and minutes of each job of a GPU in a page, and of the time between."""
        length = 60 + 60 * (gpu * 7919 % 97)
        found, job = [], (first + gpu % 60) // (length + GAP)
        while (begin := job * (length + GAP) - gpu % 60) < last:
            kind = self.kinds[(gpu // OF_TEAM * 31 + gpu % 5 + job * 17) % len(self.kinds)]
            ends = (begin + length, begin + length + GAP)
            card = {"UUID": f"GPU-{gpu}", "modelName": MODEL, "Hostname": f"node{gpu // 8}"}
            named = {
                **card,
                "namespace": f"team-{gpu // OF_TEAM}",
                "pod": f"{kind.replace('-', '')}-{gpu}-{job}",
                "container": "main",
            }
            for labels, of, a, b in ((named, kind, begin, ends[0]), (card, "", *ends)):
                if max(a, first) < min(b, last):
                    found.append((labels, self.texts[name][of], a, min(b, last)))
            job += 1
        return found

    def answer(self, path: str, given: Mapping[str, Sequence[str]]) -> bytes:
        """What Prometheus answers."""
        if path.endswith("query_range"):
            match = _QUERY.fullmatch(given["query"][0])
            assert match, given["query"][0]
            gpus = [int(one.rsplit("-", 1)[1]) for one in match[2].split("|")]
            return self.range(match[1], gpus, float(given["start"][0]), float(given["end"][0]))
        values = {
            "/api/v1/label/__name__/values": sorted(self.texts),
            "/api/v1/labels": ["UUID", "namespace", "pod"],
            "/api/v1/label/UUID/values": [f"GPU-{gpu}" for gpu in range(self.gpus)],
        }
        return json.dumps({"status": "success", "data": values[path]}).encode()


def serve(gpus: int) -> None:
    """Answer until killed; the port is printed."""
    cluster = Cluster(gpus)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._send(cluster.answer(parts.path, parse_qs(parts.query)))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._send(cluster.answer(self.path, parse_qs(body)))

        def _send(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


def main() -> None:
    """Print what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gpus", type=int, default=4000)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--serve", action="store_true")
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.gpus)
        return
    command = [sys.executable, __file__, "--serve", "--gpus", str(asked.gpus)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        assert server.stdout is not None
        try:
            _audit(f"http://127.0.0.1:{int(server.stdout.readline())}", asked.days, Path(folder))
        finally:
            server.kill()


def _audit(url: str, days: float, folder: Path) -> None:
    began_s = time.perf_counter()
    end_s = BEGIN_S + days * 86400
    source = Prometheus(url, requests.Session(), begin_s=BEGIN_S, end_s=end_s, step_s=STEP_S)
    said = run_audit(source, folder)
    pages = [path.stat().st_size for path in folder.glob("*.jsonl")]
    now, shared = said.now, said.shared
    most_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{now.gpus} GPUs, {days:g} days: {time.perf_counter() - began_s:.0f} s "
        f"({time.process_time():.0f} s of CPU), {most_mib:.0f} MiB, {source.asked.requests} "
        f"requests, {source.asked.received_bytes / 1e9:.2f} GB, {len(pages)} pages of "
        f"{sum(pages) / 1e6:.0f} MB on disk"
    )
    print(
        f"{len(said.jobs) + said.left_out} workloads; {now.cards} cards at once, "
        f"{now.gpu_hours:.0f} GPU hours, {now.kwh:.0f} kWh; with sharing "
        f"{shared.cards.value:.0f} cards, {shared.gpu_hours.value:.0f} GPU hours, "
        f"{shared.kwh.value:.0f} kWh"
    )


if __name__ == "__main__":
    main()
