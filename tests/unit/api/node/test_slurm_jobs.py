"""What the agent of a Slurm node reads: comments, shares and exit statuses, also odd ones."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import some

from advisor.errors import InputError
from advisor_node.slurm.agent import (
    GpuFolder,
    SlurmJob,
    ended,
    gpu_folders,
    job_folders,
    parse_status,
    read_job,
)
from advisor_node.slurm.site import Named, parse_comment

USER = os.geteuid()


def job_folder(root: Path, number: str = "42", comment: str = "advisor:job=gemm") -> Path:
    """A folder as Prolog and TaskProlog leave it."""
    folder = root / f"gpu0-{USER}/jobs" / number
    folder.mkdir(parents=True)
    (folder / "comment").write_text(comment)
    (folder / "share").write_text("26.5")
    return folder


# Comments


@pytest.mark.parametrize(
    ("text", "job"),
    [
        *(
            (text, "gemm")
            for text in (
                "advisor:job=gemm", "advisor:job=gemm,with=bert", "\tadvisor:job=gemm\n",
                "my run advisor:job=gemm,with=bert v2",
                "advisor:job=gemm,p99=40,speed=0.6,share=26.5,counted=34,memory=2512",
                "project=x;advisor:job=gemm;y",
            )
        ),
        # Others name none, and are left alone.
        *((text, None) for text in ("", "advisor", "xadvisor:job=gemm", "job=a", "advisor job=a")),
    ],
)  # fmt: skip
def test_a_comment_names_a_job_or_none(text: str, job: str | None) -> None:
    named = parse_comment(text)
    assert (named and named.job) == job


@pytest.mark.parametrize(
    "text",
    [
        "advisor:", "advisor:gemm", "advisor:job=", "advisor:job=../gemm", "advisor:job=a,share=0",
        "advisor:job=a,with=b,with=c", "advisor:JOB=a", "advisor:job=" + "a" * 101,
        "advisor:job=gemm\0", "advisor:job=a,share=100.5", "advisor:job=a,counted=101",
        "advisor:job=g\u00e4mm",
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="write advisor:job=NAME"):
        parse_comment(text)


@given(st.text())
def test_any_comment_is_read_or_refused(text: str) -> None:
    for told in (text, f"advisor:{text}", f"advisor:job=a,share={text}"):
        try:
            named = parse_comment(told)
        except InputError:
            continue
        assert named is None or (named.job.isascii() and 1 <= len(named.job) <= 100)
        assert named is None or 1 <= named.share().percent <= 100


def test_what_is_decided_takes_the_place_of_what_was_asked() -> None:
    asked = some(parse_comment("run 7;Advisor:job=a,p99=40 v2"))
    assert asked == Named(job="a", max_p99_ms=40.0)
    told = replace(asked, share_text="26.5", counted=34, memory_mib=2512)
    comment = told.in_comment("run 7;Advisor:job=a,p99=40 v2")
    assert comment == "run 7;advisor:job=a,p99=40,share=26.5,counted=34,memory=2512 v2"
    assert parse_comment(comment) == told


# Records


def test_a_job_is_read(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    [gpu] = gpu_folders(tmp_path)
    assert (gpu.index, gpu.user, gpu.pipe_dir) == (0, USER, tmp_path / f"gpu0-{USER}/pipe")
    assert job_folders(gpu) == [folder]
    job = some(read_job(folder))
    assert job == SlurmJob(uid="42", job="gemm", share_text="26.5", folder=folder)
    assert (job.share.percent, job.over) == (26.5, False)


def test_other_names_are_no_jobs(tmp_path: Path) -> None:
    for name in ("gpu-1", "gpu0", "gpu0-root", "gpu0-1-2", "gpux-0"):
        (tmp_path / name).mkdir()
    assert list(gpu_folders(tmp_path)) == []
    folder = job_folder(tmp_path)
    for name in ("0", "x", "4 2", "42.0", "-1", "1" * 11):
        (folder.parent / name).mkdir()
    [gpu] = gpu_folders(tmp_path)
    assert job_folders(gpu) == [folder]


def test_a_job_whose_task_has_not_begun_is_none_yet(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    (folder / "share").write_text("")
    assert read_job(folder) is None
    (folder / "share").unlink()
    assert read_job(folder) is None
    other = job_folder(tmp_path, "43", "nightly run")
    assert read_job(other) is None
    assert read_job(folder.with_name("44")) is None


@pytest.mark.parametrize("name", ["share", "comment"])
def test_nothing_is_followed(tmp_path: Path, name: str) -> None:
    folder = job_folder(tmp_path)
    place = folder / name
    real = place.rename(tmp_path / name)
    place.symlink_to(real)
    assert read_job(folder) is None
    place.unlink()
    os.mkfifo(place)
    assert read_job(folder) is None


@pytest.mark.skipif(USER != 0, reason="needs root, to give a file away")
@pytest.mark.parametrize("name", ["share", "comment"])
def test_what_is_not_roots_is_none(tmp_path: Path, name: str) -> None:
    folder = job_folder(tmp_path)
    os.chown(folder / name, 65534, -1)
    assert read_job(folder) is None


# Ends


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("0", "finished"),
        (str(3 << 8), "failed"),
        (str(int(signal.SIGSEGV)), "failed"),
        (str(int(signal.SIGTERM)), "stopped"),
        (str(int(signal.SIGKILL)), "stopped"),
        ("", "stopped"),
        ("-1", "stopped"),
        ("0:0", "stopped"),
        ("9" * 9, "stopped"),
    ],
)
def test_the_state_is_that_of_the_exit_status(status: str, state: str) -> None:
    """Scancel and the time limit stop a job; what fails is no example for others."""
    assert parse_status(status) == state


def test_the_exit_status_is_taken_away(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    gpu = GpuFolder(path=folder.parents[1], index=0, user=USER)
    job = some(read_job(folder))
    (gpu.path / "ended").mkdir()
    (gpu.path / "ended/42").write_text("0")
    after = ended(job, gpu)
    assert (after.state, after.over) == ("finished", True)
    assert list((gpu.path / "ended").iterdir()) == []
    assert ended(job, gpu).state == "stopped"
