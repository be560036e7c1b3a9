"""Nodes and their GPUs, and which pods they take."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.objects import Object, part, parts, quantity, word

_TOLERATES_ALL = ("", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSlot:
    """A GPU, or a claim that stands for one.

    Attributes:
        key: Its UUID, or the claim.
        model: As its driver names it; None: not known.
        memory_mib: Of the card; None: not known.
        node: Of the GPU; None: the claim says where.
    """

    key: str
    model: str | None = None
    memory_mib: int | None = None
    node: "Node | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpu:
    """A GPU that is ready, as the agent of its node says."""

    uuid: str
    model: str
    memory_mib: int | None = None


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
    gpus: tuple[NodeGpu, ...]
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
    for name, count in allocatable.items():
        if name.startswith(names.GPU_RESOURCE) and count > 0:
            return (
                f"its device plugin offers {count:g} {name}, so that others get the same GPUs: "
                "keep it off this node (nvidia.com/gpu.deploy.device-plugin=false)"
            )
    return ""


def _gpus(told: str) -> Iterator[NodeGpu]:
    try:
        found: Any = json.loads(told)
        for gpu in found:
            if gpu["ready"] is True:
                memory_mib = gpu.get("memory_mib")
                yield NodeGpu(
                    uuid=str(gpu["uuid"]),
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
    over = part(spec, "overhead")
    return added(total, {name: quantity(text) for name, text in over.items()})


def _asked(container: Object) -> Mapping[str, float]:
    told = {**part(container, "resources", "limits"), **part(container, "resources", "requests")}
    return {name: quantity(count) for name, count in told.items()}


def added(some: Mapping[str, float], more: Mapping[str, float]) -> Mapping[str, float]:
    """Two amounts of all resources together."""
    return {**some, **{name: some.get(name, 0.0) + count for name, count in more.items()}}


def fits(spec: Object, node: Node) -> bool:
    """Whether labels and taints let a pod run on a node."""
    wanted: Mapping[str, str] = part(spec, "nodeSelector")
    if any(node.labels.get(key) != value for key, value in wanted.items()):
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
