"""A job that runs well, except at 50 %, where it writes outside its memory when its gate opens."""

import importlib
import os
from typing import Any

from advisor.progress import Progress

cupy: Any = importlib.import_module("cupy")

KERNEL = cupy.RawKernel(
    'extern "C" __global__ void step(float *x, unsigned long long far) '
    "{ x[threadIdx.x + far] += 1; }",
    "step",
)

data = cupy.zeros(1024, dtype=cupy.float32)
progress = Progress(on_pause=cupy.cuda.Device().synchronize)
progress.ready()
far = 1 << 46 if os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50" else 0
while True:
    for _ in range(200):
        KERNEL((1,), (1024,), (data, far))
    cupy.cuda.Device().synchronize()
    progress.add()
