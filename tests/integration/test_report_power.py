"""`advisor report power`: the page and the image of made-up sensors and kernels."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_bundle import FOLDER_OF_BUNDLED, kernel_report
from made_up_inputs import CONDITIONS, case, result
from reading import answer_of
from typer.testing import CliRunner, Result

from advisor.errors import InputError, StoreError
from advisor.validity.sensor_record import SENSOR_RECORDS, keep_record
from advisor_cli.app import app
from advisor_data.known import KERNEL_REPORTS, bundled_sensors
from advisor_power.data.measuring import InputPower, input_lines
from advisor_power.report import COLOURS, LIMITS

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
        "sensors", "kernels", "inputs", "components", "components_unknown", "files",
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


# `advisor report power`: what data, jobs and pairs draw


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


@pytest.mark.slow
def test_jobs_and_a_pair_are_drawn_where_asked_for(empty: Path) -> None:
    """The same numbers as `advisor power components`; what is not known is said, not drawn."""
    of_h200 = ("--gpu-model", "NVIDIA H200")
    asked = ("--job", "triad", "--job", "nosuch", "--pair", "triad", "matmul-bf16")
    answer = answer_of(report(empty, "--json", *of_h200, *asked).stdout)
    for jobs, told in zip(
        (["triad"], ["triad", "matmul-bf16", "--splits"]), answer["components"], strict=True
    ):
        words = ["power", "components", *jobs, *of_h200, "--json"]
        assert told == answer_of(CliRunner().invoke(app, words).stdout)
    (unknown,) = answer["components_unknown"]
    assert "nosuch goes to is not known" in unknown
    page = page_of(empty)
    assert page.count("<figure>") == 2
    job, pair = answer["components"]
    power = job["shares"][0]["power"]
    for part in (
        unknown.split(".")[0],
        f"<td>{power['headroom_w']:.0f}</td>",
        *(one["jostling"] for one in pair["splits"]),
        *(
            f"{v['value']:.0f} [{v['low']:.0f}, {v['high']:.0f}]</td>"
            for v in power["components_w"].values()
        ),
        *COLOURS.values(),
    ):
        assert part in page
