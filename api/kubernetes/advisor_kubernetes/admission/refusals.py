"""What cannot share a GPU, with the reason and the way out."""

import posixpath
from collections.abc import Iterator

from advisor.errors import InputError
from advisor.settings import LIMIT_VARIABLES
from advisor_kubernetes import names
from advisor_kubernetes.admission.shape import ON_CLAIM, VOLUMES, PodShape, booked_percent
from advisor_kubernetes.admission.wishes import Wishes, shown
from advisor_kubernetes.objects import Object, part, parts, word

_RESERVED = (*LIMIT_VARIABLES, "NVIDIA_VISIBLE_DEVICES")

_KINDS = ("initContainers", "containers", "ephemeralContainers")


def container_of(pod: Object, asked: Wishes) -> tuple[int, Object]:
    """The container that computes, with its place in the list.

    Raises:
        InputError: it cannot be told which one, or it asks for something else than one GPU.
    """
    containers = parts(pod, "spec", "containers")
    if asked.container is not None:
        found = [(i, c) for i, c in enumerate(containers) if word(c, "name") == asked.container]
    elif len(containers) == 1:
        found = [(0, containers[0])]
    else:
        found = [(i, c) for i, c in enumerate(containers) if _asks_for_gpu(c)]
    if len(found) != 1:
        there = ", ".join(shown(word(container, "name")) for container in containers)
        raise InputError(
            f"which container computes on the GPU? There are {there}",
            fix=f"name one of them: {names.CONTAINER}",
        )
    return found[0]


def check(pod: Object, container: Object, shape: PodShape) -> None:
    """Refuse what cannot share a GPU, or would get more of the node than its own part.

    Raises:
        InputError: what is refused, and what to do.
    """
    _check_pod(part(pod, "spec"))
    _check_resources(pod, container, shape)
    _check_variables(container, shape)
    check_volumes(pod, container, shape)


def check_volumes(pod: Object, container: Object | None, shape: PodShape) -> None:
    """Refuse mounts of volumes that hold the files of other pods, and what is in their way.

    Raises:
        InputError: what is refused, and what to do.
    """
    for volume in parts(pod, "spec", "volumes"):
        if word(volume, "name") in VOLUMES and volume not in shape.volumes:
            raise _of_ours(f"the volume {word(volume, 'name')}")
        if _holds_ours(word(part(volume, "hostPath"), "path")) and volume not in shape.volumes:
            raise _of_ours("a hostPath with the files of advisor")
    for other in _containers(pod):
        mounts = parts(other, "volumeMounts")
        for mount in mounts:
            if other is container and mount in shape.mounts:
                continue
            if word(mount, "name") in VOLUMES:
                raise _of_ours(f"a mount of {word(mount, 'name')}")
            if other is container and _in_the_way(word(mount, "mountPath"), shape):
                raise _of_ours(f"the mount at {shown(word(mount, 'mountPath'))}")


def _check_pod(spec: Object) -> None:
    if spec.get("hostIPC"):
        raise InputError(
            "hostIPC shows the pod the shared memory of all others",
            fix="leave it out: the webhook mounts what MPS needs",
        )
    if spec.get("hostUsers") is False:
        raise InputError(
            "hostUsers is false, so the pod's user is another one for MPS than its partner's",
            why="an MPS server serves one user",
            fix="leave hostUsers out",
        )
    if spec.get("nodeName"):
        raise InputError(
            "nodeName passes by the scheduler, and so by the choice of node and GPU",
            fix=f"leave it out; nodeSelector {names.HOSTNAME} is heeded",
        )
    if any(claim.get("resourceClaimTemplateName") for claim in parts(spec, "resourceClaims")):
        raise InputError(
            "a template makes a claim for each pod, which two pods cannot share",
            fix="name one claim in both pods: resourceClaimName",
        )


def _check_resources(pod: Object, container: Object, shape: PodShape) -> None:
    booked_percent(container)
    for other in _containers(pod):
        for name, count in _gpus(other):
            if name not in (names.GPU_RESOURCE, names.SHARE_RESOURCE):
                raise InputError(
                    f"{name} is shared by the device plugin",
                    why="its even split caps every pod, so no other share can be set",
                    fix=f"ask for {names.GPU_RESOURCE}: 1 on nodes without its sharing",
                )
            if other is not container:
                raise InputError(
                    f"the container {shown(word(other, 'name'))} asks for a GPU, too",
                    fix="one container of a pod can share a GPU",
                )
            if name == names.GPU_RESOURCE and str(count) != "1":
                raise InputError(
                    f"the pod asks for {shown(count)} GPUs",
                    fix=f"a pod that shares asks for {names.GPU_RESOURCE}: 1",
                )
            if shape is ON_CLAIM:
                raise InputError(
                    f"the container has a claim and asks for {name}",
                    fix="leave one of them out",
                )
    if not (_asks_for_gpu(container) or shape is ON_CLAIM):
        raise InputError(
            f"the container {shown(word(container, 'name'))} asks for no GPU",
            fix=f"ask for {names.GPU_RESOURCE}: 1 or {names.SHARE_RESOURCE}, or use a claim",
        )


def _check_variables(container: Object, shape: PodShape) -> None:
    for variable in parts(container, "env"):
        name = word(variable, "name")
        ours = name in _RESERVED or name.startswith("ADVISOR_")
        if ours and variable not in shape.variables:
            raise InputError(
                f"the pod sets {shown(name)}",
                why="advisor sets it, and a value of the pod's own could lift its limit",
                fix="leave it out",
            )


def _containers(pod: Object) -> Iterator[Object]:
    return (container for kind in _KINDS for container in parts(pod, "spec", kind))


def _gpus(container: Object) -> Iterator[tuple[str, object]]:
    for kind in ("limits", "requests"):
        for name, count in part(container, "resources", kind).items():
            if name.startswith("nvidia.com/") or name == names.SHARE_RESOURCE:
                yield name, count


def _asks_for_gpu(container: Object) -> bool:
    return any(True for _ in _gpus(container))


def _holds_ours(path: str) -> bool:
    """Whether a folder of the node is one of ours, lies in one, or has one in it."""
    clean = posixpath.normpath("/" + path.lstrip("/")) if path else ""
    return any(_overlap(clean, root) for root in (names.MPS_ROOT, names.PODS_ROOT) if clean)


def _overlap(a: str, b: str) -> bool:
    a, b = a.rstrip("/") + "/", b + "/"
    return a.startswith(b) or b.startswith(a)


def _in_the_way(path: str, shape: PodShape) -> bool:
    clean = posixpath.normpath("/" + path.lstrip("/"))
    return any(_overlap(clean, mount["mountPath"]) for mount in shape.mounts)


def _of_ours(what: str) -> InputError:
    return InputError(
        f"{what} cannot be used in a pod that shares a GPU",
        why="advisor mounts the pod's own part there, and files of other pods are beside it",
        fix="leave it out, or give it another name or place",
    )
