"""Who meets whom: the oldest pod first, beside the partner with whom most energy is saved."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, TypeAlias

from advisor_kubernetes import names
from advisor_kubernetes.chooser.advice import Answer, Apart, NoAnswer, Question, Together
from advisor_kubernetes.chooser.places import Node, Place, fits, places_for
from advisor_kubernetes.chooser.pods import Pod

WithoutAdvice: TypeAlias = Literal["pass", "hold"]
"""What a pod does that has waited long enough while the service gave no answer: it runs alone on a
whole GPU, or waits on."""

Ask: TypeAlias = Callable[[Collection[Question]], Mapping[Question, Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two pods that share a GPU; shares in percent, in their order."""

    pods: tuple[Pod, Pod]
    shares: tuple[str, str]
    place: Place
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A pod that has a GPU to itself."""

    pod: Pod
    place: Place
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A pod that waits on."""

    pod: Pod
    why: str


Decision: TypeAlias = Pair | Single | Stay


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    partner: Pod
    place: Place
    answer: Together


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One look at the cluster.

    Attributes:
        pods: All that the webhook has changed.
        nodes: All nodes.
        ask: Answers questions about pairs.
        now_s: Seconds since 1970.
        policy: What pods do that waited long enough without an answer.
    """

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    ask: Ask
    now_s: float
    policy: WithoutAdvice

    def decide(self) -> Iterator[Decision]:
        """What each waiting pod does now; the oldest first."""
        held = {pod.holds for pod in self.pods if pod.holds is not None}
        # A pod whose partner has its share already is given its own, and to nobody else.
        promised = {pod.given.get(names.PARTNER_UID) for pod in self.pods if not pod.over}
        waiting = [pod for pod in self.pods if pod.waits and pod.uid not in promised]
        waiting.sort(key=lambda pod: (pod.created_s, pod.uid))
        stayed: list[Pod] = []
        while waiting:
            pod = waiting.pop(0)
            decision = self._of(pod, waiting, stayed, held)
            if isinstance(decision, Stay):
                stayed.append(pod)
            else:
                held.add(decision.place.key)
            if isinstance(decision, Pair):
                waiting.remove(decision.pods[1])
            yield decision

    def _of(self, pod: Pod, younger: list[Pod], older: list[Pod], held: Set[str]) -> Decision:
        places = places_for(pod, self.nodes, held)
        if not places:
            return Stay(pod=pod, why="no GPU is free that the pod may use")
        offers, refusals = self._offers(pod, younger, places)
        if offers:
            return _pair(pod, max(offers, key=lambda offer: offer.answer.energy_saved))
        # Those before it found nobody, nor does it among them; but it says why.
        for other in _kinds(other for other in older if may_meet(other, pod)):
            refusals += self._offers(other, [pod], places)[1]
        silent = next((said.why for said in refusals if isinstance(said, NoAnswer)), None)
        if self.now_s - pod.created_s < pod.asked.max_wait_s:
            return Stay(pod=pod, why=f"no advice: {silent}" if silent else "waits for a partner")
        if silent and self.policy == "hold":
            return Stay(pod=pod, why=f"held, no advice: {silent}")
        reason = refusals[0].why if refusals else "no partner came"
        why = f"no advice: {silent}" if silent else reason
        return Single(pod=pod, place=places[0], why=f"alone on a whole GPU: {why}")

    def _offers(
        self, pod: Pod, others: list[Pod], places: list[Place]
    ) -> tuple[list[_Offer], list[Apart | NoAnswer]]:
        """Partners with whom sharing is recommended, on each GPU model; and other answers."""
        asked = [
            (_question(pod, partner, place), partner, place)
            for partner in _kinds(other for other in others if may_meet(pod, other))
            for place in _of_each_model(_for_both(places, partner))
        ]
        answers = self.ask([question for question, _, _ in asked])
        offers: list[_Offer] = []
        rest: list[Apart | NoAnswer] = []
        for question, partner, place in asked:
            answer = answers[question]
            if isinstance(answer, Together):
                offers.append(_Offer(partner=partner, place=place, answer=answer))
            else:
                rest.append(answer)
        return offers, rest


def may_meet(a: Pod, b: Pod) -> bool:
    """Whether two pods may share a GPU: one namespace, one user, and each wants the other."""
    wanted = a.asked.partner in (None, b.asked.job) and b.asked.partner in (None, a.asked.job)
    same = a.namespace == b.namespace and a.user == b.user and a.claim == b.claim
    return wanted and same


def _pair(pod: Pod, offer: _Offer) -> Pair:
    answer, jobs = offer.answer, (pod.asked.job, offer.partner.asked.job)
    return Pair(
        pods=(pod, offer.partner),
        shares=answer.shares,
        place=offer.place,
        why=f"{jobs[0]} and {jobs[1]} at {answer.split}: "
        f"{100 * answer.energy_saved:.0f} % less energy for the same work expected",
    )


def _kinds(pods: Iterable[Pod]) -> list[Pod]:
    """The oldest of each kind of pod: for the question, and for nodes, they are alike."""
    kinds: dict[object, Pod] = {}
    for pod in pods:
        kinds.setdefault((pod.asked.job, pod.asked.min_speed, pod.where), pod)
    return list(kinds.values())


def _for_both(places: list[Place], partner: Pod) -> list[Place]:
    return [place for place in places if place.node is None or fits(partner.spec, place.node)]


def _of_each_model(places: list[Place]) -> list[Place]:
    return list({place.model: place for place in reversed(places)}.values())


def _question(a: Pod, b: Pod, place: Place) -> Question:
    jobs = ((a.asked.job, a.asked.min_speed), (b.asked.job, b.asked.min_speed))
    return Question(jobs=jobs, model=place.model)
