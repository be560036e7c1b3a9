"""Pods that another scheduler places: what is written into them, and that nothing else is."""

from dataclasses import replace
from typing import Any

import pytest
from kube_objects import Object, merged, patched
from kube_serving import created, pod_of

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


def told(
    pod: Object, answer: Answer = GOOD, seen: list[Question] | None = None
) -> tuple[Object, str]:
    """The pod as it is stored, and what `kubectl` prints."""
    asked = [] if seen is None else seen

    def advise(question: Question) -> Answer:
        asked.append(question)
        return answer

    response = review(created(pod), None, advise=advise)["response"]
    assert response["allowed"], response
    return patched(pod, response), response["warnings"][0]


def refused(pod: Object) -> str:
    response = review(created(pod), None)["response"]
    assert not response["allowed"]
    return response["status"]["message"]


def test_share_memory_and_speed_are_written_and_nothing_is_held() -> None:
    seen: list[Question] = []
    pod = asking("other", max_p99_ms="9", min_speed="0.3")
    found, warning = told(pod, seen=seen)
    [question] = seen
    own = JobRequest(job="fft", min_speed=0.3, max_p99_ms=9)
    assert question.jobs == (own, JobRequest(job="gemm"))
    # Memory with a margin.
    notes = {"ADVISED_SHARE": "38.5", "ADVISED_SPEED": "0.62", "ADVISED_MEMORY": "4512"}
    written = {getattr(names, name): text for name, text in notes.items()}
    assert found == merged(pod, {"metadata": {"annotations": written}})
    assert warning == ("advisor: 38.5 % of the GPU beside gemm, 62 % of the speed alone expected")


def test_hami_is_told_by_resources() -> None:
    pod = asking("hami")
    given = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "38", "nvidia.com/gpumem": "4512"}
    for own in ({}, {"nvidia.com/gpucores": "10"}):
        pod["spec"]["containers"][0]["resources"]["limits"] |= own
        found, _ = told(pod)
        assert found["spec"]["containers"][0]["resources"]["limits"] == given | own


def test_hami_is_told_no_cores_where_there_is_no_limit() -> None:
    """100 of them would ask for the card alone."""
    whole = replace(GOOD, shares=("100", "100"))
    limits = told(asking("hami"), whole)[0]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4512"}


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
    assert "which does not place it" in refused(merged(asking("other"), more))


def test_the_job_beside_it_must_be_named() -> None:
    """Nobody else knows whom the other scheduler puts there."""
    assert "needs advisor.dev/with" in refused(pod_of("a", "fft", placed_by="kai"))
