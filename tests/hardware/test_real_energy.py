"""`advisor.energy` on a real GPU, against its own power readings. No setting of it is changed."""

import statistics
import threading
import time
from typing import Any

import pytest
from real_gpu import GPU, the_gpu

import advisor
from advisor.core.telemetry import POWER_GPU
from advisor_profiling.telemetry.nvml import NvmlSource

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


def busy(duration_s: float) -> None:
    """Matrix products one after the other."""
    torch: Any = pytest.importorskip("torch")
    a = torch.randn(8192, 8192, device=f"cuda:{the_gpu().index}", dtype=torch.bfloat16)
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s:
        torch.matmul(a, a)
        torch.cuda.synchronize()


def readings_w(stop: threading.Event) -> list[float]:
    source, found = NvmlSource(GPU), list[float]()
    while not stop.wait(0.02):
        if (power_w := source.read((POWER_GPU,))[POWER_GPU]) is not None:
            found.append(power_w)
    source.close()
    return found


@pytest.mark.parametrize("work", [time.sleep, busy], ids=["idle", "busy"])
def test_the_mean_is_that_of_the_readings(work: Any) -> None:
    """Over ten seconds counter and instant power agree within 5 %, and the bounds hold both."""
    work(2)  # what starts up
    stop, seen = threading.Event(), list[float]()
    thread = threading.Thread(target=lambda: seen.extend(readings_w(stop)))
    with advisor.energy(GPU) as e:
        thread.start()
        work(10)
        stop.set()
    thread.join()
    mean_w = statistics.fmean(seen)
    print(e, mean_w, e.gpus)
    assert e.power_w.value == pytest.approx(mean_w, rel=0.05)
    assert 0.95 * e.power_w.low <= mean_w <= 1.05 * e.power_w.high


def test_a_short_block_says_how_little_is_known() -> None:
    with advisor.energy(GPU) as e:
        busy(0.05)
    print(e)
    assert e.energy_j.low <= e.energy_j.value <= e.energy_j.high
    assert e.energy_j.high - e.energy_j.low > 0.2 * e.energy_j.value
