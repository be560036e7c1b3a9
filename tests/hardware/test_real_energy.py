"""`advisor.energy` on a real GPU, against its own power readings. No setting of it is changed."""

import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest
from real_gpu import GPU, the_gpu

import advisor
from advisor.core.telemetry import POWER_GPU
from advisor.settings import read_settings
from advisor_profiling.telemetry.nvml import NvmlSource

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


BUSY = """
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
while True:
    torch.matmul(a, a)
    torch.cuda.synchronize()
    print("done", flush=True)
"""


@contextmanager
def busy() -> Generator[None]:
    """Matrix products one after the other, in a process that the GPU is rid of afterwards."""
    env = read_settings().job_environment() | {"CUDA_VISIBLE_DEVICES": the_gpu().uuid}
    command = ["python3", "-c", BUSY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield
        finally:
            process.kill()


def readings_w(stop: threading.Event) -> list[float]:
    source, found = NvmlSource(GPU), list[float]()
    while not stop.wait(0.02):
        if (power_w := source.read((POWER_GPU,))[POWER_GPU]) is not None:
            found.append(power_w)
    source.close()
    return found


@pytest.mark.parametrize("work", [nullcontext, busy], ids=["idle", "busy"])
def test_the_mean_is_that_of_the_readings(work: Callable[[], AbstractContextManager[None]]) -> None:
    """Over ten seconds counter and instant power agree within 5 %, and the bounds hold both."""
    stop, seen = threading.Event(), list[float]()
    thread = threading.Thread(target=lambda: seen.extend(readings_w(stop)))
    with work():
        time.sleep(2)  # what starts up
        with advisor.energy(GPU) as e:
            thread.start()
            time.sleep(10)
            stop.set()
        thread.join()
    mean_w = statistics.fmean(seen)
    print(e, mean_w, e.gpus)
    assert e.power_w.value == pytest.approx(mean_w, rel=0.05)
    assert 0.95 * e.power_w.low <= mean_w <= 1.05 * e.power_w.high


def test_a_short_block_says_how_little_is_known() -> None:
    with busy(), advisor.energy(GPU) as e:
        time.sleep(0.05)
    print(e)
    assert e.energy_j.low <= e.energy_j.value <= e.energy_j.high
    assert e.energy_j.high - e.energy_j.low > 0.2 * e.energy_j.value
