"""Pods that another scheduler places: what is written into them, and that nothing else is."""

from typing import Any

import pytest
from kube_objects import Object, merged, patched
from kube_serving import pod_of

from advisor.client import JobRequest
from advisor_kubernetes import names
from advisor_kubernetes.admission import review
from advisor_node.advice import Answer, Apart, Question, Together

GOOD = Together(
    shares=("38.5", "61.5"), needs_mib=(4000.0, None), speeds=(0.62, 0.9), energy_saved=0.2,
    split="38.5/61.5",
)  # fmt: skip

SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def asking(placer: str, **wishes: str) -> Object:
    asked = {"placed_by": placer, "with": "gemm"} | wishes
    return pod_of("a", "fft", user=1000, **asked)


def _created(pod: Object) -> Object:
    request = {"uid": "1", "kind": {"kind": "Pod"}, "operation": "CREATE", "object": pod}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def told(
    pod: Object, answer: Answer = GOOD, seen: list[Question] | None = None
) -> tuple[Object, str]:
    """The pod as it is stored, and what `kubectl` prints."""

    def advise(question: Question) -> Answer:
        if seen is not None:
            seen.append(question)
        return answer

    response = review(_created(pod), None, advise=advise)["response"]
    assert response["allowed"], response
    return patched(pod, response), response["warnings"][0]


def test_share_memory_and_speed_are_written_and_nothing_is_held() -> None:
    seen: list[Question] = []
    pod = asking("other", max_p99_ms="9", min_speed="0.3")
    found, warning = told(pod, seen=seen)
    [question] = seen
    own = JobRequest(job="fft", min_speed=0.3, max_p99_ms=9)
    assert question.jobs == (own, JobRequest(job="gemm"))
    notes = found["metadata"]["annotations"]
    assert notes[names.ADVISED_SHARE] == "38.5"
    assert notes[names.ADVISED_SPEED] == "0.62"
    assert notes[names.ADVISED_MEMORY] == "4512"  # with a margin
    assert found["spec"] == pod["spec"]
    assert "labels" not in found["metadata"]
    assert warning == ("advisor: 38.5 % of the GPU beside gemm, 62 % of the speed alone expected")


def test_hami_is_told_by_resources() -> None:
    """What the author has set stays; the GPU that it asks for, too."""
    found, _ = told(asking("hami"))
    limits = found["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {
        "nvidia.com/gpu": "1", "nvidia.com/gpucores": "38", "nvidia.com/gpumem": "4512",
    }  # fmt: skip
    pod = asking("hami")
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"] = "10"
    found, _ = told(pod)
    assert found["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpucores"] == "10"


@pytest.mark.parametrize(("note", "given"), [(None, "4512"), ("gpu-fraction", None)])
def test_kai_is_told_of_memory_unless_its_author_has(note: str | None, given: str | None) -> None:
    pod = asking("kai")
    if note:
        pod["metadata"]["annotations"][note] = "0.5"
    found, _ = told(pod)
    assert found["metadata"]["annotations"].get("gpu-memory") == given


@pytest.mark.parametrize("env", [None, [{"name": "A", "value": "b"}]])
def test_claim_is_tightened_by_a_variable(env: Any) -> None:
    """The driver's default is 100 %; a job that needs no limit gets none."""
    pod = asking("dra")
    if env:
        pod["spec"]["containers"][0]["env"] = env
    found, _ = told(pod)
    assert found["spec"]["containers"][0]["env"] == [*(env or []), {"name": SHARE, "value": "38.5"}]
    free = Together(
        shares=("100", "50"), needs_mib=(None, None), speeds=(1, 1), energy_saved=0.1, split="x"
    )
    found, _ = told(pod, free)
    assert found["spec"] == pod["spec"]
    assert names.ADVISED_MEMORY not in found["metadata"]["annotations"]


def test_without_advice_the_pod_is_as_it_came() -> None:
    pod = asking("hami")
    found, warning = told(pod, Apart("exclusive is better"))
    assert found == pod
    assert warning == "advisor: no advice for fft beside gemm: exclusive is better"


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"labels": {names.MANAGED: "true"}}},
        {"spec": {"schedulingGates": [{"name": names.GATE}]}},
    ],
)
def test_who_is_only_advised_cannot_have_the_chooser_place_it(more: Object) -> None:
    """Nothing of what pods that share must not have is refused to it."""
    response = review(_created(merged(asking("other"), more)), None)["response"]
    assert not response["allowed"]
    assert "which does not place it" in response["status"]["message"]


def test_the_job_beside_it_must_be_named() -> None:
    """Nobody else knows whom the other scheduler puts there."""
    response = review(_created(pod_of("a", "fft", placed_by="kai")), None)["response"]
    assert not response["allowed"]
    assert "needs advisor.dev/with" in response["status"]["message"]
