"""Recordings of made-up sensors are analysed: what was put in comes out, and faults are named."""

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from reading import some
from synthetic_sensor import AVERAGE, FADING, HEADER, INSTANT, MEMORY, MadeUpCard, MadeUpSensor

from advisor.errors import InputError, SourceError
from advisor.validity.sensor_record import SensorRecord
from advisor_power import sensor as sensor_module
from advisor_power.sensor import (
    KERNELS_S,
    LOCKED_WAVE,
    WAVE,
    ChangedReadings,
    ReadingSeries,
    begin_trace,
    level_times,
    measured,
    noise_w,
    period_of,
    poll_into,
    read_trace,
    record_of,
    run_stages,
    steps_and_bursts,
    waves,
    window_parts,
)

Analyse = Callable[[MadeUpCard], SensorRecord]


@pytest.fixture
def analyse(tmp_path: Path) -> Analyse:
    """Writes the recording of a card, reads it back and analyses it."""
    return lambda card: record_of(read_trace(card.write(tmp_path / "recording.jsonl")), "replay")


def only(sensor: MadeUpSensor) -> dict[str, MadeUpSensor]:
    return {"instant": sensor}


@pytest.mark.slow
@pytest.mark.figures
def test_all_channels_of_a_card_are_found(analyse: Analyse) -> None:
    record = analyse(MadeUpCard())
    assert record.reasons == record.absent == ()
    for name, sensor in {"instant": INSTANT, "average": AVERAGE, "memory": MEMORY}.items():
        channel = some(record.channel(name))
        assert channel.accepted
        assert (channel.period_ms, channel.window_ms) == (
            pytest.approx(1000 * sensor.period_s, rel=0.001),
            pytest.approx(1000 * sensor.window_s, rel=0.02),
        )
        assert (channel.delay_ms, channel.noise_w) == (
            pytest.approx(1000 * sensor.delay_s, abs=5),
            pytest.approx(sensor.noise_w, rel=0.5),
        )
    assert some(record.channel("instant")).window_ms == pytest.approx(25, abs=0.5)
    assert some(record.channel("instant")).delay_ms == pytest.approx(12, abs=0.5)
    assert some(record.energy).covers_everything
    assert some(record.energy).period_ms == pytest.approx(100, rel=0.001)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sensor", "seed"),
    [
        (MadeUpSensor(0.05, 0.045, 0.004, 5.0), 3),
        (MadeUpSensor(0.066, 0.066, 0.09, 2.0), 4),
        (MadeUpSensor(0.1, 0.3, 0.05, 1.0), 5),
        (MadeUpSensor(0.066, 0.006, 0.03, 2.0), 6),
    ],
)
@pytest.mark.figures
def test_window_and_delay_come_back(analyse: Analyse, sensor: MadeUpSensor, seed: int) -> None:
    """Sensors that look at a tenth, a quarter or all of the time, with and without delay."""
    channel = some(analyse(MadeUpCard(only(sensor), seed=seed)).channel("instant"))
    assert channel.accepted
    # Readings are from a grid of 0.2 ms; 1 ms is half of what a record asks for.
    assert (channel.window_ms, channel.delay_ms) == (
        pytest.approx(1000 * sensor.window_s, rel=0.02, abs=1),
        pytest.approx(1000 * sensor.delay_s, abs=1),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sensor", "response", "settle_s"),
    [
        (MadeUpSensor(0.1004, 0.026, 0.005, 3.0, clock_s=0.0125), "mean", 0.0435),
        (FADING, "exponential", 0.088),
    ],
)
@pytest.mark.figures
def test_clock_of_the_card_and_the_form_of_forgetting_are_found(
    analyse: Analyse, sensor: MadeUpSensor, response: str, settle_s: float
) -> None:
    """A driver shows the newest of values that are made in time; those of an H200 fade."""
    whole = (*steps_and_bursts(1), *waves(sensor.period_s, 1))
    channel = some(analyse(MadeUpCard(only(sensor), stages=whole)).channel("instant"))
    assert channel.accepted
    assert (channel.response, channel.delay_spread_ms, channel.window_ms) == (
        response,
        pytest.approx(1000 * sensor.clock_s, abs=0.001),
        pytest.approx(26, abs=1),
    )
    # The middle of the delays: half a tick on top of that of the card.
    assert (channel.delay_ms, channel.settle_s) == (
        pytest.approx(1000 * (sensor.delay_s + sensor.clock_s / 2), abs=1),
        pytest.approx(settle_s, abs=0.003),
    )
    assert channel.prediction_error < 0.03


@pytest.mark.figures
def test_counter_that_adds_up_what_a_sensor_sees_is_found(analyse: Analyse) -> None:
    record = analyse(MadeUpCard(only(INSTANT), counter="samples"))
    assert some(record.energy).coverage_spread > 0.05
    assert some(record.energy).covers_everything is False


@pytest.mark.figures
def test_channels_that_are_not_there_are_named(analyse: Analyse) -> None:
    """A card without memory power and counter has them in `absent`, never as 0."""
    record = analyse(MadeUpCard(only(INSTANT), counter="none"))
    assert (record.absent, record.energy) == (("average", "memory", "energy"), None)
    assert record.accepted
    assert "memory: the card does not have it, or it reads 0" in record.reasons


@pytest.mark.parametrize(
    ("name", "sensor", "says"),
    [
        (
            "memory",
            MadeUpSensor(0.1, 1.0, 0.02, 0.0, (75.0, 75.0, 75.0, 75.0)),
            "it always reads 75 W",
        ),
        ("average", MadeUpSensor(4.0, 1.0, 0.02, 1.0), "too rarely to be fitted"),
    ],
)
@pytest.mark.figures
def test_channel_that_is_stuck_or_changes_too_rarely_is_absent(
    analyse: Analyse, name: str, sensor: MadeUpSensor, says: str
) -> None:
    record = analyse(MadeUpCard({"instant": INSTANT, name: sensor}))
    assert name in record.absent
    assert any(reason.startswith(f"{name}: ") and says in reason for reason in record.reasons)


def throttled_once(second: int) -> tuple[list[str], list[int]]:
    return ["sw-power-cap"] if second == 40 else [], [1]


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize(
    ("card", "says"),
    [
        (MadeUpCard(only(INSTANT), looks=throttled_once), "throttled (sw-power-cap)"),
        (
            MadeUpCard(only(INSTANT), looks=lambda s: ([], [1, 2] if 50 <= s < 55 else [1])),
            "another process computed on the GPU",
        ),
        (MadeUpCard(only(INSTANT), ends_at_s=50), "the recording was stopped before its end"),
        (MadeUpCard(only(INSTANT), later_period_s=0.1), "its period changed from 66.0 to 100.0 ms"),
        (
            MadeUpCard(only(INSTANT), stages=steps_and_bursts(1)),
            "instant: no square waves were recorded to check it with",
        ),
        # Delays at random follow no clock, and none is chosen for a reading.
        (
            MadeUpCard(only(MadeUpSensor(0.066, 0.025, 0.03, 2.0, spread_s=0.05)), seed=2),
            "halves of the data give windows that differ",
        ),
    ],
)
def test_recording_with_a_fault_is_not_accepted(
    analyse: Analyse, card: MadeUpCard, says: str
) -> None:
    record = analyse(card)
    assert not record.accepted
    assert says in "; ".join(record.reasons)


@pytest.mark.figures
def test_disturbed_recording_says_nothing_of_the_counter(analyse: Analyse) -> None:
    record = analyse(MadeUpCard(only(INSTANT), looks=throttled_once))
    assert some(record.energy).covers_everything is None


@pytest.mark.figures
def test_recording_that_nobody_watched_is_refused(tmp_path: Path) -> None:
    trace = read_trace(MadeUpCard(only(INSTANT)).write(tmp_path / "r.jsonl"))
    for looks in ((), trace.looks[:50]):
        record = record_of(dataclasses.replace(trace, looks=looks), "replay")
        assert record.reasons[0] == "the state of the card was not watched all the time"
        assert not record.accepted


@pytest.mark.figures
def test_process_that_only_passes_is_no_neighbour(analyse: Analyse) -> None:
    """Those that start on another GPU show on all of them for some seconds, one after the other."""

    def passing(second: int) -> tuple[list[str], list[int]]:
        return [], [1, second // 3] if 40 <= second < 55 else [1]

    assert analyse(MadeUpCard(only(INSTANT), looks=passing)).accepted


@pytest.mark.parametrize("ends_at_s", [2, 6, 8.1])
@pytest.mark.figures
def test_recording_that_ends_too_early_says_so(analyse: Analyse, ends_at_s: float) -> None:
    with pytest.raises(InputError, match="ends before its bursts"):
        analyse(MadeUpCard(only(INSTANT), ends_at_s=ends_at_s))


@pytest.mark.figures
def test_sensor_that_is_no_window_is_refused(analyse: Analyse, tmp_path: Path) -> None:
    """Readings that do not follow from any window of the load fail on the waves."""
    trace = read_trace(MadeUpCard(only(INSTANT)).write(tmp_path / "other.jsonl"))
    series = trace.series["instant"]
    begun_s, ended_s = trace.named("wave")[0].begun_s, trace.named("wave")[-1].ended_s
    late = (series.times_s > begun_s) & (series.times_s < ended_s)
    shifted = dataclasses.replace(series, times_s=series.times_s + 0.01 * late)
    record = record_of(dataclasses.replace(trace, series={"instant": shifted}), "replay")
    assert not record.accepted
    assert any("readings are predicted over" in reason for reason in record.reasons)


# periods, windows and the stimulus: arithmetic on made-up readings whose truth is known


seeds = st.integers(0, 2**32 - 1)


@given(
    period_s=st.floats(0.005, 0.5),
    missed=st.floats(0, 0.35),
    jitter=st.floats(0, 0.05),
    seed=seeds,
)
def test_period_is_found_although_changes_are_missed(
    period_s: float, missed: float, jitter: float, seed: int
) -> None:
    """Updates to the same value show no change, and polling sees each a little late."""
    draw = np.random.default_rng(seed)
    seen = (period_s * np.arange(400.0))[draw.uniform(size=400) >= missed]
    found = some(period_of(seen + draw.uniform(0, jitter * period_s, len(seen))))
    assert found.regular
    assert found.period_s == pytest.approx(period_s, rel=0.005)


def test_changes_at_random_have_no_period() -> None:
    """A channel that flickers is not taken for a slow one."""
    assert not some(period_of(np.cumsum(np.random.default_rng(1).exponential(0.05, 500)))).regular


@pytest.mark.parametrize("changes", [0, 1, 30])
def test_too_few_changes_have_no_period(changes: int) -> None:
    assert period_of(np.arange(float(changes))) is None


@given(
    lengths=st.lists(st.floats(0.001, 1), min_size=4, max_size=12),
    window_s=st.floats(0.002, 1.5),
    seed=seeds,
)
def test_parts_of_a_window_are_those_of_a_fine_sum(
    lengths: list[float], window_s: float, seed: int
) -> None:
    edges = [*itertools.accumulate(lengths, initial=0.0)]
    edges[-1] += 5
    edges[0] -= 5
    spans = list(itertools.pairwise(edges))
    levels = [level_times(spans[0::2]), level_times(spans[1::2])]
    end_s = float(np.random.default_rng(seed).uniform(0, edges[-1]))
    (parts,) = window_parts(levels, np.array([end_s]), window_s)
    assert parts.sum() == pytest.approx(1)
    moments = end_s - window_s * (np.arange(20_000) + 0.5) / 20_000
    first = sum(((moments >= a) & (moments < b)).mean() for a, b in spans[0::2])
    assert parts[0] == pytest.approx(first, abs=1e-3)


@given(slope=st.floats(-5, 5), seed=seeds)
def test_noise_is_not_the_warming_of_a_card(slope: float, seed: int) -> None:
    """A load whose power rises slowly has the noise of its readings, not that of the slope."""
    times_s = 0.066 * np.arange(60.0)
    noise = np.random.default_rng(seed).normal(0, 2, 60)
    steady, rising = (
        noise_w(ReadingSeries(times_s, 500 + noise + k * times_s)) for k in (0, slope)
    )
    assert rising == pytest.approx(steady)
    assert 1 < some(steady) < 3.2
    assert noise_w(ReadingSeries(times_s[:7], noise[:7])) is None


@given(period_s=st.floats(0.01, 0.5), seed=seeds)
def test_stages_are_as_long_as_promised(period_s: float, seed: int) -> None:
    """Loads are in order and inside their stages; all of it, runs included, takes four minutes."""
    stages = (*steps_and_bursts(seed), *waves(period_s, seed))
    for stage in (*stages, *run_stages(seed)):
        edges = [edge for span in stage.on for edge in span]
        assert edges == sorted(edges)
        assert all(0 <= edge <= stage.length_s + 1e-9 for edge in edges)
    assert sum(stage.length_s for stage in stages) <= 216
    quick = (*waves(0.1, seed), *steps_and_bursts(seed), *run_stages(seed))
    assert sum(stage.length_s for stage in quick) <= 240


@given(period_s=st.floats(0.01, 0.5), seed=seeds)
def test_locked_waves_begin_at_every_phase(period_s: float, seed: int) -> None:
    """Twenty waves of the sensor's own period, half of the time on, at phases all over it."""
    made = waves(period_s, seed)
    locked = [stage for stage in made if stage.name == LOCKED_WAVE]
    assert (len(locked), len([stage for stage in made if stage.name == WAVE])) == (20, 3)
    phases = [stage.on[0][0] / period_s for stage in locked]
    assert max(phases) - min(phases) > 0.5
    for stage in locked:
        assert sum(b - a for a, b in stage.on) == pytest.approx(len(stage.on) * period_s / 2)
        assert np.diff([a for a, _ in stage.on]) == pytest.approx(period_s)
    assert steps_and_bursts(seed) == steps_and_bursts(seed)
    assert steps_and_bursts(seed) != steps_and_bursts(seed + 1)


# how wrong ways of reading are, in made-up recordings


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a card that draws the same in a burst as in a long load."""
    levels_w = (120.0, 120.0, 500.0, 500.0)
    sensors = {
        "instant": dataclasses.replace(INSTANT, levels_w=levels_w),
        "average": dataclasses.replace(AVERAGE, levels_w=levels_w),
    }
    stages = (*steps_and_bursts(1), *waves(INSTANT.period_s, 1), *run_stages(1))
    card = MadeUpCard(sensors, stages=stages)
    return card.write(tmp_path_factory.mktemp("made") / "recording.jsonl")


@pytest.mark.slow
@pytest.mark.figures
def test_errors_of_a_recording_are_those_of_its_sensor(recording: Path) -> None:
    trace = read_trace(recording)
    errors = measured(trace, record_of(trace, "replay"))
    real = {(error.kernel_s, error.way): error for error in errors}
    assert (set(real), {error.readings for key, error in real.items() if key[1] != "ours"}) == (
        {
            (kernel_s, way)
            for kernel_s in KERNELS_S
            for way in ("instant", "average", "counter", "ours")
        },
        {3},
    )
    # Idle power is 76 % less. A run of 0.6 s fills half of a second's average, which is late.
    for key, median in (
        ((30e-6, "instant"), 0.76),
        ((30e-6, "average"), 0.76),
        ((30e-3, "instant"), 0.0),
        ((30e-3, "average"), 0.36),
        ((30e-3, "counter"), 0.0),
    ):
        assert real[key].median == pytest.approx(median, abs=0.04)
    assert max(error.median for key, error in real.items() if key[1] == "ours") < 0.01


def test_recording_without_runs_has_no_errors(tmp_path: Path) -> None:
    trace = read_trace(MadeUpCard({"instant": INSTANT}).write(tmp_path / "r.jsonl"))
    assert measured(trace, record_of(trace, "replay")) == []


# what a recorder writes: changes only, no zeros, not without end, and all of it


values = st.lists(st.sampled_from([None, 80.0, 81.0, 500.0]), max_size=40)


@given(read=values)
def test_changes_are_written_and_nothing_else(read: list[float | None]) -> None:
    changes = ChangedReadings()
    lines = [line for t, value in enumerate(read) for line in changes.lines("a", t, value, 7)]
    shown = [value for value in read if value is not None]
    kept = [v for i, v in enumerate(shown) if i == 0 or v != shown[i - 1]]
    assert [line[3] for line in lines] == kept
    assert all(line[:2] == ["reading", "a"] and line[4] == 7 for line in lines)


@given(most=st.integers(0, 20), count=st.integers(0, 40))
def test_recording_is_bounded(most: int, count: int) -> None:
    """A channel that flickers fills no disk; the file says that it is full."""
    changes = ChangedReadings(most)
    lines = [line for t in range(count) for line in changes.lines("a", t, 1.0 + t % 2)]
    assert (len(lines), [line[0] for line in lines].count("full")) == (
        min(count, most + 1),
        count > most,
    )


def test_channels_do_not_hide_each_other() -> None:
    changes = ChangedReadings()
    assert changes.lines("a", 1.0, 80.0)
    assert changes.lines("b", 1.0, 80.0)
    assert not changes.lines("a", 2.0, 80.0)


def test_readings_before_an_error_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    begin_trace(file, HEADER)
    changes, read = ChangedReadings(), iter([80.0, 500.0])

    def poll(time_s: float) -> list[list[Any]]:
        try:
            return changes.lines("instant", time_s, next(read))
        except StopIteration:
            raise SourceError("lost") from None

    with pytest.raises(SourceError, match="lost"):
        poll_into(file, poll, 0.0, lambda: False)
    assert read_trace(file).series["instant"].values.tolist() == [80, 500]


def test_recording_is_never_written_over(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    begin_trace(file, HEADER)
    with pytest.raises(FileExistsError):
        begin_trace(file, HEADER)
    assert json.loads(file.read_text())["gpu_uuid"] == HEADER.gpu_uuid


# Processes that poll a card end with their input, or are ended.


POLLS = (
    "import time\nfrom advisor_power.sensor import is_over\n"
    "print('polls', flush=True)\nwhile not is_over(): time.sleep(0.01)\nraise SystemExit(5)"
)


def started(code: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert some(process.stdout).readline()
    some(process.stdout).close()
    return process


def test_it_polls_until_its_input_is_closed() -> None:
    process = started(POLLS)
    assert process.poll() is None
    sensor_module.end_process(process)
    assert process.returncode == 5


def test_one_that_does_not_look_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensor_module, "_END_S", 0.1)
    process = started("import time\nprint('hangs', flush=True)\nwhile True: time.sleep(1)")
    sensor_module.end_process(process)
    assert process.returncode == -9
