"""What fake workloads have in common that stand in for a Python with PyTorch.

They are told by lines in one pipe and answer in another, are under the limit of the fake MPS, and
set what the fake NVML reads.
"""

import ctypes
import itertools
import json
import os
import sys
from pathlib import Path


def pipes() -> tuple[Path, Path]:
    """Where commands come from and answers go to, as the command line names them."""
    arguments = dict(itertools.pairwise(sys.argv))
    return Path(arguments["--commands"]), Path(arguments["--answers"])


def say(answers: Path, what: dict[str, object]) -> None:
    """One answer."""
    with answers.open("a") as file:
        file.write(json.dumps(what) + "\n")


def granted_units() -> int:
    """SMs of this process, as the driver says."""
    cuda, units = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    cuda.cuInit(0)
    cuda.cuDeviceGetAttribute(ctypes.byref(units), 16, 0)
    return units.value


def draw_mw(power_mw: int) -> None:
    """From now on the fake GPU draws this; a reader never sees half a value."""
    power = Path(os.environ["FAKE_NVML_DIR"]) / "gpu0/power_mw"
    fresh = power.with_name(f".power-{os.getpid()}")
    fresh.write_text(f"{power_mw}\n")
    fresh.replace(power)
