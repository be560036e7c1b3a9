"""Counts of units at which results are right: never an unsafe one, and always the nearest."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unsafe_counts import SAFE_132, checked_132, checked_with

from advisor.core.gpu import grantable
from advisor.validity.safe_counts import Safety, safe_counts

KNOWN = Safety(units_total=132, host=checked_132())

totals = st.integers(40, 100).map(lambda half: 2 * half)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, int], int, Safety, Safety]:
    """Two wanted counts, the size of a GPU, and what is known of two jobs on it."""
    total = draw(totals)
    even = st.integers(4, total // 2).map(lambda half: 2 * half)
    counts = st.frozensets(even)
    host = draw(st.none() | counts.map(lambda unsafe: checked_with(total, unsafe)))
    a, b = (
        Safety(units_total=total, host=host, right=draw(counts), wrong=draw(counts)) for _ in "ab"
    )
    return (draw(even), draw(even)), total, a, b


def test_own_results_go_before_the_check() -> None:
    safety = Safety(
        units_total=132,
        host=checked_132(),
        right=frozenset({92, 104}),
        wrong=frozenset({66, 104}),
    )
    assert 92 not in safety.unsafe
    assert {66, 104, 78} <= safety.unsafe


def test_a_count_that_was_never_checked_is_allowed_and_said_to_be() -> None:
    host = checked_with(132, frozenset({92}), checked=frozenset({66, 92}))
    safety = Safety(units_total=132, host=host, right=frozenset({12}))
    assert 68 not in safety.unsafe
    assert [units for units in (12, 66, 68, 92) if safety.is_unchecked(units)] == [68]


def test_without_any_check_every_count_is_unchecked_but_those_of_own_results() -> None:
    """Right or wrong: somebody has looked at these."""
    safety = Safety(units_total=132, right=frozenset({12}), wrong=frozenset({14}))
    assert [units for units in (12, 14, 16, 132) if safety.is_unchecked(units)] == [16, 132]


def test_where_no_count_is_allowed_none_is_near() -> None:
    for safety in (Safety(), Safety(units_total=132, wrong=frozenset(grantable(132)))):
        assert safety.nearest(66) is None
        assert safety.around(66) == ()


def test_without_the_size_of_the_gpu_nothing_is_avoided() -> None:
    """Shares cannot be counted then."""
    assert not Safety(host=checked_132(), wrong=frozenset({66})).unsafe


@pytest.mark.parametrize(
    ("units", "nearest", "around"),
    [
        (66, 66, (66, 70)),
        (26, 22, (22, 30)),
        (92, 70, (70, 118)),
        (104, 118, (70, 118)),
        (132, 132, (132,)),
        (2, 8, (8,)),
    ],
)
def test_nearest_safe_counts(units: int, nearest: int, around: tuple[int, ...]) -> None:
    """Of two equally near ones the smaller."""
    assert (KNOWN.nearest(units), KNOWN.around(units)) == (nearest, around)


def test_mirror_images_are_told_apart_by_what_was_wanted_and_by_mirrored() -> None:
    """(62, 70) and (70, 62) are equally near to (66, 66) where that is not safe."""
    safety = Safety(units_total=132, host=checked_132(), wrong=frozenset({64, 66}))
    assert safe_counts((66, 66), 132, [safety, safety]) == (62, 70)
    assert safe_counts((66, 66), 132, [safety, safety], mirrored=True) == (70, 62)


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_job_that_was_to_have_more_gets_more(mirrored: bool) -> None:
    """30 and 100 of 132 are as near to (102, 110) as 100 and 30, and the names decide nothing."""
    two = checked_with(132, frozenset(grantable(132)) - {30, 100})
    safety = Safety(units_total=132, host=two)
    assert safe_counts((102, 110), 132, [safety, safety], mirrored=mirrored) == (30, 100)
    assert safe_counts((110, 102), 132, [safety, safety], mirrored=mirrored) == (100, 30)


@given(
    st.frozensets(st.sampled_from(sorted(grantable(60)))),
    st.lists(st.sampled_from(sorted(grantable(60))), min_size=2, max_size=3),
    st.booleans(),
)
def test_jobs_of_which_the_same_is_known_keep_their_order(
    unsafe: frozenset[int], wanted: list[int], mirrored: bool
) -> None:
    safety = Safety(units_total=60, host=checked_with(60, unsafe))
    found = safe_counts(tuple(wanted), 60, [safety] * len(wanted), mirrored=mirrored)
    ordered = sorted(zip(wanted, found or (), strict=False))
    for (less, fewer), (more, units) in itertools.combinations(ordered, 2):
        assert less == more or fewer <= units


@given(cases(), st.booleans())
def test_pairs_are_allowed_fit_and_are_the_nearest(
    case: tuple[tuple[int, int], int, Safety, Safety], mirrored: bool
) -> None:
    wanted, total, a, b = case
    pairs = [(x, y) for x in grantable(total) for y in grantable(total) if x + y <= total]
    possible = [(x, y) for x, y in pairs if x not in a.unsafe and y not in b.unsafe]
    found = safe_counts(wanted, total, [a, b], mirrored=mirrored)
    if found is None:
        assert not possible
        return
    assert found in possible

    def apart(pair: tuple[int, ...]) -> int:
        return abs(pair[0] - wanted[0]) + abs(pair[1] - wanted[1])

    assert apart(found) == min(map(apart, possible))


@given(cases(), st.booleans())
def test_swapping_the_jobs_swaps_the_pair(
    case: tuple[tuple[int, int], int, Safety, Safety], mirrored: bool
) -> None:
    wanted, total, a, b = case
    there = safe_counts(wanted, total, [a, b], mirrored=mirrored)
    back = safe_counts((wanted[1], wanted[0]), total, [b, a], mirrored=not mirrored)
    assert there == (back and back[::-1])


@given(totals, st.data())
def test_all_safe_changes_nothing(total: int, data: st.DataObject) -> None:
    units = data.draw(st.sampled_from(list(grantable(total))[:-4]))
    one, other = Safety(units_total=total), checked_with(total, frozenset())
    wanted = units, total - units
    assert safe_counts(wanted, total, [one, Safety(units_total=total, host=other)]) == wanted


@given(st.lists(st.integers(4, 40).map(lambda half: 2 * half), min_size=3, max_size=3))
def test_counts_of_three_jobs(wanted: list[int]) -> None:
    found = safe_counts(tuple(wanted), 132, [KNOWN] * 3)
    assert found
    assert sum(found) <= 132
    assert set(found) <= SAFE_132
    if set(wanted) <= SAFE_132 and sum(wanted) <= 132:
        assert found == tuple(wanted)
