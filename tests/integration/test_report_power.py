"""`advisor report power`: the page and the image of made-up sensors and kernels."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_bundle import FOLDER_OF_BUNDLED, kernel_report
from reading import answer_of
from typer.testing import CliRunner, Result

from advisor.errors import InputError, StoreError
from advisor.validity.sensor_record import SENSORS_FOLDER, keep_record
from advisor_cli.app import app
from advisor_data.known import KERNEL_REPORTS, bundled_sensors
from advisor_power.report import LIMITS

Whole = tuple[str, dict[str, Any]]
"""The page and the answer with --json."""


@pytest.fixture
def folder(bundled_power: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home beside what is bundled."""
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: bundled_power)
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    return tmp_path


def report(folder: Path, *options: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["report", "power", "--out", str(folder / "page"), *options])


def page_of(folder: Path) -> str:
    """What it wrote."""
    return (folder / "page/power.html").read_text("utf-8")


@pytest.fixture(scope="module")
def whole(bundled_power: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The report of all that is bundled."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FOLDER_OF_BUNDLED, lambda: bundled_power)
        patched.setenv("ADVISOR_HOME", str(folder / "home"))
        done = report(folder, "--json")
    assert done.exit_code == 0, done.output
    return page_of(folder), answer_of(done.stdout)


def test_page_says_first_what_cannot_be_known(whole: Whole) -> None:
    page, _ = whole
    body = page[page.index("<h1>") :]
    assert body.index("how far the power of a board is off") < body.index("<h3>")
    assert "<h2>Sensor: NVIDIA H100 80GB HBM3, driver 580.1, 2026-11-23</h2>" in page
    assert "gemm m=400 n=64 k=64 bf16, 132 SMs, after idle" in page
    for row in ("30 µs", "30000 µs", "instant", "ours"):
        assert f"<td>{row}</td>" in page or f"<th>{row}</th>" in page
    # A step and a wave for each of three channels, two figures for each kernel, one for all.
    assert page.count("<figure>") == 6 + 2 * 2 + 1
    assert "http" not in page.replace("http://www.w3.org", "")


def test_json_for_programs(whole: Whole) -> None:
    _, answer = whole
    assert set(answer) == {
        "sensors", "kernels", "inputs", "components", "components_unknown", "files",
    }  # fmt: skip
    (sensor,) = answer["sensors"]
    assert {error["way"] for error in sensor["reading_errors"]} == {
        "instant", "average", "counter", "ours",
    }  # fmt: skip
    assert set(sensor["reading_errors"][0]) == {"kernel_s", "way", "median", "p95", "readings"}
    assert [kernel["units"] for kernel in answer["kernels"]] == [66, 132]
    assert [Path(file).name for file in answer["files"]] == ["power.html"]


def test_recordings_of_this_host_are_found(folder: Path, bundled_power: Path) -> None:
    """By card and moment; files that are broken are passed over, and a record may lack its own."""
    (known,) = bundled_sensors()
    here = replace(known, source="live", gpu_model="Here", channels=known.channels[:1])
    keep_record(here, folder / "home")
    gone = replace(here, driver="590.0", measured_at="2027-01-01T00:00:00Z")
    keep_record(gone, folder / "home")
    recordings = folder / "home" / SENSORS_FOLDER / "recordings"
    recordings.mkdir()
    (recordings / "1.jsonl").write_text("")
    (recordings / "2.jsonl").write_text("{}\n")
    done = report(folder, "--gpu-model", "Here")
    assert done.stdout.endswith("page/power.html\n"), done.output
    assert "2 sensor records, 0 kernels" in done.stdout
    assert "No kernel was measured." in page_of(folder)
    shutil.copy(bundled_power.parent / "campaign/recording.jsonl", recordings / "3.jsonl")
    done = report(folder, "--gpu-model", "Here")
    assert done.stdout.startswith(LIMITS[0])
    assert done.stdout.endswith("page/power.html\n")
    page = page_of(folder)
    assert page.count("<figure>") == 2
    assert page.count("Its recording is not here, so there are no curves.") == 1
    assert page.count("was not recorded on this card") == 1


def test_kernel_without_curve_says_why(folder: Path) -> None:
    """And one whose steady power was not found; names are text, not markup."""
    odd = replace(
        kernel_report(folder),
        operation="<b>mine</b>:f",
        gpu_model="Other",
        curve=(),
        no_curve="only 7 golden runs: it takes 20",
        ssp_execution=None,
        ssp_power_w=None,
        ssp_energy_j=None,
        sse_power_w=None,
        sse_energy_j=None,
        difference=None,
        no_difference="this card has no energy counter",
        dropped={"throttled": 3},
    )
    KERNEL_REPORTS.keep(odd, folder / "home", "odd")
    done = report(folder, "--gpu-model", "Other")
    assert done.exit_code == 0, done.output
    page = page_of(folder)
    assert "No curve: only 7 golden runs: it takes 20." in page
    assert "SSP: none" in page
    assert "Energy counter: this card has no energy counter." in page
    assert "3 dropped: throttled" in page
    assert "<b>mine" not in page


def test_nothing_to_show_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: tmp_path / "empty")
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    done = report(tmp_path)
    assert isinstance(done.exception, InputError)
    assert "there is nothing to show" in str(done.exception)
    assert "none is bundled" in done.exception.why
    assert not (tmp_path / "page").exists()


def test_folder_that_cannot_be_written(folder: Path) -> None:
    (folder / "page").write_text("a file")
    done = report(folder)
    assert isinstance(done.exception, StoreError)
    assert "give another folder with --out" in done.exception.fix
