"""Replays what a live source once answered, from a file of JSON lines.

A line is `{"t": seconds, "kind": name, "value": value}`; the first one describes the source, the
others are readings in their order.
"""

import json
from bisect import bisect_right
from pathlib import Path
from typing import Any

from scripted import ScriptedSource

from advisor.core.gpu import Gpu
from advisor.core.telemetry import (
    CLOCK_MEMORY,
    CLOCK_SM,
    COUNTERS,
    ENERGY_GPU,
    POWER_GPU,
    POWER_LIMIT,
    TEMPERATURE_GPU,
    Channel,
    channels_of,
)
from advisor_profiling.window import VirtualClock

_PLACES = {
    POWER_GPU: ("power_w", ""),
    ENERGY_GPU: ("energy_j", ""),
    CLOCK_SM: ("state", "sm_clock_mhz"),
    CLOCK_MEMORY: ("state", "memory_clock_mhz"),
    TEMPERATURE_GPU: ("state", "temperature_c"),
    POWER_LIMIT: ("state", "power_limit_w"),
    **{name: ("counters", column) for name, column in COUNTERS.items()},
}


class TraceSource(ScriptedSource):
    """At each moment the reading that was the last one at that moment."""

    def __init__(self, path: Path, clock: VirtualClock) -> None:
        about, *self._readings = [json.loads(line) for line in path.read_text().splitlines()]
        super().__init__(clock, lambda _: None, gpu=Gpu(**about["value"]["gpu"]))
        self._started_s = clock.now_s()

    @property
    def channels(self) -> tuple[Channel, ...]:
        return channels_of(_PLACES)

    def throttle_reasons(self) -> tuple[str, ...] | None:
        return tuple(self._last("state")["throttle_reasons"])

    def _reading(self, name: str) -> float | None:
        if name not in _PLACES:
            return None
        kind, key = _PLACES[name]
        value = self._last(kind)
        return value.get(key) if key else value

    def _last(self, kind: str) -> Any:
        readings = [reading for reading in self._readings if reading["kind"] == kind]
        now_s = self.clock.now_s() - self._started_s
        return readings[max(0, bisect_right(readings, now_s, key=lambda r: r["t"]) - 1)]["value"]
