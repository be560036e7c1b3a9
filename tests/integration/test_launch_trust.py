"""A launch on a host with other users, in folders of others: real processes, a fake driver."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from host import FAKES, UUID, FakeHost
from launched import daemon_pid, folder, launch, processes_of, stop
from other_user import MALLORY, mallory_does, mallory_starts

from advisor.core.gpu import Gpu
from advisor.errors import PartitionError, UnsafeFileError
from advisor.runtime.backend import open_mps

RUNS = ("--split", "30/70", "--duration", "0.5")
GPU = Gpu(uuid=UUID, model="Fake H200", units_total=132)
TRAP = "import pathlib; pathlib.Path({!r}).touch(); raise SystemExit(9)\n"


@pytest.fixture
def two_users(jobs: FakeHost) -> FakeHost:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be two users")
    jobs.folder.chmod(0o1777)
    return jobs


# modules of others


def traps(where: Path, *names: str) -> Path:
    where.mkdir()
    for name in names:
        (where / f"{name}.py").write_text(TRAP.format(str(where / "sprung")))
    return where / "sprung"


@pytest.mark.slow
def test_no_module_of_the_current_folder_is_imported(jobs: FakeHost) -> None:
    sprung = traps(jobs.folder / "w", "typer", "subprocess", "uuid", "select", "pydantic")
    done = subprocess.run(
        [Path(sys.executable).with_name("advisor"), "launch", "one", "two", *RUNS, "--json"],
        env=jobs.environment(),
        cwd=sprung.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["state"] == "stopped"
    assert not sprung.exists()


@pytest.mark.slow
def test_no_module_of_a_job_is_imported(jobs: FakeHost) -> None:
    """A repository may have a `subprocess.py`, by its folder and by PYTHONPATH.

    Jobs without a gate cannot wait for each other, but are proven and counted as any other.
    """
    sprung = traps(jobs.folder / "repo", "subprocess", "threading", "advisor")
    jobs.write_job(
        "short",
        command=["sh", "-c", "sleep 0.05"],
        gate=False,
        progress={"kind": "runs"},
        workdir=str(sprung.parent),
        env={"PYTHONPATH": str(sprung.parent)},
    )
    last = launch(jobs, "short", "short", "--split", "time-sliced", "--duration", "1")
    assert [job["outcome"] for job in last["jobs"]] == ["stopped", "stopped"]
    assert all(job["proven"] and job["steps"] > 0 for job in last["jobs"])
    assert [job["units_granted"] for job in last["jobs"]] == [132, 132]
    assert last["observations"][0]["mode"] == "time-sliced"
    assert not sprung.exists()


# variables


@pytest.mark.slow
def test_secrets_are_in_no_environment_but_the_askers(jobs: FakeHost) -> None:
    url = f"sqlite:///{jobs.folder}/geheim.db"
    done = jobs.advisor(
        "launch", "one", "two", "--split", "30/70", "--detach", ADVISOR_DATABASE_URL=url,
        PGPASSWORD="geheim",
    )  # fmt: skip
    name = done.stdout.strip()
    seen = [*processes_of(jobs), daemon_pid(jobs)]
    assert len(seen) >= 4  # supervisor, guard, two jobs
    for pid in seen:
        assert b"geheim" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert b"geheim" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert stop(jobs, name)["state"] == "stopped"
    kept = jobs.advisor("data", "export", f"{jobs.folder}/o.jsonl", "--kind", "observations",
                        ADVISOR_DATABASE_URL=url)  # fmt: skip
    assert kept.returncode == 0, kept.stderr
    assert name in (jobs.folder / "o.jsonl").read_text()


# modes


@pytest.mark.slow
def test_all_that_a_launch_leaves_is_for_its_user_alone(jobs: FakeHost) -> None:
    """Jobs' variables and outputs are in there; the umask of who asks, and of its jobs, is any."""
    fake_job = f"{sys.executable} {FAKES}/fake_job.py"
    jobs.write_job("writer", command=["sh", "-c", f"umask; exec {fake_job}"])
    before = os.umask(0)
    try:
        last = launch(jobs, "writer", "two", *RUNS)
    finally:
        os.umask(before)
    home = jobs.folder / "home"
    assert int((folder(jobs, last["launch_id"]) / "0-a" / "output.log").read_text(), 8) == 0
    made = [home, *home.rglob("*"), *(jobs.folder / "locks").rglob("*"), jobs.folder / "run"]
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []


# two users


@pytest.mark.parametrize("trap", ["mkdir -m 0777", "ln -s /tmp"])
def test_the_sockets_are_in_no_folder_of_another_user(two_users: FakeHost, trap: str) -> None:
    """There her daemon would be taken for ours, and her log for a file to write to."""
    mallory_does(*trap.split(), two_users.folder / "run")
    with pytest.raises(UnsafeFileError):
        open_mps(GPU, two_users.folder / "run", two_users.environment())


def test_a_daemon_of_another_user_is_not_taken_for_ours(two_users: FakeHost) -> None:
    """One that she put into our folder while that was open."""
    two_users.pipe_dir.mkdir(parents=True)
    with mallory_starts("sleep", "60") as mallory:
        (two_users.pipe_dir / "nvidia-cuda-mps-control.pid").write_text(str(mallory.pid))
        (two_users.pipe_dir / "clients").mkdir()
        try:
            with pytest.raises(PartitionError, match=f"belongs to user {MALLORY}"):
                open_mps(GPU, two_users.folder / "run", two_users.environment())
        finally:
            mallory.kill()


def test_a_daemon_that_does_not_end_is_an_error(
    jobs: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients and ours would be on one GPU, each under limits of its own."""
    monkeypatch.setattr("advisor.runtime.backend._START_S", 0.2)
    control = Path(__file__).parents[1] / "fakes" / "mps" / "nvidia-cuda-mps-control"
    stubborn = jobs.folder / "bin" / control.name
    stubborn.parent.mkdir()
    # It ignores `quit -t`.
    deaf = control.read_text().replace("    quit) quit", "    quit) [ $# = 1 ] && quit")
    stubborn.write_text(deaf)
    stubborn.chmod(0o755)
    environment = jobs.environment()
    environment["PATH"] = f"{stubborn.parent}:{environment['PATH']}"
    open_mps(GPU, jobs.folder / "run", environment)
    with pytest.raises(PartitionError, match="did not end"):
        open_mps(GPU, jobs.folder / "run", environment)


def test_a_home_of_another_user_is_refused(two_users: FakeHost) -> None:
    shutil.rmtree(two_users.folder / "home")
    mallory_does("mkdir", "-m", "0777", two_users.folder / "home")
    done = two_users.advisor("launch", "one", "two", *RUNS)
    assert (done.returncode, "belongs to another user" in done.stderr) == (13, True)
    assert list((two_users.folder / "home").iterdir()) == []
