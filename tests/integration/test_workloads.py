"""The workload scripts: what they count, and that they honour the gate.

The scripts themselves need PyTorch and Transformers, which the project does not; where they are
missing these tests are skipped.
"""

import importlib.util
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import workload_scripts
from host import FAKES, FakeHost
from hypothesis import given, strategies as st
from job_files import JobFiles
from launched import await_nobody, launch
from metrics_job import LATENCY_S, STEPS_PER_S, TOKENS
from waiting import eventually, free_port

from advisor.core.job import Job
from advisor.formats.job_file import sound_jobs
from advisor.formats.rows import flat
from advisor.progress import GO, HOLD, QUIT, RUNNING, WAITING, Progress
from advisor.runtime.counting import read_latencies
from advisor.scrape.fetch import answers

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "profiling" / "workloads"
UNITS = 7

needs_torch = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("torch", "transformers")),
    reason="needs PyTorch and Transformers, which the project does not",
)
# The kernels run on a GPU only; a batch changes nothing that `--tiny` leaves in place.
ON_CPU = [
    job
    for job in sound_jobs(ROOT / "jobs")[0]
    if "kernels.py" not in job.command and not job.name.endswith("-b2")
]


harness = workload_scripts.load("harness")


class Gpu:
    """Completes steps in order, when told or when waited for."""

    def __init__(self) -> None:
        self.launched = self.completed = 0

    def record(self) -> Any:
        self.launched += 1
        number = self.launched
        return SimpleNamespace(
            query=lambda: self.completed >= number,
            synchronize=lambda: self.complete(number - self.completed),
        )

    def complete(self, steps: int) -> None:
        self.completed = min(self.launched, max(self.completed, self.completed + steps))


@given(st.lists(st.integers(0, 3)))
def test_only_completed_steps_are_counted_and_all_of_them(done_before_each: list[int]) -> None:
    """The count is what the GPU has completed: never more, and less by the pipeline at most."""
    gpu, counts = Gpu(), [0]

    def add(units: int, _value: float | None) -> None:
        counts.append(counts[-1] + units)
        assert counts[-1] <= gpu.completed * UNITS

    finished = harness.Finished(gpu.record, add, UNITS)
    for done in done_before_each:
        gpu.complete(done)
        finished.launched()
        assert counts[-1] == gpu.completed * UNITS
        assert gpu.launched - gpu.completed <= harness.STEPS_IN_FLIGHT
    finished.drain()
    assert counts[-1] == len(done_before_each) * UNITS


def test_steps_under_way_are_counted_before_the_job_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused job has nothing left that the next window would count as its own."""
    files, gpu = JobFiles(tmp_path), Gpu()
    for name, value in files.environment.items():
        monkeypatch.setenv(name, value)
    finished = harness.Finished(gpu.record, Progress(on_pause=lambda: finished.drain()).add, UNITS)
    files.want(HOLD)

    def work() -> None:
        for _ in range(harness.STEPS_IN_FLIGHT + 1):
            finished.launched()

    job = threading.Thread(target=work, daemon=True)
    job.start()
    files.wait_for(WAITING)
    assert files.count() == (harness.STEPS_IN_FLIGHT + 1) * UNITS
    files.want(GO)
    job.join(10)
    assert not job.is_alive()
    assert files.state() == RUNNING


@contextmanager
def started(command: tuple[str, ...], files: JobFiles) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=WORKLOADS,
        env=os.environ | files.environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def output_of(command: tuple[str, ...], files: JobFiles, code: int = 0) -> str:
    with started((*command, "--tiny", "--device", "cpu"), files) as process:
        output, _ = process.communicate(timeout=50)
    assert process.returncode == code, output
    assert "Traceback" not in output
    return output


@needs_torch
@pytest.mark.parametrize("job", ON_CPU, ids=lambda job: job.name)
def test_the_command_of_a_job_makes_progress(job: Job, tmp_path: Path) -> None:
    files = JobFiles(tmp_path)
    files.want(GO)
    seconds = "0.2" if job.offered_rate is None else str(0.2 + 20 / job.offered_rate)
    output_of((*job.command[1:], "--seconds", seconds), files)
    assert files.count() > 0
    if job.offered_rate is None:
        assert files.count() % 2 == 0, "a tiny batch is two"
    else:
        assert sum(read_latencies(files.progress)) == files.count(), "each answer has its latency"


@needs_torch
@pytest.mark.parametrize("name", ["bert", "vit", "whisper", "llm", "embedding", "recommender"])
def test_a_server_says_what_it_can_answer(name: str, tmp_path: Path) -> None:
    output = output_of(("serving.py", name, "--capacity", "--seconds", "0.2"), JobFiles(tmp_path))
    found = re.search(rf"^{name}: ([\d.]+) requests/s in batches of 2$", output, re.MULTILINE)
    assert found is not None, output
    assert float(found.group(1)) > 0


@needs_torch
def test_a_workload_waits_goes_pauses_and_quits(tmp_path: Path) -> None:
    files = JobFiles(tmp_path)
    with started(("tensor_ops.py", "triad", "--tiny", "--device", "cpu"), files) as process:
        files.wait_for(WAITING)
        assert files.count() == 0
        files.want(GO)
        eventually(lambda: files.count() > 0)
        files.want(HOLD)
        files.wait_for(WAITING)
        stood_at = files.count()
        time.sleep(0.1)
        assert files.count() == stood_at
        files.want(QUIT)
        assert process.wait(20) == 0


@needs_torch
@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        (("kernels.py", "gemm"), 1, "leave --"),
        (("transformers_models.py", "whisper", "--train"), 1, "leave --"),
        (("serving.py", "bert"), 2, "--rate"),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(
    command: tuple[str, ...], code: int, reason: str, tmp_path: Path
) -> None:
    assert reason in output_of(command, JobFiles(tmp_path), code)


@needs_torch
def test_the_walsh_reference_is_the_hadamard_matrix() -> None:
    script = (
        "import torch, kernels\n"
        "h = torch.ones(1, 1, dtype=torch.float64)\n"
        "for _ in range(5):\n"
        "    h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])\n"
        "x = torch.randn(3, 32, dtype=torch.float64)\n"
        "expected = x @ h / 32**0.5\n"
        "assert kernels.relative_error(kernels.walsh_reference(x), expected) < 1e-12\n"
        "assert kernels.relative_error(x, expected) > kernels.TOLERANCE\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=WORKLOADS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# Servers that are counted by their Prometheus page, from end to end: real pages, a fake driver.


def write_server(
    host: FakeHost, counter: str = "fake:generation_tokens_total", idle_s: float = 0, **more: Any
) -> str:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    page = {"url": url, "counter": counter, "histogram": "fake:e2e_seconds"}
    host.write_job(
        "server",
        command=[sys.executable, str(FAKES / "metrics_job.py"), str(port), str(idle_s)],
        progress={"kind": "metrics", "unit": "tokens", **page},
        **more,
    )
    return url


@pytest.mark.slow
def test_profile_of_a_server(host: FakeHost) -> None:
    url = write_server(host)
    half, whole = host.answer("profile", "server", "--shares", "50,100", "--window", "3")["points"]
    # A busy host is late, never early.
    for point, part in ((half, 0.5), (whole, 1.0)):
        assert 0.6 < point["rate"] / (part * STEPS_PER_S * TOKENS) <= 1.02
    assert not answers(url)
    for point in (half, whole):
        # All took 80 ms, in a bucket from 50 to 100 ms.
        assert point["latency_p50_ms"] == pytest.approx(75, rel=0.1)
        assert 1000 * LATENCY_S < point["latency_p99_ms"] <= 103


@pytest.mark.slow
def test_launch_of_a_server_beside_a_job(host: FakeHost) -> None:
    write_server(host, max_p99_ms=500)
    host.write_job("one")
    last = launch(host, "server", "one", "--split", "50/50", "--duration", "6")
    assert last["state"] == "stopped"
    server = last["jobs"][0]
    assert server["proven"]
    assert server["error"] is None
    assert [w for w in last["warnings"] if "has no profile" not in w] == []
    (seen,) = map(flat, last["observations"])
    assert seen["job_2"] == "server"
    assert 0.25 * STEPS_PER_S * TOKENS < seen["rate_2"] <= 0.55 * STEPS_PER_S * TOKENS
    assert 1000 * LATENCY_S < seen["latency_p99_2_ms"] <= 103
    await_nobody(host)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counter", "more", "said"),
    [
        ("fake:e2e_seconds_bucket", {}, "is a histogram, not a counter"),
        ("fake:tokens_total", {"start_timeout_s": 3}, "near ones: fake:generation_tokens_total"),
        ("fake:generation_tokens_total", {"max_p99_ms": 2000}, "the last bucket"),
    ],
)
def test_a_server_that_is_not_counted_says_why(
    host: FakeHost, counter: str, more: dict[str, Any], said: str
) -> None:
    url = write_server(host, counter, **more)
    done = host.advisor("profile", "server", "--shares", "100", "--window", "0.5")
    assert done.returncode != 0
    assert said in done.stderr.replace("\n", " ")
    assert not answers(url)
