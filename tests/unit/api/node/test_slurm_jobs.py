"""What the agent of a Slurm node reads: comments, shares and exit statuses, also odd ones."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InputError
from advisor_node.slurm.jobs import (
    GpuFolder,
    SlurmJob,
    ended,
    gpu_folders,
    job_folders,
    parse_comment,
    parse_status,
    read_job,
)

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
                # The plugin alone looks at the partner.
                "advisor:job=gemm,with=../what/the/partner/is/called",
            )
        ),
        # Others name none, and are left alone.
        *((text, None) for text in ("", "advisor", "xadvisor:job=gemm", "job=a", "advisor job=a")),
    ],
)  # fmt: skip
def test_a_comment_names_a_job_or_none(text: str, job: str | None) -> None:
    assert parse_comment(text) == job


@pytest.mark.parametrize(
    "text",
    [
        "advisor:", "advisor:gemm", "advisor:job=", "advisor:job=../gemm", "advisor:job=a;b",
        "advisor:job=a,with=b,with=c", "advisor:JOB=a", "advisor:job=" + "a" * 101,
        "advisor:job=gemm\0", "advisor:job=g\u00e4mm",
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="write advisor:job=NAME"):
        parse_comment(text)


@given(st.text())
def test_any_comment_is_read_or_refused(text: str) -> None:
    """And what is read is a name that the service takes."""
    for told in (text, f"advisor:{text}", f"advisor:job={text}"):
        try:
            name = parse_comment(told)
        except InputError:
            continue
        assert name is None or (name.isascii() and 1 <= len(name) <= 100 and "/" not in name)


# Records


def test_a_job_is_read(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    [gpu] = gpu_folders(tmp_path)
    assert (gpu.index, gpu.user, gpu.pipe_dir) == (0, USER, tmp_path / f"gpu0-{USER}/pipe")
    assert job_folders(gpu) == [folder]
    job = read_job(folder, USER)
    assert job is not None
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
    """Its share is not written; nor is one without a name, or whose folder has just gone."""
    folder = job_folder(tmp_path)
    (folder / "share").write_text("")
    assert read_job(folder, USER) is None
    (folder / "share").unlink()
    assert read_job(folder, USER) is None
    other = job_folder(tmp_path, "43", "nightly run")
    assert read_job(other, USER) is None
    assert read_job(folder.with_name("44"), USER) is None


@pytest.mark.parametrize(
    "share", ["0", "0.4", "-1", "101", "100.5", "1e2", "nan", "26\n", " 26", "26%", "9" * 5000]
)
def test_a_share_that_the_task_prolog_did_not_write_is_refused(tmp_path: Path, share: str) -> None:
    """Its user has changed it; the message is short, whatever is in the file."""
    folder = job_folder(tmp_path)
    (folder / "share").write_text(share)
    with pytest.raises(InputError, match="job 42 has the share") as refused:
        read_job(folder, USER)
    assert len(str(refused.value)) < 200


@given(share=st.binary(max_size=20), comment=st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, share: bytes, comment: bytes
) -> None:
    """And a share that is read limits something."""
    folder = job_folder(tmp_path_factory.mktemp("any"))
    (folder / "share").write_bytes(share)
    (folder / "comment").write_bytes(b"advisor:job=" + comment)
    try:
        job = read_job(folder, USER)
    except InputError:
        return
    assert job is None or 1 <= job.share.percent <= 100


@pytest.mark.parametrize("name", ["share", "comment"])
def test_nothing_is_followed(tmp_path: Path, name: str) -> None:
    """A link, or a pipe that would block, in the place of a file."""
    folder = job_folder(tmp_path)
    place = folder / name
    real = place.rename(tmp_path / name)
    place.symlink_to(real)
    assert read_job(folder, USER) is None
    place.unlink()
    os.mkfifo(place)
    assert read_job(folder, USER) is None


def test_a_share_of_somebody_else_is_no_share(tmp_path: Path) -> None:
    assert read_job(job_folder(tmp_path), USER + 1) is None


@pytest.mark.skipif(USER != 0, reason="needs root, to give a file away")
def test_a_comment_that_is_not_roots_is_none(tmp_path: Path) -> None:
    """The Prolog has written it, or nobody."""
    folder = job_folder(tmp_path)
    os.chown(folder / "comment", 65534, -1)
    assert read_job(folder, USER) is None


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
    """So that a node without an end of jobs does not fill; one whose Epilog was lost has none."""
    folder = job_folder(tmp_path)
    gpu = GpuFolder(path=folder.parents[1], index=0, user=USER)
    job = read_job(folder, USER)
    assert job is not None
    (gpu.path / "ended").mkdir()
    (gpu.path / "ended/42").write_text("0")
    after = ended(job, gpu)
    assert (after.state, after.over) == ("finished", True)
    assert list((gpu.path / "ended").iterdir()) == []
    assert ended(job, gpu).state == "stopped"
