#!/usr/bin/env python3
"""Stands in for a Python with PyTorch that runs `power_load.py`: `--python` names this file.

The stages are those of the real program; its load sets the power of the fake GPU. FAKE_LOAD_FAILS
makes it die before it is ready, or with `stage` in its first stage; FAKE_LOAD_HANGS never end one.
"""

import importlib.util
import json
import os
import sys
import time

from answering_fake import draw_mw

IDLE_MW, LOAD_MW = 80_000, 500_000
FAILS = os.environ.get("FAKE_LOAD_FAILS", "")


class Load:
    unit_s = 0.001

    def run(self, units: int) -> None:
        draw_mw(LOAD_MW)
        time.sleep(units * self.unit_s)
        draw_mw(IDLE_MW)


def main() -> None:
    spec = importlib.util.spec_from_file_location("power_load", sys.argv[1])
    assert spec is not None
    assert spec.loader is not None
    real = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(real)
    if FAILS == "start":
        sys.exit("CUDA error: out of memory")
    print("a warning of some library", flush=True)
    real._write(["ready"])
    for line in sys.stdin:
        if FAILS == "stage":
            sys.exit("CUDA error: an illegal memory access was encountered")
        if "FAKE_LOAD_HANGS" in os.environ:
            time.sleep(600)
        real.run_stage(json.loads(line), Load(), real._write)


if __name__ == "__main__":
    main()
