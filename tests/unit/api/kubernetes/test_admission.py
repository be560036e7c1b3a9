"""Admission: what is changed in a pod, what is refused, and that asking changes nothing."""

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, strategies as st
from kube_objects import CHOOSER, Object, merged, patched
from kube_serving import admitted, claimed, created, pod_of

from advisor.client import JobRequest
from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.admission import review
from advisor_kubernetes.cluster import read_object
from advisor_kubernetes.pairing import GpuSlot, Node, Pod, Start
from advisor_node.advice import Answer, Apart, Question, Together

FIXTURES = Path(__file__).parents[3] / "fixtures/kubernetes"
LIMIT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def recorded(name: str) -> Object:
    return json.loads((FIXTURES / f"admission-create-{name}.json").read_bytes())


def asking(job: str = "bert-train", **wishes: str) -> Object:
    """The recorded pod with a GPU, which asks to share it."""
    asked = recorded("gpu-pod")
    asked["request"]["object"]["metadata"]["annotations"] = {names.JOB: job} | {
        f"{names.PREFIX}{key.replace('_', '-')}": text for key, text in wishes.items()
    }
    return asked


def container_in(asked: Object, place: int = 0) -> Object:
    return asked["request"]["object"]["spec"]["containers"][place]


def answered(asked: Object) -> Object:
    """The response, of a webhook whose chooser is known."""
    before = copy.deepcopy(asked)
    response = review(asked, CHOOSER)["response"]
    assert asked == before
    assert response["uid"] == asked["request"]["uid"]
    return response


def refused(asked: Object) -> str:
    response = answered(asked)
    assert not response["allowed"]
    assert "patch" not in response
    return response["status"]["message"]


def shaped(asked: Object) -> Object:
    """The pod as it is stored."""
    response = answered(asked)
    assert response["allowed"], response
    return patched(asked["request"]["object"], response)


@pytest.mark.parametrize("name", ["annotated", "dry-run", "gpu-pod", "no-gpu"])
def test_pod_that_asks_for_nothing_is_left_alone(name: str) -> None:
    assert set(answered(recorded(name))) == {"uid", "allowed"}


def test_recorded_pod_with_two_containers_is_changed_in_the_right_one() -> None:
    asked = recorded("two-containers")
    pod = shaped(asked)
    train, sidecar = pod["spec"]["containers"]
    assert sidecar["resources"] == container_in(asked, 1)["resources"]
    assert train["env"][0]["name"] == "A"
    left = {"cpu": "4", "memory": "8Gi", "advisor.dev/share": "50"}
    assert train["resources"] == {"limits": left, "requests": left}
    assert pod["spec"]["schedulingGates"] == [{"name": "advisor.dev/split"}]
    assert pod["metadata"]["labels"] == {"app": "bert", "advisor.dev/managed": "true"}


SHARE = names.SHARE_RESOURCE


@pytest.mark.parametrize(
    ("asked_for", "booked"),
    [
        ({"nvidia.com/gpu": "1"}, "50"),
        ({"nvidia.com/gpu": "1", SHARE: "25"}, "25"),
        ({SHARE: "100"}, "100"),
    ],
)
def test_a_pod_books_what_quotas_count(asked_for: dict[str, str], booked: str) -> None:
    asked = asking()
    container_in(asked)["resources"] = {"limits": asked_for, "requests": {**asked_for}}
    resources = shaped(asked)["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {SHARE: booked}, "requests": {SHARE: booked}}


@pytest.mark.parametrize("count", ["0", "101", "500m", "-5", "1k"])
def test_no_pod_books_what_is_no_part_of_a_gpu(count: str) -> None:
    asked = asking()
    container_in(asked)["resources"] = {"limits": {SHARE: count}}
    assert "a whole number from 1 to 100" in refused(asked)


def test_variables_name_only_earlier_ones() -> None:
    """Kubernetes expands $(NAME) from variables that stand before it."""
    env = shaped(asking())["spec"]["containers"][0]["env"]
    [limit] = [v["valueFrom"]["fieldRef"]["fieldPath"] for v in env if v["name"] == LIMIT]
    assert limit == "metadata.annotations['advisor.dev/share-percent']"
    for n, variable in enumerate(env):
        assert not [v for v in env[n:] if f"$({v['name']})" in variable.get("value", "")]


def test_a_pod_sees_its_own_folders_only() -> None:
    pod = shaped(asking())
    mounts = {m["name"]: m for m in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["advisor-mps"]["subPathExpr"] == "$(ADVISOR_GPU_UUID)/pipe"
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    # A tmpfs of its own, which it cannot fill beyond its size.
    assert volumes["advisor-pod"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "64Ki"}


def test_second_call_for_the_same_pod_changes_nothing() -> None:
    """The API server calls again after other webhooks; what is there is not added twice."""
    asked = asking()
    asked["request"]["object"] = shaped(asked)
    assert set(answered(asked)) == {"uid", "allowed"}


def test_a_pod_without_a_name_is_named_after_what_it_runs() -> None:
    """The same for each pod of one image, command and arguments; asked again it changes nothing."""

    def name(asked: Object, **container: Any) -> str:
        container_in(asked).update(container)
        return shaped(asked)["metadata"]["annotations"][names.JOB]

    runs = {"image": "a/train:1", "command": ["python"], "args": ["/app/train.py", "--lr", "1"]}
    first = name(asking("auto"), **runs)
    assert re.fullmatch("train-[0-9a-f]{8}", first)
    assert name(asking("auto", max_p99_ms="5"), **runs) == first
    others = [{"image": "a/train:2"}, {"args": ["/app/train.py"]}, {"image": "a/t@sha256:0"}]
    assert len({first, *(name(asking("auto"), **(runs | more)) for more in others)}) == 4
    assert name(asking("auto"), image="reg:5000/nbody:2", command=None).startswith("nbody-")
    asked = asking("auto")
    asked["request"]["object"] = shaped(asked)
    assert set(answered(asked)) == {"uid", "allowed"}
    odd = asking("auto")
    container_in(odd)["command"] = 5
    assert "no lists" in refused(odd)


def test_claim_of_dynamic_resource_allocation_is_left_alone() -> None:
    asked = asking()
    spec = asked["request"]["object"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    container_in(asked)["resources"] = {"claims": [{"name": "gpu"}]}
    pod = shaped(asked)["spec"]
    assert [v["name"] for v in pod["containers"][0]["env"]] == [LIMIT]
    assert pod["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}
    assert "volumes" not in pod
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "each"}]
    assert "resourceClaimName" in refused(asked)


def test_odd_annotations_of_the_recorded_pod_are_all_named() -> None:
    message = refused(recorded("odd-annotations"))
    assert message.isascii()
    assert "advisor.dev/job is 'z\\xdf\\u6c34\\U0001f34c'" in message
    assert "advisor.dev/min-speed is 'not a number', and should be a number from 0 to 1" in message


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *(("min_speed", text) for text in ("nan", "1.5", "-0.1", "")),
        *(("max_wait_s", text) for text in ("inf", "1e9", "9999999")),
        ("with", "../x"),
        ("container", "a b"),
    ],
)
def test_annotation_that_cannot_be_meant_is_refused(key: str, text: str) -> None:
    assert f"advisor.dev/{key.replace('_', '-')} is " in refused(asking(**{key: text}))


def test_pod_is_told_when_no_gpu_is_free_for_sharing() -> None:
    waits = review(asking(), None, is_full=True)["response"]
    assert "patch" in waits
    assert "when-full: whole" in waits["warnings"][0]
    whole = review(asking(when_full="whole"), None, is_full=True)["response"]
    assert set(whole) == {"uid", "allowed", "warnings"}
    assert "warnings" not in review(asking(when_full="whole"), None)["response"]


@pytest.mark.parametrize("key", [names.SHARE_PERCENT, names.GPU_UUID, names.NODE, names.PARTNER])
@pytest.mark.parametrize("job", [True, False])
def test_author_cannot_write_what_the_chooser_writes(key: str, job: bool) -> None:
    asked = asking() if job else recorded("gpu-pod")
    asked["request"]["object"]["metadata"]["annotations"][key] = "GPU-of-another"
    assert "not an annotation that the author of a pod can set" in refused(asked)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {names.MANAGED: "true"}}},
        {"spec": {"schedulingGates": [{"name": names.GATE}]}},
    ],
)
def test_pod_cannot_look_managed_without_asking(change: Object) -> None:
    asked = recorded("no-gpu")
    asked["request"]["object"] = merged(asked["request"]["object"], change)
    assert names.JOB in refused(asked)


def at(path: str, value: Any) -> Object:
    return {"op": "add", "path": f"/spec/{path}", "value": value}


FIRST, SECOND = "containers/0", "containers/-"


def spy(volume: str) -> Object:
    """A container that mounts all of a volume of ours."""
    return {"name": "spy", "image": "x", "volumeMounts": [{"name": volume, "mountPath": "/all"}]}


def host_folder(path: str) -> list[Object]:
    return [{"name": "v", "hostPath": {"path": path}}]


ALL_GPUS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}

# As the webhook sets it, and before what it names: the pod would find no GPU.
GPU_BY_NAME = {"name": "CUDA_VISIBLE_DEVICES", "value": "$(ADVISOR_GPU_UUID)"}


def gpu_limit(name: str, count: str = "1") -> Object:
    return {"limits": {f"nvidia.com/{name}": count}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (at(f"{FIRST}/resources", gpu_limit("gpu", "2")), "asks for '2' GPUs"),
        (at(f"{FIRST}/resources", gpu_limit("gpu.shared")), "its even split caps every pod"),
        (at(f"{FIRST}/resources", gpu_limit("mig-1g.10gb")), "a MIG instance: its SMs are fixed"),
        (at(f"{FIRST}/resources", gpu_limit("gpumem", "4000")), "set advisor.dev/placed-by: hami"),
        (at(f"{FIRST}/resources", gpu_limit("gpucores", "30")), "set advisor.dev/placed-by: hami"),
        (at(f"{FIRST}/resources", {}), "asks for no GPU"),
        (at(f"{FIRST}/resources", gpu_limit("gpu", "0")), "asks for no GPU"),
        (at("hostIPC", True), "hostIPC"),
        (at("hostPID", True), "hostPID"),
        (at("hostNetwork", True), "hostNetwork"),
        (at("hostUsers", False), "hostUsers"),
        (at("nodeName", "gpu-a"), "nodeName"),
        (at(f"{FIRST}/env", [{"name": LIMIT, "value": "100"}]), f"the pod sets '{LIMIT}'"),
        (at(f"{FIRST}/env", [{"name": "ADVISOR_X", "value": "x"}]), "sets 'ADVISOR_X'"),
        (
            at(f"{FIRST}/volumeMounts", [{"name": "mine", "mountPath": "/dev/shm/"}]),
            "the mount at '/dev/shm/'",
        ),
        (at(SECOND, spy("advisor-shm")), "a mount of advisor-shm"),
        (at("initContainers", [spy("advisor-mps")]), "a mount of advisor-mps"),
        (
            at("volumes", host_folder("/run/../run//advisor-mps/other")),
            "of the node",
        ),
        *(
            (at("volumes", host_folder(path)), f"'{path}' of the node")
            for path in ("/dev", "/dev/shm", "/var/run/advisor-mps", "/proc/1/root/run/advisor-mps")
        ),
        (
            at("initContainers", [{"name": "i", "image": "x", "env": [ALL_GPUS]}]),
            "the container 'i' sets NVIDIA_VISIBLE_DEVICES",
        ),
        (
            at(SECOND, {"name": "s", "image": "x", "securityContext": {"privileged": True}}),
            "the container 's' is privileged",
        ),
        (
            at(f"{FIRST}/securityContext", {"capabilities": {"add": ["MKNOD"]}}),
            "adds capabilities",
        ),
        (
            at("initContainers", [{"name": "i", "securityContext": {"procMount": "Unmasked"}}]),
            "the container 'i' unmasks /proc",
        ),
        (at(f"{FIRST}/envFrom", [{"configMapRef": {"name": "c"}}]), "envFrom could set"),
        (at(f"{FIRST}/envFrom", [{"prefix": "CUDA_MPS_SM_"}]), "envFrom could set"),
        (at(f"{FIRST}/env", [GPU_BY_NAME]), "sets 'CUDA_VISIBLE_DEVICES'"),
        (at("volumes", host_folder("/")), "'/' of the node"),
        (
            at("initContainers", [{"name": "other", "image": "x", "resources": gpu_limit("gpu")}]),
            "asks for a GPU, too",
        ),
    ],
)
def test_what_cannot_share_is_refused_with_the_reason(change: Object, said: str) -> None:
    """More than one GPU, an even split, and every way to more than the pod's own part."""
    asked = asking()
    jsonpatch.apply_patch(asked["request"]["object"], [change], in_place=True)
    assert said in refused(asked)


@pytest.mark.parametrize("kind", ["initContainers", "containers"])
def test_a_resource_that_is_no_gpu_is_left_alone(kind: str) -> None:
    """Charts write the number of GPUs of each container, also 0; network cards are NVIDIA's."""
    asked = asking()
    spec, own = asked["request"]["object"]["spec"], container_in(asked)
    own["resources"]["limits"]["nvidia.com/hostdev"] = "1"
    beside = {"name": "log", "image": "x", "resources": gpu_limit("gpu", "0")}
    spec[kind] = [*spec.get(kind, ()), beside]
    pod = shaped(asked)
    assert pod["spec"]["containers"][0]["resources"]["limits"].keys() >= {"nvidia.com/hostdev"}
    assert "nvidia.com/gpu" not in pod["spec"]["containers"][0]["resources"]["limits"]
    assert pod["spec"][kind][-1]["resources"] == beside["resources"]


@pytest.mark.parametrize(("path", "allowed"), [("/data/sets", True), ("/data/../etc", False)])
def test_a_site_may_allow_folders_of_nodes(path: str, allowed: bool) -> None:
    asked = asking()
    container_in(asked)["envFrom"] = [{"prefix": "APP_", "configMapRef": {"name": "c"}}]
    asked["request"]["object"]["spec"]["volumes"] = host_folder(path)
    assert review(asked, None, ["/data"])["response"]["allowed"] == allowed


def test_containers_that_do_not_compute_see_no_gpu() -> None:
    """Many images ask for all of them by a variable of their own."""
    pod = shaped(recorded("two-containers"))
    debug = {"name": "d", "image": "nvidia/cuda"}
    debugged = updating({"spec": {"ephemeralContainers": [debug]}})
    changed = patched(debugged["request"]["object"], answered(debugged))
    others = [*pod["spec"]["initContainers"], pod["spec"]["containers"][1]]
    for container in [*others, *changed["spec"]["ephemeralContainers"]]:
        assert container["env"][-1] == {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    greedy = updating({"spec": {"ephemeralContainers": [{**debug, "env": [ALL_GPUS]}]}})
    assert "sets NVIDIA_VISIBLE_DEVICES" in refused(greedy)


def test_container_must_be_told_where_it_is_not_plain() -> None:
    asked = asking()
    containers = asked["request"]["object"]["spec"]["containers"]
    containers.append({**containers[0], "name": "second"})
    assert "which container computes on the GPU? There are 'm', 'second'" in refused(asked)
    assert "which container" in refused(asking(container="nobody"))


def updating(change: Object, who: str | None = "me") -> Object:
    """A request to change a pod that is managed, by a merge patch."""
    asked = asking()
    old = shaped(asked)
    request = {**asked["request"], "operation": "UPDATE", "oldObject": old}
    request |= {"object": merged(old, change), "userInfo": {"username": who} if who else {}}
    return {**asked, "request": request}


def test_a_manifest_that_is_applied_again_changes_nothing() -> None:
    """It asks once more for the GPU that was taken away, which nobody may add to a pod."""
    again = json.loads(json.dumps(updating({})))
    old, new = again["request"]["oldObject"], again["request"]["object"]
    for kind, asked_for in container_in(asking())["resources"].items():
        new["spec"]["containers"][0]["resources"][kind] |= asked_for
    assert new != old
    assert patched(new, answered(again)) == old


OTHER_GPU: Object = {"metadata": {"annotations": {names.GPU_UUID: "GPU-2"}}}


def test_only_the_chooser_changes_what_was_chosen() -> None:
    assert answered(updating(OTHER_GPU, CHOOSER))["allowed"]
    assert not answered(updating(OTHER_GPU))["allowed"]
    # A request without a user is not one of the chooser before its name is known.
    assert not review(updating(OTHER_GPU, None), None)["response"]["allowed"]
    assert answered(updating({"metadata": {"annotations": {"example.com/note": "x"}}}))["allowed"]
    opened = updating({"spec": {"schedulingGates": []}})
    assert "the scheduling gate cannot be changed" in refused(opened)


def test_ephemeral_container_cannot_mount_the_files_of_all_pods() -> None:
    """`kubectl debug` adds containers later, which may name volumes of the pod."""
    debugged = updating({"spec": {"ephemeralContainers": [spy("advisor-shm")]}})
    assert "a mount of advisor-shm" in refused(debugged)


@pytest.mark.parametrize(
    "change", [{"apiVersion": "admission.k8s.io/v1beta1"}, {"kind": "Pod"}, {"request": {}}]
)
def test_review_of_another_version_is_an_error(change: Object) -> None:
    """v1beta1 had other replies; anything else is no review at all."""
    with pytest.raises(InputError, match=r"admission\.k8s\.io/v1"):
        review({**asking(), **change}, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "spec", "containers", "env", "name"]), inner)
    ),
    max_leaves=12,
)


@given(value=JSON, key=st.sampled_from(["metadata", "spec", "annotations", "containers", "env"]))
def test_forged_pods_are_answered_or_refused_and_never_break(value: Any, key: str) -> None:
    asked = asking()
    pod = asked["request"]["object"]
    homes: Object = {"annotations": pod["metadata"], "containers": pod["spec"]}
    homes["env"] = pod["spec"]["containers"][0]
    homes.get(key, pod)[key] = value
    response = review(asked, None)["response"]
    assert response["uid"] == asked["request"]["uid"]
    if not response["allowed"]:
        assert response["status"]["message"]
        assert "patch" not in response
    elif "patch" in response:
        assert patched(pod, response)["spec"]["schedulingGates"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'"x"', b"1" * 5000])
def test_body_that_is_no_object_is_an_error(text: bytes) -> None:
    with pytest.raises(InputError):
        read_object(text)


# Pods that another scheduler places: what is written into them, and that nothing else is.


GOOD = Together(
    shares=("38.5", "61.5"), needs_mib=(4000.0, None), speeds=(0.62, 0.9), energy_saved=0.2,
    split="38.5/61.5",
)  # fmt: skip

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def placed(placer: str, **wishes: str) -> Object:
    return pod_of("a", "fft", user=1000, **{"placed_by": placer, "with": "gemm"} | wishes)


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


def refusal(pod: Object) -> str:
    response = review(created(pod), None)["response"]
    assert not response["allowed"]
    return response["status"]["message"]


def test_share_memory_and_speed_are_written_and_nothing_is_held() -> None:
    seen: list[Question] = []
    pod = placed("other", max_p99_ms="9", min_speed="0.3")
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
    pod = placed("hami")
    given = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "38", "nvidia.com/gpumem": "4512"}
    for own in ({}, {"nvidia.com/gpucores": "10"}):
        pod["spec"]["containers"][0]["resources"]["limits"] |= own
        found, _ = told(pod)
        assert found["spec"]["containers"][0]["resources"]["limits"] == given | own


def test_hami_is_told_no_cores_where_there_is_no_limit() -> None:
    """100 of them would ask for the card alone."""
    whole = replace(GOOD, shares=("100", "100"))
    limits = told(placed("hami"), whole)[0]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4512"}


@pytest.mark.parametrize(("note", "given"), [(None, "4512"), ("gpu-fraction", None)])
def test_kai_is_told_of_memory_unless_its_author_has(note: str | None, given: str | None) -> None:
    pod = placed("kai")
    if note:
        pod["metadata"]["annotations"][note] = "0.5"
    found, _ = told(pod)
    assert found["metadata"]["annotations"].get("gpu-memory") == given


@pytest.mark.parametrize("env", [None, [{"name": "A", "value": "b"}]])
def test_claim_is_tightened_by_a_variable(env: Any) -> None:
    """The driver's default is 100 %; a job that needs no limit gets none."""
    pod = placed("dra")
    if env:
        pod["spec"]["containers"][0]["env"] = env
    found, _ = told(pod)
    assert found["spec"]["containers"][0]["env"] == [
        *(env or []),
        {"name": PERCENTAGE, "value": "38.5"},
    ]
    free = Together(
        shares=("100", "50"), needs_mib=(None, None), speeds=(1, 1), energy_saved=0.1, split="x"
    )
    found, _ = told(pod, free)
    assert found["spec"] == pod["spec"]
    assert names.ADVISED_MEMORY not in found["metadata"]["annotations"]


def test_without_advice_the_pod_is_as_it_came() -> None:
    pod = placed("hami")
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
    assert "which does not place it" in refusal(merged(placed("other"), more))


def test_the_job_beside_it_must_be_named() -> None:
    """Nobody else knows whom the other scheduler puts there."""
    assert "needs advisor.dev/with" in refusal(pod_of("a", "fft", placed_by="kai"))


# Pods that the webhook and the chooser have changed are pods to every Kubernetes since 1.28.


validator: Any = pytest.importorskip("kubernetes_validate")
VERSIONS = [
    version for version in validator.utils.all_versions() if int(version.split(".")[1]) >= 28
]


def recorded_pod() -> dict[str, Any]:
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
    pods = (Pod.read(first), Pod.read(second))
    place = GpuSlot(key="GPU-1", model="NVIDIA H200", node=node)
    pair = Start(pods=pods, shares=("26", "50"), memory_mib=(1000, 2000), place=place, why="26/50")
    return merged(first, pair.writes()[0].body)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_changed_pods_are_valid(version: str) -> None:
    held, placed = admitted(recorded_pod()), decided()
    assert held["spec"]["schedulingGates"]
    assert held != recorded_pod()
    assert not placed["spec"].get("schedulingGates")
    assert placed["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "n"}
    for pod in (held, placed):
        validator.validate(pod, version, strict=True)


def test_pod_with_a_claim_is_valid() -> None:
    changed = admitted(claimed(pod_of("a", "fft")))
    assert changed["spec"]["schedulingGates"]
    validator.validate(changed, VERSIONS[-1], strict=True)


def test_validation_notices_a_wrong_pod() -> None:
    pod = admitted(recorded_pod())
    pod["spec"]["schedulingGates"] = [{"gate": "advisor.dev/split"}]
    with pytest.raises(validator.ValidationError):
        validator.validate(pod, VERSIONS[-1], strict=True)
