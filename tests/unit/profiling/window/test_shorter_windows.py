"""How wrong shorter windows are: means of held readings, made-up sensors, and what is refused."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_kernel import record
from synthetic_sensor import HEADER, MadeUpCard, MadeUpSensor

from advisor.settings import read_settings
from advisor.validity.sensor_record import PowerChannel, keep_record
from advisor_data.files.power_records import bundled_sensors
from advisor_power.sensor.stimulus import Stage
from advisor_power.sensor.trace import Series

SCRIPTS = Path(__file__).parents[4] / "docs/measurements/power"
INSTANT = PowerChannel(
    name="instant",
    period_ms=100.0,
    window_ms=26.0,
    delay_ms=13.0,
    noise_w=0.0,
    window_spread_ms=0.1,
    prediction_error=0.01,
    accepted=True,
)
SLOW = MadeUpSensor(0.1, 0.026, 0.013, 0.0)
"""The sensor that `INSTANT` tells of: a load that begins is shown 39 to 139 ms later."""


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))


def script() -> ModuleType:
    return importlib.import_module("shorter_windows")


def know_sensor(home: Path) -> None:
    card = HEADER
    known = record(INSTANT, gpu_uuid=card.gpu_uuid, gpu_model=card.gpu_model, driver=card.driver)
    keep_record(known, home)


def recording(folder: Path, *stages: Stage) -> Path:
    card = MadeUpCard(sensors={"instant": SLOW}, stages=stages)
    return card.write(folder / "recording.jsonl")


def rows(printed: str) -> dict[tuple[str, str], list[str]]:
    """Cells after length and way."""
    lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if line[:1] == "|"]
    return {(cells[0], cells[1]): cells[2:] for cells in lines[2:]}


@given(
    values=st.lists(st.integers(50, 700), min_size=2, max_size=12),
    begin=st.integers(0, 400),
    length=st.integers(1, 600),
)
def test_mean_is_of_what_is_shown_at_each_moment(
    values: list[int], begin: int, length: int
) -> None:
    """Against a sum over milliseconds; readings are 70 ms apart, the last one stays."""
    times_s = np.array([0.07 * n for n in range(len(values))])
    (found,) = script().means(
        Series(times_s, np.array(values, dtype=float)), np.array([begin / 1000]), length / 1000
    )
    shown = [values[min((begin + ms) // 70, len(values) - 1)] for ms in range(length)]
    assert found == pytest.approx(sum(shown) / length)


def test_reading_is_shown_until_the_next_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After delay and response one of before may still be shown, after a period more it is not."""
    know_sensor(tmp_path / "home")
    load = Stage("flat", 6.0, ((0.0, 6.0),))
    script().main(["--trace", str(recording(tmp_path, Stage("idle", 2.03), load))])
    found = rows(capsys.readouterr().out)
    assert float(found["0.1", "response"][2]) < -5
    assert float(found["0.1", "response + T"][2]) == 0
    assert float(found["2.1", "constants"][2]) == 0
    waits_s = {way: float(found["1", way][0]) - 1 for _, way in found}
    assert waits_s == pytest.approx(
        {"constants": 1.0, "profile": 0.94, "response": 0.039, "response + T": 0.139}, abs=0.006
    )
    assert found["0.5", "profile"] == ["-"] * 5  # `advisor profile` refuses it
    assert found["5", "constants"] == ["-"] * 5  # 1.5 s and 5 s do not fit into 6 s
    assert found["5", "response + T"][1] == "1"


def test_recording_without_a_long_load_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Square waves say nothing of windows."""
    know_sensor(tmp_path / "home")
    short = Stage("wave", 6.0, ((0.0, 2.0), (3.0, 5.0)))
    with pytest.raises(SystemExit) as ended:
        script().main(["--trace", str(recording(tmp_path, short))])
    assert ended.value.code == 2
    assert "no load was on for 3 s" in capsys.readouterr().err


def test_unknown_sensor_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing says how long to wait for it."""
    load = Stage("flat", 6.0, ((0.0, 6.0),))
    with pytest.raises(SystemExit):
        script().main(["--trace", str(recording(tmp_path, load))])
    assert "nothing is known of the power sensor" in capsys.readouterr().err


def test_recordings_of_the_repository_can_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    """The flat load of each sensor recording, and what a meter read of a job at its limit."""
    script().main([])
    *flats, job = capsys.readouterr().out.strip().split("\n\n")[1::2]
    assert len(flats) == len(bundled_sensors())
    for flat in flats:
        assert abs(float(rows(flat)["2.1", "constants"][2])) < 1
    assert rows(job)["0.1", "response"][2] == "-"
    assert float(rows(job)["0.1", "response"][3]) > float(rows(job)["2.1", "response"][3])


@given(seconds=st.floats(8, 60))
def test_plan_of_a_load(seconds: float) -> None:
    """Long once, then again and again; never two at once, never longer than asked."""
    spans = list(importlib.import_module("steady_loads").on_spans(seconds))
    assert spans[0] == (0.0, seconds / 2)
    edges = [edge for span in spans for edge in span]
    assert edges == sorted(edges)
    assert edges[-1] <= seconds
    assert all(end - begin >= 3 - 1e-9 for begin, end in spans)


def test_python_of_a_job_is_found_from_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that begins here, while the job runs elsewhere."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/python").symlink_to(sys.executable)
    fields = {"command": "python3 work.py", "progress": {"kind": "counter", "gate": True}}
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/load.yaml").write_text(json.dumps(fields))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVISOR_JOBS", str(tmp_path / "jobs"))
    job = importlib.import_module("steady_loads")._job("load", "venv/python", read_settings())
    assert job.command == (str(tmp_path / "venv/python"), "work.py")
