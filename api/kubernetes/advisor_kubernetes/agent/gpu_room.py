"""One GPU of the node: its daemon, the pods on it, what they do together."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from advisor.core.gpu import PERCENTAGE
from advisor.core.observations import Observation
from advisor.core.telemetry import TelemetrySource
from advisor.errors import AdvisorError
from advisor.runtime.backends.backend import Sight
from advisor.runtime.backends.mps import PIPE_DIRECTORY
from advisor_kubernetes.agent.daemons import GpuDaemon
from advisor_kubernetes.agent.pods import SharedPod
from advisor_kubernetes.agent.progress_files import progress_file
from advisor_node.metering.meters import GpuMeter, TenantMeter
from advisor_node.metering.overlaps import Overlaps
from advisor_node.metering.progress_files import read_progress
from advisor_node.metering.proof import (
    GpuUsers,
    Proof,
    TenantOf,
    prove,
    strangers,
    users_by_tenant,
)
from advisor_node.metering.references import References

_LOST = (
    "the MPS daemon of the GPU was gone, and another one was started: what this pod still computes "
    "is not under its limit. Delete the pod"
)

UNSEEN = (
    "it makes progress, and none of its processes is seen on its GPU: it computes elsewhere, or "
    "the agent does not share the process namespace of the node (hostPID)"
)

Warn = Callable[[SharedPod, str, str], None]
"""Tells the owner of a pod: the pod, a reason in one word, a message."""


class GpuRoom:
    """One GPU.

    Args:
        daemon: Its MPS daemon.
        source: Its telemetry; None: there is none.
        node: Name of the node.
        pods_folder: Where the progress files of pods are.
        pipe_mount: Where a container has the pipe folder of its GPU.
        pod_of: Which pod a process belongs to.
        references: What is known of jobs alone.
        warn: Tells the owner of a pod.
    """

    def __init__(
        self,
        daemon: GpuDaemon,
        source: TelemetrySource | None,
        *,
        node: str,
        pods_folder: Path,
        pipe_mount: str,
        pod_of: TenantOf,
        references: References,
        warn: Warn,
    ) -> None:
        self.daemon = daemon
        self._folder, self._pod_of = pods_folder, pod_of
        self._pipe_mount, self._references, self._warn = pipe_mount, references, warn
        self.energy = GpuMeter(source, daemon.gpu.units_total or 0)
        self._meters: dict[str, TenantMeter[SharedPod]] = {}
        self._overlaps = Overlaps[SharedPod](daemon.gpu, node, "k8s")
        self._strangers = frozenset[int]()

    @property
    def meters(self) -> Sequence[TenantMeter[SharedPod]]:
        """The pods on it."""
        return tuple(self._meters.values())

    def look(self, now_s: float, pods: Sequence[SharedPod]) -> list[Observation]:
        """Look at everything once.

        Args:
            now_s: Monotonic.
            pods: All of the node; those of other GPUs are left alone.

        Returns:
            What has come to its end.
        """
        if self.daemon.look():
            for meter in self._living():
                meter.limit_broken = True
                self._warn(meter.tenant, "MpsDaemonLost", _LOST)
        mine = [pod for pod in pods if pod.gpu_uuid == self.daemon.gpu.uuid]
        present = frozenset(pod.uid for pod in mine)
        for pod in mine:
            self._meters.setdefault(pod.uid, TenantMeter(pod)).tenant = pod
        sight = self._sight()
        self._look_at_pods(now_s, sight and users_by_tenant(sight, self._pod_of))
        self._refuse_strangers(sight, present)
        self.energy.look(now_s, [meter for meter in self.meters if meter.working])
        ended = list(self._overlaps.follow(now_s, self.meters, present, self.energy.total_j))
        self._forget(present)
        return ended

    def _sight(self) -> Sight | None:
        """Who uses the GPU; None: daemon or driver do not say, and no other pod may start."""
        try:
            return self.daemon.backend.sight()
        except AdvisorError as error:
            self.daemon.refuse(str(error))
            return None

    def _refuse_strangers(self, sight: Sight | None, uids: frozenset[str]) -> None:
        """Let no pod start while somebody else computes there, whom a device plugin may send."""
        found = strangers(sight, self._pod_of, uids) if sight else frozenset[int]()
        # A process that starts on one GPU shows on all GPUs of the host for a moment.
        if staying := sorted(found & self._strangers):
            self.daemon.refuse(
                f"processes {staying} compute on it, which are of no pod that was sent there: "
                "a device plugin must not give out the same GPUs"
            )
        self._strangers = found

    def _look_at_pods(self, now_s: float, users: Mapping[str, GpuUsers] | None) -> None:
        for meter in self._living():
            uid = meter.tenant.uid
            own = (users or {}).get(uid, GpuUsers())
            meter.reference = self._references.of(meter.tenant.job, self.daemon.gpu.model)
            meter.look(now_s, read_progress(progress_file(self._folder, uid)), own)
            if users is not None and meter.take_proof(self._proof(meter, own)):
                self._warn(meter.tenant, "LimitNotProven", meter.proof.why)
        for meter in self.meters:
            meter.working = meter.working and not meter.tenant.over

    def _proof(self, meter: TenantMeter[SharedPod], own: GpuUsers) -> Proof:
        if meter.unseen:
            return Proof(False, meter.proof.units, UNSEEN)
        pod = meter.tenant
        wanted = self.daemon.backend.environment(pod.share) | {
            PIPE_DIRECTORY: self._pipe_mount,
            PERCENTAGE: pod.share_text,
        }
        return prove(pod.share, wanted, own, self.daemon.prove, meter.proof)

    def _living(self) -> list[TenantMeter[SharedPod]]:
        return [meter for meter in self.meters if not meter.tenant.over]

    def _forget(self, present: frozenset[str]) -> None:
        """Pods that the node has no more, once nothing of them is still to be reported."""
        for uid in self._meters.keys() - present - self._overlaps.uids:
            del self._meters[uid]
