"""What the agent shows to Prometheus and to the kubelet."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from advisor_api.http.gate import family

STUCK_S = 180.0
"""An agent that has not looked for so long is started again; a probe that hangs takes 60 s."""

MOST_CONNECTIONS = 64
"""A thread each; Prometheus and the kubelet need two."""

_POD = ("namespace", "pod", "job", "gpu_uuid")


@dataclass(frozen=True, slots=True)
class Numbers:
    """A pod or a GPU at the last look, by its labels and the ends of the names of its metrics.

    None: not known.
    """

    labels: tuple[str, ...]
    values: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that was seen at the last look.

    Attributes:
        looked_s: When, monotonic; None: not yet.
        ready: The agent has reached Kubernetes, and every GPU of the node was looked at.
    """

    looked_s: float | None = None
    ready: bool = False
    pods: Sequence[Numbers] = ()
    gpus: Sequence[Numbers] = ()
    waiting: int = 0
    sent: int = 0
    lost: int = 0


class AgentMetrics(Collector):
    """The newest snapshot as metrics; a pod that is gone is in none of them."""

    def __init__(self) -> None:
        self.now = Snapshot()

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks for."""
        now = self.now
        for what, labels, metrics, seen in (
            ("pod", _POD, _OF_PODS, now.pods),
            ("gpu", ("gpu_uuid",), _OF_GPUS, now.gpus),
        ):
            for kind, name, text in metrics:
                values = [(one.labels, one.values[name]) for one in seen]
                yield family(kind, f"{what}_{name}", text, labels, values)
        text = "Observations that the service does not have yet"
        waiting = [((), now.waiting)]
        yield family(GaugeMetricFamily, "agent_observations_waiting", text, (), waiting)
        text = "Observations by what became of them"
        done = [(("sent",), now.sent), (("lost",), now.lost)]
        yield family(CounterMetricFamily, "agent_observations", text, ("outcome",), done)


_Kind: TypeAlias = type[GaugeMetricFamily] | type[CounterMetricFamily]

_OF_PODS: Sequence[tuple[_Kind, str, str]] = (
    (GaugeMetricFamily, "share_percent", "Share of the SMs that the pod was given"),
    (GaugeMetricFamily, "booked_percent", "What the pod books of a GPU, as quotas count it"),
    (GaugeMetricFamily, "memory_mib", "GPU memory of its processes"),
    (GaugeMetricFamily, "memory_limit_mib",
     "At how much the GPU memory of each of its processes is bounded"),
    (GaugeMetricFamily, "held_gpus",
     "Part of a GPU that it holds: of the pods on a GPU all parts are 1"),
    (CounterMetricFamily, "gpu_seconds", "Seconds of a whole GPU that the pod has held"),
    (GaugeMetricFamily, "granted_sms", "SMs that the driver grants under that share, read back"),
    (GaugeMetricFamily, "rate", "Progress over the last seconds, in the job's unit per second"),
    (GaugeMetricFamily, "relative_speed",
     "Rate over the rate alone on the whole GPU, by its profile"),
    (GaugeMetricFamily, "limit_proven",
     "1: the limit was read back and holds; 0: it is not proven"),
    (CounterMetricFamily, "energy_joules",
     "Part of the GPU's energy by the rule of docs/kubernetes.md; not measured"),
)  # fmt: skip

_OF_GPUS: Sequence[tuple[_Kind, str, str]] = (
    (GaugeMetricFamily, "ready", "1: its MPS daemon is well, pods may start"),
    (CounterMetricFamily, "daemon_losses", "MPS daemons that were found gone"),
    (CounterMetricFamily, "energy_joules", "Energy since the agent's start"),
)


class MetricsServer:
    """HTTP: `/metrics`, `/healthz` (it still looks), `/readyz` (it has looked at everything).

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, metrics: AgentMetrics, host: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(metrics)

        class Handler(_Handler):
            answers: ClassVar = {
                "/metrics": lambda: (200, generate_latest(registry)),
                "/healthz": lambda: _status(_looks(metrics.now)),
                "/readyz": lambda: _status(_looks(metrics.now) and metrics.now.ready),
            }

        self._http = _Http((host, port), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """That it listens on."""
        return self._http.server_address[1]

    def close(self) -> None:
        """Answer no more."""
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    """Of more than so many connections, which any pod may open, the oldest makes room."""

    daemon_threads = True
    request_queue_size = 128  # with five, who opens many keeps the kubelet waiting for seconds

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open, self._lock = dict[int, Any](), threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count the connection in, and end the oldest where there are too many."""
        with self._lock:
            self._open[id(request)] = request
            if len(self._open) > MOST_CONNECTIONS:
                oldest = self._open.pop(next(iter(self._open)))
                # Its thread then reads the end, and closes it.
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Count it out, however it ended."""
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    answers: ClassVar[Mapping[str, Callable[[], tuple[int, bytes]]]]
    timeout = 10
    server_version, sys_version = "advisor", ""

    def do_GET(self) -> None:
        """Answer one of the three paths."""
        found = self.answers.get(self.path.partition("?")[0])
        status, body = found() if found else (404, b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST if status == 200 else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Say nothing: Prometheus and the kubelet ask several times a minute."""


def _looks(now: Snapshot) -> bool:
    return now.looked_s is not None and time.monotonic() - now.looked_s < STUCK_S


def _status(good: bool) -> tuple[int, bytes]:
    return (200, b"ok\n") if good else (503, b"no\n")
