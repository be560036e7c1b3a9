#!/usr/bin/env python3
"""Stands in for a Python with PyTorch that runs `input_power.py`: `--python` names this file.

Nothing is computed. While a case runs, it counts 500 launches a second, and the fake NVML reads
200 W and 200 W more for the part of A's bytes that are not 0; before, 100 W. FAKE_REFUSE is a type
that is refused for lack of memory; FAKE_CRASH_AT is the load at which it dies.
"""

import json
import os
import struct
import sys
import threading
import time
from pathlib import Path

from answering_fake import draw_mw, granted_units, pipes, read_with_noise, say

RATE = 500
state = {"mw": 100_000, "running": False}


def live() -> None:
    """Power and progress."""
    begun, done = time.monotonic(), 0.0
    progress = os.open(os.environ["ADVISOR_PROGRESS_FILE"], os.O_RDWR)
    while True:
        draw_mw(state["mw"])
        time.sleep(0.01)
        now = time.monotonic()
        done += RATE * (now - begun) if state["running"] else 0
        begun = now
        os.pwrite(progress, struct.pack("<q", int(done)), 0)


def main() -> int:
    commands, answers = pipes()
    read_with_noise()
    threading.Thread(target=live, daemon=True).start()
    say(answers, {"ready": {"units": granted_units(), "libraries": {"torch": "2.0.0"}}})
    loads = 0
    with commands.open() as lines:
        for line in lines:
            command = json.loads(line)
            if "stop" in command:
                state.update(mw=100_000, running=False)
                say(answers, {"stopped": {}})
                continue
            loads += 1
            if loads == int(os.environ.get("FAKE_CRASH_AT", "0")):
                print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
                return 3
            say(answers, load(command["load"]))
    return 0


def load(asked: dict[str, object]) -> dict[str, object]:
    state.update(mw=100_000, running=False)
    if asked["dtype"] == os.environ.get("FAKE_REFUSE"):
        return {"refused": {"memory": True, "message": "OutOfMemoryError: 80 GiB"}}
    data = Path(str(asked["a"])).read_bytes()
    state.update(mw=200_000 + int(200_000 * (1 - data.count(0) / len(data))), running=True)
    outputs = {
        "elements": 64, "type": "bfloat16", "nan": 0, "infinite": 0, "saturated": 0,
        "unwritten": 0, "rows": 8, "compared": 64, "error": 0.001, "allowed": 0.004,
    }  # fmt: skip
    return {"loaded": {"launch_s": 1 / RATE, "launches": 1, "captured": True, "outputs": outputs}}


sys.exit(main())
