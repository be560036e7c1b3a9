"""Splits as a plan writes them: every word is read, written again, and fitted to a GPU."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned import H200, MI300X

from advisor.core.gpu import SM_FLOOR, units_for_percent
from advisor.core.split import NINE, TIME_SLICED, UNCAPPED, Split
from advisor.errors import InputError
from advisor_profiling.campaign.splits import (
    AroundBest,
    UnitSplit,
    read_split,
    write_splits,
)


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        ("nine", NINE),
        ("uncapped", (UNCAPPED,)),
        ("100/100", (UNCAPPED,)),
        ("time-sliced", (TIME_SLICED,)),
        ("70/70", (Split((70.0, 70.0)),)),
        ("12.5 / 87.5", (Split((12.5, 87.5)),)),
        ("66+66 units", (UnitSplit(66, 66),)),
        ("12 + 120 units", (UnitSplit(12, 120),)),
        ("around-best 8", (AroundBest(8),)),
    ],
)
def test_words_for_splits(text: str, splits: tuple[Any, ...]) -> None:
    assert read_split(text, "here") == splits


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nien", "got 'nien'. the nearest is nine"),
        ("time sliced", "the nearest is time-sliced"),
        ("", "expected nine, uncapped, time-sliced, 70/30 "),
        ("0/100", "got '0/100'. the driver takes 0 and percentages above 100"),
        ("50/101", "at most 100 %"),
        ("50/50/50", "got '50/50/50'"),
        ("50/-50", "got '50/-50'"),
        ("50/nan", "got '50/nan'"),
        ("50", "got '50'"),
        ("66+66", "got '66+66'"),
        ("66 units", "got '66 units'"),
        ("around-best", "the nearest is around-best 8"),
        ("around-best 0", "got 'around-best 0'"),
        ("around-best 1", "got 'around-best 1'"),
        ("99.9999/1", "got '99.9999/1'"),
    ],
)
def test_word_that_is_no_split(text: str, what: str) -> None:
    with pytest.raises(InputError) as error:
        read_split(text, "here")
    assert str(error.value).startswith("here: expected ")
    assert what in str(error.value)


any_split = (
    st.sampled_from([*NINE, UNCAPPED, TIME_SLICED])
    | st.builds(AroundBest, st.integers(2, 100))
    | st.builds(UnitSplit, st.integers(0, 304), st.integers(0, 304))
    | st.tuples(st.integers(1, 1000), st.integers(1, 999)).map(
        lambda tenths: Split((tenths[0] / 10, tenths[1] / 10))
    )
)


@given(splits=st.lists(any_split, unique=True))
def test_splits_are_read_as_they_were_written(splits: list[Any]) -> None:
    words = write_splits(splits)
    again = [split for word in words for split in read_split(word, "here")]
    assert sorted(map(str, again)) == sorted(map(str, splits))
    assert set(again) == set(splits)


@given(best=st.integers(SM_FLOOR // 2, 62), reach=st.integers(2, 300))
def test_around_best_stays_on_the_card(best: int, reach: int) -> None:
    """Each split of the grid can be granted, leaves no SM out and is near enough."""
    splits = AroundBest(reach).on(H200, 2 * best)
    counts = [units_for_percent(split.shares[0], 132) for split in splits]
    assert 2 * best in counts
    for split, count in zip(splits, counts, strict=True):
        assert count + units_for_percent(split.shares[1], 132) == 132
        assert abs(count - 2 * best) <= reach


def test_around_best_on_amd() -> None:
    splits = AroundBest(32).on(MI300X, 96)
    counts = [round(split.shares[0] * 304 / 100) for split in splits]
    assert 96 in counts
    assert all(count % 8 == 0 and abs(count - 96) <= 32 for count in counts)
