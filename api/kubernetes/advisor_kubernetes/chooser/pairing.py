"""Who meets whom: a matching over all pods of a namespace that wait, and over those that run."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from advisor_kubernetes import names
from advisor_kubernetes.chooser.offers import (
    ALONE,
    Card,
    Cards,
    PodOffer,
    Start,
    bounds_mib,
    may_meet,
    memory_alone,
    question_of_join,
    question_of_pair,
)
from advisor_kubernetes.chooser.offers import WHOLE_CARD as WHOLE
from advisor_kubernetes.chooser.places import GpuSlot, Node
from advisor_kubernetes.chooser.pods import Pod
from advisor_kubernetes.chooser.writing import unfinished
from advisor_node.advice import Answer, Apart, AskAdvice, NoAnswer, Together
from advisor_node.matching import matched, weighed

WithoutAdvice: TypeAlias = Literal["pass", "hold"]
"""What a pod does that has waited long enough while the service gave no answer: it runs alone on a
whole GPU, or waits on."""

GATHER_S = 2.0
"""So long pods wait for others that are made together with them, before anybody is matched."""

MOST_KINDS = 40
"""Of the pods of one namespace that are looked at together, 820 pairs: half are the oldest, and of
all others each second the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a site has decided of the choice.

    Attributes:
        mixed_nodes: Pods of several namespaces may have GPUs of one node.
    """

    without_advice: WithoutAdvice = "pass"
    mixed_nodes: bool = False


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
        allowed: The most GPUs of a namespace, where its quotas bound them.
        unread: Why nobody knows that, by namespace: its pods wait.
        others: What all other pods ask of nodes, by node.
        left_alone: Uids of pods that are given nothing now.
    """

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    ask: AskAdvice
    now_s: float
    policy: Policy
    allowed: Mapping[str, int] = field(default_factory=dict[str, int])
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    others: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict[str, Mapping[str, float]]
    )
    left_alone: Collection[str] = ()

    def decide(self) -> Iterator[PodDecision]:
        """What each waiting pod does now; by namespace, that of the oldest first."""
        cards = Cards(self.nodes, self.pods, self.others, mixed_nodes=self.policy.mixed_nodes)
        # A pod whose partner has its share already is given its own, beside it and to nobody else.
        promised = {write.pod.uid: write for write in unfinished(self.pods, {})}
        for write in promised.values():
            [first] = write.given.partners
            if first.holds in cards.held:
                cards.take(cards.held[first.holds].place, [write.pod])
        not_now = {*promised, *self.left_alone}
        waiting = [pod for pod in self.pods if pod.waits and pod.uid not in not_now]
        waiting.sort(key=lambda pod: (pod.created_s, pod.uid))
        by_namespace: dict[str, list[Pod]] = {}
        for pod in waiting:
            by_namespace.setdefault(pod.namespace, []).append(pod)
        for namespace, pods in by_namespace.items():
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
    cards: Cards
    namespace: str
    most: float
    refusals: dict[object, list[Apart | NoAnswer]] = field(
        default_factory=dict[object, list[Apart | NoAnswer]]
    )
    unasked: set[object] = field(default_factory=set[object])

    @property
    def left(self) -> float:
        """How many more GPUs it may hold."""
        return self.most - self.cards.number_of(self.namespace)

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
        by_kind: dict[object, list[Pod]] = {}
        for pod in pods:
            by_kind.setdefault(pod.kind, []).append(pod)
        kinds = _in_turns([*by_kind.values()], int(self.round.now_s))
        open_cards: dict[object, list[Card]] = {}
        for card in self.cards.of(self.namespace):
            open_cards.setdefault(card.kind(self.round.now_s), []).append(card)
        there = [*open_cards.values()]
        offers = self._offers(kinds, there)
        claims = {pod.claim for pod in pods if pod.claim and pod.claim not in self.cards.held}
        free = min(self.left, self.cards.number_free(self.namespace)) + len(claims)
        counts = [*map(len, kinds), *map(len, there)]
        chosen = matched(counts, offers, max(0, int(free)))
        # Within a kind, and for a GPU, the oldest comes first.
        begun: list[Card] = []
        for offer, answer in sorted(chosen, key=lambda found: found[0].first[0].created_s):
            if offer.takes_gpu and (card := self._room_for(offer, begun)):
                self.cards.take(card.place, (offer.first.pop(0), offer.second.pop(0)))
                continue  # in the next rounds, when those who begin there have their shares
            start = offer.start(self.cards, answer)
            if start is not None and self.round.now_s - start.pods[0].created_s >= GATHER_S:
                self.cards.take(start.place, start.given)
                begun += [self.cards.held[start.place.key]] if offer.takes_gpu else []
                yield start

    def _room_for(self, pair: PodOffer, cards: Iterable[Card]) -> Card | None:
        """A GPU whose pods both could join, so that they need none; not who has waited too long."""
        if any(map(self._is_late, pair.pair)):
            return None
        for card in cards:
            if card.fits(*pair.pair) and self.cards.has_room(card, *pair.pair):
                [(_, answer)] = weighed([pair.beside(card, self.round.now_s)], self.round.ask)
                if isinstance(answer, Together):
                    return card
        return None

    def _is_late(self, pod: Pod) -> bool:
        return self.round.now_s - pod.created_s >= pod.asked.max_wait_s

    def _offers(
        self, kinds: Sequence[list[Pod]], there: Sequence[list[Card]]
    ) -> list[tuple[PodOffer, Together]]:
        """Those of all possible ones for which sharing is recommended, on the best GPU model."""
        best: dict[tuple[int, ...], tuple[PodOffer, Together]] = {}
        possible = [*self._pairs(kinds), *self._joins(kinds, there)]
        for offer, answer in weighed(possible, self.round.ask):
            if isinstance(answer, Together):
                known = best.get(offer.kinds)
                if known is None or answer.energy_saved > known[1].energy_saved:
                    best[offer.kinds] = offer, answer
                continue
            for pods in (offer.first, offer.second):
                if answer is None:
                    self.unasked.add(pods[0].kind)
                else:
                    self.refusals.setdefault(pods[0].kind, []).append(answer)
        # Who can join by the advice takes no other GPU meanwhile.
        open_to = {kinds[0]: best[kinds][0].cards for kinds in best if best[kinds][0].cards}
        return [
            found
            for kinds, found in best.items()
            if not found[0].takes_gpu or not self._room_for(found[0], open_to.get(kinds[0], ()))
        ]

    def _pairs(self, kinds: Sequence[list[Pod]]) -> Iterator[PodOffer]:
        for i, first in enumerate(kinds):
            for j, second in enumerate(kinds[i:], i):
                if (i == j and len(first) < 2) or not may_meet(first[0], second[-1]):
                    continue
                for place in self.cards.free_for(first[0], second[-1]):
                    yield PodOffer(
                        kinds=(i, j),
                        first=first,
                        second=second,
                        question=question_of_pair(first[0], second[-1], place),
                        ahead=self._is_late(first[0]) or self._is_late(second[0]),
                        takes_gpu=True,
                    )

    def _joins(self, kinds: Sequence[list[Pod]], there: Sequence[list[Card]]) -> Iterator[PodOffer]:
        for i, pods in enumerate(kinds):
            for j, cards in enumerate(there, len(kinds)):
                if cards[0].takes(pods[0]) and any(self.cards.has_room(c, pods[0]) for c in cards):
                    yield PodOffer(
                        kinds=(i, j),
                        first=pods,
                        second=pods,
                        cards=cards,
                        question=question_of_join(cards[0], pods[:1], self.round.now_s),
                        bounds_mib=cards[0].bounds_mib,
                        ahead=self._is_late(pods[0]),
                    )

    def _alone(self, pod: Pod) -> PodDecision:
        late = self._is_late(pod)
        if self.left <= 0 and pod.claim is None:
            of = "no GPU" if self.most == 0 else f"{self.most} GPU{'s' * (self.most > 1)}"
            why = f"the quota of the namespace is for {of}, and its pods hold as many"
            return Stay(pod=pod, why=why, held_up=late)
        places = self.cards.free_for(pod)
        if not places:
            return Stay(pod=pod, why=_no_gpu(pod, self.round.nodes, late), held_up=late)
        refusals = self.refusals.get(pod.kind, [])
        silent = next((said.why for said in refusals if isinstance(said, NoAnswer)), None)
        if late and pod.kind in self.unasked:
            return Stay(pod=pod, why="waits for advice")
        if not late and pod.booked_percent < WHOLE:
            told = f" (not beside those that are there: {refusals[0].why})" if refusals else ""
            why = f"no advice: {silent}" if silent else f"waits for a partner{told}"
            return Stay(pod=pod, why=why, held_up=silent is not None)
        if silent and self.round.policy.without_advice == "hold":
            return Stay(pod=pod, why=f"held, no advice: {silent}", held_up=True)
        reason = refusals[0].why if refusals else "no partner came"
        why = f"no advice: {silent}" if silent else reason
        if pod.booked_percent == WHOLE:
            why = "it books all of it"
        whole = f"alone on a whole GPU: {why}"
        two = self._of_two(pod, places[0])
        if two is None:
            return Stay(pod=pod, why="waits for advice")
        bound_mib = bounds_mib(memory_alone(places[0], two), [pod])
        return Start(pods=(pod,), shares=(ALONE,), memory_mib=bound_mib, place=places[0], why=whole)

    def _of_two(self, pod: Pod, place: GpuSlot) -> Answer | None:
        """What the service says of two of a pod, by which its need of memory is known."""
        if pod.booked_percent == WHOLE:
            return Apart("it books all of it")
        question = question_of_pair(pod, pod, place)
        return self.round.ask([question]).get(question)


def _in_turns(kinds: list[list[Pod]], turn: int) -> list[list[Pod]]:
    if len(kinds) <= MOST_KINDS:
        return kinds
    half = MOST_KINDS // 2
    others = kinds[half:]
    first = turn * half % len(others)
    return [*kinds[:half], *(others[first:] + others[:first])[:half]]


def _no_gpu(pod: Pod, nodes: Iterable[Node], late: bool) -> str:
    told = "no GPU is free that the pod may use"
    refused = [f"{node.name}: {node.refused}" for node in nodes if node.refused]
    if refused:
        told += f" ({'; '.join(refused)})"
    if late and not pod.asked.whole_when_full:
        told += (
            f". It has waited {pod.asked.max_wait_s:g} s and waits on: for a whole GPU of the "
            f"device plugin delete it and make it again with {names.WHEN_FULL}: whole"
        )
    return told
