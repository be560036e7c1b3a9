import bisect
import dataclasses
import json
import math
import random
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from reading import some
from recorded_trace import TraceSource
from scripted import GPU, ScriptedSource

from advisor.core.gpu import Share
from advisor.core.job import NOTHING, InputData, Job
from advisor.core.records import FLAGS, HEAT, Counters, PairPoint, SoloPoint
from advisor.core.telemetry import ENERGY_GPU, POWER_MEMORY, Channel, Readings
from advisor.errors import JobError
from advisor.formats.rows import from_row, to_row
from advisor.predict.kernels import MeanEstimate, kernels_beside
from advisor.progress import LATENCY_BUCKETS, latency_bucket
from advisor.validity.sensor_record import PowerTiming
from advisor_power.data import with_fingerprint
from advisor_profiling.window import (
    MeasuredWindow,
    RunConditions,
    Target,
    VirtualClock,
    WindowInputs,
    WindowResult,
    WindowRules,
    mean_estimate,
    measure,
    measure_idle,
    memory_power_w,
    pair,
    rate_estimate,
    rules_for,
    solo,
)

RULES = WindowRules()


def watch(source: ScriptedSource, *counts: Callable[[float], float]) -> WindowInputs:
    """Jobs whose steps follow the time; without any, one of 100 steps per second."""
    clock = source.clock

    def counted(count: Callable[[float], float]) -> Callable[[], int]:
        return lambda: math.floor(count(clock.now_s()))

    counters = [counted(count) for count in counts or (steady,)]
    return WindowInputs(counts=counters, source=source, clock=clock)


def steady(now_s: float) -> float:
    return 100 * now_s


def source(
    power_w: Callable[[float], float | None] = lambda _: 300.0,
    throttle: Callable[[float], tuple[str, ...] | None] = lambda _: (),
) -> ScriptedSource:
    return ScriptedSource(VirtualClock(), power_w, throttle=throttle)


def test_steady_jobs_end_at_the_shortest_window() -> None:
    """Nothing is measured longer than needed once all errors are small."""
    throttled = source(throttle=lambda t: ("sw-power-cap",) if 2 < t < 2.5 else ())
    window = measure(watch(throttled, steady, lambda t: 32 * math.floor(50 * t)), RULES)
    assert window.settled
    assert window.window_s == pytest.approx(RULES.least_s, abs=0.4)
    assert [rate and rate.mean for rate in window.rates] == pytest.approx([100, 1600], rel=0.01)
    assert window.power is not None
    assert (window.power.mean, window.power.stderr) == pytest.approx((300, 0), abs=1e-6)
    assert window.throttle_reasons == ("sw-power-cap",)
    unread = measure(watch(source(lambda _: None, throttle=lambda _: None)), RULES)
    assert (unread.power, unread.counter_power_w, unread.throttle_reasons) == (None, None, None)


POWERS_W: dict[str, Callable[[float], float]] = {
    "warms up": lambda t: min(300.0, 100 + 40 * t),
    "drifts for ever": lambda t: 100 * 1.2**t,
    "pulses": lambda t: 300 + 200 * math.copysign(1, math.sin(3 * t)),
}


@pytest.mark.parametrize(
    ("power", "rules", "settled", "window_s", "relative"),
    [
        ("warms up", RULES, True, RULES.least_s, 0.0),
        ("drifts for ever", WindowRules(settle_most_s=5, most_s=3), False, 3, 0.03),
        ("pulses", WindowRules(settle_most_s=2, most_s=6), False, 6, 0.17),
    ],
)
def test_window_waits_until_power_is_flat(
    power: str,
    rules: WindowRules,
    settled: bool,
    window_s: float,
    relative: float,
) -> None:
    window = measure(watch(source(POWERS_W[power])), rules)
    assert (window.settled, window.settle_s > 4.5 or not settled) == (settled, True)
    assert window.window_s == pytest.approx(window_s, abs=0.4)
    assert some(window.power).relative == pytest.approx(relative, abs=0.05)


def test_sensor_that_lags_is_not_taken_for_a_change_of_power() -> None:
    """Readings of the time before the gate opened are left out, and then a short view is enough."""
    lag_s = 1.1
    rules = rules_for(8.0, PowerTiming(settle_s=lag_s - 0.1, shortest_window_s=0.8))
    window = measure(watch(source(lambda t: 80.0 if t < lag_s else 300.0)), rules)
    assert (window.settled, window.settle_s) == (True, pytest.approx(lag_s + 0.8, abs=0.05))
    assert some(window.power).mean == pytest.approx(300)


@pytest.mark.parametrize(("busy_s", "settle_s"), [(1.1, 1.1), (0.08 + 0.1, 0.087), (0, 0)])
def test_idle_power_is_read_when_the_sensor_has_settled(busy_s: float, settle_s: float) -> None:
    """A mean of a second still has the load that has just ended; a reading stays a period long."""
    idle = source(lambda t: 500.0 if t < busy_s else 80.0)
    rules = rules_for(8.0, PowerTiming(settle_s=settle_s, shortest_window_s=0.8))
    assert measure_idle(idle, idle.clock, rules) == pytest.approx(80)


@pytest.mark.parametrize(("counted_w", "gap"), [(250.0, 0.0), (275.0, 0.1)])
def test_energy_counter_shows_its_gap_to_the_power(counted_w: float, gap: float) -> None:
    """At constant power the cross-check is exact, wherever the window starts in a tick."""
    counted = ScriptedSource(VirtualClock(), lambda _: 250.0, lambda _: counted_w)
    assert measure(watch(counted), RULES).counter_gap == pytest.approx(gap, abs=0.01)


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
        stopped = StoppedSource(VirtualClock(), lambda _: 250.0)
        stopped.chance.seed(seed)
        clock, chance = stopped.clock, random.Random(seed)

        def count(clock: VirtualClock = clock, chance: random.Random = chance) -> int:
            clock.sleep(0.3 * (chance.random() < 0.02))
            return math.floor(100 * clock.now_s())

        window = measure(WindowInputs(counts=[count], source=stopped, clock=clock), RULES)
        gap, (rate,) = window.counter_gap, window.rates
        assert gap is None or abs(gap) < 0.03, seed
        assert some(rate).mean == pytest.approx(100, rel=0.015), seed


def test_window_waits_for_the_slower_of_two_to_become_flat() -> None:
    window = measure(
        watch(source(), steady, lambda t: 60 * t - 90 * (1 - math.exp(-t / 1.5))), RULES
    )
    assert window.settle_s > 3


@pytest.mark.parametrize(("step_s", "window_s"), [(0.7, 3), (2.6, 5.8), (50.0, 12), (1e9, 12)])
def test_window_goes_on_for_a_starved_partner(step_s: float, window_s: float) -> None:
    """Sets that starve a job are part of the data; one that stands still costs four windows."""
    rules = WindowRules(settle_most_s=2, most_s=3)
    window = measure(watch(source(), steady, lambda t: t / step_s), rules)
    assert window.window_s == pytest.approx(window_s, abs=1.3)
    starved = window.rates[1]
    assert (starved is None) == (step_s >= 50)
    assert starved is None or starved.mean == pytest.approx(1 / step_s, rel=0.05)


def queue(
    clock: VirtualClock,
    could: float,
    *,
    waits_s: float = 0.0,
    cold_s: float = 0.0,
    work_s: float = 0.05,
    burst: bool = False,
    offered: float | None = 60.0,
) -> WindowInputs:
    """60 requests/s; it answers `could` in turn, begins after so long, and some wait by then."""
    ends, answers = list[float](), list[tuple[int, ...]]()
    came_s, free_s, counts = -waits_s, cold_s, [0] * LATENCY_BUCKETS
    while came_s < 200:
        came_s += 1 / (240.0 if burst and 0 < came_s < 5 else 60.0)
        free_s = max(came_s, free_s) + 1 / could
        counts[latency_bucket(free_s + work_s - came_s)] += 1
        ends.append(free_s + work_s)
        answers.append(tuple(counts))

    def count() -> int:
        return bisect.bisect_right(ends, clock.now_s())

    return WindowInputs(
        counts=[count],
        source=ScriptedSource(clock, lambda _: 300.0),
        clock=clock,
        latencies=[lambda: answers[done - 1] if (done := count()) else (0,) * LATENCY_BUCKETS],
        offered=[offered],
    )


@pytest.mark.parametrize("offered", [60.0, None])
@pytest.mark.parametrize(
    ("could", "script", "settle_s"),
    [
        (76.5, {}, 1.5),
        (76.5, {"waits_s": 20.0}, 72.7),
        (76.5, {"cold_s": 15.0}, 69.5),
        (200.0, {"waits_s": 20.0, "cold_s": 15.0}, 30.0),
        (150.0, {"work_s": 4.0}, 18.0),
    ],
)
def test_a_window_opens_when_the_queue_of_a_server_is_empty(
    offered: float | None, could: float, script: dict[str, Any], settle_s: float
) -> None:
    """1,200 requests that wait are answered at 16.5 a second beside those that arrive."""
    window = measure(queue(VirtualClock(), could, offered=offered, **script), RULES)
    assert (window.settled, window.drains) == (True, False)
    assert window.settle_s == pytest.approx(settle_s, abs=5)
    assert some(window.rates[0]).mean == pytest.approx(60, rel=0.03)
    steady_ms = 1000 * (script.get("work_s", 0.05) + 1 / could)
    assert window.latencies[0] == pytest.approx((steady_ms, steady_ms), rel=0.1)


def test_a_burst_beyond_the_demand_is_waited_for() -> None:
    window = measure(queue(VirtualClock(), 300, burst=True), RULES)
    assert 5 < window.settle_s < 9
    assert some(window.rates[0]).mean == pytest.approx(60, rel=0.03)


def test_a_queue_that_is_not_emptied_in_two_minutes_is_flagged() -> None:
    window = measure(queue(VirtualClock(), 67, waits_s=20), RULES)
    assert (window.drains, window.settle_s) == (True, pytest.approx(120, abs=1))
    behind = measure(queue(VirtualClock(), 40), RULES)
    assert (behind.drains, behind.settle_s < 4) == (False, True), "it is never empty"
    assert measure(queue(VirtualClock(), 67, waits_s=20), rules_for(0.1)).settle_s < 7


def test_latencies_are_those_of_the_window_alone() -> None:
    """Requests that were slow while the job settled are not in the percentiles."""
    inputs = watch(source(), steady, steady)

    def latencies() -> tuple[int, ...]:
        """A thousand requests of 2 s before the first second is over, then 100 a second."""
        counts = [0] * LATENCY_BUCKETS
        counts[latency_bucket(2.0)] = 1000
        counts[latency_bucket(0.004)] = round(98 * inputs.clock.now_s())
        counts[latency_bucket(0.050)] = round(2 * inputs.clock.now_s())
        return tuple(counts)

    assert measure(replace(inputs, latencies=[latencies, lambda: ()]), RULES).latencies == (
        (pytest.approx(4, rel=0.03), pytest.approx(50, rel=0.03)),
        (None, None),
    )


@pytest.mark.parametrize("rate", [5, 50, 500])
def test_requests_that_come_at_random_are_no_unrest(rate: float) -> None:
    """A server at a fixed demand settles, at any rate, and its error is that of what it counted."""
    windows = [measure(at_random(rate, seed), RULES) for seed in range(10)]
    assert sum(window.settled for window in windows) >= 9
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
    def check() -> None:
        if inputs.clock.now_s() > 2:
            raise JobError("gone")

    inputs = watch(source(), lambda _: 0)
    with pytest.raises(JobError, match="gone"):
        measure(replace(inputs, check=check), RULES)


def test_real_card_under_its_power_cap() -> None:
    """Readings recorded on an H200: power, energy counter and throttle reason agree."""
    card = TraceSource(Path(__file__).parents[3] / "fixtures/h200-bert-infer.jsonl", VirtualClock())
    inputs = replace(watch(source(), lambda t: 68 * t), source=card, clock=card.clock)
    counts = [lambda: math.floor(68 * card.clock.now_s())]
    # The record has the readings of one schedule: one and a half seconds, then four.
    rules = WindowRules(least_s=3.98, most_s=3.98, flat=1)
    window = measure(replace(inputs, counts=counts), rules)
    assert (some(window.power).mean, window.counters.sm_active_percent) == pytest.approx(
        (690, 94.6), rel=0.02
    )
    assert abs(window.counter_gap or 1) < 0.02
    assert window.throttle_reasons == ("sw-power-cap",)


AVERAGE = (Channel(POWER_MEMORY, "mean", 1.0),)
READINGS = [(0.25 * n, 60.0 + 0.001 * n) for n in range(12)]


def test_only_means_of_the_window_alone_count() -> None:
    """The first second of readings is of the time before as well."""
    before = [(10 + at_s, 510.0 + at_s if at_s < 1 else watts) for at_s, watts in READINGS]
    assert memory_power_w(before, AVERAGE, 10.0, 600.0) == pytest.approx(60.0075, abs=1e-6)
    assert memory_power_w(READINGS, (Channel(POWER_MEMORY),), 0.0, 600.0) == pytest.approx(
        60.0055, abs=1e-6
    )


@pytest.mark.parametrize(
    ("name", "readings", "power_w"),
    [
        ("absent", [(at_s, None) for at_s, _ in READINGS], 600.0),
        ("gone in between", [*READINGS[:-1], (2.75, None)], 600.0),
        ("zero", [*READINGS[:-1], (2.75, 0.0)], 600.0),
        ("stuck", [(at_s, 60.0) for at_s, _ in READINGS], 600.0),
        ("larger than the total", READINGS, 50.0),
        ("total unknown", READINGS, None),
        ("window too short", READINGS[:7], 600.0),
        ("nothing read", [], 600.0),
    ],
)
def test_a_faulty_sensor_says_nothing(
    name: str, readings: list[tuple[float, float | None]], power_w: float | None
) -> None:
    """None, never 0 and never a wrong number."""
    assert memory_power_w(readings, AVERAGE, 0.0, power_w) is None, name


class WithMemory(ScriptedSource):
    """A card whose memory draws a tenth, told as a mean over a second."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        return (*super().channels, *AVERAGE)

    def read(self, names: Collection[str]) -> Readings:
        found = dict(super().read(names))
        if POWER_MEMORY in names:
            found[POWER_MEMORY] = 30.0 + 0.001 * self.clock.now_s()
        return found


def test_a_window_carries_it_where_the_card_has_it() -> None:
    card = WithMemory(VirtualClock(), lambda _: 300.0)
    assert measure(watch(card), WindowRules(least_s=3.0)).memory_power_w == pytest.approx(
        30, abs=0.01
    )
    # A mean over a second in a window of a second is of what was before.
    short = WindowRules(least_s=1.0, most_s=1.0)
    assert measure(watch(WithMemory(VirtualClock(), lambda _: 300.0)), short).memory_power_w is None
    assert measure(watch(source()), WindowRules()).memory_power_w is None


def test_no_readings_have_no_mean() -> None:
    assert mean_estimate([]) is rate_estimate([]) is rate_estimate([(1.0, 5.0)]) is None


@given(st.floats(0.5, 500), st.integers(2, 400))
def test_steady_steps_give_their_rate_exactly(rate: float, steps: int) -> None:
    """Counting from change to change has no error from the window's edges."""
    estimate = rate_estimate([(0.37 + step / rate, float(step)) for step in range(steps)])
    assert estimate is not None
    assert math.isclose(estimate.mean, rate, rel_tol=1e-9)
    assert estimate.stderr is None or estimate.stderr < 1e-6 * rate


@given(st.lists(st.floats(0.1, 1e4), min_size=2, max_size=200))
def test_mean_is_between_the_extremes_and_its_error_is_positive(values: list[float]) -> None:
    estimate = mean_estimate([(0.05 * i, value) for i, value in enumerate(values)])
    assert estimate is not None
    assert min(values) * (1 - 1e-9) <= estimate.mean <= max(values) * (1 + 1e-9)
    assert estimate.stderr is None or estimate.stderr >= 0


def test_readings_that_repeat_do_not_make_the_mean_look_exact() -> None:
    once = [(float(i), 100.0 + 10 * (i % 2)) for i in range(10)]
    often = [(i + j / 10, value) for i, value in once for j in range(10)]
    single, repeated = (mean_estimate(readings) for readings in (once, often))
    assert (some(repeated).stderr or 0) > 0.7 * (some(single).stderr or 1)


def test_a_rate_that_changes_has_a_large_error() -> None:
    events = [(0.1 * i, float(i)) for i in range(20)]
    events += [(1.9 + 0.2 * i, 19.0 + i) for i in range(1, 20)]
    assert (some(rate_estimate(events)).relative or 0) > 0.05


def beside(job: float, together: float, probe: float, **known: Any) -> dict[str, float]:
    """Kernels by rates that are known within 1 %, of a probe of 9,684 kernels/s."""
    rates = [MeanEstimate(rate, rate / 100) for rate in (job, together, 9684.0, probe)]
    return kernels_beside(*rates, **known)


@pytest.mark.parametrize(
    ("rates", "known", "kernels", "hold_s"),
    [
        ((607.6, 587.1, 586.3), {"busy_percent": 100}, (0.99, 1.01), 1.6e-3),  # matmul-bf16
        ((1352, 437, 7890), {"busy_percent": 76}, (18.0, 18.1), 23.5e-6),  # bert-train
        ((830, 830, 8664), {"busy_percent": 48}, (0, 10.5), None),  # a server that meets its demand
        ((71.1, 64.5, 8499), {"pauses": True}, (10, 18), None),  # a notebook
        ((71.1, 64.5, 8499), {"pauses": None}, (10, 132), None),  # in bursts, of whatever kind
        ((35.7, 36.0, 9000), {"pauses": True}, (0, 251), None),  # nothing lost: anything below
    ],
)
def test_kernels_of_a_unit_by_the_rates_of_a_probe(
    rates: tuple[float, float, float],
    known: dict[str, Any],
    kernels: tuple[float, float],
    hold_s: float | None,
) -> None:
    told = beside(*rates, **known)
    n, stderr = told["kernels_per_unit"], told["kernels_per_unit_stderr"]
    assert kernels[0] <= n <= kernels[1]
    assert stderr > n / 100
    if hold_s:
        assert told["kernel_hold_s"] == pytest.approx(hold_s, rel=0.01)
    # Together the kernels of a unit hold the GPU for what the probe lost, whatever their number.
    assert n * told["kernel_hold_s"] * rates[1] == pytest.approx(1 - rates[2] / 9684)


COUNTERS = Counters(
    sm_active_percent=48,
    sm_occupancy_percent=20,
    fp32_active_percent=5,
    dram_active_percent=30,
    pcie_tx_mib_per_s=1,
    pcie_rx_mib_per_s=1,
)


WINDOW = MeasuredWindow(
    started_at="2026-11-21T00:00:00.000000Z",
    window_s=2.0,
    settle_s=1.5,
    settled=True,
    rates=(MeanEstimate(100, 0.5),),
    latencies=((None, None),),
    power=MeanEstimate(300, 1.0),
    counter_power_w=303.0,
    counters=COUNTERS,
    sm_clock_mhz=1980.0,
    memory_clock_mhz=3201.0,
    temperature_c=50.0,
    power_limit_w=700.0,
    throttle_reasons=(),
)


JOB = Job(name="x", command=("x",))


OTHER = Job(name="other", command=("y",))


def taken(target: Target, *measured: dict[str, Any]) -> WindowResult:
    """A window of the target, with what was measured of each of its jobs."""
    usual = {"units": 66, "rate": 100, "rate_stderr": 0.5, "memory_used_mib": 500}
    usual |= {"cpu_percent": 100, "latency_p50_ms": 4.0, "latency_p99_ms": 9.0}
    parts = zip(target.specs, measured or [{}], strict=True)
    return WindowResult(
        target=target,
        parts=tuple(spec.part(**(usual | own)) for spec, own in parts),
        reported=(NOTHING,) * len(target.specs),
        window=WINDOW,
        cpu_steal_percent=0.1,
        held={},
    )


TAKEN = taken(solo(JOB, Share(50)))


SIDES = (
    {"units": 38, "rate": 7, "rate_stderr": 0.01, "cpu_percent": 80},
    {"units": 92, "cpu_percent": 3},
)


PAIR = taken(pair(JOB, Share(70), OTHER, Share(30), repeat=2), *SIDES)


CONDITIONS = RunConditions(
    gpu=GPU,
    rules=WindowRules(),
    run="r",
    mode="mps",
    source="scripted",
    host="h",
    idle_power_w=77.0,
)


def changed(**window: object) -> WindowResult:
    return dataclasses.replace(TAKEN, window=dataclasses.replace(WINDOW, **window))


def served(stderr: float, rate: float = 100.0) -> WindowResult:
    """A server of 100 requests a second, in a window of 5 s."""
    server = dataclasses.replace(JOB, offered_rate=100.0)
    return dataclasses.replace(
        taken(solo(server, Share(50)), {"rate": rate, "rate_stderr": stderr}),
        window=dataclasses.replace(WINDOW, window_s=5.0),
    )


def pulsing(counter_power_w: float) -> WindowResult:
    return changed(power=MeanEstimate(300, 15.0), counter_power_w=counter_power_w)


@pytest.mark.parametrize(
    ("result", "flags"),
    [
        (TAKEN, ()),
        (PAIR, ()),
        (taken(TAKEN.target, {"rate_stderr": 2.0}), ("noisy-rate",)),
        (taken(TAKEN.target, {"rate_stderr": None}), ("noisy-rate",)),
        (changed(power=MeanEstimate(300, 4.0)), ("noisy-power",)),
        (changed(settled=False), ("not-settled",)),
        (changed(throttle_reasons=("sw-power-cap",)), ("throttled",)),
        (changed(throttle_reasons=("power-cap",)), ("throttled",)),
        # Heat is told from the power limit, beside it and without it.
        *(
            (changed(throttle_reasons=(*limit, reason)), ("throttled", HEAT))
            for reason in ("sw-thermal", "hw-slowdown", "hw-power-brake", "memory-thermal")
            for limit in ((), ("sw-power-cap",))
        ),
        (changed(counter_power_w=320.0), ("counter-mismatch",)),
        # A counter may meet other pulses than the readings.
        (pulsing(340.0), ("noisy-power",)),
        (pulsing(350.0), ("noisy-power", "counter-mismatch")),
        (
            changed(counters=dataclasses.replace(COUNTERS, dram_active_percent=None)),
            ("counters-missing",),
        ),
        (changed(counters=dataclasses.replace(COUNTERS, sm_active_percent=20.0)), ("cpu-bound",)),
        # The busy core of either job leaves the granted SMs idle.
        (taken(PAIR.target, SIDES[0] | {"cpu_percent": 95}, SIDES[1]), ("cpu-bound",)),
        (dataclasses.replace(TAKEN, cpu_steal_percent=3.0), ("cpu-steal",)),
        # Of 100 requests a second in 5 s: 4.5 % either way, half as much more allowed.
        (served(6.0), ()),
        (served(8.0), ("noisy-rate",)),
        (served(1.0, rate=114.0), ("backlog",)),
        (changed(drains=True), ("backlog",)),
    ],
)
def test_each_fault_has_its_flag(result: WindowResult, flags: tuple[str, ...]) -> None:
    assert result.flags(CONDITIONS) == flags
    assert set(flags) <= FLAGS.keys()


def test_point_carries_what_was_read_back() -> None:
    """A point has the granted units, not only the share asked for, and None for no reading."""
    point = changed(counter_power_w=None, throttle_reasons=None).point(CONDITIONS)
    assert isinstance(point, SoloPoint)
    assert (point.share_percent, point.units_granted, point.units_total) == (50, 66, 132)
    assert (point.counter_power_w, point.throttled, point.input_fingerprint) == (None, None, None)
    assert (point.memory_used_mib, point.job_hash) == (500, JOB.job_hash)


@pytest.mark.slow
def test_point_of_a_job_that_tells_its_data_has_their_fingerprint() -> None:
    declared = InputData(dtype="bf16", data="zeros")
    telling = with_fingerprint(dataclasses.replace(JOB, input=declared))
    point = taken(solo(telling, Share(50))).point(CONDITIONS)
    assert isinstance(point, SoloPoint)
    found = json.loads(point.input_fingerprint or "")
    assert (found["dtype"], found["features"]["zero_products"]) == ("bf16", 1.0)


def test_pair_point_keeps_its_two_jobs_apart() -> None:
    """With its hash, units, rate, demand and latencies each."""
    server = dataclasses.replace(JOB, offered_rate=120.0)
    sides = (SIDES[0], SIDES[1] | {"latency_p50_ms": None, "latency_p99_ms": None})
    result = taken(pair(server, Share(70), OTHER, Share(30), repeat=2), *reversed(sides))
    point = result.point(CONDITIONS)
    assert isinstance(point, PairPoint)
    assert [
        (p.job, p.job_hash, p.share_percent, p.units, p.rate, p.offered_rate, p.latency_p99_ms)
        for p in point.parts
    ] == [
        ("other", OTHER.job_hash, 30, 92, 100, None, None),
        ("x", server.job_hash, 70, 38, 7, 120, 9),
    ]
    assert (point.power_w, point.repeat, point.flags, point.mode) == (300, 2, (), "mps")


@pytest.mark.parametrize(
    ("mode", "shares", "expected"),
    [
        ("mps", (100, 100), "uncapped"),
        ("mps", (70, 70), "mps"),
        ("mps", (100, 90), "mps"),
        ("cu_mask", (50, 50), "cu_mask"),
        ("uncapped", (100, 100), "time-sliced"),
    ],
)
def test_pair_says_how_the_gpu_was_shared(
    mode: str, shares: tuple[float, float], expected: str
) -> None:
    """Without limits under MPS and without MPS are two different things."""
    target = pair(JOB, Share(shares[0]), OTHER, Share(shares[1]))
    point = taken(target, {}, {}).point(dataclasses.replace(CONDITIONS, mode=mode))
    assert isinstance(point, PairPoint)
    assert point.mode == expected


def test_failed_pair_leaves_a_mark_that_every_store_can_keep() -> None:
    """Its reason is one line, without the colours that a job's output may have."""
    error = "a job ended:\n\x1b[31mout of memory\x1b[0m\n" + 600 * "x"
    point = PAIR.target.failed(CONDITIONS, WINDOW.started_at, error)
    assert ([part.rate for part in point.parts], point.flags) == ([None, None], ("failed",))
    assert point.error is not None
    assert point.error.startswith("a job ended: [31mout of memory")
    assert point.error.isprintable()
    assert from_row(PairPoint, to_row(point)) == point


def test_job_beside_itself_is_one_pair_however_it_is_written() -> None:
    """10/90 and 90/10 are the same measurement, and alike twins are two processes."""
    assert pair(JOB, Share(90), JOB, Share(10)) == pair(JOB, Share(10), JOB, Share(90))
    first, second = pair(JOB, Share(50), JOB, Share(50)).specs
    assert (first.copy, second.copy) == (0, 1)
    assert first != second


def test_flags_page_lists_every_flag() -> None:
    page = (Path(__file__).parents[4] / "docs/flags.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{flag}` | {meaning} |" for flag, meaning in FLAGS.items()]
