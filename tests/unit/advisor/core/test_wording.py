"""Words of messages."""

from hypothesis import given
from hypothesis import strategies as st

from advisor.core.wording import count_of, in_ranges, listed


def test_lists_and_counts() -> None:
    lists = [listed([]), listed([1]), listed([1, 2]), listed("abc")]
    assert lists == ["", "1", "1 and 2", "a, b and c"]
    assert [count_of(1, "pair"), count_of(2, "pair")] == ["1 pair", "2 pairs"]
    assert [count_of(1, "process"), count_of(2, "process")] == ["1 process", "2 processes"]


def test_three_in_a_row_are_a_range() -> None:
    """Two are shorter as they are."""
    assert in_ranges([26, 28, 36, 40, 42, 44, 72], 2) == "26, 28, 36, 40 to 44 and 72"
    assert in_ranges([], 2) == ""


@given(st.sets(st.integers(1, 66).map(lambda n: 2 * n)))
def test_no_count_is_lost(counts: set[int]) -> None:
    written = in_ranges(sorted(counts), 2).replace(" and ", ", ")
    read: set[int] = set()
    for part in filter(None, written.split(", ")):
        ends = [int(end) for end in part.split(" to ")]
        read |= set(range(ends[0], ends[-1] + 1, 2))
    assert read == counts
