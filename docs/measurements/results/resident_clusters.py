"""How many clusters find room at once under MPS, and does that tell which launches were wrong?

    python docs/measurements/results/resident_clusters.py    # on an H100, with MPS

Starts an MPS control daemon of its own. Under each limit a fresh process asks the driver
(cuOccupancyMaxActiveClusters, with so much shared memory that an SM holds one block) how many
clusters of 4 and of 8 blocks are resident at once. If the work of others is lost, the launches of
trials.json were wrong where more clusters were launched, and right elsewhere.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = (4, 8)
SHARED_BYTES = 200 * 1024
PTX = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n\0"
SM_COUNT, DYNAMIC_SHARED, CLUSTER_DIMENSION = 16, 8, 4
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES and
CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION of cuda.h."""


class Attribute(ctypes.Structure):
    """`CUlaunchAttribute`, whose value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_uint * 2), ("value", ctypes.c_uint * 16))


class Config(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("number", ctypes.c_uint),
    )


def child() -> None:
    """Print the SMs that this process has, and the clusters that fit, by their size."""
    cuda, context, module, kernel = ctypes.CDLL("libcuda.so.1"), *(ctypes.c_void_p() for _ in "cmk")

    def call(name: str, *arguments: object) -> None:
        if code := getattr(cuda, name)(*arguments):
            sys.exit(f"{name} gave {code}")

    sms = ctypes.c_int()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuDeviceGetAttribute", ctypes.byref(sms), SM_COUNT, 0)
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"k")
    call("cuFuncSetAttribute", kernel, DYNAMIC_SHARED, SHARED_BYTES)
    fit = {}
    for size in SIZES:
        attribute = Attribute((CLUSTER_DIMENSION, 0), (size, 1, 1))
        blocks = sms.value // size * size
        config = Config(
            (blocks, 1, 1), (128, 1, 1), SHARED_BYTES, None, ctypes.pointer(attribute), 1
        )
        found = ctypes.c_int()
        call("cuOccupancyMaxActiveClusters", ctypes.byref(found), kernel, ctypes.byref(config))
        fit[size] = found.value
    print(json.dumps({"sms": sms.value, "fit": fit}))


def main() -> None:
    """Print what fits at each count, and how well that tells wrong launches from right ones."""
    trials = json.loads(Path(__file__).with_name("trials.json").read_text())["clusters_h100"]
    counts = sorted({n for t in trials for n in (*t["right_at"], *t["wrong_at"])})
    fit: dict[int, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as pipe:
        env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)
        for count in counts:
            share = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(-(-100 * count // 132))}
            command = [sys.executable, __file__, "--child"]
            done = subprocess.run(command, env=env | share, capture_output=True, text=True)
            seen = json.loads(done.stdout) if done.stdout else sys.exit(done.stderr)
            fit[seen["sms"]] = seen["fit"]
            print(f"{seen['sms']:4} SMs: {seen['fit']}", flush=True)
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", env=env, text=True, check=True)
    for kind in ("wrong", "right"):
        launches = [
            t["clusters"] > fit[n][str(t["blocks_per_cluster"])]
            for t in trials
            if t["blocks_per_cluster"] in SIZES
            for n in t[f"{kind}_at"]
            if n in fit
        ]
        print(f"{kind}: {sum(launches)} of {len(launches)} launched more clusters than fit")


child() if sys.argv[1:] == ["--child"] else main()
