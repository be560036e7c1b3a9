"""What the agent shows to Prometheus and to the kubelet."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

STUCK_S = 180.0
"""An agent that has not looked for so long is started again; a probe that hangs takes 60 s."""

_POD = ("namespace", "pod", "job", "gpu_uuid")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """One pod at the last look; None of what is not known.

    Attributes:
        labels: Namespace, pod, job, GPU.
        granted_units: SMs that the driver grants under its share.
        rate: Steps per second over the last seconds.
        proven: Whether its limit was.
    """

    labels: tuple[str, str, str, str]
    share_percent: float
    granted_units: int | None
    rate: float | None
    relative_speed: float | None
    energy_j: float | None
    proven: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One GPU at the last look."""

    uuid: str
    ready: bool
    losses: int
    energy_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that was seen at the last look.

    Attributes:
        looked_s: When, monotonic; None: not yet.
        ready: The agent has reached Kubernetes, and every GPU of the node was looked at.
    """

    looked_s: float | None = None
    ready: bool = False
    pods: Sequence[PodState] = ()
    gpus: Sequence[GpuState] = ()
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
        yield from _of_pods(now.pods)
        yield from _of_gpus(now.gpus)
        waiting = GaugeMetricFamily(
            "advisor_agent_observations_waiting", "Observations that the service does not have yet"
        )
        waiting.add_metric((), now.waiting)
        done = CounterMetricFamily(
            "advisor_agent_observations", "Observations by what became of them", labels=("outcome",)
        )
        done.add_metric(("sent",), now.sent)
        done.add_metric(("lost",), now.lost)
        yield from (waiting, done)


_GAUGES: Sequence[tuple[str, str, Callable[[PodState], float | None]]] = (
    ("advisor_pod_share_percent", "Share of the SMs that the pod was given",
     lambda pod: pod.share_percent),
    ("advisor_pod_granted_sms", "SMs that the driver grants under that share, read back",
     lambda pod: pod.granted_units),
    ("advisor_pod_rate", "Progress over the last seconds, in the job's unit per second",
     lambda pod: pod.rate),
    ("advisor_pod_relative_speed", "Rate over the rate alone on the whole GPU, by its profile",
     lambda pod: pod.relative_speed),
    ("advisor_pod_limit_proven", "1: the limit was read back and holds; 0: it is not proven",
     lambda pod: pod.proven),
)  # fmt: skip


def _of_pods(pods: Sequence[PodState]) -> Iterator[Metric]:
    for name, text, value_of in _GAUGES:
        gauge = GaugeMetricFamily(name, text, labels=_POD)
        for pod in pods:
            if (value := value_of(pod)) is not None:
                gauge.add_metric(pod.labels, float(value))
        yield gauge
    joules = CounterMetricFamily(
        "advisor_pod_energy_joules",
        "Part of the GPU's energy by the rule of docs/kubernetes.md; not measured",
        labels=_POD,
    )
    for pod in pods:
        if pod.energy_j is not None:
            joules.add_metric(pod.labels, pod.energy_j)
    yield joules


def _of_gpus(gpus: Sequence[GpuState]) -> Iterator[Metric]:
    ready = GaugeMetricFamily(
        "advisor_gpu_ready", "1: its MPS daemon is well, pods may start", labels=("gpu_uuid",)
    )
    losses = CounterMetricFamily(
        "advisor_gpu_daemon_losses", "MPS daemons that were found gone", labels=("gpu_uuid",)
    )
    joules = CounterMetricFamily(
        "advisor_gpu_energy_joules", "Energy since the agent's start", labels=("gpu_uuid",)
    )
    for gpu in gpus:
        ready.add_metric((gpu.uuid,), gpu.ready)
        losses.add_metric((gpu.uuid,), gpu.losses)
        if gpu.energy_j is not None:
            joules.add_metric((gpu.uuid,), gpu.energy_j)
    yield from (ready, losses, joules)


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

        self._http = ThreadingHTTPServer((host, port), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """That it listens on."""
        return self._http.server_address[1]

    def close(self) -> None:
        """Answer no more."""
        self._http.shutdown()
        self._http.server_close()


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
