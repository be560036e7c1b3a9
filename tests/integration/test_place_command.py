"""`advisor place` from outside, with the model and the profiles that come with advisor."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.least_speeds import least_speeds
from advisor.cli.place import MAX_JOBS, read_queue
from advisor.errors import InputError
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import write_points

JOBS = ("gemm:4", "triad:3", "bert-infer:5", "bert-train:2")


def advisor(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command where nothing was measured."""
    return subprocess.run(
        [sys.executable, "-m", "advisor.cli", "place", *options],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "ADVISOR_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def answer(folder: Path, *options: str) -> Any:
    """What it says as JSON."""
    done = advisor(folder, *options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tables_say_who_runs_where(tmp_path: Path) -> None:
    """GPUs with their pairs and limits, then what simpler ways would give."""
    done = advisor(tmp_path, *JOBS, "--gpus", "9")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("14 of 14 jobs on ")
    assert lines[1].split()[:3] == ["GPUs", "jobs", "split"]
    end = lines.index("beside what simpler ways would give")
    assert sum(int(line.split()[0]) for line in lines[2:end]) == 9
    ways = [line[:18].strip() for line in lines[end + 2 : end + 5]]
    assert ways == ["the placement", "best pair first", "first come, 50/50"]
    assert "no placement of so many jobs is more than 0.01 % better" in lines
    assert "4 bundled profiles of jobs with random input; power depends on it" in lines


def test_gpu_model_that_was_not_learned_from(tmp_path: Path) -> None:
    """It is answered, and said in both forms that the model has not seen it."""
    solo = [p for p in bundled_solo_points() if p.job in ("gemm", "triad")]
    write_points(tmp_path / "solo.csv", [replace(p, gpu_model="NVIDIA A100") for p in solo])
    options = ("gemm", "triad", "--gpus", "1", "--profiles", "solo.csv")
    warning, not_checked = answer(tmp_path, *options)["warnings"]
    assert not_checked.startswith("nobody has checked at which numbers of SMs")
    assert warning.startswith("the model has not seen the NVIDIA A100, only NVIDIA H200: ")
    assert warning in advisor(tmp_path, *options).stdout
    (avoided,) = answer(tmp_path, "gemm", "triad", "--gpus", "1")["warnings"]
    assert avoided.startswith("not used: ")


def test_json_adds_up(tmp_path: Path) -> None:
    """Every job is in a use or waits, and work and power are the sums of the uses."""
    found = answer(tmp_path, *JOBS, "--gpus", "6", "--min-speed", "0.4")
    named = {name: found["waiting"].get(name, 0) for name in ("gemm", "triad", "bert-infer")}
    for use in found["uses"]:
        for name in use["jobs"]:
            named[name] = named.get(name, 0) + use["gpus"]
        assert min(use["speeds"]) >= 0.4
        assert len(use["environments"]) == len(use["jobs"])
    assert named == {"gemm": 4, "triad": 3, "bert-infer": 5, "bert-train": 2}
    assert found["gpus_used"] == sum(use["gpus"] for use in found["uses"]) <= found["gpus"] == 6
    work = sum(use["gpus"] * sum(use["speeds"]) for use in found["uses"])
    idle_w = (found["gpus"] - found["gpus_used"]) * found["idle_power_w"]
    power_w = sum(use["gpus"] * use["power_w"] for use in found["uses"]) + idle_w
    assert found["work"] == pytest.approx(work)
    assert found["power_w"] == pytest.approx(power_w)
    assert found["work_per_joule"] == pytest.approx(work / power_w)
    for other in found["others"]:
        gain = found["work_per_joule"] / other["work_per_joule"] - 1
        assert other["gain"] == pytest.approx(gain)


def test_limits_in_the_environment_are_the_shares(tmp_path: Path) -> None:
    """What MPS is told is the split; alone and uncapped nothing is set."""
    for use in answer(tmp_path, *JOBS, "--gpus", "9")["uses"]:
        limits = [e.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") for e in use["environments"]]
        capped = use["way"] not in ("alone", "uncapped")
        expected = use["way"].split("/") if capped else [None] * len(use["jobs"])
        assert limits == expected


def test_waiting_jobs_are_named(tmp_path: Path) -> None:
    """Five jobs have two places on one GPU."""
    done = advisor(tmp_path, "gemm:3", "triad:2", "--gpus", "1")
    assert done.stdout.startswith("2 of 5 jobs on 1 of 1 x ")
    assert "waiting, since no GPU is left: gemm (2), triad (1)" in done.stdout


def test_each_job_alone_is_shown_where_there_are_gpus(tmp_path: Path) -> None:
    """With a GPU for each job, that is one of the simpler ways."""
    found = answer(tmp_path, "gemm:2", "triad", "--gpus", "3")
    assert [other["way"] for other in found["others"]][-1] == "each job alone"
    assert found["others"][-1]["work"] == 3


def test_jobs_from_a_file(tmp_path: Path) -> None:
    """The file says the same as the command line."""
    (tmp_path / "jobs.txt").write_text("# night shift\ngemm:2\n\ntriad  # once\n")
    from_file = answer(tmp_path, "--jobs", "jobs.txt", "--gpus", "2")
    assert from_file == answer(tmp_path, "gemm:2", "triad", "--gpus", "2")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("gemm", "--gpus", "1", "--max-power", "200"), 10, "none of gemm can be placed"),
        (("nosuch", "--gpus", "1"), 2, "there is no job nosuch"),
        (("gemm", "--gpus", "1", "--objective", "max-min"), 2, "the slowest job decides alone"),
        (("gemm", "--gpus", "1", "--min-speed", "triad=0.5"), 2, "a job that is not there"),
        (("gemm", "--gpus", "1", "--min-speed", "2"), 2, "a minimum speed of 2 for gemm"),
        (("gemm", "--gpus", "0"), 2, "Invalid value for '--gpus'"),
        (("gemm",), 2, "Missing option '--gpus'"),
        (("--gpus", "1"), 2, "there are no jobs"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    """One line with the cause, and its own exit code."""
    done = advisor(tmp_path, *options)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_queue_keeps_its_order() -> None:
    """First come, first served needs to know who came first."""
    assert read_queue(["a", "b:2", "a"], None) == ["a", "b", "b", "a"]


@pytest.mark.parametrize("entry", ["a:", ":3", "a:0", "a:-1", "a:1.5", "a:b", "a b", "", "a:1:2"])
def test_what_is_no_job_is_refused(entry: str) -> None:
    """A slip in a count never becomes another count."""
    with pytest.raises(InputError, match=r"is no job|has no count"):
        read_queue([entry], None)


def test_lines_of_a_file_are_named(tmp_path: Path) -> None:
    """A fault says its line; a file beside names, or a million jobs, is a mistake."""
    file = tmp_path / "jobs.txt"
    file.write_text("a\n\nb:x\n")
    with pytest.raises(InputError, match=r"jobs\.txt:3: b:x has no count"):
        read_queue([], file)
    with pytest.raises(InputError, match="jobs were given twice"):
        read_queue(["a"], file)
    with pytest.raises(InputError, match="more than 1000000 jobs"):
        read_queue([f"a:{MAX_JOBS}", "b"], None)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_queue([], file)


def test_least_speeds_by_job() -> None:
    """A number is for all jobs, and what comes later counts."""
    assert least_speeds(["0.5", "b=0.7"], ["a", "b"]) == {"a": 0.5, "b": 0.7}
    with pytest.raises(InputError, match="a=fast has no number"):
        least_speeds(["a=fast"], ["a"])
