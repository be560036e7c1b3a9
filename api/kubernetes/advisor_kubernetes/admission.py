"""Admission: what pods ask for, what is refused, and what is changed in them."""

import base64
import itertools
import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from advisor.client import JobRequest
from advisor.core.gpu import MEMORY_LIMIT, PERCENTAGE, WHOLE, MemoryFit
from advisor.core.job import ProgressSettings
from advisor.core.wording import shown
from advisor.errors import InputError
from advisor.formats.job_file import AUTO, watched_job
from advisor.settings import LIMIT_VARIABLES
from advisor.wire.requests import NAME
from advisor_kubernetes import names
from advisor_kubernetes.cluster import Object, part, parts, word
from advisor_node.advice import Answer, NoAnswer, Question, Together

CONTAINERS = ("initContainers", "containers", "ephemeralContainers")

_PERCENT = re.compile(r"[1-9][0-9]?|100")


@dataclass(frozen=True, slots=True)
class _PodShape:
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

# The claim says how much memory, too.
_ON_CLAIM = _PodShape((_SHARE,))

ON_HOST = _PodShape(
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

# Names of our volumes, some with the files of all pods of a node: mounted only as above.
_VOLUMES = frozenset(volume["name"] for volume in ON_HOST.volumes)

# Of containers that do not compute: many images ask for all GPUs, and would have them past MPS.
_NO_GPU: Object = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


def _patch_of(pod: Object, place: int, shape: _PodShape) -> list[Object]:
    """The operations that a pod still needs; none where all is there.

    Args:
        pod: As it came; it is not changed.
        place: Of the container that computes.
        shape: What is added.
    """
    container = parts(pod, "spec", "containers")[place]
    path = f"/spec/containers/{place}"
    return [
        *_label(pod),
        *_more(
            "/spec/schedulingGates", parts(pod, "spec", "schedulingGates"), [{"name": names.GATE}]
        ),
        *_more("/spec/volumes", parts(pod, "spec", "volumes"), shape.volumes),
        *_more(f"{path}/env", parts(container, "env"), shape.variables),
        *_more(f"{path}/volumeMounts", parts(container, "volumeMounts"), shape.mounts),
        *_booking(container, path),
        *_without_devices(pod, container),
    ]


def _without_devices(pod: Object, computing: Object | None) -> Iterator[Object]:
    """Have all other containers of a pod see no GPU."""
    return (
        change
        for kind in CONTAINERS
        for place, other in enumerate(parts(pod, "spec", kind))
        if other is not computing
        for change in _more(f"/spec/{kind}/{place}/env", parts(other, "env"), [_NO_GPU])
    )


def _label(pod: Object) -> Iterator[Object]:
    if not (labels := part(pod, "metadata", "labels")):
        yield _add("/metadata/labels", {names.MANAGED: "true"})
    elif labels.get(names.MANAGED) != "true":
        yield _add(f"/metadata/labels/{_escaped(names.MANAGED)}", "true")


def _more(path: str, there: Sequence[Object], wanted: Sequence[Object]) -> Iterator[Object]:
    if (missing := [item for item in wanted if item not in there]) and not there:
        yield _add(path, missing)
        return
    yield from (_add(f"{path}/-", item) for item in missing)


def _without_gpu(container: Object, path: str) -> Iterator[Object]:
    """Take the request for a whole GPU away: the device plugin would choose one by itself."""
    for kind in ("limits", "requests"):
        if names.GPU_RESOURCE in part(container, "resources", kind):
            name = _escaped(names.GPU_RESOURCE)
            yield {"op": "remove", "path": f"{path}/resources/{kind}/{name}"}


def _booking(container: Object, path: str) -> Iterator[Object]:
    """What quotas count instead of the whole GPU; where a pod has a claim, they count that."""
    yield from _without_gpu(container, path)
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
    if (booked := part(container, "resources", "limits").get(names.SHARE_RESOURCE)) is None:
        return names.BOOKED_PERCENT
    if not _PERCENT.fullmatch(str(booked)):
        raise InputError(
            f"the pod asks for {shown(booked)} of {names.SHARE_RESOURCE}",
            why="it counts percent of one GPU",
            fix="ask for a whole number from 1 to 100",
        )
    return int(booked)


def _added_to(path: str, values: Mapping[str, str]) -> Iterator[Object]:
    """Keys of an object that is there, added or replaced."""
    return (_add(f"{path}/{_escaped(name)}", value) for name, value in values.items())


def _add(path: str, value: Any) -> Object:
    return {"op": "add", "path": path, "value": value}


def _escaped(name: str) -> str:
    """A name as one part of a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


# How long a pod that says nothing of it waits for a partner.
_DEFAULT_WAIT_S = 60.0

MOST_WAIT_S = 7 * 86400.0

# Few digits: each other number is another question to the service.
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,2})?")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The wishes of a pod.

    Attributes:
        partner: Name of the job that it wants beside it; None: any that fits.
        min_speed: Minimum relative speed, 0 to 1; None: the service's setting.
        max_p99_ms: Longest p99 latency of its answers, ms; None: the service's.
        expected_s: How long it takes alone on a whole GPU, s; None: not known.
        whole_when_full: Whether it takes a whole GPU where none for sharing is free.
        placed_by: Another placer, so that it is only advised; None: the chooser.
        max_wait_s: How long it waits for a partner before it runs alone, s.
        container: Name of the container that computes; None: the one that asks for a GPU.
    """

    job: str
    partner: str | None = None
    min_speed: float | None = None
    max_p99_ms: float | None = None
    expected_s: float | None = None
    whole_when_full: bool = False
    placed_by: str | None = None
    max_wait_s: float = _DEFAULT_WAIT_S
    container: str | None = None


def read_wishes(annotations: Mapping[str, object]) -> Wishes | None:
    """The wishes in a pod's annotations; None: it asks for nothing.

    Raises:
        InputError: some of them cannot be meant; the message names all of these.
    """
    if names.JOB not in annotations:
        return None
    read = _Annotations(annotations)
    text, number = read.text, read.number
    of_job = "the name of a profiled job: lower-case letters, digits, '.', '_' and '-'"
    wishes = Wishes(
        job=text(names.JOB, NAME, of_job) or "",
        partner=text(names.WITH, NAME, of_job),
        min_speed=number(names.MIN_SPEED, 1.0, "a number from 0 to 1"),
        max_p99_ms=number(names.MAX_P99_MS, 3600e3, "milliseconds above 0"),
        expected_s=number(names.EXPECTED_S, 366 * 86400.0, "seconds, a year at most"),
        whole_when_full=text(names.WHEN_FULL, "whole|wait", "whole or wait") == "whole",
        placed_by=text(names.PLACED_BY, "kai|hami|dra|other", "kai, hami, dra or other"),
        max_wait_s=_DEFAULT_WAIT_S
        if (wait_s := number(names.MAX_WAIT_S, MOST_WAIT_S, "seconds, a week at most")) is None
        else wait_s,
        container=text(names.CONTAINER, _LABEL.pattern, "the name of a container"),
    )
    if wishes.placed_by is not None and wishes.partner is None:
        read.faults.append(f"{names.PLACED_BY} needs {names.WITH}: the job that runs beside it")
    if read.faults:
        raise InputError(
            "annotations of the pod cannot be used: " + "; ".join(read.faults),
            fix="correct them, or leave them out",
        )
    return wishes


@dataclass(slots=True)
class _Annotations:
    """Reads one after the other, and keeps what is wrong with them."""

    given: Mapping[str, object]
    faults: list[str] = field(default_factory=list[str])

    def text(self, key: str, pattern: str, form: str) -> str | None:
        """A text of a pattern, which `form` says in words; None where it is none."""
        given = self.given.get(key)
        if given is None or (isinstance(given, str) and re.fullmatch(pattern, given)):
            return given
        self.faults.append(f"{key} is {shown(given)}, and should be {form}")
        return None

    def number(self, key: str, most: float, form: str) -> float | None:
        """A number up to the `most`; None where it is none."""
        given = self.text(key, _NUMBER.pattern, form)
        if given is None or float(given) <= most:
            return None if given is None else float(given)
        self.faults.append(f"{key} is {given}, and should be {form}")
        return None


Advise: TypeAlias = Callable[[Question], Answer]
"""Asks the service, within the time that the API server waits."""


def _advised(pod: Object, wishes: Wishes, place: int, answer: Answer) -> tuple[list[Object], str]:
    """The patch of a pod, and the warnings for its author.

    Args:
        pod: As it came; it is not changed.
        wishes: What it asks for; `placed_by` says in which words the answer is written.
        place: Of the container that computes.
        answer: Of the service.
    """
    if not isinstance(answer, Together):
        return [], f"advisor: no advice for {wishes.job} beside {wishes.partner}: {answer.why}"
    share, speed = answer.shares[0], answer.speeds[0]
    memory_mib = MemoryFit(answer.needs_mib[:1], None).limit_mib(0)
    notes = {
        names.ADVISED_SHARE: share,
        names.ADVISED_SPEED: f"{speed:.2f}",
        **({} if memory_mib is None else {names.ADVISED_MEMORY: str(memory_mib)}),
    }
    patch = [*_of_placer(pod, wishes.placed_by or "", place, share, memory_mib, notes)]
    message = (
        f"advisor: {share} % of the GPU beside {wishes.partner}, {100 * speed:.0f} % of the speed "
        "alone expected"
    )
    return [*_added_to("/metadata/annotations", notes), *patch], message


def _of_placer(
    pod: Object, placer: str, place: int, share: str, memory_mib: int | None, notes: dict[str, str]
) -> Iterator[Object]:
    """The same in the syntax of the pod's placer; settings of its author stay."""
    container = parts(pod, "spec", "containers")[place]
    path = f"/spec/containers/{place}"
    limits = part(container, "resources", "limits")
    if placer == "hami" and limits:
        # 100 would ask for the card alone.
        wanted = {"nvidia.com/gpucores": f"{float(share):.0f}"} if float(share) < WHOLE else {}
        if memory_mib is not None:
            wanted["nvidia.com/gpumem"] = str(memory_mib)
        missing = {name: count for name, count in wanted.items() if name not in limits}
        yield from _added_to(f"{path}/resources/limits", missing)
    set_by_author = part(pod, "metadata", "annotations")
    if placer == "kai" and memory_mib is not None and not {*_OF_KAI} & {*set_by_author}:
        notes[_OF_KAI[0]] = str(memory_mib)
    env = parts(container, "env")
    if placer == "dra" and float(share) < WHOLE and PERCENTAGE not in {v.get("name") for v in env}:
        yield from _more(f"{path}/env", env, [{"name": PERCENTAGE, "value": share}])


# Annotations of KAI-Scheduler, MiB or a part of the card; one of them is set.
_OF_KAI = ("gpu-memory", "gpu-fraction")

# Prefixes of variables that only the webhook may set in the computing container.
_OURS = (*LIMIT_VARIABLES, MEMORY_LIMIT, "NVIDIA_VISIBLE_DEVICES", "ADVISOR_")


def container_of(pod: Object, wishes: Wishes) -> tuple[int, Object]:
    """The container that computes, with its place in the list.

    Raises:
        InputError: it cannot be told which one, or it asks for something else than one GPU.
    """
    containers = parts(pod, "spec", "containers")
    if wishes.container is not None:
        candidates = [
            (i, c) for i, c in enumerate(containers) if word(c, "name") == wishes.container
        ]
    else:
        only = len(containers) == 1
        candidates = [(i, c) for i, c in enumerate(containers) if only or _asks_for_gpu(c)]
    if len(candidates) != 1:
        there = ", ".join(shown(word(container, "name")) for container in containers)
        raise InputError(
            f"which container computes on the GPU? There are {there}",
            fix=f"name one of them: {names.CONTAINER}",
        )
    return candidates[0]


def _check(pod: Object, container: Object, shape: _PodShape, host_paths: Sequence[str]) -> None:
    """Refuse what cannot share a GPU, or would get more of the node than its own part.

    Raises:
        InputError: what is refused, and what to do.
    """
    _check_pod(part(pod, "spec"))
    _check_resources(pod, container, shape)
    _check_variables(container, shape)
    for other in _containers(pod):
        if other is not container:
            _check_beside(other)
        context = part(other, "securityContext")
        does = {
            "is privileged": context.get("privileged"),
            "adds capabilities": part(context, "capabilities").get("add"),
            "unmasks /proc": context.get("procMount") not in (None, "Default"),
        }
        if done := next((what for what, is_so in does.items() if is_so), None):
            raise _too_much(f"the container {shown(word(other, 'name'))} {done}")
    _check_volumes(pod, container, shape, host_paths)


def _check_beside(other: Object) -> None:
    """Refuse a container that would see GPUs, or files of other pods, beside the one that computes.

    Raises:
        InputError: what is refused, and what to do.
    """
    for variable in parts(other, "env"):
        if word(variable, "name") == _NO_GPU["name"] and variable != _NO_GPU:
            raise InputError(
                f"the container {shown(word(other, 'name'))} sets {_NO_GPU['name']}",
                why="it would have GPUs past MPS, and so past every limit",
                fix="leave it out; one container of a pod computes",
            )
    for mount in parts(other, "volumeMounts"):
        if word(mount, "name") in _VOLUMES:
            raise _of_ours(f"a mount of {word(mount, 'name')}")


def _check_volumes(
    pod: Object, container: Object, shape: _PodShape, host_paths: Sequence[str]
) -> None:
    for volume in parts(pod, "spec", "volumes"):
        if volume in shape.volumes:
            continue
        if word(volume, "name") in _VOLUMES:
            raise _of_ours(f"the volume {word(volume, 'name')}")
        path = word(part(volume, "hostPath"), "path")
        if path and not any(_is_in(path, allowed) for allowed in host_paths):
            raise _too_much(f"a volume is the folder {shown(path)} of the node")
    for mount in parts(container, "volumeMounts"):
        if mount not in shape.mounts:
            if word(mount, "name") in _VOLUMES:
                raise _of_ours(f"a mount of {word(mount, 'name')}")
            path = word(mount, "mountPath")
            ours = [mount["mountPath"] for mount in shape.mounts]
            if any(_is_in(path, mount) or _is_in(mount, path) for mount in ours):
                raise _of_ours(f"the mount at {shown(path)}")


def _check_pod(spec: Object) -> None:
    claims = parts(spec, "resourceClaims")
    faults: tuple[tuple[object, InputError], ...] = (
        (
            spec.get("hostIPC"),
            InputError(
                "hostIPC shows the pod the shared memory of all others",
                fix="leave it out: the webhook mounts what MPS needs",
            ),
        ),
        (spec.get("hostPID"), _too_much("hostPID is set")),
        (spec.get("hostNetwork"), _too_much("hostNetwork is set")),
        (
            spec.get("hostUsers") is False,
            InputError(
                "hostUsers is false, so the pod's user is another one for MPS than its partner's",
                why="an MPS server serves one user",
                fix="leave hostUsers out",
            ),
        ),
        (
            spec.get("nodeName"),
            InputError(
                "nodeName passes by the scheduler, and so by the choice of node and GPU",
                fix=f"leave it out; nodeSelector {names.HOSTNAME} is heeded",
            ),
        ),
        (
            any(claim.get("resourceClaimTemplateName") for claim in claims),
            InputError(
                "a template makes a claim for each pod, which two pods cannot share",
                fix="name one claim in both pods: resourceClaimName",
            ),
        ),
    )
    if fault := next((error for is_so, error in faults if is_so), None):
        raise fault


# Patterns of resources that divide a GPU in another way, what each is, why it is refused, and what
# to do. What else is called `nvidia.com/`, such as a network card, is no GPU.
_DIVIDED = (
    (
        r"nvidia\.com/mig-",
        "a MIG instance: its SMs are fixed",
        "no share of a GPU can be set on it",
        f"ask for {names.GPU_RESOURCE}: 1 on nodes without MIG, or leave advisor's annotations out",
    ),
    (
        r"nvidia\.com/(gpumem|gpucores|priority)",
        "a limit of HAMi, which divides GPUs itself",
        "it limits no pod on a GPU that advisor chooses",
        f"set {names.PLACED_BY}: hami, and advisor writes these limits; or leave it out",
    ),
    (
        r"nvidia\.com/.*(gpu|\.shared)$",
        "shared by the device plugin",
        "its even split caps every pod, so no other share can be set",
        f"ask for {names.GPU_RESOURCE}: 1 on nodes without its sharing",
    ),
)


def _check_resources(pod: Object, container: Object, shape: _PodShape) -> None:
    booked_percent(container)
    for other in _containers(pod):
        for name, count in _gpus(other):
            faults = (
                *(
                    (
                        name != names.GPU_RESOURCE and re.match(form, name),
                        InputError(f"{name} is {what}", why=why, fix=fix),
                    )
                    for form, what, why, fix in _DIVIDED
                ),
                (
                    other is not container,
                    InputError(
                        f"the container {shown(word(other, 'name'))} asks for a GPU, too",
                        fix="one container of a pod can share a GPU",
                    ),
                ),
                (
                    name == names.GPU_RESOURCE and str(count) != "1",
                    InputError(
                        f"the pod asks for {shown(count)} GPUs",
                        fix=f"a pod that shares asks for {names.GPU_RESOURCE}: 1",
                    ),
                ),
                (
                    shape is _ON_CLAIM,
                    InputError(
                        f"the container has a claim and asks for {name}",
                        fix="leave one of them out",
                    ),
                ),
            )
            if fault := next((error for is_so, error in faults if is_so), None):
                raise fault
    if not (_asks_for_gpu(container) or shape is _ON_CLAIM):
        raise InputError(
            f"the container {shown(word(container, 'name'))} asks for no GPU",
            fix=f"ask for {names.GPU_RESOURCE}: 1 or {names.SHARE_RESOURCE}, or use a claim",
        )


def _check_variables(container: Object, shape: _PodShape) -> None:
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
    return (
        (name, count)
        for kind in ("limits", "requests")
        for name, count in part(container, "resources", kind).items()
        # Charts write the number of GPUs of each container, also 0.
        if str(count) != "0"
        and (
            name in (names.GPU_RESOURCE, names.SHARE_RESOURCE)
            or any(re.match(form, name) for form, *_ in _DIVIDED)
        )
    )


def _asks_for_gpu(container: Object) -> bool:
    return any(True for _ in _gpus(container))


def _clean(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/")).rstrip("/") + "/"


def _is_in(path: str, folder: str) -> bool:
    return _clean(path).startswith(_clean(folder))


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


_VERSION = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}

_FULL = (
    "advisor: no GPU is free for sharing, so the pod waits behind its gate until one is; with the "
    f"annotation {names.WHEN_FULL}: whole it would ask for a whole GPU instead"
)

# Characters of a reason.
_LONGEST = 1000


def review(
    admission: Object,
    chooser: str | None,
    host_paths: Sequence[str] = (),
    *,
    is_full: bool = False,
    advise: Advise = lambda _: NoAnswer("there is no service to ask"),
) -> Object:
    """Answer a review.

    Args:
        admission: The AdmissionReview.
        chooser: Name of the user that writes what was chosen; None: not known yet.
        host_paths: Folders of nodes that pods may mount, with all that is in them.
        is_full: Whether no GPU is free that pods could share.
        advise: Asks the service about a pod that another scheduler places.

    Raises:
        InputError: it is no AdmissionReview of this version.
    """
    request = part(admission, "request")
    if any(admission.get(key) != value for key, value in _VERSION.items()) or not word(
        request, "uid"
    ):
        raise InputError(
            "this is no AdmissionReview of admission.k8s.io/v1",
            fix="set admissionReviewVersions: [v1] in the webhook's configuration",
        )
    create = partial(_created, host_paths=host_paths, is_full=is_full, advise=advise)
    return {**_VERSION, "response": {"uid": request["uid"], **_answer(request, chooser, create)}}


def _answer(
    request: Object, chooser: str | None, create: Callable[[Object], tuple[list[Object], str]]
) -> Object:
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
        return {
            "allowed": False,
            "status": {"code": 422, "reason": "Invalid", "message": f"advisor: {error}"[:_LONGEST]},
        }
    response = {"allowed": True, **({"warnings": [warning]} if warning else {})}
    if not patch:
        return response
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    return {**response, "patchType": "JSONPatch", "patch": encoded}


def _created(
    pod: Object, *, host_paths: Sequence[str], is_full: bool, advise: Advise
) -> tuple[list[Object], str]:
    """The patch of a new pod, and the warnings for its author, which `kubectl` prints."""
    annotations = part(pod, "metadata", "annotations")
    if strangers := sorted(_ours(annotations) - names.REQUESTED):
        raise InputError(
            f"{shown(strangers[0])} is not an annotation that the author of a pod can set",
            fix=f"leave it out; known are {', '.join(sorted(names.REQUESTED))}",
        )
    if (wishes := read_wishes(annotations)) is None:
        _check_unmanaged(pod)
        return [], ""
    place, container = container_of(pod, wishes)
    if wishes.job == AUTO:
        # Of what it runs: its image, by digest where that is given, its command and arguments.
        image = word(container, "image") or "image"
        # Without a command the image has one.
        entry: Any = container.get("command") or re.split("[:@]", image.rpartition("/")[2])[:1]
        with InputError.instead_of(TypeError, "command and args of the container are no lists"):
            words = [str(word_) for word_ in (*entry, *(container.get("args") or ()))]
        name = {names.JOB: watched_job(words, None, ProgressSettings(), image=image).name}
        meta = {**part(pod, "metadata"), "annotations": {**annotations, **name}}
        patch, message = _created(
            {**pod, "metadata": meta}, host_paths=host_paths, is_full=is_full, advise=advise
        )
        return [*_added_to("/metadata/annotations", name), *patch], message
    if wishes.placed_by is not None:
        _check_unmanaged(pod)
        job = JobRequest(job=wishes.job, min_speed=wishes.min_speed, max_p99_ms=wishes.max_p99_ms)
        other = JobRequest(job=wishes.partner or wishes.job)
        return _advised(pod, wishes, place, advise(Question(jobs=(job, other), model=None)))
    claimed = parts(pod, "spec", "resourceClaims") and parts(container, "resources", "claims")
    shape = _ON_CLAIM if claimed else ON_HOST
    _check(pod, container, shape, host_paths)
    if not is_full:
        return _patch_of(pod, place, shape), ""
    whole = names.GPU_RESOURCE in part(container, "resources", "limits")
    if wishes.whole_when_full and whole and names.MANAGED not in part(pod, "metadata", "labels"):
        return [], "advisor: no GPU is free for sharing, so the pod asks for a whole one"
    return _patch_of(pod, place, shape), _FULL


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
    if word(part(request, "userInfo"), "username") != chooser and (changed := _changed(old, new)):
        raise InputError(
            f"{changed} cannot be changed",
            why="advisor chooses GPU, node and share of a pod",
            fix="delete the pod and make a new one",
        )
    if names.MANAGED not in part(old, "metadata", "labels"):
        return []
    # A manifest that is applied again asks once more for the GPU that was taken away from it.
    again = (
        _without_gpu(container, f"/spec/containers/{place}")
        for place, container in enumerate(parts(new, "spec", "containers"))
    )
    return [*_debugged(old, new), *itertools.chain.from_iterable(again)]


def _debugged(old: Object, new: Object) -> Iterator[Object]:
    """Containers that `kubectl debug` adds see no GPU and no files of other pods."""
    there = parts(old, "spec", "ephemeralContainers")
    if added := [c for c in parts(new, "spec", "ephemeralContainers") if c not in there]:
        for container in added:
            _check_beside(container)
        yield from _without_devices(
            {"spec": {"ephemeralContainers": parts(new, "spec", "ephemeralContainers")}}, None
        )


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
