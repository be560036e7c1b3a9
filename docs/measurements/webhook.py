"""How long a call of the Kubernetes webhook takes over TLS, next to a page that does nothing.

    .venv/bin/python docs/measurements/webhook.py [--calls 1000]

Starts `advisor kubernetes serve` with a small API server of the tests, and calls it one after the
other from this process: with a new connection for each call, and over one that is kept. Printed are
milliseconds at the client, p50 and p99, and the p50 as a multiple of that of `/healthz` on the same
kind of connection: hosts differ in the rest.
"""

import argparse
import http.client
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakes"))

from kube_api import kube_api
from kube_serving import KubeServed, eventually, kube_serving

FIXTURES = Path(__file__).resolve().parents[2] / "tests/fixtures/kubernetes"
ASKED = {
    "/healthz": None,
    "pod that asks for nothing": "admission-create-gpu-pod",
    "pod that shares": "admission-create-two-containers",
    "refused pod": "admission-create-odd-annotations",
    "filter, 3 names": "extender-filter-nodenames",
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1000)
    calls = parser.parse_args().calls
    print("| call | connection | p50 ms | p99 ms | p50 over `/healthz` |")
    print("|---|---|---|---|---|")
    with (
        tempfile.TemporaryDirectory(prefix="webhook") as folder,
        kube_api() as api,
        kube_serving(Path(folder), api, _closed(), "--log-level", "warning") as served,
    ):
        eventually(lambda: served.ask("/readyz").status == 200)
        for kind in ("new", "kept"):
            idle_ms = None
            for name, file in ASKED.items():
                times_ms = sorted(_times_ms(served, file, calls, kept=kind == "kept"))
                cuts = statistics.quantiles(times_ms, n=100)
                idle_ms = idle_ms or cuts[49]
                ratio = cuts[49] / idle_ms
                print(f"| {name} | {kind} | {cuts[49]:.2f} | {cuts[98]:.2f} | {ratio:.2f} |")


def _times_ms(served: KubeServed, file: str | None, calls: int, *, kept: bool) -> Iterator[float]:
    body = None if file is None else (FIXTURES / f"{file}.json").read_bytes()
    path = "/healthz" if file is None else "/filter" if "filter" in file else "/mutate?timeout=2s"
    context = ssl.create_default_context(cafile=str(served.tls.certificate))
    port = urlsplit(served.url).port
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    for number in range(calls + 20):
        began = time.perf_counter()
        connection.request(
            "GET" if body is None else "POST", path, body, {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        text = answer.read()
        if not kept:
            connection.close()
        if number >= 20:  # the first ones load what is needed once
            yield (time.perf_counter() - began) * 1e3
        assert answer.status == 200, text
    connection.close()


def _closed() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


if __name__ == "__main__":
    main()
