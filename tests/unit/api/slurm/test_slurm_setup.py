"""What `setup.sh` writes, refuses and removes, and the scripts that Slurm runs around a job."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from slurm_cluster import SETUP, run_setup

DOCS = SETUP.parents[2] / "docs/slurm.md"
OURS = {"slurm.conf", "gres.conf", "job_submit.lua", "advisor"}

pytestmark = pytest.mark.skipif(
    shutil.which("curl") is None, reason="needs curl, as the plugin does"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    return tmp_path


def installed(folder: Path) -> Path:
    done = run_setup(folder, "install")
    assert done.returncode == 0, done.stderr
    return folder / "etc"


def contents(etc: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in etc.rglob("*") if path.is_file()}


def test_what_was_installed_is_removed(folder: Path) -> None:
    (folder / "etc/plugstack.conf").write_text("theirs")
    etc = installed(folder)
    assert {path.name for path in etc.iterdir()} == {*OURS, "plugstack.conf"}
    done = run_setup(folder, "remove")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in etc.iterdir()] == ["plugstack.conf"]


@pytest.mark.parametrize("name", ["slurm.conf", "gres.conf", "job_submit.lua"])
def test_a_configuration_of_others_is_not_touched(folder: Path, name: str) -> None:
    (folder / "etc" / name).write_text("theirs")
    for command, word in (("install", f"{name} is there already"), ("remove", "not of setup.sh")):
        done = run_setup(folder, command)
        assert done.returncode == 1
        assert word in done.stderr
        assert contents(folder / "etc") == {str(folder / "etc" / name): "theirs"}


def test_installing_twice_changes_nothing(folder: Path) -> None:
    before = contents(installed(folder))
    assert run_setup(folder, "install").returncode == 1
    assert contents(folder / "etc") == before


@pytest.mark.parametrize("name", ["slurm.conf", "advisor/advisor.conf"])
def test_what_was_changed_since_is_left(folder: Path, name: str) -> None:
    etc = installed(folder)
    with (etc / name).open("a") as file:
        file.write("# mine\n")
    done = run_setup(folder, "remove")
    assert done.returncode == 1
    assert done.stderr.strip() == f"setup.sh: left, since they were changed: {etc / name}"
    assert list(contents(etc)) == [str(etc / name)]


def test_nothing_is_written_without_the_driver(folder: Path) -> None:
    done = subprocess.run(
        [SETUP, "install"],
        env={
            "PATH": "/usr/bin:/bin",
            "SLURM_FOLDER": str(folder / "etc"),
            "GPU_FILES": "/dev/null",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if shutil.which("nvidia-cuda-mps-control", path="/usr/bin:/bin"):
        pytest.skip("this host has NVIDIA's driver")
    assert done.returncode == 1
    assert "nvidia-cuda-mps-control is missing" in done.stderr
    assert contents(folder / "etc") == {}


def test_a_wrong_word_shows_the_usage(folder: Path) -> None:
    done = run_setup(folder, "uninstall")
    assert done.returncode == 2
    assert "setup.sh install" in done.stderr


def test_the_page_has_every_line(folder: Path) -> None:
    etc, page = installed(folder), DOCS.read_text()
    for name in ("slurm.conf", "gres.conf"):
        for line in (etc / name).read_text().splitlines():
            for word in line.split():
                setting = word.partition("=")[0]
                assert f"{setting}=" in page, f"{name}: {setting}"


# TaskProlog


def task_prolog(folder: Path, **variables: str) -> list[str]:
    """The lines that it gives Slurm for a job."""
    if not (folder / "etc/slurm.conf").exists():
        installed(folder)
    done = subprocess.run(
        [folder / "etc/advisor/task_prolog.sh"],
        env={"SLURM_JOB_GPUS": "2", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def gpu_lines(folder: Path) -> list[str]:
    """What every job with gres/mps gets: the daemon of its GPU, which has no other."""
    pipe = f"{folder}/mps/gpu2-{os.getuid()}/pipe"
    return [f"export CUDA_MPS_PIPE_DIRECTORY={pipe}", "export CUDA_VISIBLE_DEVICES=0"]


@pytest.mark.parametrize("share", ["1", "26", "26.5", "99.9", "100"])
def test_the_share_replaces_slurms(folder: Path, share: str) -> None:
    """And a step of the job asks for no whole GPU."""
    lines = task_prolog(folder, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10", ADVISOR_SHARE_PERCENT=share)
    assert lines == [
        *gpu_lines(folder),
        f"export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={share}",
        "unset SLURM_GPUS",
    ]


@pytest.mark.parametrize(
    "share", ["", "0", "-1", "101", "1e2", "100.5", "26%", "26\nexport X=1", " 26", "0.4", "nan"]
)
def test_no_limit_is_never_written(folder: Path, share: str) -> None:
    """What the driver would take for the whole GPU leaves Slurm's percentage as it is."""
    lines = task_prolog(folder, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10", ADVISOR_SHARE_PERCENT=share)
    assert lines == gpu_lines(folder)


def test_other_jobs_get_no_lines(folder: Path) -> None:
    assert task_prolog(folder, ADVISOR_SHARE_PERCENT="26") == []


# Of jobs that name themselves


@pytest.fixture
def named(folder: Path) -> Path:
    """The folder of a job as the Prolog leaves it."""
    job = folder / f"mps/gpu2-{os.getuid()}/jobs/42"
    job.mkdir(parents=True)
    for name in ("share", "progress"):
        (job / name).touch()
    return job


@pytest.mark.parametrize(("advised", "written"), [("26.5", "26.5"), ("101", "10"), ("", "10")])
def test_the_agent_learns_of_the_share(
    folder: Path, named: Path, advised: str, written: str
) -> None:
    """The one that the tasks get, with or without advice; a later step changes nothing."""
    given = {"SLURM_JOB_ID": "42", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"}
    lines = task_prolog(folder, ADVISOR_SHARE_PERCENT=advised, **given)
    assert f"export ADVISOR_PROGRESS_FILE={named}/progress" in lines
    assert (named / "share").read_text() == written
    task_prolog(folder, ADVISOR_SHARE_PERCENT="99", **given)
    assert (named / "share").read_text() == written


def test_of_several_tasks_one_counts(folder: Path, named: Path) -> None:
    """The others do not have the variable, not even that of the batch script."""
    lines = task_prolog(
        folder, SLURM_JOB_ID="42", SLURM_PROCID="1", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10"
    )
    assert "unset ADVISOR_PROGRESS_FILE" in lines
    assert not any(str(named) in line for line in lines)
