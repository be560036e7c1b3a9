"""The agent of a node: owns the MPS daemon of each GPU, proves limits, meters pods, reports."""

import json
import logging
import math
import re
import socket
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from advisor.client import Client
from advisor.core.gpu import PERCENTAGE, WHOLE, Gpu, Share
from advisor.errors import AdvisorError, BusyError, InputError, PartitionError
from advisor.files import gpu_lock
from advisor.formats.moments import to_exact_text
from advisor.launch.spec import State
from advisor.runtime.backend import (
    PIPE_DIRECTORY,
    ComputingPids,
    Control,
    MpsBackend,
    Sight,
    start_server,
)
from advisor.runtime.processes import owner_of, wait_until
from advisor.settings import Settings
from advisor.wire.requests import NAME
from advisor_api.http.routing import family
from advisor_kubernetes import names
from advisor_kubernetes.cluster import (
    NODES,
    PODS,
    Cluster,
    ClusterError,
    Object,
    ObjectMirror,
    event_of,
    part,
    parts,
    word,
)
from advisor_node.room import (
    ObservationQueue,
    ReferenceCache,
    Room,
    Tenancy,
    Tenant,
    TenantMeter,
    TenantOf,
    granted_units,
    keep_looking,
    power_source,
)
from advisor_profiling.telemetry import nvml
from advisor_profiling.testbed import with_units

_START_S = 10
_OPEN, _PRIVATE = 0o755, 0o700


class _GpuDaemon:
    """One GPU and its daemon.

    Args:
        gpu: Its `units_total` must be known.
        folder: Of all daemons of the node; pods mount `<gpu uuid>/pipe` in it, and `<gpu uuid>/log`
            is the agent's alone.
        environment: Base environment of the daemon and of probes, without limits.
        computing: Lists the processes with a context on the GPU.

    Attributes:
        unready: Why no pod may start on the GPU, as of the last look; empty: pods may.
        losses: How often a daemon that had run was gone.
    """

    def __init__(
        self, gpu: Gpu, folder: Path, environment: Mapping[str, str], computing: ComputingPids
    ) -> None:
        self._folder, self._environment = folder / gpu.uuid, environment
        self.backend = MpsBackend(
            gpu, Control(self._folder / "pipe", environment), owned=True, computing=computing
        )
        self.unready, self.losses = "its MPS daemon is being started", 0
        self._begun = self._proven = False

    @property
    def gpu(self) -> Gpu:
        return self.backend.gpu

    @property
    def pipe_dir(self) -> Path:
        """What its clients have as CUDA_MPS_PIPE_DIRECTORY."""
        return self.backend.control.pipe_dir

    def look(self) -> bool:
        """See whether the daemon is well, and start one where there is none.

        Returns:
            Whether a daemon that pods may have used was gone: they have to be told.
        """
        lost = False
        try:
            if self.gpu.mig:
                raise PartitionError(
                    "MIG is on",
                    why="shares are of a whole GPU",
                    fix="turn it off: nvidia-smi -mig 0",
                )
            if not self.backend.control.answers():
                lost, self._begun, self._proven = self._begun, False, False
                self.losses += lost
                self._start()
            self._begun = True
            self._check()
            self.unready = ""
        except AdvisorError as error:
            self.unready = str(error)
        return lost

    def sight(self, *, used: bool) -> Sight | None:
        """The processes on the GPU; None: unknown, and no other pod may start."""
        try:
            return self.backend.sight()
        except AdvisorError as error:
            self.unready = self.unready or str(error)
            return None

    def meet_strangers(self, pids: Sequence[int]) -> bool:
        """Let no pod start while another process computes there, perhaps of a device plugin."""
        self.unready = self.unready or (
            f"processes {pids} compute on it, which are of no pod that was sent there: "
            "a device plugin must not give out the same GPUs"
        )
        return False

    def close(self) -> None:
        self.unready = "the agent of the node has ended"
        if self.backend.control.answers():
            self.backend.close()

    def _start(self) -> None:
        _make_folder(self._folder, _OPEN)
        _make_folder(self.pipe_dir, _OPEN)
        _make_folder(self._folder / "log", _PRIVATE)
        self.backend.control.start_daemon(self.gpu.uuid, self._folder / "log")
        if not wait_until(self.backend.control.answers, _START_S):
            raise PartitionError(
                f"the MPS daemon for {self.gpu.uuid} did not answer within {_START_S} s",
                fix=f"read {self._folder}/log/control.log",
            )
        # For this user; the first client of another one gets a server of its own in its place.
        start_server(self.backend.control)

    def _check(self) -> None:
        self.backend.control.check_default()
        if self.backend.spoiled():
            raise PartitionError(
                "the MPS server is in a fault",
                why="a client crashed on the GPU and took its neighbours with it",
                fix="delete the pods on this GPU; the server recovers when the last one has ended",
            )
        if not self._proven:
            # As the user that the server serves now: another would wait until these have ended.
            control = self.backend.control
            busy = [server for server in control.servers() if control.clients(server)]
            self.prove(Share(WHOLE), owner_of(busy[0]) if busy else None)
            self._proven = True

    def prove(self, share: Share, user: int | None = None) -> int | None:
        """The SMs that the driver gives to a process under `share`."""
        return granted_units(
            self.backend, share, {**self._environment, **self.backend.environment(share)}, user
        )


def _make_folder(folder: Path, mode: int) -> None:
    """A folder below one of root's; others may enter, but only its owner may have made it."""
    folder.mkdir(parents=True, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != folder.parent.stat().st_uid:
        raise PartitionError(
            f"{folder} is not a folder of ours",
            why="something else was there first",
            fix="remove it from the node; the agent makes it again",
        )
    folder.chmod(mode)


MOST_CONNECTIONS = 64
"""A thread each; Prometheus and the kubelet need two."""

# Labels of a pod or GPU, and values by the ends of the names of its metrics; None: not known.
_Numbers: TypeAlias = tuple[tuple[str, ...], Mapping[str, float | None]]


def _families(
    pods: Sequence[_Numbers], gpus: Sequence[_Numbers], reports: ObservationQueue
) -> Iterator[Metric]:
    for what, labels, metrics, rows in (
        ("pod", ("namespace", "pod", "job", "gpu_uuid"), _OF_PODS, pods),
        ("gpu", ("gpu_uuid",), _OF_GPUS, gpus),
    ):
        yield from (
            family(
                kind, f"{what}_{name}", text, labels, [(of, numbers[name]) for of, numbers in rows]
            )
            for kind, name, text in metrics
        )
    text, waiting = "Observations that the service does not have yet", [((), reports.waiting)]
    yield family(GaugeMetricFamily, "agent_observations_waiting", text, (), waiting)
    text = "Observations by what became of them"
    done = [(("sent",), reports.sent), (("lost",), reports.lost)]
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


class MetricsServer(ThreadingHTTPServer, Collector):
    """HTTP: `/metrics`, `/healthz` (it still looks), `/readyz` (it has looked at everything).

    Any pod may open connections: where there are too many, the oldest makes room.

    Attributes:
        looked_s: When the last look was, monotonic.
        ready: The agent has reached Kubernetes, and every GPU of the node was looked at.
        families: What was seen at the last look; a pod that is gone is in none of them.

    Raises:
        OSError: the address cannot be listened on.
    """

    daemon_threads = True
    request_queue_size = 128  # with five, a caller with many keeps the kubelet waiting for seconds

    def __init__(self, host: str, port: int) -> None:
        self.looked_s, self.ready = -math.inf, False
        self.families: Sequence[Metric] = ()
        registry = CollectorRegistry()
        registry.register(self)
        self.answers: Mapping[str, Callable[[], tuple[int, bytes]]] = {
            "/metrics": lambda: (200, generate_latest(registry)),
            "/healthz": lambda: _status(self._looks),
            "/readyz": lambda: _status(self._looks and self.ready),
        }
        self._open, self._lock = dict[int, Any](), threading.Lock()
        super().__init__((host, port), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def collect(self) -> Sequence[Metric]:
        """What prometheus_client asks for."""
        return self.families

    @property
    def _looks(self) -> bool:
        # Later it is started again; a probe that hangs takes 60 s.
        return time.monotonic() - self.looked_s < 180.0

    def close(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()

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
    server: MetricsServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = 10
    server_version, sys_version = "advisor", ""

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path.partition("?")[0])
        status, body = answer() if answer else (404, b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST if status == 200 else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Say nothing: Prometheus and the kubelet ask several times a minute."""


def _status(good: bool) -> tuple[int, bytes]:
    return (200, b"ok\n") if good else (503, b"no\n")


_STATES: dict[str, State] = {"Succeeded": "finished", "Failed": "failed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedPod(Tenant):
    """A pod that has part of a GPU; `booked_percent` is what it books of it."""

    namespace: str
    name: str
    gpu_uuid: str
    booked_percent: int = names.BOOKED_PERCENT


def read_pod(raw: Object) -> _SharedPod | None:
    """The pod; None where it has no GPU of ours: without a share, or without a GPU by UUID.

    Raises:
        InputError: its annotations cannot be what the chooser has written.
    """
    meta = part(raw, "metadata")
    notes = part(meta, "annotations")
    if not all(notes.get(name) for name in (names.JOB, names.SHARE_PERCENT, names.GPU_UUID)):
        return None
    limits = [part(c, "resources", "limits") for c in parts(raw, "spec", "containers")]
    booked = sum(int(limit.get(names.SHARE_RESOURCE, 0)) for limit in limits)
    pod = _SharedPod(
        uid=word(meta, "uid"),
        namespace=word(meta, "namespace"),
        name=word(meta, "name"),
        job=notes[names.JOB],
        share_text=notes[names.SHARE_PERCENT],
        gpu_uuid=notes[names.GPU_UUID],
        state=_STATES.get(word(part(raw, "status"), "phase"), "running"),
        booked_percent=booked or names.BOOKED_PERCENT,
        memory_mib=_memory_mib(notes.get(names.MEMORY_LIMIT)),
    )
    good = re.fullmatch("[0-9A-Za-z-]{1,63}", pod.uid) and re.fullmatch(NAME, pod.job)
    try:
        shares = good and pod.share
    except (InputError, ValueError):
        shares = None
    if not shares:
        raise InputError(
            f"the pod {pod.namespace}/{pod.name} has the job {pod.job!r} "
            f"and the share {pod.share_text!r}",
            why="the annotations were not written by the partner chooser, or were changed since",
            fix="delete the pod and let its owner make another one",
        )
    return pod


def _memory_mib(limit: str | None) -> int | None:
    if limit is None:
        return None  # of an earlier version
    if not (match := re.fullmatch("0=([1-9][0-9]{0,9})M", limit)):
        raise InputError(
            f"the annotation {names.MEMORY_LIMIT} is {limit!a}",
            why="the driver would take it as no limit, or refuse the process",
            fix="delete the pod and let its owner make another one",
        )
    return int(match[1])


def _pod_of(pid: int) -> str | None:
    """The uid of the pod that a process runs in; None: in no pod, or there is no such process.

    Unlike a variable of its environment, a process cannot change it.
    """
    try:
        return pod_in(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
    except OSError:
        return None


def pod_in(text: str) -> str | None:
    """The uid in the lines of a `/proc/PID/cgroup` (man 7 cgroups), version 1 or 2."""
    # Its control group is `pod<uid>` by cgroupfs, `...-pod<uid with _>.slice` by systemd; pods of a
    # file on the node have a hash without dashes.
    match = re.search("pod([0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})", text)
    return match[1].replace("_", "-") if match else None


def progress_file(folder: Path, uid: str) -> Path:
    """Where the progress file of a pod is, in the kubelet's folder of all pods (docs/job-file.md).

    The last part is the pod's own to write, and the kubelet's all before it.
    """
    volume = f"volumes/kubernetes.io~empty-dir/{names.PROGRESS_VOLUME}"
    return folder / uid / volume / names.PROGRESS_FILE


class GpuHours:
    """Adds up what the pods of one GPU hold.

    Attributes:
        held: The part of the GPU that each pod holds now, by uid.
        total_s: Seconds of a whole GPU that each has held so far.
    """

    def __init__(self) -> None:
        self.held: Mapping[str, float] = {}
        self.total_s: dict[str, float] = {}
        self._looked_s: float | None = None

    def look(self, now_s: float, pods: Collection[_SharedPod]) -> None:
        """Count the time since the last look for those that were there then."""
        if self._looked_s is not None:
            for uid, part in self.held.items():
                self.total_s[uid] = self.total_s.get(uid, 0.0) + part * (now_s - self._looked_s)
        self._looked_s = now_s
        # All parts are the GPU, however little of it is booked: no other pod pays for the rest.
        booked = {pod.uid: pod.booked_percent for pod in pods if not pod.over}
        self.held = {uid: percent / sum(booked.values()) for uid, percent in booked.items()}
        there = {pod.uid for pod in pods}
        self.total_s = {uid: total_s for uid, total_s in self.total_s.items() if uid in there}


class NodeApi:
    """The API server, for one node; what is written raises a `ClusterError`.

    Attributes:
        pods: The managed pods of the node, as of the last change.
    """

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster, self._node = cluster, node
        self.pods: Sequence[_SharedPod] = ()
        self._said: set[str] = set()
        self._mirror = ObjectMirror(
            cluster, PODS, self._read_all,
            fieldSelector=f"spec.nodeName={node}", labelSelector=f"{names.MANAGED}=true",
        )  # fmt: skip

    def start(self, stop: threading.Event) -> None:
        """Begin to watch the pods, until `stop` is set; the thread ends with the process."""
        threading.Thread(target=self._mirror.run, args=(stop,), daemon=True).start()

    @property
    def listed(self) -> bool:
        """Whether the API server has answered once."""
        return self._mirror.synced.is_set()

    def _read_all(self) -> None:
        self.pods = [pod for raw in self._mirror.objects() if (pod := self._read(raw))]

    def _read(self, raw: Object) -> _SharedPod | None:
        """A pod of ours; a pod that cannot be read is logged once."""
        try:
            return read_pod(raw)
        except InputError as error:
            if str(error) not in self._said:
                self._said.add(str(error))
                LOG.warning("%s", error)
            return None

    def publish_gpus(self, gpus: Sequence[Mapping[str, object]]) -> None:
        """Write the state of the node's GPUs where the chooser reads it, and what they offer.

        The kubelet takes over the capacity into what it allocates.
        """
        checked_at = to_exact_text(datetime.now(UTC))
        notes = {names.GPUS: json.dumps(gpus), names.GPUS_CHECKED_AT: checked_at}
        # The label says that its GPUs have MPS daemons of the agent.
        meta = {"labels": {f"{names.PREFIX}mps": "true"}, "annotations": notes}
        # First the capacity: no pod is sent before the annotation lists ready GPUs.
        capacity: Object = {"status": {"capacity": {names.SHARE_RESOURCE: str(100 * len(gpus))}}}
        self._cluster.patch(f"{NODES}/{self._node}/status", capacity)
        self._cluster.patch(f"{NODES}/{self._node}", {"metadata": meta})

    def warn(self, pod: _SharedPod, reason: str, message: str) -> None:
        """A warning event of a pod, which `kubectl describe pod` shows."""
        involved = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        event = event_of(
            involved, {"component": "advisor-agent", "host": self._node}, "Warning", reason, message
        )
        self._cluster.post(f"/api/v1/namespaces/{pod.namespace}/events", event)


LOG = logging.getLogger("advisor.kubernetes.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Options of an agent.

    Attributes:
        host: Address that metrics are served on.
        port: 0: any.
        mps_folder: Where daemons listen; pods mount it.
        pods_folder: Where the kubelet keeps the volumes of pods.
        pipe_mount: Where a container has the pipe folder of its GPU.
        pod_of: Which pod a process belongs to.
    """

    node: str
    host: str = "0.0.0.0"
    port: int = 9401
    mps_folder: Path = Path(names.MPS_ROOT)
    pods_folder: Path = Path(names.KUBELET_PODS)
    pipe_mount: str = names.PIPE_MOUNT
    pod_of: TenantOf = _pod_of


def run_agent(
    options: AgentOptions,
    settings: Settings,
    api: NodeApi,
    service: Client,
    stop: threading.Event,
    on_start: Callable[[int], object],
) -> None:
    """Look at the node until `stop` is set; then the daemons end, and the GPUs are not ready.

    Args:
        options: Of this agent.
        settings: Of its environment.
        api: The API server.
        service: Knows jobs alone, and takes observations.
        stop: Set by another thread.
        on_start: Called with the port of the metrics.

    Raises:
        SourceError: no driver answers, so there is nothing to own.
        BusyError: another agent has a GPU of this node.
    """
    with ExitStack() as stack:
        try:
            gpus_here = nvml.list_gpus()
            for gpu in gpus_here:
                stack.enter_context(gpu_lock(settings.lock_dir, gpu.uuid))
            gpus = [with_units(gpu, settings) for gpu in gpus_here]
        except BusyError:
            raise  # what the other agent says is true
        except AdvisorError:
            _publish(api, [])  # whatever an agent before has said
            raise
        server = MetricsServer(options.host, options.port)
        stack.callback(server.close)
        agent = _KubernetesAgent(options, settings, api, service, gpus, server)
        stack.callback(agent.close)
        on_start(server.server_port)
        agent.publish(time.monotonic())  # not ready yet
        api.start(stop)
        for _ in keep_looking(agent.look, stop):
            pass


class _KubernetesAgent:
    """Everything that is looked at, once each look."""

    def __init__(
        self,
        options: AgentOptions,
        settings: Settings,
        api: NodeApi,
        service: Client,
        gpus: Sequence[Gpu],
        metrics: MetricsServer,
    ) -> None:
        self._api = api
        self._metrics, self._reports = metrics, ObservationQueue(service)
        self._metrics.looked_s = time.monotonic()
        self._metrics.families = [*_families((), (), self._reports)]
        references = ReferenceCache(lambda job, model: service.profile(job, gpu_model=model))
        self._rooms: list[tuple[_GpuDaemon, Room[_SharedPod]]] = []
        self._hours = {gpu.uuid: GpuHours() for gpu in gpus}
        for gpu in gpus:
            computing = partial(nvml.context_pids, gpu.uuid)
            daemon = _GpuDaemon(gpu, options.mps_folder, settings.job_environment(), computing)
            tenancy = _tenancy(options, daemon, self._warn)
            self._rooms.append(
                (daemon, Room(daemon, power_source(gpu, settings), tenancy, references))
            )
        self._published: tuple[float, list[Mapping[str, object]]] | None = None

    def look(self) -> None:
        pods = self._api.pods
        for daemon, room in self._rooms:
            if daemon.look():
                room.doubt()
                for meter in room.living:
                    self._warn(
                        meter.tenant,
                        "MpsDaemonLost",
                        "the MPS daemon of the GPU was gone, and another one was started: what "
                        "this pod still computes is not under its limit. Delete the pod",
                    )
            mine = [pod for pod in pods if pod.gpu_uuid == daemon.gpu.uuid]
            self._hours[daemon.gpu.uuid].look(time.monotonic(), mine)
            self._reports.add(*room.look(mine))
        self.publish(time.monotonic())
        self._reports.flush()
        pods = [
            _numbers(meter, self._hours[daemon.gpu.uuid])
            for daemon, room in self._rooms
            for meter in room.meters
        ]
        gpus: list[_Numbers] = [
            (
                (daemon.gpu.uuid,),
                {
                    "ready": not daemon.unready,
                    "daemon_losses": daemon.losses,
                    "energy_joules": room.metered and room.metered.joules,
                },
            )
            for daemon, room in self._rooms
        ]
        self._metrics.families = [*_families(pods, gpus, self._reports)]
        self._metrics.ready = self._api.listed and self._published is not None
        self._metrics.looked_s = time.monotonic()

    def publish(self, now_s: float) -> None:
        """Write the state of the GPUs to the node, where it has changed or is due."""
        gpus: list[Mapping[str, object]] = [
            {
                "uuid": daemon.gpu.uuid,
                "model": daemon.gpu.model,
                "sm_count": daemon.gpu.units_total,
                "memory_mib": daemon.gpu.memory_mib,
                "ready": not daemon.unready,
                "why": daemon.unready,
            }
            for daemon, _ in self._rooms
        ]
        then_s, published = self._published or (-math.inf, [])
        if published == gpus and now_s - then_s < 30.0:  # readers ignore older ones
            return
        if _publish(self._api, gpus):
            self._published = now_s, gpus

    def close(self) -> None:
        for daemon, _ in self._rooms:
            try:
                daemon.close()
            except AdvisorError as error:
                LOG.warning("%s", error)
        self.publish(time.monotonic())
        for _, room in self._rooms:
            room.close()

    def _warn(self, pod: _SharedPod, reason: str, message: str) -> None:
        LOG.warning("%s/%s: %s: %s", pod.namespace, pod.name, reason, message)
        try:
            self._api.warn(pod, reason, message)
        except ClusterError as error:
            LOG.warning("%s", error)


def _publish(api: NodeApi, gpus: Sequence[Mapping[str, object]]) -> bool:
    try:
        api.publish_gpus(gpus)
    except ClusterError as error:
        LOG.warning("%s", error)
        return False
    return True


def _tenancy(
    options: AgentOptions, daemon: _GpuDaemon, warn: Callable[[_SharedPod, str, str], None]
) -> Tenancy[_SharedPod]:
    return Tenancy(
        scheduler="k8s",
        node=options.node,
        tenant_of=options.pod_of,
        progress_file=lambda pod: progress_file(options.pods_folder, pod.uid),
        wanted=lambda pod: {
            **daemon.backend.environment(pod.share),
            PIPE_DIRECTORY: options.pipe_mount,
            PERCENTAGE: pod.share_text,
        },
        gone=lambda pod: pod,
        warn=warn,
    )


def _numbers(meter: TenantMeter[_SharedPod], hours: GpuHours) -> _Numbers:
    pod = meter.tenant
    return (
        (pod.namespace, pod.name, pod.job, pod.gpu_uuid),
        {
            "share_percent": pod.share.percent,
            "booked_percent": pod.booked_percent,
            "memory_mib": meter.memory_mib,
            "memory_limit_mib": pod.memory_mib,
            "held_gpus": hours.held.get(pod.uid, 0.0),
            "gpu_seconds": hours.total_s.get(pod.uid, 0.0),
            "granted_sms": meter.proof.units,
            "rate": meter.rate(),
            "relative_speed": meter.relative_speed(),
            "energy_joules": meter.energy_j,
            "limit_proven": False if meter.limit_broken else meter.proof.proven,
        },
    )
