"""What a pod that shares a GPU has: variables, mounts and volumes.

With a hostPath the site's agent owns an MPS daemon for each GPU of the node; with a claim of
Dynamic Resource Allocation the claim brings daemon and GPU, and only the share is ours.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.core.gpu import MEMORY_LIMIT, PERCENTAGE
from advisor.core.wording import shown
from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.objects import Object, part, parts

CONTAINERS = ("initContainers", "containers", "ephemeralContainers")

_PERCENT = re.compile(r"[1-9][0-9]?|100")


@dataclass(frozen=True, slots=True)
class PodShape:
    """What the webhook adds; all of it as Kubernetes writes it after filling in defaults.

    Attributes:
        variables: Of the container. One that names another comes after it.
        mounts: Of the container.
        volumes: Of the pod.
    """

    variables: tuple[Object, ...]
    mounts: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()


def _of_annotation(variable: str, annotation: str) -> Object:
    path = f"metadata.annotations['{annotation}']"
    return {"name": variable, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _host(name: str, path: str) -> Object:
    # `Directory`: a node without the agent starts no container, where it would run unlimited.
    return {"name": name, "hostPath": {"path": path, "type": "Directory"}}


def _mount(name: str, path: str, **more: Any) -> Object:
    return {"name": name, "mountPath": path, **more}


_SHARE = _of_annotation(PERCENTAGE, names.SHARE_PERCENT)

ON_CLAIM = PodShape((_SHARE,))
"""The claim says how much memory, too."""

ON_HOST = PodShape(
    variables=(
        _of_annotation("ADVISOR_GPU_UUID", names.GPU_UUID),
        _SHARE,
        _of_annotation(MEMORY_LIMIT, names.MEMORY_LIMIT),
        {"name": "CUDA_VISIBLE_DEVICES", "value": "$(ADVISOR_GPU_UUID)"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "$(ADVISOR_GPU_UUID)"},
        {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": names.PIPE_MOUNT},
        {"name": "ADVISOR_PROGRESS_FILE", "value": f"{names.PROGRESS_MOUNT}/{names.PROGRESS_FILE}"},
    ),
    mounts=(
        # A pod without a GPU makes this an absolute path, which kubelet refuses.
        _mount("advisor-mps", names.PIPE_MOUNT, subPathExpr="$(ADVISOR_GPU_UUID)/pipe"),
        _mount(names.PROGRESS_VOLUME, names.PROGRESS_MOUNT),
        # Clients and daemon of MPS meet in shared memory, too.
        _mount("advisor-shm", "/dev/shm"),
    ),
    volumes=(
        _host("advisor-mps", names.MPS_ROOT),
        {"name": names.PROGRESS_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "64Ki"}},
        _host("advisor-shm", "/dev/shm"),
    ),
)

VOLUMES = frozenset(volume["name"] for volume in ON_HOST.volumes)
"""Names of our volumes, some with the files of all pods of a node: mounted only as above."""

NO_GPU: Object = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
"""Of containers that do not compute: many images ask for all GPUs, and would have them past MPS."""


def shape_of(pod: Object, container: Object) -> PodShape:
    """What is added to a pod: by claim where its container uses one."""
    claimed = parts(pod, "spec", "resourceClaims") and parts(container, "resources", "claims")
    return ON_CLAIM if claimed else ON_HOST


def patch_of(pod: Object, place: int, shape: PodShape) -> list[Object]:
    """The operations that a pod still needs; none where all is there.

    Args:
        pod: As it came; it is not changed.
        place: Of the container that computes.
        shape: What is added.
    """
    container = parts(pod, "spec", "containers")[place]
    path = f"/spec/containers/{place}"
    gates = parts(pod, "spec", "schedulingGates")
    return [
        *_label(pod),
        *_more("/spec/schedulingGates", gates, [{"name": names.GATE}]),
        *_more("/spec/volumes", parts(pod, "spec", "volumes"), shape.volumes),
        *_more(f"{path}/env", parts(container, "env"), shape.variables),
        *_more(f"{path}/volumeMounts", parts(container, "volumeMounts"), shape.mounts),
        *_booking(container, path),
        *without_devices(pod, container),
    ]


def without_devices(pod: Object, computing: Object | None) -> Iterator[Object]:
    """Have all other containers of a pod see no GPU."""
    for kind in CONTAINERS:
        for place, other in enumerate(parts(pod, "spec", kind)):
            if other is not computing:
                yield from _more(f"/spec/{kind}/{place}/env", parts(other, "env"), [NO_GPU])


def _label(pod: Object) -> Iterator[Object]:
    labels = part(pod, "metadata", "labels")
    if not labels:
        yield _add("/metadata/labels", {names.MANAGED: "true"})
    elif labels.get(names.MANAGED) != "true":
        yield _add(f"/metadata/labels/{_escaped(names.MANAGED)}", "true")


def _more(path: str, there: Sequence[Object], wanted: Sequence[Object]) -> Iterator[Object]:
    missing = [item for item in wanted if item not in there]
    if missing and not there:
        yield _add(path, missing)
        return
    for item in missing:
        yield _add(f"{path}/-", item)


def without_gpu(container: Object, path: str) -> Iterator[Object]:
    """Take the request for a whole GPU away: the device plugin would choose one by itself."""
    for kind in ("limits", "requests"):
        if names.GPU_RESOURCE in part(container, "resources", kind):
            name = _escaped(names.GPU_RESOURCE)
            yield {"op": "remove", "path": f"{path}/resources/{kind}/{name}"}


def _booking(container: Object, path: str) -> Iterator[Object]:
    """What counts in quotas in the place of the whole GPU; of a claim the claim counts."""
    yield from without_gpu(container, path)
    for kind in ("limits", "requests"):
        there = part(container, "resources", kind)
        if names.GPU_RESOURCE in there and names.SHARE_RESOURCE not in there:
            name = _escaped(names.SHARE_RESOURCE)
            yield _add(f"{path}/resources/{kind}/{name}", str(booked_percent(container)))


def booked_percent(container: Object) -> int:
    """What a container books of a GPU, percent.

    Raises:
        InputError: it says something that is no whole percentage.
    """
    told = part(container, "resources", "limits").get(names.SHARE_RESOURCE)
    if told is None:
        return names.BOOKED_PERCENT
    if not _PERCENT.fullmatch(str(told)):
        raise InputError(
            f"the pod asks for {shown(told)} of {names.SHARE_RESOURCE}",
            why="it counts percent of one GPU",
            fix="ask for a whole number from 1 to 100",
        )
    return int(told)


def added_to(path: str, values: Mapping[str, str]) -> Iterator[Object]:
    """Keys of an object that is there, added or replaced."""
    return (_add(f"{path}/{_escaped(name)}", value) for name, value in values.items())


def _add(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


def _escaped(name: str) -> str:
    """A name as one part of a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
