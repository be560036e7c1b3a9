"""Pace and true count of a training job, for the job scripts beside this file."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

STEPS_PER_S = 10


class Work:
    """Steps of a job: each lasts at least 0.1 s and is written to PID.jsonl in a folder.

    A line of that file: `time_s` (Unix time), `steps` so far, `total` steps of the job, `batch`.

    Args:
        options: `epoch_s`, `epochs` and `truth`, as `options()` parses them.
        batch: Samples per step.
    """

    def __init__(self, options: argparse.Namespace, batch: int) -> None:
        self.epochs, self.batch = options.epochs, batch
        self.steps_per_epoch = max(2, round(options.epoch_s * STEPS_PER_S))
        options.truth.mkdir(exist_ok=True)
        self._truth = (options.truth / f"{os.getpid()}.jsonl").open("w", buffering=1)
        self._steps, self._due_s = 0, time.monotonic()
        if "FAKE_NVML_DIR" in os.environ:
            become_client()

    def step(self) -> None:
        """Finish a step."""
        time.sleep(max(0.0, self._due_s + 1 / STEPS_PER_S - time.monotonic()))
        self._due_s = time.monotonic()
        self._steps += 1
        self._write()

    def _write(self) -> None:
        counted = {
            "time_s": time.time(),
            "steps": self._steps,
            "total": self.epochs * self.steps_per_epoch,
            "batch": self.batch,
        }
        self._truth.write(json.dumps(counted) + "\n")


def parser() -> argparse.ArgumentParser:
    """The options that all jobs have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epoch-s", type=float, default=5.0, help="length of an epoch, s")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--truth", type=Path, required=True, help="folder of the true counts")
    return parser


def become_client() -> None:
    """Open a context on the fake GPU, and leave PyTorch on the CPU."""
    sys.path.append(str(Path(__file__).parents[3] / "tests" / "fakes"))
    from answering_fake import compute

    compute()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def write_images(folder: Path, count: int, size: int = 32) -> None:
    """Random PNG images in two classes, as `torchvision.datasets.ImageFolder` reads them."""
    import numpy as np
    from PIL import Image

    for n in range(count):
        path = folder / f"class{n % 2}" / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.randint(0, 255, (size, size, 3), np.uint8)).save(path)
