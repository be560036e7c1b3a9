"""One measured window: wait until power and rate are flat, then read until both are known.

Power is the mean of instant readings. The energy counter is the cross-check: it moves in ticks
of about 0.1 s, so the window begins and ends at a tick. (Windows that ignore the ticks are wrong
by up to one tick at each end: 3 % at 2 s.)

A window becomes a point, with a flag for everything that was wrong with it. Time is live or
replayed, so that a replay takes seconds and its arithmetic stays the same.
"""

import itertools
import math
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import advisor
from advisor.core.gpu import Gpu, Share
from advisor.core.job import Job, Reported, Verdict, verdict_flags
from advisor.core.records import (
    BACKLOG,
    CORE_PERCENT,
    COUNTER_BOUND,
    GPUS_ALIKE,
    GPUS_DIFFER,
    HEAT,
    IDLE_PERCENT,
    RESULTS_ONLY as RESULTS_ONLY_FLAG,
    Counters,
    PairPoint,
    Point,
    PointPart,
    SoloPoint,
    is_catching_up,
)
from advisor.core.telemetry import (
    CLOCK_MEMORY,
    CLOCK_SM,
    COUNTERS,
    ENERGY_GPU,
    POWER_CAPS,
    POWER_GPU,
    POWER_LIMIT,
    POWER_MEMORY,
    POWER_SPREAD,
    TEMPERATURE_GPU,
    Channel,
    Readings,
    TelemetrySource,
    counters_of,
)
from advisor.errors import InputError
from advisor.formats.moments import to_exact_text
from advisor.launch.meter import timed
from advisor.predict.kernels import MeanEstimate
from advisor.runtime.counting import percentile_ms
from advisor.validity.sensor_record import PowerTiming


class Clock:
    """The clock of this host."""

    def now_s(self) -> float:
        """Seconds since a fixed moment; goes on evenly when the date of the host is set."""
        return time.perf_counter()

    def sleep(self, duration_s: float) -> None:
        """Wait at least so long, until the host gives the core back."""
        time.sleep(duration_s)

    def utc(self) -> str:
        """Date and time of the host: ISO 8601 with microseconds, UTC."""
        return to_exact_text(datetime.now(UTC))


class VirtualClock(Clock):
    """A clock that moves only when something sleeps; `utc` counts on from when it was made."""

    def __init__(self) -> None:
        self._start, self._now_s = datetime.now(UTC), 0.0

    def now_s(self) -> float:
        """The sum of all sleeps."""
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        """Return at once, with the clock moved on."""
        self._now_s += duration_s

    def utc(self) -> str:
        """When it was made, and the sum of all sleeps."""
        return to_exact_text(self._start + timedelta(seconds=self._now_s))


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of a measurement, and the line that says it.

    Attributes:
        done: Runs, points, counts of SMs, or cases and their references.
        total: None while it is not known, as of runs whose length is searched; so is the time.
    """

    what: str
    done: int
    total: int | None = None
    eta_s: float | None = None

    def __str__(self) -> str:
        if self.total is None or self.eta_s is None:
            return f"{self.what}: run {self.done}"
        minutes, seconds = divmod(int(self.eta_s), 60)
        return f"{self.done}/{self.total}  {self.what}  eta {minutes}:{seconds:02}"


_BATCHES = 10


# (time_s, value) each.
_Readings = Sequence[tuple[float, float]]


def mean_estimate(samples: Sequence[tuple[float, float]]) -> MeanEstimate | None:
    """Mean of (time_s, value) readings; the error comes from the means of ten time batches.

    Neighbouring readings repeat or resemble each other, so their plain standard error would be
    too small; batches longer than that memory are independent (batch means, Law and Kelton,
    Simulation Modeling and Analysis, section 9.5).
    """
    if not samples:
        return None
    start_s, end_s = samples[0][0], samples[-1][0]
    batches: list[list[float]] = [[] for _ in range(_BATCHES)]
    for time_s, value in samples:
        part = (time_s - start_s) / (end_s - start_s) if end_s > start_s else 0.0
        batches[min(_BATCHES - 1, int(part * _BATCHES))].append(value)
    means = [statistics.fmean(batch) for batch in batches if batch]
    stderr = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else None
    return MeanEstimate(statistics.fmean(value for _, value in samples), stderr)


def rate_estimate(events: Sequence[tuple[float, float]]) -> MeanEstimate | None:
    """Progress per second from (time_s, total progress) at the moments when the total changed.

    Counting from change to change leaves no error from where a window begins or ends inside a
    step. Few steps: the error comes from the single steps; many: from ten groups of them. Steps
    take different times, above all those of a server whose requests come at random, so it is the
    error of a ratio of sums (Cochran, Sampling Techniques, chapter 6), not of a mean of rates: one
    short step would count for more than all others there.
    """
    if len(events) < 2 or events[-1][0] <= events[0][0]:
        return None
    rate = (events[-1][1] - events[0][1]) / (events[-1][0] - events[0][0])
    marks = events[:: max(1, (len(events) - 1) // _BATCHES)]
    groups, span_s = len(marks) - 1, marks[-1][0] - marks[0][0]
    if groups < 2 or span_s <= 0:
        return MeanEstimate(rate, None)
    beyond = [c1 - c0 - rate * (t1 - t0) for (t0, c0), (t1, c1) in itertools.pairwise(marks)]
    error = math.sqrt(groups / (groups - 1) * sum(b * b for b in beyond)) / span_s
    return MeanEstimate(rate, error)


def _is_flat(
    power: _Readings, of_jobs: Sequence[_Readings], view: tuple[float, float], flat: float
) -> bool:
    """Whether power and every rate are alike in both halves of a view.

    Args:
        power: Watts.
        of_jobs: Of each job its total progress whenever that changed, since before the view.
        view: When it begins and ends, s.
        flat: Largest relative difference of the halves.
    """
    middle_s = sum(view) / 2
    halves = ((view[0], middle_s), (middle_s, view[1]))
    old_power, new_power = (mean_estimate(_between(power, *half)) for half in halves)
    return _alike(old_power, new_power, flat) and all(
        _steady(events, halves, flat) for events in of_jobs
    )


def _steady(all_events: _Readings, halves: Sequence[tuple[float, float]], flat: float) -> bool:
    events = [_between(all_events, *half) for half in halves]
    if min(map(len, events)) < 3:
        # Too few steps in the view to see the rate move: any progress at all will do.
        return len(all_events) > 1
    old_rate, new_rate = map(rate_estimate, events)
    return _alike(old_rate, new_rate, flat)


def _alike(first: MeanEstimate | None, second: MeanEstimate | None, flat: float) -> bool:
    if first is None or second is None:
        return first is second
    noise = 2 * ((first.stderr or 0) ** 2 + (second.stderr or 0) ** 2) ** 0.5
    return abs(second.mean - first.mean) <= max(flat * abs(second.mean), noise)


def _between(readings: _Readings, start_s: float, end_s: float) -> list[tuple[float, float]]:
    return [reading for reading in readings if start_s <= reading[0] < end_s]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRules:
    """When a window begins and ends.

    Attributes:
        least_s: Shortest window.
        most_s: Longest window; it ends then, whatever the error. Only for a job that has made fewer
            than three steps by then it goes on, up to four times as long.
        target: Relative standard error of rate and of power at which a window may end.
        settle_least_s: Shortest time between opening the gate and the window.
        sensor_lag_s: What is shown of power in so long after a change of load is of the time
            before, too, and not looked at; 0 where that is not known of the card.
        settle_most_s: The window begins then even if power or rate still moves; it is flagged.
        drain_most_s: It waits so long for servers to empty their queues; flagged beyond.
        flat: Largest relative difference of the two halves of the settling view.
        idle_s: Time over which idle power is measured.
        poll_s: Time between two looks at the progress.
        results_only: The window is only as long as it takes to read the job's results; it is
            flagged, and its rates are never used.
    """

    least_s: float = 2.0
    most_s: float = 8.0
    target: float = 0.01
    settle_least_s: float = 1.5
    sensor_lag_s: float = 0.0
    settle_most_s: float = 20.0
    drain_most_s: float = 120.0
    flat: float = 0.015
    idle_s: float = 2.0
    poll_s: float = 0.002
    results_only: bool = False


RESULTS_ONLY = WindowRules(
    least_s=1.0,
    most_s=1.0,
    settle_least_s=0.0,
    settle_most_s=0.2,
    drain_most_s=0.0,
    idle_s=0.5,
    results_only=True,
)
"""For what a job reports, not for how fast it is."""


SETS = WindowRules(least_s=4.0, most_s=5.0, settle_least_s=2.0, settle_most_s=3.0)
"""For three jobs and more: 6.5 s a window. A server of 34 requests a second has more than a hundred
of them in its tail, and rates that wait for the host are not flat however long one waits."""


def rules_for(
    window_s: float | None = None,
    timing: PowerTiming | None = None,
    default: WindowRules = WindowRules(),
) -> WindowRules:
    """Rules for windows of at most `window_s`; one below 2 s shortens all other waits with it.

    What is known of the card's sensor says how long power settles, else a wait for all sensors.

    Raises:
        InputError: a window of that length holds too few readings of this sensor.
    """
    window_s = default.most_s if window_s is None else window_s
    rules = WindowRules(
        least_s=min(default.least_s, window_s),
        most_s=window_s,
        settle_least_s=min(default.settle_least_s, window_s),
        settle_most_s=min(default.settle_most_s, 10 * window_s),
        drain_most_s=min(default.drain_most_s, 60 * window_s),
        idle_s=min(default.idle_s, window_s),
    )
    if timing is None:
        return rules
    if rules.most_s < timing.shortest_window_s:
        raise InputError(
            f"a window of {rules.most_s:g} s is too short for the power sensor of this card",
            why="it would hold fewer than eight readings (docs/power.md)",
            fix=f"give --window {timing.shortest_window_s:.1f} or more",
        )
    settle_least_s = timing.shown_s + timing.shortest_window_s
    return replace(
        rules,
        least_s=max(rules.least_s, timing.shortest_window_s),
        settle_least_s=settle_least_s,
        settle_most_s=max(rules.settle_most_s, 2 * settle_least_s),
        sensor_lag_s=timing.shown_s,
        idle_s=max(rules.idle_s, timing.shortest_window_s),
    )


@dataclass(frozen=True, slots=True)
class CounterTick:
    """A change of the energy counter: when it was, as near as it was looked, and its new value."""

    at_s: float
    energy_j: float

    @classmethod
    def next(
        cls,
        source: TelemetrySource,
        now_s: Callable[[], float],
        within_s: float,
        meanwhile: Callable[[], object],
    ) -> "CounterTick | None":
        """The next change that is seen at once; None where none is within that time.

        A reading after a long gap, as on a busy host that stops this process, has no moment.

        Args:
            source: Of the counter.
            now_s: A clock, s.
            within_s: How long it is waited for.
            meanwhile: Called between two looks, and lets some time pass.
        """
        # Within so long of the look before: at both ends 2.5 % of 2 s at most.
        most_s = max(0.05, source.interval_s / 10)  # an exporter answers as slowly as that
        since_s = now_s()
        end_s, stood_j = since_s + within_s, source.read((ENERGY_GPU,))[ENERGY_GPU]
        while stood_j is not None and now_s() < end_s:
            meanwhile()
            looked_s = now_s()
            if (stands_j := source.read((ENERGY_GPU,))[ENERGY_GPU]) is None:
                continue
            if stands_j != stood_j and (read_s := now_s()) - since_s <= most_s:
                return cls((since_s + read_s) / 2, stands_j)
            stood_j, since_s = stands_j, looked_s
        return None


FEWEST_READINGS = 4
"""From so many on, readings that are all the same tell of a sensor that is stuck: a working one
tells milliwatts, and load moves them."""


def memory_power_w(
    readings: Sequence[tuple[float, float | None]],
    channels: Iterable[Channel],
    begun_s: float,
    power_w: float | None,
) -> float | None:
    """Mean of the readings that are of the window alone, W.

    A mean over a second that is read earlier than a second after the beginning is of the time
    before as well. NVML's field 185 in the scope of the memory is such a mean.

    Readings are of a time in s and in W, or None; `power_w` is of the whole GPU over the window.

    Returns:
        None where the window is too short, a reading is missing, zero or not below the power of
        the whole GPU, or the sensor is stuck.
    """
    channel = next((c for c in channels if c.name == POWER_MEMORY), None)
    if channel is None or power_w is None:
        return None
    inside = [watts for at_s, watts in readings if at_s >= begun_s + (channel.window_s or 0.0)]
    watts_inside = [watts for watts in inside if watts is not None and 0 < watts < power_w]
    if len(watts_inside) < max(len(inside), FEWEST_READINGS) or len(set(watts_inside)) == 1:
        return None
    return statistics.fmean(watts_inside)


_STATE_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowInputs:
    """What is measured, by what.

    Attributes:
        counts: For each job that runs, its total progress so far.
        source: Power and counters of the GPU.
        clock: Time, live or replayed.
        latencies: For each job, its histogram of latencies so far.
        offered: For each job, the requests per second that arrive; None: it has no fixed demand.
        check: Called about four times a second; raises when a job is gone.
    """

    counts: Sequence[Callable[[], float]]
    source: TelemetrySource
    clock: Clock
    latencies: Sequence[Callable[[], tuple[int, ...]]] = ()
    offered: Sequence[float | None] = ()
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWindow:
    """What a window showed; readings that were not available are None.

    Attributes:
        rates: Progress per second of each job; None for one that made fewer than two steps.
        latencies: Median and 99th percentile of each job whose latencies were watched, ms; None
            where it answered no request.
        drains: Whether a server still emptied a queue when the window began.
    """

    started_at: str
    window_s: float
    settle_s: float
    settled: bool
    rates: tuple[MeanEstimate | None, ...]
    latencies: tuple[tuple[float | None, float | None], ...]
    power: MeanEstimate | None
    counter_power_w: float | None
    memory_power_w: float | None = None
    power_spread_w: float | None = None
    counters: Counters
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_c: float | None
    power_limit_w: float | None
    throttle_reasons: tuple[str, ...] | None
    drains: bool = False

    @property
    def counter_gap(self) -> float | None:
        """Energy counter against instant power: relative difference."""
        if self.power is None or not self.power.mean or self.counter_power_w is None:
            return None
        return self.counter_power_w / self.power.mean - 1


@dataclass(slots=True)
class _Steps:
    """Progress of one job: (time_s, total) whenever the total changed."""

    count: Callable[[], float]
    step_s: float | None = None
    events: list[tuple[float, float]] = field(default_factory=list)


class _Log:
    """Readings since it was begun: (time_s, value) of power and of all else that is read."""

    def __init__(self, watch: "WindowInputs") -> None:
        self.begun_s = watch.clock.now_s()
        self.steps = [_Steps(count) for count in watch.counts]
        self.power, self.states = list[tuple[float, float]](), list[tuple[float, Readings]]()
        self.reasons = list[tuple[str, ...] | None]()
        self.next_power_s = self.next_state_s = self.next_check_s = 0.0


def measure(watch: WindowInputs, rules: WindowRules) -> MeasuredWindow:
    """Measure the running jobs, one or several."""
    settle_s, settled, drains = _settle(watch, rules)
    started_at = watch.clock.utc()
    within_s = max(0.5, 2.5 * watch.source.interval_s)
    next_tick = partial(CounterTick.next, watch.source, watch.clock.now_s, within_s)
    before = next_tick(lambda: watch.clock.sleep(0.001))
    watch.source.start_window()
    log, answered = _Log(watch), [read() for read in watch.latencies]
    while not _is_steady(log, watch.clock.now_s(), rules):
        _look(log, watch, rules)
    counters = counters_of(watch.source.read(COUNTERS))
    after, counter_power_w = next_tick(lambda: _look(log, watch, rules)), None
    if before is not None and after is not None and after.at_s > before.at_s:
        counter_power_w = (after.energy_j - before.energy_j) / (after.at_s - before.at_s)
    states, power = [read for _, read in log.states], mean_estimate(log.power)
    memory_power = [(at_s, read[POWER_MEMORY]) for at_s, read in log.states]
    histograms = [(then, read()) for then, read in zip(answered, watch.latencies, strict=True)]
    return MeasuredWindow(
        started_at=started_at,
        window_s=watch.clock.now_s() - log.begun_s,
        settle_s=settle_s,
        settled=settled,
        rates=tuple(rate_estimate(steps.events) for steps in log.steps),
        latencies=tuple(
            (percentile_ms(*both, 50), percentile_ms(*both, 99)) for both in histograms
        ),
        power=power,
        counter_power_w=counter_power_w,
        memory_power_w=memory_power_w(
            memory_power, watch.source.channels, log.begun_s, power and power.mean
        ),
        power_spread_w=_mean([s[POWER_SPREAD] for s in states]),
        counters=counters,
        sm_clock_mhz=_mean([s[CLOCK_SM] for s in states]),
        memory_clock_mhz=_mean([s[CLOCK_MEMORY] for s in states]),
        temperature_c=states[-1][TEMPERATURE_GPU],
        power_limit_w=states[-1][POWER_LIMIT],
        throttle_reasons=all_reasons(log.reasons),
        drains=drains,
    )


def all_reasons(each: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Throttle reasons of several readings or GPUs together; None where none was read."""
    read = [names for names in each if names is not None]
    return tuple(sorted({name for names in read for name in names})) if read else None


def measure_idle(source: TelemetrySource, clock: Clock, rules: WindowRules) -> float | None:
    """Mean power while nothing works, W: without any job, or with all of them at their gates."""
    watch = WindowInputs(counts=(), source=source, clock=clock)
    clock.sleep(rules.sensor_lag_s)
    log = _Log(watch)
    while clock.now_s() - log.begun_s < rules.idle_s:
        _look(log, watch, rules)
    estimate = mean_estimate(log.power)
    return estimate.mean if estimate else None


def _look(log: _Log, watch: WindowInputs, rules: WindowRules) -> None:
    """Take what is due, then sleep until the next look."""
    totals, now = timed(lambda: [steps.count() for steps in log.steps], watch.clock.now_s)
    now_s = now.at_s
    # What cannot be timed is counted at the next look.
    for steps, total in zip(log.steps, totals, strict=True) if now.is_reliable else ():
        if total != steps.step_s:
            # The first look shows a total, not the moment of a change.
            if steps.step_s is not None:
                steps.events.append((now_s, total))
            steps.step_s = total
    if now_s >= log.next_power_s:
        log.next_power_s = now_s + watch.source.interval_s
        if (power_w := watch.source.read((POWER_GPU,))[POWER_GPU]) is not None:
            log.power.append((now_s, power_w))
    if now_s >= log.next_state_s:
        log.next_state_s = now_s + _STATE_INTERVAL_S
        names = CLOCK_SM, CLOCK_MEMORY, TEMPERATURE_GPU, POWER_LIMIT, POWER_MEMORY, POWER_SPREAD
        log.states.append((now_s, watch.source.read(names)))
        log.reasons.append(watch.source.throttle_reasons())
        watch.check()
    watch.clock.sleep(rules.poll_s)


def _settle(watch: WindowInputs, rules: WindowRules) -> tuple[float, bool, bool]:
    """Wait until the two newest halves of the view agree in power and in every rate.

    And until no server empties a queue. Returns how long that took, and whether each still was so.
    """
    log, answers = _Log(watch), list[tuple[float, list[tuple[float, tuple[int, ...]]]]]()
    next_s, view_s = 0.0, rules.settle_least_s - rules.sensor_lag_s
    settled, patience_s = False, 0.0
    while (age_s := watch.clock.now_s() - log.begun_s) < max(rules.settle_most_s, patience_s):
        _look(log, watch, rules)
        if age_s < next_s:
            continue
        begins, end_s = age_s < rules.settle_least_s, watch.clock.now_s()
        next_s = min(age_s + view_s / 4, rules.settle_least_s if begins else math.inf)
        seats = zip(watch.counts, watch.latencies, strict=False)
        answers.append((end_s, [(count(), read()) for count, read in seats]))
        if begins:
            continue
        events = [steps.events for steps in log.steps]
        settled = _is_flat(log.power, events, (end_s - view_s, end_s), rules.flat)
        patience_s = max(
            (
                _patience_s([(at_s, *of_jobs[slot]) for at_s, of_jobs in answers], rate, rules)
                for slot, rate in enumerate(watch.offered)
            ),
            default=0.0,
        )
        if settled and not patience_s:
            break
    return age_s, settled, patience_s > 0


# A server is looked at for so many times its median latency, up to so long: a queue of 20 s that
# falls by 0.2 s a second is no shorter after a second. It is emptied where the median of the newer
# half is below so much of that of the older one, two steps of the histogram.
_LATENCIES, _LONG_VIEW_S, _FALLS = 4.0, 20.0, 0.93


def _patience_s(
    answers: Sequence[tuple[float, float, tuple[int, ...]]],
    offered_rate: float | None,
    rules: WindowRules,
) -> float:
    """How long after the gates opened a window waits at most for a server; 0: it may begin.

    For its queue, above all: it answers more than arrives, or ever earlier, or has just begun. One
    whose answers get later empties none, however long it is waited for. What arrives beyond the
    demand without a queue may be a burst.
    """
    times_s = [at_s for at_s, _, _ in answers]

    def since(span_s: float) -> int:
        return max(0, bisect_right(times_s, times_s[-1] - span_s + 1e-9) - 1)

    def p50_ms(first: int, last: int) -> float | None:
        return percentile_ms(answers[first][2], answers[last][2], 50)

    view_s = rules.settle_least_s - rules.sensor_lag_s
    if (now_ms := p50_ms(since(view_s), -1)) is None:
        return 0.0
    span_s = max(view_s, min(_LATENCIES * now_ms / 1000, _LONG_VIEW_S))
    first = since(span_s)
    span_read_s = times_s[-1] - times_s[first]
    older_ms, newer_ms = p50_ms(first, since(span_read_s / 2)), p50_ms(since(span_read_s / 2), -1)
    if older_ms is None or newer_ms is None:
        return rules.drain_most_s if p50_ms(0, since(span_read_s / 2)) is None else 0.0
    rate = (answers[-1][1] - answers[first][1]) / span_read_s
    if is_catching_up(rate, offered_rate, span_read_s, older_ms):
        return rules.drain_most_s
    if is_catching_up(rate, offered_rate, span_read_s):
        return rules.settle_most_s
    least_ms = _FALLS * older_ms if span_read_s >= 0.9 * span_s else older_ms / _FALLS
    return 0.0 if newer_ms >= least_ms else rules.drain_most_s


def _is_steady(log: _Log, now_s: float, rules: WindowRules) -> bool:
    age_s = now_s - log.begun_s
    if age_s >= rules.most_s:
        # Fewer moments of progress make no rate with an error.
        starving = any(len(steps.events) < 3 for steps in log.steps)
        # Longer for the sake of a job that the others starve.
        return not starving or age_s >= 4 * rules.most_s
    if age_s < max(rules.least_s, log.next_check_s):
        return False
    log.next_check_s = age_s + _STATE_INTERVAL_S
    if log.power and _noisy(mean_estimate(log.power), rules.target):
        return False
    return not any(_noisy(rate_estimate(steps.events), rules.target) for steps in log.steps)


def _mean(values: list[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process that takes part in windows.

    Attributes:
        copy: 1 for the second of several alike, where a job runs next to itself at the same share.
    """

    job: Job
    share: Share
    copy: int = 0

    def __str__(self) -> str:
        return f"{self.job.name} at {self.share} %"

    def part(self, **measured: Any) -> PointPart:
        """A job's part of a window, with what was measured of it."""
        return PointPart(
            job=self.job.name,
            job_hash=self.job.job_hash,
            share_percent=self.share.percent,
            rate_unit=self.job.progress.unit,
            offered_rate=self.job.offered_rate,
            **measured,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """One window: a job alone, or several together, for the `repeat`-th time."""

    specs: tuple[ProcessSpec, ...]
    repeat: int = 0

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of its jobs."""
        return tuple(spec.job.name for spec in self.specs)

    def __str__(self) -> str:
        return " with ".join(map(str, self.specs))

    def failed(self, conditions: "RunConditions", moment: str, error: str) -> PairPoint:
        """The mark that a pair leaves where it could not be measured."""
        return PairPoint(
            parts=tuple(map(ProcessSpec.part, self.specs)),
            mode=pair_mode(conditions.mode, self),
            **_origin(self, conditions),
            window_s=0.0,
            started_at=moment,
            flags=("failed",),
            error="".join(filter(str.isprintable, " ".join(error.split())))[:400],
        )


def solo(job: Job, share: Share, repeat: int = 0) -> Target:
    """A job alone."""
    return Target((ProcessSpec(job, share),), repeat)


def together(jobs: Iterable[tuple[Job, Share]], repeat: int = 0) -> Target:
    """Jobs side by side; in the order of their names, alike ones in the order of their shares."""
    specs = list[ProcessSpec]()
    for job, share in sorted(jobs, key=lambda of: (of[0].name, of[1].percent)):
        copy = sum((spec.job, spec.share) == (job, share) for spec in specs)
        specs.append(ProcessSpec(job, share, copy))
    return Target(tuple(specs), repeat)


def pair(
    job_a: Job,
    share_a: Share,
    job_b: Job,
    share_b: Share,
    repeat: int = 0,
    *,
    two_ends: bool = False,
) -> Target:
    """Two jobs together.

    With `two_ends` the second one's units are counted from the last down, as CU masks need it.
    """
    target = together(((job_a, share_a), (job_b, share_b)), repeat)
    if not two_ends:
        return target
    first, second = target.specs
    return Target((first, replace(second, share=replace(second.share, upper=True))), repeat)


_MODEL_COUNTERS = (
    "sm_active_percent",
    "sm_occupancy_percent",
    "fp32_active_percent",
    "dram_active_percent",
    "pcie_tx_mib_per_s",
    "pcie_rx_mib_per_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """What is the same for all windows of a run on one GPU."""

    gpu: Gpu
    rules: WindowRules
    run: str
    mode: str
    source: str
    host: str
    idle_power_w: float | None
    active_idle_power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """One window, what it was taken for, and the part of each of its jobs.

    Attributes:
        reported: What each job said of its results, from its start to the end of the window.
        held: Of a job alone the columns of its memory bound and of its clients of MPS.
    """

    target: Target
    parts: tuple[PointPart, ...]
    reported: tuple[Reported, ...]
    window: MeasuredWindow
    cpu_steal_percent: float | None
    held: Mapping[str, Any]

    def flags(self, conditions: RunConditions) -> tuple[str, ...]:
        """What was wrong with a window, in the words of `advisor.core.records.FLAGS`."""
        window, target = self.window, conditions.rules.target
        counters = window.counters
        # A job that waits for its input draws power in pulses, which counter or readings may meet
        # more often in a short window.
        chance = 3 * ((window.power and window.power.relative) or 0.0)
        wrong = {
            "noisy-rate": any(
                _noisy(
                    MeanEstimate(part.rate or 0.0, part.rate_stderr),
                    # What arrives at random (Poisson) is no noise of a job. Half as much more is
                    # allowed, since a standard error is only estimated.
                    max(target, 1.5 / math.sqrt(part.offered_rate * window.window_s))
                    if part.offered_rate
                    else target,
                )
                for part in self.parts
            ),
            "noisy-power": window.power is not None and _noisy(window.power, target),
            "not-settled": not window.settled,
            BACKLOG: window.drains
            or any(
                is_catching_up(part.rate or 0.0, part.offered_rate, window.window_s)
                for part in self.parts
            ),
            "throttled": bool(window.throttle_reasons),
            HEAT: bool(set(window.throttle_reasons or ()) - POWER_CAPS),
            GPUS_DIFFER: window.power is not None
            and (window.power_spread_w or 0.0) > GPUS_ALIKE * window.power.mean,
            "counter-mismatch": abs(window.counter_gap or 0.0) > max(COUNTER_BOUND, chance),
            "counters-missing": any(getattr(counters, name) is None for name in _MODEL_COUNTERS),
            "cpu-bound": _cpu_bound(counters, self.parts, conditions.gpu),
            "cpu-steal": (self.cpu_steal_percent or 0) > 1,
            RESULTS_ONLY_FLAG: conditions.rules.results_only,
        }
        flags = (flag for flag, holds in wrong.items() if holds)
        return (*flags, *verdict_flags(cast("Verdict | None", part.results) for part in self.parts))

    def point(self, conditions: RunConditions) -> Point:
        """The point of one window: of a job alone, or of several together."""
        window, power = self.window, self.window.power
        measured: dict[str, Any] = {
            **_origin(self.target, conditions),
            "power_w": power.mean if power else None,
            "power_stderr_w": power.stderr if power else None,
            "counter_power_w": window.counter_power_w,
            "memory_power_w": window.memory_power_w,
            "power_limit_w": window.power_limit_w,
            "sm_clock_mhz": window.sm_clock_mhz,
            "memory_clock_mhz": window.memory_clock_mhz,
            "temperature_c": window.temperature_c,
            "throttled": None if window.throttle_reasons is None else bool(window.throttle_reasons),
            "cpu_steal_percent": self.cpu_steal_percent,
            "settle_s": window.settle_s,
            "window_s": window.window_s,
            "started_at": window.started_at,
            "flags": self.flags(conditions),
            **asdict(window.counters),
        }
        if len(self.target.jobs) > 1:
            mode = pair_mode(conditions.mode, self.target)
            return PairPoint(parts=self.parts, mode=mode, **measured)
        return SoloPoint(
            **{_OF_SOLO.get(name, name): value for name, value in asdict(self.parts[0]).items()},
            mode=conditions.mode,
            reported=self.reported[0].written,
            input_fingerprint=self.target.specs[0].job.input_fingerprint,
            gpus=len(conditions.gpu.each) if conditions.gpu.others else None,
            **self.held,
            **measured,
        )


# Columns of a part that a solo point has under another name.
_OF_SOLO = {"units": "units_granted", "cpu_percent": "job_cpu_percent"}


def part_alone(point: SoloPoint) -> PointPart:
    """A solo point as the part of its one job."""
    names = (field.name for field in fields(PointPart))
    return PointPart(**{name: getattr(point, _OF_SOLO.get(name, name)) for name in names})


def pair_mode(mode: str, target: Target) -> str:
    """How a pair shares the GPU, from how its testbed enforces shares."""
    if mode == "uncapped":
        return "time-sliced"
    if mode == "mps" and all(spec.share.percent == 100 for spec in target.specs):
        return "uncapped"
    return mode


def _origin(target: Target, conditions: RunConditions) -> dict[str, Any]:
    gpu = conditions.gpu
    return {
        "gpu_model": gpu.model,
        "gpu_uuid": gpu.uuid,
        "driver": gpu.driver,
        "units_total": gpu.units_total,
        "source": conditions.source,
        "host": conditions.host,
        "run": conditions.run,
        "repeat": target.repeat,
        "idle_power_w": conditions.idle_power_w,
        "active_idle_power_w": conditions.active_idle_power_w,
        "tool_version": advisor.__version__,
    }


def _noisy(estimate: MeanEstimate | None, target: float) -> bool:
    return estimate is None or estimate.relative is None or estimate.relative > target


def _cpu_bound(counters: Counters, parts: tuple[PointPart, ...], gpu: Gpu) -> bool:
    """SM activity is relative to the whole GPU, so it is compared with the granted part."""
    active, units = counters.sm_active_percent, [part.units for part in parts]
    if active is None or not gpu.units_total or not all(units):
        return False
    idle = active < IDLE_PERCENT * min(gpu.units_total, sum(filter(None, units))) / gpu.units_total
    return idle and any((part.cpu_percent or 0) >= CORE_PERCENT for part in parts)
