"""Reads, from inside a job's own environment, how many CUs HIP reports for its first GPU.

`ROC_GLOBAL_CU_MASK` lowers that number, so it is the read-back of the mask; `HSA_CU_MASK` alone
would not. 63 is `hipDeviceAttributeMultiprocessorCount` of hip_runtime_api.h since ROCm 4.5.
"""

import ctypes
import json
import sys

_MULTIPROCESSOR_COUNT = 63


def main() -> int:
    """Print `{"gpus": [{units}]}` or `{"error": code, "call": name}`."""
    try:
        hip = ctypes.CDLL("libamdhip64.so")
    except OSError as error:
        return _report({"error": "no-libamdhip64", "call": str(error)})
    units = ctypes.c_int()
    status = hip.hipDeviceGetAttribute(ctypes.byref(units), _MULTIPROCESSOR_COUNT, 0)
    if status != 0:
        return _report({"error": status, "call": "hipDeviceGetAttribute"})
    return _report({"gpus": [{"uuid": "", "units": units.value, "mps": False}]})


def _report(answer: dict[str, object]) -> int:
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if "gpus" in answer else 1


if __name__ == "__main__":
    sys.exit(main())
