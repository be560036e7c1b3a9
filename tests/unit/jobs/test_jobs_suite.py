"""The job files that ship with the project."""

from pathlib import Path

import pytest

from advisor.core.job import TOLERANCE, Job, judge, read_first
from advisor.formats.job_file import sound_jobs
from advisor_data.bundled import bundled_set_references

ROOT = Path(__file__).parents[3]
JOBS = {job.name: job for job in sound_jobs(ROOT / "jobs")[0]}

DEEP_LEARNING = {
    *("albert-train", "bert-train", "vit-train", "resnet50-train", "mobilenet-train"),
    *("bert-infer", "vit-infer", "whisper-infer", "wav2vec2-infer"),
    *("resnet50-infer", "mobilenet-infer"),
}
KERNELS = {"walsh", "reduction", "transpose", "sorting", "gemm"}
TODAY = {"llm-decode", "llm-prefill", "dit-step", "embedding", "matmul-fp32", "triad"}

SERVERS = {name: job for name, job in JOBS.items() if job.offered_rate is not None}

every_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


def option(job: Job, name: str) -> str | None:
    """What follows the option in the job's command."""
    words = job.command
    return words[words.index(name) + 1] if name in words else None


def test_the_sixteen_of_the_paper_and_six_of_today_are_there() -> None:
    """The suite holds the sixteen workloads of the paper and six that are common today."""
    assert len(DEEP_LEARNING | KERNELS) == 16
    assert set(JOBS) >= DEEP_LEARNING | KERNELS | TODAY


@pytest.mark.parametrize("name", sorted(DEEP_LEARNING))
def test_the_batch_of_the_paper_differs_in_the_batch_alone(name: str) -> None:
    """Each deep-learning job has a twin with the paper's batch of two, otherwise the same."""
    job, twin = JOBS[name], JOBS[f"{name}-b2"]
    batch = option(job, "--batch")
    assert batch is not None
    assert int(batch) > 2
    command = list(job.command)
    command[command.index("--batch") + 1] = "2"
    assert tuple(command) == twin.command
    assert (job.progress, job.input) == (twin.progress, twin.input)


@every_job
def test_the_script_exists(job: Job) -> None:
    """A job's command names a script of its working directory."""
    assert job.workdir is not None
    assert job.command[0] == "python3"
    assert (job.workdir / job.command[1]).resolve().parent == ROOT / "profiling" / "workloads"
    assert (job.workdir / job.command[1]).is_file()


@every_job
def test_the_input_is_random_and_described(job: Job) -> None:
    """No job runs on zeros: power depends on the data, so each says what it is fed."""
    assert job.input.source == "random"
    assert job.input.dtype == (option(job, "--dtype") or job.input.dtype)
    assert job.input.dtype is not None
    assert job.input.sparsity == 0
    assert job.input.note


@pytest.mark.parametrize("name", ["llm-serve-10", "llm-stream-10"])
def test_orders_of_sums_are_no_wrong_answers_of_a_language_model(name: str) -> None:
    """What was reported at half of a card, at a safe count, is right beside the whole one."""
    points = [p for p in bundled_set_references() if p.job == name and p.run == "sets-8"]
    half, whole = (
        next(read_first(p.reported) for p in points if p.share_percent == share)
        for share in (50, 100)
    )
    assert half is not None
    assert judge(half, whole, TOLERANCE) == "differ"
    assert (results := JOBS[name].results) is not None
    assert judge(half, whole, results.tolerance) == "right"


@every_job
def test_the_profiler_can_hold_it(job: Job) -> None:
    """Every job counts into the file and waits at the gate, so that shares can be prepared."""
    assert job.progress.kind == "counter"
    assert job.progress.gate


@pytest.mark.parametrize("job", SERVERS.values(), ids=SERVERS)
def test_the_demand_of_a_server_is_that_of_its_command(job: Job) -> None:
    """The points say what really arrived: job file and command name the same rate."""
    rate = option(job, "--rate")
    assert rate is not None
    assert job.offered_rate == float(rate)
    assert job.command[1] == "serving.py"


@pytest.mark.parametrize("name", sorted(name for name in JOBS if name.endswith("-waiting")))
def test_a_job_that_waits_differs_in_its_input_alone(name: str) -> None:
    """What is lost by waiting can be told from the job that does not wait."""
    command = JOBS[name.removesuffix("-waiting")].command
    assert JOBS[name].command[:-1] == (*command, "--input-ms")


def test_the_readme_lists_every_job() -> None:
    """The table of jobs/README.md is complete; the -b2 twins are described once."""
    table = (ROOT / "jobs" / "README.md").read_text(encoding="utf-8")
    assert [name for name in JOBS if not name.endswith("-b2") and f"| {name} |" not in table] == []
