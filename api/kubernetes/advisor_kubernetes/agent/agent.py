"""The agent of a node: looks at its GPUs and their pods until it is asked to end."""

import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from advisor.client import Client
from advisor.core.gpu import PERCENTAGE, Gpu
from advisor.errors import AdvisorError, BusyError
from advisor.runtime.backend import PIPE_DIRECTORY
from advisor.runtime.lock import gpu_lock
from advisor.settings import Settings
from advisor_kubernetes import names
from advisor_kubernetes.agent.daemons import GpuDaemon
from advisor_kubernetes.agent.metrics import AgentMetrics, MetricsServer, Numbers, Snapshot
from advisor_kubernetes.agent.node_api import NodeApi
from advisor_kubernetes.agent.pods import GpuHours, SharedPod, pod_of, progress_file
from advisor_kubernetes.cluster import ClusterError
from advisor_node.metering.looking import keep_looking, power_source, references_of
from advisor_node.metering.meters import TenantMeter
from advisor_node.metering.proof import TenantOf
from advisor_node.metering.reports import ObservationQueue
from advisor_node.metering.room import Room, Tenancy
from advisor_profiling.telemetry import nvml
from advisor_profiling.testbed.live import with_units

LOG = logging.getLogger("advisor.kubernetes.agent")

PUBLISH_S = 30.0
"""The annotation of the node is renewed this often, and at once when something has changed."""


_LOST = (
    "the MPS daemon of the GPU was gone, and another one was started: what this pod still computes "
    "is not under its limit. Delete the pod"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What an agent is told.

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
    pod_of: TenantOf = pod_of


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
        options: What this agent is told.
        settings: Of its environment.
        api: The API server.
        service: Knows jobs alone, and takes observations.
        stop: Set by somebody else.
        on_start: Called with the port of the metrics.

    Raises:
        SourceError: no driver answers, so there is nothing to own.
        BusyError: another agent has a GPU of this node.
    """
    with ExitStack() as stack:
        try:
            gpus = stack.enter_context(_own_gpus(settings))
        except BusyError:
            raise  # what the other agent says is true
        except AdvisorError:
            _publish(api, [])  # whatever an agent before has said
            raise
        agent = KubernetesAgent(options, settings, api, service, gpus)
        stack.callback(agent.close)
        server = MetricsServer(agent.metrics, options.host, options.port)
        stack.callback(server.close)
        on_start(server.port)
        agent.publish(time.monotonic())  # not ready yet
        agent.watch.start(stop)
        for _ in keep_looking(agent.look, stop):
            pass


@contextmanager
def _own_gpus(settings: Settings) -> Generator[list[Gpu]]:
    """The GPUs of the node, locked for this process."""
    with ExitStack() as stack:
        found = nvml.list_gpus()
        for gpu in found:
            stack.enter_context(gpu_lock(settings.lock_dir, gpu.uuid))
        yield [with_units(gpu, settings) for gpu in found]


class KubernetesAgent:
    """Everything that is looked at, once each look."""

    def __init__(
        self,
        options: AgentOptions,
        settings: Settings,
        api: NodeApi,
        service: Client,
        gpus: Sequence[Gpu],
    ) -> None:
        self._api = api
        self.metrics = AgentMetrics()
        self.metrics.now = Snapshot(looked_s=time.monotonic())
        self.watch = api.watch()
        self._reports = ObservationQueue(service.observe)
        references = references_of(service)
        self._rooms: list[tuple[GpuDaemon, Room[SharedPod]]] = []
        self._hours = {gpu.uuid: GpuHours() for gpu in gpus}
        for gpu in gpus:
            computing = partial(nvml.context_pids, gpu.uuid)
            daemon = GpuDaemon(gpu, options.mps_folder, settings.job_environment(), computing)
            tenancy = _tenancy(options, daemon, self._warn)
            room = Room(daemon, power_source(gpu, settings), tenancy, references)
            self._rooms.append((daemon, room))
        self._published: tuple[float, list[Mapping[str, object]]] | None = None

    def look(self) -> None:
        """Look at every GPU and its pods; say what has changed."""
        pods = self.watch.pods()
        for daemon, room in self._rooms:
            if daemon.look():
                room.doubt()
                for meter in room.living:
                    self._warn(meter.tenant, "MpsDaemonLost", _LOST)
            mine = [pod for pod in pods if pod.gpu_uuid == daemon.gpu.uuid]
            self._hours[daemon.gpu.uuid].look(time.monotonic(), mine)
            for seen in room.look(mine):
                self._reports.add(seen)
        self.publish(time.monotonic())
        self._reports.flush()
        self.metrics.now = self._snapshot()

    def publish(self, now_s: float) -> None:
        """Write the state of the GPUs to the node, where it has changed or is due."""
        gpus = [_published(daemon) for daemon, _ in self._rooms]
        if self._published:
            then_s, known = self._published
            if known == gpus and now_s - then_s < PUBLISH_S:
                return
        if _publish(self._api, gpus):
            self._published = now_s, gpus

    def close(self) -> None:
        """End the daemons; pods that still compute lose their GPU."""
        for daemon, _ in self._rooms:
            try:
                daemon.close()
            except AdvisorError as error:
                LOG.warning("%s", error)
        self.publish(time.monotonic())
        for _, room in self._rooms:
            room.close()

    def _warn(self, pod: SharedPod, reason: str, message: str) -> None:
        LOG.warning("%s/%s: %s: %s", pod.namespace, pod.name, reason, message)
        try:
            self._api.warn(pod, reason, message)
        except ClusterError as error:
            LOG.warning("%s", error)

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            looked_s=time.monotonic(),
            ready=self.watch.listed and self._published is not None,
            pods=[
                _numbers(meter, self._hours[daemon.gpu.uuid])
                for daemon, room in self._rooms
                for meter in room.meters
            ],
            gpus=[
                Numbers(
                    (daemon.gpu.uuid,),
                    {
                        "ready": daemon.readiness.ready,
                        "daemon_losses": daemon.losses,
                        "energy_joules": room.energy.metered and room.energy.metered.joules,
                    },
                )
                for daemon, room in self._rooms
            ],
            waiting=self._reports.waiting,
            sent=self._reports.sent,
            lost=self._reports.lost,
        )


def _publish(api: NodeApi, gpus: Sequence[Mapping[str, object]]) -> bool:
    try:
        api.publish_gpus(gpus)
    except ClusterError as error:
        LOG.warning("%s", error)
        return False
    return True


def _tenancy(
    options: AgentOptions, daemon: GpuDaemon, warn: Callable[[SharedPod, str, str], None]
) -> Tenancy[SharedPod]:
    def wanted(pod: SharedPod) -> Mapping[str, str]:
        limit = {PIPE_DIRECTORY: options.pipe_mount, PERCENTAGE: pod.share_text}
        return daemon.backend.environment(pod.share) | limit

    return Tenancy(
        scheduler="k8s",
        node=options.node,
        tenant_of=options.pod_of,
        progress_file=lambda pod: progress_file(options.pods_folder, pod.uid),
        wanted=wanted,
        gone=lambda pod: pod,
        warn=warn,
    )


def _published(daemon: GpuDaemon) -> Mapping[str, object]:
    return {
        "uuid": daemon.gpu.uuid,
        "model": daemon.gpu.model,
        "sm_count": daemon.gpu.units_total,
        "memory_mib": daemon.gpu.memory_mib,
        "ready": daemon.readiness.ready,
        "why": daemon.readiness.why,
    }


def _numbers(meter: TenantMeter[SharedPod], hours: GpuHours) -> Numbers:
    pod = meter.tenant
    return Numbers(
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
