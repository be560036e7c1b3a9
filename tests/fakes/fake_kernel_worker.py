#!/usr/bin/env python3
"""Stands in for a Python with PyTorch that runs `kernel_power.py`: `--python` names this file.

Executions take FAKE_EXECUTION_S of real time and nothing is computed; meanwhile the fake NVML reads
400 W, else 100 W, with a change every 5 ms, as was said before the run began: a machine that lets
this program wait changes nothing of it. FAKE_FAULT is what happens instead: memory, failed,
crash.
"""

import json
import os
import sys
import time

from answering_fake import draw_mw, granted_units, pipes, read_with_noise, say

GAP_PART = 0.3
"""Gaps are shorter than was asked for: a test takes its time from them."""

EXECUTION_S = float(os.environ.get("FAKE_EXECUTION_S", "0.002"))
SEEN_S = 0.003
"""A sensor shows a change so late that reads the mean of 4 ms that ended 1 ms ago."""


def main() -> int:
    commands, answers = pipes()
    if (fault := os.environ.get("FAKE_FAULT")) == "crash":
        print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
        return 3
    if fault:
        message = "RuntimeError: CUDA error" if fault == "failed" else "OutOfMemoryError: 80 GiB"
        say(answers, {"fault": {"memory": fault == "memory", "message": message}})
        return 1
    read_with_noise()
    draw_mw(100_000)
    say(answers, ready("gemm m=64 n=64 k=64 bf16"))
    with commands.open() as lines:
        for line in lines:
            say(answers, {"run": run(json.loads(line))})
    return 0


def ready(operation: str) -> dict[str, object]:
    return {
        "ready": {
            "operation": operation,
            "execution_s": EXECUTION_S,
            "launches": 2,
            "captured": True,
            "units": granted_units(),
            "libraries": {"torch": "2.0.0"},
            "launch_flop": 2e9,
            "launch_bytes": 3e6,
        }
    }


def run(command: dict[str, float]) -> dict[str, object]:
    anchor, count = time.monotonic(), int(command["executions"])
    start = command["gap_s"] * GAP_PART
    begin, end = anchor + start, anchor + start + count * EXECUTION_S
    draw_mw(100_000, 400_000, begin + SEEN_S, end + SEEN_S)
    time.sleep(max(0.0, end - time.monotonic()))
    now = time.monotonic()
    return {
        "lead_began_s": 0.0,
        "marks_s": [start + number * EXECUTION_S for number in range(count + 1)],
        "ping_pongs": [[anchor, 0.0, anchor + 1e-5], [now, now - anchor, now + 1e-5]],
    }


sys.exit(main())
