"""What cannot share a GPU, with the reason and the way out."""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.core.gpu import MEMORY_LIMIT
from advisor.core.wording import shown
from advisor.errors import InputError
from advisor.settings import LIMIT_VARIABLES
from advisor_kubernetes import names
from advisor_kubernetes.admission.shape import (
    CONTAINERS,
    NO_GPU,
    ON_CLAIM,
    VOLUMES,
    PodShape,
    booked_percent,
)
from advisor_kubernetes.admission.wishes import Wishes
from advisor_kubernetes.objects import Object, part, parts, word

_RESERVED = (*LIMIT_VARIABLES, MEMORY_LIMIT, "NVIDIA_VISIBLE_DEVICES")

_OURS = (*_RESERVED, "ADVISOR_")
"""How names of variables begin that nobody else may set where a pod computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a site allows pods that share a GPU.

    Attributes:
        host_paths: Folders of nodes that they may mount, with all that is in them.
    """

    host_paths: tuple[str, ...] = ()


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


def check(pod: Object, container: Object, shape: PodShape, site: Site) -> None:
    """Refuse what cannot share a GPU, or would get more of the node than its own part.

    Raises:
        InputError: what is refused, and what to do.
    """
    _check_pod(part(pod, "spec"))
    _check_resources(pod, container, shape)
    _check_variables(container, shape)
    for other in _containers(pod):
        if other is not container:
            check_beside(other)
        if part(other, "securityContext").get("privileged"):
            raise _too_much(f"the container {shown(word(other, 'name'))} is privileged")
    _check_volumes(pod, container, shape, site)


def check_beside(other: Object) -> None:
    """Refuse a container that would see GPUs, or files of other pods, beside the one that computes.

    Raises:
        InputError: what is refused, and what to do.
    """
    for variable in parts(other, "env"):
        if word(variable, "name") == NO_GPU["name"] and variable != NO_GPU:
            raise InputError(
                f"the container {shown(word(other, 'name'))} sets {NO_GPU['name']}",
                why="it would have GPUs past MPS, and so past every limit",
                fix="leave it out; one container of a pod computes",
            )
    for mount in parts(other, "volumeMounts"):
        if word(mount, "name") in VOLUMES:
            raise _of_ours(f"a mount of {word(mount, 'name')}")


def _check_volumes(pod: Object, container: Object, shape: PodShape, site: Site) -> None:
    for volume in parts(pod, "spec", "volumes"):
        if volume in shape.volumes:
            continue
        if word(volume, "name") in VOLUMES:
            raise _of_ours(f"the volume {word(volume, 'name')}")
        path = word(part(volume, "hostPath"), "path")
        if path and not any(_is_in(path, allowed) for allowed in site.host_paths):
            raise _too_much(f"a volume is the folder {shown(path)} of the node")
    for mount in parts(container, "volumeMounts"):
        if mount not in shape.mounts:
            if word(mount, "name") in VOLUMES:
                raise _of_ours(f"a mount of {word(mount, 'name')}")
            if _in_the_way(word(mount, "mountPath"), shape):
                raise _of_ours(f"the mount at {shown(word(mount, 'mountPath'))}")


def _check_pod(spec: Object) -> None:
    if spec.get("hostIPC"):
        raise InputError(
            "hostIPC shows the pod the shared memory of all others",
            fix="leave it out: the webhook mounts what MPS needs",
        )
    if spec.get("hostPID"):
        raise _too_much("hostPID is set")
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
                    f"the container has a claim and asks for {name}", fix="leave one of them out"
                )
    if not (_asks_for_gpu(container) or shape is ON_CLAIM):
        raise InputError(
            f"the container {shown(word(container, 'name'))} asks for no GPU",
            fix=f"ask for {names.GPU_RESOURCE}: 1 or {names.SHARE_RESOURCE}, or use a claim",
        )


def _check_variables(container: Object, shape: PodShape) -> None:
    given = parts(container, "env")
    # All of ours are there where the webhook has been here before, in their order.
    again = [variable for variable in given if variable in shape.variables] == [*shape.variables]
    for variable in given:
        name = word(variable, "name")
        if name.startswith(_OURS) and not (again and variable in shape.variables):
            raise InputError(
                f"the pod sets {shown(name)}",
                why="advisor sets it, and a value of the pod's own could lift its limit",
                fix="leave it out",
            )
    for source in parts(container, "envFrom"):
        prefix = word(source, "prefix")
        if any(name.startswith(prefix) or prefix.startswith(name) for name in _OURS):
            raise InputError(
                "envFrom could set any variable, also one that lifts the limit",
                fix="name the variables in env, or give envFrom a prefix of their own",
            )


def _containers(pod: Object) -> Iterator[Object]:
    return (container for kind in CONTAINERS for container in parts(pod, "spec", kind))


def _gpus(container: Object) -> Iterator[tuple[str, object]]:
    for kind in ("limits", "requests"):
        for name, count in part(container, "resources", kind).items():
            if name.startswith("nvidia.com/") or name == names.SHARE_RESOURCE:
                yield name, count


def _asks_for_gpu(container: Object) -> bool:
    return any(True for _ in _gpus(container))


def _clean(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/")).rstrip("/") + "/"


def _is_in(path: str, folder: str) -> bool:
    return _clean(path).startswith(_clean(folder))


def _in_the_way(path: str, shape: PodShape) -> bool:
    ours = [mount["mountPath"] for mount in shape.mounts]
    return any(_is_in(path, one) or _is_in(one, path) for one in ours)


def _too_much(what: str) -> InputError:
    return InputError(
        what,
        why="a pod that shares a GPU would reach more of the node than its own part",
        fix="leave it out, or ask for a whole GPU, without annotations of advisor",
    )


def _of_ours(what: str) -> InputError:
    return InputError(
        f"{what} cannot be used in a pod that shares a GPU",
        why="advisor mounts the pod's own part there, and files of other pods are beside it",
        fix="leave it out, or give it another name or place",
    )
