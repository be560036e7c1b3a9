"""`advisor profile` from end to end: real processes, a fake driver, faults of every kind."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import in_this_process
from fanned_out import two_gpus
from host import FAKES, UUID, FakeHost
from reading import answer_of, some

from advisor.core.gpu import Split, without_limits
from advisor.core.job import Job
from advisor.formats.job_file import load_job
from advisor.formats.rows import flat, to_row
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor_data import open_store
from advisor_profiling.reports import LEFT_OUT

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
    host.write_job("jax", command=[sys.executable, "-c", script, str(library), str(FAKES)])
    host.write_job("torch")
    rows = [*profile(host, "jax", *ONE)["points"], *profile(host, "torch", *ONE)["points"]]
    assert [(row["memory_bound"], row["mps_clients"]) for row in rows] == [
        ("XLA_PYTHON_CLIENT_PREALLOCATE=false", 1),
        (None, 1),
    ]


# `advisor colocate` from end to end: real processes, a fake driver, faults of every kind.


PLAN = """\
name: night
measure:
  - pairs: [[one, two]]
    splits: [30/70, 50/50, uncapped]
"""


@pytest.fixture
def jobs(host: FakeHost) -> FakeHost:
    for name in ("one", "two", "three"):
        host.write_job(name)
    return host


def write_plan(host: FakeHost, text: str = PLAN) -> str:
    path = host.folder / "plan.yaml"
    path.write_text(text)
    return str(path)


def exported(host: FakeHost, kind: str = "pairs", home: str = "home") -> list[dict[str, Any]]:
    with open_store(None, host.folder / home) as store:
        points = store.pair_points() if kind == "pairs" else store.solo_points()
        return [flat(to_row(point)) for point in points]


def colocate(host: FakeHost, *options: str, **more: str) -> dict[str, Any]:
    done = host.advisor("colocate", *options, *QUICK, "--json", **more)
    assert done.returncode == 0, done.stderr
    return answer_of(done.stdout)


def test_pairs_run_together_at_their_splits(jobs: FakeHost) -> None:
    """Each job keeps its own rate and units, and the power is that of both.

    Counts of SMs that sum to the card are granted exactly, and 70/70 is not refused. Programs that
    read the JSON find what they found before.
    """
    splits = "30/70,60+72 units,70/70,uncapped,time-sliced"
    answer = colocate(jobs, "--pairs", "one+two", "--splits", splits, "--gpu", "0,")
    cost = answer["cost"]
    assert set(answer) == {
        "run", "gpu_model", "replay", "windows", "to_measure", "measured", "estimated_s", "cost",
        "planned", "skipped", "failures", "sets", "points", "tried",
    }  # fmt: skip
    assert set(cost) == {
        "duration_s", "measuring_s", "window_s", "starting_s", "waiting_s", "starts"
    }  # fmt: skip
    assert min(cost["window_s"], cost["starting_s"]) > 0
    assert max(cost["window_s"], cost["starting_s"]) < cost["duration_s"]
    rows = {(r["mode"], r["units_1"], r["units_2"]): r for r in map(flat, answer["points"])}
    assert set(rows) == {
        ("mps", 38, 92), ("mps", 60, 72), ("mps", 92, 92), ("time-sliced", 132, 132),
        ("uncapped", 132, 132),
    }  # fmt: skip
    uneven = rows["mps", 38, 92]
    assert uneven["rate_2"] > 1.5 * uneven["rate_1"]
    assert uneven["power_w"] == pytest.approx(80 + 40 + 400, rel=0.05)
    assert rows["uncapped", 132, 132]["power_w"] == pytest.approx(80 + 40 + 800, rel=0.05)


def test_person_gets_a_table_and_the_cost(jobs: FakeHost) -> None:
    """The best split of each pair, what it gains, and what the campaign took.

    The rates that speeds are relative to come from the same run and card.
    """
    done = jobs.advisor("colocate", write_plan(jobs), *QUICK)
    assert done.returncode == 0, done.stderr
    assert re.search("one [+] two.*3 pair points in .*GPU-seconds a pair point", done.stdout, re.S)
    again = jobs.advisor("colocate", write_plan(jobs), *QUICK)
    assert "all 5 windows were measured before" in again.stdout
    anew = ("--run", "again", "--dry-run")
    answer = colocate(jobs, write_plan(jobs), *anew)
    planned = sum(planned["windows"] for planned in answer["planned"])
    assert (answer["windows"], answer["to_measure"], planned) == (5, 5, 5)
    shown = jobs.advisor("colocate", write_plan(jobs), *anew).stdout
    assert "one + two         3  30/70 50/50 uncapped" in shown
    assert {(r["job"], r["share_percent"], r["run"]) for r in exported(jobs, "solo")} == {
        ("one", 100, "night"), ("two", 100, "night")
    }  # fmt: skip


def test_sets_of_three_share_the_gpu(jobs: FakeHost) -> None:
    """Without limits, with one for a single job, and time-sliced; nothing is measured twice.

    Programs that read the JSON find the same keys, and a person gets a table.
    """
    # Three fake jobs draw 1,060 W, which a card of 700 W cannot.
    (jobs.folder / "nvml/gpu0/power_limit_mw").write_text("1000000")
    wanted = ("--sets", "one+two+three,one@30+two+two", "--splits", "uncapped,time-sliced")
    answer = colocate(jobs, *wanted)
    points = {(p["mode"], p["jobs"][0]["share_percent"]): p for p in answer["points"]}
    assert set(points) == {("uncapped", 100), ("time-sliced", 100), ("mps", 30)}
    assert all(part["rate"] is not None for p in points.values() for part in p["jobs"])
    limited = points["mps", 30]
    assert [(p["job"], p["units"]) for p in limited["jobs"]] == [
        ("one", 38), ("two", 132), ("two", 132)
    ]  # fmt: skip
    assert limited["power_w"] == pytest.approx(80 + 3 * 20 + 4 * 230, rel=0.05)
    solo = exported(jobs, "solo")
    assert {(r["job"], r["share_percent"]) for r in solo} == {
        ("one", 100), ("one", 30), ("two", 100), ("three", 100)
    }  # fmt: skip
    # On a busy host a window may fail a cross-check: its set, or all of its job, is in no table.
    bad = {r["job"] for r in solo if r["share_percent"] == 100 and LEFT_OUT & set(r["flags"])}
    sound = {
        key
        for key, point in points.items()
        if not LEFT_OUT & set(point["flags"]) and bad.isdisjoint(p["job"] for p in point["jobs"])
    }
    results = {(r["mode"], r["parts"][0]["share_percent"]): r for r in answer["sets"]}
    assert set(results) == sound
    for result in results.values():
        assert set(result) == {
            "parts", "speeds", "mode", "gpu_uuid", "windows", "power_w", "slowest", "p99_ms",
            "saved_off", "saved_idle",
        }  # fmt: skip
        assert len(result["speeds"]) == len(result["parts"])
    shown = jobs.advisor("colocate", *wanted, *QUICK).stdout
    assert ("measured before" in shown, "saves, off" in shown) == (True, True)
    assert ("one@30 0." in shown) == (("mps", 30) in sound)


def test_recorded_sets_are_replayed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On any laptop, by the model that they were recorded on; others are named that could be."""
    here = in_this_process(capsys, monkeypatch, tmp_path)
    sets = "bert-infer+whisper-infer-b2,bert-infer@50+whisper-infer-b2"
    said = here("colocate", "--gpu", "replay", "--sets", sets, "--splits", "uncapped,time-sliced")
    assert said.code == 0, said.err
    assert "NVIDIA H200" in said.out
    assert [line.split()[-8] for line in said.out.splitlines() if " + " in line] == [
        "time-sliced", "uncapped"
    ]  # fmt: skip
    unknown = here("colocate", "--gpu", "replay", "--sets", "bert-infer+bert-infer+bert-infer")
    assert unknown.code == 2
    assert re.search(r"\d{3} sets were recorded, such as \S+\+\S+, ", unknown.err)


def test_ways_of_a_set_are_tried_without_a_launch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that a launch tries; first the one that keeps its limits and does most per joule."""
    here = in_this_process(capsys, monkeypatch, tmp_path)

    def ways(jobs: Sequence[Job], *_: object, measured: bool) -> list[tuple[LaunchSet, tuple[()]]]:
        assert measured
        parts = tuple(LaunchPart(job=job, min_speed=0.4, max_p99_ms=100.0) for job in jobs)
        turns, free = (without_limits(sharing, 3) for sharing in ("time-sliced", "uncapped"))
        splits = (turns, Split((100.0, 100.0, 50.0)), free)
        return [(LaunchSet(split=split, parts=parts), ()) for split in splits]

    monkeypatch.setattr("advisor_advice.forecasting.recommended", ways)
    names = "gemm+bert-serve-10+embedding-serve-10"
    asked = ("colocate", "--gpu", "replay", "--sets", names, "--try", "3")
    first, second, third = json.loads(here(*asked, "--json").out)["tried"]
    assert [one["split"] for one in (first, second, third)] == [
        "100/100/50", "time-sliced", "uncapped"
    ]  # fmt: skip
    assert [len(one["broken"]) for one in (first, second, third)] == [0, 0, 2]
    assert first["work_per_joule"] > second["work_per_joule"] > 0
    assert "1. 100/100/50 " in here(*asked).out


def test_job_that_lifts_its_limit_never_runs_in_a_window(jobs: FakeHost) -> None:
    """A pair with one job without its limit is no pair at that split; the others are measured."""
    script = f"env -u CUDA_MPS_ACTIVE_THREAD_PERCENTAGE python3 {Path(__file__).parents[1]}"
    jobs.write_job("escape", command=["sh", "-c", f"{script}/fakes/fake_job.py; :"])
    done = jobs.advisor("colocate", "--pairs", "escape+one,one+two", "--splits", "30/70", *QUICK)
    assert done.returncode == 5, done.stderr
    rows = {row["job_1"]: row for row in exported(jobs)}
    assert rows["one"]["rate_1"] > 0
    assert rows["escape"]["rate_1"] is None
    assert "do not carry the variables of its share of 30 %" in rows["escape"]["error"]


def test_two_gpus_share_the_work(jobs: FakeHost) -> None:
    """An interrupt ends all GPUs with their jobs; points stay, and the same command goes on.

    Each pair is whole on one card.
    """
    both = two_gpus(jobs)
    plan = ("--pairs", "one+two,two+three", "--splits", "30/70,50/50", "--gpu", "0,1")
    with jobs.start_advisor("colocate", *plan, *QUICK, **both) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.strip().startswith("GPU 0 |  1/"))
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert "the same command goes on from here" in rest
    kept = len(exported(jobs) + exported(jobs, "solo"))
    assert kept >= 1
    assert jobs.control("get_server_list") == ""
    answer = colocate(jobs, *plan, **both)
    assert answer["measured"] == answer["windows"] - kept
    cards = {(row["job_1"], row["job_2"], row["gpu_uuid"]) for row in map(flat, answer["points"])}
    assert (len(answer["points"]), len(cards)) == (4, 2)


def test_unclear_or_faulty_wishes_are_refused_before_anything_starts(
    jobs: FakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write_plan(jobs)
    here = in_this_process(capsys, monkeypatch, jobs.folder)
    monkeypatch.setenv("ADVISOR_JOBS", str(jobs.folder / "jobs"))
    for options, message in (
        ((), "give a plan file, or --among, or --pairs"),
        (("--among", "one", "--shard", "3/2"), "--shard 2/8"),
        (("--sets", "one+two", "--pairs", "one+two"), "or --pairs, or --sets"),
        (("--sets", "one"), "two to 7 jobs"),
        (("--sets", "one+two", "--splits", "nine"), "uncapped or time-sliced"),
        (("--sets", "one+two", "--sample", "3"), "--sample has no meaning with --sets"),
        (("--sets", "one+two@50", "--try", "2"), "a split is given"),
        (("--among", "one", "--noise"), "--gpu replay"),
        (("--among", "one", "--gpu", ","), "names no GPU"),
        (("--among", "one", "--gpu", "replay,0"), "a replay cannot be combined with a GPU"),
        ((plan, "--run", ""), "cannot name a run"),
        ((plan, "--run", "../../x"), "cannot name a run"),
        ((plan, "--repeats", "1"), "--repeats cannot be combined with a plan file"),
        ((plan, "--splits", "nine"), "--splits cannot be combined with a plan file"),
        ((plan, "--sample", "2"), "--sample cannot be combined with a plan file"),
    ):
        said = here("colocate", *options)
        assert said.code == 2, (options, said.err)
        assert message in said.err
    # These come to light once the card is known.
    for options, message in (
        (("--among", "one,tow"), "two"),
        (("--among", "one", "--splits", "60+70 units"), "132"),
    ):
        done = jobs.advisor("colocate", *options)
        assert done.returncode == 2, (options, done.stderr)
        assert message in done.stderr
    assert exported(jobs) == []
