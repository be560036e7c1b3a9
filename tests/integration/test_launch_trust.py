"""A launch on a host with other users, in folders of others: real processes, a fake driver."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from host import UUID, FakeHost
from launched import daemon_pid, folder, launch, processes_of, stop
from other_user import MALLORY, mallory_does, mallory_starts

from advisor.core.gpu import Gpu
from advisor.errors import PartitionError
from advisor.runtime.backends.mps import open_mps

RUNS = ("--split", "30/70", "--duration", "0.5")
TRAP = "import pathlib; pathlib.Path({!r}).touch(); raise SystemExit(9)\n"


@pytest.fixture
def two_users(jobs: FakeHost) -> FakeHost:
    """The same with a folder that others may enter, and make something in."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be two users")
    jobs.folder.chmod(0o1777)
    return jobs


def error(host: FakeHost, *options: str, **more: str) -> tuple[int, str]:
    """How a launch was refused."""
    done = host.advisor("launch", *options, **more)
    return done.returncode, done.stdout + done.stderr


# modules of others


def traps(where: Path, *names: str) -> Path:
    """Modules with names of the standard library and of ours, and the file that they would make."""
    where.mkdir()
    for name in names:
        (where / f"{name}.py").write_text(TRAP.format(str(where / "sprung")))
    return where / "sprung"


def test_no_module_of_the_current_folder_is_imported(jobs: FakeHost) -> None:
    """Supervisor and guard are started where somebody stands."""
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


def test_no_module_of_a_job_is_imported(jobs: FakeHost) -> None:
    """A repository may have a `subprocess.py`, by its folder and by PYTHONPATH."""
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
    assert all(job["steps"] > 0 for job in last["jobs"])
    assert not sprung.exists()


# variables


def test_a_job_cannot_hide_from_who_ends_it(jobs: FakeHost) -> None:
    """By these variables guard and next launch find its processes."""
    jobs.write_job("sly", env={"ADVISOR_LAUNCH": "/x"})
    code, said = error(jobs, "sly", "one", *RUNS)
    assert code == 2
    assert "ADVISOR_LAUNCH: a job may not set this variable" in said
    assert not (jobs.folder / "home" / "launches").exists()


def test_secrets_are_in_no_environment_but_the_askers(jobs: FakeHost) -> None:
    """Not in the supervisor's, the guard's or the daemon's; the database is used all the same."""
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


def test_all_that_a_launch_leaves_is_for_its_user_alone(jobs: FakeHost) -> None:
    """Jobs' variables and outputs are in there; the umask of who asks may be any."""
    before = os.umask(0)
    try:
        last = launch(jobs, "one", "two", *RUNS)
    finally:
        os.umask(before)
    home = jobs.folder / "home"
    assert (folder(jobs, last["launch_id"]) / "0-a" / "output.log").exists()
    made = [home, *home.rglob("*"), *(jobs.folder / "locks").rglob("*"), jobs.folder / "run"]
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []


def test_the_umask_of_a_job_is_that_of_who_asked(jobs: FakeHost) -> None:
    """What a job writes is for whom its user wants it to be for."""
    jobs.write_job(
        "writer",
        command=["sh", "-c", f"umask > {jobs.folder}/mask; echo step 1; sleep 60"],
        progress={"kind": "output", "pattern": "step (\\d+)"},
    )
    before = os.umask(0o007)
    try:
        launch(jobs, "writer", "writer", "--split", "time-sliced", "--duration", "0.5")
    finally:
        os.umask(before)
    assert int((jobs.folder / "mask").read_text(), 8) == 0o007


# two users


def test_another_user_cannot_make_a_launch_write_into_a_file(two_users: FakeHost) -> None:
    """Her link at the name of the lock: refused, and the file is as it was."""
    notes = two_users.folder / "notes.txt"
    notes.write_text("precious notes of the victim")
    mallory_does("mkdir", "-m", "1777", two_users.folder / "locks")
    mallory_does("ln", "-s", notes, two_users.folder / "locks" / f"{UUID[-12:]}.lock")
    status = launch(two_users, "one", "two", *RUNS, code=13)
    assert (status["state"], status["code"]) == ("failed", "unsafe-file")
    assert "belongs to another user" in status["cause"]
    assert notes.read_text() == "precious notes of the victim"


def test_another_user_cannot_keep_a_gpu(two_users: FakeHost) -> None:
    """She cannot open the lock, neither while it is held nor afterwards."""
    launch(two_users, "one", "two", *RUNS)
    (lock,) = (two_users.folder / "locks").glob(f"{UUID[-12:]}.lock")
    with mallory_starts("flock", "-s", lock, "sleep", "60") as mallory:
        try:
            assert launch(two_users, "one", "two", *RUNS)["state"] == "stopped"
        finally:
            mallory.kill()


@pytest.mark.parametrize("trap", ["mkdir -m 0777", "ln -s /tmp"])
def test_the_sockets_are_in_no_folder_of_another_user(two_users: FakeHost, trap: str) -> None:
    """There her daemon would be taken for ours, and her log for a file to write to."""
    mallory_does(*trap.split(), two_users.folder / "run")
    status = launch(two_users, "one", "two", *RUNS, code=13)
    assert (status["state"], status["code"]) == ("failed", "unsafe-file")


def test_a_daemon_of_another_user_is_not_taken_for_ours(two_users: FakeHost) -> None:
    """One that she put into our folder while that was open."""
    two_users.pipe_dir.mkdir(parents=True)
    with mallory_starts("sleep", "60") as mallory:
        pid_file = two_users.pipe_dir / "nvidia-cuda-mps-control.pid"
        pid_file.write_text(str(mallory.pid))
        (two_users.pipe_dir / "clients").mkdir()
        try:
            with pytest.raises(PartitionError, match=f"belongs to user {MALLORY}"):
                open_mps(GPU, two_users.folder / "run", two_users.environment())
        finally:
            mallory.kill()


GPU = Gpu(uuid=UUID, model="Fake H200", units_total=132)


def test_a_daemon_that_does_not_end_is_an_error(
    jobs: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clients and ours would be on one GPU, each under limits of its own."""
    monkeypatch.setattr("advisor.runtime.backends.mps._START_S", 0.2)
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
    code, said = error(two_users, "one", "two", *RUNS)
    assert (code, "belongs to another user" in said) == (13, True)
    assert list((two_users.folder / "home").iterdir()) == []
