"""`advisor report dataset` from outside: files, table, JSON, errors."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import synthetic_pairs as made_up
from command_line import Advisor, in_this_process

from advisor.core.records import PairPoint
from advisor_data.files.files import write_points


@dataclasses.dataclass(frozen=True)
class Data:
    """Files of made-up points, and the folder that they lie in."""

    folder: Path
    pairs: Path
    solo: Path


REPORT = ("report", "dataset")


def report(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "advisor_cli", *REPORT, *options],
        cwd=folder,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def measured() -> list[PairPoint]:
    """Every made-up pair twice; of climber next to climber one split failed its cross-check."""
    first = made_up.pair_points(run="first", noise=0.01)
    doubtful = dataclasses.replace(first[0], flags=("throttled", "counter-mismatch"))
    return [doubtful, *first[1:], *made_up.pair_points(run="second", noise=0.01, seed=1)]


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    """In this process: libraries are loaded once."""
    monkeypatch.setenv("COLUMNS", "120")
    return in_this_process(capsys, monkeypatch, tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Data:
    made = Data(tmp_path, tmp_path / "pairs.parquet", tmp_path / "solo.csv")
    write_points(made.pairs, measured())
    write_points(made.solo, made_up.solo_points())
    return made


def test_page_image_and_table(data: Data) -> None:
    """One command writes both files and prints what they say in short."""
    done = report(data.folder, "--pairs", str(data.pairs), "--solo", str(data.solo))
    assert done.returncode == 0, done.stderr
    assert "An uneven split beats 50/50 by more than the noise" in done.stdout
    assert "1 point left out: pair points flagged counter-mismatch" in done.stdout
    lines = [line for line in done.stdout.splitlines() if " of 15 " in line and "%" in line]
    names = [line.split()[0] for line in lines]
    assert "throughput-per-watt" in names
    assert "max-min" in names
    assert done.stdout.endswith("written: report/dataset.html, report/dataset.png\n")
    assert (data.folder / "report/dataset.png").read_bytes().startswith(b"\x89PNG")
    assert "Made-up GPU" in (data.folder / "report/dataset.html").read_text()


def test_json_for_programs(data: Data, advisor: Advisor) -> None:
    """The whole analysis on stdout, and where the files are."""
    options = ("--pairs", str(data.pairs), "--solo", str(data.solo), "--out", "here", "--json")
    answer = json.loads(advisor(*REPORT, *options).out)
    assert answer["files"] == ["here/dataset.html", "here/dataset.png"]
    assert answer["pair_points"] == 359
    assert answer["left_out"] == [{"reason": "pair points flagged counter-mismatch", "points": 1}]
    assert answer["objectives"]["throughput-per-watt"]["ceiling"]["pairs"] == 15
    everything = json.loads(advisor(*REPORT, *options, "--flagged").out)
    assert (everything["pair_points"], everything["left_out"]) == (360, [])


def test_doubtful_solo_points_are_left_out(data: Data, advisor: Advisor) -> None:
    """A reference that failed a cross-check is none, unless asked for."""
    solos = made_up.solo_points()
    marked = [
        dataclasses.replace(p, flags=("not-settled",)) if p.job == "sitter" else p for p in solos
    ]
    write_points(data.solo, marked)
    options = ("--pairs", str(data.pairs), "--solo", str(data.solo), "--json")
    answer = json.loads(advisor(*REPORT, *options).out)
    reasons = {item["reason"]: item["points"] for item in answer["left_out"]}
    assert reasons["solo points flagged as doubtful"] == 10
    assert reasons["no solo point of sitter on the whole Made-up GPU"] == 5 * 2 * 12
    assert len(answer["pairs"]) == 10


def test_files_of_the_wrong_kind_are_refused(data: Data, advisor: Advisor) -> None:
    """Solo points where pairs are wanted: the file and the options are named."""
    done = advisor(*REPORT, "--pairs", str(data.solo), "--json")
    assert done.code == 2
    error = json.loads(done.out)["error"]
    assert error["code"] == "bad-input"
    assert "solo.csv has solo points where pair points are wanted" in error["message"]
    assert "Traceback" not in done.err
    assert not (data.folder / "report").exists()


def test_jobs_that_nobody_measured_alone_are_named(data: Data, advisor: Advisor) -> None:
    """Without solo points there is no relative speed; the message says of which job."""
    write_points(data.solo, [])
    done = advisor(*REPORT, "--pairs", str(data.pairs), "--solo", str(data.solo))
    assert done.code == 2
    assert "no solo point of climber on the whole Made-up GPU" in done.err
