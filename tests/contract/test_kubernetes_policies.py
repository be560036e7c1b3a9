"""What the API server decides by expressions of the chart (CEL), evaluated here by Rust's `cel`.

Kubernetes has functions of its own in CEL; the chart uses none of them. A kube-apiserver 1.36.2 has
compiled the first condition; the others it has not seen yet.
"""

from typing import Any

import pytest
from kube_objects import Object, merged
from kube_serving import admitted, pod_of

from advisor_kubernetes import names

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
    known = {"object": new, "oldObject": old, "request": {"subResource": part}}
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
