"""The job's side of progress and gate, in every language of docs/job-file.md."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from job_files import JobFiles

from advisor import callbacks
from advisor.progress import (
    FILE_BYTES,
    GO,
    QUIT,
    RUNNING,
    STARTING,
    WAITING,
    Progress,
    latency_bucket,
)
from advisor.runtime.counting import read_latencies, read_reported

PAGE = (Path(__file__).parents[3] / "docs/job-file.md").read_text()
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    return JobFiles(tmp_path)


@pytest.fixture
def job(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A job in a thread that counts by one until it is told to quit; yields what it did."""
    for name, value in files.environment.items():
        monkeypatch.setenv(name, value)
    done: list[str] = []

    def work() -> None:
        with contextlib.suppress(SystemExit):  # the way in which a job quits
            count()

    def count() -> None:
        progress = Progress(on_pause=lambda: done.append("pause"))
        progress.ready()
        while True:
            done.append("step")
            progress.add()
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    yield done
    files.want(QUIT)
    thread.join(10)
    assert not thread.is_alive()


def test_nothing_happens_outside_the_advisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADVISOR_PROGRESS_FILE", raising=False)
    monkeypatch.setenv("ADVISOR_GATE_FILE", "")
    pauses = list[str]()
    progress = Progress(on_pause=lambda: pauses.append("there is no gate"))
    progress.ready()
    progress.add(3)
    assert pauses == []


def test_missing_file_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(tmp_path / "missing" / "file"))
    with pytest.raises(FileNotFoundError):
        Progress()


def test_gate_holds_until_go(files: JobFiles, job: list[str]) -> None:
    files.wait_for(WAITING)
    assert (job, files.count()) == (["pause"], 0)
    files.want(GO)
    files.wait_for(RUNNING)
    while files.count() < 3:
        time.sleep(0.001)
    assert job[:3] == ["pause", "step", "step"]


def test_quit_is_a_clean_exit(files: JobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVISOR_GATE_FILE", str(files.gate))
    files.want(QUIT)
    with pytest.raises(SystemExit) as status:
        Progress().ready()
    assert status.value.code == 0


@pytest.mark.parametrize("source", snippets("python"))
def test_documented_python(files: JobFiles, source: str) -> None:
    _run([sys.executable, "-c", source], ADVISOR_PROGRESS_FILE=str(files.progress))
    assert files.count() == 96


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_documented_shell(files: JobFiles, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    source = snippets("sh")[0]
    for count in (96, 10, 0, 1234567890, 2**32 - 1):
        _run([shell, "-c", source.replace("n=96", f"n={count}")], **files.environment)
        assert files.count() == count
    assert files.progress.stat().st_size == FILE_BYTES


def test_documented_shell_gate(files: JobFiles) -> None:
    source = snippets("sh")[1] + "echo working"
    for wanted, state, output in ((GO, RUNNING, "working\n"), (QUIT, WAITING, "")):
        files.gate.write_bytes(bytes(16))
        assert _under_gate(files, ["sh", "-c", source], wanted) == output
        assert files.state() == state


@needs_cc
def test_documented_c(files: JobFiles, tmp_path: Path) -> None:
    program = _compile(tmp_path, snippets("c")[0])
    _run([program])
    assert files.count() == 0
    _run([program], **files.environment)
    assert files.count() == 96


@needs_cc
def test_documented_c_gate(files: JobFiles, tmp_path: Path) -> None:
    program, gate, *_ = snippets("c")
    body = 'int main(void) { gate = map_counts("ADVISOR_GATE_FILE", 16); pass_gate(); pass_gate();'
    source = "#define _DEFAULT_SOURCE\n#include <stdio.h>\n" + program.split("int main")[0] + gate
    command = [_compile(tmp_path, source + body + ' puts("working"); return 0; }')]
    for wanted, state, output in ((GO, RUNNING, "working\n"), (QUIT, WAITING, "")):
        files.gate.write_bytes(bytes(16))
        assert (_under_gate(files, command, wanted), files.state()) == (output, state)


@needs_cc
def test_documented_c_server(files: JobFiles, tmp_path: Path) -> None:
    latencies_s = [0.0, 3e-6, 1.2e-5, 0.0123, 2.5, 2.5, 1e4]
    program, _, server, _ = snippets("c")
    body = 'int main(void) { file = map_counts("ADVISOR_PROGRESS_FILE", 4096); '
    body += " ".join(f"answered({latency_s});" for latency_s in latencies_s) + " return 0; }"
    _run([_compile(tmp_path, program.split("int main")[0] + server + body)], **files.environment)
    assert files.count() == len(latencies_s)
    seen = Counter(dict(enumerate(read_latencies(files.progress))))
    assert +seen == Counter(map(latency_bucket, latencies_s))


def test_answers_are_counted_before_the_job_waits(
    files: JobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in files.environment.items():
        monkeypatch.setenv(name, value)
    files.want(QUIT)
    latencies_s = [0.001, 0.001, 0.5]
    with pytest.raises(SystemExit):
        Progress().answered(latencies_s)
    assert files.count() == 3
    counts = read_latencies(files.progress)
    assert ([counts[latency_bucket(s)] for s in latencies_s], sum(counts)) == ([2, 2, 1], 3)


def _under_gate(files: JobFiles, command: list[str], wanted: int) -> str:
    """What a job prints that finds the gate closed and is then told what is wanted."""
    assert files.state() == STARTING
    with subprocess.Popen(
        command, env={**os.environ, **files.environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        files.wait_for(WAITING)
        files.want(wanted)
        output, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    return output


@needs_cc
def test_documented_c_results(files: JobFiles, tmp_path: Path) -> None:
    program, *_, report = snippets("c")
    body = (
        'int main(void) { volatile int64_t *file = map_counts("ADVISOR_PROGRESS_FILE", 4096);'
        " for (int i = 1; i <= 12; i++) { *file = 32 * i; report(file, i < 12 ? 1.0 / i : NAN); }"
        " return 0; }"
    )
    _run([_compile(tmp_path, program.split("int main")[0] + report + body)], **files.environment)
    seen = read_reported(files.progress)
    assert seen.first == tuple((32 * i, 1.0 / i) for i in range(1, 9))
    assert (seen.count, seen.not_finite, files.count()) == (12, 1, 384)


def _compile(folder: Path, source: str) -> str:
    (folder / "job.c").write_text(source)
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-O2", "-o", "job", "job.c", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return str(folder / "job")


def _run(command: list[str], **env: str) -> None:
    subprocess.run(command, env={**os.environ, **env}, check=True, timeout=20)


# Loops that somebody else wrote are counted: with the real libraries where they are installed.


class Count(Progress):
    total = 0

    def add(
        self, steps: int = 1, value: float | None = None, latency_s: float | None = None
    ) -> None:
        self.total += steps


class Gpu:
    def __init__(self) -> None:
        self.queued = self.finished = 0

    def is_available(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.finished = self.queued

    def Event(self) -> Any:  # noqa: N802
        def record() -> None:
            self.queued += 1
            event.number = self.queued

        event = SimpleNamespace(record=record, query=lambda: event.number <= self.finished)
        return event


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(name: str, **names: Any) -> None:
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)

    return put


class NoGpu:
    @staticmethod
    def is_available() -> bool:
        return False


def test_a_step_counts_when_the_gpu_has_finished_it(install: Install) -> None:
    gpu, count = Gpu(), Count()
    install("torch", cuda=gpu)
    steps = callbacks.StepCounter(count)
    for _ in range(3):
        steps.step()
    assert count.total == 0
    gpu.finished = 2
    steps.step()
    assert count.total == 2
    gpu.synchronize()
    steps.step()
    assert count.total == 4, "the last one has only been queued"


def test_a_trainer_counts_on_its_first_process_alone(install: Install) -> None:
    install("torch", cuda=NoGpu())
    install("transformers", TrainerCallback=object)
    count = Count()
    callback = callbacks.trainer_callback(count)
    for first in (True, False, True):
        state = SimpleNamespace(is_world_process_zero=first)
        assert callback.on_step_end(None, state, None, model=None) is None
    assert count.total == 2


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_counts_batches(install: Install, package: str) -> None:
    base: Any = type("Callback", (), {})
    install("torch", cuda=NoGpu())
    install(package, Callback=base)
    count = Count()
    callback: Any = callbacks.lightning_callback(count)
    assert issubclass(type(callback), base)
    for first in (True, False):
        trainer = SimpleNamespace(is_global_zero=first)
        callback.on_train_batch_end(trainer, None, {}, batch=[], batch_idx=0)
    assert count.total == 1


class Optimizer:
    """Something that steps."""


def test_steps_of_the_first_optimizer_count(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks: list[Callable[..., None]] = []
    install("torch", cuda=NoGpu())
    install("torch.optim.optimizer", register_optimizer_step_post_hook=hooks.append)
    monkeypatch.delenv("RANK", raising=False)
    count = Count()
    callbacks.count_optimizer_steps(count)
    (step,) = hooks
    one, two = Optimizer(), Optimizer()
    for optimizer in (one, two, one, two):
        step(optimizer, (), {})
    assert count.total == 2
    del one, optimizer
    step(two, (), {})
    assert count.total == 3
    monkeypatch.setenv("RANK", "1")
    step(two, (), {})
    assert count.total == 3


LOOP = """
import sys, torch
assert sys.argv == [__file__, "--steps", "7"], sys.argv
import beside
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[2])):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.filterwarnings("ignore")  # theirs
def test_a_script_is_counted_without_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = pytest.importorskip("torch")
    file, script = tmp_path / "progress", tmp_path / "train.py"
    file.write_bytes(bytes(FILE_BYTES))
    script.write_text(LOOP)
    (tmp_path / "beside.py").touch()
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(file))
    subprocess.run(
        [sys.executable, "-m", "advisor.callbacks", str(script), "--steps", "7"], check=True
    )
    count = int.from_bytes(file.read_bytes()[:8], "little")
    assert count == 7 or (torch.cuda.is_available() and count > 0)


def test_a_module_is_run_as_python_runs_it(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Behind -m, as launchers of several processes start one; with its arguments, beside others."""
    install("torch", cuda=NoGpu())
    install("torch.optim.optimizer", register_optimizer_step_post_hook=str)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(
        "import sys; from . import beside; beside.told = __name__, sys.argv[1:]"
    )
    (tmp_path / "package" / "beside.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "argv", [])
    callbacks.run_counted(["-m", "package.train", "--steps", "7"])
    assert sys.modules["package.beside"].told == ("__main__", ["--steps", "7"])
