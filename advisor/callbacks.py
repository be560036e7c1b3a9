"""Counts the steps of training loops of libraries.

    Trainer(..., callbacks=[trainer_callback()])       # Hugging Face
    Trainer(callbacks=[lightning_callback()])          # Lightning
    count_optimizer_steps()                            # any loop of PyTorch, before it begins
    python -m advisor.callbacks train.py --batch 32    # the same without a change
    torchrun .. -m advisor.callbacks -m package.train  # of a module, in every process

Each library is imported where it is asked for; none is needed to install advisor. Processes of
other ranks than the first count nothing.
"""

import importlib
import os
import runpy
import sys
import weakref
from collections import deque
from pathlib import Path
from typing import Any

from advisor.progress import Progress


class StepCounter:
    """Counts a step when the GPU has finished it, without making the loop wait for that.

    Args:
        progress: Where it counts; None: where the advisor has told this process to.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        cuda: Any = importlib.import_module("torch").cuda
        self._cuda = cuda if cuda.is_available() else None
        self._progress = progress or Progress(on_pause=self._cuda and self._cuda.synchronize)
        self._pending = deque[Any]()

    def step(self) -> None:
        """Take note of a step whose work has been queued; counts those that are finished."""
        if self._cuda is None:
            self._progress.add()
            return
        event = self._cuda.Event()
        event.record()
        self._pending.append(event)
        finished = 0
        while self._pending and self._pending[0].query():
            self._pending.popleft()
            finished += 1
        self._progress.add(finished)


def trainer_callback(progress: Progress | None = None) -> Any:
    """A `TrainerCallback` of Hugging Face that counts optimizer steps."""
    steps, base = StepCounter(progress), importlib.import_module("transformers").TrainerCallback

    class CountSteps(base):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                steps.step()

    return CountSteps()


def lightning_callback(progress: Progress | None = None) -> Any:
    """A `Callback` of Lightning that counts training batches."""
    # A script that imported the older package has its trainer.
    older = "pytorch_lightning"
    package = older if older in sys.modules else "lightning.pytorch"
    steps, base = StepCounter(progress), importlib.import_module(package).Callback

    class CountSteps(base):
        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            if trainer.is_global_zero:
                steps.step()

    return CountSteps()


def count_optimizer_steps(progress: Progress | None = None) -> Any:
    """Count each step of the first optimizer that takes one, wherever the loop is.

    Returns:
        A handle whose `remove()` ends it.
    """
    steps = StepCounter(progress)
    counted: weakref.ref[Any] | None = None

    def count(optimizer: Any, *_: Any) -> None:
        nonlocal counted
        # A loop with two of them, as for a generator and its critic, makes no two steps.
        if counted is None or counted() is None:
            counted = weakref.ref(optimizer)
        if counted() is optimizer and os.environ.get("RANK", "0") == "0":
            steps.step()

    return importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(count)


def run_counted(words: list[str]) -> None:
    """Run a script, or a module behind -m, as Python would; its optimizer steps are counted."""
    is_module = words[0] == "-m"
    script = words[is_module]
    sys.argv[:] = words[is_module:]
    if not is_module:
        sys.path[0] = str(Path(script).resolve().parent)
    count_optimizer_steps()
    if is_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:] in ([], ["-m"]):
        sys.exit("usage: python -m advisor.callbacks SCRIPT | -m MODULE, and its arguments")
    run_counted(sys.argv[1:])
