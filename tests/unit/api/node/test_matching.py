"""Which offers are taken, all at once: worth, memory of those that run, speeds, free GPUs."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from advisor.client import JobRequest
from advisor_node.advice import Answer, Apart, NoAnswer, Offer, Question, Together, matched, weighed

H200 = "NVIDIA H200"


def offer(*kinds: int, running: int = 0, **more: Any) -> Offer:
    jobs = tuple(JobRequest(job=f"j{kind}") for kind in kinds)
    asked = Question(jobs=jobs, model=H200, running=(50.0,) * running)
    return replace(Offer(kinds=kinds, question=asked), **more)


def together(saved: float = 0.1, needs_mib: tuple[float | None, ...] = ()) -> Together:
    return Together(shares=(), needs_mib=needs_mib, energy_saved=saved, split="")


def taken(
    counts: list[int], free_gpus: int, **saved: tuple[Offer, float]
) -> Counter[tuple[int, ...]]:
    offers = [(one, together(energy)) for one, energy in saved.values()]
    return Counter(found.kinds for found, _ in matched(counts, offers, free_gpus))


def test_a_gpu_less_counts_before_what_is_saved() -> None:
    """Three on one GPU are two GPUs less, two pairs as many; a pair that saves much is one."""
    three, pair, other = offer(0, 1, 2), offer(0, 1), offer(2, 3)
    assert taken([1] * 4, 0, a=(three, 0.1), b=(pair, 0.9)) == {(0, 1, 2): 1}
    assert taken([1] * 4, 0, a=(three, 0.1), b=(pair, 0.2), c=(other, 0.1)) == {
        (0, 1): 1,
        (2, 3): 1,
    }


def test_the_solver_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Its lines would stand in the log between those of decisions."""
    assert taken([1] * 9, 0, **{f"o{n}": (offer(n, (n + 1) % 9), 0.1 * n) for n in range(9)})
    assert capfd.readouterr() == ("", "")


def test_offers_are_taken_as_often_as_there_are_jobs_and_free_gpus() -> None:
    twice = offer(0, 0, takes_gpu=True)
    for free_gpus, times in ((9, {(0, 0): 2}), (1, {(0, 0): 1}), (0, {})):
        assert taken([5], free_gpus, a=(twice, 0.1)) == times
    assert taken([5], 0) == {}
    late, good = offer(0, 1, takes_gpu=True, ahead=1), offer(1, 2, takes_gpu=True)
    assert taken([1, 1, 1], 1, a=(late, 0.1), b=(good, 0.9)) == {(0, 1): 1}


def judged(one: Offer, answer: Answer | None) -> Answer | None:
    [(_, found)] = weighed([one], lambda asked: dict.fromkeys(asked, answer) if answer else {})
    return found


@pytest.mark.parametrize(
    ("bound_mib", "card_mib", "joins"),
    [(134_070, None, True), (134_071, None, False), (60_000, 64_000, False), (None, None, True)],
)
def test_who_joins_finds_its_memory(
    bound_mib: float | None, card_mib: float | None, joins: bool
) -> None:
    one = offer(0, 1, running=1, bounds_mib=(bound_mib,))
    one = replace(one, question=replace(one.question, memory_mib=card_mib))
    answer = together(needs_mib=(1000.0, 2000.0))
    found = judged(one, answer)
    assert (found == answer) is joins
    if not joins:
        assert isinstance(found, Apart)
        assert f"j0 runs and may take {bound_mib:,} MiB of the " in found.why


def test_nobody_shares_to_stand_still() -> None:
    """A model may say that one of two would hardly run."""
    good, bad = (replace(together(), low_speeds=(0.9, low)) for low in (0.05, 0.04))
    assert judged(offer(0, 1), good) == good
    assert isinstance(judged(offer(0, 1), bad), Apart)
    for said in (None, NoAnswer("away"), Apart("exclusive is better")):
        assert judged(offer(0, 1), said) == said
