#!/usr/bin/env python3
"""Stands in for a Python with PyTorch that runs `library_check.py`: `--python` names this file.

It becomes a client of the fake MPS and says what it computed. FAKE_WRONG_AT and FAKE_CRASH_AT list
the SM counts at which an operation is wrong or the process dies; FAKE_CHECK_S is how long it takes;
FAKE_CUBLAS its version; FAKE_BLIND makes it say that it saw all SMs. A crash at a count that is
also in FAKE_ONCE happens only once.
"""

import json
import os
import sys
import time
from pathlib import Path

from answering_fake import granted_units

OPERATIONS = ["matmul bf16 forward 4096x4096x4096", "convolution fp32 3x3 nchw", "sort fp32"]


def main() -> int:
    libraries = {"torch": "2.0.0", "cublas": os.environ.get("FAKE_CUBLAS", "130100")}
    if (option := sys.argv[2]) == "--libraries":
        print(json.dumps(libraries))
        return 0
    file, units = Path(sys.argv[3]), granted_units()
    if option == "--write":
        file.write_text("{}")
    time.sleep(float(os.environ.get("FAKE_CHECK_S", "0")))
    if units in counts("FAKE_CRASH_AT") and not crashed_before(units, file.parent):
        print("CUDA error: an illegal memory access was encountered", file=sys.stderr)
        return 3
    print("a warning of some library")
    print(
        json.dumps(
            {
                "units": 132 if "FAKE_BLIND" in os.environ else units,
                "libraries": libraries,
                "operations": OPERATIONS,
                "wrong": OPERATIONS[:2] if units in counts("FAKE_WRONG_AT") else [],
                "skipped": {"attention bf16 cudnn": "no such thing"},
                "values": {},
            }
        )
    )
    return 0


def counts(variable: str) -> list[int]:
    return [int(text) for text in os.environ.get(variable, "").split(",") if text]


def crashed_before(units: int, folder: Path) -> bool:
    mark = folder / f"crashed-{units}"
    before = mark.exists() and units in counts("FAKE_ONCE")
    mark.touch()
    return before


sys.exit(main())
