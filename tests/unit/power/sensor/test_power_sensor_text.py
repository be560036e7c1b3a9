"""What `advisor power sensor` and the doctor say of a recording and of a record."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from reading import answer_of
from synthetic_sensor import FADING, INSTANT, MadeUpCard
from typer.testing import CliRunner, Result

from advisor.core.gpu import Gpu
from advisor.errors import InputError
from advisor.formats.wire import read
from advisor.settings import read_settings
from advisor.validity.sensor_record import SensorRecord, keep_record
from advisor_cli import app as command_line
from advisor_power.sensor import read_trace, record_of
from advisor_profiling import doctor as checks
from advisor_profiling.doctor import Finding, examine

OF_THE_COMMAND = ("accepted", "settle_s", "shortest_window_s", "reading_errors")
"""Keys that a record has not by itself."""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MadeUpCard({"instant": INSTANT}).write(tmp_path_factory.mktemp("made") / "r.jsonl")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def sensor(*options: object) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(command_line.app, ["power", "sensor", *map(str, options)])


@pytest.mark.slow
def test_json_has_its_keys(home: Path, recording: Path) -> None:
    """Programs rely on them; the analysis of a file is not kept as a card's record."""
    done = sensor("--trace", recording, "--json")
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = answer_of(done.stdout)
    assert [answer.pop(key) for key in OF_THE_COMMAND] == [
        True, pytest.approx(0.037, abs=0.001), pytest.approx(8 * 0.066, abs=0.001), []
    ]  # fmt: skip
    found = read(SensorRecord, json.dumps(answer))
    assert [channel.name for channel in found.channels] == ["instant"]
    assert not home.exists()


def test_what_a_person_reads(recording: Path) -> None:
    lines = sensor("--trace", recording).stdout.splitlines()
    assert lines[0].startswith("NVIDIA H100 80GB HBM3, GPU-1, driver 580.1, 62 s")
    assert lines[2].split()[:2] == ["instant", "66.0"]
    assert lines[2].endswith("  accepted")
    assert lines[3].endswith("it integrates everything")
    assert "  memory: the card does not have it, or it reads 0" in lines
    assert lines[-1] == "Power settles in 0.04 s; the shortest window is 0.53 s."


@pytest.mark.slow
def test_response_that_is_no_mean_is_said(tmp_path: Path) -> None:
    said = sensor("--trace", MadeUpCard({"instant": FADING}).write(tmp_path / "r.jsonl")).stdout
    assert re.search(r"instant is no mean: it fades exponentially, .* of 1[123]\.\d ms", said)


def test_recording_that_is_not_accepted_has_another_exit_code(tmp_path: Path) -> None:
    throttled = MadeUpCard({"instant": INSTANT}, looks=lambda _: (["hw-thermal"], [1]))
    done = sensor("--trace", throttled.write(tmp_path / "r.jsonl"))
    assert done.exit_code == 6
    assert "the card was throttled (hw-thermal)" in done.stdout
    assert "Nothing of this is used" in done.stdout


HEADER = (
    '{"gpu_model": "H", "gpu_uuid": "G", "driver": "1", "started_at": "", "epoch_s": 0'
    ', "format": "%s"}\n'
)
FIRST = HEADER % "advisor-power-trace-2"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "first line"),
        ("{}\n", "first line"),
        (HEADER % "something-else", "first line"),
        (FIRST + "[]\n", "line 2"),
        (FIRST + '["on", 1, 2]\n', "line 2"),
        (FIRST + '["reading", "instant", "soon", 80, null]\n', "line 2"),
        (FIRST + '["stage", "flat", 1]\n["stop", 1]\n', "line 3"),
    ],
)
def test_file_that_is_no_recording_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(text)
    with pytest.raises(InputError, match="is not a recording of power sensors") as refused:
        read_trace(file)
    assert says in refused.value.why
    assert isinstance(sensor("--trace", file).exception, InputError)


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    error = sensor("--trace", tmp_path / "none").exception
    assert isinstance(error, InputError)
    assert "cannot be read" in str(error)


def test_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """A recorder that was killed leaves half a line."""
    file = tmp_path / "r.jsonl"
    file.write_text(FIRST + '["reading", "instant", 1.5, 80.25, 17]\n["reading", "inst')
    series = read_trace(file).series["instant"]
    assert (series.times_s.tolist(), series.values.tolist()) == ([1.5], [80.25])


@pytest.mark.slow
def test_doctor_says_what_is_known_of_the_sensor(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, that of another card of the model, its own, or nothing that was accepted."""

    def one_core(_cores: object) -> dict[int, float]:
        return {0: 1.0}

    monkeypatch.setattr(checks, "core_speeds", one_core)
    gpu = Gpu(uuid="GPU-0", model="NVIDIA H100 80GB HBM3", vendor="nvidia", driver="580.1")
    found = record_of(read_trace(recording), "live")

    def row(record: SensorRecord | None, gpu: Gpu = gpu) -> Finding:
        if record is not None:
            keep_record(record, tmp_path)
        settings = read_settings({"ADVISOR_HOME": str(tmp_path), "HOME": str(tmp_path)})
        rows = examine(settings, lambda: [gpu])
        return next(row for row in rows if row.check.endswith(" sensor"))

    assert (row(None).verdict, row(None).fix) == ("ok", "advisor power sensor")
    assert row(found).found == (
        "of another card of this model, 2026-11-23: instant 25 ms every 66 ms"
    )
    other = row(None, dataclasses.replace(gpu, driver="590.0"))
    assert other.found.startswith("not measured (only with driver 580.1")
    own = dataclasses.replace(found, gpu_uuid="GPU-0")
    assert row(own).found == "of this card, 2026-11-23: instant 25 ms every 66 ms"
    bad = tuple(dataclasses.replace(channel, accepted=False) for channel in own.channels)
    assert row(dataclasses.replace(own, channels=bad)).verdict == "warning"
