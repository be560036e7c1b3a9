"""Sensors and kernels that come with the package: bundled, found, replayed."""

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_bundle import (
    BUNDLED,
    FOLDER_OF_BUNDLED,
    bundle_script,
)
from rich.console import Console
from synthetic_sensor import HEADER
from typer.testing import CliRunner, Result
from workload_scripts import load

from advisor.core.gpu import Gpu
from advisor.errors import AdvisorError
from advisor.settings import read_settings
from advisor.validity.sensor_record import keep_record, origin_of, record_for
from advisor_cli.app import app
from advisor_cli.measure import testbeds
from advisor_data.bundled import (
    all_sensors,
    bundled_kernels,
    bundled_sensors,
)
from advisor_power.kernels import bytes_of, operation_name, sensors_of
from advisor_power.sensor import bundled_trace, record_of

OTHERS_RECORD = "record of the power sensor: of another card of this model, bundled"
KERNEL = ("power", "kernel", "gemm", "--m", "400", "--n", "64", "--k", "64", "--gpu", "replay")


@pytest.fixture
def page_folder(bundled_power: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as what comes with the package."""
    copy = shutil.copytree(bundled_power, tmp_path / "bundled")
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: copy)
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    return copy


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package into which nothing has been put yet."""
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: tmp_path / "empty")


def advisor(*words: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(app, words)


# what is bundled


@pytest.mark.slow
def test_what_comes_with_the_package_is_whole() -> None:
    """Records are what their recordings say, and the data card lists them; nothing is made up."""
    for found in bundled_sensors():
        assert record_of(bundled_trace(found), "bundled") == found
        assert found.gpu_uuid != HEADER.gpu_uuid
    packed = [file.stat().st_size for file in (BUNDLED / "sensors").glob("*.gz")]
    assert max(packed, default=0) <= 200 * 1024
    assert len(packed) == len(bundled_sensors())
    assert all(one.source == "bundled" for one in bundled_kernels())
    assert not any("Fake" in one.gpu_model for one in bundled_kernels())
    card = (BUNDLED / "README.md").read_text("utf-8")
    assert bundle_script().renewed(card, BUNDLED) == card


# which record is used


@pytest.mark.slow
def test_order_of_records(page_folder: Path, tmp_path: Path) -> None:
    """This card, this host, the package; another driver or model never."""
    home = tmp_path / "home"
    (bundled,) = bundled_sensors()
    gpu = Gpu(uuid="GPU-9", model=bundled.gpu_model, driver=bundled.driver)
    assert sensors_of(gpu, all_sensors(home))[0] == bundled
    for model, driver in ((gpu.model, "590.0"), ("NVIDIA H200", bundled.driver)):
        assert record_for("GPU-9", model, driver, all_sensors(home)) is None
    for uuid in ("GPU-2", "GPU-9"):
        kept = replace(bundled, gpu_uuid=uuid, source="live")
        keep_record(kept, home)
        assert record_for("GPU-9", gpu.model, bundled.driver, all_sensors(home)) == kept
    assert origin_of(bundled, "GPU-9") == "of another card of this model, bundled"
    assert origin_of(kept, "GPU-9") == "of this card"


@pytest.mark.parametrize(
    ("uuid", "driver", "gpu", "said"),
    [
        ("GPU-9", "580.1", "0", OTHERS_RECORD),
        ("GPU-1", "580.1", "0", ""),
        ("GPU-9", "590.0", "0", None),
        ("GPU-9", "580.1", "replay", None),
    ],
)
def test_windows_say_where_the_record_is_of_another_card(
    uuid: str,
    driver: str,
    gpu: str,
    said: str | None,
    page_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = Gpu(uuid=uuid, model=HEADER.gpu_model, driver=driver)

    def the_card(_name: str) -> Gpu:
        return card

    monkeypatch.setattr(testbeds, "find_gpus", the_card)
    settings = read_settings({"ADVISOR_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})
    console = Console(file=io.StringIO(), width=200)
    assert (testbeds.measured_timing(settings, gpu, None, console) is not None) == (
        said is not None
    )
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().strip() == (said or "")


# what this host measured


# replays


def test_sensor_is_replayed(page_folder: Path) -> None:
    done = advisor("power", "sensor", "--gpu", "replay", "--json")
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (answer["source"], answer["accepted"]) == ("replay", True)
    assert {error["way"] for error in answer["reading_errors"]} == {
        "instant", "average", "counter", "ours",
    }  # fmt: skip
    assert set(answer["reading_errors"][0]) == {"kernel_s", "way", "median", "p95", "readings"}
    assert re.search(r"^REPLAY of a recording of NVIDIA H100 80GB HBM3, GPU-1", done.stderr)
    assert "no GPU is used" in done.stderr
    text = advisor("power", "sensor", "--gpu", "replay", "--gpu-model", HEADER.gpu_model)
    assert "instant" in text.stdout


def test_kernel_is_replayed(page_folder: Path) -> None:
    done = advisor(*KERNEL, "--json")
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (answer["source"], answer["units"], answer["launch_energy_j"]["value"]) == (
        "replay",
        132,
        pytest.approx(answer["ssp_energy_j"]["value"] / 2),
    )
    assert done.stderr.startswith("REPLAY of a measurement of Fake H200")
    text = advisor(*KERNEL)
    assert all(part in text.stdout for part in ("SSP         at the end of", "deconvolved"))


def error_of(done: Result) -> AdvisorError:
    """What the command ended in."""
    assert isinstance(done.exception, AdvisorError)
    return done.exception


def test_kernel_that_was_not_measured_is_not_made_up(page_folder: Path) -> None:
    for more in (["--m", "401"], ["--units", "66"], ["--after", "gemv"], ["--rotate"]):
        assert "not among the measured" in str(error_of(advisor(*KERNEL, *more)))
    said = error_of(advisor(*KERNEL, "--gpu-model", "NVIDIA H100"))
    assert "on NVIDIA H100" in str(said)
    assert "gemm m=300 n=64 k=64 bf16 after idle at 66 SMs" in said.fix
    assert (
        "give --gpu-model one of"
        in error_of(advisor("power", "sensor", "--gpu", "replay", "--gpu-model", "NVIDIA X")).fix
    )


@pytest.mark.usefixtures("nothing")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("power", "sensor", "--gpu", "replay"), "no recording of a power sensor comes with"),
        (KERNEL, "no measured kernel comes with"),
    ],
)
def test_replay_of_nothing_says_so(words: tuple[str, ...], said: str) -> None:
    assert bundled_sensors() == bundled_kernels() == []
    assert said in str(error_of(advisor(*words)))


def test_damaged_package_says_so(page_folder: Path) -> None:
    replay = ("power", "sensor", "--gpu", "replay")
    (recording,) = (page_folder / "sensors").glob("*.gz")
    recording.write_bytes(recording.read_bytes()[:100])
    assert "install advisor again" in error_of(advisor(*replay)).fix
    recording.unlink()
    assert "missing or damaged" in str(error_of(advisor(*replay)))


def test_model_is_for_a_replay() -> None:
    said = str(error_of(advisor("power", "sensor", "--gpu-model", "NVIDIA H200")))
    assert "--gpu-model is for a replay" in said


def test_operations_are_named_as_the_workload_names_them() -> None:
    """Else nothing that was measured would be found."""
    script = load("kernel_power")
    for name in script.NAMES:
        for rotate in (False, True)[: 1 if name.startswith("all-") else 2]:
            words = [name, "--m", "3", "--n", "4", "--k", "5", *(["--rotate"] if rotate else [])]
            args = script.parser(None).parse_args([*words, "--bytes", "64KiB"])
            sizes = {"m": 3, "n": 4, "k": 5, "bytes": bytes_of("64KiB")}
            assert operation_name(name, sizes, "bf16", rotate=rotate) == script.canonical(args)
