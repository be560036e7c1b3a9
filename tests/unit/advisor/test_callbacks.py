"""Loops that somebody else wrote are counted: with the real libraries where they are installed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from advisor import callbacks
from advisor.progress import FILE_BYTES, Progress


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
