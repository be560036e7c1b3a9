"""The loop that finds a partner, a GPU and a split for pods that wait."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from advisor.errors import AdvisorError
from advisor_api.http.gate import HttpMetrics
from advisor_kubernetes import names
from advisor_kubernetes.chooser.books import gpus_allowed
from advisor_kubernetes.chooser.clocks import Agents, Ages
from advisor_kubernetes.chooser.events import Events
from advisor_kubernetes.chooser.lease import Lease
from advisor_kubernetes.chooser.pairing import PodDecision, Policy, Round, Stay
from advisor_kubernetes.chooser.places import Node, added, read_node, requested
from advisor_kubernetes.chooser.pods import Pod, read_pod
from advisor_kubernetes.chooser.writing import Write, unfinished, writes_of
from advisor_kubernetes.cluster import NODES, PODS, QUOTAS, Cluster, ClusterError
from advisor_kubernetes.mirror import ObjectMirror
from advisor_kubernetes.objects import Object, part, word
from advisor_node.advice import Advice

T = TypeVar("T")

LOG = logging.getLogger("advisor.kubernetes")

_TICK_S = 1.0
"""Time passes for pods that wait, whether anything changes or not."""

_LEFT_ALONE_S = 60.0
"""Before a pod that could not be written is tried again."""

_GATHER_S = 0.05
"""What changes together is looked at together."""


class ChooserMetrics:
    """What `/metrics` shows of the chooser."""

    def __init__(self, metrics: HttpMetrics) -> None:
        self.waiting = metrics.gauge(
            "kubernetes_pods_waiting", "Pods behind the gate, where this leads"
        )
        self.leading = metrics.gauge("kubernetes_chooser_leads", "1 where this process chooses")
        self.decided = metrics.counter("kubernetes_pods_decided", "Pods given a GPU", ("outcome",))
        for outcome in ("paired", "joined", "alone"):
            self.decided.labels(outcome)
        self.conflicts = metrics.counter(
            "kubernetes_write_conflicts", "Writes that came after another change of the pod"
        )
        self.refused = metrics.gauge(
            "kubernetes_nodes_refused", "Nodes whose device plugin offers the same GPUs"
        )
        self.longest = metrics.gauge(
            "kubernetes_longest_wait_seconds", "Of the pod behind the gate that waits longest"
        )


class Chooser:
    """Watches pods and nodes, and decides.

    Attributes:
        is_full: Whether all GPUs that pods may share are held, as of the last look.
    """

    def __init__(
        self, cluster: Cluster, advice: Advice, lease: Lease, policy: Policy, counts: ChooserMetrics
    ) -> None:
        self._cluster, self._advice, self._lease = cluster, advice, lease
        self._policy = policy
        self._counts, self._events = counts, Events(cluster)
        self._changed = threading.Event()
        managed = f"{names.MANAGED}=true"
        changed = self._changed.set
        self.pods = ObjectMirror(cluster, PODS, changed, labelSelector=managed)
        self.nodes = ObjectMirror(cluster, NODES, changed)
        self.quotas = ObjectMirror(cluster, QUOTAS, changed)
        # What they ask of nodes; that one of them changes is no reason to look again.
        self.others = ObjectMirror(
            cluster, PODS, lambda: None, kept=_asked_of_node,
            labelSelector=f"{names.MANAGED}!=true", fieldSelector="spec.nodeName!=",
        )  # fmt: skip
        self._agents, self._ages = Agents(), Ages()
        self._unreadable: set[str] = set()
        # What was read in this turn and in the one before, by uid and version.
        self._now: dict[object, Any] = {}
        self._before: dict[object, Any] = {}
        self._left_alone: dict[str, float] = {}
        self.last_round_s = time.monotonic()
        self.is_full = False

    def run(self, stopping: threading.Event) -> None:
        """Choose until the end; nothing that goes wrong ends it."""
        while not stopping.is_set():
            if self._changed.wait(_TICK_S):
                stopping.wait(_GATHER_S)
            self._changed.clear()
            try:
                self._turn()
            except AdvisorError as error:
                LOG.warning("%s", error)
                stopping.wait(_TICK_S)
            except Exception:  # a fault of ours must not leave all pods waiting for ever
                LOG.exception("an internal error")
                stopping.wait(_TICK_S)
            self.last_round_s = time.monotonic()
        with contextlib.suppress(AdvisorError):  # else the next one waits until it has run out
            self._lease.give_up()

    def _turn(self) -> None:
        leads = self._lease.take()
        self._counts.leading.set(leads)
        if self.synced:
            self._before, self._now = self._now, {}
            nodes = self._read(self.nodes.objects(), read_node)
            self._count_free(nodes)
            if leads:
                self._round(nodes)

    @property
    def mirrors(self) -> Sequence[ObjectMirror]:
        """What it sees the cluster by."""
        return self.pods, self.nodes, self.quotas, self.others

    @property
    def synced(self) -> bool:
        """Whether all of it was listed once."""
        return all(mirror.synced.is_set() for mirror in self.mirrors)

    def _count_free(self, nodes: Iterable[Node]) -> None:
        held = {pod.holds for pod in self._pods()}
        there = [gpu.uuid for node in nodes for gpu in node.gpus]
        self.is_full = bool(there) and held.issuperset(there)

    def _round(self, nodes: Sequence[Node]) -> None:
        hostnames = {node.name: node.labels.get(names.HOSTNAME, node.name) for node in nodes}
        now = time.monotonic()
        self._left_alone = {uid: end for uid, end in self._left_alone.items() if end > now}
        for write in unfinished(self._pods(), hostnames):
            if write.pod.uid not in self._left_alone:
                self._write([write], "paired")
        pods = self._ages.aged(self._pods(), time.time(), now)
        self._events.forget({pod.uid for pod in pods})
        waits_s = [time.time() - pod.created_s for pod in pods if pod.waits]
        self._counts.waiting.set(len(waits_s))
        self._counts.longest.set(max(waits_s, default=0.0))
        refused = [node for node in nodes if node.refused]
        self._counts.refused.set(len(refused))
        for node in refused:
            self._events.say_of_node(node.name, "GpusOfferedTwice", node.refused)
        for decision in self._decisions(pods, self._agents.heard(nodes, now)):
            self._carry_out(decision)

    def _pods(self) -> list[Pod]:
        return self._read(self.pods.objects(), read_pod)

    def _decisions(self, pods: Sequence[Pod], nodes: Sequence[Node]) -> Iterable[PodDecision]:
        allowed, unread = gpus_allowed(self.quotas.objects())
        return Round(
            pods=pods,
            nodes=nodes,
            ask=self._advice.answers,
            now_s=time.time(),
            policy=self._policy,
            allowed=allowed,
            unread=unread,
            others=_by_node(self.others.objects()),
            left_alone=self._left_alone,
        ).decide()

    def _carry_out(self, decision: PodDecision) -> None:
        if isinstance(decision, Stay):
            self._events.say_it_waits(decision.pod, decision.why, held_up=decision.held_up)
            return
        outcome = "paired" if len(decision.pods) > 1 else "joined" if decision.beside else "alone"
        self._write(writes_of(decision), outcome)

    def _write(self, writes: list[Write], outcome: str) -> None:
        """Write one pod after the other; where one has changed, the next round looks again."""
        for write in writes:
            if not self._lease.take():  # a long round must not outlast it, nor a slow write
                return
            try:
                self.pods.put(self._cluster.patch(write.pod.path, write.body, self._lease.left_s))
            except ClusterError as error:
                self._not_written(write.pod, error)
                return
            self._counts.decided.labels(outcome).inc()
            given = write.given
            text = f"{given.share} % of the SMs of {given.gpu_uuid or write.pod.claim}: {given.why}"
            self._events.say(write.pod, "GotGpu", text)

    def _not_written(self, pod: Pod, error: ClusterError) -> None:
        if error.is_conflict:
            self._counts.conflicts.inc()
        elif error.is_of_object:
            # The others must not wait for a pod that something else refuses for ever.
            self._left_alone[pod.uid] = time.monotonic() + _LEFT_ALONE_S
            self._events.say(pod, "NotWritten", str(error), kind="Warning")
        else:
            raise error

    def _read(self, items: Iterable[Object], read: Callable[[Object], T]) -> list[T]:
        """Those that can be read, each version once; of others is said once why not."""
        found: list[T] = []
        for item in items:
            key = str(part(item, "metadata").get("uid")), item["metadata"].get("resourceVersion")
            try:
                one = self._now.get(key) or self._before.get(key) or read(item)
                self._now[key] = one
                found.append(one)
            except AdvisorError as error:
                if str(error) not in self._unreadable:
                    self._unreadable.add(str(error))
                    LOG.warning("%s: %s", item.get("metadata", {}).get("name"), error)
        return found


def _asked_of_node(item: Object) -> Object:
    """What is kept of a pod that is none of ours: there may be ten thousand."""
    spec, metadata = part(item, "spec"), part(item, "metadata")
    over = part(item, "status").get("phase") in ("Succeeded", "Failed")
    return {
        "metadata": {key: metadata.get(key) for key in ("uid", "resourceVersion")},
        "node": "" if over else word(spec, "nodeName"),
        "requested": {} if over else requested(spec),
    }


def _by_node(items: Iterable[Object]) -> Mapping[str, Mapping[str, float]]:
    found: dict[str, Mapping[str, float]] = {}
    for item in items:
        found[item["node"]] = added(found.get(item["node"], {}), item["requested"])
    return found
