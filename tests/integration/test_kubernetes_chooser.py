"""The chooser against an API server that refuses, forgets and changes things under it."""

import os
import signal
import socket
import threading
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from kube_answers import ANSWER
from kube_api import cluster_at, kube_api
from kube_objects import Call, KubeApi, RefusedError
from kube_serving import admitted, kube_serving, make_node, pod_of, said
from scripted_http import Reply, scripted_http
from waiting import eventually

from advisor.client import Client
from advisor_kubernetes import names
from advisor_kubernetes import serve as lease
from advisor_kubernetes.cluster import NODES
from advisor_kubernetes.pairing import Policy
from advisor_kubernetes.serve import Choosing
from advisor_node.advice import Answer, AskAdvice, Question, Together

pytestmark = pytest.mark.slow

ANY = Policy()

PODS = "/api/v1/namespaces/default/pods"


def knows(asked: Collection[Question]) -> Mapping[Question, Answer]:
    """Answers every question at once: 26/50."""
    good = Together(shares=("26", "50"), needs_mib=(None, None), energy_saved=0.2, split="26/50")
    return dict.fromkeys(asked, good)


@pytest.fixture
def api() -> Generator[KubeApi]:
    """A cluster with one GPU."""
    with kube_api() as server:
        make_node(server, "node-1", "GPU-1")
        yield server


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chooser that is killed cannot give its Lease back."""
    monkeypatch.setattr(lease, "HELD_S", 1)
    monkeypatch.setattr(lease, "RENEW_S", 0.2)


@contextmanager
def choosing(
    api: KubeApi,
    answers: AskAdvice = knows,
    *,
    service: str | None = None,
    policy: Policy = ANY,
) -> Generator[Choosing]:
    """A chooser in threads, which asks the service at an address; or knows the advice."""
    with Client(service or "http://127.0.0.1:9", timeout_s=0.3) as client:
        found = Choosing(cluster_at(api.url), client, "advisor", policy)
        if service is None:
            tell(found, answers)
        with found.running():
            yield found


def tell(found: Choosing, answers: AskAdvice) -> None:
    """Have a chooser take its advice from elsewhere."""
    changed: Any = found
    changed._advice = Mock(answers=answers)


def metric(found: Choosing, name: str) -> float:
    """A number of `/metrics`."""
    lines = found.metrics.text().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[-1])


def make_pods(api: KubeApi, *pods: str, max_wait_s: str = "60") -> None:
    for name in pods:
        api.create_pod(admitted(pod_of(name, "fft", max_wait_s=max_wait_s)))


def open_(api: KubeApi, *pods: str) -> bool:
    return not any(api.pod(name)["spec"].get("schedulingGates") for name in pods)


def notes(api: KubeApi, name: str) -> dict[str, str]:
    return api.pod(name)["metadata"]["annotations"]


def shares(api: KubeApi, *pods: str) -> list[str]:
    return sorted(notes(api, name)[names.SHARE_PERCENT] for name in pods)


def is_pod_patch(call: Call) -> bool:
    return call.method == "PATCH" and "/pods/" in call.path


def test_write_that_comes_too_late_is_made_again(api: KubeApi) -> None:
    """The pod changes between the look and the write, really: the API server says 409."""
    changed: list[str] = []

    def refuse(call: Call) -> None:
        if is_pod_patch(call) and len(changed) < 2:
            changed.append(call.path)
            api.change(call.path, {"metadata": {"labels": {"by": f"another-{len(changed)}"}}})

    api.refuse = refuse
    with choosing(api) as found:
        make_pods(api, "a", "b")
        eventually(lambda: open_(api, "a", "b"))
        assert metric(found, "advisor_kubernetes_write_conflicts_total") == 2
    assert shares(api, "a", "b") == ["26", "50"]
    assert api.pod("a")["metadata"]["labels"]["advisor.dev/managed"] == "true"


@pytest.mark.usefixtures("short_lease")
def test_a_write_ends_before_the_lease(api: KubeApi) -> None:
    """Else an API server that hangs would take it when another process chooses already."""
    began_s: list[float] = []
    answered = threading.Event()

    def refuse(call: Call) -> None:
        if is_pod_patch(call):
            began_s.append(time.monotonic())
            if len(began_s) == 1:
                answered.wait(30)
                raise RefusedError(500)

    api.refuse = refuse
    make_pods(api, "a", max_wait_s="0")
    with choosing(api):
        eventually(lambda: open_(api, "a"))
        answered.set()
    # The pause after a write that failed is of a second, too.
    assert began_s[1] - began_s[0] < 5


@pytest.mark.usefixtures("short_lease")
def test_chooser_killed_between_the_two_patches(api: KubeApi, tmp_path: Path) -> None:
    """Kill -9 after the first patch: the next chooser writes the second pod from the first."""
    killed = threading.Event()
    written: list[str] = []

    def refuse(call: Call) -> None:
        if is_pod_patch(call):
            written.append(call.path)
            if len(written) == 2:
                os.kill(served.process.pid, signal.SIGKILL)
                killed.set()
                raise RefusedError(500)

    with (
        scripted_http() as service,
        kube_serving(tmp_path, api, service.url, "--log-level", "warning") as served,
    ):
        service.will(Reply(body={"answers": [{"answer": ANSWER, "error": None}]}))
        api.refuse = refuse
        make_pods(api, "a", "b")
        assert killed.wait(60), served.log.read_text()
    [first] = [name for name in ("a", "b") if open_(api, name)]
    [second] = {"a", "b"} - {first}
    assert names.SHARE_PERCENT not in notes(api, second)
    api.refuse = lambda call: None
    with choosing(api, lambda _: {}):
        eventually(lambda: open_(api, second))
    assert shares(api, "a", "b") == ["26", "50"]
    assert notes(api, second)[names.PARTNER] == f"default/{first}"
    assert notes(api, second)[names.GPU_UUID] == "GPU-1"


def test_a_pod_deleted_before_its_patch_is_a_conflict(api: KubeApi) -> None:
    """The API server says 404; a later pod of that name is another, and shares as any other."""
    deleted: list[str] = []

    def refuse(call: Call) -> None:
        if is_pod_patch(call) and not deleted:
            deleted.append(call.path)
            api.delete(call.path)

    api.refuse = refuse
    with choosing(api) as found:
        make_pods(api, "a", "b")
        eventually(lambda: metric(found, "advisor_kubernetes_write_conflicts_total"))
        make_pods(api, deleted[0].rpartition("/")[2])
        eventually(lambda: open_(api, "a", "b"))
    assert shares(api, "a", "b") == ["26", "50"]


def test_watches_that_break_lose_nothing(api: KubeApi) -> None:
    """A server that restarts ends them; one that has forgotten the past says 410."""
    with choosing(api) as found:
        eventually(lambda: found.ready)
        for turn in range(2):
            names_ = (f"a{turn}", f"b{turn}")
            make_node(api, f"more-{turn}", f"GPU-more-{turn}")
            api.forget_the_past()
            make_pods(api, *names_)
            eventually(lambda pods=names_: open_(api, *pods))
            assert notes(api, names_[0])[names.PARTNER] == f"default/{names_[1]}"


def test_absent_service_holds_pods_and_says_why(api: KubeApi) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with choosing(api, service=closed, policy=Policy(without_advice="hold")) as found:
        make_pods(api, "a", "b", max_wait_s="1")
        for name in "ab":
            eventually(lambda pod=name: any("held, no advice" in text for text in said(api, pod)))
            assert not open_(api, name)
        event = next(e for e in api.events() if "held, no advice" in e["message"])
        assert event["type"] == "Warning"
        tell(found, knows)
        eventually(lambda: open_(api, "a", "b"))
    assert shares(api, "a", "b") == ["26", "50"]


def metric_of(found: Choosing, outcome: str) -> float:
    return metric(found, f'advisor_kubernetes_pods_decided_total{{outcome="{outcome}"}}')


def test_pods_that_cannot_be_read_or_written_stop_nobody(api: KubeApi) -> None:
    def refuse(call: Call) -> None:
        if is_pod_patch(call) and call.path.endswith("/stuck"):
            raise RefusedError(403, "denied by a policy of the site")

    api.refuse = refuse
    for name, metadata in (
        ("forged", {"labels": {names.MANAGED: "true"}}),
        ("odd", {"labels": {names.MANAGED: "true"}, "annotations": {names.JOB: "!"}}),
    ):
        api.create(PODS, {"metadata": {"name": name, **metadata}, "spec": {"containers": []}})
    make_pods(api, "stuck", max_wait_s="0")
    with choosing(api):
        eventually(lambda: any("denied by a policy of the site" in t for t in said(api, "stuck")))
        make_pods(api, "a", "b")
        eventually(lambda: open_(api, "a", "b"))
    assert not open_(api, "stuck")
    assert notes(api, "a")[names.PARTNER] == "default/b"


def test_one_of_two_chooses(api: KubeApi) -> None:
    """The Lease says which; when it ends in good order the other takes over at once."""
    with choosing(api) as second:
        eventually(lambda: metric(second, "advisor_kubernetes_chooser_leads") == 1)
        with choosing(api) as first:
            eventually(lambda: first.ready)
            make_pods(api, "a", "b")
            eventually(lambda: open_(api, "a", "b"))
            eventually(lambda: metric_of(second, "paired") == 2)
            assert metric_of(first, "paired") == 0
    [path] = [path for path in api.objects if "/leases/" in path]
    assert api.get(path)["spec"]["holderIdentity"] == ""


def test_node_whose_device_plugin_offers_gpus_is_told_of(api: KubeApi) -> None:
    api.change(f"{NODES}/node-1", {"status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    with choosing(api) as found:
        [told] = eventually(lambda: said(api, "node-1"))
        assert "its device plugin offers 8 nvidia.com/gpu" in told
        assert metric(found, "advisor_kubernetes_nodes_refused") == 1
        assert not found.is_full


def test_every_process_knows_when_no_gpu_is_free(api: KubeApi) -> None:
    with choosing(api) as first, choosing(api) as second:
        eventually(lambda: first.ready and second.ready)
        assert not first.is_full
        make_pods(api, "a", max_wait_s="0")
        eventually(lambda: first.is_full and second.is_full)
        api.delete(f"{PODS}/a")
        eventually(lambda: not first.is_full and not second.is_full)
