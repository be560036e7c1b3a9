"""Energy for the same work of a launched pair: together, after one job has ended, to the end."""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, strategies as st
from made_up_results import pair_result

from advisor.core.gpu import EQUAL, UNCAPPED, Split
from advisor.core.job import Job
from advisor.core.objectives import Interval, Rest, Work
from advisor.core.records import MARGIN, is_far
from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, Readings, TelemetrySource
from advisor.errors import SourceError
from advisor.launch.account import Account, JobMonitor, energy_saved
from advisor.launch.meter import CardMeter, Metered, Moment, RateMeter
from advisor.launch.set_monitor import work_per_joule
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor.runtime.running_job import RunningJob

A, B = Job(name="a", command=("a",)), Job(name="b", command=("b",))


_RATES = st.floats(0.05, 1.0)


_POWERS = st.floats(90, 700)


def pair(
    split: Split = EQUAL, solo_power_a_w: float | None = 150, solo_power_b_w: float | None = 600
) -> LaunchSet:
    parts = (
        LaunchPart(job=job, solo_rate=1, solo_power_w=power_w, idle_power_w=70)
        for job, power_w in zip((A, B), (solo_power_a_w, solo_power_b_w), strict=True)
    )
    return LaunchSet(split=split, parts=tuple(parts))


class Run:
    def __init__(self, of: LaunchSet, *, metered: bool = True, counts: bool = True) -> None:
        self.now_s, self.total_j, self.metered = 0.0, 0.0, metered
        self.counts, self.power_w, self.silent = counts, 0.0, False
        self._steps = {A.name: 0.0, B.name: 0.0}
        self.jobs = (self._watched(A), self._watched(B))
        self._meter = CardMeter(cast("TelemetrySource", self))
        self.account = Account(of, self.jobs, self._metered(), Moment(0.0))

    def read(self, names: Collection[str]) -> Readings:
        if self.silent or not self.metered:
            raise SourceError("nothing answers")
        told = {ENERGY_GPU: self.total_j if self.counts else None, POWER_GPU: self.power_w}
        return {name: told[name] for name in names}

    def go_on(self, seconds: float, speed_a: float, speed_b: float, power_w: float) -> None:
        for _ in range(10):
            running = [one for one in self.jobs if not one.over]
            self.now_s += seconds / 10
            self.power_w = power_w
            self.total_j += power_w * seconds / 10
            for one, job, speed in zip(self.jobs, (A, B), (speed_a, speed_b), strict=True):
                self._steps[job.name] += speed * seconds / 10
                if not one.over:
                    one.look(Moment(self.now_s), one.count(lambda: self.now_s), None)
            self.account.add(Moment(self.now_s), self._metered(), running)

    def _metered(self) -> Metered | None:
        return self._meter.add(self._meter.read(), Moment(self.now_s))

    def _watched(self, job: Job) -> JobMonitor:
        def count(*, last: bool) -> float:
            return self._steps[job.name] + 0 * last

        running = SimpleNamespace(
            job=job, count=count, exit_code=None, latencies=tuple,
            proof=lambda: "set",
            granted=SimpleNamespace(units=66),
            beats=lambda: 0, uncounted=None,
        )  # fmt: skip
        return JobMonitor(cast("RunningJob", running), LaunchPart(job=job, solo_rate=1.0), 0.0)


@given(_RATES, _RATES, _POWERS, _RATES, _POWERS, st.floats(10, 1000), st.floats(10, 1000))
def test_it_is_what_the_arithmetic_of_two_jobs_to_their_end_says(
    speed_a: float, speed_b: float, power_w: float, rest: float, rest_w: float, first_s: float,
    rest_s: float,
) -> None:  # fmt: skip
    """advisor.core.objectives predicts the numbers that the watch then adds up."""
    run = Run(pair())
    run.go_on(first_s, speed_a, speed_b, power_w)
    run.jobs[0].end("finished")
    run.go_on(rest_s, 0, rest, rest_w)
    result = pair_result(
        rate_a=speed_a, rate_b=speed_b, solo_rate_a=1, solo_rate_b=1, solo_power_a_w=150,
        solo_power_b_w=600, power_w=power_w,
    )  # fmt: skip
    work = Work((speed_a * first_s, speed_b * first_s + rest * rest_s))
    whole = result.finish(work, (Rest(1, 1), Rest(rest, rest_w)))
    saved = 1 - whole.energy_j / result.sequential(work).energy_j
    assert run.account.first.overlap_s + run.account.rest_s == pytest.approx(whole.time_s)
    assert run.account.energy_saved_to_end() == pytest.approx(saved, abs=1e-6)
    apart, ledger = result.sequential(work), run.account.ledger()
    assert ledger is not None
    assert (ledger.held_s, ledger.energy_j) == (
        pytest.approx(whole.time_s), pytest.approx(whole.energy_j)
    )  # fmt: skip
    assert (ledger.alone_s, ledger.alone_j) == (
        pytest.approx(apart.time_s), pytest.approx(apart.energy_j)
    )  # fmt: skip
    # One card was free while both ran, and none afterwards.
    assert ledger.freed_idle_j == pytest.approx(70 * first_s)


def test_what_is_not_known_is_none() -> None:
    for run in (Run(pair(), metered=False), Run(pair(solo_power_b_w=None))):
        run.go_on(20, 0.5, 0.5, 400)
        run.jobs[1].end("finished")
        run.go_on(20, 0.5, 0, 200)
        found = run.account
        assert (found.recent_energy_saved(), found.rest_energy_saved()) == (None, None)
        assert (found.energy_saved_to_end(), found.ledger()) == (None, None)
        assert found.rest_s == pytest.approx(20)


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("silent", [(20, 40), (0, 20), (40, 60)])
def test_energy_that_was_missed_is_not_saved(*, counts: bool, silent: tuple[int, int]) -> None:
    """A third of the time nothing answers; together they draw what they draw apart."""
    run = Run(pair(), counts=counts)
    for begin_s in range(0, 60, 5):
        run.silent = silent[0] <= begin_s < silent[1]
        run.go_on(5, 0.5, 0.5, 375)
    found, ledger = run.account, run.account.ledger()
    # A counter that answers again has gone on meanwhile.
    bridged = counts and silent[1] < 60
    assert ledger is not None
    assert ledger.alone_j - ledger.energy_j == pytest.approx(0, abs=200)
    assert ledger.unread_s == pytest.approx(0 if bridged else 20, abs=0.6)
    assert (ledger.held_s, ledger.alone_s) == (pytest.approx(60), pytest.approx(60))
    assert ledger.freed_idle_j == pytest.approx(70 * (60 - ledger.unread_s))
    # While it is silent nothing is said of now, and nothing of all of it unless that is known.
    assert found.power_w() == (None if run.silent else pytest.approx(375))
    assert found.first.power_w() == pytest.approx(375)
    assert found.first.energy_j == (pytest.approx(60 * 375) if bridged else None)
    assert found.energy_saved_to_end() == (pytest.approx(0, abs=1e-6) if bridged else None)


def test_nothing_is_stranded_without_limits() -> None:
    run = Run(pair(UNCAPPED))
    run.go_on(10, 0.5, 0.5, 300)
    run.jobs[0].end("finished")
    run.go_on(10, 0, 1, 600)
    assert (run.account.stranded_unit_s, run.account.rest_energy_saved()) == (0, pytest.approx(0))
    assert run.account.recent_energy_saved() == pytest.approx(0)


@pytest.mark.parametrize(
    ("energy", "work", "saved"),
    [
        (300.0, (0.5, 0.5), pytest.approx(0.2)),
        (100.0, (0.0, 0.0), None),
        (None, (1.0, 1.0), None),
        (100.0, (None, 1.0), None),
    ],
)
def test_energy_is_saved_where_work_was_done_and_all_is_known(
    energy: float | None, work: tuple[float | None, ...], saved: float | None
) -> None:
    assert energy_saved(energy, work, pair().parts) == saved


RATES = st.floats(0.01, 1e6)


STEPS_S = st.floats(0.05, 2)


class Sensor:
    def __init__(self) -> None:
        self.power: float | None = None
        self.counter: float | None = None
        self.fails = False

    def read(self, names: Collection[str]) -> Readings:
        if self.fails:
            raise SourceError("the GPU fell off the bus")
        known = {POWER_GPU: self.power, ENERGY_GPU: self.counter}
        return {name: known[name] for name in names}

    @property
    def energy(self) -> Callable[[float], Metered | None]:
        meter = CardMeter(cast("TelemetrySource", self))
        return lambda now_s: meter.add(meter.read(), Moment(now_s))


@given(RATES, st.lists(STEPS_S, min_size=2, max_size=60), st.sampled_from([None, 5.0]))
def test_steady_growth_is_its_rate(
    rate: float, steps_s: list[float], window_s: float | None
) -> None:
    meter, now_s = RateMeter(window_s), 0.0
    for step_s in [0.0, *steps_s]:
        now_s += step_s
        meter.add(Moment(now_s), rate * now_s)
    assert meter.rate() == pytest.approx(rate)
    assert meter.span_s <= now_s


SELDOM = [(now_s, 60 * (now_s // 30)) for now_s in range(100)]
TEN = [(now_s, now_s) for now_s in range(11)]
HALF_WRITTEN = [(0, 0), (1, 255), (2, 0), (3, 768)]


@pytest.mark.parametrize(
    ("window_s", "readings", "rate"),
    [
        # It reports once in half a minute.
        (5.0, SELDOM, 2.0),
        (5.0, [*SELDOM, *((now_s, 180) for now_s in range(100, 400))], 60 / 339),
        # A standstill that is longer than the move counts.
        (None, [*TEN, (20, 10)], 1.0),
        (None, [*TEN, (21, 10)], 10 / 21),
        (None, [*TEN, (40, 10)], 0.25),
        # One count that went back was read half written; one that stays back began again.
        (None, HALF_WRITTEN, 256.0),
        (None, [*HALF_WRITTEN, (4, 10), (5, 20), (6, 30)], 10.0),
        (None, [(0, 0)], None),
    ],
)
def test_a_rate_is_of_the_time_in_which_the_count_moved(
    window_s: float | None, readings: list[tuple[float, float]], rate: float | None
) -> None:
    meter = RateMeter(window_s)
    for now_s, total in readings:
        meter.add(Moment(now_s), total)
    assert meter.rate() == (rate and pytest.approx(rate))


@given(st.lists(st.floats(0, 1000), min_size=1), st.floats(0, 1e9))
def test_counter_adds_up_from_wherever_it_stood(grown_j: list[float], first_j: float) -> None:
    sensor = Sensor()
    energy, sensor.counter = sensor.energy, first_j
    assert energy(0) == Metered(0, 0, 0)
    for number, more_j in enumerate(grown_j, 1):
        sensor.counter += more_j
        energy(number)
    found = energy(len(grown_j))
    assert found is not None
    assert found.joules == pytest.approx(sensor.counter - first_j, abs=1e-3)
    assert found.seconds == len(grown_j)


def test_source_that_fails_for_a_while_is_bridged() -> None:
    """The counter went on; what was drawn until a reset of the driver is not known."""
    sensor = Sensor()
    energy = sensor.energy
    assert energy(0) is None
    sensor.power = 999
    for now_s, counter_j, fails, expected in (
        (1, 100, False, (0, 0)), (2, 150, False, (50, 1)), (40, 170, True, (50, 1)),
        (80, None, False, (50, 1)), (99, 190, False, (90, 98)), (100, 5, False, (90, 98)),
        (101, 15, False, (100, 99)),
    ):  # fmt: skip
        sensor.counter, sensor.fails = counter_j, fails
        found = energy(now_s)
        assert found is not None
        assert (found.joules, found.seconds) == expected


@given(st.floats(0, 0.1), st.floats(0, 0.1), st.floats(0.5, 1000), st.floats(0, 1000))
def test_energy_of_all_is_known_to_a_hundredth_or_not_told(
    begun_s: float, ended_s: float, seconds: float, power_w: float
) -> None:
    first = Metered(50, 5, 10, begun_s)
    last = Metered(50 + power_w * seconds, 5 + seconds, 10 + seconds, ended_s)
    told_j, off_s = last.since(first).whole_j(seconds), begun_s + ended_s
    if told_j is None:
        assert off_s > 0.0099 * seconds
    else:
        assert told_j == pytest.approx(power_w * seconds)
        assert off_s <= 0.0101 * seconds


@given(RATES, st.lists(st.tuples(STEPS_S, st.floats(0, 1), st.floats(-1, 1)), min_size=1))
def test_no_rate_is_further_off_than_what_is_known_of_its_moments(
    rate: float, looks: list[tuple[float, float, float]]
) -> None:
    meter, now_s = RateMeter(), 0.0
    for step_s, slack_s, off in looks:
        now_s += 2 + step_s
        meter.add(Moment(now_s, slack_s), rate * (now_s + off * slack_s))
    found = meter.rate()
    assert found is None or found == pytest.approx(rate, rel=0.0301)


def test_rate_does_not_fall_while_nobody_knows_when_it_is_read() -> None:
    meter = RateMeter()
    for now_s, slack_s in ((0.0, 0.0), (0.5, 0.01), (1.0, 0.3), (1.5, 0.3), (11.0, 0.3)):
        meter.add(Moment(now_s, slack_s), 100 * now_s)
        assert meter.rate() == (pytest.approx(100) if now_s else None)
    assert meter.span_s == 11


@given(st.floats(0.1, 1e6), st.floats(0.01, 3))
def test_far_is_outside_of_the_interval_and_of_the_margin(value: float, factor: float) -> None:
    """A narrow interval makes no alarm of a good prediction, and a wide one none of a poor one."""
    narrow, wide = Interval(value, value, value), Interval(value, 0, 10 * value)
    assert not is_far(value * factor, wide)
    if abs(factor - 1) > MARGIN + 1e-6:
        assert is_far(value * factor, narrow)
    if abs(factor - 1) < MARGIN - 1e-6:
        assert not is_far(value * factor, narrow)


@pytest.mark.parametrize(
    ("speeds", "power_w", "expected"),
    [
        ([0.5, 0.7], 600, pytest.approx(0.002)),
        ([0.5, None], 600, None),
        ([0.5, 0.7], None, None),
        ([0.5, 0.7], 0, None),
    ],
)
def test_work_per_joule_needs_everything(
    speeds: list[float | None], power_w: float | None, expected: float | None
) -> None:
    assert work_per_joule(speeds, power_w) == expected
