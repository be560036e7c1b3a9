"""Runs kernels of one length that leave no room on any SM: a probe that makes jobs run round robin.

    python3 short_kernels.py --ms 0.1 --block-us 20

Progress is counted in kernels. short_kernels.cu is the source of short_kernels.ptx, which the
driver compiles for the GPU (Volta or later); nothing but the driver's library is needed.
"""

import argparse
import ctypes
import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))

from advisor.progress import Progress

BLOCKS_ON_SM = 2
SM_COUNT, THREADS_OF_SM = 16, 39  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT and ..._MAX_THREADS_...
IN_FLIGHT, BATCH = 3, 4  # batches that are launched before the first is waited for; kernels of each

cuda = ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: object) -> None:
    """Call the driver; raises RuntimeError with its number."""
    if number := getattr(cuda, name)(*arguments):
        raise RuntimeError(f"{name} failed with CUDA error {number}")


def _read(name: str, *arguments: object, kind: Any = ctypes.c_void_p) -> Any:
    """Call the driver; the value that it writes where its first argument points to."""
    value = kind()
    _call(name, ctypes.byref(value), *arguments)
    return value


def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ms", type=float, default=0.1, help="length of a kernel")
    parser.add_argument("--block-us", type=float, default=20.0, help="length of a block")
    given = parser.parse_args()
    _call("cuInit", 0)
    device = _read("cuDeviceGet", 0, kind=ctypes.c_int)
    _call("cuCtxSetCurrent", _read("cuDevicePrimaryCtxRetain", device))
    ptx = Path(__file__).with_suffix(".ptx").read_bytes() + b"\0"
    spin = _read("cuModuleGetFunction", _read("cuModuleLoadData", ptx), b"spin")
    sms, threads = (
        _read("cuDeviceGetAttribute", number, device, kind=ctypes.c_int).value
        for number in (SM_COUNT, THREADS_OF_SM)
    )
    waves = max(1, round(given.ms * 1000 / given.block_us))
    grid, block = (sms * BLOCKS_ON_SM * waves, 1, 1), (threads // BLOCKS_ON_SM, 1, 1)
    length_ns = ctypes.c_uint64(round(given.block_us * 1000))
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length_ns))
    launch = partial(_call, "cuLaunchKernel", spin, *grid, *block, 0, None, parameters, None)
    launch()
    finish = partial(_call, "cuCtxSynchronize")
    finish()
    progress = Progress(on_pause=finish)
    progress.ready()
    # The waiting thread sleeps (CU_EVENT_BLOCKING_SYNC), and their time is not taken.
    events = [_read("cuEventCreate", 3) for _ in range(IN_FLIGHT)]
    for newest in itertools.count():
        for _ in range(BATCH):
            launch()
        _call("cuEventRecord", events[newest % IN_FLIGHT], None)
        if newest + 1 >= IN_FLIGHT:
            _call("cuEventSynchronize", events[(newest + 1) % IN_FLIGHT])  # the oldest
            progress.add(BATCH)


if __name__ == "__main__":
    _main()
