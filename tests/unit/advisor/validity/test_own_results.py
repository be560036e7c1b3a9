"""What a job's own results say of counts of units, as points and as a profile keep it."""

from simple_pairs import solo
from unsafe_counts import checked_132

from advisor.core.records import SoloPoint
from advisor.predict.profiles import make_profiles
from advisor.validity.points import own_results


def point(share: float, units: int, results: str | None, flags: tuple[str, ...] = ()) -> SoloPoint:
    return solo(
        share_percent=share, units_granted=units, units_total=132, rate=share, results=results,
        flags=flags,
    )  # fmt: skip


POINTS = [
    point(70, 92, "right"),
    point(50, 66, "wrong", flags=("not-settled",)),
    point(50, 66, "right"),
    point(40, 52, "differ"),
    point(40, 52, "right"),
    point(30, 38, None),
    point(100, 132, "right"),
]


def test_counts_by_results() -> None:
    """A count whose results were once not finite, or differed, is wrong."""
    assert own_results(POINTS) == ({92, 132}, {52, 66})
    assert own_results([]) == (frozenset(), frozenset())


def test_a_profile_knows_its_own_results_before_the_check() -> None:
    """Also those of doubtful points, which are left out of its rates."""
    (found,) = make_profiles(POINTS).values()
    safety = found.safety(checked_132())
    assert 92 not in safety.unsafe
    assert {38, 52, 66} <= safety.unsafe
    assert found.safety(None).unsafe == {52, 66}
