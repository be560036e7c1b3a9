"""`advisor colocate` from end to end: real processes, a fake driver, faults of every kind."""

import json
import re
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import in_this_process
from forked import Forked
from host import OTHER_UUID, UUID, FakeHost
from reading import answer_of

from advisor.formats.rows import flat, to_row
from advisor_data import open_store
from advisor_profiling.reports import LEFT_OUT

QUICK = ("--window", "0.5")
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


@pytest.fixture
def two_gpus(jobs: FakeHost) -> dict[str, str]:
    """Variables under which the host has a second GPU."""
    (jobs.folder / "nvml" / "gpu1").mkdir()
    (jobs.folder / "nvml" / "gpu_count").write_text("2")
    return {"FAKE_CUDA_UUIDS": f"{UUID},{OTHER_UUID}"}


def write_plan(host: FakeHost, text: str = PLAN) -> str:
    path = host.folder / "plan.yaml"
    path.write_text(text)
    return str(path)


def exported(host: FakeHost, kind: str = "pairs", home: str = "home") -> list[dict[str, Any]]:
    with open_store(None, host.folder / home) as store:
        points = store.pair_points() if kind == "pairs" else store.solo_points()
        return [flat(to_row(point)) for point in points]


def colocate(host: FakeHost, *options: str, **more: str) -> dict[str, Any]:
    """Run to the end and return the JSON; the command must have ended well."""
    done = host.advisor("colocate", *options, *QUICK, "--json", **more)
    assert done.returncode == 0, done.stderr
    return answer_of(done.stdout)


def windows(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (r["job_1"], r["job_2"], r["mode"], r["share_1_percent"], r["share_2_percent"])
        for r in map(flat, rows)
    )


def test_pairs_run_together_at_their_splits(jobs: FakeHost) -> None:
    """Each job keeps its own rate and units, and the power is that of both.

    Counts of SMs that sum to the card are granted exactly, and 70/70 is not refused. Programs that
    read the JSON find what they found before.
    """
    splits = "30/70,60+72 units,70/70,uncapped,time-sliced"
    answer = colocate(jobs, "--pairs", "one+two", "--splits", splits, "--gpu", "0,")
    assert set(answer) == {
        "run", "gpu_model", "replay", "windows", "to_measure", "measured", "estimated_s", "cost",
        "planned", "skipped", "failures", "sets", "points",
    }  # fmt: skip
    assert set(answer["cost"]) == {
        "duration_s", "measuring_s", "window_s", "starting_s", "waiting_s", "starts"
    }  # fmt: skip
    found = [*map(flat, answer["points"])]
    assert sorted((r["mode"], r["units_1"], r["units_2"]) for r in found) == [
        ("mps", 38, 92), ("mps", 60, 72), ("mps", 92, 92), ("time-sliced", 132, 132),
        ("uncapped", 132, 132),
    ]  # fmt: skip
    rows = {r["share_1_percent"]: r for r in found if r["mode"] != "time-sliced"}
    uneven = rows[30]
    assert uneven["rate_2"] > 1.5 * uneven["rate_1"]
    assert uneven["power_w"] == pytest.approx(80 + 40 + 400, rel=0.05)
    assert rows[100]["power_w"] == pytest.approx(80 + 40 + 800, rel=0.05)
    assert answer["replay"] is False
    assert 0 < answer["cost"]["window_s"] < answer["cost"]["duration_s"]
    assert 0 < answer["cost"]["starting_s"] < answer["cost"]["duration_s"]


def test_person_gets_a_table_and_the_cost(jobs: FakeHost) -> None:
    """The best split of each pair, what it gains, and what the campaign took.

    The rates that speeds are relative to come from the same run and card.
    """
    done = jobs.advisor("colocate", write_plan(jobs), *QUICK)
    assert done.returncode == 0, done.stderr
    assert "GPU-minutes" in done.stderr
    assert "one + two" in done.stdout
    assert "3 pair points in" in done.stdout
    assert "GPU-seconds a pair point" in done.stdout
    again = jobs.advisor("colocate", write_plan(jobs), *QUICK)
    assert "all 5 windows were measured before" in again.stdout
    anew = colocate(jobs, write_plan(jobs), "--run", "again", "--dry-run")
    assert (anew["windows"], anew["to_measure"]) == (5, 5)
    assert sum(planned["windows"] for planned in anew["planned"]) == 5
    shown = jobs.advisor("colocate", write_plan(jobs), "--run", "again", "--dry-run").stdout
    assert "one + two         3  30/70 50/50 uncapped" in shown
    alone = exported(jobs, "solo")
    assert {(r["job"], r["share_percent"], r["run"]) for r in alone} == {
        ("one", 100, "night"), ("two", 100, "night")
    }  # fmt: skip


def test_sets_of_three_share_the_gpu(jobs: FakeHost) -> None:
    """Without limits, with one for a single job, and time-sliced: each speed, watts, and savings.

    Programs that read the JSON find the same keys, a person gets a table, and nothing is measured
    twice.
    """
    wanted = ("--sets", "one+two+three,one@30+two+two", "--splits", "uncapped,time-sliced")
    answer = colocate(jobs, *wanted)
    points = {(p["mode"], p["jobs"][0]["share_percent"]): p for p in answer["points"]}
    assert set(points) == {("uncapped", 100), ("time-sliced", 100), ("mps", 30)}
    limited = points["mps", 30]
    assert [part["job"] for part in limited["jobs"]] == ["one", "two", "two"]
    assert [part["units"] for part in limited["jobs"]] == [38, 132, 132]
    assert limited["power_w"] == pytest.approx(80 + 3 * 20 + 4 * 230, rel=0.05)
    solo = exported(jobs, "solo")
    assert {(r["job"], r["share_percent"]) for r in solo} == {
        ("one", 100), ("one", 30), ("two", 100), ("three", 100)
    }  # fmt: skip
    # On a busy host a window may fail a cross-check: its set, or all of its job, is in no table.
    whole_gpu = {
        r["job"]: r["rate"]
        for r in solo
        if r["share_percent"] == 100 and not LEFT_OUT & set(r["flags"])
    }
    sound = {
        key
        for key, point in points.items()
        if not LEFT_OUT & set(point["flags"])
        and {part["job"] for part in point["jobs"]} <= whole_gpu.keys()
    }
    results = {(r["mode"], r["parts"][0]["share_percent"]): r for r in answer["sets"]}
    assert set(results) == sound
    for key, result in results.items():
        assert set(result) == {
            "parts", "mode", "gpu_uuid", "windows", "power_w", "slowest", "p99_ms", "saved_off",
            "saved_idle",
        }  # fmt: skip
        for part in result["parts"]:
            assert set(part) == {"job", "share_percent", "speed", "latency_p99_ms"}
        # Of what was measured: a busy host slows one window and not another.
        speeds = [p["rate"] / whole_gpu[p["job"]] for p in points[key]["jobs"]]
        assert result["slowest"] == pytest.approx(min(speeds))
    assert [[part["rate"] is not None for part in p["jobs"]] for p in answer["points"]] == [
        [True] * 3
    ] * 3
    done = jobs.advisor("colocate", *wanted, *QUICK)
    assert "measured before" in done.stdout
    assert "saves, off" in done.stdout
    assert ("one@30 0." in done.stdout) == (("mps", 30) in sound)


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


def test_drawn_sets_are_the_same_again(jobs: FakeHost) -> None:
    """The same command goes on after Ctrl-C; another seed is another campaign."""
    wanted = ("--sets", "3", "--seed", "2", "--among", "one,two")
    with jobs.start_advisor("colocate", *wanted, *QUICK) as process:
        wait_for(process, "2/5")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "the same command goes on from here" in process.stderr.read()
    assert process.returncode == 130
    before = len(exported(jobs) + exported(jobs, "solo"))
    assert 2 <= before < 5
    answer = colocate(jobs, *wanted)
    assert (answer["windows"], answer["measured"]) == (5, 5 - before)
    assert len(answer["points"]) == 3
    assert colocate(jobs, *wanted, "--dry-run")["to_measure"] == 0
    other = colocate(jobs, "--sets", "3", "--seed", "3", "--among", "one,two", "--dry-run")
    assert other["run"] != answer["run"]


def test_kill_9_in_mid_campaign_then_resume(jobs: FakeHost) -> None:
    plan = write_plan(jobs)
    with jobs.start_advisor("colocate", plan, *QUICK) as process:
        wait_for(process, "2/5")
        process.kill()
    kept = exported(jobs) + exported(jobs, "solo")
    assert 2 <= len(kept) < 5
    wait_until_gone(jobs)
    answer = colocate(jobs, plan)
    assert answer["measured"] == 5 - len(kept)
    after = exported(jobs)
    assert all(row in after + exported(jobs, "solo") for row in kept)
    assert len(after) == 3
    assert set(windows(after).values()) == {1}


def test_job_that_fails_marks_its_points_only(jobs: FakeHost) -> None:
    jobs.write_job("bad", "--behave", "exit")
    jobs.write_job("dies", "--behave", "die")
    plan = ("--pairs", "bad+bad,bad+one,dies+one,one+one", "--splits", "30/70")
    done = jobs.advisor("colocate", *plan, "--window", "3", "--json")
    assert done.returncode == 5, done.stderr
    rows = {(r["job_1"], r["job_2"]): r for r in map(flat, json.loads(done.stdout)["points"])}
    assert "failed" not in rows["one", "one"]["flags"]
    assert rows["one", "one"]["rate_1"] > 0
    for pair in (("bad", "bad"), ("bad", "one"), ("dies", "one")):
        assert rows[pair]["flags"] == ["failed"]
        assert rows[pair]["rate_1"] is None
    errors = [rows[job, "one"]["error"] for job in ("bad", "dies")]
    assert "ended with exit code 3" in errors[0]
    assert "ended with exit code 7" in errors[1]


def test_job_that_lifts_its_limit_never_runs_in_a_window(jobs: FakeHost) -> None:
    """A pair with one job without its limit is no pair at that split; the others are measured."""
    script = f"env -u CUDA_MPS_ACTIVE_THREAD_PERCENTAGE python3 {Path(__file__).parents[1]}"
    command = ["sh", "-c", f"{script}/fakes/fake_job.py; :"]
    jobs.write_job("escape", command=command)
    done = jobs.advisor("colocate", "--pairs", "escape+one,one+two", "--splits", "30/70", *QUICK)
    assert done.returncode == 5, done.stderr
    rows = {row["job_1"]: row for row in exported(jobs)}
    assert rows["one"]["rate_1"] > 0
    assert rows["escape"]["rate_1"] is None
    assert "do not carry the variables of its share of 30 %" in rows["escape"]["error"]


def test_two_gpus_share_the_work(jobs: FakeHost, two_gpus: dict[str, str]) -> None:
    plan = ("--pairs", "one+two,two+three", "--splits", "30/70,time-sliced")
    answer = colocate(jobs, *plan, "--gpu", "0,1", **two_gpus)
    rows = [*map(flat, answer["points"])]
    assert set(windows(rows).values()) == {1}
    assert len(rows) == answer["windows"] - len(exported(jobs, "solo")) == 4
    cards = {(r["job_1"], r["job_2"]): set[str]() for r in rows}
    for row in rows:
        cards[row["job_1"], row["job_2"]].add(row["gpu_uuid"])
    assert all(len(uuids) == 1 for uuids in cards.values())


def test_interrupt_ends_all_gpus(jobs: FakeHost, two_gpus: dict[str, str]) -> None:
    """The one that was asked to stop stops the others, and they their jobs; points stay."""
    plan = ("--among", "one,two", "--splits", "30/70,50/50", "--window", "1")
    with jobs.start_advisor("colocate", *plan, "--gpu", "0,1", **two_gpus) as process:
        wait_for(process, "GPU 0 |  1/")
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert "the same command goes on from here" in rest
    assert len(exported(jobs) + exported(jobs, "solo")) >= 1
    assert jobs.control("get_server_list") == ""


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
        (("--sets", "4", "--sample", "3"), "--sample has no meaning here"),
        (("--pairs", "one+two", "--seed", "3"), "--seed has no meaning here"),
        ((plan, "--seed", "3"), "--seed cannot be combined with a plan file"),
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


def wait_for(process: Forked, start: str) -> None:
    """Read what the campaign says until a line begins so."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip().startswith(start):
            return
    raise AssertionError(f"no line {start}")


def wait_until_gone(host: FakeHost) -> None:
    """Jobs end with the campaign that was killed."""
    deadline = time.monotonic() + 10
    while host.control("get_client_list 1") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert host.control("get_client_list 1") == ""
