"""What two kinds of pods, or one and a card, can be given together, and who of them gets it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from advisor.core.gpu import MEMORY_MIB, MOST_MIB, WHOLE, MemoryFit
from advisor_kubernetes.chooser.cards import Card, Cards
from advisor_kubernetes.chooser.places import GpuSlot
from advisor_kubernetes.chooser.pods import Pod
from advisor_node.advice import Question, Together

ALONE = f"{WHOLE:g}"
"""The share of a pod that has the GPU for itself."""

_NOTHING = Together(shares=(), needs_mib=(), energy_saved=0.0, split="")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Two kinds of pods, or one and cards, and what the service says of them.

    Attributes:
        kinds: Their numbers.
        first: Pods of the first kind; those that are given a GPU are taken from its front.
        second: The same of the second kind; `first` where it is a card's.
        cards: Those of the second kind; none: a free GPU is taken.
    """

    kinds: tuple[int, int]
    first: list[Pod]
    second: list[Pod]
    question: Question
    cards: list[Card] = field(default_factory=list[Card])
    answer: Together = _NOTHING

    def start(self, cards: Cards) -> Start | None:
        """Take the oldest of the kinds; None: nodes have no room for them any more."""
        pod, answer = self.first[0], self.answer
        saved = f"{100 * answer.energy_saved:.0f} % less energy for the same work expected"
        if self.cards:
            card = next((c for c in self.cards if c.takes(pod) and cards.has_room(c, pod)), None)
            if card is None:
                return None
            self.cards.remove(card)
            beside, pods, place = (*card.pods,), (self.first.pop(0),), card.place
        else:
            other = self.second[1 if self.first is self.second else 0]
            place = next(
                (p for p in cards.free_for(pod, other) if p.model == self.question.model), None
            )
            if place is None:
                return None
            beside, pods = (), (self.first.pop(0), self.second.pop(0))
        jobs = [one.asked.job for one in (*beside, *pods)]
        return Start(
            pods=pods,
            shares=answer.shares[len(beside) :],
            memory_mib=memory_bounds(answer.needs_mib, place)[len(beside) :],
            place=place,
            why=f"{' and '.join(jobs)} at {answer.split}: {saved}",
            beside=beside,
        )


def question_of_pair(a: Pod, b: Pod, place: GpuSlot) -> Question:
    """Two that are to start together; lengths count where both are known."""
    jobs = (a.wanted, b.wanted)
    if any(job.work_s is None for job in jobs):
        jobs = tuple(replace(job, work_s=None) for job in jobs)
    return Question(jobs=jobs, model=place.model, memory_mib=place.memory_mib)


def question_of_join(card: Card, pod: Pod) -> Question:
    """One that is to join those on a card."""
    jobs = tuple(replace(one.wanted, work_s=None) for one in (*card.pods, pod))
    running = tuple(float(one.share or ALONE) for one in card.pods)
    place = card.place
    return Question(jobs=jobs, model=place.model, memory_mib=place.memory_mib, running=running)


def memory_bounds(needs_mib: Sequence[float | None], place: GpuSlot) -> tuple[int, ...]:
    """At how much the memory of each is bounded, MiB: at the card less what the others need."""
    card_mib = place.memory_mib or MEMORY_MIB.get(place.model or "")
    fit = MemoryFit(tuple(needs_mib), card_mib)
    # A variable must have a value: what no card has is no bound.
    whole = int(fit.most_mib or MOST_MIB)
    return tuple(fit.limit_mib(n) or whole for n in range(len(needs_mib)))
