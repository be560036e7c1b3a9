"""`advisor profile` from end to end: real processes, a fake driver, faults of every kind."""

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import Any

import pytest
from fanned_out import two_gpus
from host import FAKES, UUID, FakeHost
from reading import some

from advisor.formats.job_file import load_job

pytestmark = pytest.mark.slow

QUICK = ("--window", "0.5")
SHARES = ("--shares", "20,50,100")
ONE = ("--shares", "50")
"""Where it does not matter how rate and power follow the share; said after the others."""


def points(host: FakeHost) -> list[dict[str, Any]]:
    file = host.folder / "all.jsonl"
    assert host.advisor("data", "export", str(file)).returncode == 0
    return [json.loads(line) for line in file.read_text().splitlines() if line]


def profile(host: FakeHost, job: str, *options: str, **more: str) -> dict[str, Any]:
    return host.answer("profile", job, *SHARES, *QUICK, *options, **more)


def test_profile_of_a_gated_job(host: FakeHost) -> None:
    """Rate and power follow the share, and each point has the SMs that were read back.

    The first command of a host makes its home and its database.
    """
    shutil.rmtree(host.folder / "home")
    host.write_job("steady")
    rows = profile(host, "steady")["points"]
    assert [(row["units_granted"], row["mode"], row["units_total"]) for row in rows] == [
        (units, "mps", 132) for units in (26, 66, 132)
    ]
    assert rows[0]["rate"] < rows[2]["rate"]  # five times as fast, on a busy machine less
    assert [row["power_w"] for row in rows] == pytest.approx([180, 300, 500], rel=0.02)
    # Of 1,000 fake kernels a second beside 400 steps, of which the job hides all: anything below.
    assert [row["kernels_per_unit"] is not None for row in rows] == [False, False, True]
    assert 0 < rows[2]["kernels_per_unit"] < 5
    assert [row["kernels_per_unit"] for row in points(host)].count(None) == 2


def test_a_gpu_that_takes_no_probe_costs_no_profile(host: FakeHost) -> None:
    """The point is kept, a line says why, and the next call counts the kernels that are missing."""
    host.write_job("steady")
    whole = ("profile", "steady", "--shares", "100", *QUICK, "--json")
    done = host.advisor(*whole, FAKE_CUDA_NO_KERNELS="222")
    assert (done.returncode, len(json.loads(done.stdout)["points"])) == (0, 1)
    assert "not counted: " in done.stderr
    assert "cuModuleLoadData failed with CUDA error 222" in done.stderr
    (row,) = json.loads(host.advisor(*whole).stdout)["points"]
    assert row["kernels_per_unit"] > 0


def test_profile_of_an_ungated_job_and_the_table(host: FakeHost) -> None:
    """Without a gate each share starts its own process; units are granted exactly."""
    host.write_job("free", gate=False)
    done = host.advisor("profile", "free", "--units", "12,66", *QUICK)
    assert done.returncode == 0, done.stderr
    assert ("share of the GPU" in done.stdout, "2/2" in done.stderr) == (True, True)
    assert sorted(point["units_granted"] for point in points(host)) == [12, 66]


def test_a_command_that_only_prints_is_profiled_and_kept_as_a_job(host: FakeHost) -> None:
    """No option says how it counts: its output does, and the job file is there for the rest."""
    script = "for i in $(seq 100000); do echo step $i; sleep 0.01; done"
    host_job = [
        "profile", "--name", "shell", "--mode", "uncapped", "--shares", "100", *QUICK, "--json",
        "--", "sh", "-c", script,
    ]  # fmt: skip
    done = host.advisor(*host_job)
    assert done.returncode == 0, done.stderr
    assert 30 < json.loads(done.stdout)["points"][0]["rate"] < 110
    assert "found, in steps: step " in done.stderr
    kept = host.folder / "jobs" / "shell.yaml"
    assert f"kept as {kept}" in done.stderr
    assert load_job(kept).progress.pattern
    again = host.advisor(*host_job[:-5], "--", "sh", "-c", script)
    assert "looking for progress" not in again.stderr
    # At 100 % alone there is nothing to recommend by.
    assert "next: advisor profile shell --shares 50,100" in again.stdout


def test_interrupt_keeps_points_and_leaves_nothing_behind(host: FakeHost) -> None:
    host.write_job("steady")
    with host.start_advisor("profile", "steady", *SHARES, "--window", "1") as process:
        next(line for line in some(process.stderr) if line.strip().startswith("1/5"))
        process.send_signal(signal.SIGINT)
        rest = some(process.stderr).read()
    assert process.returncode == 130, rest
    assert "the same command goes on from here" in rest
    assert (len(points(host)) >= 1, host.control("get_server_list")) == (True, "")


def test_finished_profile_is_not_measured_again(host: FakeHost) -> None:
    host.write_job("steady")
    first = profile(host, "steady", *ONE)
    again = profile(host, "steady", *ONE)
    assert (again["run"], again["points"]) == (first["run"], first["points"])
    assert profile(host, "steady", *ONE, "--fresh")["run"] != first["run"]


def test_short_command_of_a_script_is_seen_under_its_limit(host: FakeHost) -> None:
    """Runs come and go until one is seen at the server; those that end are the rate."""
    code = 'import ctypes, time; ctypes.CDLL("libcuda.so.1").cuInit(0); time.sleep(0.3)'
    done = host.advisor(
        "profile", "--name", "runs", "--progress", "runs", "--shares", "30", "--window", "2",
        "--json", "--", "sh", "-c", f"sleep 0.05; {sys.executable} -c '{code}'; :",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["points"]
    assert (row["units_granted"], 0.5 < row["rate"] < 3) == (38, True)


def test_job_that_fails_at_one_share_costs_that_share_only(host: FakeHost) -> None:
    host.write_job("bad", "--behave", "die", "--at", "50")
    # As long as it takes until it has died.
    done = host.advisor("profile", "bad", *SHARES, "--window", "1", "--json")
    assert done.returncode == 5, done.stderr
    answer = json.loads(done.stdout)
    shares = [[row["share_percent"] for row in answer[key]] for key in ("points", "failures")]
    assert shares == [[20, 100], [50]]
    assert "ended with exit code 7" in answer["failures"][0]["error"]


def test_gpu_on_which_somebody_else_computes_is_refused(host: FakeHost) -> None:
    """Beside a stranger nothing is measured alone; an MPS server is no stranger."""
    host.write_job("steady")
    (host.folder / "nvml" / "gpu0" / "compute_processes").write_text(f"{os.getpid()} 100")
    done = host.advisor("profile", "steady")
    assert done.returncode == 8
    assert f"processes [{os.getpid()}] use GPU" in done.stderr


def test_without_a_limit_the_whole_gpu_is_the_default(host: FakeHost) -> None:
    """--mode uncapped needs no --shares, and takes none but 100."""
    host.write_job("steady")
    rows = host.answer("profile", "steady", "--mode", "uncapped", *QUICK)["points"]
    assert [row["share_percent"] for row in rows] == [100]
    assert host.advisor("profile", "steady", "--mode", "uncapped", "--shares", "50").returncode == 2


def test_left_over_job_is_ended_before_measuring(host: FakeHost) -> None:
    """A job that outlived a killed profiler does not disturb the next one."""
    with subprocess.Popen(["sleep", "60"], env=host.environment(ADVISOR_GPU=UUID)) as left:
        host.write_job("steady")
        profile(host, "steady", *ONE)
        assert left.wait(5) == -signal.SIGTERM


def test_a_job_that_holds_two_gpus_is_measured_on_both(host: FakeHost) -> None:
    """One process under one daemon of both; readings are means, and that they differ is said."""
    host.write_job("ranks", gpus=2)
    both = two_gpus(host)
    rows = profile(host, "ranks", "--gpu", "0,1", **both)["points"]
    assert [row["units_granted"] for row in rows] == [26, 66, 132]
    # The fake job draws on the first GPU alone: 80 W are those of the other.
    assert [row["power_w"] for row in rows] == pytest.approx([130, 190, 290], rel=0.02)
    assert {(row["gpus"], "gpus-differ" in row["flags"]) for row in rows} == {(2, True)}
    one = host.advisor("profile", "ranks", *ONE, **both)
    assert (one.returncode, "ranks holds 2 GPUs, and --gpu 0 names 1" in one.stderr) == (2, True)


def test_a_job_of_jax_takes_what_it_needs_and_its_profile_says_how(host: FakeHost) -> None:
    """Its process maps a library of jaxlib, as one does that has imported JAX."""
    library = host.folder / "site-packages/jaxlib/_jax.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"library")
    script = (
        "import mmap, runpy, sys; f = open(sys.argv.pop(1), 'rb')\n"
        "m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "sys.path.insert(0, sys.argv.pop(1))\n"
        "runpy.run_module('fake_job', run_name='__main__')"
    )
    command = [sys.executable, "-c", script, str(library), str(FAKES)]
    host.write_job("jax", command=command)
    host.write_job("torch")
    rows = [*profile(host, "jax", *ONE)["points"], *profile(host, "torch", *ONE)["points"]]
    assert [(row["memory_bound"], row["mps_clients"]) for row in rows] == [
        ("XLA_PYTHON_CLIENT_PREALLOCATE=false", 1),
        (None, 1),
    ]
