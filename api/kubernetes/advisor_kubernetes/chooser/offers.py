"""What two kinds of pods, or one and a card, can be given together, and who of them gets it."""

import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisor.client import JobRequest
from advisor.core.gpu import MEMORY_MIB, MOST_MIB, WHOLE, MemoryFit
from advisor.core.split import ADVISED_JOBS, MOST_JOBS
from advisor_kubernetes import names
from advisor_kubernetes.chooser.places import GpuSlot, Node, added, fits
from advisor_kubernetes.chooser.pods import Pod
from advisor_node import matching
from advisor_node.advice import Answer, Apart, Question, Together

WHOLE_CARD = 100
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
            sum(pod.booked_percent for pod in everybody) <= WHOLE_CARD
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
    return wanted and same and a.booked_percent + b.booked_percent <= WHOLE_CARD


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


ALONE = f"{WHOLE:g}"
"""The share of a pod that has the GPU for itself."""


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
        shares = zip(self.pods, self.shares, self.memory_mib, strict=True)
        return [
            replace(
                pod,
                given={**pod.given, names.SHARE_PERCENT: share, names.MEMORY_MIB: f"{memory_mib}"},
            )
            for pod, share, memory_mib in shares
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOffer(matching.Offer):
    """Two kinds of pods, or one and cards.

    Attributes:
        first: Pods of the first kind; those that are given a GPU are taken from its front.
        second: The same of the second kind; `first` where it is a card's.
        cards: Those of the second kind; none: a free GPU is taken.
    """

    first: list[Pod]
    second: list[Pod]
    cards: list[Card] = field(default_factory=list[Card])

    @property
    def pair(self) -> tuple[Pod, Pod]:
        """Who is given a GPU next, of two kinds of pods."""
        return self.first[0], self.second[1 if self.first is self.second else 0]

    def beside(self, card: Card, now_s: float) -> "matching.Offer":
        """The same two as who is to join those on a GPU, asked about as if all began together."""
        question = replace(question_of_join(card, self.pair, now_s), running=())
        return matching.Offer(kinds=(), question=question, bounds_mib=card.bounds_mib)

    def start(self, cards: Cards, answer: Together) -> Start | None:
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
            free = cards.free_for(*self.pair)
            place = next((p for p in free if p.model == self.question.model), None)
            if place is None:
                return None
            beside, pods = (), (self.first.pop(0), self.second.pop(0))
        jobs = [one.asked.job for one in (*beside, *pods)]
        return Start(
            pods=pods,
            shares=answer.shares[len(beside) :],
            memory_mib=bounds_mib(self.memory(answer), (*beside, *pods))[len(beside) :],
            place=place,
            why=f"{' and '.join(jobs)} at {answer.split}: {saved}",
            beside=beside,
        )


def bounds_mib(memory: MemoryFit, pods: Sequence[Pod]) -> tuple[int, ...]:
    """At how much the memory of each pod is bounded.

    Of what nobody needs so much is open to them as they book, and the rest is for who joins. A
    variable must have a value: what no card has is no bound.
    """
    whole, booked = int(memory.most_mib or MOST_MIB), sum(pod.booked_percent for pod in pods)
    return tuple(memory.limit_mib(n, booked) or whole for n in range(len(pods)))


def question_of_pair(a: Pod, b: Pod, place: GpuSlot) -> Question:
    """Two that are to start together; lengths count where both are known."""
    return Question(
        jobs=_of_known_lengths(a.wanted, b.wanted), model=place.model, memory_mib=place.memory_mib
    )


def question_of_join(card: Card, pods: Sequence[Pod], now_s: float) -> Question:
    """Who is to join those on a card; of two lengths count as well, of one what is left."""
    place = card.place
    return Question(
        jobs=_of_known_lengths(
            *(one.left(now_s) for one in card.pods), *(pod.wanted for pod in pods)
        ),
        model=place.model,
        memory_mib=place.memory_mib,
        running=tuple(float(one.share or ALONE) for one in card.pods),
    )


def _of_known_lengths(*jobs: JobRequest) -> tuple[JobRequest, ...]:
    """What those do that are left when one has ended is known of two jobs alone."""
    if len(jobs) == ADVISED_JOBS and all(job.work_s is not None for job in jobs):
        return jobs
    return tuple(replace(job, work_s=None) for job in jobs)


def memory_alone(place: GpuSlot, of_two: Answer) -> MemoryFit:
    """The same of one that begins alone, by what the service says of two of it."""
    needs_mib = of_two.needs_mib[:1] if isinstance(of_two, Together | Apart) else ()
    return MemoryFit(needs_mib or (None,), place.memory_mib or MEMORY_MIB.get(place.model or ""))
