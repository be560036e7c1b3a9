"""`advisor run` from end to end: a queue of jobs, real processes and a fake driver."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from host import OTHER_UUID, UUID, FakeHost
from launched import await_nobody, processes_of, wait_for_line
from reading import answer_of, some
from waiting import eventually

from advisor.core.gpu import WHOLE
from advisor.core.records import WATCHED
from advisor.launch.folder import LaunchFolder
from advisor_data import open_store
from advisor_data.bundled import bundled_solo_points

pytestmark = pytest.mark.slow

STEPS = {
    "bert-serve-10": 0,
    "resnet50-train-b2": 400,
    "mobilenet-train-b2": 300,
    "bert-train-b2": 500,
    "resnet50-train-b32": 400,
    "mobilenet-infer-fp32": 300,
    "triad": 300,
    "gemm": 300,
    "reduction": 200,
    "whisper-infer": 300,
    "home-made": 200,
}
"""Of jobs of which all but the last are profiled; the server has none, and runs on."""

TWELVE = (*STEPS, "mobilenet-train-b2")

STATE_KEYS = {
    "state", "jobs", "left_s", "gpu_s", "energy_j", "alone_s", "alone_j", "starts_j", "unwatched_s",
}  # fmt: skip

JOB_KEYS = {
    "job", "state", "gpu", "share_percent", "below_normal", "steps", "progress", "speed",
    "predicted_speed", "launch_id", "error", "unread", "unread_since", "stalled_since",
}  # fmt: skip


@pytest.fixture
def h100(jobs: FakeHost) -> FakeHost:
    (jobs.folder / "nvml" / "gpu0" / "name").write_text("NVIDIA H100 80GB HBM3")
    for name, steps in STEPS.items():
        jobs.write_job(name, "--steps", str(steps), offered_rate=None if steps else 100)
    return jobs


def run(host: FakeHost, *options: str, code: int = 0) -> dict[str, Any]:
    done = host.advisor("run", *options, "--json")
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def states(said: dict[str, Any]) -> dict[str, str]:
    return {job["job"]: job["state"] for job in said["jobs"]}


def came(host: FakeHost) -> list[tuple[str, str]]:
    root = host.folder / "home" / "launches"
    found = [LaunchFolder(path).read_status() for path in root.glob("*")]
    return sorted((job.job, job.outcome) for status in found for job in status.jobs)


def queue_files(host: FakeHost) -> list[Path]:
    return [*(host.folder / "home" / "queues").glob("*.json")]


def test_twelve_mixed_jobs_run_to_their_end(h100: FakeHost) -> None:
    done = h100.advisor("run", *TWELVE, "--json")
    assert done.returncode == 0, (done.stdout, done.stderr)
    lines = [answer_of(text) for text in done.stdout.splitlines()]
    assert all(set(line) == STATE_KEYS for line in lines)
    assert all(set(job) == JOB_KEYS for line in lines for job in line["jobs"])
    last = lines[-1]
    assert states(last) == {name: "done" if steps else "ended" for name, steps in STEPS.items()}
    outcomes = [("stopped" if name == "bert-serve-10" else "finished") for name in sorted(TWELVE)]
    assert came(h100) == [*zip(sorted(TWELVE), outcomes, strict=True)]
    assert {job["launch_id"] for job in last["jobs"] if job["job"] == "home-made"}.isdisjoint(
        job["launch_id"] for job in last["jobs"] if job["job"] != "home-made"
    )
    assert any(job["predicted_speed"] for line in lines for job in line["jobs"])
    assert (last["energy_j"] > 0, last["gpu_s"] > 5) == (True, True)
    assert last["alone_s"] is None  # of one nobody knows it
    with open_store(None, h100.folder / "home") as store:
        seen = store.observations()
    # Every stretch of two and more; gemm shares where little else is left when it starts.
    alone = STEPS.keys() - {p.job for one in seen for p in one.parts}
    assert alone in ({"home-made"}, {"gemm", "home-made"})
    assert len(seen) > 5
    assert queue_files(h100) == []
    await_nobody(h100)


def test_a_killed_queue_goes_on(h100: FakeHost) -> None:
    h100.write_job("triad", "--steps", "700")
    h100.write_job("resnet50-train-b2", "--steps", "90000")  # until it is killed
    names = ("mobilenet-train-b2", "resnet50-train-b2", "triad", "home-made")
    first = h100.start_advisor("run", *names, "--json")
    eventually(lambda: [outcome for _, outcome in came(h100)].count("running") >= 2)
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=10)
    assert len(queue_files(h100)) == 1
    assert "resnet50-train-b2" in h100.answer("run", *names, "--dry-run")["running"]
    anew = h100.answer("run", *names, "--dry-run", "--fresh")
    assert sorted([one["job"] for one in anew["first"]] + anew["waiting"]) == sorted(names)
    assert anew["running"] == []
    told = "--steps 90000"
    endless, *_ = eventually(lambda: [p for p, of in processes_of(h100).items() if told in of])
    os.kill(endless, signal.SIGKILL)
    said = run(h100, *names, code=5)
    assert states(said)["resnet50-train-b2"] == "failed"
    assert [state for name, state in states(said).items() if name != "resnet50-train-b2"] == [
        "done"
    ] * 3
    await_nobody(h100)
    # What failed is all that is left of it.
    h100.write_job("resnet50-train-b2", "--steps", "400")
    said = run(h100, *names)
    assert set(states(said).values()) == {"done"}
    assert came(h100) == [
        ("home-made", "finished"),
        ("mobilenet-train-b2", "finished"),
        ("resnet50-train-b2", "failed"),
        ("resnet50-train-b2", "finished"),
        ("triad", "finished"),
    ]
    await_nobody(h100)


def test_ctrl_c_ends_all_and_the_same_command_goes_on(h100: FakeHost) -> None:
    h100.write_job("triad", "--steps", "8000")
    names = ("mobilenet-train-b2", "triad")
    with h100.start_advisor("run", *names) as process:
        wait_for_line(process, "mobilenet-train-b2 done")
        busy = h100.advisor("run", *names)
        assert (busy.returncode, "another command runs" in busy.stderr) == (8, True), busy.stderr
        process.send_signal(signal.SIGINT)
        rest = some(process.stdout).read()
    assert process.returncode == 130, rest
    assert all(part in rest for part in ("STOPPED: 1 of 2 jobs done, 1 wait", "the same command"))
    await_nobody(h100)
    h100.write_job("triad", "--steps", "300")
    done = h100.advisor("run", *names)
    assert done.returncode == 0, done.stderr
    assert "DONE: 2 of 2 jobs done." in done.stdout
    assert [name for name, outcome in came(h100) if outcome == "finished"] == [*names]
    await_nobody(h100)


def test_what_cannot_be_is_refused_before_anything_starts(h100: FakeHost) -> None:
    folder = h100.folder / "tonight"
    folder.mkdir()
    (folder / "good.yaml").write_text("command: 'true'")
    (folder / "bad.yaml").write_text("comand: 'true'")
    h100.write_job("again", progress={"kind": "runs"})
    h100.write_job("large", memory_mib=200_000)
    h100.write_job("unknown-serve", offered_rate=10)
    for options, code, words in (
        ((str(folder),), 2, "comand"),
        (("triad", "nobody"), 2, "nobody"),
        (("triad", "again"), 2, "repeated without end"),
        (("triad", "large"), 10, "MiB of memory"),
        (("triad", "unknown-serve"), 2, "advisor profile unknown-serve"),
        (("bert-serve-10",), 2, "advisor launch bert-serve-10"),
        (("triad", "--gpus", "0,0"), 2, "twice"),
        (("triad", "bert-serve-10*7", "--max-p99", "0.01ms"), 10, "no place"),
        (("home-made", "bert-serve-10"), 10, "leave out bert-serve-10"),
    ):
        done = h100.advisor("run", *options)
        assert (done.returncode, words in done.stderr) == (code, True), (options, done.stderr)
    assert not (h100.folder / "home" / "launches").exists()


def test_dry_run_starts_nothing(h100: FakeHost) -> None:
    plan = h100.answer("run", *TWELVE, "--dry-run")
    assert set(plan) == {
        "dry_run",
        "first",
        "tried",
        "running",
        "silent",
        "waiting",
        "spare_s",
        "alone",
        "basis",
    }
    assert plan["basis"] is None
    assert (set(plan["first"][0]), plan["first"][0]["job"]) == (JOB_KEYS, "bert-serve-10")
    assert sorted([job["job"] for job in plan["first"]] + plan["waiting"]) == sorted(TWELVE)
    assert set(plan["alone"]) == {"home-made"}
    shown = h100.advisor("run", *TWELVE, "--dry-run").stdout
    assert "advisor profile home-made" in " ".join(shown.split())
    shown = " ".join(h100.advisor("run", "home-made", "--dry-run").stdout.split())
    assert "GPU 0 home-made no limit Alone home-made shares no GPU: home-made has no" in shown
    assert not (h100.folder / "home" / "launches").exists()
    assert processes_of(h100) == {}


def test_what_only_a_window_says_of_a_job_is_told(h100: FakeHost) -> None:
    h100.write_job("seen")
    window = next(
        point for point in bundled_solo_points({"bert-train-b2"}) if point.share_percent == WHOLE
    )
    with open_store(None, h100.folder / "home") as store:
        store.add(
            [replace(window, job="seen", flags=(WATCHED,), gpu_model="NVIDIA H100 80GB HBM3")]
        )
    asked = ("run", "seen", "resnet50-train-b2", "--dry-run")
    assert h100.answer(*asked)["basis"] == "Estimated from one window of seen"
    shown = " ".join(h100.advisor(*asked).stdout.split())
    assert "nothing is started. Estimated from one window of seen" in shown


def test_dry_run_plans_for_gpus_that_are_not_here(h100: FakeHost) -> None:
    shutil.rmtree(h100.folder / "nvml")
    h100.write_job("large", memory_mib=100_000)
    asked = ("run", "bert-serve-10", "resnet50-train-b2", "triad", "--gpu-model")
    due = ("triad", "gemm", "--work", "50m", "--deadline", "1h", "--gpu-model", "H100", "--dry-run")
    plan = h100.answer("run", *due)
    assert ([job["job"] for job in plan["first"]], plan["waiting"]) == (["triad"], ["gemm"])
    assert plan["spare_s"]["gemm"] == pytest.approx(600, abs=60)
    plan = h100.answer(*asked, "H100", "--gpus", "0,3", "--dry-run")
    assert {job["gpu"] for job in plan["first"]} == {0, 3}
    assert all(job["predicted_speed"] for job in plan["first"])
    large = h100.advisor("run", "large", "--gpu-model", "h100", "--dry-run")
    assert (large.returncode, "MiB of memory" in large.stderr) == (10, True), large.stderr
    for options, words in (
        (("H100",), "is for --dry-run"),
        (("H100", "--dry-run", "--gpus", "1,1"), "twice"),
        (("H100", "--dry-run", "--deadline", "triad=1h"), "its duration alone is unknown"),
    ):
        done = h100.advisor(*asked, *options)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_two_gpus_are_filled_from_one_queue(h100: FakeHost) -> None:
    (h100.folder / "nvml" / "gpu1").mkdir()
    (h100.folder / "nvml" / "gpu1" / "name").write_text("NVIDIA H100 80GB HBM3")
    (h100.folder / "nvml" / "gpu_count").write_text("2")
    names = ("resnet50-train-b2", "bert-train-b2", "mobilenet-train-b2*2")
    both = {"FAKE_CUDA_UUIDS": f"{UUID},{OTHER_UUID}"}
    done = h100.advisor("run", *names, "--gpus", "1,0", "--json", **both)
    assert done.returncode == 0, (done.stdout, done.stderr)
    lines = [answer_of(text) for text in done.stdout.splitlines()]
    assert {job["gpu"] for line in lines for job in line["jobs"]} == {None, 0, 1}
    assert set(states(lines[-1]).values()) == {"done"}
    assert len(came(h100)) == 4
    await_nobody(h100)
