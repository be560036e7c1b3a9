"""How sure figures are: takes of one pair, and intervals by drawing jobs again."""

import dataclasses

import numpy as np
import pytest
import synthetic_pairs as made_up
from hypothesis import given
from hypothesis import strategies as st
from reading import some
from simple_pairs import SOLOS, nine, pair

from advisor.core.objectives import OBJECTIVES
from advisor.core.records import PairPoint
from advisor_training.rows import make_pairs
from advisor_training.scoring import Ceiling, Resamples, noise_ceiling


def ceiling(points: list[PairPoint], name: str = "throughput") -> Ceiling | None:
    return noise_ceiling(make_pairs(points, SOLOS)[0], OBJECTIVES[name])


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_without_noise_the_ceiling_is_exactly_one(name: str) -> None:
    points = made_up.pair_points(run="first") + made_up.pair_points(run="second")
    found = noise_ceiling(make_pairs(points, made_up.solo_points())[0], OBJECTIVES[name])
    parts = dict.fromkeys(("mean", "median", "p10", "worst"), 100.0)
    assert found == Ceiling(
        pairs=15, choices=30, other_card_pairs=0, noise_percent=0,
        **{f"{part}_percent": value for part, value in parts.items()},
    )  # fmt: skip


def test_a_ceiling_by_hand() -> None:
    """Each take's choice is scored on the other, as a part of the other's best."""
    flat = dict.fromkeys(range(10, 100, 10), 0.8)
    half = dict.fromkeys(flat, 0.4)  # a slower card, which changes no comparison within it
    points = [
        *nine({**flat, 30: 1.6, 70: 1.44}, run="r1"),
        *nine({**half, 30: 0.6, 70: 1.0}, run="r2", gpu_uuid="GPU-2"),
        *nine(job_2="a"),  # taken once
    ]
    found = some(ceiling(points))
    # r1 chooses 30/70, worth 0.6 of 1.0 in r2; r2 chooses 70/30, worth 1.44 of 1.6 in r1.
    scores = {"mean": 75, "median": 75, "p10": 63, "worst": 60}
    # Changes against 50/50: six times 0, 1 - 1.2 / 1.6 and 1 - 1.44 / 2; the 95 % lies between.
    noise = 25 + 0.65 * 3
    expected = {f"{name}_percent": value for name, value in [*scores.items(), ("noise", noise)]}
    assert dataclasses.asdict(found) == pytest.approx(
        {"pairs": 1, "other_card_pairs": 1, "choices": 2, **expected}
    )


def test_it_takes_two_takes_that_can_be_compared() -> None:
    """Three in one run give six choices. Noise that was not measured is not known, not 0.

    A second take of four splits cannot score a choice among nine, nor one worth nothing.
    """
    found = some(ceiling([point for n in range(3) for point in nine(repeat=n)]))
    assert (found.pairs, found.choices) == (1, 6)
    nothing = [p for n in range(2) for p in nine(rate_1=0.0, repeat=n)]
    few = (nine(), [*nine(), *nine(repeat=1)[2:6]], nothing)
    assert [ceiling(points, "max-min") for points in few] == [None] * 3


def test_a_starved_job_does_not_break_the_ceiling() -> None:
    """Where 50/50 starves a job, max-min is 0 there."""
    one = nine(repeat=0)
    other = [p for p in nine(repeat=1) if p.shares_percent[0] != 50] + [pair(rate_1=0.0, repeat=1)]
    assert some(ceiling([*one, *other], "max-min")).noise_percent == 100


pytestmark = pytest.mark.figures

JOBS = st.sampled_from(["a", "b", "c", "d"])


@given(st.lists(st.tuples(JOBS, JOBS, st.floats(-10, 10)), min_size=1, max_size=20))
def test_intervals_lie_within_the_values(found: list[tuple[str, str, float]]) -> None:
    drawn = Resamples([(a, b) for a, b, _ in found])
    values = [value for _, _, value in found]
    for estimate in (drawn.mean(values), drawn.median(values)):
        assert min(values) - 1e-9 <= estimate.low <= estimate.high <= max(values) + 1e-9
    assert drawn.mean(values).value == pytest.approx(np.mean(values))
    assert drawn.median(values).value == pytest.approx(np.median(values))


def test_pairs_of_one_job_hang_together() -> None:
    """Ten pairs that all have one odd job tell less than ten that share none."""
    values = [1.0] * 10 + [0.0] * 10
    others = [(f"a{n}", f"b{n}") for n in range(10)]
    firsts = ([f"c{n}" for n in range(10)], ["odd"] * 10)
    pairs = [[*((job, f"d{n}") for n, job in enumerate(jobs)), *others] for jobs in firsts]
    apart, together = (Resamples(each).mean(values) for each in pairs)
    assert together.high - together.low > apart.high - apart.low
