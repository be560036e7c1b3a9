import math
import random
from collections.abc import Collection
from pathlib import Path

import pytest
from recorded_trace import TraceSource
from scripted import ScriptedSource

from advisor.core.telemetry import ENERGY_GPU, Readings
from advisor.errors import JobError
from advisor.progress import LATENCY_BUCKETS, latency_bucket
from advisor.validity.sensor_record import PowerTiming
from advisor_profiling.window.clock import VirtualClock
from advisor_profiling.window.window import (
    WindowInputs,
    WindowRules,
    measure,
    measure_idle,
    rules_for,
)

RULES = WindowRules()


def watch(source: ScriptedSource, steps_per_s: float = 100) -> WindowInputs:
    clock = source.clock
    return WindowInputs(
        counts=[lambda: math.floor(steps_per_s * clock.now_s())], source=source, clock=clock
    )


def test_steady_job_ends_at_the_shortest_window() -> None:
    """Nothing is measured longer than needed once both errors are small."""
    window = measure(watch(ScriptedSource(VirtualClock(), lambda _: 300.0)), RULES)
    assert window.settled
    assert window.window_s == pytest.approx(RULES.least_s, abs=0.4)
    (rate,) = window.rates
    assert rate is not None
    assert rate.mean == pytest.approx(100, rel=1e-3)
    assert window.power is not None
    assert window.power.mean == pytest.approx(300)


def test_window_waits_until_power_is_flat_although_the_rate_is() -> None:
    source = ScriptedSource(VirtualClock(), lambda t: min(300.0, 100 + 40 * t))
    window = measure(watch(source), RULES)
    assert window.settled
    assert window.settle_s > 4.5
    assert window.power is not None
    assert window.power.mean == pytest.approx(300, rel=0.01)


def test_sensor_that_lags_is_not_taken_for_a_change_of_power() -> None:
    """Readings of the time before the gate opened are left out, and then a short view is enough."""
    lag_s = 1.1
    rules = rules_for(8.0, PowerTiming(settle_s=lag_s - 0.1, shortest_window_s=0.8))
    source = ScriptedSource(VirtualClock(), lambda t: 80.0 if t < lag_s else 300.0)
    window = measure(watch(source), rules)
    assert window.settled
    assert window.settle_s == pytest.approx(lag_s + 0.8, abs=0.05)
    assert window.power is not None
    assert window.power.mean == pytest.approx(300)


@pytest.mark.parametrize(("busy_s", "settle_s"), [(1.1, 1.1), (0.08 + 0.1, 0.087), (0, 0)])
def test_idle_power_is_read_when_the_sensor_has_settled(busy_s: float, settle_s: float) -> None:
    """A mean of a second still has the load that has just ended; a reading stays a period long."""
    clock = VirtualClock()
    source = ScriptedSource(clock, lambda t: 500.0 if t < busy_s else 80.0)
    rules = rules_for(8.0, PowerTiming(settle_s=settle_s, shortest_window_s=0.8))
    assert measure_idle(source, clock, rules) == pytest.approx(80)


def test_power_that_never_settles_is_measured_and_marked() -> None:
    """A job that drifts for ever yields a point, and the point says so."""
    source = ScriptedSource(VirtualClock(), lambda t: 100 * 1.2**t)
    window = measure(watch(source), WindowRules(settle_most_s=5, most_s=3))
    assert not window.settled
    assert window.window_s == pytest.approx(3, abs=0.3)


def test_noisy_power_uses_the_whole_time() -> None:
    source = ScriptedSource(VirtualClock(), lambda t: 300 + 200 * math.copysign(1, math.sin(3 * t)))
    window = measure(watch(source), WindowRules(settle_most_s=2, most_s=6))
    assert window.window_s == pytest.approx(6, abs=0.3)
    assert window.power is not None
    assert window.power.relative is not None
    assert window.power.relative > 0.01


@pytest.mark.parametrize(("counted_w", "gap"), [(250.0, 0.0), (275.0, 0.1)])
def test_energy_counter_shows_its_gap_to_the_power(counted_w: float, gap: float) -> None:
    """At constant power the cross-check is exact, wherever the window starts in a tick."""
    source = ScriptedSource(VirtualClock(), lambda _: 250.0, lambda _: counted_w)
    assert measure(watch(source), RULES).counter_gap == pytest.approx(gap, abs=0.01)


class StoppedSource(ScriptedSource):
    """The host stops whoever reads it for 0.3 s, before and after its counter at random moments."""

    def read(self, names: Collection[str]) -> Readings:
        chance, stop_s = self.chance, 0.3
        stops = [chance.random() < 0.05 and ENERGY_GPU in names for _ in range(2)]
        self.clock.sleep(stops[0] * stop_s)
        found = super().read(names)
        self.clock.sleep(stops[1] * stop_s)
        return found

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chance = random.Random(11)


def test_stop_of_the_profiler_at_a_tick_makes_no_power() -> None:
    """Nor at a look at the jobs: a tick or a step that nobody saw for long has no moment."""
    for seed in range(20):
        source = StoppedSource(VirtualClock(), lambda _: 250.0)
        source.chance.seed(seed)
        clock, chance = source.clock, random.Random(seed)

        def count(clock: VirtualClock = clock, chance: random.Random = chance) -> int:
            clock.sleep(0.3 * (chance.random() < 0.02))
            return math.floor(100 * clock.now_s())

        window = measure(WindowInputs(counts=[count], source=source, clock=clock), RULES)
        gap, (rate,) = window.counter_gap, window.rates
        assert gap is None or abs(gap) < 0.03, seed
        assert rate is not None
        assert rate.mean == pytest.approx(100, rel=0.015), seed


def test_missing_readings_stay_missing() -> None:
    source = ScriptedSource(VirtualClock(), lambda _: None, throttle=lambda _: None)
    window = measure(watch(source), RULES)
    assert window.power is None
    assert window.counter_power_w is None
    assert window.throttle_reasons is None
    assert None not in window.rates


def test_throttling_within_the_window_is_named() -> None:
    source = ScriptedSource(
        VirtualClock(),
        lambda _: 700.0,
        throttle=lambda t: ("sw-power-cap",) if 2 < t < 2.5 else (),
    )
    assert measure(watch(source), RULES).throttle_reasons == ("sw-power-cap",)


def test_two_jobs_are_measured_together() -> None:
    clock = VirtualClock()
    source = ScriptedSource(clock, lambda _: 300.0)
    counts = [lambda: math.floor(100 * clock.now_s()), lambda: 32 * math.floor(50 * clock.now_s())]
    window = measure(WindowInputs(counts=counts, source=source, clock=clock), RULES)
    assert [rate and rate.mean for rate in window.rates] == pytest.approx([100, 1600], rel=0.01)
    assert window.window_s == pytest.approx(RULES.least_s, abs=0.4)


def test_window_waits_for_the_slower_of_two_to_become_flat() -> None:
    clock = VirtualClock()
    source = ScriptedSource(clock, lambda _: 300.0)

    def speeding_up() -> int:
        return math.floor(60 * clock.now_s() - 90 * (1 - math.exp(-clock.now_s() / 1.5)))

    counts = [lambda: math.floor(100 * clock.now_s()), speeding_up]
    window = measure(WindowInputs(counts=counts, source=source, clock=clock), RULES)
    assert window.settle_s > 3


@pytest.mark.parametrize(("step_s", "window_s"), [(0.7, 3), (2.6, 5.8), (50.0, 12)])
def test_window_goes_on_for_a_starved_partner(step_s: float, window_s: float) -> None:
    """Sets that starve a job are what nobody wants, and not to be left out of the data."""
    clock = VirtualClock()
    source = ScriptedSource(clock, lambda _: 300.0)
    counts = [lambda: math.floor(100 * clock.now_s()), lambda: math.floor(clock.now_s() / step_s)]
    rules = WindowRules(settle_most_s=2, most_s=3)
    window = measure(WindowInputs(counts=counts, source=source, clock=clock), rules)
    assert window.window_s == pytest.approx(window_s, abs=1.3)
    starved = window.rates[1]
    assert (starved is None) == (step_s == 50)
    assert starved is None or starved.mean == pytest.approx(1 / step_s, rel=0.05)


def test_partner_that_stands_still_costs_only_four_of_the_longest_windows() -> None:
    """One that stands still next to a job that runs does not keep the window open for ever."""
    clock = VirtualClock()
    source = ScriptedSource(clock, lambda _: 300.0)
    counts = [lambda: math.floor(100 * clock.now_s()), lambda: 0]
    rules = WindowRules(settle_most_s=2, most_s=3)
    window = measure(WindowInputs(counts=counts, source=source, clock=clock), rules)
    assert window.rates[0] is not None
    assert window.rates[1] is None
    assert window.window_s == pytest.approx(12, abs=0.3)


def test_latencies_are_those_of_the_window_alone() -> None:
    """Requests that were slow while the job settled are not in the percentiles."""
    clock = VirtualClock()
    source = ScriptedSource(clock, lambda _: 300.0)

    def latencies() -> tuple[int, ...]:
        """A thousand requests of 2 s before the first second is over, then 100 a second."""
        counts = [0] * LATENCY_BUCKETS
        counts[latency_bucket(2.0)] = 1000
        counts[latency_bucket(0.004)] = round(98 * clock.now_s())
        counts[latency_bucket(0.050)] = round(2 * clock.now_s())
        return tuple(counts)

    counts = [lambda: math.floor(100 * clock.now_s())] * 2
    both = WindowInputs(
        counts=counts, source=source, clock=clock, latencies=[latencies, lambda: ()]
    )
    first, second = measure(both, RULES).latencies
    assert first == (pytest.approx(4, rel=0.03), pytest.approx(50, rel=0.03))
    assert second == (None, None)


@pytest.mark.parametrize("rate", [5, 50, 500])
def test_requests_that_come_at_random_are_no_unrest(rate: float) -> None:
    """A server at a fixed demand settles, at any rate, and its error is that of what it counted."""
    windows = [measure(at_random(rate, seed), RULES) for seed in range(20)]
    assert sum(window.settled for window in windows) >= 19
    rates = [window.rates[0] for window in windows if window.rates[0] is not None]
    assert sum(r.mean for r in rates) / len(rates) == pytest.approx(rate, rel=0.4 / rate**0.5)
    # The relative error of a count is one over its root.
    errors = [(r.relative or 0) ** 2 * rate * RULES.most_s for r in rates]
    assert sum(errors) / len(errors) == pytest.approx(1, rel=0.4)


@pytest.mark.parametrize("rate", [50, 500])
def test_a_server_that_gets_faster_is_not_settled_at_once(rate: float) -> None:
    """What looks random is still seen to move: the noise hides no ramp to three times the rate."""
    climbing = [at_random(rate, seed, ramp_s=8.0) for seed in range(10)]
    waited = [measure(watched, RULES).settle_s for watched in climbing]
    assert sorted(waited)[2] > RULES.settle_least_s


def at_random(rate: float, seed: int, ramp_s: float = 0.0) -> WindowInputs:
    """A job that answers each request as it comes, from a Poisson process.

    Its rate climbs from a third of `rate` in `ramp_s` seconds.
    """
    chance, clock, arrived = random.Random(seed), VirtualClock(), 0
    next_s = chance.expovariate(rate)

    def count() -> int:
        nonlocal arrived, next_s
        while next_s <= clock.now_s():
            arrived += chance.random() * ramp_s <= max(next_s, ramp_s / 3)
            next_s += chance.expovariate(rate)
        return arrived

    return WindowInputs(counts=[count], source=ScriptedSource(clock, lambda _: 200.0), clock=clock)


def test_job_that_dies_ends_the_window() -> None:
    source = ScriptedSource(VirtualClock(), lambda _: 100.0)

    def check() -> None:
        if source.clock.now_s() > 2:
            raise JobError("gone")

    dying = WindowInputs(counts=[lambda: 0], source=source, clock=source.clock, check=check)
    with pytest.raises(JobError, match="gone"):
        measure(dying, RULES)


def test_real_card_under_its_power_cap() -> None:
    """Readings recorded on an H200: power, energy counter and throttle reason agree."""
    clock = VirtualClock()
    source = TraceSource(Path(__file__).parents[3] / "fixtures/h200-bert-infer.jsonl", clock)
    window = measure(
        WindowInputs(counts=[lambda: math.floor(68 * clock.now_s())], source=source, clock=clock),
        # The record has the readings of one schedule: one and a half seconds, then four.
        WindowRules(least_s=3.98, most_s=3.98, flat=1),
    )
    assert window.power is not None
    assert window.power.mean == pytest.approx(690, rel=0.02)
    assert abs(window.counter_gap or 1) < 0.02
    assert window.throttle_reasons == ("sw-power-cap",)
    assert window.counters.sm_active_percent == pytest.approx(94.6, abs=0.1)
