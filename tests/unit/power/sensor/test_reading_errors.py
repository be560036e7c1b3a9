"""How wrong ways of reading are, in made-up recordings."""

import dataclasses
from pathlib import Path

import pytest
from synthetic_sensor import AVERAGE, INSTANT, MadeUpCard

from advisor_power.sensor.analysis import record_of
from advisor_power.sensor.reading_errors import (
    KERNELS_S,
    WAYS,
    ReadingError,
    measured,
    run_stages,
)
from advisor_power.sensor.trace import read_trace, steps_and_bursts, waves


def by_way(errors: list[ReadingError]) -> dict[tuple[float, str], ReadingError]:
    return {(error.kernel_s, error.way): error for error in errors}


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
    real = by_way(measured(trace, record_of(trace, "replay")))
    assert set(real) == {(kernel_s, way) for kernel_s in KERNELS_S for way in WAYS}
    assert {error.readings for key, error in real.items() if key[1] != "ours"} == {3}
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
