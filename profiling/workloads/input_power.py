"""Computes the product of two matrices again and again, for one pair of matrices after the other.

    python3 input_power.py --commands FIFO --answers FIFO

The first answer says where it runs. A command is a line of JSON: `load` names files with the bytes
of both matrices, and is answered when their product was checked and runs in a loop; `stop` ends the
loop. What one pair cannot do is `refused`, and the next pair may come; a `fault` ends the program.

B is given as its transpose: the elements along the contraction are neighbours in both matrices,
whatever the type, as the tensor cores of 8-bit types want them. docs/input-power.md.
"""

import argparse
import gc
import json
import math
import os
import select
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from harness import Finished, Progress, recorder, torch, torch_type
from kernel_power import answering, captured, fault_of, say

ROWS = 8  # so many rows are computed again, from the first to the last

# Largest error, relative to the sum of the absolute products: rounding of outputs of that type (of
# fp8 they are bf16, after sums with fewer bits), of tf32 rounding of inputs, of fp16 and fp32 of
# sums in fp32.
_ERRORS = {"bf16": 2**-8, "fp16": 2**-10, "tf32": 2**-9, "fp32": 2**-14, "fp8": 2**-7, "int8": 0.0}


def _checked(command: dict[str, Any], a: Any, b: Any, c: Any, first: Any) -> dict[str, Any]:
    """What the output is; before `c` was computed 2 was in its place, and 1 before `first` was."""
    last = a.shape[0] - 1
    rows = sorted({round(place * last / (ROWS - 1)) for place in range(ROWS)})
    some, others = _double(_picked(a, rows)), _double(b)
    # In float64, and the sums of the absolute products.
    expected, scale = some @ others, some.abs() @ others.abs()
    error, compared = _error(c, _double(_picked(c, rows)), expected, scale, a.shape[1])
    # Sums of int8 reach no end of the range of their type, and there is no NaN among them.
    has_ends = c.is_floating_point() and c.element_size() > 1
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[c.element_size()]
    return {
        "elements": c.numel(),
        "type": str(c.dtype).removeprefix("torch."),
        "nan": int(torch.isnan(c).sum()) if has_ends else 0,
        "infinite": int(torch.isinf(c).sum()) if has_ends else 0,
        "saturated": int((c.abs() == torch.finfo(c.dtype).max).sum()) if has_ends else 0,
        # What depends on what was there before, no launch wrote.
        "unwritten": int((c.view(bits) != first.view(bits)).sum()),
        "rows": len(rows),
        "compared": compared,
        "error": error,
        "allowed": _ERRORS[command["dtype"]],
    }


def _picked(values: Any, rows: list[int]) -> Any:
    """Rows, by their bytes: not every type can be indexed on every device."""
    if values.element_size() > 1:
        return values[rows]
    return values.view(torch.uint8)[rows].view(values.dtype)


def _double(values: Any) -> Any:
    """On the CPU; int32 keeps all of its digits."""
    here = values.cpu()
    return here.double() if here.dtype in (torch.int32, torch.int64) else here.float().double()


def _error(c: Any, got: Any, expected: Any, scale: Any, steps: int) -> tuple[float, int]:
    """The largest relative error of elements within range, and how many are."""
    floor, most_sum, most = 0.0, float("inf"), float("inf")
    if c.is_floating_point():
        limits = torch.finfo(c.dtype)
        sums = torch.finfo(torch.float32)
        floor, most_sum, most = limits.tiny + steps * sums.tiny, sums.max / 2, limits.max / 2
    usable = expected.isfinite() & (scale < most_sum) & (expected.abs() < most)
    if not usable.any():
        return 0.0, 0
    off = (got - expected).abs()[usable] - floor
    if not off.isfinite().all():
        return 1e9, int(usable.sum())  # JSON has no word for infinity
    # Nothing is divided by 0.
    return float((off.clamp(min=0) / scale[usable].clamp(min=1e-300)).max()), int(usable.sum())


# Launches are put together to a graph that takes about so long.
_STEP_S = 0.02

MOST_LAUNCHES = 1000
TIMED = 5


class Player:
    """Matrices on a device, and what is computed from them over and over."""

    def __init__(self, device: str) -> None:
        self._device, self._progress = device, Progress()
        self._cuda, self.running = device == "cuda", False
        # Sums in fp32 from beginning to end, also where cuBLAS splits them.
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

    def ready(self) -> dict[str, Any]:
        units = None
        if self._cuda:
            torch.zeros(1, device="cuda")  # makes the context
            units = torch.cuda.get_device_properties(0).multi_processor_count
        return {"units": units, "libraries": {"torch": torch.__version__}}

    def load(self, command: dict[str, Any]) -> dict[str, Any]:
        """Take matrices, compute once, check that, and begin the loop."""
        self.stop()
        m, n, k = command["shape"]
        a = _matrix(command["a"], command["dtype"], (m, k)).to(self._device)
        b = _matrix(command["b"], command["dtype"], (n, k)).to(self._device).t()
        launch, c = _product(command["dtype"], a, b)
        for value in (1, 2):  # what no launch writes differs
            c.fill_(value)
            launch()
            if value == 1:
                first = c.clone()
        outputs = _checked(command, a, b, c, first)
        first = None
        launch_s = self._seconds(launch)
        count = max(1, min(MOST_LAUNCHES, math.ceil(_STEP_S / launch_s))) if self._cuda else 1
        in_graph, (step, *_) = captured([launch], count) if self._cuda else (False, [launch])
        # The launch is kept with the graph, which only has the addresses of its matrices.
        self._step, self._kept, self.running = step, launch, True
        self._finished = Finished(
            recorder(self._device), lambda launches, _: self._progress.add(launches), count
        )
        return {"launch_s": launch_s, "launches": count, "captured": in_graph, "outputs": outputs}

    def step(self) -> None:
        self._step()
        self._finished.launched()

    def stop(self) -> dict[str, Any]:
        self._step = self._kept = None
        self.running = False
        if self._cuda:
            torch.cuda.synchronize()
            gc.collect()
            torch.cuda.empty_cache()
        return {}

    def usable(self) -> bool:
        """Whether the device still computes after an error."""
        if not self._cuda:
            return True
        try:
            torch.cuda.synchronize()
            return bool((torch.ones(2, device="cuda") + 1).sum().item() == 4)
        except RuntimeError:
            return False

    def _seconds(self, launch: Callable[[], object]) -> float:
        """One launch, median of some; the first ones raise the clock."""
        for _ in range(TIMED):
            launch()
        times: list[float] = []
        for _ in range(TIMED):
            self._wait()
            begun_s = time.perf_counter()
            launch()
            self._wait()
            times.append(time.perf_counter() - begun_s)
        return max(1e-7, statistics.median(times))

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()


class Commands:
    """Lines of a pipe, with and without waiting for one."""

    def __init__(self, file: int) -> None:
        self._file, self._unread = file, b""

    def next(self, *, wait: bool) -> str | None:
        """The next line, empty at the end; None where there is none yet."""
        while b"\n" not in self._unread:
            if not wait and not select.select([self._file], [], [], 0)[0]:
                return None
            if not (more := os.read(self._file, 65536)):
                return ""
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()


def serve(player: Any, commands: Commands, answers: TextIO) -> None:
    """Compute, and answer each command, until there are no more."""
    say(answers, {"ready": player.ready()})
    while True:
        line = commands.next(wait=not player.running)
        if line is None:
            player.step()
        elif line:
            say(answers, answer(player, json.loads(line)))
        else:
            return


def answer(player: Any, command: dict[str, Any]) -> dict[str, Any]:
    """What one command is answered with."""
    if command.get("stop"):
        return {"stopped": player.stop()}
    try:
        return {"loaded": player.load(command["load"])}
    except Exception as error:  # noqa: BLE001 - whatever torch raises of one pair, those behind it go on
        refused = fault_of(error)["fault"]
    # Not while the error is handled: it holds the matrices.
    if not player.usable():
        raise RuntimeError(refused["message"])
    player.stop()
    return {"refused": refused}


def _matrix(path: str, dtype: str, shape: tuple[int, int]) -> Any:
    """A matrix of the file's bytes, row by row."""
    data = torch.from_file(path, shared=False, size=Path(path).stat().st_size, dtype=torch.uint8)
    return data.view(torch_type(dtype)).view(shape)


def _product(dtype: str, a: Any, b: Any) -> tuple[Callable[[], object], Any]:
    """What launches the product once, and where its output is."""
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    shape, device = (a.shape[0], b.shape[1]), a.device
    if dtype == "int8":
        c = torch.empty(shape, dtype=torch.int32, device=device)
        return (lambda: torch._int_mm(a, b, out=c)), c
    if dtype == "fp8":
        c = torch.empty(shape, dtype=torch.bfloat16, device=device)
        unit = torch.ones((), device=device)
        slow = {"out_dtype": torch.bfloat16, "use_fast_accum": False, "out": c}
        return (lambda: torch._scaled_mm(a, b, unit, unit, **slow)), c
    if dtype == "fp16" and device.type == "cuda":
        # In fp16 outputs would overflow that the sum, in fp32, does not.
        c = torch.empty(shape, dtype=torch.float32, device=device)
        return (lambda: torch.mm(a, b, out_dtype=torch.float32, out=c)), c
    c = torch.empty(shape, dtype=a.dtype, device=device)
    return (lambda: torch.mm(a, b, out=c)), c


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=Path, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    with answering(args.answers) as answers, args.commands.open("rb", buffering=0) as commands:
        serve(Player(args.device), Commands(commands.fileno()), answers)
