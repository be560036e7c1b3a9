"""How long a call of the Kubernetes webhook takes over TLS, next to a page that does nothing.

    .venv/bin/python docs/measurements/webhook.py [--calls 1000]

Starts `advisor kubernetes serve` with a small API server of the tests, and calls it from this
process, one call after the other, with a new connection for each call, and over one that is kept.
Printed are milliseconds at the client, p50 and p99, and the p50 as a multiple of that of `/healthz`
on the same kind of connection: hosts differ in the rest.
"""

import argparse
import http.client
import socket
import ssl
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/fakes"))

from kube_api import kube_api
from kube_serving import KubeServed, kube_serving
from waiting import eventually

FIXTURES = Path(__file__).resolve().parents[2] / "tests/fixtures/kubernetes"
ASKED = {
    "/healthz": None,
    "pod that asks for nothing": "admission-create-gpu-pod",
    "pod that shares": "admission-create-two-containers",
    "refused pod": "admission-create-odd-annotations",
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
            times_ms = _times_ms(served, calls, kept=kind == "kept")
            for name, of_call_ms in times_ms.items():
                cuts = statistics.quantiles(of_call_ms, n=100)
                ratio = cuts[49] / statistics.median(times_ms["/healthz"])
                print(f"| {name} | {kind} | {cuts[49]:.2f} | {cuts[98]:.2f} | {ratio:.2f} |")


def _times_ms(served: KubeServed, calls: int, *, kept: bool) -> dict[str, list[float]]:
    """Of each call in turn, so that all of them meet the same other work of the host."""
    context = ssl.create_default_context(cafile=str(served.tls.certificate))
    port = urlsplit(served.url).port
    connections = {
        name: http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        for name in ASKED
    }
    times_ms: dict[str, list[float]] = {name: [] for name in ASKED}
    for number in range(calls + 20):
        for name, connection in connections.items():
            began = time.perf_counter()
            _call(connection, name)
            if not kept:
                connection.close()
            if number >= 20:  # the first ones load what is needed once
                times_ms[name].append((time.perf_counter() - began) * 1e3)
    for connection in connections.values():
        connection.close()
    return times_ms


def _call(connection: http.client.HTTPSConnection, name: str) -> None:
    file = ASKED[name]
    if file is None:
        connection.request("GET", "/healthz")
    else:
        path = "/filter" if "filter" in file else "/mutate?timeout=2s"
        body = (FIXTURES / f"{file}.json").read_bytes()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()


def _closed() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


if __name__ == "__main__":
    main()
