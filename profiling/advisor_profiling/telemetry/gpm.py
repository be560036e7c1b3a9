"""GPU performance monitoring (GPM) counters of NVML: Hopper and newer.

Two samples are taken and NVML gives the averages between them. A driver that does not know a
metric answers with an error for that metric alone. Metric numbers, units and the least distance
of two samples are those of `nvmlGpmMetricId_t` and `nvmlGpmMetricsGet` in NVIDIA's nvml.h.
"""

import math
import time
from typing import Any

from advisor.core.records import Counters
from advisor_profiling.telemetry.nvml_errors import call, metrics_request, reading

METRICS: dict[int, str] = {
    2: "sm_active_percent",
    3: "sm_occupancy_percent",
    4: "integer_active_percent",
    5: "tensor_active_percent",
    10: "dram_active_percent",
    11: "fp64_active_percent",
    12: "fp32_active_percent",
    13: "fp16_active_percent",
    20: "pcie_tx_mib_per_s",
    21: "pcie_rx_mib_per_s",
    # Received comes first here, unlike everywhere else.
    60: "nvlink_rx_mib_per_s",
    61: "nvlink_tx_mib_per_s",
}
"""GPM metric number to column."""

_LEAST_S = 0.11
"""Two samples must be more than 100 ms apart."""


class Gpm:
    """Counters of one GPU since `start`, or since it was made.

    Args:
        device: Handle of an initialised NVML.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        support = reading("nvmlGpmQueryDeviceSupport", device)
        supported = support is not None and bool(support.isSupportedDevice)
        self._samples = [call("nvmlGpmSampleAlloc") for _ in range(2 if supported else 0)]
        self._started_s = 0.0
        self.start()

    def start(self) -> None:
        """Take the first sample."""
        if self._samples:
            call("nvmlGpmSampleGet", self._device, self._samples[0])
            self._started_s = time.monotonic()

    def read(self) -> Counters:
        """Averages since the first sample; waits until that is more than 100 ms ago."""
        if not self._samples:
            return Counters()
        time.sleep(max(0.0, self._started_s + _LEAST_S - time.monotonic()))
        call("nvmlGpmSampleGet", self._device, self._samples[1])
        return Counters(**_metrics(*self._samples))

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples:
            call("nvmlGpmSampleFree", sample)
        self._samples = []


def _metrics(first: Any, second: Any) -> dict[str, float | None]:
    request = metrics_request()
    request.sample1, request.sample2 = first, second
    request.numMetrics = len(METRICS)
    for position, metric in enumerate(METRICS):
        request.metrics[position].metricId = metric
    call("nvmlGpmMetricsGet", request)
    answers = [request.metrics[position] for position in range(len(METRICS))]
    return {name: _value(answer) for name, answer in zip(METRICS.values(), answers, strict=True)}


def _value(answer: Any) -> float | None:
    # Any code but success is about this metric alone: what breaks the GPU fails the call.
    available = answer.nvmlReturn == 0 and math.isfinite(answer.value)
    return float(answer.value) if available else None
