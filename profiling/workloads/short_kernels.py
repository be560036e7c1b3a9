"""Runs kernels of one length that leave no room on any SM: a probe beside which jobs take turns.

    python3 short_kernels.py --ms 0.1 --block-us 20

Progress is counted in kernels. short_kernels.cu is the source of short_kernels.ptx, which the
driver compiles for the GPU (Volta or later); nothing but the driver's library is needed.
"""

import argparse
import ctypes
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from advisor.progress import Progress

BLOCKS_ON_SM = 2

SM_COUNT, THREADS_OF_SM = 16, 39
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ..._MAX_THREADS_PER_MULTIPROCESSOR."""

IN_FLIGHT, BATCH = 3, 4
"""Batches that are launched before the first is waited for, and kernels of each."""


cuda = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    """Call the driver; raises RuntimeError with its number."""
    if number := getattr(cuda, name)(*arguments):
        raise RuntimeError(f"{name} failed with CUDA error {number}")


def attribute(device: ctypes.c_int, number: int) -> int:
    """An attribute of the GPU."""
    value = ctypes.c_int()
    call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
    return value.value


def main() -> None:
    """Run kernels until the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ms", type=float, default=0.1, help="length of a kernel")
    parser.add_argument("--block-us", type=float, default=20.0, help="length of a block")
    given = parser.parse_args()
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, spin, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    ptx = Path(__file__).with_suffix(".ptx").read_bytes() + b"\0"
    call("cuModuleLoadData", ctypes.byref(module), ptx)
    call("cuModuleGetFunction", ctypes.byref(spin), module, b"spin")
    call("cuStreamCreate", ctypes.byref(stream), 1)
    waves = max(1, round(given.ms * 1000 / given.block_us))
    blocks = attribute(device, SM_COUNT) * BLOCKS_ON_SM * waves
    threads = attribute(device, THREADS_OF_SM) // BLOCKS_ON_SM
    length_ns = ctypes.c_uint64(round(given.block_us * 1000))
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(length_ns), ctypes.c_void_p))

    def launch() -> None:
        call("cuLaunchKernel", spin, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, None)

    launch()
    call("cuStreamSynchronize", stream)
    progress = Progress(on_pause=lambda: call("cuStreamSynchronize", stream))
    progress.ready()
    events = [ctypes.c_void_p() for _ in range(IN_FLIGHT)]
    for event in events:
        call("cuEventCreate", ctypes.byref(event), 3)  # blocking wait, no timing
    turn = 0
    while True:
        for _ in range(BATCH):
            launch()
        call("cuEventRecord", events[turn % IN_FLIGHT], stream)
        turn += 1
        if turn >= IN_FLIGHT:
            call("cuEventSynchronize", events[turn % IN_FLIGHT])
            progress.add(BATCH)


if __name__ == "__main__":
    main()
