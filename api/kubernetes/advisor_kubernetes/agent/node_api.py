"""Kubernetes' API as the agent of a node uses it.

The ClusterRole of the chart allows what is asked here and nothing else: list and watch pods, patch
nodes, create events.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from advisor.formats.moments import to_exact_text
from advisor_kubernetes import names
from advisor_kubernetes.agent.pods import SharedPod
from advisor_kubernetes.cluster import NODES, PODS, Cluster, list_of
from advisor_kubernetes.objects import Object, part, word

HAS_MPS = f"{names.PREFIX}mps"
"""Label of a node whose GPUs have MPS daemons of the agent; its value is `true`."""

WATCH_S = 120
"""A watch ends after this time, and the pods are listed again: what it missed is found then."""


class NodeApi:
    """The API server, for one node; every method raises a `ClusterError`.

    Args:
        cluster: The server.
        node: Name of the node.
    """

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster, self._node = cluster, node
        self._selectors = {
            "fieldSelector": f"spec.nodeName={node}",
            "labelSelector": f"{names.MANAGED}=true",
        }

    def list_pods(self) -> tuple[list[Object], str]:
        """The managed pods of the node, and the version of that list to watch from."""
        return list_of(self._cluster, PODS, **self._selectors)

    def watch_pods(self, version: str) -> Iterator[tuple[str, Object]]:
        """Changes of the pods since a version, as (type, pod); ends by itself after a while.

        Types are ADDED, MODIFIED and DELETED.
        """
        for event in self._cluster.watch(PODS, version, WATCH_S, **self._selectors):
            if (kind := word(event, "type")) != "BOOKMARK":
                yield kind, part(event, "object")

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
