"""A job that leaves its MPS limit in one of the ways of `limits_broken.py`, which starts it.

    python3 docs/measurements/limits_subject.py WAY LIBCUDA REPORT SECONDS

It needs the driver's library alone. What it saw of itself is in REPORT after the first kernel.
"""

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve()
PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
MAX_SMS = 1024

PTX = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry note(.param .u64 seen)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [seen];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %smid;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    mov.u32 %r2, 1;
    st.global.u32 [%rd3], %r2;
    mov.u64 %rd4, %globaltimer;
SPIN:
    mov.u64 %rd5, %globaltimer;
    sub.s64 %rd6, %rd5, %rd4;
    setp.lt.u64 %p1, %rd6, 200000;
    @%p1 bra SPIN;
    ret;
}
\0"""


def command_of(way: str, libcuda: str, report: Path, seconds: float) -> list[str]:
    """Command of a subject."""
    return [sys.executable, str(SCRIPT), way, libcuda, str(report), str(seconds)]


def subject(way: str, libcuda: str, report: Path, seconds: float) -> None:
    """Become what `way` says, compute, and write what this process saw."""
    if way in ("set-100", "server-100", "server-70"):
        os.environ[PERCENTAGE] = "100"
    if way in ("remove", "server"):
        os.environ.pop(PERCENTAGE, None)
    if way == "nowhere":
        os.environ[PIPE] = "/nonexistent"
    if way == "children":
        breed(libcuda, report, seconds)
        return
    cuda = ctypes.CDLL(libcuda)
    seen: dict[str, Any] = {"pid": os.getpid(), "init": cuda.cuInit(0)}
    if way == "remove-after-init":
        os.environ.pop(PERCENTAGE, None)
    device, value = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    for name, attribute in (("attribute", 16), ("mps", 133)):
        code = cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        seen[name] = value.value if code == 0 else None
    seen["context"] = open_context(cuda, device, affine=way == "per-context")
    seen["context_at"] = time.time()
    cuda.cuDeviceGetAttribute(ctypes.byref(value), 16, device)
    seen["attribute_in_context"] = value.value
    compute(cuda, seen, report, seconds)


def breed(libcuda: str, report: Path, seconds: float) -> None:
    """Stay a good client, and start children of a second each without the variables."""
    ctypes.CDLL(libcuda).cuInit(0)
    bare = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_MPS_")}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        subprocess.run(command_of("nothing", libcuda, report, 1.0), env=bare, check=False)
        time.sleep(0.3)


def open_context(cuda: ctypes.CDLL, device: ctypes.c_int, affine: bool) -> int:
    """Code of making a context; `affine` asks for all SMs by execution affinity."""
    context = ctypes.c_void_p()
    if affine:
        param = (ctypes.c_uint * 2)(0, 132)  # CU_EXEC_AFFINITY_TYPE_SM_COUNT, 132 SMs
        code = cuda.cuCtxCreate_v3(ctypes.byref(context), param, 1, 0, device)
        if code == 0:
            return 0
        print(f"affinity of 132 SMs refused: {code}", flush=True)
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    return code or cuda.cuCtxSetCurrent(context)


def compute(cuda: ctypes.CDLL, seen: dict[str, Any], report: Path, seconds: float) -> None:
    """Run the kernel again and again; the report comes after the first run."""
    module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    codes = [
        cuda.cuModuleLoadData(ctypes.byref(module), PTX),
        cuda.cuModuleGetFunction(ctypes.byref(function), module, b"note"),
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 * MAX_SMS)),
        cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(0), ctypes.c_size_t(4 * MAX_SMS)),
    ]
    params = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    host = (ctypes.c_uint32 * MAX_SMS)()
    end, first = time.monotonic() + seconds, True
    while first or time.monotonic() < end:
        launched = cuda.cuLaunchKernel(function, 2048, 1, 1, 1024, 1, 1, 0, None, params, None)
        codes += [launched, cuda.cuCtxSynchronize()]
        if first:
            cuda.cuMemcpyDtoH_v2(host, memory, ctypes.c_size_t(4 * MAX_SMS))
            seen |= {"ran_on": sum(host), "codes": codes[:6]}
            (fresh := report.with_suffix(f".{os.getpid()}")).write_text(json.dumps(seen))
            fresh.replace(report)
        first = False
        if any(codes):
            sys.exit(f"CUDA codes {codes}")


def main() -> None:
    """Be the subject that the command line names."""
    way, libcuda, report, seconds = sys.argv[1:]
    subject(way, libcuda, Path(report), float(seconds))


if __name__ == "__main__":
    main()
