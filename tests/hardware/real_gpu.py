"""The GPU of the hardware tests, and the command line on it."""

import json
import os
import subprocess
import sys
from typing import Any

from advisor.core.gpu import Gpu
from advisor.runtime.processes import wait_until
from advisor_profiling.telemetry.nvml import compute_pids
from advisor_profiling.testbed import find_gpu

GPU = os.environ.get("ADVISOR_TEST_GPU", "0")
"""Index or UUID."""

SAFE_SPLIT = "26/50"
"""34 + 66 SMs of an H100 or H200, at which the results of all libraries are right."""


def the_gpu() -> Gpu:
    return find_gpu(GPU)


def nobody_computes() -> bool:
    """Whether the GPU is free within 10 s; who starts on another GPU of the host is listed too."""
    uuid = the_gpu().uuid
    return wait_until(lambda: compute_pids(uuid) == [], 10)


def advisor(*arguments: str) -> list[str]:
    gpu = ("--gpu", GPU) if arguments[0] in ("launch", "profile", "colocate") else ()
    return [sys.executable, "-m", "advisor_cli", *arguments, *gpu]


def run_json(*arguments: str, code: int | None = 0) -> dict[str, Any]:
    """The last line of a command's JSON; `code` is how it must end, None: in any way."""
    done = subprocess.run(
        [*advisor(*arguments), "--json"], capture_output=True, text=True, check=False
    )
    print(done.stderr)
    assert done.stdout, done.returncode
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert code in (None, done.returncode), (done.returncode, last.get("code"), last.get("cause"))
    return last
