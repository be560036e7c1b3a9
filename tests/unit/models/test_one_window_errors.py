"""How far off jobs of families may be that nobody measured: worlds of those that were."""

import numpy as np
import pytest

from advisor.core.gpu import WHOLE
from advisor.predict.one_window import SoloWindow
from advisor.predict.profiles import Floats
from advisor_models.one_window import bundled_head, drawn_errors, wider


def around_one(count: int, seed: int) -> dict[str, Floats]:
    """Families, all equally near."""
    numbers = np.random.default_rng((count, seed)).normal(1.0, 0.3, count)
    return {f"family {n}": numbers[n : n + 1] for n in range(count)}


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_families_hold_one_that_was_not_measured(count: int) -> None:
    """About four of five by themselves, however few they are; as they stand, a third to a half."""
    held = 0
    for week in range(200):
        near = around_one(count + 1, week)
        new = near.popitem()[1]
        errors = drawn_errors(near, near)
        low, high = np.quantile([errors(world) for world in range(40)], (0.05, 0.95))
        held += low <= new[0] <= high
    assert 0.72 <= held / 200 <= 0.93


def test_few_families_are_less_sure() -> None:
    """Student's t: of two families a third may be anywhere, of many it is as they are."""
    assert wider(2) == pytest.approx(6.314 / 1.645 * 3**0.5)
    numbers = [wider(n) for n in (2, 2.5, 3, 5, 8, 13)]
    assert numbers == sorted(numbers, reverse=True)
    assert wider(1000) == pytest.approx(1, abs=0.11)


def test_what_all_families_have_in_common_is_in_the_mean() -> None:
    near = around_one(12, 0)
    errors = drawn_errors(near, near)
    values = np.array([errors(world)[0] for world in range(2000)])
    assert values.mean() == pytest.approx(np.mean([*near.values()][:6]), abs=0.1)
    same = {name: np.array([0.4]) for name in near}
    assert drawn_errors(same, same)(7) == pytest.approx([0.4])


def test_servers_are_off_as_servers_are() -> None:
    """In each world; their profiles differ though one family alone is nearest to all of them."""
    counters = {"sm_active_percent": 22.0, "dram_active_percent": 5.0, "sm_clock_mhz": 1980.0}
    window = SoloWindow(
        job="seen",
        gpu_model="NVIDIA H100 80GB HBM3",
        units_total=132,
        power_w=222.0,
        power_limit_w=700.0,
        clock_part=1.0,
        idle_power_w=70.0,
        memory_used_mib=4000.0,
        counters=counters,
    )
    for is_server in (False, True):
        guess = bundled_head().guesses(window, is_server=is_server)
        kept = [guess(world).values["rate"][0] for world in range(16)]
        assert len(set(kept)) >= 3
        assert 0 < min(kept) < max(kept) <= 1
        assert guess(3).values["sm_active_percent"].max() <= WHOLE
        np.testing.assert_array_equal(guess(3).values["rate"], guess(3).values["rate"])
