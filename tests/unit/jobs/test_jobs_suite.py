"""The job files that ship with the project."""

from pathlib import Path

import pytest

from advisor.core.job import TOLERANCE, Job, Reported
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

every_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


def option(job: Job, name: str) -> str | None:
    words = job.command
    return words[words.index(name) + 1] if name in words else None


@pytest.mark.parametrize("name", sorted(DEEP_LEARNING))
def test_the_batch_of_the_paper_differs_in_the_batch_alone(name: str) -> None:
    """Each deep-learning job has a twin with the paper's batch of two, otherwise the same."""
    job, twin = JOBS[name], JOBS[f"{name}-b2"]
    command = [*job.command]
    batch = command.index("--batch") + 1
    assert int(command[batch]) > 2
    command[batch] = "2"
    assert (tuple(command), job.progress, job.input) == (twin.command, twin.progress, twin.input)


@every_job
def test_each_job_can_be_held_and_says_what_it_is_fed(job: Job) -> None:
    """A script of its working directory counts and waits at the gate, so shares can be prepared.

    No job runs on zeros: power depends on the data. A server's rate is that of its command.
    """
    assert job.workdir is not None
    assert (job.command[0], job.progress.kind, job.progress.gate) == ("python3", "counter", True)
    script = (job.workdir / job.command[1]).resolve()
    assert (script.parent, script.is_file()) == (ROOT / "profiling" / "workloads", True)
    fed = job.input
    assert (fed.source, fed.sparsity, bool(fed.dtype), bool(fed.note)) == ("random", 0, True, True)
    assert fed.dtype == (option(job, "--dtype") or fed.dtype)
    assert job.offered_rate is None or job.command[1] == "serving.py"
    assert job.offered_rate is None or job.offered_rate == float(option(job, "--rate") or 0)


@pytest.mark.parametrize("name", ["llm-serve-10", "llm-stream-10"])
def test_orders_of_sums_are_no_wrong_answers_of_a_language_model(name: str) -> None:
    """What was reported at half of a card, at a safe count, is right beside the whole one."""
    points = [p for p in bundled_set_references() if p.job == name and p.run == "sets-8"]
    half, whole = (
        next(Reported.read(p.reported) for p in points if p.share_percent == share)
        for share in (50, 100)
    )
    assert half is not None
    assert half.judge(whole, TOLERANCE) == "differ"
    assert (results := JOBS[name].results) is not None
    assert half.judge(whole, results.tolerance) == "right"


@pytest.mark.parametrize("name", sorted(name for name in JOBS if name.endswith("-waiting")))
def test_a_job_that_waits_differs_in_its_input_alone(name: str) -> None:
    """What is lost by waiting can be told from the job that does not wait."""
    command = JOBS[name.removesuffix("-waiting")].command
    assert JOBS[name].command[:-1] == (*command, "--input-ms")


def test_the_readme_lists_every_job() -> None:
    """The sixteen of the paper, six of today and more; the -b2 twins are described once."""
    assert set(JOBS) >= DEEP_LEARNING | KERNELS | TODAY
    table = (ROOT / "jobs" / "README.md").read_text(encoding="utf-8")
    assert [name for name in JOBS if not name.endswith("-b2") and f"| {name} |" not in table] == []
