"""Events, by which `kubectl describe pod` says what a pod waits for."""

import logging
import os
import socket
from datetime import UTC, datetime

from advisor_kubernetes.chooser.pods import Pod
from advisor_kubernetes.cluster import Cluster, ClusterError

LOG = logging.getLogger("advisor.kubernetes")

_LONGEST = 1000
"""Characters of a message; the API takes 1024."""


class Events:
    """Says things about pods, each once.

    Args:
        cluster: The API server.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._said: dict[str, str] = {}

    def say(self, pod: Pod, reason: str, text: str, *, kind: str = "Normal") -> None:
        """Say something about a pod, unless it was the last thing that was said of it."""
        if self._said.get(pod.uid) == text:
            return
        self._said[pod.uid] = text
        try:
            self._cluster.post(
                f"/api/v1/namespaces/{pod.namespace}/events", _event(pod, reason, text, kind)
            )
        except ClusterError as error:
            # An event is news, and no part of what was done.
            LOG.warning("no event for %s: %s", pod.key, error)

    def forget(self, uids: set[str]) -> None:
        """Keep only what was said of these pods."""
        self._said = {uid: text for uid, text in self._said.items() if uid in uids}


def _event(pod: Pod, reason: str, text: str, kind: str) -> dict[str, object]:
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = pod.key.partition("/")[2]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:200]}.{os.urandom(8).hex()}", "namespace": pod.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": name,
            "namespace": pod.namespace,
            "uid": pod.uid,
        },
        "reason": reason,
        "message": text[:_LONGEST],
        "type": kind,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "source": {"component": "advisor", "host": socket.gethostname()},
    }
