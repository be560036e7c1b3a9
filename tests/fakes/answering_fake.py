"""What fake workloads have in common, which stand in for those on a GPU.

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
    with answers.open("a") as file:
        file.write(json.dumps(what) + "\n")


def compute() -> None:
    """Get a context, as a client of the fake MPS."""
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)


def granted_units() -> int:
    cuda, units = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    cuda.cuInit(0)
    cuda.cuDeviceGetAttribute(ctypes.byref(units), 16, 0)
    return units.value


def draw_mw(power_mw: int, *during: float) -> None:
    """From now on the fake GPU draws this; a reader never sees half a value.

    Args:
        power_mw: What it draws.
        *during: Instead of it another power, mW, from one time of the monotonic clock until
            another, s.
    """
    _write("power_mw", " ".join(map(str, (power_mw, *during))))


def read_with_noise() -> None:
    """From now on each reading differs from the one before, as those of a sensor do."""
    _write("power_noise_mw", "100")


def _write(key: str, value: str) -> None:
    path = Path(os.environ["FAKE_NVML_DIR"]) / "gpu0" / key
    fresh = path.with_name(f".{key}-{os.getpid()}")
    fresh.write_text(value + "\n")
    fresh.replace(path)
