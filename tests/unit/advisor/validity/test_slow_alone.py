"""The flag for jobs that their host slowed down while they had the GPU to themselves."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simple_pairs import solo

from advisor.core.flags import DOUBTFUL, SLOW_ALONE
from advisor.core.records import SoloPoint
from advisor.validity.degenerate import FASTEST, with_solo_flags
from advisor_data.bundled import bundled_solo_points


def sweep(*rates: float) -> list[SoloPoint]:
    shares = (*range(10, 10 * len(rates), 10), 100)
    return [
        solo(share_percent=float(share), rate=rate, power_w=None)
        for share, rate in zip(shares, rates, strict=True)
    ]


def slow(points: list[SoloPoint]) -> list[float]:
    return [p.share_percent for p in with_solo_flags(points) if SLOW_ALONE in p.flags]


def test_a_whole_gpu_that_is_slower_than_a_part_of_it_is_flagged() -> None:
    """Only that point: the others are right."""
    assert slow(sweep(50, 100, 80)) == [100]
    assert slow(sweep(50, 90, 80)) == []
    assert slow(sweep(50, 70, 80)) == []


@pytest.mark.parametrize("change", [{"run": "other"}, {"gpu_uuid": "GPU-other"}, {"job": "other"}])
def test_another_sweep_says_nothing(change: dict[str, str]) -> None:
    fast, whole = sweep(100, 80)
    assert slow([replace(fast, **change), whole]) == []


@pytest.mark.parametrize("flag", sorted(DOUBTFUL))
def test_a_point_that_failed_a_check_says_nothing(flag: str) -> None:
    """A share that leaves work out is fast, and no measure."""
    fast, whole = sweep(100, 80)
    assert slow([replace(fast, flags=(flag,)), whole]) == []


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=9))
def test_the_bound(rates: list[float]) -> None:
    """Flagged is what any share beats by more than two undisturbed runs differ."""
    assert bool(slow(sweep(*rates))) == (max(rates) > FASTEST * rates[-1])


def test_three_bundled_profiles_have_it() -> None:
    """Launch-bound training on H100, which measurements of pairs had shown before."""
    found = with_solo_flags(bundled_solo_points())
    assert {(p.job, p.gpu_model) for p in found if SLOW_ALONE in p.flags} == {
        ("bert-train-b2", "NVIDIA H100 80GB HBM3"),
        ("resnet50-train-b2", "NVIDIA H100 80GB HBM3"),
    }
