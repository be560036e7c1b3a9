"""`advisor report power`: what data, jobs and pairs draw."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_bundle import FOLDER_OF_BUNDLED
from made_up_inputs import CONDITIONS, OUTPUTS, case, result
from reading import answer_of
from typer.testing import CliRunner, Result

from advisor.errors import StoreError
from advisor_cli.app import app
from advisor_power.inputs.case import InputCase
from advisor_power.inputs.claims import CLAIMS, with_seed
from advisor_power.inputs.keeping import input_lines
from advisor_power.inputs.result import InputPower
from advisor_power.reports.parts import COLOURS

STYLE = Path(__file__).parents[2] / "api/advisor_api/pages/style.css"

ZEROS = next(claim for claim in CLAIMS if claim.name == "T12").cases("bf16")
"""Cases by the part of zeros."""

SPREAD = next(claim for claim in CLAIMS if claim.name == "T1").cases("bf16")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of power is bundled."""
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: tmp_path / "empty")
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    return tmp_path


def report(folder: Path, *options: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["report", "power", "--out", str(folder / "page"), *options])


def page_of(folder: Path) -> str:
    """What it wrote."""
    return (folder / "page/power.html").read_text("utf-8")


def keep(folder: Path, results: Sequence[InputPower]) -> Path:
    """As `advisor power input` would have kept them."""
    kept = input_lines(folder / "home", "GPU-1")
    for one in results:
        kept.add(one)
    return kept.path


def levels(cases: dict[float, InputCase], *watts: float, **changes: Any) -> list[InputPower]:
    """A reference of 400 W before each level and at the end, and the levels."""
    reference = case("normal(0,1024)")
    first = replace(next(iter(cases.values())), operands=reference.operands)
    found: list[InputPower] = []
    for n, (of, power_w) in enumerate(zip(cases.values(), watts, strict=False)):
        found.append(result(first, 400.0, at_s=10.0 * n, is_reference=True))
        found.append(result(of, power_w, at_s=10.0 * n + 5, **changes))
    return [*found, result(first, 400.0, at_s=1000.0, is_reference=True)]


def sweep_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """One sweep of the only report."""
    (one,) = answer["inputs"]
    return next(sweep for sweep in one["sweeps"] if sweep["name"] == name)


def as_json(folder: Path, *options: str) -> dict[str, Any]:
    """The answer for programs."""
    done = report(folder, "--json", *options)
    assert done.exit_code == 0, done.output
    return answer_of(done.stdout)


def test_a_sweep_is_a_curve_over_the_reference_and_a_verdict(folder: Path) -> None:
    """Ratios, intervals, change and verdict are those of what was kept."""
    watts = (400.0, 380.0, 360.0, 340.0, 320.0, 300.0)
    keep(folder, levels(dict(ZEROS), *watts))
    answer = as_json(folder)
    sweep = sweep_of(answer, "T12")
    assert [level["level"] for level in sweep["levels"]] == list(ZEROS)
    for level, power_w in zip(sweep["levels"], watts, strict=True):
        assert level["value"]["value"] == pytest.approx(power_w / 400)
        assert level["value"]["low"] < power_w / 400 < level["value"]["high"]
    assert sweep["change"]["value"] == pytest.approx(-0.25)
    assert (sweep["quantity"], sweep["verdict"]) == ("ratio", "confirmed")
    page = page_of(folder)
    assert "<h2>Input: bf16 on Fake H200, 66 SMs</h2>" in page
    assert re.search(r"<td>T12</td><td>zeros draw less</td><td>confirmed</td><td>-25.0%", page)
    assert "T12, zeros draw less: confirmed. Power over the reference by level" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "<script" not in page


def test_json_keys_of_inputs_stay(folder: Path) -> None:
    """Programs read them."""
    keep(folder, levels(dict(ZEROS), 400.0, 300.0))
    answer = as_json(folder)
    (one,) = answer["inputs"]
    assert set(one) == {
        "gpu_model", "gpu_uuid", "driver", "torch", "units", "dtype", "measured_at", "sweeps",
        "others",
    }  # fmt: skip
    assert set(one["sweeps"][0]) == {
        "name", "says", "paper", "quantity", "levels", "left_out", "change", "clocks_mhz",
        "verdict",
    }  # fmt: skip


def test_at_the_limit_energy_is_shown(folder: Path) -> None:
    """Power is the same there, and would say that data do not matter; here speed doubles."""
    capped = levels(dict(SPREAD), 700.0, 700.0, throttle_reasons=("sw-power-cap",))
    capped[3] = replace(capped[3], rate=replace(capped[3].rate, value=2000.0))
    keep(folder, capped[:4])
    sweep = sweep_of(as_json(folder), "T1")
    assert sweep["quantity"] == "energy"
    assert sweep["levels"][1]["value"]["value"] == pytest.approx(
        sweep["levels"][0]["value"]["value"] / 2
    )
    assert "<td>energy</td>" in page_of(folder)


def test_levels_that_say_nothing_are_counted_and_not_drawn(folder: Path) -> None:
    """Outputs that are not finite, and a sweep of one level: no curve, and open."""
    broken = levels(dict(SPREAD), 400.0, 380.0, outputs=replace(OUTPUTS, nan=3))
    keep(folder, [*broken, *levels(dict(ZEROS), 400.0)])
    answer = as_json(folder)
    (one,) = answer["inputs"]
    spread = next(s for s in one["sweeps"] if s["name"] == "T1")
    assert spread["left_out"] == 2
    assert all(s["verdict"] == "open" for s in one["sweeps"] if len(s["levels"]) < 2)
    assert "2 not finite" in page_of(folder)
    assert "T1, spread" not in page_of(folder)


def test_own_data_seeds_cards_and_types_are_kept_apart(folder: Path) -> None:
    """Data of no sweep are a table of their own; another driver's older results are left out."""
    own = result(case("uniform(0,1)"), 350.0, at_s=2000.0)
    old = result(case("ones"), 350.0, conditions=replace(CONDITIONS, driver="570"), at_s=-9.0)
    whole = result(case("ones"), 650.0, conditions=replace(CONDITIONS, units=132))
    fp16 = result(case("uniform(0,2)", "fp16"), 360.0)
    seeds = [result(with_seed(ZEROS[0.0], n), 400.0, at_s=3000.0 + n, ratio=1.0) for n in range(3)]
    level = result(ZEROS[0.2], 390.0, at_s=3010.0, ratio=0.98)
    keep(folder, [old, own, whole, fp16, *seeds, level])
    found = {(one["dtype"], one["units"]): one for one in as_json(folder)["inputs"]}
    assert set(found) == {("bf16", 66), ("bf16", 132), ("fp16", 66)}
    (other,) = found["bf16", 66]["others"]
    assert "uniform(0,1)" in other["case"]
    assert found["fp16", 66]["sweeps"] == []
    page = page_of(folder)
    assert "No takeaway was measured at two levels" in page
    assert "uniform(0,1)" in page


def test_the_reference_alone_is_no_sweep(folder: Path) -> None:
    """Many sweeps begin with it; it stands among the other data. Hashes of files are cut."""
    digest = "0123456789abcdef" * 4
    of_file = f'a=file("a.npy",sha256="{digest}"); b=zeros; align=true; seed=0'
    real = replace(result(case()), case=replace(case(), operands=of_file))
    keep(folder, [*levels(dict(ZEROS), 400.0), real])
    (one,) = as_json(folder)["inputs"]
    assert one["sweeps"] == []
    assert {other["case"].split(";")[0] for other in one["others"]} == {
        "a=normal(0,1024)", f'a=file("a.npy",sha256="{digest}")',
    }  # fmt: skip
    page = page_of(folder)
    assert digest not in page
    assert digest[:8] in page


def test_results_that_cannot_be_read_are_an_error(folder: Path) -> None:
    """With the file's name, and what to do."""
    keep(folder, levels(dict(ZEROS), 400.0)).write_text('{"case": 1}\n')
    done = report(folder)
    assert isinstance(done.exception, StoreError)
    assert "remove that line" in done.exception.fix


def test_other_gpu_models_are_left_out(folder: Path) -> None:
    """With --gpu-model, as kernels are."""
    keep(folder, levels(dict(ZEROS), 400.0, 300.0))
    assert report(folder, "--gpu-model", "Other").exception is not None
    assert report(folder, "--gpu-model", "Fake H200").exit_code == 0


def test_jobs_and_a_pair_are_drawn_where_asked_for(folder: Path) -> None:
    """The same numbers as `advisor power components`; what is not known is said, not drawn."""
    of_h200 = ("--gpu-model", "NVIDIA H200")
    asked = ("--job", "triad", "--job", "nosuch", "--pair", "triad", "matmul-bf16")
    answer = as_json(folder, *of_h200, *asked)
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
    for colour in COLOURS.values():
        assert colour in page


def test_parts_have_the_colours_of_the_pages() -> None:
    """One part is one colour wherever it is drawn."""
    assert dict(re.findall(r"\.part-(\w+) \{ fill: (#\w{6}); \}", STYLE.read_text())) == COLOURS
