"""Kubernetes' API as the agent of a node uses it.

The ClusterRole of the chart allows what is asked here and nothing else, but for the pods that it
lists and watches: patch its node and the status of it, create events.
"""

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from advisor.errors import InputError
from advisor.formats.moments import to_exact_text
from advisor_kubernetes import names
from advisor_kubernetes.agent.pods import SharedPod, read_pod
from advisor_kubernetes.cluster import NODES, PODS, Cluster
from advisor_kubernetes.mirror import ObjectMirror
from advisor_kubernetes.objects import Object, event_of

LOG = logging.getLogger("advisor.kubernetes.agent")


class PodWatch:
    """The managed pods of one node."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._pods: dict[str, SharedPod] = {}
        self._said: set[str] = set()
        self._mirror = ObjectMirror(
            cluster, PODS, self._read_all,
            fieldSelector=f"spec.nodeName={node}", labelSelector=f"{names.MANAGED}=true",
        )  # fmt: skip

    def start(self, stop: threading.Event) -> None:
        """Begin to watch, until `stop` is set; the thread ends with the process."""
        threading.Thread(target=self._mirror.run, args=(stop,), daemon=True).start()

    def pods(self) -> tuple[SharedPod, ...]:
        """Those that there are now."""
        return tuple(self._pods.values())

    @property
    def listed(self) -> bool:
        """Whether the API server has answered once."""
        return self._mirror.synced.is_set()

    def _read_all(self) -> None:
        read = (self._read(raw) for raw in self._mirror.objects())
        self._pods = {pod.uid: pod for pod in read if pod is not None}

    def _read(self, raw: Object) -> SharedPod | None:
        """A pod of ours; of one that cannot be read is said once why not."""
        try:
            return read_pod(raw)
        except InputError as error:
            if str(error) not in self._said:
                self._said.add(str(error))
                LOG.warning("%s", error)
            return None


HAS_MPS = f"{names.PREFIX}mps"
"""Label of a node whose GPUs have MPS daemons of the agent; its value is `true`."""


class NodeApi:
    """The API server, for one node; every method raises a `ClusterError`."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster, self._node = cluster, node

    def watch(self) -> PodWatch:
        """The pods of the node."""
        return PodWatch(self._cluster, self._node)

    def publish_gpus(self, gpus: Sequence[Mapping[str, object]]) -> None:
        """Write the state of the node's GPUs where the chooser reads it, and what they offer.

        The kubelet takes over the capacity into what it allocates.
        """
        checked_at = to_exact_text(datetime.now(UTC))
        notes = {names.GPUS: json.dumps(gpus), names.GPUS_CHECKED_AT: checked_at}
        body: Object = {"metadata": {"labels": {HAS_MPS: "true"}, "annotations": notes}}
        # First the capacity: nobody is sent before the annotation says that GPUs are ready.
        capacity: Object = {"status": {"capacity": {names.SHARE_RESOURCE: str(100 * len(gpus))}}}
        self._cluster.patch(f"{NODES}/{self._node}/status", capacity)
        self._cluster.patch(f"{NODES}/{self._node}", body)

    def warn(self, pod: SharedPod, reason: str, message: str) -> None:
        """A warning event of a pod, which `kubectl describe pod` shows."""
        involved = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        source = {"component": "advisor-agent", "host": self._node}
        event = event_of(involved, source, "Warning", reason, message)
        self._cluster.post(f"/api/v1/namespaces/{pod.namespace}/events", event)
