"""The webhook's answer to one AdmissionReview. It depends on the request alone and changes nothing.

So dry runs, requests that come twice and forged requests do no harm.
"""

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from advisor.core.wording import shown
from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.admission import refusals
from advisor_kubernetes.admission.advising import Advise, advised, question_of
from advisor_kubernetes.admission.refusals import Site
from advisor_kubernetes.admission.shape import patch_of, shape_of, without_devices, without_gpu
from advisor_kubernetes.admission.wishes import read_wishes
from advisor_kubernetes.objects import Object, part, parts, word
from advisor_node.advice import NoAnswer

_VERSION = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}

STRICT = Site()

_FULL = (
    "advisor: no GPU is free for sharing, so the pod waits behind its gate until one is; with the "
    f"annotation {names.WHEN_FULL}: whole it would ask for a whole GPU instead"
)

_LONGEST = 1000
"""Characters of a reason."""


def review(
    asked: Object,
    chooser: str | None,
    site: Site = STRICT,
    *,
    is_full: bool = False,
    advise: Advise = lambda _: NoAnswer("there is no service to ask"),
) -> Object:
    """Answer a review.

    Args:
        asked: The AdmissionReview.
        chooser: Name of the user that writes what was chosen; None: not known yet.
        site: What the site allows.
        is_full: Whether no GPU is free that pods could share.
        advise: Asks the service about a pod that another scheduler places.

    Raises:
        InputError: it is no AdmissionReview of this version.
    """
    request = part(asked, "request")
    if any(asked.get(key) != value for key, value in _VERSION.items()) or not word(request, "uid"):
        raise InputError(
            "this is no AdmissionReview of admission.k8s.io/v1",
            fix="set admissionReviewVersions: [v1] in the webhook's configuration",
        )
    create = partial(_created, site=site, is_full=is_full, advise=advise)
    return {**_VERSION, "response": {"uid": request["uid"], **_answer(request, chooser, create)}}


_Create: TypeAlias = Callable[[Object], tuple[list[Object], str]]


def _answer(request: Object, chooser: str | None, create: _Create) -> Object:
    if part(request, "kind").get("kind") != "Pod":
        return {"allowed": True}
    warning = ""
    try:
        match request.get("operation"):
            case "CREATE":
                patch, warning = create(part(request, "object"))
            case "UPDATE":
                patch = _updated(request, chooser)
            case _:
                patch = []
    except InputError as error:
        status = {"code": 422, "reason": "Invalid", "message": f"advisor: {error}"[:_LONGEST]}
        return {"allowed": False, "status": status}
    told = {"allowed": True, **({"warnings": [warning]} if warning else {})}
    if not patch:
        return told
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    return {**told, "patchType": "JSONPatch", "patch": encoded}


def _created(pod: Object, *, site: Site, is_full: bool, advise: Advise) -> tuple[list[Object], str]:
    """The patch of a new pod, and what its author is told, which `kubectl` prints."""
    annotations = part(pod, "metadata", "annotations")
    if strangers := sorted(_ours(annotations) - names.ASKED):
        raise InputError(
            f"{shown(strangers[0])} is not an annotation that the author of a pod can set",
            fix=f"leave it out; known are {', '.join(sorted(names.ASKED))}",
        )
    asked = read_wishes(annotations)
    if asked is None:
        _check_unmanaged(pod)
        return [], ""
    place, container = refusals.container_of(pod, asked)
    if asked.placed_by is not None:
        _check_unmanaged(pod)
        return advised(pod, asked, place, advise(question_of(asked)))
    shape = shape_of(pod, container)
    refusals.check(pod, container, shape, site)
    if not is_full:
        return patch_of(pod, place, shape), ""
    whole = names.GPU_RESOURCE in part(container, "resources", "limits")
    if asked.whole_when_full and whole and names.MANAGED not in part(pod, "metadata", "labels"):
        return [], "advisor: no GPU is free for sharing, so the pod asks for a whole one"
    return patch_of(pod, place, shape), _FULL


def _check_unmanaged(pod: Object) -> None:
    """Refuse a pod that looks as if the chooser were to place it, and is not checked for that."""
    if names.MANAGED in part(pod, "metadata", "labels") or _is_gated(pod):
        raise InputError(
            "the pod has the label or gate of advisor, which does not place it",
            why=f"it has no {names.JOB}, or has {names.PLACED_BY}",
            fix="leave them out; the webhook sets them where it is asked to",
        )


def _updated(request: Object, chooser: str | None) -> list[Object]:
    """Refuse changes of what only the chooser writes."""
    old, new = part(request, "oldObject"), part(request, "object")
    by_chooser = word(part(request, "userInfo"), "username") == chooser
    if not by_chooser and (changed := _changed(old, new)):
        raise InputError(
            f"{changed} cannot be changed",
            why="advisor chooses GPU, node and share of a pod",
            fix="delete the pod and make a new one",
        )
    if names.MANAGED not in part(old, "metadata", "labels"):
        return []
    return [*_without_gpus(new), *_debugged(old, new)]


def _without_gpus(new: Object) -> Iterator[Object]:
    """Who applies a manifest again asks once more for the GPU that was taken away from it."""
    for place, container in enumerate(parts(new, "spec", "containers")):
        yield from without_gpu(container, f"/spec/containers/{place}")


def _debugged(old: Object, new: Object) -> Iterator[Object]:
    """Containers that `kubectl debug` adds see no GPU and no files of other pods."""
    there = parts(old, "spec", "ephemeralContainers")
    if added := [c for c in parts(new, "spec", "ephemeralContainers") if c not in there]:
        for container in added:
            refusals.check_beside(container)
        only = {"spec": {"ephemeralContainers": parts(new, "spec", "ephemeralContainers")}}
        yield from without_devices(only, None)


def _changed(old: Object, new: Object) -> str:
    """What of ours an update changes; empty: nothing."""
    before, after = (part(pod, "metadata", "annotations") for pod in (old, new))
    for key in sorted(_ours(before) | _ours(after)):
        if before.get(key) != after.get(key):
            return shown(key)
    labels = (part(pod, "metadata", "labels").get(names.MANAGED) for pod in (old, new))
    if len(set(map(str, labels))) > 1:
        return names.MANAGED
    return "the scheduling gate" if _is_gated(old) != _is_gated(new) else ""


def _ours(annotations: Object) -> set[str]:
    return {key for key in annotations if key.startswith(names.PREFIX)}


def _is_gated(pod: Object) -> bool:
    return any(gate.get("name") == names.GATE for gate in parts(pod, "spec", "schedulingGates"))
