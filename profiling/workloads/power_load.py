"""A load that is switched on and off as commands say: for `advisor power sensor`.

    python3 power_load.py --commands FIFO --answers FIFO

Each command is a stage, `{"name": "bursts", "length_s": 50, "on": [[0.3, 0.309], ..]}`, with times
in seconds from its beginning. It is answered with the lines of a recording, with times of the
host's monotonic clock: `{"line": ["stage", name, time_s]}`, `{"line": ["on", begun_s, ended_s]}`
for each time that the load ran, and `{"done": name}`. It ends with the commands.

The load is a product of fp32 matrices and a copy in GPU memory, one after the other: it moves the
power of the cores and of the memory, and stays below the power limit, at which the card would
change its clock. A CUDA graph of one such pair takes about 0.1 ms, so that is how exactly it ends.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from harness import torch
from kernel_power import answering, graph_of, say

# Pairs of the larger graph: fewer launches while the load lasts.
_MANY = 16

_SIDE = 1024
_TIMED = 200
_SPIN_S = 0.001


class _Load:
    """Units of work on the GPU; `unit_s` is what one takes."""

    def __init__(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        self._left, self._right = (torch.randn(_SIDE, _SIDE, device="cuda") for _ in range(2))
        self._product = torch.empty_like(self._left)
        self._source = torch.randn(1 << 24, device="cuda")
        self._copy = torch.empty_like(self._source)
        self._work()
        self._single, self._many = (graph_of([self._work], units) for units in (1, _MANY))
        for _ in range(3):  # the first ones raise the clock
            begun_s = time.monotonic()
            self.run(_TIMED)
            self.unit_s = (time.monotonic() - begun_s) / _TIMED

    def run(self, units: int) -> None:
        for _ in range(units // _MANY):
            self._many.replay()
        for _ in range(units % _MANY):
            self._single.replay()
        torch.cuda.synchronize()

    def _work(self) -> None:
        torch.mm(self._left, self._right, out=self._product)
        self._copy.copy_(self._source)


def run_stage(
    stage: dict[str, Any],
    load: Any,
    write: Callable[[dict[str, Any]], None],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Switch the load on and off as a stage says."""
    begun_s = now()
    write({"line": ["stage", stage["name"], begun_s]})
    for start_s, end_s in stage["on"]:
        _wait_until(begun_s + start_s, now, sleep)
        first_s = now()
        # A late start must not make the load longer, which ends as nearly as whole units allow.
        stop_s, left = first_s + end_s - start_s, 1
        while (now_s := now()) < stop_s and left:
            left = round((stop_s - now_s) / load.unit_s)
            load.run(min(left, _MANY))
        write({"line": ["on", first_s, now_s]})
    _wait_until(begun_s + stage["length_s"], now, sleep)
    write({"done": stage["name"]})


def _wait_until(time_s: float, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """Sleep, then spin: a sleep ends up to a millisecond late."""
    while (left_s := time_s - now()) > 0:
        if left_s > _SPIN_S:
            sleep(left_s - _SPIN_S)


def serve(load: Any, commands: Iterable[str], answers: TextIO) -> None:
    """Do each stage until there are no more."""
    say(answers, {"ready": {}})
    for line in commands:
        run_stage(json.loads(line), load, lambda said: say(answers, said))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=Path, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    args = parser.parse_args()
    with answering(args.answers) as answers, args.commands.open() as commands:
        serve(_Load(), commands, answers)
