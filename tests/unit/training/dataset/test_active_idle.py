"""Active idle power, as pairs below their limit tell it."""

import dataclasses
import math

import pytest
from made_up_profiles import profile

from advisor.core.objectives import PartResult, SplitResult
from advisor.core.split import Split
from advisor.predict.gaps import ACTIVE_IDLE_ABOVE, filled, with_active_idle
from advisor.predict.profiles import Profile
from advisor.predict.sides import demanded_power_w, physical_power_w, power_limit_w, side
from advisor_training.pairs import MeasuredPair, Measurement
from advisor_training.rows import active_idle_above_w, active_idle_fill

SPLITS = [Split((10.0 * n, 100.0 - 10 * n)) for n in range(1, 10)]


@dataclasses.dataclass
class Made:
    """What is asked of a measurement."""

    splits: dict[str, dict[Split, SplitResult]]


def pair_of(a: Profile, b: Profile, power_w: list[float]) -> MeasuredPair:
    part = PartResult(1.0, 1.0, 1.0)
    results = [SplitResult((part, part), p) for p in power_w]
    made: Measurement = Made({"nine": dict(zip(SPLITS, results, strict=True))})  # pyright: ignore
    return MeasuredPair((a.job, b.job), a.gpu_model, (made,))


def both(limit_w: float) -> tuple[Profile, Profile]:
    one = profile("a", power_limit_w=limit_w)
    return one, dataclasses.replace(one, job="b")


def test_what_two_jobs_share_is_found_again() -> None:
    """Both powers less 125 W, on cards that are 80 W empty; one window off changes nothing."""
    a, b = both(2000.0)
    alone = 2 * 100.0 + 3.0 * 100
    power_w = [alone - 125.0] * 8 + [alone - 300.0]
    known = {(p.job, p.gpu_model): p for p in (a, b)}
    above_w = active_idle_above_w([pair_of(a, b, power_w)], known)
    assert above_w == pytest.approx(45)
    sides = [side(with_active_idle(p, {ACTIVE_IDLE_ABOVE: above_w}), [30.0]) for p in (a, b)]
    there = demanded_power_w(sides)[0]
    assert there == pytest.approx(2 * (100 + 90) - 125)


def test_each_gpu_model_has_its_own_where_pairs_tell() -> None:
    """One of which no pair tells has what all have; the same profile stays the same."""
    a, b = both(2000.0)
    c, d = (dataclasses.replace(p, gpu_model="Other") for p in (a, b))
    known = {(p.job, p.gpu_model): p for p in (a, b, c, d)}
    pairs = [pair_of(a, b, [500.0 - 125] * 9), pair_of(c, d, [500.0 - 85] * 9)]
    fill = active_idle_fill(pairs, known)
    drawn = [with_active_idle(p, fill).active_idle_power_w - 80 for p in (a, c)]
    assert drawn == pytest.approx([45, 5])
    third = dataclasses.replace(a, gpu_model="Third")
    assert with_active_idle(third, fill).active_idle_power_w == 80 + fill[ACTIVE_IDLE_ABOVE]
    assert with_active_idle(third, fill) is with_active_idle(third, fill)


def test_what_the_limit_hides_tells_nothing() -> None:
    """Nor does a pair that draws more than both alone: a card with jobs open draws no less."""
    a, b = both(300.0)
    known = {(p.job, p.gpu_model): p for p in (a, b)}
    assert active_idle_above_w([pair_of(a, b, [250.0] * 9)], known) == 0
    a, b = both(2000.0)
    known = {(p.job, p.gpu_model): p for p in (a, b)}
    assert active_idle_above_w([pair_of(a, b, [900.0] * 9)], known) == 0
    assert active_idle_above_w([], {}) == 0


def test_a_measured_active_idle_power_stays() -> None:
    """What is learned stands for profiles without; nobody's idle power is as before."""
    own = profile("a", active_idle_power_w=130.0)
    assert with_active_idle(own, {ACTIVE_IDLE_ABOVE: 45.0}).active_idle_power_w == 130
    assert filled(profile("a"), {ACTIVE_IDLE_ABOVE: 45.0}).active_idle_power_w == 125
    bare = profile("a")
    assert math.isnan(filled(bare, {}).active_idle_power_w)
    sides = [side(bare, [30.0]), side(bare, [70.0])]
    assert physical_power_w(sides)[0] == pytest.approx(min(190 + 310 - 80.0, power_limit_w(sides)))
