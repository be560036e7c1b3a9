"""What `setup.sh` writes, refuses and removes, and the scripts that Slurm runs around a job."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from slurm_cluster import SETUP, environment, run_setup

DOCS = SETUP.parents[2] / "docs/slurm.md"
OURS = {"slurm.conf", "gres.conf", "job_submit.lua", "advisor"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    return tmp_path


def set_up(folder: Path, command: str, said: str = "", **more: str) -> Path:
    """Run `setup.sh`, which says this where it fails; the folder that it writes to."""
    done = run_setup(folder, command, more=more)
    assert done.returncode == bool(said), done.stderr
    assert said in done.stderr
    return folder / "etc"


def contents(etc: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in etc.rglob("*") if path.is_file()}


def test_what_was_installed_is_removed(folder: Path) -> None:
    (folder / "etc/plugstack.conf").write_text("theirs")
    etc = set_up(folder, "install")
    assert {path.name for path in etc.iterdir()} == {*OURS, "plugstack.conf"}
    set_up(folder, "remove")
    assert [path.name for path in etc.iterdir()] == ["plugstack.conf"]


@pytest.mark.parametrize("name", ["slurm.conf", "gres.conf", "job_submit.lua"])
def test_a_configuration_of_others_is_not_touched(folder: Path, name: str) -> None:
    (folder / "etc" / name).write_text("theirs")
    for command, word in (("install", f"{name} is there already"), ("remove", "not of setup.sh")):
        set_up(folder, command, word)
        assert contents(folder / "etc") == {str(folder / "etc" / name): "theirs"}


@pytest.mark.parametrize("name", ["slurm.conf", "advisor/advisor.conf"])
def test_what_was_changed_since_is_left(folder: Path, name: str) -> None:
    etc = set_up(folder, "install")
    with (etc / name).open("a") as file:
        file.write("# mine\n")
    set_up(folder, "remove", f"setup.sh: left, since they were changed: {etc / name}\n")
    gres = [str(etc / "gres.conf")] if name == "slurm.conf" else []
    assert sorted(contents(etc)) == [*gres, str(etc / name)]
    if name == "slurm.conf":
        left = (etc / name).read_text()
        assert "\n# TaskProlog=" in left
        assert not re.search("^[^#].*(olog=|Epilog=|JobSubmitPlugins)", left, re.MULTILINE)


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


@pytest.mark.parametrize(
    ("address", "books", "by_name"),
    [("127.0.0.1", "", True), ("127.0.1.1", "", True), ("10.0.0.5", "", True),
     ("127.0.0.1", "localhost", True), ("127.0.1.1", "localhost", False)],
)  # fmt: skip
def test_slurm_is_where_the_name_of_the_host_leads(
    folder: Path, address: str, books: str, by_name: bool
) -> None:
    """It listens there: at 127.0.0.1 nobody answers on a Debian, whose name is 127.0.1.1."""
    more = {**_named(folder, address), "BOOKS": books, "GPU_TYPE": "h200"}
    done = run_setup(folder, "install", more=more)
    assert done.returncode == 0, done.stderr
    assert ("other hosts reach it" in done.stdout) == (address == "10.0.0.5")
    conf = (folder / "etc/slurm.conf").read_text()
    assert conf.count(f"({address})") == conf.count(f"NodeAddr={address} ") == 1
    assert ("NoCtldInAddrAny" in conf) == by_name
    assert "Gres=gpu:h200:1,mps:100" in conf
    assert ("gres/gpu,gres/gpu:h200,gres/mps" in conf) == bool(books)
    assert "Name=gpu Type=h200 File=" in (folder / "etc/gres.conf").read_text()


def test_nothing_is_written_where_the_host_has_no_address(folder: Path) -> None:
    set_up(folder, "install", "has no address", **_named(folder, ""))
    assert contents(folder / "etc") == {}


def _named(folder: Path, address: str) -> dict[str, str]:
    """Variables of a host whose name has this address."""
    (folder / "bin").mkdir()
    (folder / "bin/getent").write_text(
        f"#!/bin/sh\n[ -z '{address}' ] || echo '{address} STREAM'\n"
    )
    (folder / "bin/getent").chmod(0o755)
    return {"PATH": f"{folder}/bin:{environment(folder)['PATH']}"}


def test_the_page_has_every_line(folder: Path) -> None:
    etc, page = set_up(folder, "install"), DOCS.read_text()
    for name in ("slurm.conf", "gres.conf"):
        for line in (etc / name).read_text().splitlines():
            for word in line.split():
                setting = word.partition("=")[0]
                assert f"{setting}=" in page, f"{name}: {setting}"


# TaskProlog


def task_prolog(folder: Path, code: int, **variables: str) -> list[str]:
    if not (folder / "etc/slurm.conf").exists():
        set_up(folder, "install")
    done = subprocess.run(
        [folder / "etc/advisor/task_prolog.sh"],
        env={"SLURM_JOB_ID": "42", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout.splitlines()


@pytest.fixture
def job(folder: Path) -> Path:
    """The folder of a job as the Prolog leaves it."""
    job = folder / f"mps/gpu2-{os.getuid()}/jobs/42"
    job.mkdir(parents=True)
    (job / "share").write_text("26.5")
    (job / "progress").touch()
    return job


def test_the_share_is_the_one_that_root_wrote(folder: Path, job: Path) -> None:
    theirs = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "ADVISOR_SHARE_PERCENT": "100"}
    assert task_prolog(folder, 0, **theirs) == [
        f"export CUDA_MPS_PIPE_DIRECTORY={job.parents[1]}/pipe",
        "export CUDA_VISIBLE_DEVICES=0",
        "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=26.5",
        *(f"unset SLURM_{name}" for name in ("GPUS", "CPUS_PER_GPU", "MEM_PER_GPU")),
        "unset CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        f"export ADVISOR_PROGRESS_FILE={job}/progress",
    ]


def test_memory_is_bounded_and_the_job_is_told(folder: Path, job: Path) -> None:
    (job / "memory").write_text("2512")
    said = "print advisor: at most 2512 MiB of GPU memory: what asks for more fails as on a "
    said += "smaller card"
    lines = task_prolog(folder, 0)
    assert all(part in lines for part in ("export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2512M", said))
    assert said not in task_prolog(folder, 0, SLURM_STEP_ID="0")


def test_a_job_without_a_daemon_is_refused(folder: Path) -> None:
    """It would run without a limit."""
    [line] = task_prolog(folder, 1, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="10")
    assert line.startswith("print advisor: no MPS daemon of yours answers")


def test_other_jobs_lose_what_a_parent_had(folder: Path) -> None:
    assert task_prolog(folder, 0) == []
    assert task_prolog(folder, 0, CUDA_MPS_PIPE_DIRECTORY="/tmp/mine") == []
    pipe, progress = f"{folder}/mps/gpu0-0/pipe", f"{folder}/mps/gpu0-0/jobs/7/progress"
    lines = task_prolog(folder, 0, CUDA_MPS_PIPE_DIRECTORY=pipe, ADVISOR_PROGRESS_FILE=progress)
    limits = ("PIPE_DIRECTORY", "ACTIVE_THREAD_PERCENTAGE", "PINNED_DEVICE_MEM_LIMIT")
    assert lines == [
        "unset ADVISOR_PROGRESS_FILE", *(f"unset CUDA_MPS_{name}" for name in limits)
    ]  # fmt: skip


def test_of_several_tasks_one_counts(folder: Path, job: Path) -> None:
    lines = task_prolog(folder, 0, SLURM_PROCID="1", ADVISOR_PROGRESS_FILE=f"{job}/progress")
    assert "unset ADVISOR_PROGRESS_FILE" in lines
    assert not any("export ADVISOR_PROGRESS_FILE" in line for line in lines)
