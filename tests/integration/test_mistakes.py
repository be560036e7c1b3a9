"""Mistakes that people make at the command line: one line says what to do, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Advisor, in_its_own, in_this_process

from advisor_profiling.reports.doctor import examine_extras, lacking


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    return in_this_process(capsys, monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("profile", "triad", "--gpu", "replay", "--units", "500"), 2, "ask for 132."),
        (("profile", "triad", "--gpu", "replay", "--units", "13"), 2, "ask for 12 or 14."),
        (("profile", "triad", "--gpu", "replay", "--units", "7"), 2, "ask for 8."),
        (("place", "--jobs", "nofile.txt", "--gpus", "2"), 2, "nofile.txt cannot be read"),
        (("recommend", "gemm", "triad", "--min-speed", "50%"), 2, "write --min-speed 0.5."),
        (("recommend", "gemm", "triad", "--min-speed", "gemm=50%"), 2, "--min-speed gemm=0.5."),
        (("recommend", "gemm", "triad", "--min-speed", "half"), 2, "half has no number"),
        (("place", "gemm:four", "--gpus", "2"), 2, "write gemm:40 for forty of gemm"),
        (("place", ":4", "--gpus", "2"), 2, ":4 is not a job"),
        (("recommend", "gemm", "triad", "--objective", "energy"), 2, "did you mean energy"),
        (("recommend", "gemm", "triad", "--objective", "trouput"), 2, "did you mean throughput"),
        (("models", "promote", "./nofolder"), 9, "there is no such folder"),
        (("models", "promote", "."), 9, "there is no manifest.json in it"),
    ],
)
def test_message_and_exit_code(
    advisor: Advisor, words: tuple[str, ...], code: int, said: str
) -> None:
    """Each names the value and what to write instead."""
    done = advisor(*words)
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert "Errno" not in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("recommend", "gemm"), "Missing argument 'B'. try advisor recommend --help."),
        (("recommend", "gemm", "triad", "--max-power", "x"), "Invalid value for '--max-power'"),
        (("models", "promote"), "Missing argument 'model'. try advisor models promote --help."),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_wrong_words_are_json_where_json_is_wanted(
    advisor: Advisor, words: tuple[str, ...], said: str
) -> None:
    """A program reads one kind of error."""
    done = advisor(*words, "--json")
    assert done.code == 2
    error = json.loads(done.out)["error"]
    assert error["code"] == "bad-input"
    assert said in error["message"]
    assert "Usage: advisor" in advisor(*words).err


@pytest.mark.parametrize("words", [("recommend",), ("models", "promote"), ("launch",)])
def test_help_says_no_type_of_flags(advisor: Advisor, words: tuple[str, ...]) -> None:
    """A flag takes no value, and `<bool>` looks like one."""
    done = advisor(*words, "--help")
    assert "--json" in done.out
    assert "bool" not in done.out


def test_replay_of_what_was_not_recorded(advisor: Advisor) -> None:
    """It says which splits there are, and is no success."""
    replay = ("--gpu", "replay", "--json")
    done = advisor("colocate", "--pairs", "mobilenet-train-b2+triad", "--splits", "30/80", *replay)
    assert done.code == 2
    message = json.loads(done.out)["error"]["message"]
    assert "of mobilenet-train-b2 + triad were recorded 10/90, 20/80" in message
    done = advisor("colocate", "--pairs", "gemm+triad", "--splits", "50/50", *replay)
    assert "pairs were recorded, such as" in json.loads(done.out)["error"]["message"]


@pytest.mark.parametrize(("split", "said"), [("12/98", True), ("50/50", False), ("47/54", False)])
def test_over_subscribed_launch_gets_a_word(advisor: Advisor, split: str, said: bool) -> None:
    """Not where two whole percentages of exact counts add up to 101."""
    plan = advisor(
        "launch", "gemm", "triad", "--split", split, "--allow-unsafe", "--dry-run", "--json"
    )
    assert plan.code == 0, plan.err
    notes = json.loads(plan.out)["notes"]
    assert any("over-subscribed: 110 %" in note for note in notes) is said


def test_workdir_that_does_not_exist(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run sees it, too."""
    file = "command: 'true'\nworkdir: /nosuch\nprogress: {kind: counter, unit: step}\n"
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/mine.yaml").write_text(file)
    monkeypatch.setenv("ADVISOR_JOBS", str(tmp_path / "jobs"))
    done = advisor("launch", "mine", "mine", "--split", "50/50", "--dry-run")
    assert done.code == 2
    assert "the workdir of mine, /nosuch, does not exist" in done.err


@pytest.mark.parametrize(
    ("command", "extra", "option"),
    [
        ("train", "train", "--help"),
        ("evaluate", "train", "--json"),
        ("recommend", "advise", "--help"),
        ("drift", "advise", "--json"),
    ],
)
def test_command_whose_libraries_are_missing(
    tmp_path: Path, command: str, extra: str, option: str
) -> None:
    """The library and the extra that brings it, also where help was asked for."""
    done = in_its_own(tmp_path, command, option, without=("numpy", "sklearn"))
    assert done.returncode == 2
    assert f"{command} needs numpy, which is not installed".encode() in done.stderr
    assert f"pip install 'sm-advisor[{extra}]'".encode() in done.stderr
    assert b"Traceback" not in done.stderr


def test_doctor_tells_the_extras() -> None:
    """Those that are whole, and how to get the first of the others."""
    assert {"data", "advise", "train", "serve", "client"} <= set(lacking())
    (finding,) = examine_extras({"data": (), "train": ("scikit-learn",), "amd": ("amdsmi",)})
    assert finding.found == "installed: data; not installed: train and amd"
    assert finding.fix == "pip install 'sm-advisor[train]'"
    assert finding.verdict == "ok"


@pytest.mark.parametrize(
    ("words", "encoding"),
    [
        (("recommend", "gemm", "triad", "--all"), "cp1252"),
        (("profile", "triad", "--gpu", "replay"), "ascii"),
    ],
)
def test_terminal_that_cannot_show_all_characters(
    tmp_path: Path, words: tuple[str, ...], encoding: str
) -> None:
    """The answer is there without the chart."""
    done = in_its_own(tmp_path, *words, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert b"the chart is left out" in done.stdout
    assert b"triad" in done.stdout


def test_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """`advisor jobs | head -1` ends as if by SIGPIPE, without a word."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-m", "advisor_cli", "jobs", "--bundled"],
        env={**os.environ, "ADVISOR_HOME": str(tmp_path / "home")},
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(theirs)
    assert done.returncode == 141
    assert done.stderr == b""


def test_no_command_is_a_wish_for_help(advisor: Advisor) -> None:
    """Not a mistake."""
    done = advisor()
    assert done.code == 0
    assert "recommend" in done.out


def write_jobs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three jobs: a good one, one with a pattern in double quotes, one of no program."""
    progress = "progress: {kind: counter, unit: step}\n"
    (folder / "jobs").mkdir()
    (folder / "jobs/good.yaml").write_text("command: 'true'\n" + progress)
    (folder / "jobs/quoted.yaml").write_text(
        'command: a\nprogress: {kind: output, unit: step, pattern: "step (\\d+)"}\n'
    )
    (folder / "jobs/lost.yaml").write_text("command: nosuchprogram --fast\n" + progress)
    monkeypatch.setenv("ADVISOR_JOBS", str(folder / "jobs"))


def test_one_faulty_file_hides_no_other_job(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fault is said, with what to write instead."""
    write_jobs(tmp_path, monkeypatch)
    done = advisor("jobs", "--json")
    assert done.code == 0
    assert [row["job"] for row in json.loads(done.out)["jobs"]] == ["good", "lost"]
    assert r"quoted.yaml:2:55: not YAML" in done.err
    assert r"single quotes: 'step (\d+)'" in done.err
    assert advisor("recommend", "gemm", "nosuch").code == 2


def test_program_that_does_not_exist(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not tried at every share."""
    write_jobs(tmp_path, monkeypatch)
    done = advisor("profile", "lost", "--shares", "50,100")
    assert done.code == 5
    assert "lost cannot be started: there is no program nosuchprogram" in done.err
    assert len(done.err.splitlines()) == 1


def test_data_of_a_job_that_cannot_be_meant(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is started for it."""
    write_jobs(tmp_path, monkeypatch)
    text = "command: touch started\ninput: {dtype: bf16, data: 'nonsense(1)'}\n"
    (tmp_path / "jobs" / "odd.yaml").write_text(text)
    done = advisor("profile", "odd", "--shares", "50,100")
    assert (done.code, "nonsense" in done.err) == (2, True)
    assert not (tmp_path / "started").exists()


def test_first_migration_says_that_it_did_something(advisor: Advisor) -> None:
    """The second one has nothing to do."""
    assert advisor("data", "migrate").out == (
        "tables were made or changed; the database's schema is current\n"
    )
    assert advisor("data", "migrate").out == "the database's schema is current already\n"


@pytest.mark.parametrize("words", [("jobs", "--bundled"), ("models", "list"), ("doctor",)])
def test_tables_in_a_pipe_are_whole(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """However narrow the terminal of anyone who called it, no cell is cut and no line padded."""
    monkeypatch.setenv("COLUMNS", "40")
    lines = advisor(*words).out.splitlines()
    assert len(lines) > 1
    assert all(line == line.rstrip() and "\u2026" not in line for line in lines)
