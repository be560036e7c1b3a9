"""`advisor report power`: the page and the image of made-up sensors and kernels."""

import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_bundle import (
    BUNDLED,
    FOLDER_OF_BUNDLED,
    bundle_script,
    kernel_report,
)
from made_up_inputs import CONDITIONS, case, result
from reading import answer_of
from rich.console import Console
from synthetic_sensor import HEADER
from typer.testing import CliRunner, Result
from workload_scripts import load

from advisor.core.gpu import Gpu
from advisor.errors import AdvisorError, InputError, StoreError
from advisor.settings import read_settings
from advisor.validity.sensor_record import SENSOR_RECORDS, keep_record, origin_of, record_for
from advisor_cli.app import app
from advisor_cli.measure import testbeds
from advisor_data.measurements import (
    KERNEL_REPORTS,
    all_sensors,
    bundled_kernels,
    bundled_sensors,
)
from advisor_power.data.measuring import InputPower, input_lines
from advisor_power.kernels.runs import bytes_of, operation_name, sensors_of
from advisor_power.report import LIMITS
from advisor_power.sensor.analysis import record_of
from advisor_power.sensor.trace import bundled_trace

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


@pytest.mark.slow
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
        "sensors", "kernels", "inputs", "files",
    }  # fmt: skip
    (sensor,) = answer["sensors"]
    assert {error["way"] for error in sensor["reading_errors"]} == {
        "instant", "average", "counter", "ours",
    }  # fmt: skip
    assert set(sensor["reading_errors"][0]) == {"kernel_s", "way", "median", "p95", "readings"}
    assert (
        [kernel["units"] for kernel in answer["kernels"]],
        [Path(file).name for file in answer["files"]],
    ) == ([66, 132], ["power.html"])


def test_recordings_of_this_host_are_found(folder: Path, bundled_power: Path) -> None:
    """By card and moment; files that are broken are passed over, and a record may lack its own."""
    (known,) = bundled_sensors()
    here = replace(known, source="live", gpu_model="Here", channels=known.channels[:1])
    keep_record(here, folder / "home")
    keep_record(replace(here, driver="590.0", measured_at="2027-01-01T00:00:00Z"), folder / "home")
    recordings = folder / "home" / SENSOR_RECORDS.name / "recordings"
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
    assert (
        page.count("<figure>"),
        page.count("Its recording is not here, so there are no curves."),
        page.count("was not recorded on this card"),
    ) == (2, 1, 1)


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
    for part in (
        "No curve: only 7 golden runs: it takes 20.",
        "SSP: none",
        "Energy counter: this card has no energy counter.",
        "3 dropped: throttled",
    ):
        assert part in page
    assert "<b>mine" not in page


def test_nothing_to_show_is_an_error(empty: Path) -> None:
    error = report(empty).exception
    assert isinstance(error, InputError)
    for part in ("there is nothing to show", "none is bundled"):
        assert part in str(error)
    assert not (empty / "page").exists()


def test_folder_that_cannot_be_written(folder: Path) -> None:
    (folder / "page").write_text("a file")
    done = report(folder)
    assert isinstance(done.exception, StoreError)
    assert "give another folder with --out" in done.exception.fix


# `advisor report power`: what data draw


STYLE = Path(__file__).parents[2] / "api/advisor_api/pages/style.css"


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of power is bundled."""
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: tmp_path / "empty")
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    return tmp_path


def keep(empty: Path, results: Sequence[InputPower]) -> Path:
    """As `advisor power input` would have kept them."""
    kept = input_lines(empty / "home", "GPU-1")
    for one in results:
        kept.add(one)
    return kept.path


def test_measured_data_are_a_table_for_each_kind(empty: Path) -> None:
    """Cards, types, SMs and drivers are kept apart; hashes of files are cut."""
    digest = "0123456789abcdef" * 4
    of_file = f'a=file("a.npy",sha256="{digest}"); b=zeros; align=true; seed=0'
    found = [
        result(case("normal(0,1024)"), 400.0, is_reference=True),
        result(case("zeros"), 300.0, at_s=1.0),
        result(replace(case(), operands=of_file), 320.0, at_s=2.0),
        result(case("uniform(0,2)", "fp16"), 360.0),
        result(case("ones"), 650.0, conditions=replace(CONDITIONS, units=132)),
    ]
    keep(empty, found)
    inputs = {one["operands"]: one for one in answer_of(report(empty, "--json").stdout)["inputs"]}
    assert len(inputs) == len(found)
    assert inputs[case("zeros").operands]["reference_ratio"]["value"] == pytest.approx(0.75)
    page = page_of(empty)
    assert page.count("<h2>Input: ") == 3
    assert re.search(r"<td>300\.0 \[29\d\.\d, 300\.8\]</td><td>0\.750 ", page)
    for part in ("<h2>Input: bf16 on Fake H200, 66 SMs</h2>", digest[:8]):
        assert part in page
    for part in (digest, "<script"):
        assert part not in page


def test_results_that_cannot_be_read_are_an_error(empty: Path) -> None:
    """With the file's name, and what to do."""
    keep(empty, [result(case("zeros"))]).write_text('{"case": 1}\n')
    done = report(empty)
    assert isinstance(done.exception, StoreError)
    assert "remove that line" in done.exception.fix


def test_other_gpu_models_are_left_out(empty: Path) -> None:
    """With --gpu-model, as kernels are."""
    keep(empty, [result(case("zeros"))])
    assert report(empty, "--gpu-model", "Other").exception is not None
    assert report(empty, "--gpu-model", "Fake H200").exit_code == 0


# Sensors and kernels that come with the package: bundled, found, replayed.


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
    assert sensors_of(gpu, all_sensors(home)).record == bundled
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
    script = load("kernel_operations")
    for name in script.NAMES:
        for rotate in (False, True)[: 1 if name.startswith("all-") else 2]:
            words = [name, "--m", "3", "--n", "4", "--k", "5", *(["--rotate"] if rotate else [])]
            args = script.parser(None).parse_args([*words, "--bytes", "64KiB"])
            sizes = {"m": 3, "n": 4, "k": 5, "bytes": bytes_of("64KiB")}
            assert operation_name(name, sizes, "bf16", rotate=rotate) == script.canonical(args)
