"""Events, by which `kubectl describe pod` says what a pod waits for."""

import logging
import socket
import time
from collections import deque
from collections.abc import Mapping

from advisor_kubernetes.chooser.pods import Pod
from advisor_kubernetes.cluster import Cluster, ClusterError
from advisor_kubernetes.objects import event_of

LOG = logging.getLogger("advisor.kubernetes")


_MOST, _WITHIN_S = 5, 300.0
"""So often at most it is said of a pod in a while what it waits for: of many kinds of pods others
are looked at each second, so that the reason changes all the time."""


class Events:
    """Says things about pods, each once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._said: dict[str, str] = {}
        self._waits: dict[str, deque[float]] = {}
        self._said_of_nodes: dict[str, str] = {}

    def say(self, pod: Pod, reason: str, text: str, *, kind: str = "Normal") -> None:
        """Say something about a pod, unless it was the last thing that was said of it."""
        if self._said.get(pod.uid) != text:
            self._said[pod.uid] = text
            involved = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
            self._send(involved, kind, reason, text)

    def say_it_waits(self, pod: Pod, text: str, *, held_up: bool) -> None:
        """Say what a pod waits for, unless that was said lately, or often."""
        now_s = time.monotonic()
        said_s = self._waits.setdefault(pod.uid, deque(maxlen=_MOST))
        is_new = self._said.get(pod.uid) != text
        if is_new and (len(said_s) < _MOST or now_s - said_s[0] > _WITHIN_S):
            said_s.append(now_s)
            self.say(pod, "WaitsForGpu", text, kind="Warning" if held_up else "Normal")

    def say_of_node(self, name: str, reason: str, text: str) -> None:
        """Warn of a node, once; its events are where those of the kubelet are."""
        if self._said_of_nodes.get(name) != text:
            self._said_of_nodes[name] = text
            involved = {"kind": "Node", "name": name, "uid": name}
            self._send(involved, "Warning", reason, text)

    def _send(self, involved: Mapping[str, str], kind: str, reason: str, text: str) -> None:
        source = {"component": "advisor", "host": socket.gethostname()}
        try:
            event = event_of(involved, source, kind, reason, text)
            namespace = event["metadata"]["namespace"]
            self._cluster.post(f"/api/v1/namespaces/{namespace}/events", event)
        except ClusterError as error:
            # An event is news, and no part of what was done.
            LOG.warning("no event for %s: %s", involved["name"], error)

    def forget(self, uids: set[str]) -> None:
        """Keep only what was said of these pods."""
        self._said = {uid: text for uid, text in self._said.items() if uid in uids}
        self._waits = {uid: said_s for uid, said_s in self._waits.items() if uid in uids}
