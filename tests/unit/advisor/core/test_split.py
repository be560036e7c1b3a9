"""Splits: their text, what is refused, candidates, ties, and memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.gpu import MEMORY_PART, MemoryFit
from advisor.core.split import (
    EQUAL,
    EXCLUSIVE,
    NINE,
    SHARINGS,
    TIME_SLICED,
    UNCAPPED,
    Split,
    best_within_tie,
    check_advised,
    evenness,
    parse_split,
    split_environments,
    split_shares,
    without_limits,
)
from advisor.errors import InputError

shares = st.integers(1, 1000).map(lambda tenths: tenths / 10)
limited = st.lists(shares, min_size=2, max_size=5).map(lambda found: Split(tuple(found)))
splits = limited | st.sampled_from([UNCAPPED, TIME_SLICED, EXCLUSIVE])


@given(splits)
def test_text_is_read_as_it_was_written(split: Split) -> None:
    """But for limits of the whole GPU each, which are none."""
    read = parse_split(str(split))
    assert str(read) == str(split) or read.sharing == "uncapped"
    assert read.shares == split.shares


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("30/70", Split((30.0, 70.0))),
        ("20/30/50", Split((20.0, 30.0, 50.0))),
        ("12.5 / 87.5", Split((12.5, 87.5))),
        ("100/100", UNCAPPED),
        ("uncapped", UNCAPPED),
        ("time-sliced", TIME_SLICED),
        ("exclusive", EXCLUSIVE),
    ],
)
def test_texts(text: str, split: Split) -> None:
    """What people write."""
    assert parse_split(text) == split


def test_words_say_nothing_of_how_many_share() -> None:
    """The number of jobs comes from elsewhere."""
    assert parse_split("uncapped", jobs=3) == Split((100.0, 100.0, 100.0), "uncapped")
    assert without_limits("exclusive", 3).shares == (100.0,) * 3


@pytest.mark.parametrize(
    "text",
    ["", "50", "30:70", "30/", "/70", "a/b", "50/nan", "50/inf", "-1/50", "1e1/90", "50%/50%"],
)
def test_what_is_no_split(text: str) -> None:
    """The message says how to write one."""
    with pytest.raises(InputError, match=r"is not a split.*write percentages such as 30/70, or un"):
        parse_split(text)


@pytest.mark.parametrize("text", ["0/100", "50/0", "50/101", "0/0"])
def test_shares_that_the_driver_takes_as_no_limit(text: str) -> None:
    """They are refused, not handed on."""
    with pytest.raises(InputError, match="no limit at all"):
        parse_split(text)


def test_nearest_word() -> None:
    """A typing error is answered with what was meant."""
    with pytest.raises(InputError, match="the nearest is time-sliced"):
        parse_split("time sliced")


@pytest.mark.parametrize("found", [(), (50.0,), (0.0, 50.0), (50.0, float("nan"))])
def test_impossible_splits(found: tuple[float, ...]) -> None:
    """No split is made of them."""
    with pytest.raises(InputError):
        Split(found)


def test_nine() -> None:
    """In steps of 10, by the share of the first job; half for each is among them."""
    assert [str(split) for split in NINE][:2] == ["10/90", "20/80"]
    assert all(sum(split.shares) == 100 for split in NINE)
    assert EQUAL in NINE
    assert {split.turned() for split in NINE} == set(NINE)


@given(
    st.lists(splits.filter(lambda s: len(s.shares) == 2), min_size=1, unique=True), st.booleans()
)
def test_no_two_splits_are_equally_even(found: list[Split], mirrored: bool) -> None:
    """So what is chosen does not depend on the order of the candidates."""
    ranks = {evenness(split, mirrored=mirrored) for split in found}
    assert len(ranks) == len(found)


@given(splits)
def test_mirror_images(split: Split) -> None:
    """With jobs swapped and mirrored set the order is the same."""
    assert evenness(split.turned(), mirrored=True) == evenness(split, mirrored=False)


def test_limits_first_then_the_more_even() -> None:
    """Then the smaller first share."""
    found = sorted([EXCLUSIVE, UNCAPPED, TIME_SLICED, *reversed(NINE)], key=evenness)
    assert [str(split) for split in found[:3]] == ["50/50", "40/60", "60/40"]
    assert tuple(split.sharing for split in found[-3:]) == SHARINGS[1:]


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0, 0.5))
def test_best_within_a_tie(values: list[float], tie: float) -> None:
    """The smallest of those that are within the tie."""
    found = best_within_tie(values, lambda value: value, tie, lambda value, worth: worth)
    assert found == min(value for value in values if value >= max(values) * (1 - tie))


def test_nothing_to_choose_from() -> None:
    """Neither without candidates, nor with a tie that everything is within."""
    for values, tie in (([], 0.0), ([1.0], 1.0), ([1.0], -0.1), ([1.0], float("nan"))):
        with pytest.raises(InputError):
            best_within_tie(values, lambda value: value, tie, lambda value, worth: worth)


def test_environments_without_limits() -> None:
    """No job gets a variable; nothing of the GPU needs to be known."""
    assert split_environments(UNCAPPED, None, "amd") == ({}, {})
    assert [share.upper for share in split_shares(EQUAL)] == [False, True]


@pytest.mark.parametrize("jobs", [1, 3])
def test_only_pairs_are_advised(jobs: int) -> None:
    """Any other number is refused, with what to do."""
    check_advised(2)
    with pytest.raises(InputError, match=f"{jobs} jobs? on one GPU.* name 2 jobs"):
        check_advised(jobs)


needs = st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=4).map(tuple)


@given(needs, st.none() | st.floats(1, 1e6))
def test_memory(needs_mib: tuple[float | None, ...], card_mib: float | None) -> None:
    """What is known may already be too much; that all fit is only said where all is known."""
    found = MemoryFit(needs_mib, card_mib)
    known = sum(need for need in needs_mib if need is not None)
    assert found.is_too_much == (card_mib is not None and known > MEMORY_PART * card_mib)
    if card_mib is None or None in needs_mib:
        assert found.fits is None
    else:
        assert found.fits is not found.is_too_much
