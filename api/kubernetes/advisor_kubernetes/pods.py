"""Pods and nodes as the chooser sees them, and which nodes take which pods."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from advisor.client import JobRequest
from advisor.core.gpu import MOST_MIB
from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.admission import Wishes, booked_percent, container_of, read_wishes
from advisor_kubernetes.objects import Object, part, parts, quantity, word
from advisor_node.advice import is_share

_TOLERATES_ALL = ("", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSlot:
    """A GPU, or a claim that stands for one.

    Attributes:
        key: Its UUID, or the claim.
        model: As its driver names it; None: not known.
        memory_mib: Of the card; None: not known.
        node: Of the GPU; None: the claim says where, or its node has it.
    """

    key: str
    model: str | None = None
    memory_mib: int | None = None
    node: "Node | None" = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """A node that takes new pods.

    Attributes:
        labels: For what pods ask of nodes.
        taints: Those that keep pods away.
        gpus: Those that are ready.
        allocatable: What all pods may ask for together; nothing: it does not say.
        checked_at: What its agent wrote when that was last true; empty: nobody renews it.
        refused: Why none of its GPUs is used; empty: they are.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Object, ...]
    gpus: tuple[GpuSlot, ...]
    allocatable: Mapping[str, float] = field(default_factory=dict[str, float])
    checked_at: str = ""
    refused: str = ""


def read_node(item: Object) -> Node:
    """A node, of the API's JSON; without GPUs where it takes no new pods.

    Raises:
        InputError: what it or its agent says cannot be read.
    """
    spec, metadata = part(item, "spec"), part(item, "metadata")
    labels = part(metadata, "labels")
    conditions = parts(item, "status", "conditions")
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    takes = ready and not spec.get("unschedulable") and names.HOSTNAME in labels
    taints = [t for t in parts(spec, "taints") if t.get("effect") in ("NoSchedule", "NoExecute")]
    told = word(part(metadata, "annotations"), names.GPUS)
    offered = part(item, "status", "allocatable")
    allocatable = {name: quantity(count) for name, count in offered.items()}
    refused = _refused(allocatable) if told else ""
    return Node(
        name=word(metadata, "name"),
        labels=labels,
        taints=tuple(taints),
        gpus=tuple(_gpus(told)) if takes and told and not refused else (),
        allocatable=allocatable,
        checked_at=word(part(metadata, "annotations"), names.GPUS_CHECKED_AT),
        refused=refused,
    )


def _refused(allocatable: Mapping[str, float]) -> str:
    """A device plugin there gives the same GPUs to others, whom nobody limits."""
    faults = (
        f"its device plugin offers {count:g} {name}, so that others get the same GPUs: "
        "keep it off this node (nvidia.com/gpu.deploy.device-plugin=false)"
        for name, count in allocatable.items()
        if name.startswith(names.GPU_RESOURCE) and count > 0
    )
    return next(faults, "")


def _gpus(told: str) -> Iterator[GpuSlot]:
    try:
        found: Any = json.loads(told)
        for gpu in found:
            if gpu["ready"] is True:
                memory_mib = gpu.get("memory_mib")
                yield GpuSlot(
                    key=str(gpu["uuid"]),
                    model=str(gpu["model"]),
                    memory_mib=memory_mib and int(memory_mib),
                )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{names.GPUS} is not a list of GPUs",
            why=repr(error),
            fix="run the agent of the same version",
        ) from error


def requested(spec: Object) -> Mapping[str, float]:
    """What a pod asks of its node, as the scheduler counts it, and its place among the pods.

    Raises:
        InputError: it says something that is no quantity.
    """
    total: Mapping[str, float] = {"pods": 1.0}
    for container in parts(spec, "containers"):
        total = added(total, _asked(container))
    for container in parts(spec, "initContainers"):
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            total = added(total, asked)  # a sidecar, which stays
        else:
            total = {**total, **{n: max(count, total.get(n, 0.0)) for n, count in asked.items()}}
    return added(total, {name: quantity(text) for name, text in part(spec, "overhead").items()})


def _asked(container: Object) -> Mapping[str, float]:
    told = {**part(container, "resources", "limits"), **part(container, "resources", "requests")}
    return {name: quantity(count) for name, count in told.items()}


def added(some: Mapping[str, float], more: Mapping[str, float]) -> Mapping[str, float]:
    """Two amounts of all resources together."""
    return {**some, **{name: some.get(name, 0.0) + count for name, count in more.items()}}


def fits(spec: Object, node: Node) -> bool:
    """Whether labels and taints let a pod run on a node."""
    if any(node.labels.get(key) != value for key, value in part(spec, "nodeSelector").items()):
        return False
    tolerations = parts(spec, "tolerations")
    if not all(any(_tolerates(t, taint) for t in tolerations) for taint in node.taints):
        return False
    required = part(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = parts(required, "nodeSelectorTerms")
    return not terms or any(_term_holds(term, node) for term in terms)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (*_TOLERATES_ALL, taint.get("effect")):
        return False
    exists = toleration.get("operator") == "Exists"
    if toleration.get("key") in _TOLERATES_ALL:
        return exists
    same = toleration["key"] == taint.get("key")
    return same and (exists or (toleration.get("value") or "") == (taint.get("value") or ""))


def _term_holds(term: Object, node: Node) -> bool:
    fields = {"metadata.name": node.name}
    labels = parts(term, "matchExpressions")
    return all(_holds(e, node.labels) for e in labels) and all(
        _holds(e, fields) for e in parts(term, "matchFields")
    )


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value = labels.get(word(expression, "key"))
    values = cast("list[str]", expression.get("values") or [])
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compares(operator, value, values)
        case _:
            return False  # of a newer Kubernetes: a node that may not fit is left alone


def _compares(operator: str, value: str | None, values: list[str]) -> bool:
    try:
        have, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if operator == "Gt" else have < bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that the webhook has changed.

    Attributes:
        key: Namespace and name, as `advisor.dev/partner` has it.
        uid: Of this pod and no later one of the same name.
        version: Its resourceVersion.
        created_s: When it was made, seconds since 1970.
        started_s: When its node took it; None: not yet.
        user: Whom it runs as; equal texts are the same user for MPS.
        claim: The resource claim that brings its GPU; None: a GPU of a node is chosen.
        booked_percent: What it books of a GPU.
        gates: Names of its scheduling gates.
        requested: What it asks of its node.
        over: It has ended, or is about to be deleted before it began.
        given: Annotations that the chooser wrote.
        spec: As it came, for what it says of nodes.
        where: What it says of nodes, as a text; equal texts fit the same nodes.
    """

    key: str
    uid: str
    version: str
    asked: Wishes
    created_s: float
    started_s: float | None
    user: str
    claim: str | None
    booked_percent: int
    requested: Mapping[str, float]
    gates: tuple[str, ...]
    over: bool
    given: Mapping[str, str]
    spec: Object
    where: str

    @property
    def namespace(self) -> str:
        """Where it is."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """What it is called there."""
        return self.key.partition("/")[2]

    @property
    def kind(self) -> object:
        """What the choice of a partner and a GPU depends on; equal ones are alike in it."""
        needs = (self.where, self.booked_percent, tuple(self.requested.items()))
        return (self.namespace, self.user, self.claim, *needs, self.asked.partner, self.wanted)

    @property
    def wanted(self) -> JobRequest:
        """Its job, and what that must keep; its length to two digits, as each asks anew."""
        return self._wanted(self.asked.expected_s)

    def left(self, now_s: float) -> JobRequest:
        """The same of what it has still to do; of one that takes longer than told nobody knows.

        It counts as if it had been alone: so at least so much is left of it.
        """
        expected_s = self.asked.expected_s
        if expected_s and self.started_s is not None:
            expected_s = max(0.0, expected_s - (now_s - self.started_s))
        return self._wanted(expected_s)

    def _wanted(self, expected_s: float | None) -> JobRequest:
        asked = self.asked
        return JobRequest(
            job=asked.job,
            min_speed=asked.min_speed,
            max_p99_ms=asked.max_p99_ms,
            work_s=(expected_s and float(f"{expected_s:.2g}")) or None,
        )

    @property
    def path(self) -> str:
        """Of the pod in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def waits(self) -> bool:
        """Nothing is decided yet."""
        return names.GATE in self.gates and not self.over

    @property
    def share(self) -> str | None:
        """The share that it has, percent; None: none, or nothing that the chooser has written."""
        given = self.given.get(names.SHARE_PERCENT, "")
        return given if is_share(given) else None

    @property
    def bound_mib(self) -> int:
        """At how much its memory is bounded; what no card has where the chooser has not said it."""
        own = self.given.get(names.MEMORY_MIB, "").partition("/")[0]
        return int(own) if own.isdigit() else int(MOST_MIB)

    @property
    def holds(self) -> str | None:
        """The GPU or claim that it keeps from others; None: none."""
        if self.over or names.SHARE_PERCENT not in self.given:
            return None
        return self.given.get(names.GPU_UUID) or self.claim


def read_pod(item: Object) -> Pod:
    """A pod, of the API's JSON.

    Raises:
        InputError: it is not one that the webhook has changed.
    """
    metadata, spec = part(item, "metadata"), part(item, "spec")
    annotations: Mapping[str, str] = part(metadata, "annotations")
    asked = read_wishes(annotations)
    if asked is None:
        raise InputError("the pod asks for nothing", fix=f"set {names.JOB} when it is made")
    _, container = container_of(item, _sure(asked, item))
    namespace = word(metadata, "namespace")
    gates = tuple(word(gate, "name") for gate in parts(spec, "schedulingGates"))
    ended = part(item, "status").get("phase") in ("Succeeded", "Failed")
    return Pod(
        key=f"{namespace}/{word(metadata, 'name')}",
        uid=word(metadata, "uid"),
        version=word(metadata, "resourceVersion"),
        asked=asked,
        created_s=_moment(word(metadata, "creationTimestamp")),
        started_s=_moment(word(part(item, "status"), "startTime")) or None,
        user=_user(spec, container),
        claim=_claim(namespace, spec, container),
        booked_percent=booked_percent(container),
        requested=requested(spec),
        gates=gates,
        over=ended or ("deletionTimestamp" in metadata and names.GATE in gates),
        given={key: text for key, text in annotations.items() if key not in names.ASKED},
        spec=spec,
        where=str([spec.get(key) for key in ("nodeSelector", "affinity", "tolerations")]),
    )


def _sure(asked: Wishes, item: Object) -> Wishes:
    """With the container that the webhook chose: it asks for no GPU any more."""
    if asked.container is not None:
        return asked
    limited = [
        word(container, "name")
        for container in parts(item, "spec", "containers")
        if any(names.SHARE_PERCENT in str(v.get("valueFrom")) for v in parts(container, "env"))
    ]
    if len(limited) != 1:
        raise InputError("no container is limited", fix="make the pod again, with the webhook")
    return replace(asked, container=limited[0])


def _user(spec: Object, container: Object) -> str:
    """MPS serves one user at a time; where the pod does not say whom, its image does."""
    for context in (part(container, "securityContext"), part(spec, "securityContext")):
        if (user := context.get("runAsUser")) is not None:
            return f"uid {user}"
    return f"the user of image {word(container, 'image')}"


def _claim(namespace: str, spec: Object, container: Object) -> str | None:
    used = {word(claim, "name") for claim in parts(container, "resources", "claims")}
    claims = (
        f"claim {namespace}/{claim['resourceClaimName']}"
        for claim in parts(spec, "resourceClaims")
        if word(claim, "name") in used and word(claim, "resourceClaimName")
    )
    return next(claims, None)


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
