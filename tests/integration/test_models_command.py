"""`advisor models` from outside: list, show, promote, roll back, check, as text and as JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from reading import answer_of
from small_model import POWER_TREES, SPEED_TREES, save_model
from typer.testing import CliRunner, Result

from advisor.errors import ModelError
from advisor_cli.app import app
from advisor_models import registry
from advisor_models.registry import Registry

FIGURES = {"oracle_throughput_per_watt_percent": 99.46, "rate_mean_error_percent": 5.93}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path / "home"))
    bundled = save_model(tmp_path / "bundled", version="20260101-bundle", figures=FIGURES)
    monkeypatch.setattr(registry, "BUNDLED", bundled)
    made = Registry(tmp_path / "home/models")
    for version in ("20260201-first", "20260301-second"):
        made.add(save_model(tmp_path / version, version=version, figures=FIGURES))
    return tmp_path / "home"


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, ["models", *words])


def answer(*words: str) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return answer_of(done.stdout)


@pytest.mark.usefixtures("home")
def test_list() -> None:
    head, *lines = [line.split() for line in run("list").stdout.splitlines()]
    assert "oracle" in head
    assert [line[0] for line in lines] == ["*", "20260201-first", "20260301-second"]
    assert lines[0][1:3] == ["bundled", "20260101-bundle"]
    assert all({"99.46", "5.93", "64", "ok", "Card", "2026-01-31"} <= set(line) for line in lines)
    rows = answer("list")["models"]
    assert [(row["model"], row["champion"], row["error"]) for row in rows] == [
        ("bundled", True, None), ("20260201-first", False, None), ("20260301-second", False, None)
    ]  # fmt: skip
    assert (rows[0]["version"], rows[1]["figures"]) == ("20260101-bundle", FIGURES)


def test_a_damaged_model_is_a_line_of_the_list_and_fails_the_check(home: Path) -> None:
    good = ["bundled: ok", "20260201-first: ok", "20260301-second: ok"]
    assert run("check").stdout.splitlines() == good
    (home / "models/versions/20260201-first" / SPEED_TREES).write_bytes(b"other")
    done = run("list")
    assert (done.exit_code, "SHA-256" in done.stdout) == (0, True)
    done = run("check", "--json")
    assert done.exit_code == ModelError.exit_code
    errors = {row["model"]: row["error"] for row in json.loads(done.stdout)["models"]}
    assert {row["model"]: row["error"] for row in answer("list")["models"]} == errors
    assert [name for name, error in errors.items() if error] == ["20260201-first"]
    assert run("check", "20260301-second").exit_code == 0


@pytest.mark.usefixtures("home")
def test_show() -> None:
    text = run("show").stdout
    for part in (
        "bundled: 20260101-bundle, the champion",
        "extra-trees, 5 trees",
        "64 pairs (640 points) of 2 jobs on 1 card: Card",
        "oracle_throughput_per_watt_percent",
        "predicts speed (50 features), power (32 features)",
    ):
        assert part in text
    found = answer("show", "20260201-first")
    assert (found["model"], found["champion"]) == ("20260201-first", False)
    manifest, power = found["manifest"], found["manifest"]["heads"][1]
    assert (manifest["version"], power["name"], power["unit"], power["intervals"]["split"]) == (
        "20260201-first", "power", "W", {"low": -0.1, "high": 0.05}
    )  # fmt: skip
    assert set(manifest["files"]) == {SPEED_TREES, POWER_TREES}


@pytest.mark.usefixtures("home")
def test_promote_and_roll_back(tmp_path: Path) -> None:
    first, second = "20260201-first", "20260301-second"
    assert f"{first} is the champion now; it was bundled" in run("promote", first).stdout
    assert run("promote", first).stdout == f"{first} is the champion already\n"
    assert answer("promote", second) == {"champion": second, "replaced": first}
    assert answer("rollback") == {"champion": first, "replaced": second}
    assert "bundled is the champion now" in run("rollback").stdout
    folder = save_model(tmp_path / "fresh", version="20260401-third")
    assert answer("promote", str(folder))["champion"] == "20260401-third"


def test_without_any_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_HOME", str(tmp_path))
    monkeypatch.setattr(registry, "BUNDLED", tmp_path / "none")
    (row,) = answer("list")["models"]
    assert "advisor train" in row["error"]
    assert run("check").exit_code == ModelError.exit_code
