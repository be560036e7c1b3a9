"""`advisor report power`: what data, jobs and pairs draw."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_bundle import FOLDER_OF_BUNDLED
from made_up_inputs import CONDITIONS, case, result
from reading import answer_of
from typer.testing import CliRunner, Result

from advisor.errors import StoreError
from advisor_cli.app import app
from advisor_power.data.result import InputPower, input_lines
from advisor_power.report import COLOURS

STYLE = Path(__file__).parents[2] / "api/advisor_api/pages/style.css"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of power is bundled."""
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: tmp_path / "empty")
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    return tmp_path


def report(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["report", "power", "--out", str(folder / "page"), *options])


def page_of(folder: Path) -> str:
    return (folder / "page/power.html").read_text("utf-8")


def keep(folder: Path, results: Sequence[InputPower]) -> Path:
    kept = input_lines(folder / "home", "GPU-1")
    for one in results:
        kept.add(one)
    return kept.path


def test_measured_data_are_a_table_for_each_kind(folder: Path) -> None:
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
    keep(folder, found)
    answer = answer_of(report(folder, "--json").stdout)
    ratios = {one["operands"]: one["reference_ratio"] for one in answer["inputs"]}
    assert len(ratios) == len(found)
    assert ratios[case("zeros").operands]["value"] == pytest.approx(0.75)
    page = page_of(folder)
    assert page.count("<h2>Input: ") == 3
    assert "<h2>Input: bf16 on Fake H200, 66 SMs</h2>" in page
    assert re.search(r"<td>300\.0 \[29\d\.\d, 300\.8\]</td><td>0\.750 ", page)
    assert digest[:8] in page
    unwanted = (digest, "http", "<script")
    assert [words for words in unwanted if words in page.replace("http://www.w3.org", "")] == []


def test_results_that_cannot_be_read_are_an_error(folder: Path) -> None:
    keep(folder, [result(case("zeros"))]).write_text('{"case": 1}\n')
    done = report(folder)
    assert isinstance(done.exception, StoreError)
    assert "remove that line" in done.exception.fix


def test_other_gpu_models_are_left_out(folder: Path) -> None:
    keep(folder, [result(case("zeros"))])
    assert report(folder, "--gpu-model", "Other").exception is not None
    assert report(folder, "--gpu-model", "Fake H200").exit_code == 0


def test_jobs_and_a_pair_are_drawn_where_asked_for(folder: Path) -> None:
    """The same numbers as `advisor power components`; what is not known is said, not drawn."""
    of_h200 = ("--gpu-model", "NVIDIA H200")
    asked = ("--job", "triad", "--job", "nosuch", "--pair", "triad", "matmul-bf16")
    answer = answer_of(report(folder, "--json", *of_h200, *asked).stdout)
    job, pair = answer["components"]
    words = ["power", "components", "triad", *of_h200, "--json"]
    assert job == answer_of(CliRunner().invoke(app, words).stdout)
    words = ["power", "components", "triad", "matmul-bf16", "--splits", *of_h200, "--json"]
    assert pair == answer_of(CliRunner().invoke(app, words).stdout)
    (unknown,) = answer["components_unknown"]
    assert "nosuch goes to is not known" in unknown
    page = page_of(folder)
    assert page.count("<figure>") == 2
    assert unknown.split(".")[0] in page
    for one in pair["splits"]:
        assert one["jostling"] in page
    power = job["shares"][0]["power"]
    assert f"<td>{power['headroom_w']:.0f}</td>" in page
    for value in power["components_w"].values():
        assert f"{value['value']:.0f} [{value['low']:.0f}, {value['high']:.0f}]</td>" in page
    assert all(colour in page for colour in COLOURS.values())


def test_parts_have_the_colours_of_the_pages() -> None:
    """One part is one colour wherever it is drawn."""
    assert dict(re.findall(r"\.part-(\w+) \{ fill: (#\w{6}); \}", STYLE.read_text())) == COLOURS
