"""Which pods share a GPU: a matching over waiting and running pods, and the patches for it."""

import functools
import itertools
import json
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar, cast

from advisor.client import JobRequest
from advisor.core.gpu import ADVISED_JOBS, MEMORY_MIB, MOST_JOBS, MOST_MIB, WHOLE, MemoryFit
from advisor.core.records import grouped
from advisor.errors import InputError
from advisor_kubernetes import names
from advisor_kubernetes.admission import Wishes, booked_percent, container_of, read_wishes
from advisor_kubernetes.cluster import Object, part, parts, quantity, word
from advisor_node.advice import (
    Apart,
    AskAdvice,
    NoAnswer,
    Offer,
    Question,
    Together,
    is_share,
    matched,
    weighed,
)

_TOLERATES_ALL, _REPELS = ("", None), ("NoSchedule", "NoExecute")


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
        checked_at: What its agent wrote when that was last true; empty: no agent renews it.
        refused: Why none of its GPUs is used; empty: they are.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Object, ...]
    gpus: tuple[GpuSlot, ...]
    allocatable: Mapping[str, float] = field(default_factory=dict[str, float])
    checked_at: str = ""
    refused: str = ""

    @classmethod
    def read(cls, item: Object) -> "Node":
        """A node, of the API's JSON; without GPUs where it takes no new pods.

        Raises:
            InputError: what it or its agent says cannot be read.
        """
        spec, metadata = part(item, "spec"), part(item, "metadata")
        labels = part(metadata, "labels")
        conditions = parts(item, "status", "conditions")
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
        takes = ready and not spec.get("unschedulable") and names.HOSTNAME in labels
        taints = (t for t in parts(spec, "taints") if t.get("effect") in _REPELS)
        text = word(part(metadata, "annotations"), names.GPUS)
        allocatable = {
            name: quantity(count) for name, count in part(item, "status", "allocatable").items()
        }
        # A device plugin there gives the same GPUs to pods without limits.
        faults = (
            f"its device plugin offers {count:g} {name}, so that others get the same GPUs: "
            "keep it off this node (nvidia.com/gpu.deploy.device-plugin=false)"
            for name, count in allocatable.items()
            if name.startswith(names.GPU_RESOURCE) and count > 0
        )
        refused = next(faults, "") if text else ""
        return cls(
            name=word(metadata, "name"),
            labels=labels,
            taints=tuple(taints),
            gpus=tuple(_gpus(text)) if takes and text and not refused else (),
            allocatable=allocatable,
            checked_at=word(part(metadata, "annotations"), names.GPUS_CHECKED_AT),
            refused=refused,
        )


def _gpus(text: str) -> Iterator[GpuSlot]:
    try:
        slots: Any = json.loads(text)
        yield from (
            GpuSlot(
                key=str(gpu["uuid"]),
                model=str(gpu["model"]),
                memory_mib=(mib := gpu.get("memory_mib")) and int(mib),
            )
            for gpu in slots
            if gpu["ready"] is True
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
    total = functools.reduce(added, map(_requests_of, parts(spec, "containers")), {"pods": 1.0})
    for container in parts(spec, "initContainers"):
        requests = _requests_of(container)
        if container.get("restartPolicy") == "Always":
            total = added(total, requests)  # a sidecar, which stays
        else:
            total = {**total, **{n: max(count, total.get(n, 0.0)) for n, count in requests.items()}}
    return added(total, {name: quantity(text) for name, text in part(spec, "overhead").items()})


def _requests_of(container: Object) -> Mapping[str, float]:
    amounts = {**part(container, "resources", "limits"), **part(container, "resources", "requests")}
    return {name: quantity(count) for name, count in amounts.items()}


def added(some: Mapping[str, float], more: Mapping[str, float]) -> Mapping[str, float]:
    """Two amounts of all resources together."""
    return {**some, **{name: some.get(name, 0.0) + count for name, count in more.items()}}


def _fits(spec: Object, node: Node) -> bool:
    """Whether labels and taints let a pod run on a node."""
    if any(node.labels.get(key) != value for key, value in part(spec, "nodeSelector").items()):
        return False
    tolerations = parts(spec, "tolerations")
    if not all(any(_tolerates(t, taint) for t in tolerations) for taint in node.taints):
        return False
    required = part(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms, fields = parts(required, "nodeSelectorTerms"), {"metadata.name": node.name}
    return not terms or any(
        all(_holds(e, node.labels) for e in parts(term, "matchExpressions"))
        and all(_holds(e, fields) for e in parts(term, "matchFields"))
        for term in terms
    )


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (*_TOLERATES_ALL, taint.get("effect")):
        return False
    exists = toleration.get("operator") == "Exists"
    if toleration.get("key") in _TOLERATES_ALL:
        return exists
    return toleration["key"] == taint.get("key") and (
        exists or (toleration.get("value") or "") == (taint.get("value") or "")
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
            try:
                have, bound = int(value or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return have > bound if operator == "Gt" else have < bound
        case _:
            return False  # of a newer Kubernetes: a node that may not fit is left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that the webhook has changed.

    Attributes:
        key: Namespace and name, as `advisor.dev/partner` has it.
        uid: Of this pod and no later one of the same name.
        version: Its resourceVersion.
        created_s: When it was made, seconds since 1970.
        started_s: When its node took it; None: not yet.
        user: The user that it runs as; equal texts are the same user for MPS.
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
    wishes: Wishes
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
        return (self.namespace, self.user, self.claim, *needs, self.wishes.partner, self.wanted)

    @property
    def wanted(self) -> JobRequest:
        """Its job, and what that must keep; its length to two digits, as each asks anew."""
        return self._wanted(self.wishes.expected_s)

    def left(self, now_s: float) -> JobRequest:
        """The same of the remaining work; unknown for a job past its stated time.

        It counts as if it had been alone: so at least so much is left of it.
        """
        if (expected_s := self.wishes.expected_s) and self.started_s is not None:
            expected_s = max(0.0, expected_s - (now_s - self.started_s))
        return self._wanted(expected_s)

    def _wanted(self, expected_s: float | None) -> JobRequest:
        wishes = self.wishes
        return JobRequest(
            job=wishes.job,
            min_speed=wishes.min_speed,
            max_p99_ms=wishes.max_p99_ms,
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
        first_bound = self.given.get(names.MEMORY_MIB, "").partition("/")[0]
        return int(first_bound) if first_bound.isdigit() else int(MOST_MIB)

    @property
    def holds(self) -> str | None:
        """The GPU or claim that it keeps from others; None: none."""
        holds = not self.over and names.SHARE_PERCENT in self.given
        return (self.given.get(names.GPU_UUID) or self.claim) if holds else None

    @classmethod
    def read(cls, item: Object) -> "Pod":
        """A pod, of the API's JSON.

        Raises:
            InputError: it is not one that the webhook has changed.
        """
        metadata, spec = part(item, "metadata"), part(item, "spec")
        annotations: Mapping[str, str] = part(metadata, "annotations")
        if (wishes := read_wishes(annotations)) is None:
            raise InputError("the pod asks for nothing", fix=f"set {names.JOB} when it is made")
        _, container = container_of(item, _sure(wishes, item))
        namespace = word(metadata, "namespace")
        gates = tuple(word(gate, "name") for gate in parts(spec, "schedulingGates"))
        ended = part(item, "status").get("phase") in ("Succeeded", "Failed")
        used = {word(claim, "name") for claim in parts(container, "resources", "claims")}
        claims = (
            f"claim {namespace}/{claim['resourceClaimName']}"
            for claim in parts(spec, "resourceClaims")
            if word(claim, "name") in used and word(claim, "resourceClaimName")
        )
        return cls(
            key=f"{namespace}/{word(metadata, 'name')}",
            uid=word(metadata, "uid"),
            version=word(metadata, "resourceVersion"),
            wishes=wishes,
            created_s=_moment(word(metadata, "creationTimestamp")),
            started_s=_moment(word(part(item, "status"), "startTime")) or None,
            user=_user(spec, container),
            claim=next(claims, None),
            booked_percent=booked_percent(container),
            requested=requested(spec),
            gates=gates,
            over=ended or ("deletionTimestamp" in metadata and names.GATE in gates),
            given={key: text for key, text in annotations.items() if key not in names.REQUESTED},
            spec=spec,
            where=str([spec.get(key) for key in ("nodeSelector", "affinity", "tolerations")]),
        )


def _sure(wishes: Wishes, item: Object) -> Wishes:
    """With the container that the webhook chose: it asks for no GPU any more."""
    if wishes.container is not None:
        return wishes
    limited = [
        word(container, "name")
        for container in parts(item, "spec", "containers")
        if any(names.SHARE_PERCENT in str(v.get("valueFrom")) for v in parts(container, "env"))
    ]
    if len(limited) != 1:
        raise InputError("no container is limited", fix="make the pod again, with the webhook")
    return replace(wishes, container=limited[0])


def _user(spec: Object, container: Object) -> str:
    """The user for MPS, which serves one at a time; by the image if the pod names none."""
    contexts = part(container, "securityContext"), part(spec, "securityContext")
    users = (context.get("runAsUser") for context in contexts)
    named = (f"uid {user}" for user in users if user is not None)
    return next(named, f"the user of image {word(container, 'image')}")


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


# What the pods of a GPU book together at most, percent.
_WHOLE_CARD = 100


@dataclass(slots=True, eq=False)
class _Card:
    """A GPU or claim that pods hold."""

    place: GpuSlot
    pods: list[Pod] = field(default_factory=list[Pod])

    def kind(self, now_s: float) -> object:
        """What the advice for a join depends on; equal ones are alike in it."""
        return (
            self.place.model,
            self.place.memory_mib,
            tuple(sorted((str(pod.kind), pod.share or "", pod.bound_mib) for pod in self.pods)),
            self.pods[0].left(now_s) if len(self.pods) == 1 else None,
            self.place.key if self.pods[0].claim else "",
        )

    @property
    def bounds_mib(self) -> tuple[int, ...]:
        return tuple(pod.bound_mib for pod in self.pods)

    def fits(self, *pods: Pod) -> bool:
        """Whether these pods could run beside all that are there, whatever the advice."""
        everybody = [*self.pods, *pods]
        return (
            sum(pod.booked_percent for pod in everybody) <= _WHOLE_CARD
            and len(everybody) <= MOST_JOBS
            and all(_may_meet(there, pod) for there in self.pods for pod in pods)
        )

    def takes(self, pod: Pod) -> bool:
        """Whether one may join now: each that is there has its share."""
        return self.fits(pod) and all(there.share is not None for there in self.pods)


def _may_meet(a: Pod, b: Pod) -> bool:
    """Whether two pods may share a GPU: one namespace, one user, and each wants the other."""
    wanted = a.wishes.partner in (None, b.wishes.job) and b.wishes.partner in (None, a.wishes.job)
    same = a.namespace == b.namespace and a.user == b.user and a.claim == b.claim
    return wanted and same and a.booked_percent + b.booked_percent <= _WHOLE_CARD


class _Cards:
    """All GPUs; each look at them costs little, however many there are.

    Args:
        nodes: All.
        pods: Some of these hold GPUs and claims, and what they ask of nodes.
        others: What pods that the webhook has not changed ask of nodes, by node.
        mixed_nodes: Whether pods of several namespaces may have GPUs of one node.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        pods: Iterable[Pod],
        others: Mapping[str, Mapping[str, float]],
        *,
        mixed_nodes: bool,
    ) -> None:
        self._mixed = mixed_nodes
        self._used = dict(others)
        self._tenants: dict[str, str] = {}
        self._free: dict[object, dict[str, deque[GpuSlot]]] = {}
        self._fits: dict[tuple[str, str], bool] = {}
        self._places = {gpu.key: replace(gpu, node=node) for node in nodes for gpu in node.gpus}
        self.held: dict[str, _Card] = {}
        for pod in pods:
            if pod.holds is not None:
                self.take(self._places.get(pod.holds, GpuSlot(key=pod.holds)), [pod])

    def take(self, place: GpuSlot, pods: Iterable[Pod]) -> None:
        """Give pods a GPU, or a part of it beside those that are there."""
        for pod in pods:
            self.held.setdefault(place.key, _Card(place)).pods.append(pod)
            if node := place.node.name if place.node else pod.given.get(names.NODE):
                self._tenants[node] = pod.namespace
                self._used[node] = added(self._used.get(node, {}), pod.requested)

    def of(self, namespace: str) -> list[_Card]:
        """Those that the pods of a namespace hold, and that may take more."""
        return [
            card
            for card in self.held.values()
            if card.pods[0].namespace == namespace
            and (card.place.key in self._places or card.pods[0].claim)
        ]

    def has_room(self, card: _Card, *pods: Pod) -> bool:
        """Whether the node of a GPU takes pods."""
        node = card.place.node
        return node is None or (
            all(self._that_fits(pod, node) for pod in pods) and self._holds(pods, node)
        )

    def free_for(self, *pods: Pod) -> list[GpuSlot]:
        """A free GPU of each model that all of these pods, of one namespace, may have."""
        claim, namespace = pods[0].claim, pods[0].namespace
        if claim is not None:
            return [] if claim in self.held else [GpuSlot(key=claim)]
        kind = (namespace, frozenset(pod.where for pod in pods))
        if kind not in self._free:
            fitting = (
                place
                for place in self._places.values()
                if place.node and all(self._that_fits(pod, place.node) for pod in pods)
            )
            models = grouped(fitting, lambda place: place.model or "")
            self._free[kind] = {model: deque(places) for model, places in models.items()}
        slots: list[GpuSlot] = []
        for places in self._free[kind].values():
            while places and not self._is_free(places[0], namespace):
                places.popleft()
            free = (place for place in places if self._is_free(place, namespace))
            fit = (place for place in free if place.node and self._holds(pods, place.node))
            slots += itertools.islice(fit, 1)
        return slots

    def number_free(self, namespace: str) -> int:
        """How many GPUs are free that pods of a namespace may have, whatever they ask of nodes."""
        return sum(self._is_free(place, namespace) for place in self._places.values())

    def _is_free(self, place: GpuSlot, namespace: str) -> bool:
        """Whether a GPU is free for a namespace; namespaces on one node could see shared memory."""
        tenant = place.node and self._tenants.get(place.node.name, namespace)
        return place.key not in self.held and (self._mixed or tenant == namespace)

    def _that_fits(self, pod: Pod, node: Node) -> bool:
        key = (pod.where, node.name)
        if key not in self._fits:
            self._fits[key] = _fits(pod.spec, node)
        return self._fits[key]

    def _holds(self, pods: Sequence[Pod], node: Node) -> bool:
        """Whether processors, memory and all else that pods ask for are left on a node."""
        if not node.allocatable:
            return True
        needed = functools.reduce(added, (pod.requested for pod in pods))
        after = added(self._used.get(node.name, {}), needed)
        # Three times 0.1 is more than 0.3 here, and a thousandth of a processor is the least.
        return all(after[name] <= node.allocatable.get(name, 0.0) + 1e-6 for name in needed)


# The share of a pod that has the GPU for itself.
_ALONE = f"{WHOLE:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Pods that are given a GPU, or one that is given a part of it beside those that run there.

    Attributes:
        shares: Of the pods, in percent, in their order.
        memory_mib: At how much their memory is bounded.
        beside: Those that run.
    """

    pods: tuple[Pod, ...]
    shares: tuple[str, ...]
    memory_mib: tuple[int, ...]
    place: GpuSlot
    why: str
    beside: tuple[Pod, ...] = ()

    @property
    def given(self) -> list[Pod]:
        """The pods with their share and memory, as they will be."""
        return [
            replace(
                pod,
                given={**pod.given, names.SHARE_PERCENT: share, names.MEMORY_MIB: f"{memory_mib}"},
            )
            for pod, share, memory_mib in zip(self.pods, self.shares, self.memory_mib, strict=True)
        ]

    def writes(self) -> "list[Write]":
        """The patches of a decision, in the order in which they are made."""
        node, there = self.place.node, [pod.share or _ALONE for pod in self.beside]
        return [
            Write(
                pod=pod,
                share=self.shares[n],
                split="/".join([*_first_of(self.shares, n), *there])
                if there or len(self.pods) > 1
                else "alone",
                memory="/".join(map(str, _first_of(self.memory_mib, n))),
                why=self.why,
                gpu_uuid=node and self.place.key,
                node=node and node.name,
                hostname=node and node.labels[names.HOSTNAME],
                partners=(*self.beside, *self.pods[:n], *self.pods[n + 1 :]),
                second=self.pods[1 - n] if len(self.pods) > 1 else None,
            )
            for n, pod in enumerate(self.pods)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PodOffer(Offer):
    """Two kinds of pods, or one and cards.

    Attributes:
        first: Pods of the first kind; those that are given a GPU are taken from its front.
        second: The same of the second kind; `first` where it is a card's.
        cards: Those of the second kind; none: a free GPU is taken.
    """

    first: list[Pod]
    second: list[Pod]
    cards: list[_Card] = field(default_factory=list[_Card])

    @property
    def pair(self) -> tuple[Pod, Pod]:
        """The order of two kinds of pods for the next GPU."""
        return self.first[0], self.second[1 if self.first is self.second else 0]

    def beside(self, card: _Card, now_s: float) -> Offer:
        """The same two as who is to join those on a GPU, asked about as if all began together."""
        question = replace(_question_of_join(card, self.pair, now_s), running=())
        return Offer(kinds=(), question=question, bounds_mib=card.bounds_mib)

    def start(self, cards: _Cards, answer: Together) -> Start | None:
        """Take the oldest of the kinds; None: nodes have no room for them any more."""
        pod = self.first[0]
        saved = f"{100 * answer.energy_saved:.0f} % less energy for the same work expected"
        if self.cards:
            card = next((c for c in self.cards if c.takes(pod) and cards.has_room(c, pod)), None)
            if card is None:
                return None
            self.cards.remove(card)
            beside, pods, place = (*card.pods,), (self.first.pop(0),), card.place
        else:
            place = next(
                (p for p in cards.free_for(*self.pair) if p.model == self.question.model), None
            )
            if place is None:
                return None
            beside, pods = (), (self.first.pop(0), self.second.pop(0))
        jobs = [pod.wishes.job for pod in (*beside, *pods)]
        return Start(
            pods=pods,
            shares=answer.shares[len(beside) :],
            memory_mib=_bounds_mib(self.memory(answer), (*beside, *pods))[len(beside) :],
            place=place,
            why=f"{' and '.join(jobs)} at {answer.split}: {saved}",
            beside=beside,
        )


def _bounds_mib(memory: MemoryFit, pods: Sequence[Pod]) -> tuple[int, ...]:
    """Memory limit of each pod, MiB.

    Memory that no pod needs is divided by what the pods book; the rest is kept for pods that join.
    The variable must have a value: one that exceeds every GPU's memory stands for no limit.
    """
    whole, booked = int(memory.most_mib or MOST_MIB), sum(pod.booked_percent for pod in pods)
    return tuple(memory.limit_mib(n, booked) or whole for n in range(len(pods)))


def _question_of_pair(a: Pod, b: Pod, place: GpuSlot) -> Question:
    """Two that are to start together; lengths count where both are known."""
    return Question(
        jobs=_with_lengths(a.wanted, b.wanted), model=place.model, memory_mib=place.memory_mib
    )


def _question_of_join(card: _Card, pods: Sequence[Pod], now_s: float) -> Question:
    """A join to the pods of a GPU; of two pods lengths count as well, of one the remainder."""
    place = card.place
    return Question(
        jobs=_with_lengths(*(pod.left(now_s) for pod in card.pods), *(pod.wanted for pod in pods)),
        model=place.model,
        memory_mib=place.memory_mib,
        running=tuple(float(pod.share or _ALONE) for pod in card.pods),
    )


def _with_lengths(*jobs: JobRequest) -> tuple[JobRequest, ...]:
    """What those do that are left when one has ended is known of two jobs alone."""
    known = len(jobs) == ADVISED_JOBS and all(job.work_s is not None for job in jobs)
    return jobs if known else tuple(replace(job, work_s=None) for job in jobs)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One pod, and what it is given.

    Attributes:
        share: In percent of the SMs, as the driver reads it.
        split: All shares on the GPU, its own first; or `alone`.
        memory: Bounds of those that start together, MiB, its own first.
        gpu_uuid: None: its claim says which.
        node: None: its claim says which.
        hostname: Label of the node by which the pod is kept there.
        partners: Other pods of the GPU; the second of two that start together is written from what
            the first has.
    """

    pod: Pod
    share: str
    split: str
    memory: str
    why: str
    gpu_uuid: str | None = None
    node: str | None = None
    hostname: str | None = None
    partners: tuple[Pod, ...] = ()
    second: Pod | None = None

    @property
    def body(self) -> Object:
        """A merge patch that fails where the pod has changed since it was read."""
        written = {
            names.SHARE_PERCENT: self.share,
            names.SPLIT: self.split,
            names.GPU_UUID: self.gpu_uuid,
            names.NODE: self.node,
            names.PARTNER: ", ".join(partner.key for partner in self.partners) or None,
            names.PARTNER_UID: self.second and self.second.uid,
            names.MEMORY_MIB: self.memory,
            names.MEMORY_LIMIT: f"0={self.memory.partition('/')[0]}M",
            names.WHY: self.why[:500],
            names.KAI_PORTION: f"{float(self.share) / 100:.4g}",
        }
        annotations = {key: text for key, text in written.items() if text is not None}
        kept = [{"name": name} for name in self.pod.gates if name != names.GATE]
        hostname = {names.HOSTNAME: self.hostname}
        return {
            "metadata": {"resourceVersion": self.pod.version, "annotations": annotations},
            "spec": {
                "schedulingGates": kept or None,
                **({} if self.hostname is None else {"nodeSelector": hostname}),
            },
        }


def _first_of(values: Sequence[T], place: int) -> list[T]:
    return [values[place], *values[:place], *values[place + 1 :]]


def unfinished(pods: Iterable[Pod], hostnames: Mapping[str, str]) -> Iterator[Write]:
    """The patches that are missing: of pods whose partner has got its share already.

    All pods that the webhook has changed are to be given, and labels of nodes by their names.
    """
    by_uid = {pod.uid: pod for pod in pods}
    for first in by_uid.values():
        second = by_uid.get(first.given.get(names.PARTNER_UID, ""))
        if second is None or not second.waits or first.over or not _may_meet(first, second):
            continue
        a, _, b = first.given.get(names.SPLIT, "").partition("/")
        first_mib, _, other = first.given.get(names.MEMORY_MIB, "").partition("/")
        if not (is_share(a) and is_share(b) and first_mib.isdigit() and other.isdigit()):
            continue  # not of the chooser
        node = first.given.get(names.NODE)
        yield Write(
            pod=second,
            share=b,
            split=f"{b}/{a}",
            memory=f"{other}/{first_mib}",
            why=first.given.get(names.WHY, ""),
            gpu_uuid=first.given.get(names.GPU_UUID),
            node=node,
            hostname=node and hostnames.get(node, node),
            partners=(first,),
            second=first,
        )


WithoutAdvice: TypeAlias = Literal["pass", "hold"]
"""What a pod does that has waited long enough while the service gave no answer: it runs alone on a
whole GPU, or waits on."""

MOST_KINDS = 40
"""Of the pods of one namespace that are looked at together, 820 pairs: half are the oldest, and of
all others each second the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A pod that waits on; it `held_up` longer than it should."""

    pod: Pod
    why: str
    held_up: bool = False


PodDecision: TypeAlias = Start | Stay


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One look at the cluster.

    Attributes:
        pods: All that the webhook has changed.
        now_s: Seconds since 1970.
        mixed_nodes: Pods of several namespaces may have GPUs of one node.
        allowed: The most GPUs of a namespace, where its quotas bound them.
        unread: Why that is unknown, by namespace: its pods wait.
        others: What all other pods ask of nodes, by node.
        left_alone: Uids of pods that are given nothing now.
    """

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    ask: AskAdvice
    now_s: float
    without_advice: WithoutAdvice = "pass"
    mixed_nodes: bool = False
    allowed: Mapping[str, int] = field(default_factory=dict[str, int])
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    others: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    left_alone: Collection[str] = ()

    def decide(self) -> Iterator[PodDecision]:
        """What each waiting pod does now; by namespace, that of the oldest first."""
        cards = _Cards(self.nodes, self.pods, self.others, mixed_nodes=self.mixed_nodes)
        # A pod whose partner has its share already gets its own, beside that partner only.
        promised = {write.pod.uid: write for write in unfinished(self.pods, {})}
        for write in promised.values():
            [first] = write.partners
            if first.holds in cards.held:
                cards.take(cards.held[first.holds].place, [write.pod])
        not_now = {*promised, *self.left_alone}
        waiting = [pod for pod in self.pods if pod.waits and pod.uid not in not_now]
        waiting.sort(key=lambda pod: (pod.created_s, pod.uid))
        for namespace, pods in grouped(waiting, lambda pod: pod.namespace).items():
            if why := self.unread.get(namespace):
                yield from (Stay(pod=pod, why=why, held_up=True) for pod in pods)
                continue
            most = self.allowed.get(namespace, math.inf)
            yield from _Tenant(round=self, cards=cards, namespace=namespace, most=most).decide(pods)


@dataclass(slots=True, kw_only=True)
class _Tenant:
    """The waiting pods of one namespace in a round.

    Attributes:
        most: GPUs that it may hold.
        refusals: Why not, of the kinds of pods that asked.
        unasked: Kinds of which not everything was asked yet.
    """

    round: Round
    cards: _Cards
    namespace: str
    most: float
    refusals: dict[object, list[Apart | NoAnswer]] = field(
        default_factory=dict[object, list[Apart | NoAnswer]]
    )
    unasked: set[object] = field(default_factory=set[object])

    @property
    def left(self) -> float:
        # Less the GPUs that its pods hold, those of claims among them.
        return self.most - sum(
            card.pods[0].namespace == self.namespace for card in self.cards.held.values()
        )

    def decide(self, pods: Sequence[Pod]) -> Iterator[PodDecision]:
        """Those that start together first, then each other one: alone, or why it waits."""
        rest = {pod.uid: pod for pod in pods}
        for start in self._together(pods):
            for pod in start.pods:
                del rest[pod.uid]
            yield start
        for pod in rest.values():
            decision = self._alone(pod)
            if isinstance(decision, Start):
                self.cards.take(decision.place, decision.pods)
            yield decision

    def _together(self, pods: Sequence[Pod]) -> Iterator[Start]:
        """Those that start together or join others, by the matching that is worth most."""
        kinds = _alternating([*grouped(pods, lambda pod: pod.kind).values()], int(self.round.now_s))
        open_cards = self.cards.of(self.namespace)
        there = [*grouped(open_cards, lambda card: card.kind(self.round.now_s)).values()]
        offers = self._offers(kinds, there)
        claims = {pod.claim for pod in pods if pod.claim and pod.claim not in self.cards.held}
        free = min(self.left, self.cards.number_free(self.namespace)) + len(claims)
        chosen = matched([*map(len, kinds), *map(len, there)], offers, max(0, int(free)))
        # Within a kind, and for a GPU, the oldest comes first.
        begun: list[_Card] = []
        for offer, answer in sorted(chosen, key=lambda pair: pair[0].first[0].created_s):
            if offer.takes_gpu and (card := self._room_for(offer, begun)):
                self.cards.take(card.place, (offer.first.pop(0), offer.second.pop(0)))
                continue  # in the next rounds, when the pods that begin there have their shares
            start = offer.start(self.cards, answer)
            # Others that are made together with them have two seconds to come.
            if start is not None and self.round.now_s - start.pods[0].created_s >= 2.0:
                self.cards.take(start.place, start.given)
                begun += [self.cards.held[start.place.key]] if offer.takes_gpu else []
                yield start

    def _room_for(self, pair: _PodOffer, cards: Iterable[_Card]) -> _Card | None:
        """A GPU whose pods both could join, so that they need none; not after too long a wait."""
        if any(map(self._is_late, pair.pair)):
            return None
        for card in cards:
            if card.fits(*pair.pair) and self.cards.has_room(card, *pair.pair):
                [(_, answer)] = weighed([pair.beside(card, self.round.now_s)], self.round.ask)
                if isinstance(answer, Together):
                    return card
        return None

    def _is_late(self, pod: Pod) -> bool:
        return self.round.now_s - pod.created_s >= pod.wishes.max_wait_s

    def _offers(
        self, kinds: Sequence[list[Pod]], there: Sequence[list[_Card]]
    ) -> list[tuple[_PodOffer, Together]]:
        """Those of all possible ones for which sharing is recommended, on the best GPU model."""
        best: dict[tuple[int, ...], tuple[_PodOffer, Together]] = {}
        for offer, answer in weighed(
            [*self._pairs(kinds), *self._joins(kinds, there)], self.round.ask
        ):
            if isinstance(answer, Together):
                better = best.get(offer.kinds)
                if better is None or answer.energy_saved > better[1].energy_saved:
                    best[offer.kinds] = offer, answer
                continue
            for pods in (offer.first, offer.second):
                if answer is None:
                    self.unasked.add(pods[0].kind)
                else:
                    self.refusals.setdefault(pods[0].kind, []).append(answer)
        # A pod that can join by the advice takes no other GPU meanwhile.
        open_to = {kinds[0]: best[kinds][0].cards for kinds in best if best[kinds][0].cards}
        return [
            best_offer
            for kinds, best_offer in best.items()
            if not best_offer[0].takes_gpu
            or not self._room_for(best_offer[0], open_to.get(kinds[0], ()))
        ]

    def _pairs(self, kinds: Sequence[list[Pod]]) -> Iterator[_PodOffer]:
        return (
            _PodOffer(
                kinds=(i, j),
                first=first,
                second=second,
                question=_question_of_pair(first[0], second[-1], place),
                ahead=self._is_late(first[0]) or self._is_late(second[0]),
                takes_gpu=True,
            )
            for i, first in enumerate(kinds)
            for j, second in enumerate(kinds[i:], i)
            if (i != j or len(first) > 1) and _may_meet(first[0], second[-1])
            for place in self.cards.free_for(first[0], second[-1])
        )

    def _joins(
        self, kinds: Sequence[list[Pod]], there: Sequence[list[_Card]]
    ) -> Iterator[_PodOffer]:
        return (
            _PodOffer(
                kinds=(i, j),
                first=pods,
                second=pods,
                cards=cards,
                question=_question_of_join(cards[0], pods[:1], self.round.now_s),
                bounds_mib=cards[0].bounds_mib,
                ahead=self._is_late(pods[0]),
            )
            for i, pods in enumerate(kinds)
            for j, cards in enumerate(there, len(kinds))
            if cards[0].takes(pods[0]) and any(self.cards.has_room(c, pods[0]) for c in cards)
        )

    def _alone(self, pod: Pod) -> PodDecision:
        late = self._is_late(pod)
        if self.left <= 0 and pod.claim is None:
            of = "no GPU" if self.most == 0 else f"{self.most} GPU{'s' * (self.most > 1)}"
            why = f"the quota of the namespace is for {of}, and its pods hold as many"
            return Stay(pod=pod, why=why, held_up=late)
        if not (places := self.cards.free_for(pod)):
            return Stay(pod=pod, why=_no_gpu(pod, self.round.nodes, late), held_up=late)
        refusals = self.refusals.get(pod.kind, [])
        silent = next((said.why for said in refusals if isinstance(said, NoAnswer)), None)
        if late and pod.kind in self.unasked:
            return Stay(pod=pod, why="waits for advice")
        if not late and pod.booked_percent < _WHOLE_CARD:
            refused = f" (not beside those that are there: {refusals[0].why})" if refusals else ""
            why = f"no advice: {silent}" if silent else f"waits for a partner{refused}"
            return Stay(pod=pod, why=why, held_up=silent is not None)
        if silent and self.round.without_advice == "hold":
            return Stay(pod=pod, why=f"held, no advice: {silent}", held_up=True)
        reason = refusals[0].why if refusals else "no partner came"
        why = f"no advice: {silent}" if silent else reason
        # What the service says of two of a pod tells its need of memory.
        question = _question_of_pair(pod, pod, places[0])
        two = (
            Apart(why := "it books all of it")
            if pod.booked_percent == _WHOLE_CARD
            else self.round.ask([question]).get(question)
        )
        if two is None:
            return Stay(pod=pod, why="waits for advice")
        # What the service says of two of it holds for one that begins alone.
        needs_mib = two.needs_mib[:1] if isinstance(two, Together | Apart) else ()
        most_mib = places[0].memory_mib or MEMORY_MIB.get(places[0].model or "")
        return Start(
            pods=(pod,),
            shares=(_ALONE,),
            memory_mib=_bounds_mib(MemoryFit(needs_mib or (None,), most_mib), [pod]),
            place=places[0],
            why=f"alone on a whole GPU: {why}",
        )


def _alternating(kinds: list[list[Pod]], turn: int) -> list[list[Pod]]:
    if len(kinds) <= MOST_KINDS:
        return kinds
    others = kinds[(half := MOST_KINDS // 2) :]
    first = turn * half % len(others)
    return [*kinds[:half], *(others[first:] + others[:first])[:half]]


def _no_gpu(pod: Pod, nodes: Iterable[Node], late: bool) -> str:
    refused = "; ".join(f"{node.name}: {node.refused}" for node in nodes if node.refused)
    message = "no GPU is free that the pod may use" + (f" ({refused})" if refused else "")
    if late and not pod.wishes.whole_when_full:
        message += (
            f". It has waited {pod.wishes.max_wait_s:g} s and waits on: for a whole GPU of the "
            f"device plugin delete it and make it again with {names.WHEN_FULL}: whole"
        )
    return message
