"""The edge to NVML: the calls of pynvml, with its errors translated to ours once.

Codes are those of `nvmlReturn_t` in NVIDIA's nvml.h.
"""

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from advisor.errors import SourceError

# pynvml carries no types.
_pynvml: Any = importlib.import_module("pynvml")

NOT_AVAILABLE = frozenset({3, 13, 21})
"""Not supported by the GPU, not in this driver's library, no data: a reading that is None."""

MEMORY_V2: int = _pynvml.nvmlMemory_v2
"""Of `nvmlDeviceGetMemoryInfo`: the answer that tells used memory from the driver's own."""

_ADVICE: dict[int, tuple[str, str]] = {
    1: ("NVML is not initialised", "do not use a source after it was closed"),
    4: (
        "this user may not read it",
        "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
    ),
    6: ("no GPU has this UUID or index", "list the GPUs with `nvidia-smi -L`"),
    2: ("NVML does not know this GPU or reading", "list the GPUs with `nvidia-smi -L`"),
    9: (
        "the NVIDIA driver is not loaded",
        "load it (`modprobe nvidia`); in a container, ask for the GPU (`--gpus all`)",
    ),
    12: (
        "libnvidia-ml.so.1, which comes with the NVIDIA driver, is not on this host",
        "install the driver, or in a container ask for the GPU (`--gpus all`)",
    ),
    15: (
        "the GPU has fallen off the bus or is not reachable",
        "look for Xid lines in `dmesg`, then reset the GPU or reboot the host",
    ),
    16: ("the GPU needs a reset", "reset it with `nvidia-smi --gpu-reset` when it is idle"),
    18: (
        "the driver in the kernel and its libraries have different versions",
        "reboot, or load the new driver; it was updated while in use",
    ),
}


@contextmanager
def nvml_session() -> Generator[None]:
    """NVML initialised for the length of the block.

    Raises:
        SourceError: no library, no driver, or no permission.
    """
    call("nvmlInit")
    try:
        yield
    finally:
        call("nvmlShutdown")


def call(function: str, *arguments: Any, missing: frozenset[int] = frozenset()) -> Any:
    """The answer of `pynvml.<function>`, or None for the errors of `missing`.

    Raises:
        SourceError: NVML returned any other error.
    """
    try:
        return getattr(_pynvml, function)(*arguments)
    except _pynvml.NVMLError as error:
        if error.value in missing:
            return None
        raise nvml_error(function, error.value) from error


def reading(function: str, *arguments: Any) -> Any | None:
    """The answer of `pynvml.<function>`, or None where the GPU or driver does not give it.

    Raises:
        SourceError: NVML returned an error that is about more than this reading.
    """
    return call(function, *arguments, missing=NOT_AVAILABLE)


def nvml_error(function: str, code: int) -> SourceError:
    """Our error for the code that an NVML function returned."""
    why, fix = _ADVICE.get(code, ("", "run `nvidia-smi` and `dmesg` to see the state of the GPU"))
    return SourceError(f"{function} failed: {_name(code)} (NVML error {code})", why=why, fix=fix)


def metrics_request() -> Any:
    """An empty `nvmlGpmMetricsGet_t` of the version that pynvml speaks."""
    request = _pynvml.c_nvmlGpmMetricsGet_t()
    request.version = _pynvml.NVML_GPM_METRICS_GET_VERSION
    return request


def _name(code: int) -> str:
    names = (n for n in dir(_pynvml) if n.startswith("NVML_ERROR_"))
    found = next((n for n in names if getattr(_pynvml, n) == code), "NVML_ERROR_UNKNOWN")
    return found.removeprefix("NVML_ERROR_").lower().replace("_", " ")
