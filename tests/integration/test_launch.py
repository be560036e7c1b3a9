"""`advisor launch` from end to end: real processes and a fake driver, without faults."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor
from ended_launches import ended_launch, launch_id
from fanned_out import two_gpus
from host import FAKES, OTHER_UUID, UUID, FakeHost
from launched import (
    await_end,
    await_nobody,
    await_status,
    daemon_pid,
    detached,
    folder,
    launch,
    processes_of,
    stop,
    wait_for_line,
)
from other_user import MALLORY, mallory_does, mallory_starts
from reading import answer_of, some

from advisor.core.gpu import Gpu
from advisor.errors import PartitionError, UnsafeFileError
from advisor.formats.job_file import load_job
from advisor.formats.rows import flat
from advisor.formats.wire import read
from advisor.launch.folder import OBSERVATIONS, LaunchFolder, list_folders
from advisor.launch.spec import JobStatus, LaunchSpec, LaunchStatus
from advisor.runtime.backend import open_mps
from advisor.runtime.processes import wait_until
from advisor_data import open_store

STATUS_KEYS, JOB_KEYS = (
    {field.name for field in fields(kind)} for kind in (LaunchStatus, JobStatus)
)


@pytest.mark.slow
def test_pair_runs_at_its_proven_split(jobs: FakeHost) -> None:
    done = jobs.advisor("launch", "two", "one", "--split", "70/30", "--duration", "5", "--json")
    assert done.returncode == 0, done.stderr
    lines = [answer_of(text) for text in done.stdout.splitlines()]
    states = list(dict.fromkeys(line["state"] for line in lines))
    assert states[-4:] == ["starting", "running", "stopping", "stopped"]
    for line in lines:
        assert set(line) - {"observations"} == STATUS_KEYS
        assert all(set(job) == JOB_KEYS for job in line["jobs"])
        if line["state"] == "running":
            assert all(job["proven"] for job in line["jobs"])
    last = lines[-1]
    assert [(j["job"], j["units_granted"], j["outcome"]) for j in last["jobs"]] == [
        ("two", 92, "stopped"), ("one", 38, "stopped")
    ]  # fmt: skip
    (seen,) = map(flat, last["observations"])
    assert (seen["job_1"], seen["units_1"], seen["share_1_percent"]) == ("one", 38, 30)
    assert (last["units_total"], last["power_limit_w"]) == (132, seen["power_limit_w"])
    assert seen["rate_2"] > 1.5 * seen["rate_1"] > 0
    assert seen["power_w"] == pytest.approx(80 + 40 + 400, rel=0.1)
    # On a busy host the jobs are not both at work as soon as their gates are open.
    assert 3 <= seen["overlap_s"] < 7
    assert seen["energy_j"] == pytest.approx(seen["power_w"] * seen["overlap_s"], rel=0.15)
    with open_store(None, jobs.folder / "home") as store:
        (stored,) = store.observations(jobs=("one", "two"))
    assert (stored.launch_id, stored.energy_j) == (last["launch_id"], seen["energy_j"])
    assert (stored.units_total, stored.gpu_uuid) == (132, UUID)
    assert stored.driver
    hashes = [load_job(jobs.folder / "jobs" / f"{name}.yaml").job_hash for name in ("one", "two")]
    assert [part.job_hash for part in stored.parts] == hashes
    await_nobody(jobs)


@pytest.mark.slow
def test_dry_run_starts_nothing_and_shows_what_would_be(jobs: FakeHost) -> None:
    secret = "postgresql://advisor:geheim@127.0.0.1/x"
    arguments = ("launch", "one", "two", "--split", "30/70:low", "--then", "one+one", "--dry-run")
    done = jobs.advisor(*arguments, "--json", ADVISOR_DATABASE_URL=secret)
    plan = read(LaunchSpec, json.dumps(answer_of(done.stdout)))
    first, second = plan.pairs
    assert [part.units for part in first.parts] == [38, 92]
    assert (str(second.split), second.jobs[0].command) == ("30/70:low", first.jobs[0].command)
    shown = jobs.advisor(*arguments).stdout
    for words in (
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=135970M",
        "CUDA_MPS_CLIENT_PRIORITY=1",
        f"CUDA_MPS_PIPE_DIRECTORY={jobs.pipe_dir}", f"CUDA_VISIBLE_DEVICES={UUID}",
        f"on GPU {UUID}", "100 + 100 of 136582 MiB: fits",
    ):  # fmt: skip
        assert words in shown, words
    assert any(note.startswith("no forecast: ") for note in plan.notes)
    assert "geheim" not in done.stdout + shown
    assert not (jobs.folder / "home" / "launches").exists()
    assert jobs.control("get_server_list") == ""


@pytest.mark.slow
def test_recommended_pair_is_launched_with_its_forecast(h200: FakeHost) -> None:
    # Without the floor: whether the model expects 0.4 of each job is no matter here.
    last = launch(h200, "triad", "gemm", "--duration", "10", "--min-speed", "0")
    forecast, (seen,) = last["forecast"], map(flat, last["observations"])
    assert last["sharing"] == "limited"
    assert (seen["predicted_rate_2"], seen["solo_rate_2"]) == (
        forecast["jobs"][0]["rate"]["value"], forecast["jobs"][0]["solo_rate"]
    )  # fmt: skip
    assert seen["model_version"] == forecast["model_version"]
    speeds = seen["rate_1"] / seen["solo_rate_1"] + seen["rate_2"] / seen["solo_rate_2"]
    assert seen["work_per_joule"] == pytest.approx(speeds / seen["power_w"])
    assert seen["predicted_energy_saved"] == forecast["energy_saved"]["value"]
    assert forecast["jobs"][0]["rest_energy_saved"] is not None
    # The fake job is far slower than the recorded one: measured alone first, and forecast by that.
    (said,) = (text for text in last["warnings"] if text.startswith("triad is "))
    assert said.endswith("times as fast here as was known")


TRIED = ("bert-infer", "albert-train-b2", "--min-speed", "0", "--try", "2", "--duration", "2")


@pytest.mark.slow
def test_ways_that_save_no_energy_are_both_tried_and_end_the_launch(h200: FakeHost) -> None:
    """The fake jobs are far slower than the recorded ones, so whatever they draw is too much."""
    for name in TRIED[:2]:
        h200.write_job(name, restartable=True)
    last = launch(h200, *TRIED, code=10)
    assert (last["state"], last["code"], last["pairs"]) == ("failed", "no-split", 2)
    assert len({seen["mode"] for seen in last["observations"]}) == 2
    assert "no way that was tried saves energy. tried for 10 s each: " in last["cause"]


@pytest.mark.slow
def test_who_is_killed_in_a_trial_leaves_nobody(h200: FakeHost) -> None:
    for name in TRIED[:2]:
        h200.write_job(name, restartable=True)
    name = detached(h200, *TRIED)
    second = await_status(h200, name, lambda s: s["pair_number"] == 1 and s["overlap_s"] > 6)
    os.kill(second["supervisor_pid"], signal.SIGKILL)
    last = await_end(h200, name)
    assert (last["code"], last["try_s"], last["pair_number"]) == ("supervisor-gone", 10.0, 1)
    await_nobody(h200)
    assert "failed, way 2 of 2 on trial" in h200.advisor("launches", "show", name).stdout
    assert len(h200.answer("launches", "show", name)["observations"]) == 2


@pytest.mark.slow
def test_jobs_start_again_at_the_split_that_is_offered_when_somebody_asks(h200: FakeHost) -> None:
    """The fake jobs are too slow for what they do to be believed, so the model speaks alone."""
    for name in TRIED[:2]:
        h200.write_job(name, restartable=True)
    name = detached(h200, *TRIED[:2], "--split", "50/50", "--allow-unsafe")
    early = h200.advisor("launches", "resplit", name)
    assert early.returncode == 10
    assert "a set that runs is looked at after half a minute" in early.stderr
    before = await_status(h200, name, lambda status: status["resplit"] is not None)
    assert (before["pair_number"], before["resplit"]["refused"]) == (0, None)
    shown = h200.advisor("launches", "show", name).stdout
    assert f"another split, {before['resplit']['split']}, would do " in shown
    assert f"advisor launches resplit {name}" in " ".join(shown.split())
    again = h200.answer("launches", "resplit", name)
    assert (again["state"], again["pair_number"], again["pairs"]) == ("running", 1, 2)
    assert [(job["outcome"], job["share_percent"]) for job in again["jobs"]] == [
        ("running", 100), ("running", 100),
    ]  # fmt: skip
    for then, now in zip(before["jobs"], again["jobs"], strict=True):
        assert 0 < then["steps"] <= now["steps"]
    assert h200.advisor("launches", "resplit", name).returncode == 10
    assert stop(h200, name)["state"] == "stopped"
    await_nobody(h200)
    assert len(h200.answer("launches", "show", name)["observations"]) == 2


@pytest.mark.slow
def test_detached_launch_is_listed_shown_and_stopped(jobs: FakeHost) -> None:
    name = detached(jobs, "one", "two", "--split", "50/50")
    status = json.loads(jobs.advisor("launches", "show", name, "--json").stdout)
    assert status["state"] == "running"
    assert all(job["proven"] for job in status["jobs"])
    (listed,) = json.loads(jobs.advisor("launches", "--json").stdout)["launches"]
    assert listed["launch_id"] == name
    assert name in jobs.advisor("launches").stdout
    stopped = jobs.advisor("launches", "stop", name, "--json")
    assert stopped.returncode == 0, stopped.stderr
    assert json.loads(stopped.stdout)["state"] == "stopped"
    await_nobody(jobs)
    assert jobs.advisor("launches", "stop", name).returncode == 0


@pytest.mark.slow
def test_one_job_is_stopped_and_a_supervisor_killed_before_its_answer_leaves_nobody(
    jobs: FakeHost,
) -> None:
    name = detached(jobs, "one", "two", "third", "--split", "30/30/30")
    pid = 0
    for _ in range(2):
        said = jobs.answer("launches", "stop", name, "two")
        pid = said["supervisor_pid"]
        assert [(job["job"], job["outcome"]) for job in said["jobs"]] == [
            ("one", "running"), ("two", "stopped"), ("third", "running"),
        ]  # fmt: skip
    assert "there is no job four" in jobs.advisor("launches", "stop", name, "four").stderr
    os.kill(pid, signal.SIGSTOP)
    with jobs.start_advisor("launches", "stop", name, "one", "--json") as process:
        assert wait_until((Path(folder(jobs, name)) / "ends/one").exists, 30)
        os.kill(pid, signal.SIGKILL)
        last = answer_of(some(process.stdout).read())
    assert (process.returncode, last["code"]) == (1, "supervisor-gone")
    await_nobody(jobs)


@pytest.mark.slow
def test_interrupt_stops_both_and_waits(jobs: FakeHost) -> None:
    with jobs.start_advisor("launch", "one", "two", "--split", "50/50") as process:
        wait_for_line(process, " running ")
        process.send_signal(signal.SIGINT)
        rest = some(process.stdout).read()
    assert process.returncode == 0, rest
    assert "STOPPED after " in rest
    await_nobody(jobs)


@pytest.mark.slow
def test_wishes_that_cannot_be_met_are_refused_before_anything_starts(jobs: FakeHost) -> None:
    pair = ("launch", "one", "two", "--split", "50/50")
    for options, message in (
        (("--then", "one"), "write --then C+D"),
        (("--gpu", "7"), "no single GPU is called 7"),
    ):
        done = jobs.advisor(*pair, *options)
        assert done.returncode == 2, (options, done.stderr)
        assert message in done.stderr
    assert not (jobs.folder / "home" / "launches").exists()


ON_TWO = ("ranks", "one", "two", "--gpu", "0,1")


@pytest.mark.slow
def test_a_job_of_two_gpus_runs_with_a_neighbour_on_each(jobs: FakeHost) -> None:
    """All are clients of one daemon, each sees its own GPUs, and power is that of both."""
    both = two_gpus(jobs)
    jobs.write_job("ranks", gpus=2)
    asked = (*ON_TWO, "--split", "100/50@0/50@1", "--duration", "5", "--json")
    status = answer_of(jobs.advisor("launch", *asked, **both).stdout.splitlines()[-1])
    assert (status["state"], status["power_limit_w"]) == ("stopped", 1400)
    assert [job["units_granted"] for job in status["jobs"]] == [132, 66, 66]
    (seen,) = status["observations"]
    # 80 W of each GPU, and what jobs draw, which all fakes draw on the first.
    assert seen["power_w"] == pytest.approx(2 * 80 + 420 + 220 + 220, rel=0.1)
    assert "several-gpus" in seen["flags"]
    spec = LaunchFolder(folder(jobs, status["launch_id"])).read_spec()
    assert (spec.gpu, str(spec.pairs[0].split)) == (f"{UUID},{OTHER_UUID}", "100/50@0/50@1")
    planned = jobs.advisor("launch", *ON_TWO, "--split", "100/50/50", "--dry-run", **both)
    told = [line.strip() for line in planned.stdout.splitlines() if "VISIBLE" in line]
    own = (f"{UUID},{OTHER_UUID}", UUID, OTHER_UUID)
    assert told == [f"CUDA_VISIBLE_DEVICES={gpus}" for gpus in own]
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=" in planned.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("ranks", "one", "--split", "100/50"), "--gpu 0 names 1 GPU, and ranks holds 2"),
        (
            ("one", "two", "--split", "50/50", "--gpu", "0,1"),
            "names 2 GPUs, and one and two share 1",
        ),
        ((*ON_TWO, "--split", "time-sliced"), "are not launched time-sliced yet"),
        ((*ON_TWO, "--split", "100/50@0/50"), "names no GPU for a neighbour"),
        ((*ON_TWO, "--split", "100/50@0/50@1", "--alone"), "cannot run alone first yet"),
        ((*ON_TWO, "--split", "100/50@0/50@2"), "names GPU 2 of 2"),
    ],
)
def test_what_is_not_launched_of_two_gpus_yet(
    jobs: FakeHost, asked: tuple[str, ...], says: str
) -> None:
    both = two_gpus(jobs)
    jobs.write_job("ranks", gpus=2)
    done = jobs.advisor("launch", *asked, **both)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr


# `advisor launches clean`: what it says and removes.


def test_keys_for_programs_stay(advisor: Advisor, tmp_path: Path) -> None:
    ended_launch(tmp_path / "home", 1, 1000, output_bytes=2**20)
    (ended_launch(tmp_path / "home", 2, 1000).path / OBSERVATIONS).write_text("{}\n")
    for words in (("--dry-run",), ()):
        done = advisor("launches", "clean", "--json", *words)
        assert done.code == 0
        found = answer_of(done.out)
        assert (set(found), found["dry_run"]) == ({"dry_run", "removed", "kept"}, bool(words))
        ((removed,), (kept,)) = found["removed"], found["kept"]
        assert (removed["launch_id"], kept["launch_id"]) == (launch_id(1), launch_id(2))
        assert removed["size_bytes"] >= 2**20
    assert [folder.launch_id for folder in list_folders(tmp_path / "home/launches")] == [
        launch_id(2)
    ]


def test_points_in_files_are_enough(
    advisor: Advisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/points.db"
    monkeypatch.setenv("ADVISOR_DATABASE_URL", url)
    ended_launch(tmp_path / "home", 1, 1000)
    assert "1 folder removed" in advisor("launches", "clean").out
    with open_store(url, tmp_path / "home") as store:
        assert [seen.launch_id for seen in store.observations()] == [launch_id(1)]


# Jobs that join a launch that runs: real processes and a fake driver.


@pytest.fixture
def jobs(jobs: FakeHost) -> FakeHost:
    jobs.write_job("third")
    return jobs


def joined(host: FakeHost, launch_id: str, *options: str, code: int = 0) -> dict[str, Any]:
    done = host.advisor("launch", "--join", launch_id, *options, "--json")
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def told(status: dict[str, Any]) -> list[tuple[str, float, str]]:
    return [(job["job"], job["share_percent"], job["outcome"]) for job in status["jobs"]]


def after(host: FakeHost, launch_id: str, seconds: float) -> dict[str, Any]:
    return await_status(host, launch_id, lambda status: status["rest_s"] > seconds)


@pytest.mark.slow
def test_a_third_joins_two(jobs: FakeHost) -> None:
    launch_id = detached(jobs, "one", "two", "--split", "50/50")
    said = joined(jobs, launch_id, "third", "--share", "30")
    assert (said["job"], said["code"], said["units_granted"]) == ("third", None, 38)
    assert (said["memory_limit_mib"], said["share_percent"]) == (135_358, 30)
    assert said["joined_at"]
    status = after(jobs, launch_id, 4)
    assert told(status) == [
        ("one", 50, "running"),
        ("two", 50, "running"),
        ("third", 30, "running"),
    ]
    assert [bool(job["joined_at"]) for job in status["jobs"]] == [False, False, True]
    assert all(job["steps"] > 0 and job["proven"] for job in status["jobs"])
    last = stop(jobs, launch_id)
    assert (last["state"], last["code"]) == ("stopped", None)
    assert all(job["ended_at"] for job in last["jobs"])
    listed = jobs.advisor("launches").stdout
    assert f"third 30 % joined {said['joined_at'][11:17]}" in " ".join(listed.split())
    await_nobody(jobs)


@pytest.mark.slow
def test_the_share_is_the_best_beside_those_that_stay(h200: FakeHost) -> None:
    launch_id = detached(h200, "triad", "gemm", "--split", "50/50", "--min-speed", "0.01")
    done = h200.advisor(
        "launch",
        "--join",
        launch_id,
        "triad",
        "--min-speed",
        "0.01",
        "--objective",
        "throughput",
        "--json",
        **{"ADVISOR_MIN_SPEED": "0.01", "ADVISOR_MIN_GAIN": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["units_granted"] <= 66
    refused = h200.advisor("launch", "--join", launch_id, "triad", "--min-speed", "1")
    assert refused.returncode == 10, refused.stderr
    assert "take it: --share" in refused.stderr
    stop(h200, launch_id)
    await_nobody(h200)


@pytest.mark.slow
def test_nobody_joins_what_is_over(jobs: FakeHost) -> None:
    launch_id = detached(jobs, "one", "two", "--split", "50/50")
    settled = "settled when a launch begins"
    for options, words in (
        (("one", "two"), "2 jobs cannot join"),
        (("third", "--split", "30/70"), "those that run keep their shares"),
        (("third", "--share", "30", "--dry-run"), "dry_run is not of a job that joins"),
        (("third", "--share", "30", "--gpu", "1"), "on the GPU of the launch"),
        (("third", "--share", "30", "--duration", "9"), settled),
        (("third", "--share", "30", "--when-p99-breaks", "end-newest"), settled),
        (("third", "--share", "30", "--hang-after", "120"), settled),
        (("third", "--share", "30", "--when-one-ends", "stop"), settled),
        (("third", "--share", "30", "--stop-on-wrong-results"), settled),
        (("third", "--share", "30", "--min-speed", "0.5"), "given or recommended, not both"),
    ):
        done = jobs.advisor("launch", "--join", launch_id, *options)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    stop(jobs, launch_id)
    done = jobs.advisor("launch", "--join", launch_id, "third", "--share", "30")
    assert (done.returncode, "it is stopped" in done.stderr) == (2, True), done.stderr
    assert await_end(jobs, launch_id)["state"] == "stopped"
    await_nobody(jobs)


# A launch on a host with other users, in folders of others: real processes, a fake driver.


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
