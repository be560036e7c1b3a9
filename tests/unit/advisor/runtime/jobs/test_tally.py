"""The total of counts that start again, with repeats, gaps and other counters beside them."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.runtime.counting import Tally

RISES = st.lists(st.integers(2, 4), min_size=6, max_size=40)


def total_of(numbers: Sequence[float], of: float | None = None) -> float:
    tally = Tally()
    for number in numbers:
        tally.add(number, of)
    return tally.total


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([1, 2, 3], 3),
        ([100, 200, 100, 200, 100, 200], 600),
        ([8, 9, 1, 2, 3], 12),
        ([8, 9, 1], 9),
        ([10, 9, 10, 11, 9, 10, 12], 12),
        ([30, 1, 31, 2, 32, 3, 33], 33),
        ([5000, 5001, 5002], 5002),
        ([100, 70, 80, 90, 95], 195),
    ],
    ids=[
        "no restart",
        "epochs",
        "restart",
        "one smaller number",
        "ranks out of step",
        "two counters by turns",
        "resumed",
        "restart whose first half was not seen",
    ],
)
def test_a_smaller_number_counts_once_it_rises(numbers: list[float], total: float) -> None:
    assert total_of(numbers) == total


@given(st.lists(RISES, min_size=1, max_size=6), st.integers(1, 3))
def test_restarts_gaps_and_repeats_lose_nothing(epochs: list[list[int]], repeats: int) -> None:
    numbers = [n for rises in epochs for n in accumulate(rises) for _ in range(repeats)]
    assert total_of(numbers) == sum(map(sum, epochs))


@given(st.lists(st.sets(st.integers(1, 50), min_size=1), min_size=1, max_size=6))
def test_a_full_bar_starts_again_at_any_number(epochs: list[set[int]]) -> None:
    """Also where one number of an epoch was seen."""
    numbers = [float(n) for shown in epochs for n in sorted({*shown, 50})]
    assert total_of(numbers, 50) == 50 * len(epochs)


def test_a_bar_that_stops_a_step_short_was_full() -> None:
    """`Train Epoch: 1 [5952/6000]` is the last line of 6000 images, of which each tells 64."""
    epoch = [float(n) for n in range(0, 6000, 64)]
    tally = Tally()
    for number in epoch * 3:
        tally.add(number, 6000)
    assert tally.total == 2 * 6000 + epoch[-1]
    tally.finish()
    assert tally.total == 3 * 6000


@given(
    st.lists(st.lists(st.integers(1, 60), max_size=3, unique=True), min_size=1, max_size=5),
    st.integers(2, 15),
)
def test_another_bar_between_adds_nothing(epochs: list[list[int]], checks: int) -> None:
    """Validation in the midst of an epoch and at its end, of fewer batches than training."""
    tally = Tally()
    for cuts in epochs:
        for n in range(1, 61):
            tally.add(n, 60)
            if n in cuts or n == 60:
                for check in range(1, checks + 1):
                    tally.add(check, checks)
    assert tally.total == 60 * len(epochs)


def test_what_follows_a_bar_that_is_over_is_the_work() -> None:
    """A bar of data before that of training, for one pattern."""
    tally = Tally()
    for n in range(1000, 20001, 1000):
        tally.add(n, 20000)
    for n in range(1, 101):
        tally.add(n, 2000)
    assert tally.total == 20000 + 100


def test_epochs_of_changing_length_add_up() -> None:
    tally = Tally()
    for batches in (1203, 1207, 1198):
        for n in range(1, batches + 1):
            tally.add(n, batches)
    assert tally.total == 1203 + 1207 + 1198


@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from([None, 5, 60, 100])), max_size=60))
def test_no_sequence_makes_the_total_fall(shown: list[tuple[int, float | None]]) -> None:
    tally, before = Tally(), 0.0
    for number, of in shown:
        tally.add(number, of)
        assert tally.total >= before
        before = tally.total
