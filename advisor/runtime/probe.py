"""Reads, from inside a job's own environment, which limit the driver really gives it.

Run as `python -I -S probe.py cuda|hip` under the environment of the job; it prints one JSON object.
Only ctypes and the driver's library are used, so it works wherever the job can, torch or not.

Attribute numbers are those of `CUdevice_attribute` in cuda.h, and of `hipDeviceAttribute_t` in
hip_runtime_api.h since ROCm 4.5. `ROC_GLOBAL_CU_MASK` lowers the number of CUs that HIP reports, so
that is the read-back of the mask; `HSA_CU_MASK` alone would not.
"""

import ctypes
import json
import os
import sys
import uuid


def main(kind: str) -> int:
    """Print `{"gpus": [{uuid, units, mps, free_mib}]}` or `{"error": code, "call": name}`."""
    name, gpus = {"cuda": ("libcuda.so.1", _gpus), "hip": ("libamdhip64.so", _first_gpu)}[kind]
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return _report({"error": f"no-{name.partition('.')[0]}", "call": str(error)})
    try:
        return _report({"gpus": gpus(library)})
    except _CallError as error:
        call, status = error.args
        return _report({"error": status, "call": call})


class _CallError(Exception):
    """A call of the driver, and the status that it returned."""


def _gpus(cuda: ctypes.CDLL) -> list[dict[str, object]]:
    _call(cuda, "cuInit", 0)
    count = ctypes.c_int()
    _call(cuda, "cuDeviceGetCount", ctypes.byref(count))
    return [_gpu(cuda, index) for index in range(count.value)]


def _gpu(cuda: ctypes.CDLL, index: int) -> dict[str, object]:
    device = ctypes.c_int()
    _call(cuda, "cuDeviceGet", ctypes.byref(device), index)
    raw = (ctypes.c_ubyte * 16)()
    _call(cuda, "cuDeviceGetUuid_v2", raw, device)
    return {
        "uuid": f"GPU-{uuid.UUID(bytes=bytes(raw))}",
        "units": _attribute(cuda, 16, device),  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        "mps": bool(_attribute(cuda, 133, device)),  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED
        "free_mib": _free_mib(cuda, device)
        if "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" in os.environ
        else None,
    }


def _free_mib(cuda: ctypes.CDLL, device: ctypes.c_int) -> float:
    """A context must be there to ask; it goes with the process."""
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    _call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call(cuda, "cuCtxSetCurrent", context)
    _call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value / 2**20


def _attribute(cuda: ctypes.CDLL, attribute: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    _call(cuda, "cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
    return value.value


def _first_gpu(hip: ctypes.CDLL) -> list[dict[str, object]]:
    units = ctypes.c_int()
    # 63 is hipDeviceAttributeMultiprocessorCount.
    _call(hip, "hipDeviceGetAttribute", ctypes.byref(units), 63, 0)
    return [{"uuid": "", "units": units.value, "mps": False, "free_mib": None}]


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    status = getattr(library, name)(*arguments)
    if status != 0:
        raise _CallError(name, status)


def _report(answer: dict[str, object]) -> int:
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if "gpus" in answer else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
