"""Kubernetes' API as the agent of a node uses it.

The ClusterRole of the chart allows what is asked here and nothing else, but for the pods that it
lists and watches: patch nodes, create events.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from advisor.formats.moments import to_exact_text
from advisor_kubernetes import names
from advisor_kubernetes.agent.pod_watch import PodWatch
from advisor_kubernetes.agent.pods import SharedPod
from advisor_kubernetes.cluster import NODES, Cluster
from advisor_kubernetes.objects import Object

HAS_MPS = f"{names.PREFIX}mps"
"""Label of a node whose GPUs have MPS daemons of the agent; its value is `true`."""


class NodeApi:
    """The API server, for one node; every method raises a `ClusterError`.

    Args:
        cluster: The server.
        node: Name of the node.
    """

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster, self._node = cluster, node

    def watch(self, pods_folder: Path) -> PodWatch:
        """The pods of the node."""
        return PodWatch(self._cluster, self._node, pods_folder)

    def publish_gpus(self, gpus: Sequence[Mapping[str, object]]) -> None:
        """Write the state of the node's GPUs where the chooser reads it."""
        checked_at = to_exact_text(datetime.now(UTC))
        notes = {names.GPUS: json.dumps(gpus), names.GPUS_CHECKED_AT: checked_at}
        body: Object = {"metadata": {"labels": {HAS_MPS: "true"}, "annotations": notes}}
        self._cluster.patch(f"{NODES}/{self._node}", body)

    def warn(self, pod: SharedPod, reason: str, message: str) -> None:
        """A warning event of a pod, which `kubectl describe pod` shows."""
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{pod.name[:200]}.", "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod.name,
                "namespace": pod.namespace,
                "uid": pod.uid,
            },
            "type": "Warning",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": "advisor-agent", "host": self._node},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        self._cluster.post(f"/api/v1/namespaces/{pod.namespace}/events", event)
