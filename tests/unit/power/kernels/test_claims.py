"""F2, F3, F5 to F8: what confirms a claim, what refutes it, what leaves it open, and why."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.wire.kernel_power import Estimate, Scatter, StretchPower
from advisor_power.kernels.claims.communication import collectives_draw_little
from advisor_power.kernels.claims.method import steps_reduce_scatter
from advisor_power.kernels.claims.order import light_first_saves
from advisor_power.kernels.claims.readings import naive_readings_mislead
from advisor_power.kernels.claims.takeaways import Rise
from advisor_power.kernels.claims.work import (
    WorkPower,
    light_and_heavy_draw_alike,
    power_follows_work,
)
from advisor_power.kernels.estimates import around, mean_of, minus, ratio
from advisor_power.sensor.reading_errors import ReadingError


def work(
    total_w: float,
    memory_w: float | None,
    gbytes: float = 1.0,
    tflop: float = 1.0,
    *,
    capped: bool = False,
    dram: float | None = None,
) -> WorkPower:
    """An operation that does so much in a second, in executions of one millisecond."""
    stretch = StretchPower(
        power_w=around(total_w, 1.0),
        memory_power_w=None if memory_w is None else around(memory_w, 0.5),
        no_memory_power="" if memory_w else "this card does not read the power of its memory",
        execution_ms=1.0,
        seconds=3.0,
        tensor_active_percent=None,
        dram_active_percent=dram,
        power_capped=capped,
    )
    return WorkPower(tflop * 1e9, gbytes * 1e6, stretch)


# F2

HEAVY = {"gemm-8192": work(600, 60, 300), "gemm-2048": work(500, 50, 100)}
STRONG = {"gemv-8192": work(400, 110, 3000), "gemv-2048": work(300, 55, 200)}


def follows(
    compute: Mapping[str, WorkPower] = HEAVY,
    memory: Mapping[str, WorkPower] = STRONG,
    **more: WorkPower,
) -> tuple[str, str]:
    """Verdict, and its figures or what is missing."""
    found = power_follows_work(compute, memory, "gemv-8192", more)
    return found.verdict, found.ours or found.why


def test_power_that_follows_work_confirms_the_second() -> None:
    """All three parts of it; the counter of traffic decides where every operation has it."""
    verdict, ours = follows()
    assert verdict == "confirmed"
    assert "at least 100.0 W [98.6, 101.4] more" in ours
    assert "rank correlation 0.80" not in ours
    assert "bytes of operands" in ours
    counted = {name: work(400, w, 1, dram=w / 2) for name, w in (("gemv-8192", 90.0), ("x", 50.0))}
    heavy = {name: work(600, w, 9, dram=w / 2) for name, w in (("a", 60.0), ("b", 55.0))}
    verdict, ours = follows(heavy, counted)
    assert verdict == "confirmed"
    assert "the counter of memory traffic" in ours


def test_power_that_does_not_follow_work_refutes_the_second() -> None:
    """A memory whose power falls with traffic, or a memory-bound operation that draws most."""
    falls = {"gemv-8192": work(400, 40, 3000), "gemv-2048": work(300, 90, 10)}
    assert follows(memory=falls)[0] == "refuted"
    assert follows(memory={**STRONG, "gemv-2048": work(650, 55, 200)})[0] == "refuted"
    # Another operation has the highest power of memory: neither one nor the other.
    assert follows({**HEAVY, "gemm-8192": work(600, 120, 4000)})[0] == "open"


def test_second_is_open_without_the_power_of_the_memory() -> None:
    """And says for which operation; nor can three operations be ranked."""
    silent = {**STRONG, "gemv-2048": work(300, None)}
    verdict, why = follows(memory=silent)
    assert (verdict, why) == ("open", "gemv-2048: this card does not read the power of its memory")
    assert follows({"gemm-8192": work(600, 60)})[0] == "open"
    assert follows({}, {}) == ("open", "not all operations were measured")


# F3


@pytest.mark.parametrize(
    ("light", "verdict"),
    [
        (work(560, 50, tflop=0.55), "confirmed"),
        (work(400, 50, tflop=0.55), "refuted"),
        (work(470, 50, tflop=0.55), "open"),
        (work(560, 50, tflop=0.9), "open"),
        (work(560, 50, tflop=0.55, capped=True), "open"),
        (work(560, None, tflop=0.55), "open"),
        (None, "open"),
    ],
)
def test_light_and_heavy_products(light: WorkPower | None, verdict: str) -> None:
    """Alike without the memory's power at much less work; nothing is said at the power limit."""
    assert light_and_heavy_draw_alike(light, work(610, 60)).verdict == verdict


def test_third_says_why_it_is_open() -> None:
    """The figure stays where there is one."""
    heavy = work(610, 60)
    capped = light_and_heavy_draw_alike(work(560, 50, tflop=0.5, capped=True), heavy)
    assert capped.why == "the power limit held the clock back"
    assert capped.ours.startswith("power without memory's 92.7% [")
    missing = light_and_heavy_draw_alike(work(560, None), heavy)
    assert missing.why == "light: this card does not read the power of its memory"


# F5


def test_order_needs_three_pairs_and_a_certain_difference() -> None:
    """Of at least a percent; a small one that is certain refutes."""
    assert light_first_saves([98, 98.1, 97.9], [100, 100, 100]).verdict == "confirmed"
    assert light_first_saves([99.9, 100, 100.1], [100, 100, 100]).verdict == "refuted"
    assert light_first_saves([95, 99, 100], [100, 100, 100]).verdict == "open"
    assert light_first_saves([98, 98], [100, 100]).why == "2 pairs of blocks, it takes 3 (order.py)"


# F6


def scattered(unsynchronised: float | None, unbinned: float | None, differ: float) -> Scatter:
    """Of a kernel whose readings scatter by 10 W."""
    return Scatter(
        full_w=10.0,
        unsynchronised_w=unsynchronised,
        unbinned_w=unbinned,
        few_runs=50,
        few_runs_differ=differ,
    )


def test_steps_that_reduce_scatter_confirm_the_method() -> None:
    """Both steps by a fifth, and few runs like all; a step that does nothing refutes."""
    good = scattered(15.0, 14.0, 0.01)
    assert steps_reduce_scatter([good, good]).verdict == "confirmed"
    assert steps_reduce_scatter([scattered(10.1, 14.0, 0.01)] * 2).verdict == "refuted"
    assert steps_reduce_scatter([scattered(15.0, None, 0.01)] * 2).verdict == "refuted"
    assert steps_reduce_scatter([scattered(15.0, 14.0, 0.2)] * 2).verdict == "refuted"
    unsure = [good, scattered(10.5, 14.0, 0.01)]
    assert steps_reduce_scatter(unsure).verdict == "open"
    assert steps_reduce_scatter([]).verdict == "open"
    assert steps_reduce_scatter([scattered(None, 14.0, 0.01)]).verdict == "open"


# F7


def test_collectives_beside_a_product() -> None:
    """Latency-bound below half of it, bandwidth-bound between, and power that does not rise."""
    low, high, product = {"64KiB": around(200, 2)}, {"1GiB": around(350, 2)}, around(600, 2)
    flat, rising = {"64KiB": Rise(0.01, 0.0, 0.005)}, {"64KiB": Rise(0.1, 0.0, 0.01)}

    def verdict(
        latency: Mapping[str, Estimate],
        bandwidth: Mapping[str, Estimate],
        product_w: Estimate | None,
        rises: Mapping[str, Rise],
    ) -> str:
        return collectives_draw_little(latency, bandwidth, product_w, rises).verdict

    assert verdict(low, high, product, flat) == "confirmed"
    assert verdict(low, high, product, {}) == "open"
    assert verdict(low, high, product, rising) == "refuted"
    assert verdict({"64KiB": around(400, 2)}, high, product, flat) == "refuted"
    assert verdict(low, {"1GiB": around(700, 2)}, product, flat) == "refuted"
    assert verdict(low, high, None, flat) == verdict({}, high, product, flat) == "open"


# F8


def test_naive_readings() -> None:
    """Confirmed where the worst common way is far off and ours is not."""

    def verdict(naive: float, ours: float) -> str:
        both = (("instant", naive), ("ours", ours))
        errors = [ReadingError(3e-5, way, error, error, 9) for way, error in both]
        return naive_readings_mislead(errors).verdict

    assert verdict(0.8, 0.01) == "confirmed"
    assert verdict(0.8, 0.2) == verdict(0.1, 0.01) == "open"
    assert verdict(0.02, 0.01) == "refuted"
    assert naive_readings_mislead([]).verdict == "open"


# intervals

VALUES = st.floats(1.0, 1000.0)


@given(VALUES, VALUES, st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_intervals_hold_what_they_are_put_together_of(
    a: float, b: float, half_a: float, half_b: float
) -> None:
    """A difference is as unsure as both; a ratio grows and shrinks with its parts."""
    one, other = around(a, half_a), around(b, half_b)
    less, over = minus(one, other), ratio(one, other)
    assert less.low is not None
    assert less.high is not None
    assert less.high - less.low == pytest.approx(2 * np.hypot(half_a, half_b))
    assert less.low <= less.value <= less.high
    assert over.value == pytest.approx(a / b)
    assert over.low is not None
    assert over.low <= over.value
    assert minus(one, Estimate(b, None, None)).low is None
    assert ratio(mean_of([a]), other).high is None
