"""Predicted readings beside those of a made-up sensor."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_sensor import AVERAGE, INSTANT, MadeUpCard

from advisor.validity.sensor_record import SensorRecord
from advisor.wire.power import SensorCurve
from advisor_power.sensor.analysis import predicted_curves, record_of
from advisor_power.sensor.trace import Trace, read_trace, steps_and_bursts

Found = tuple[Trace, SensorRecord]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """A recording of an instant and an average channel, and its record."""
    card = MadeUpCard({"instant": INSTANT, "average": AVERAGE})
    trace = read_trace(card.write(tmp_path_factory.mktemp("made-up") / "r.jsonl"))
    return trace, record_of(trace, "live")


def errors_w(curve: SensorCurve) -> list[float]:
    """Of the readings, against the line at their times."""
    line = np.interp(curve.read_s, curve.times_s, curve.predicted_w)
    return [float(error) for error in np.array(curve.read_w) - line]


def test_step_and_wave_of_each_channel(found: Found) -> None:
    """They begin at 0 s and lie near what was read: a reading in an edge may be off by more."""
    curves = predicted_curves(*found)
    assert [(c.channel, c.load) for c in curves] == [
        ("instant", "step"), ("instant", "wave"), ("average", "step"), ("average", "wave"),
    ]  # fmt: skip
    for curve in curves:
        assert min(curve.read_s) >= curve.times_s[0] == 0
        assert max(curve.read_s) <= curve.times_s[-1]
        assert len(curve.times_s) == len(curve.predicted_w)
        assert np.median(np.abs(errors_w(curve))) < 3
    step = curves[0]
    assert step.predicted_w[0] == pytest.approx(80, abs=2)
    assert step.predicted_w[-1] == pytest.approx(520, abs=2)


def test_wrong_window_shows(found: Found) -> None:
    trace, known = found
    slow = tuple(replace(c, window_ms=200.0) for c in known.channels if c.name == "instant")
    wrong, _ = predicted_curves(trace, replace(known, channels=slow))
    right = predicted_curves(trace, known)[0]
    assert max(map(abs, errors_w(wrong))) > 50 + max(map(abs, errors_w(right)))


def test_recording_without_waves_or_channels_has_fewer_curves(found: Found, tmp_path: Path) -> None:
    card = MadeUpCard({"instant": INSTANT}, stages=steps_and_bursts(1))
    trace = read_trace(card.write(tmp_path / "r.jsonl"))
    assert [(c.channel, c.load) for c in predicted_curves(trace, found[1])] == [("instant", "step")]
    assert predicted_curves(replace(trace, series={}), found[1]) == []
    assert predicted_curves(replace(trace, stages=()), found[1]) == []
