"""`advisor retrain` as cron calls it, on a store of made-up points and the bundled model."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import retraining
from command_line import Advisor, answered, in_this_process
from new_database import keep
from retraining import BUNDLED_POINTS, NEW_POINTS, bundled_model, few_trees, launched

from advisor.errors import StoreError
from advisor_data import open_store
from advisor_models import registry
from advisor_training import retrain as collected
from advisor_training.retrain import working_in

KEYS = {
    "at", "outcome", "why", "champion", "replaced", "challenger", "new_points", "used_points",
    "left_out", "launches_left_out", "compared", "removed", "summary",
}  # fmt: skip
COMPARED_KEYS = {
    "group", "figure", "tests", "jobs", "champion_percent", "challenger_percent", "gain_percent",
    "low_percent", "high_percent", "decides",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def small_models() -> Iterator[None]:
    with few_trees():
        yield


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    monkeypatch.setattr(registry, "BUNDLED", bundled_model(tmp_path / "bundled"))
    monkeypatch.setattr(collected, "bundled_points", lambda: BUNDLED_POINTS)
    return in_this_process(capsys, monkeypatch, tmp_path)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.slow
def test_a_night_from_the_store_to_the_service(home: Path, advisor: Advisor) -> None:
    failed = replace(launched(BUNDLED_POINTS.pairs[0], 0), state="failed")
    keep(home, *NEW_POINTS, failed, launched(BUNDLED_POINTS.pairs[4], 1))
    found = answered(advisor, "retrain", "--metrics", "advisor.prom")
    assert set(found) == KEYS
    assert {frozenset(one) for one in found["compared"]} == {frozenset(COMPARED_KEYS)}
    expected = {
        "outcome": "promoted", "replaced": "bundled", "new_points": len(list(NEW_POINTS)) + 1,
        "launches_left_out": [{"reason": "launches that failed", "points": 1}],
    }  # fmt: skip
    assert {**found, **expected} == found
    assert 'outcome{outcome="promoted"} 1.0' in Path("advisor.prom").read_text()
    assert json.loads(advisor("models", "show", "--json").out)["model"] == found["champion"]
    quiet = advisor("retrain", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    said = advisor("retrain").out
    assert said.startswith(f"{found['champion']} stays: nothing new was measured")
    assert "  1 left out: launches that failed" in said
    assert "launches" not in advisor("retrain", "--no-launches").out
    assert advisor("models", "rollback").code == 0
    assert advisor("retrain", "--quiet").out == ""
    assert json.loads(advisor("models", "show", "--json").out)["model"] == "bundled"


def test_points_left_out_are_named(home: Path, advisor: Advisor) -> None:
    bad = retraining.faster(NEW_POINTS.pairs[0], 100)
    keep(home, bad)
    assert "1 left out: 1 impossible" in advisor("retrain", "--quiet").out
    (home / "models/retrain/last.json").unlink()
    found = json.loads(advisor("retrain", "--json").out)
    [left_out] = found["left_out"]
    assert left_out.keys() == {"reason", "points", "example", "point_ids"}
    assert (found["outcome"], left_out["reason"], left_out["point_ids"]) == (
        "nothing-new", "impossible", [bad.point_id]
    )  # fmt: skip
    with open_store(None, home) as store:
        assert [point.point_id for point in store.pair_points()] == [bad.point_id]
    assert advisor("retrain", "--quiet").out == ""
    assert advisor("retrain").out.startswith("bundled stays: nothing new since")


def test_without_a_store_there_is_nothing_new(home: Path, advisor: Advisor) -> None:
    assert json.loads(advisor("retrain", "--json").out)["outcome"] == "nothing-new"
    assert not (home / "advisor.db").exists()


def test_a_second_run_ends_at_once(home: Path, advisor: Advisor) -> None:
    home.mkdir(mode=0o700)
    with working_in(home / "models"):
        done = advisor("retrain", "--json")
    assert (done.code, json.loads(done.out)["error"]["code"]) == (8, "busy")


def test_metrics_that_cannot_be_written(home: Path, advisor: Advisor) -> None:
    done = advisor("retrain", "--metrics", "no/such/folder/advisor.prom")
    assert done.code == 7
    assert "the run itself came to its end" in done.err


# Runs of retraining that are killed, or that meet a full disk: the champion serves on.


FAKES = Path(retraining.__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("points", [2, pytest.param(10, marks=pytest.mark.nightly)])
def test_killed_at_random_points(tmp_path: Path, points: int) -> None:
    """The old or the new champion, versions that are whole, and a next run that comes to its end.

    A process that may write no file of the size of a model ends as on a full disk.
    """
    done = subprocess.run(
        [sys.executable, FAKES / "killed_retrain.py", tmp_path, str(points), "7"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    versions, champion = found["after"]
    assert (versions, len(found["seen"])) == ([champion], points)
    assert found["changes"] > 10
    for seen in found["seen"]:
        assert seen in ([[], "bundled"], [versions, "bundled"], [versions, champion])
    assert (found["full"], found["left_when_full"]) == (StoreError.exit_code, [[[], "bundled"], []])
