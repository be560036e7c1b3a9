"""The GPUs of a round: who is on which, and who else has room there."""

import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.core.split import MOST_JOBS
from advisor_kubernetes import names
from advisor_kubernetes.chooser.places import GpuSlot, Node, added, fits
from advisor_kubernetes.chooser.pods import Pod

WHOLE = 100
"""What the pods of a GPU book together at most, percent."""


@dataclass(slots=True, eq=False)
class Card:
    """A GPU or claim that pods hold."""

    place: GpuSlot
    pods: list[Pod] = field(default_factory=list[Pod])

    def kind(self, now_s: float) -> object:
        """What the advice for who joins depends on; equal ones are alike in it."""
        model, memory_mib = self.place.model, self.place.memory_mib
        running = sorted((str(pod.kind), pod.share or "", pod.bound_mib) for pod in self.pods)
        left = self.pods[0].left(now_s) if len(self.pods) == 1 else None
        claim = self.place.key if self.pods[0].claim else ""
        return (model, memory_mib, tuple(running), left, claim)

    @property
    def bounds_mib(self) -> tuple[int, ...]:
        """At how much the memory of each pod is bounded."""
        return tuple(pod.bound_mib for pod in self.pods)

    def fits(self, *pods: Pod) -> bool:
        """Whether pods, who may meet, could run beside all that are there, whatever the advice."""
        everybody = [*self.pods, *pods]
        return (
            sum(pod.booked_percent for pod in everybody) <= WHOLE
            and len(everybody) <= MOST_JOBS
            and all(may_meet(there, pod) for there in self.pods for pod in pods)
        )

    def takes(self, pod: Pod) -> bool:
        """Whether one may join now: each that is there has its share."""
        return self.fits(pod) and all(there.share is not None for there in self.pods)


def may_meet(a: Pod, b: Pod) -> bool:
    """Whether two pods may share a GPU: one namespace, one user, and each wants the other."""
    wanted = a.asked.partner in (None, b.asked.job) and b.asked.partner in (None, a.asked.job)
    same = a.namespace == b.namespace and a.user == b.user and a.claim == b.claim
    return wanted and same and a.booked_percent + b.booked_percent <= WHOLE


class Cards:
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
        self._places = {
            gpu.uuid: GpuSlot(key=gpu.uuid, model=gpu.model, memory_mib=gpu.memory_mib, node=node)
            for node in nodes
            for gpu in node.gpus
        }
        self.held: dict[str, Card] = {}
        for pod in pods:
            if pod.holds is not None:
                self._seat(pod, self._places.get(pod.holds, GpuSlot(key=pod.holds)))

    def take(self, place: GpuSlot, pods: Iterable[Pod]) -> None:
        """Give pods a GPU, or a part of it beside those that are there."""
        for pod in pods:
            self._seat(pod, place)

    def number_of(self, namespace: str) -> int:
        """How many GPUs the pods of a namespace hold, those of claims among them."""
        return sum(card.pods[0].namespace == namespace for card in self.held.values())

    def of(self, namespace: str) -> list[Card]:
        """Those that the pods of a namespace hold, and that may take more."""
        return [
            card
            for card in self.held.values()
            if card.pods[0].namespace == namespace
            and (card.place.key in self._places or card.pods[0].claim)
        ]

    def has_room(self, card: Card, *pods: Pod) -> bool:
        """Whether the node of a GPU takes pods."""
        node = card.place.node
        return node is None or (
            all(self._that_fits(pod, node) for pod in pods) and self._holds(pods, node)
        )

    def free_for(self, *pods: Pod) -> list[GpuSlot]:
        """A free GPU of each model that all of these pods, of one namespace, may have."""
        claim = pods[0].claim
        if claim is not None:
            return [] if claim in self.held else [GpuSlot(key=claim)]
        namespace = pods[0].namespace
        kind = (namespace, frozenset(pod.where for pod in pods))
        if kind not in self._free:
            self._free[kind] = {}
            for place in self._places.values():
                if place.node and all(self._that_fits(pod, place.node) for pod in pods):
                    self._free[kind].setdefault(place.model or "", deque()).append(place)
        found: list[GpuSlot] = []
        for places in self._free[kind].values():
            while places and not self._is_free(places[0], namespace):
                places.popleft()
            free = (place for place in places if self._is_free(place, namespace))
            fit = (place for place in free if place.node and self._holds(pods, place.node))
            found += itertools.islice(fit, 1)
        return found

    def number_free(self, namespace: str) -> int:
        """How many GPUs are free that pods of a namespace may have, whatever they ask of nodes."""
        return sum(self._is_free(place, namespace) for place in self._places.values())

    def _seat(self, pod: Pod, place: GpuSlot) -> None:
        self.held.setdefault(place.key, Card(place)).pods.append(pod)
        node = place.node.name if place.node else pod.given.get(names.NODE)
        if node:
            self._tenants[node] = pod.namespace
            self._used[node] = added(self._used.get(node, {}), pod.requested)

    def _is_free(self, place: GpuSlot, namespace: str) -> bool:
        """Who has a GPU of a node keeps others out, whose shared memory he would see."""
        tenant = place.node and self._tenants.get(place.node.name, namespace)
        return place.key not in self.held and (self._mixed or tenant == namespace)

    def _that_fits(self, pod: Pod, node: Node) -> bool:
        key = (pod.where, node.name)
        if key not in self._fits:
            self._fits[key] = fits(pod.spec, node)
        return self._fits[key]

    def _holds(self, pods: Sequence[Pod], node: Node) -> bool:
        """Whether processors, memory and all else that pods ask for are left on a node."""
        if not node.allocatable:
            return True
        asked: Mapping[str, float] = {}
        for pod in pods:
            asked = added(asked, pod.requested)
        after = added(self._used.get(node.name, {}), asked)
        # Three times 0.1 is more than 0.3 here, and a thousandth of a processor is the least.
        return all(after[name] <= node.allocatable.get(name, 0.0) + 1e-6 for name in asked)
