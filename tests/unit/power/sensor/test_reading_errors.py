"""How wrong ways of reading are: simulated sensors against arithmetic, and made-up recordings."""

import dataclasses
import runpy
import sys
from pathlib import Path

import made_up_kernel
import pytest
from synthetic_sensor import AVERAGE, INSTANT, MadeUpCard

from advisor.validity.sensor_record import EnergyCounter
from advisor_power.sensor.analysis import record_of
from advisor_power.sensor.reading_errors import (
    KERNELS_S,
    WAYS,
    ReadingError,
    measured,
    run_stages,
    simulated,
)
from advisor_power.sensor.stimulus import steps_and_bursts, waves
from advisor_power.sensor.trace import read_trace

SCRIPTS = Path(__file__).parents[4] / "docs/measurements/power"
QUICK = dataclasses.replace(
    made_up_kernel.INSTANT, period_ms=50.0, window_ms=20.0, delay_ms=0.0, noise_w=0.0
)
RECORD = dataclasses.replace(
    made_up_kernel.record(
        energy=dataclasses.replace(made_up_kernel.COUNTER, period_ms=97.0, coverage_spread=0.001)
    ),
    channels=(QUICK, dataclasses.replace(QUICK, name="average", window_ms=1000.0)),
)


def by_way(errors: list[ReadingError]) -> dict[tuple[float, str], ReadingError]:
    return {(error.kernel_s, error.way): error for error in errors}


def test_simulated_errors_follow_from_window_and_period() -> None:
    """Where arithmetic gives the answer: runs longer than W + T, and shorter than both."""
    found = by_way(simulated(RECORD, idle_w=100.0, kernel_w=500.0))
    assert set(found) == {(kernel_s, way) for kernel_s in KERNELS_S for way in WAYS}
    assert found[10e-3, "instant"].p95 == pytest.approx(0)  # a run of 0.2 s
    # A run of 0.6 ms: most readings saw idle power alone, which is 80 % less.
    assert found[30e-6, "instant"].median == pytest.approx(0.8)
    # A run of 0.6 s fills at most 0.6 of a second's average: at least 0.4 * 400 / 500 is missing.
    assert found[30e-3, "average"].median == pytest.approx(0.32 + 0.02, abs=0.01)
    # A second is no whole number of ticks: some joules of idle power are missing, or too many.
    assert found[30e-6, "counter"].p95 > 1
    assert found[30e-3, "counter"].p95 < 0.04
    assert max(found[kernel_s, "ours"].p95 for kernel_s in KERNELS_S) == 0


def test_ways_that_a_card_lacks_are_left_out() -> None:
    energy = EnergyCounter(period_ms=100.0, coverage_spread=0.03, covers_everything=None)
    less = dataclasses.replace(RECORD, channels=(QUICK,), energy=energy)
    assert {error.way for error in simulated(less, 100.0, 500.0, tries=10)} == {"instant", "ours"}
    none = dataclasses.replace(RECORD, channels=(dataclasses.replace(QUICK, accepted=False),))
    assert {error.way for error in simulated(none, 100.0, 500.0, tries=10)} == {"counter"}


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


@pytest.mark.figures
def test_errors_of_a_recording_are_those_of_its_sensor(recording: Path) -> None:
    trace = read_trace(recording)
    record = record_of(trace, "replay")
    real, made = by_way(measured(trace, record)), by_way(simulated(record, 120.0, 500.0))
    assert set(real) == set(made)
    assert {error.readings for key, error in real.items() if key[1] != "ours"} == {3}
    for key in ((30e-6, "average"), (30e-3, "average"), (30e-3, "instant"), (30e-3, "counter")):
        assert real[key].median == pytest.approx(made[key].median, abs=0.04)
    assert real[30e-6, "instant"].median > 0.7
    assert max(error.median for key, error in real.items() if key[1] == "ours") < 0.01


def test_recording_without_runs_has_no_errors(tmp_path: Path) -> None:
    trace = read_trace(MadeUpCard({"instant": INSTANT}).write(tmp_path / "r.jsonl"))
    assert measured(trace, record_of(trace, "replay")) == []


def test_script_prints_the_table(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sensor_errors.py", "--trace", str(recording)])
    runpy.run_path(str(SCRIPTS / "sensor_errors.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| kernel | instant, % | average, % | counter, % | ours, % |"
    assert len(lines) == 2 + len(KERNELS_S)
    assert lines[2].startswith("| 30 µs | ")
