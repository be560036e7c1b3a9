"""What the chooser keeps between rounds: agents heard, events, the mirror, the Lease, errors."""

import itertools
import sys
import threading
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from certificates import make_certificate
from kube_api import cluster_at, kube_api
from kube_objects import Call, KubeApi, away, merged
from kube_serving import admitted, make_node, pod_of
from typer.testing import CliRunner
from waiting import eventually

from advisor.errors import InputError
from advisor_cli import app as command_line
from advisor_kubernetes import cluster, serve
from advisor_kubernetes.cluster import (
    NODES,
    PODS,
    ClusterError,
    ObjectMirror,
    connect,
    list_of,
)
from advisor_kubernetes.pairing import GpuSlot, Node, read_pod
from advisor_kubernetes.serve import SILENT_S, Agents, Events, Lease

GPU = GpuSlot(key="GPU-1", model="H100")
NODE = Node(name="one", labels={}, taints=(), gpus=(GPU,), checked_at="10:00")


@pytest.mark.parametrize(
    "looks",
    [
        # Seconds, what the annotation says, and whether the GPUs of the node are used.
        [(0, "10:00", True), (SILENT_S, "10:00", True), (SILENT_S + 1, "10:00", False),
         (SILENT_S + 2, "09:00", True)],
        [(0, "10:00", True), (SILENT_S, None, False), (5 * SILENT_S, "10:00", True)],
        [(0, "", True), (9 * SILENT_S, "", True)],
    ],
)  # fmt: skip
def test_an_agent_that_is_silent_is_not_heard(looks: list[tuple[float, str | None, bool]]) -> None:
    """Only a change of the text counts; a site may write an annotation that nobody renews."""
    agents = Agents()
    for now_s, checked_at, heard in looks:
        nodes = [] if checked_at is None else [replace(NODE, checked_at=checked_at)]
        assert agents.heard(nodes, now_s) == (nodes if heard else [])


def test_reasons_that_change_all_the_time_are_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second another kind of pods is looked at, so the reason changes each second."""
    api = Mock()
    told = Events(api)
    pods = (merged(admitted(pod_of(uid, uid)), {"metadata": {"uid": uid}}) for uid in "ab")
    a, b = map(read_pod, pods)

    def messages() -> list[str]:
        return [call.args[1]["message"] for call in api.post.call_args_list]

    monkeypatch.setattr(serve, "_WITHIN_S", 3600.0)
    for turn in range(100):
        told.say_it_waits(a, f"not beside {turn % 7}", held_up=False)
    assert messages() == [f"not beside {turn}" for turn in range(5)]
    told.say_it_waits(b, "waits", held_up=True)
    told.say(a, "GotGpu", "50 %")
    assert messages()[5:] == ["waits", "50 %"]
    monkeypatch.setattr(serve, "_WITHIN_S", 0.0)
    told.say_it_waits(a, "after a while", held_up=False)
    told.forget({"b"})
    assert messages()[7:] == ["after a while"]


LEASE = "/apis/coordination.k8s.io/v1/namespaces/advisor/leases/advisor-chooser"


@pytest.fixture
def api() -> Generator[KubeApi]:
    """A cluster with one node."""
    with kube_api() as server:
        make_node(server, "n", "GPU-1")
        yield server


@pytest.fixture
def kept(api: KubeApi) -> Generator[ObjectMirror]:
    """A mirror of the nodes that has listed them."""
    stopping = threading.Event()
    made = ObjectMirror(cluster_at(api.url), NODES, lambda: None)
    thread = threading.Thread(target=made.run, args=(stopping,), daemon=True)
    thread.start()
    eventually(lambda: made.synced.is_set() and api.is_watched)
    yield made
    stopping.set()
    api.end_watches()
    thread.join(20)


def labels(kept: ObjectMirror) -> dict[str, dict[str, str]]:
    return {n["metadata"]["name"]: n["metadata"]["labels"] for n in kept.objects()}


def test_a_late_event_undoes_nothing(api: KubeApi, kept: ObjectMirror) -> None:
    """Else a GPU would look free that was just given away."""
    [node] = kept.objects()
    metadata = {**node["metadata"], "resourceVersion": "1000", "labels": {"by": "us"}}
    kept.put({**node, "metadata": metadata})
    api.change(f"{NODES}/n", {"metadata": {"labels": {"by": "another"}}})
    make_node(api, "later")
    eventually(lambda: "later" in labels(kept))
    assert labels(kept)["n"] == {"by": "us"}


def test_a_late_answer_brings_back_nothing_that_is_gone(api: KubeApi, kept: ObjectMirror) -> None:
    """Else a pod that was deleted as it was written would hold its GPU for ever."""
    [node] = kept.objects()
    api.delete(f"{NODES}/n")
    eventually(lambda: not kept.objects())
    kept.put(node)
    assert kept.objects() == []


def test_a_server_that_fails_is_asked_with_pauses(
    api: KubeApi, kept: ObjectMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has enough to do; what was missed is there when it answers again."""
    monkeypatch.setattr(cluster, "_PAUSE_S", 0.1)
    asked_s: list[float] = []

    def refuse(call: Call) -> None:
        asked_s.append(time.monotonic())
        away(call)

    answers, api.refuse = api.refuse, refuse
    api.end_watches()
    eventually(lambda: len(asked_s) > 4)
    api.change(f"{NODES}/n", {"metadata": {"labels": {"by": "another"}}})
    api.refuse = answers
    eventually(lambda: labels(kept)["n"].get("by") == "another")
    # The first failure is that of the watch that ended.
    assert min(b - a for a, b in itertools.pairwise(asked_s[1:])) >= 0.1


def test_a_lease_is_lost_and_taken_by_our_own_clock(
    api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder renewed it long ago by another clock; an API server that is away ends nothing."""
    monkeypatch.setattr(serve, "RENEW_S", 0.0)
    spec = {"holderIdentity": "other", "renewTime": "2001-01-01T00:00:00Z"}
    api.create(LEASE.rpartition("/")[0], {"metadata": {"name": "advisor-chooser"}, "spec": spec})
    ours = Lease(cluster_at(api.url), "advisor", "we")
    assert not ours.take()
    monkeypatch.setattr(serve, "HELD_S", 0.5)
    eventually(ours.take)
    assert api.get(LEASE)["spec"]["holderIdentity"] == "we"
    answers, api.refuse = api.refuse, away
    with pytest.raises(ClusterError):
        ours.take()
    eventually(lambda: not ours.is_held)
    api.refuse = answers
    eventually(ours.take)


def test_without_a_cluster_it_says_where_one_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    module = sys.modules["kubernetes.config.kube_config"]
    monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "nothing"))
    with pytest.raises(InputError, match="set KUBECONFIG"):
        connect()


def test_answers_that_are_none_are_errors_with_a_status(api: KubeApi) -> None:
    api.refuse = away
    with pytest.raises(ClusterError, match=r"503\. away") as refused:
        list_of(cluster_at(api.url), PODS)
    with pytest.raises(ClusterError, match="no answer to GET") as absent:
        cluster_at("http://127.0.0.1:9").get(PODS)
    assert (refused.value.status, absent.value.status) == (503, None)


def test_serve_says_what_is_wrong_with_its_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A key of another certificate is noticed at the start, not by the API server."""
    one, other = make_certificate(tmp_path, "one"), make_certificate(tmp_path, "other")
    monkeypatch.setattr(
        "advisor_kubernetes.cluster.connect", lambda: cluster_at("http://127.0.0.1:9")
    )
    options = ["--tls-certificate", str(one.certificate), "--tls-key", str(other.key)]
    done = CliRunner().invoke(command_line.app, ["kubernetes", "serve", *options])
    assert isinstance(done.exception, InputError)
    assert "TLS cannot use" in str(done.exception)
