"""Replays what a live source once answered, from a file of JSON lines.

A line is `{"t": seconds, "kind": name, "value": value}`; the first one describes the source, the
others are readings in their order.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

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
    Readings,
    channels_of,
)

_STATE = {
    CLOCK_SM: "sm_clock_mhz",
    CLOCK_MEMORY: "memory_clock_mhz",
    TEMPERATURE_GPU: "temperature_c",
    POWER_LIMIT: "power_limit_w",
}
_PLACES = {
    POWER_GPU: ("power_w", ""),
    ENERGY_GPU: ("energy_j", ""),
    **{name: ("state", key) for name, key in _STATE.items()},
    **{name: ("counters", column) for name, column in COUNTERS.items()},
}


class TraceSource:
    """At each moment the reading that was the last one at that moment.

    Time starts with the first reading that is asked for.

    Args:
        path: The file.
        clock: Monotonic seconds.
    """

    channels: tuple[Channel, ...] = channels_of(_PLACES)

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        about, *readings = [json.loads(line) for line in path.read_text().splitlines()]
        self._clock, self._started_s = clock, None
        self.name, self.interval_s = about["value"]["name"], about["value"]["interval_s"]
        self.gpu = Gpu(**about["value"]["gpu"])
        kinds = {each["kind"] for each in readings}
        self._readings = {kind: [r for r in readings if r["kind"] == kind] for kind in kinds}

    def read(self, names: Collection[str]) -> Readings:
        there = [name for name in names if name in _PLACES]
        found = {name: (self._last(_PLACES[name][0]), _PLACES[name][1]) for name in there}
        read = {name: value[key] if key else value for name, (value, key) in found.items()}
        return dict.fromkeys(names) | read

    def throttle_reasons(self) -> tuple[str, ...] | None:
        return tuple(self._last("state")["throttle_reasons"])

    def processes_memory_mib(self, pids: Collection[int]) -> float | None:
        return None

    def start_window(self) -> None:
        """The recorded means have their own beginning."""

    def close(self) -> None:
        """Nothing is held."""

    def _last(self, kind: str) -> Any:
        now_s = self._clock()
        self._started_s = now_s if self._started_s is None else self._started_s
        readings = self._readings[kind]
        place = bisect_right(readings, now_s - self._started_s, key=lambda r: r["t"]) - 1
        return readings[max(0, place)]["value"]
