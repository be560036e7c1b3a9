"""`advisor next` from outside: table, JSON, and a plan that `advisor colocate` takes."""

import json
from pathlib import Path

import pytest
import synthetic_pairs as made_up
from command_line import Advisor
from made_up_rows import solo_points
from new_database import keep
from reading import answer_of

from advisor.core.records import PairPoint, SoloPoint
from advisor_cli.learn import next as command
from advisor_profiling.campaign.plan import load_plan
from advisor_training.rows import PointSet

JOBS = ("climber", "hog", "middle", "new", "sitter")


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three pairs of four jobs, without the bundled points."""

    def alone(pairs: list[PairPoint], solos: list[SoloPoint], _: object) -> PointSet:
        return PointSet(
            pairs=tuple(pairs), profiled=tuple(solos), references=(), left_out=(), sources=()
        )

    monkeypatch.setattr(command, "with_all_bundled", alone)
    (tmp_path / "jobs").mkdir()
    for job in JOBS:
        (tmp_path / "jobs" / f"{job}.yaml").write_text("command: 'true'\n")
    monkeypatch.setenv("ADVISOR_JOBS", str(tmp_path / "jobs"))
    pairs = [(made_up.CLIMBER, made_up.SITTER), (made_up.SITTER, made_up.HOG)]
    keep(tmp_path / "home", *solo_points(), *made_up.pair_points(pairs))


def test_table(advisor: Advisor) -> None:
    lines = advisor("next", "--minutes", "10").out.splitlines()
    assert lines[0] == "to measure on Made-up GPU, 10 GPU minutes at most:"
    assert lines[1].split() == ["what", "minutes", "total", "why"]
    assert [line.split()[0] for line in lines[2:5]] == ["check", "profile", "pair"]
    commands = [line.strip() for line in lines[lines.index("run:") + 1 :]]
    assert commands[:2] == ["advisor check", "advisor profile new"]
    assert commands[2].startswith("advisor colocate --pairs ")


def test_json(advisor: Advisor, tmp_path: Path) -> None:
    plan = str(tmp_path / "more.yaml")
    answer = answer_of(advisor("next", "--minutes", "20", "--json", "--plan", plan).out)
    steps = answer.pop("steps")
    assert answer == {"gpu_model": made_up.GPU_MODEL, "minutes": 20, "plan": plan}
    keys = {"kind", "jobs", "why", "minutes", "total_minutes", "command"}
    assert [step.keys() for step in steps] == [keys] * len(steps)
    assert {step["kind"] for step in steps} == {"check", "profile", "pair"}


def test_the_plan_is_what_colocate_takes(advisor: Advisor, tmp_path: Path) -> None:
    path = tmp_path / "more.yaml"
    steps = json.loads(advisor("next", "--json", "--plan", str(path)).out)["steps"]
    (entry,) = load_plan(path, JOBS).entries
    assert [list(pair) for pair in entry.pairs] == [s["jobs"] for s in steps if s["kind"] == "pair"]
    assert len(entry.splits) == 10
    assert f"advisor colocate {path}" in advisor("next", "--plan", str(path)).out


def test_a_plan_without_pairs_is_not_written(advisor: Advisor, tmp_path: Path) -> None:
    said = advisor("next", "--minutes", "1.5", "--plan", str(tmp_path / "more.yaml"))
    assert "more.yaml is not written: no pair is among these" in said.out
    assert (said.code, (tmp_path / "more.yaml").exists()) == (0, False)


def test_nothing_fits(advisor: Advisor, tmp_path: Path) -> None:
    for path in (tmp_path / "jobs").iterdir():
        path.unlink()
    said = advisor("next", "--minutes", "2")
    assert said.out == "nothing to measure on Made-up GPU in 2 minutes\n"


def test_a_plan_that_cannot_be_written(advisor: Advisor, tmp_path: Path) -> None:
    said = advisor("next", "--plan", str(tmp_path / "none/more.yaml"))
    assert said.code != 0
    assert "more.yaml cannot be written. No such file" in said.err


def test_a_faulty_job_file_is_named_and_left_out(advisor: Advisor, tmp_path: Path) -> None:
    (tmp_path / "jobs/broken.yaml").write_text("comand: 'true'\n")
    said = advisor("next")
    assert [said.code, "broken.yaml" in said.err, "broken" in said.out] == [0, True, False]
