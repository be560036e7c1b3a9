"""What two kinds of pods, or one and a card, can be given together, and who of them gets it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from advisor.client import JobRequest
from advisor.core.gpu import MEMORY_MIB, MOST_MIB, WHOLE, MemoryFit
from advisor.core.split import ADVISED_JOBS
from advisor_kubernetes import names
from advisor_kubernetes.chooser.cards import Card, Cards
from advisor_kubernetes.chooser.places import GpuSlot
from advisor_kubernetes.chooser.pods import Pod
from advisor_node import matching
from advisor_node.advice import Answer, Apart, Question, Together

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
