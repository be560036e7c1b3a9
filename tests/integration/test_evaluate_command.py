"""`advisor evaluate` from outside: files, tables, JSON, the check, errors."""

import json
from pathlib import Path

import pytest
import synthetic_pairs as made_up
from command_line import Advisor, answered, refusal
from made_up_rows import full_solo_points

from advisor_data.files import write_points

EVALUATE = ("evaluate", "--pairs", "pairs.parquet", "--solo", "solo.csv")


@pytest.fixture(autouse=True)
def _points(tmp_path: Path) -> None:
    """Files of made-up points."""
    write_points(tmp_path / "pairs.parquet", made_up.pair_points())
    write_points(tmp_path / "solo.csv", full_solo_points())


@pytest.mark.slow
def test_page_image_values_and_tables(
    tmp_path: Path, advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = advisor(*EVALUATE, "--quick")
    assert "by workload: extra-trees" in done.err
    methods = {line.split()[0] for line in done.out.splitlines() if line}
    assert {"extra-trees", "physical", "paper", "equal", "exclusive", "larger-rate"} <= methods
    assert done.out.endswith("written: report/evaluation.html, report/evaluation.json\n")
    found = json.loads((tmp_path / "report/evaluation.json").read_text())
    assert found["basis"]["pairs"] == 15
    [paper] = (e["errors"] for e in found["errors"]
               if (e["method"], e["splits"], e["pairs"]) == ("paper", "nine", "all"))  # fmt: skip
    assert {name for name, value in paper.items() if value is None} == {
        "rate", "speed"
    }  # fmt: skip


@pytest.mark.slow
def test_the_check_fails_on_other_figures(tmp_path: Path, advisor: Advisor) -> None:
    done = advisor(*EVALUATE, "--check", "--json", "--out", "here")
    error = json.loads(done.out)["error"]
    assert (done.code, error["code"]) == (9, "model")
    assert "error of extra-trees, power is" in error["message"]
    assert "% is wanted (bundled:" in error["message"]
    assert (tmp_path / "here/evaluation.html").exists()


def test_public_tables(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    done = advisor("evaluate", "--public", "parvagpu")
    assert "rate of 2 to 5 copies" in done.out
    assert "no gain 39.8, N times one 99.3" in done.out
    assert "parvagpu lacks kernels, watts\n" in done.out
    found = answered(advisor, "evaluate", "--public", "parvagpu")
    assert found["figures"][0]["off"]["no gain"]["percent"] == pytest.approx(39.8, abs=0.1)
    assert "git clone https://github.com/S-Lab" in advisor("evaluate", "--public", "lucid").err
    assert "add --public" in refusal(advisor("evaluate", "zeus"))
    assert "another question" in refusal(advisor("evaluate", "--public", "--quick"))


def test_a_folder_that_cannot_be_written_costs_no_time(advisor: Advisor) -> None:
    done = advisor(*EVALUATE, "--out", "solo.csv/x")
    assert done.code == 7
    assert "nothing can be written to solo.csv/x" in done.err
