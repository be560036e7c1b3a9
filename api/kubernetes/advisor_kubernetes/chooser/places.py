"""GPUs of nodes, and which of them a pod may have."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.chooser.pods import Pod
from advisor_kubernetes.objects import Object, part, parts, word

_TOLERATES_ALL = ("", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSlot:
    """A GPU, or a claim that stands for one.

    Attributes:
        key: Its UUID, or the claim.
        model: As its driver names it; None: not known.
        node: Of the GPU; None: the claim says where.
    """

    key: str
    model: str | None = None
    node: "Node | None" = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """A node that takes new pods.

    Attributes:
        labels: For what pods ask of nodes.
        taints: Those that keep pods away.
        gpus: UUID and model of those that are ready.
        checked_at: What its agent wrote when that was last true; empty: nobody renews it.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Object, ...]
    gpus: tuple[tuple[str, str], ...]
    checked_at: str = ""


def read_node(item: Object) -> Node:
    """A node, of the API's JSON; without GPUs where it takes no new pods.

    Raises:
        InputError: what its agent has written cannot be read.
    """
    spec, metadata = part(item, "spec"), part(item, "metadata")
    labels = part(metadata, "labels")
    conditions = parts(item, "status", "conditions")
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    takes = ready and not spec.get("unschedulable") and names.HOSTNAME in labels
    taints = [t for t in parts(spec, "taints") if t.get("effect") in ("NoSchedule", "NoExecute")]
    told = word(part(metadata, "annotations"), names.GPUS)
    return Node(
        name=word(metadata, "name"),
        labels=labels,
        taints=tuple(taints),
        gpus=tuple(_gpus(told)) if takes and told else (),
        checked_at=word(part(metadata, "annotations"), names.GPUS_CHECKED_AT),
    )


def _gpus(told: str) -> Iterator[tuple[str, str]]:
    try:
        found: Any = json.loads(told)
        for gpu in found:
            if gpu["ready"] is True:
                yield str(gpu["uuid"]), str(gpu["model"])
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{names.GPUS} is not a list of GPUs",
            why=repr(error),
            fix="run the agent of the same version",
        ) from error


class Gpus:
    """The free GPUs of a round; each look at them costs little, however many there are.

    Args:
        nodes: All.
        pods: Not free are the GPUs and claims that some of these hold.
        mixed_nodes: Whether pods of several namespaces may have GPUs of one node.
    """

    def __init__(self, nodes: Sequence[Node], pods: Iterable[Pod], *, mixed_nodes: bool) -> None:
        holders = [(pod, pod.holds) for pod in pods if pod.holds is not None]
        self._nodes, self._mixed = nodes, mixed_nodes
        self._held = {held for _, held in holders}
        self._tenants = {pod.given.get(names.NODE): pod.namespace for pod, _ in holders}
        self._free: dict[object, dict[str, deque[GpuSlot]]] = {}

    def take(self, place: GpuSlot, pod: Pod) -> None:
        """Give a GPU to somebody."""
        self._held.add(place.key)
        if place.node is not None:
            self._tenants[place.node.name] = pod.namespace

    def for_all(self, *pods: Pod) -> list[GpuSlot]:
        """A free GPU of each model that all of these pods, of one namespace, may have."""
        claim = pods[0].claim
        if claim is not None:
            return [] if claim in self._held else [GpuSlot(key=claim)]
        kind = (pods[0].namespace, frozenset(pod.where for pod in pods))
        if kind not in self._free:
            self._free[kind] = self._that_fit(pods)
        found: list[GpuSlot] = []
        for places in self._free[kind].values():
            while places and not self._is_free(places[0], pods[0].namespace):
                places.popleft()
            found += [places[0]] if places else []
        return found

    def _is_free(self, place: GpuSlot, namespace: str) -> bool:
        """Who has a GPU of a node keeps others out, whose shared memory he would see."""
        tenant = place.node and self._tenants.get(place.node.name, namespace)
        return place.key not in self._held and (self._mixed or tenant == namespace)

    def _that_fit(self, pods: Sequence[Pod]) -> dict[str, deque[GpuSlot]]:
        found: dict[str, deque[GpuSlot]] = {}
        for node in self._nodes:
            if all(fits(pod.spec, node) for pod in pods):
                for uuid, model in node.gpus:
                    place = GpuSlot(key=uuid, model=model, node=node)
                    found.setdefault(model, deque()).append(place)
        return found


def fits(spec: Object, node: Node) -> bool:
    """Whether labels and taints let a pod run on a node; processors and memory are not counted."""
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
