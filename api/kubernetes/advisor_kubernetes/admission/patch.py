"""The changes that make a pod share a GPU, as a JSON Patch (RFC 6902)."""

from collections.abc import Iterator, Sequence
from typing import Any

from advisor_kubernetes import names
from advisor_kubernetes.admission.shape import Shape
from advisor_kubernetes.objects import Object, part, parts


def patch_of(pod: Object, place: int, shape: Shape) -> list[Object]:
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
        *_without_gpu(container, path),
    ]


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


def _without_gpu(container: Object, path: str) -> Iterator[Object]:
    """Take the request for a whole GPU away: the device plugin would choose one by itself."""
    for kind in ("limits", "requests"):
        if names.GPU_RESOURCE in part(container, "resources", kind):
            name = _escaped(names.GPU_RESOURCE)
            yield {"op": "remove", "path": f"{path}/resources/{kind}/{name}"}


def _add(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


def _escaped(name: str) -> str:
    """A name as one part of a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
