"""Pods that the webhook and the chooser have changed are pods to every Kubernetes since 1.28."""

import json
from pathlib import Path
from typing import Any

import pytest
from kube_objects import merged
from kube_serving import admitted, claimed, pod_of

from advisor_kubernetes.pairing import GpuSlot, Node, Start, read_pod, writes_of

validator: Any = pytest.importorskip("kubernetes_validate")
VERSIONS = [
    version for version in validator.utils.all_versions() if int(version.split(".")[1]) >= 28
]
FIXTURES = Path(__file__).parents[3] / "fixtures/kubernetes"


def recorded() -> dict[str, Any]:
    asked = json.loads((FIXTURES / "admission-create-two-containers.json").read_bytes())
    pod = asked["request"]["object"]
    del pod["metadata"]["creationTimestamp"]  # null there, which the schema does not know
    return pod


def decided() -> dict[str, Any]:
    """A pod of a pair, with all that the chooser writes."""
    first, second = (admitted(pod_of(name, "fft")) for name in ("a", "b"))
    for number, pod in enumerate((first, second)):
        pod["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": "1"}
    node = Node(name="n", labels={"kubernetes.io/hostname": "n"}, taints=(), gpus=())
    pods = (read_pod(first), read_pod(second))
    place = GpuSlot(key="GPU-1", model="NVIDIA H200", node=node)
    pair = Start(pods=pods, shares=("26", "50"), memory_mib=(1000, 2000), place=place, why="26/50")
    return merged(first, writes_of(pair)[0].body)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_changed_pods_are_valid(version: str) -> None:
    held, placed = admitted(recorded()), decided()
    assert held["spec"]["schedulingGates"]
    assert held != recorded()
    assert not placed["spec"].get("schedulingGates")
    assert placed["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n"}
    for pod in (held, placed):
        validator.validate(pod, version, strict=True)


def test_pod_with_a_claim_is_valid() -> None:
    changed = admitted(claimed(pod_of("a", "fft")))
    assert changed["spec"]["schedulingGates"]
    validator.validate(changed, VERSIONS[-1], strict=True)


def test_validation_notices_a_wrong_pod() -> None:
    pod = admitted(recorded())
    pod["spec"]["schedulingGates"] = [{"gate": "advisor.dev/split"}]
    with pytest.raises(validator.ValidationError):
        validator.validate(pod, VERSIONS[-1], strict=True)
