#!/usr/bin/env python3
"""Stands in for a Python with PyTorch that runs `power_load.py`: `--python` names this file.

The stages are those of the real program; its load sets the power of the fake GPU. FAKE_LOAD_FAILS
makes it die in its first stage; FAKE_LOAD_HANGS never end one.
"""

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from answering_fake import draw_mw, pipes

IDLE_MW, LOAD_MW = 80_000, 500_000


class Load:
    unit_s = 0.001

    def run(self, units: int) -> None:
        if "FAKE_LOAD_FAILS" in os.environ:
            sys.exit("CUDA error: an illegal memory access was encountered")
        if "FAKE_LOAD_HANGS" in os.environ:
            time.sleep(600)
        draw_mw(LOAD_MW)
        time.sleep(units * self.unit_s)
        draw_mw(IDLE_MW)


def main() -> None:
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    real: Any = importlib.import_module("power_load")
    print("a warning of some library", flush=True)
    commands, answers = pipes()
    lines: Any
    with answers.open("w") as said, commands.open() as lines:
        real.serve(Load(), lines, said)


if __name__ == "__main__":
    main()
