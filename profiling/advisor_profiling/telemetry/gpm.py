"""GPU performance monitoring (GPM) counters of NVML: Hopper and newer.

Two samples are taken and NVML gives the averages between them. A driver that does not know a
metric answers with an error for that metric alone. Metric numbers, units and the least distance
of two samples are those of `nvmlGpmMetricId_t` and `nvmlGpmMetricsGet` in NVIDIA's nvml.h.
"""

import math
import time
from collections.abc import Collection
from typing import Any

from advisor_profiling.telemetry.nvml_errors import call, metrics_request, reading

METRICS: dict[str, int] = {
    "counter.gpu_busy": 1,
    "counter.sm_active": 2,
    "counter.sm_occupancy": 3,
    "counter.integer_active": 4,
    "counter.tensor_active": 5,
    "counter.dram_active": 10,
    "counter.fp64_active": 11,
    "counter.fp32_active": 12,
    "counter.fp16_active": 13,
    "counter.pcie_tx": 20,
    "counter.pcie_rx": 21,
    # Received comes first here, unlike everywhere else.
    "counter.nvlink_rx": 60,
    "counter.nvlink_tx": 61,
}
"""Channel to GPM metric number."""

_LEAST_S = 0.11
"""Two samples must be more than 100 ms apart."""


class Gpm:
    """Counters of one GPU since `start`, or since it was made."""

    def __init__(self, device: Any) -> None:
        self._device = device
        support = reading("nvmlGpmQueryDeviceSupport", device)
        supported = support is not None and bool(support.isSupportedDevice)
        self._samples = [call("nvmlGpmSampleAlloc") for _ in range(2 if supported else 0)]
        self._started_s = 0.0
        self.start()

    @property
    def channels(self) -> tuple[str, ...]:
        """What it can give; nothing on GPUs without GPM."""
        return tuple(METRICS) if self._samples else ()

    def start(self) -> None:
        """Take the first sample."""
        if self._samples:
            call("nvmlGpmSampleGet", self._device, self._samples[0])
            self._started_s = time.monotonic()

    def read(self, names: Collection[str]) -> dict[str, float | None]:
        """Averages since the first sample; waits until that is more than 100 ms ago."""
        wanted = [name for name in names if name in self.channels]
        if not wanted:
            return {}
        time.sleep(max(0.0, self._started_s + _LEAST_S - time.monotonic()))
        call("nvmlGpmSampleGet", self._device, self._samples[1])
        return _metrics(wanted, *self._samples)

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples:
            call("nvmlGpmSampleFree", sample)
        self._samples = []


def _metrics(names: list[str], first: Any, second: Any) -> dict[str, float | None]:
    request = metrics_request()
    request.sample1, request.sample2 = first, second
    request.numMetrics = len(names)
    for position, name in enumerate(names):
        request.metrics[position].metricId = METRICS[name]
    call("nvmlGpmMetricsGet", request)
    return {name: _value(request.metrics[position]) for position, name in enumerate(names)}


def _value(answer: Any) -> float | None:
    # Any code but success is about this metric alone: what breaks the GPU fails the call.
    available = answer.nvmlReturn == 0 and math.isfinite(answer.value)
    return float(answer.value) if available else None
