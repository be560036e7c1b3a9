"""Which splits are the nine of a pair."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simple_pairs import SHARES, SOLOS, nine, pair

from advisor.core.objectives import OBJECTIVES
from advisor.core.records import PairPoint
from advisor.core.split import Split
from advisor_data.files.bundled import bundled_pair_points
from advisor_training.noise import noise_ceiling
from advisor_training.pairs import is_full, kinds_of, make_pairs, split_of, uses_the_gpu

UNITS = {10: 12, 11: 14, 26: 34, 47: 62, 50: 66, 54: 70, 90: 118}
SAFE = ((10, 90), (11, 90), (26, 54), (47, 54), (50, 50), (54, 47), (54, 26), (90, 11), (90, 10))


def safe(**fields: object) -> list[PairPoint]:
    """The nine at safe counts of an H100."""
    return [pair(a, b, units_1=UNITS[a], units_2=UNITS[b], **fields) for a, b in SAFE]


def test_nine_safe_splits_are_the_nine_of_a_pair() -> None:
    """11/90 and 47/54 add up to 101 %, 26/54 leaves a fifth of the GPU idle."""
    points = [*safe(), pair(100, 100, mode="uncapped"), pair(70, 70, units_1=92, units_2=92)]
    assert kinds_of(points) == ["nine"] * 9 + ["uncapped", "over-subscribed"]
    pairs, left_out = make_pairs(points, SOLOS)
    assert left_out == []
    assert sorted(pairs[0].main.nine) == sorted(map(Split, SAFE))


@pytest.mark.parametrize(
    ("point", "uses"),
    [
        (pair(47, 54, units_1=62, units_2=70), True),
        (pair(47, 54), False),  # nobody knows of how many units
        (pair(47, 53, units_1=62), True),
        (pair(30, 45), True),
        (pair(30, 44), False),
        (pair(50, 50, units_1=49, units_2=49), False),
    ],
)
def test_a_split_of_the_nine_uses_about_the_whole_gpu(point: PairPoint, uses: bool) -> None:
    """In units where they were read back, else in percent: three quarters of it, and no more."""
    assert uses_the_gpu(point) == uses


def test_of_a_job_beside_itself_five_are() -> None:
    points = safe(job_2="a")
    assert kinds_of(points) == ["nine"] * 9
    assert kinds_of(points[1:5]) == ["nine"] * 4
    assert kinds_of(points[:3]) == ["nine", "grid", "other"]


def test_two_safe_splits_may_be_missing_three_not() -> None:
    """Then they are what each of them is by itself."""
    points = safe()
    assert set(kinds_of([*points[:1], *points[2:6], *points[7:]])) == {"nine"}
    assert kinds_of([*points[:1], *points[3:6], *points[7:]]) == [
        "nine", "grid", "nine", "grid", "grid", "nine",
    ]  # fmt: skip
    one_side = [*points[:1], *points[4:], pair(70, 30)]
    assert kinds_of(one_side)[2:4] == ["grid", "other"]


def test_beside_all_nine_in_steps_of_ten_others_are_a_grid() -> None:
    """The nine stay those that pairs have in common."""
    grid = [pair(20 + n, 80 - n, units_1=26 + n, units_2=106 - n) for n in (1, 2)]
    assert kinds_of([*nine(), *grid]) == ["nine"] * 9 + ["grid"] * 2


def test_what_flags_leave_of_a_grid_around_10_90_is_no_nine() -> None:
    """Eight splits, of which one gives the first job more: their best is no oracle."""
    left = [pair(s, 100.5 - s, units_1=u, units_2=132 - u) for s, u in ((7, 8), (8, 10), (11, 14))]
    points = [pair(10, 90), pair(50, 50), pair(90, 10), *left, pair(9, 91, units_1=12)]
    assert kinds_of(points)[:3] == ["nine"] * 3
    assert "grid" in kinds_of(points)
    assert make_pairs(points, SOLOS)[0] == []


@pytest.mark.parametrize("other", [{"run": "r2"}, {"gpu_uuid": "GPU-2"}, {"gpu_model": "Other"}])
def test_runs_and_cards_are_looked_at_by_themselves(other: dict[str, str]) -> None:
    """Four splits of one run and five of another do not make nine."""
    points = safe()
    mixed = [*points[:5], *safe(**other)[5:]]
    assert {"grid", "other"} <= set(kinds_of(mixed))
    both = [*nine(), *safe(**other)]
    assert kinds_of(both) == ["nine"] * 18


@given(st.sets(st.sampled_from([*SAFE, *((s, 100 - s) for s in SHARES)])))
def test_a_full_set_is_full_from_either_side_and_with_more_splits(
    splits: set[tuple[int, int]],
) -> None:
    found = set(map(Split, splits))
    full = is_full(found, beside_itself=False)
    assert is_full({split.turned() for split in found}, beside_itself=False) == full
    assert is_full({*found, *map(Split, SAFE)}, beside_itself=False)
    if full:
        assert min(sum(a < b for a, b in splits), sum(a > b for a, b in splits)) >= 2
        assert not is_full({s for s in found if s.shares[0] >= s.shares[1]}, beside_itself=False)


@given(st.randoms(use_true_random=False), st.integers(0, 9))
def test_kinds_do_not_depend_on_the_order(random_: random.Random, kept: int) -> None:
    points = [*safe()[:kept], *nine(run="r2"), pair(30, 30)]
    shuffled = random_.sample(points, len(points))
    kinds = dict(zip(points, kinds_of(points), strict=True))
    assert kinds_of(shuffled) == [kinds[point] for point in shuffled]


def test_takes_at_other_splits_tell_nothing_of_the_noise() -> None:
    """They have three of nine in common; two takes at the same ones do."""
    objective = OBJECTIVES["throughput"]
    assert noise_ceiling(make_pairs([*nine(), *safe(run="r2")], SOLOS)[0], objective) is None
    twice = [*nine(), *nine(repeat=1), *safe(run="r2"), *safe(run="r3", gpu_uuid="GPU-2")]
    found = noise_ceiling(make_pairs(twice, SOLOS)[0], objective)
    assert found is not None
    assert (found.pairs, found.other_card_pairs, found.choices) == (1, 1, 4)


def test_bundled_pairs_are_full_in_every_run() -> None:
    """Flagged ones among them: only pairs whose best split can be an oracle are bundled."""
    points = bundled_pair_points()
    runs: dict[tuple[str, ...], set[Split]] = {}
    for point, kind in zip(points, kinds_of(points), strict=True):
        if kind == "nine":
            runs.setdefault((*point.jobs, point.gpu_uuid, point.run), set()).add(split_of(point))
    assert {key[3] for key in runs} >= {"h100-safe", "h200-pairs"}
    assert all(is_full(found, beside_itself=key[0] == key[1]) for key, found in runs.items())
    h100 = [found for key, found in runs.items() if key[3] == "h100-safe"]
    assert all(one == other for one, other in pairwise(h100))
