"""Who meets whom: the oldest pod first, beside the partner with whom most energy is saved."""

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from advisor_kubernetes import names
from advisor_kubernetes.chooser.places import Gpus, GpuSlot, Node
from advisor_kubernetes.chooser.pods import Pod
from advisor_node.advice import Answer, Apart, NoAnswer, PairQuestion, Together

WithoutAdvice: TypeAlias = Literal["pass", "hold"]
"""What a pod does that has waited long enough while the service gave no answer: it runs alone on a
whole GPU, or waits on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a site has decided of the choice.

    Attributes:
        mixed_nodes: Pods of several namespaces may have GPUs of one node.
    """

    without_advice: WithoutAdvice = "pass"
    mixed_nodes: bool = False


Ask: TypeAlias = Callable[[Collection[PairQuestion]], Mapping[PairQuestion, Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two pods that share a GPU; shares in percent, in their order."""

    pods: tuple[Pod, Pod]
    shares: tuple[str, str]
    place: GpuSlot
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A pod that has a GPU to itself."""

    pod: Pod
    place: GpuSlot
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
    place: GpuSlot
    answer: Together


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One look at the cluster.

    Attributes:
        pods: All that the webhook has changed.
        now_s: Seconds since 1970.
        allowed: The most GPUs of a namespace, where its quotas bound them.
    """

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    ask: Ask
    now_s: float
    policy: Policy
    allowed: Mapping[str, int] = field(default_factory=dict[str, int])

    def decide(self) -> Iterator[Decision]:
        """What each waiting pod does now; the oldest first."""
        gpus = Gpus(self.nodes, self.pods, mixed_nodes=self.policy.mixed_nodes)
        holders = {pod.holds: pod.namespace for pod in self.pods if pod.holds is not None}
        taken = Counter(holders.values())
        # A pod whose partner has its share already is given its own, and to nobody else.
        promised = {
            (pod.namespace, pod.given.get(names.PARTNER_UID)) for pod in self.pods if not pod.over
        }
        waiting = [p for p in self.pods if p.waits and (p.namespace, p.uid) not in promised]
        waiting.sort(key=lambda pod: (pod.created_s, pod.uid))
        younger: dict[object, deque[Pod]] = {}
        for pod in waiting:
            younger.setdefault(pod.kind, deque()).append(pod)
        older: dict[object, Pod] = {}
        for pod in waiting:
            if pod is not next(iter(younger[pod.kind]), None):
                continue  # it has a partner already
            younger[pod.kind].popleft()
            oldest = [pods[0] for pods in younger.values() if pods]
            if taken[pod.namespace] >= self.allowed.get(pod.namespace, math.inf):
                yield Stay(pod=pod, why=_full(self.allowed[pod.namespace]))
                continue
            decision = self._of(pod, oldest, older.values(), gpus)
            if isinstance(decision, Stay):
                older[pod.kind] = pod
            else:
                gpus.take(decision.place, pod)
                taken[pod.namespace] += 1
            if isinstance(decision, Pair):
                younger[decision.pods[1].kind].popleft()
            yield decision

    def _of(self, pod: Pod, younger: Iterable[Pod], older: Iterable[Pod], gpus: Gpus) -> Decision:
        places = gpus.for_all(pod)
        if not places:
            return Stay(pod=pod, why="no GPU is free that the pod may use")
        offers, refusals = self._offers(pod, younger, gpus)
        if offers:
            return _pair(pod, max(offers, key=lambda offer: offer.answer.energy_saved))
        # Those before it found nobody, nor does it among them; but it says why.
        refusals += self._offers(pod, older, gpus)[1]
        silent = next((said.why for said in refusals if isinstance(said, NoAnswer)), None)
        if self.now_s - pod.created_s < pod.asked.max_wait_s:
            return Stay(pod=pod, why=f"no advice: {silent}" if silent else "waits for a partner")
        if silent and self.policy.without_advice == "hold":
            return Stay(pod=pod, why=f"held, no advice: {silent}")
        reason = refusals[0].why if refusals else "no partner came"
        why = f"no advice: {silent}" if silent else reason
        return Single(pod=pod, place=places[0], why=f"alone on a whole GPU: {why}")

    def _offers(
        self, pod: Pod, others: Iterable[Pod], gpus: Gpus
    ) -> tuple[list[_Offer], list[Apart | NoAnswer]]:
        """Partners with whom sharing is recommended, on each GPU model; and other answers."""
        asked = [
            (_question(pod, partner, place), partner, place)
            for partner in others
            if may_meet(pod, partner)
            for place in gpus.for_all(pod, partner)
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
    if a.booked_percent + b.booked_percent > 100:
        return False
    wanted = a.asked.partner in (None, b.asked.job) and b.asked.partner in (None, a.asked.job)
    same = a.namespace == b.namespace and a.user == b.user and a.claim == b.claim
    return wanted and same


def _full(most: int) -> str:
    of = "no GPU" if most == 0 else "1 GPU" if most == 1 else f"{most} GPUs"
    return f"the quota of the namespace is for {of}, and its pods hold as many"


def _pair(pod: Pod, offer: _Offer) -> Pair:
    answer, jobs = offer.answer, (pod.asked.job, offer.partner.asked.job)
    return Pair(
        pods=(pod, offer.partner),
        shares=answer.shares,
        place=offer.place,
        why=f"{jobs[0]} and {jobs[1]} at {answer.split}: "
        f"{100 * answer.energy_saved:.0f} % less energy for the same work expected",
    )


def _question(a: Pod, b: Pod, place: GpuSlot) -> PairQuestion:
    jobs = ((a.asked.job, a.asked.min_speed), (b.asked.job, b.asked.min_speed))
    return PairQuestion(jobs=jobs, model=place.model)
