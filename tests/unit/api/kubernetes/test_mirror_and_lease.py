"""What the chooser's copy of the cluster and its Lease promise, and the client's own do not."""

import itertools
import threading
import time
from collections.abc import Generator

import pytest
from kube_api import cluster_at, kube_api
from kube_objects import Call, KubeApi, away
from kube_serving import make_node
from waiting import eventually

from advisor_kubernetes import cluster
from advisor_kubernetes.chooser import chooser
from advisor_kubernetes.chooser.chooser import Lease
from advisor_kubernetes.cluster import NODES, ClusterError, ObjectMirror

LEASE = "/apis/coordination.k8s.io/v1/namespaces/advisor/leases/advisor-chooser"


@pytest.fixture
def api() -> Generator[KubeApi]:
    """A cluster with one node."""
    with kube_api() as server:
        make_node(server, "n", "GPU-1")
        yield server


@pytest.fixture
def nodes(api: KubeApi) -> Generator[tuple[ObjectMirror, threading.Event]]:
    """A mirror of the nodes that has listed them; the event is set at each change."""
    changed, stopping = threading.Event(), threading.Event()
    kept = ObjectMirror(cluster_at(api.url), NODES, changed.set)
    thread = threading.Thread(target=kept.run, args=(stopping,), daemon=True)
    thread.start()
    eventually(lambda: kept.synced.is_set() and api.is_watched)
    changed.clear()
    yield kept, changed
    stopping.set()
    api.end_watches()
    thread.join(20)


def labels(kept: ObjectMirror) -> dict[str, str]:
    [node] = kept.objects()
    return node["metadata"]["labels"]


def test_a_late_event_undoes_nothing(
    api: KubeApi, nodes: tuple[ObjectMirror, threading.Event]
) -> None:
    """Else a GPU would look free that was just given away."""
    kept, changed = nodes
    [node] = kept.objects()
    metadata = {**node["metadata"], "resourceVersion": "1000", "labels": {"by": "us"}}
    kept.put({**node, "metadata": metadata})
    api.change(f"{NODES}/n", {"metadata": {"labels": {"by": "another"}}})
    assert changed.wait(20)
    assert labels(kept) == {"by": "us"}


def test_a_late_answer_brings_back_nothing_that_is_gone(
    api: KubeApi, nodes: tuple[ObjectMirror, threading.Event]
) -> None:
    """Else a pod that was deleted as it was written would hold its GPU for ever."""
    kept, _ = nodes
    [node] = kept.objects()
    api.delete(f"{NODES}/n")
    eventually(lambda: not kept.objects())
    kept.put(node)
    assert kept.objects() == []


def test_a_server_that_fails_is_asked_with_pauses(
    api: KubeApi, nodes: tuple[ObjectMirror, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has enough to do; what was missed is there when it answers again."""
    monkeypatch.setattr(cluster, "_PAUSE_S", 0.1)
    kept, _ = nodes
    asked_s: list[float] = []

    def refuse(call: Call) -> None:
        asked_s.append(time.monotonic())
        away(call)

    answers, api.refuse = api.refuse, refuse
    api.end_watches()
    eventually(lambda: len(asked_s) > 4)
    api.change(f"{NODES}/n", {"metadata": {"labels": {"by": "another"}}})
    api.refuse = answers
    eventually(lambda: labels(kept).get("by") == "another")
    # The first failure is that of the watch that ended.
    assert min(b - a for a, b in itertools.pairwise(asked_s[1:])) >= 0.1


def test_clocks_of_hosts_are_not_compared(api: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Lease that was renewed long ago by its holder's clock is held, until it is seen to rest."""
    monkeypatch.setattr(chooser, "RENEW_S", 0.0)
    spec = {
        "holderIdentity": "other",
        "leaseDurationSeconds": 15,
        "renewTime": "2001-01-01T00:00:00Z",
    }
    api.create(LEASE.rpartition("/")[0], {"metadata": {"name": "advisor-chooser"}, "spec": spec})
    ours = Lease(cluster_at(api.url), "advisor", "we")
    assert not ours.take()
    monkeypatch.setattr(chooser, "HELD_S", 0.1)
    eventually(ours.take)
    assert api.get(LEASE)["spec"]["holderIdentity"] == "we"


def test_a_lease_that_cannot_be_renewed_is_lost_and_taken_again(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one's own clock, before another may take it; an API server that is away ends nothing."""
    monkeypatch.setattr(chooser, "RENEW_S", 0.0)
    monkeypatch.setattr(chooser, "HELD_S", 0.5)
    ours = Lease(cluster_at(api.url), "advisor", "we")
    eventually(ours.take)

    answers, api.refuse = api.refuse, away
    with pytest.raises(ClusterError):
        ours.take()
    eventually(lambda: not ours.is_held)
    api.refuse = answers
    eventually(ours.take)
