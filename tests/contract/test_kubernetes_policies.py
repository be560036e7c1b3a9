"""What the API server decides by expressions of the chart (CEL), evaluated here by Rust's `cel`.

Kubernetes has functions of its own in CEL; the chart uses none of them. A kube-apiserver 1.36.2 has
compiled the first condition; the others it has not seen yet.
"""

from typing import Any

import pytest
from kube_objects import Object, merged
from kube_serving import admitted, node_of, pod_of

from advisor_kubernetes import names
from advisor_kubernetes.pairing import GpuSlot, Node, Pod, Start

cel: Any = pytest.importorskip("cel", reason="needs the package common-expression-language")

from test_kubernetes_chart import one, rendered  # noqa: E402 - it needs Helm


@pytest.fixture(scope="module")
def chart() -> list[Object]:
    return rendered()


@pytest.fixture(scope="module")
def conditions(chart: list[Object]) -> list[str]:
    [hook] = one(chart, "MutatingWebhookConfiguration", "advisor-webhook")["webhooks"]
    return [condition["expression"] for condition in hook["matchConditions"]]


def is_sent(conditions: list[str], new: Object, old: Object | None, part: str = "") -> bool:
    """Whether the webhook is asked about a request."""
    # What is empty is not there: so the API server hands it to expressions.
    known = {"object": new, "oldObject": old, "request": {"subResource": part} if part else {}}
    return all(cel.evaluate(condition, known) for condition in conditions)


def plain() -> Object:
    """A pod that says nothing of sharing."""
    pod = pod_of("a", "fft")
    del pod["metadata"]["annotations"]
    return pod


def test_new_pods_are_sent_where_they_speak_of_sharing(conditions: list[str]) -> None:
    assert not is_sent(conditions, plain(), None)
    assert is_sent(conditions, pod_of("a", "fft"), None)
    labelled = merged(plain(), {"metadata": {"labels": {names.MANAGED: "true"}}})
    assert is_sent(conditions, labelled, None)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"metadata": {"finalizers": None}},
        {"metadata": {"labels": {"team": "a"}}},
        {"metadata": {"annotations": {"example.com/note": "x"}}},
        {"status": {"phase": "Succeeded"}},
    ],
)
def test_updates_that_change_nothing_of_ours_are_not_sent(
    conditions: list[str], change: Object
) -> None:
    """So a finished Job is finished, and its pods are deleted, while the webhook is down."""
    old = admitted(pod_of("a", "fft"))
    old["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    assert not is_sent(conditions, merged(old, change), old)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {names.SHARE_PERCENT: "100"}}},
        {"metadata": {"annotations": {names.JOB: "another"}}},
        {"metadata": {"annotations": {names.JOB: None}}},
        {"metadata": {"annotations": None}},
        {"metadata": {"labels": {names.MANAGED: None}}},
        {"spec": {"schedulingGates": None}},
    ],
)
def test_updates_of_what_is_ours_are_sent(conditions: list[str], change: Object) -> None:
    old = admitted(pod_of("a", "fft"))
    assert is_sent(conditions, merged(old, change), old)


def test_who_asks_again_for_the_gpu_that_was_taken_away_is_sent(conditions: list[str]) -> None:
    """`kubectl apply` of the same manifest does; and containers for debugging are looked at."""
    old = admitted(pod_of("a", "fft"))
    new = merged(old, {"spec": {"containers": pod_of("a", "fft")["spec"]["containers"]}})
    assert is_sent(conditions, new, old)
    assert is_sent(conditions, old, old, "ephemeralcontainers")
    assert not is_sent(conditions, old, old)


CHOOSER = "system:serviceaccount:gpu-sharing:advisor-webhook"
AGENT = "system:serviceaccount:gpu-sharing:advisor-agent"


def denied(
    chart: list[Object], name: str, new: Object, old: Object | None, who: str, node: str = "n"
) -> list[str]:
    """Messages of a policy about a request."""
    policy = one(chart, "ValidatingAdmissionPolicy", f"advisor-{name}")["spec"]
    extra = {"extra": {"authentication.kubernetes.io/node-name": [node]}} if node else {}
    request = {"userInfo": {"username": who, **extra}}
    known: Object = {"object": new, "oldObject": old, "request": request}
    if not all(cel.evaluate(c["expression"], known) for c in policy["matchConditions"]):
        return []
    for variable in policy["variables"]:
        value = cel.evaluate(variable["expression"], known)
        known["variables"] = {**known.get("variables", {}), variable["name"]: value}
    return [v["message"] for v in policy["validations"] if not cel.evaluate(v["expression"], known)]


def test_every_policy_is_bound_and_denies(chart: list[Object]) -> None:
    for name in ("webhook", "agent", "pods"):
        policy = one(chart, "ValidatingAdmissionPolicy", f"advisor-{name}")["spec"]
        assert policy["failurePolicy"] == "Fail"
        binding = one(chart, "ValidatingAdmissionPolicyBinding", f"advisor-{name}")["spec"]
        assert binding == {"policyName": f"advisor-{name}", "validationActions": ["Deny"]}


def waiting() -> Object:
    pod = admitted(pod_of("a", "fft", max_wait_s="0"))
    pod["metadata"] |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01"}
    return pod


def test_the_chooser_may_write_what_it_decides(chart: list[Object]) -> None:
    node = Node.read(node_of("n", "GPU-1"))
    pod = waiting()
    place = GpuSlot(key="GPU-1", node=node)
    single = Start(
        pods=(Pod.read(pod),), shares=("100",), memory_mib=(1000,), place=place, why="alone"
    )
    new = merged(pod, single.writes()[0].body)
    assert denied(chart, "webhook", new, pod, CHOOSER) == []
    assert denied(chart, "pods", new, pod, CHOOSER) == []
    assert denied(chart, "pods", new, pod, "alice") == [
        "what the chooser decides is written by the chooser alone",
        "the gate advisor.dev/split is opened by the chooser alone",
    ]
    assert denied(chart, "webhook", new, new, CHOOSER) == [
        "the chooser changes only pods that wait behind its gate"
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"containers": [{"name": "main", "image": "evil"}]}},
        {"spec": {"initContainers": [{"name": "evil", "image": "evil"}]}},
        {"spec": {"nodeSelector": {"zone": "b"}}},
        {"spec": {"tolerations": [{"operator": "Exists"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"metadata": {"labels": {"app": "another"}}},
        {"metadata": {"annotations": {"example.com/note": "x"}}},
        {"metadata": {"finalizers": ["example.com/x"]}},
    ],
)
def test_the_token_of_the_webhook_changes_nothing_else(chart: list[Object], change: Object) -> None:
    pod = waiting()
    assert len(denied(chart, "webhook", merged(pod, change), pod, CHOOSER)) == 1
    system = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "a"}]}}
    assert denied(chart, "webhook", merged(system, change), system, CHOOSER)


def node_object() -> Object:
    node = node_of("n", "GPU-1", taints=[])
    node["status"] |= {"capacity": {"cpu": "8"}, "addresses": [{"address": "10.0.0.1"}]}
    return node


def test_an_agent_may_publish_its_gpus(chart: list[Object]) -> None:
    node = node_object()
    new = merged(
        node,
        {
            "metadata": {
                "labels": {"advisor.dev/mps": "true"},
                "annotations": {names.GPUS: "[]", names.GPUS_CHECKED_AT: "2026"},
            },
            "status": {"capacity": {names.SHARE_RESOURCE: "100"}},
        },
    )
    assert denied(chart, "agent", new, node, AGENT) == []
    other = "an agent changes its own node only"
    assert denied(chart, "agent", new, node, AGENT, node="m") == [other]
    assert denied(chart, "agent", new, node, AGENT, node="") == [other]


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}},
        {"spec": {"unschedulable": True}},
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"labels": {names.HOSTNAME: None}}},
        {"metadata": {"annotations": {"example.com/note": "x"}}},
        {"status": {"conditions": []}},
        {"status": {"addresses": [{"address": "10.9.9.9"}]}},
        {"status": {"capacity": {"cpu": "9"}}},
        {"status": {"capacity": {"cpu": None}}},
        {"status": {"allocatable": {"cpu": "9"}}},
    ],
)
def test_the_token_of_an_agent_changes_nothing_else(chart: list[Object], change: Object) -> None:
    node = node_object()
    assert len(denied(chart, "agent", merged(node, change), node, AGENT)) == 1
    assert denied(chart, "agent", merged(node, change), node, "kubelet") == []


def test_authors_write_what_they_ask_for_and_nothing_more(chart: list[Object]) -> None:
    """Decided without the webhook, so also while it is down; also through `pods/status`."""
    for note in sorted(names.REQUESTED):
        noted = merged(plain(), {"metadata": {"annotations": {names.JOB: "a", note: "b"}}})
        assert denied(chart, "pods", noted, None, "alice") == []
    forged = merged(plain(), {"metadata": {"annotations": {names.GPU_UUID: "GPU-1"}}})
    [message] = denied(chart, "pods", forged, None, "alice")
    assert "by the chooser alone" in message
    assert denied(chart, "pods", plain(), forged, "alice") == [message]
    assert denied(chart, "pods", forged, forged, "alice") == []
    booked = plain()
    booked["spec"]["containers"][0]["resources"] = {"limits": {names.SHARE_RESOURCE: "50"}}
    [message] = denied(chart, "pods", booked, None, "alice")
    assert "names its job" in message
