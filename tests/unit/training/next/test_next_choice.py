"""The rule that chooses pairs: within the budget, the most telling first."""

import dataclasses
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from advisor_training.next import OpenPair, PairUse, choose_pairs, distances, nearest, value

NAMES = some.sampled_from(["bert", "fft", "gemm", "triad", "vit"])

USE = some.tuples(some.floats(0, 1), some.floats(0, 1))

CANDIDATES = some.lists(
    some.builds(
        OpenPair,
        jobs=some.tuples(NAMES, NAMES).map(lambda jobs: (min(jobs), max(jobs))),
        minutes=some.floats(0.1, 5),
        uses=some.tuples(USE, USE),
        asked=some.integers(0, 9),
    ),
    unique_by=lambda candidate: candidate.jobs,
    max_size=15,
)

MEASURED = some.dictionaries(NAMES, some.integers(0, 5))


ALIKE = (0.5,), (0.5,)


def pair(*jobs: str, asked: int = 0, uses: PairUse = ALIKE) -> OpenPair:
    return OpenPair(jobs=(jobs[0], jobs[1]), minutes=1.0, uses=uses, asked=asked)


@given(CANDIDATES, MEASURED, some.floats(0, 20))
def test_the_budget_is_kept_and_used(
    candidates: list[OpenPair], measured: dict[str, int], minutes: float
) -> None:
    """No pair twice, none too many, and nothing that would still fit is left."""
    chosen = choose_pairs(candidates, measured, minutes)
    spent = sum(candidate.minutes for candidate in chosen)
    left = [candidate for candidate in candidates if candidate not in chosen]
    assert len({candidate.jobs for candidate in chosen}) == len(chosen)
    assert spent <= minutes + 1e-9
    assert all(candidate.minutes > minutes - spent - 1e-9 for candidate in left)


@given(CANDIDATES, MEASURED, some.randoms(use_true_random=False))
def test_the_order_of_candidates_does_not_matter(
    candidates: list[OpenPair], measured: dict[str, int], dice: random.Random
) -> None:
    turned = dice.sample(candidates, len(candidates))
    assert choose_pairs(candidates, measured, 8) == choose_pairs(turned, measured, 8)


@given(CANDIDATES, MEASURED, some.floats(0, 10), some.floats(0, 10))
def test_a_larger_budget_begins_alike_where_all_cost_the_same(
    candidates: list[OpenPair], measured: dict[str, int], one: float, other: float
) -> None:
    """So a plan can be broken off anywhere."""
    alike = [dataclasses.replace(candidate, minutes=1.0) for candidate in candidates]
    short, long = (choose_pairs(alike, measured, m) for m in sorted((one, other)))
    assert long[: len(short)] == short


@pytest.mark.parametrize(
    ("more", "less"),
    [
        (pair("bert", "gemm", asked=1), pair("bert", "fft")),
        (pair("bert", "vit"), pair("bert", "gemm")),
        (pair("triad", "vit"), pair("triad", "triad")),
    ],
    ids=["asked for", "a job in no measured pair", "two such jobs"],
)
def test_what_comes_first(more: OpenPair, less: OpenPair) -> None:
    measured = {"bert": 2, "fft": 1, "gemm": 1}
    assert value(more, measured) > value(less, measured)
    assert choose_pairs([less, more], measured, 1) == [more]


def test_what_was_chosen_counts_as_measured() -> None:
    pairs = [pair("bert", "new"), pair("fft", "new"), pair("gemm", "other")]
    chosen = choose_pairs(pairs, {"bert": 3, "fft": 3, "gemm": 3}, 2)
    assert [candidate.jobs for candidate in chosen] == [("bert", "new"), ("gemm", "other")]


def test_what_is_unlike_all_measured_pairs_comes_first() -> None:
    """Of jobs that are as little measured; then what is unlike that one, too."""
    low, middle, high = ((0.0,), (0.0,)), ((0.6,), (0.6,)), ((1.0,), (1.0,))
    found = [pair("a", "b", uses=low), pair("c", "d", uses=middle), pair("e", "f", uses=high)]
    chosen = choose_pairs(found, {}, 3, learned=[low])
    assert [candidate.jobs for candidate in chosen] == [("e", "f"), ("c", "d"), ("a", "b")]


@given(some.lists(some.tuples(USE, USE), min_size=1, max_size=6), some.tuples(USE, USE))
def test_a_distance_is_one(pairs: list[PairUse], other: PairUse) -> None:
    """The same whichever job comes first, and both ways; 0 to itself."""
    found = distances(pairs, other)
    assert found == pytest.approx(distances(pairs, (other[1], other[0])))
    assert found == pytest.approx([distances([other], one)[0] for one in pairs])
    assert nearest(pairs, [*pairs, other]) == pytest.approx(0)
    assert nearest(pairs, [other]) == pytest.approx(found)


def test_what_is_not_known_counts_as_alike() -> None:
    """A host without counters has rates and power only."""
    [found] = distances([((math.nan, 0.5), (0.1, 0.5))], ((0.3, 0.1), (0.1, math.nan)))
    assert found == pytest.approx(0.4)
