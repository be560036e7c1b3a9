"""What was polled during bursts: changes of power, and what held the clock back when."""

import json
from collections.abc import Iterable
from pathlib import Path

from advisor.core.telemetry import POWER_CAPS
from advisor_power.kernels.trace import PowerReading
from advisor_power.sensor.trace import MEMORY


class PolledReadings:
    """Lines of a poller, as far as they are read."""

    def __init__(self, file: Path) -> None:
        self._file = file.open()
        self._half = ""
        self._readings: list[PowerReading] = []
        self._memory: list[PowerReading] = []
        self._looks: list[tuple[float, frozenset[str]]] = []

    def read(self) -> None:
        """Take in what was written since."""
        *lines, self._half = (self._half + self._file.read()).split("\n")
        self.take(lines)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def take(self, lines: Iterable[str]) -> None:
        """Take whole lines in."""
        for kind, *values in map(json.loads, lines):
            if kind == "look":
                at_s, reasons, _ = values
                self._looks.append((at_s, frozenset(reasons)))
            else:
                channel, at_s, power_w, _ = values
                (self._memory if channel == MEMORY else self._readings).append(
                    PowerReading(at_s, power_w)
                )

    def between(self, begin_s: float, end_s: float) -> tuple[PowerReading, ...]:
        """Readings of that time; older ones are forgotten."""
        self._readings = [r for r in self._readings if r.at_s >= begin_s]
        return tuple(r for r in self._readings if r.at_s <= end_s)

    def memory_between(self, begin_s: float, end_s: float) -> tuple[PowerReading, ...]:
        """Readings of the memory of that time."""
        return tuple(r for r in self._memory if begin_s <= r.at_s <= end_s)

    def held_back(self, begin_s: float, end_s: float) -> str:
        """Why the clock was held back at any moment of that time; the power limit is no reason."""
        found = self._reasons(begin_s, end_s) - POWER_CAPS
        return f"clock held back: {', '.join(sorted(found))}" if found else ""

    def power_capped(self, begin_s: float, end_s: float) -> bool:
        """Whether the power limit held the clock back at any moment of that time."""
        return not POWER_CAPS.isdisjoint(self._reasons(begin_s, end_s))

    def _reasons(self, begin_s: float, end_s: float) -> frozenset[str]:
        before = [names for at_s, names in self._looks if at_s <= begin_s][-1:]
        within = [names for at_s, names in self._looks if begin_s < at_s <= end_s]
        return frozenset[str]().union(*before, *within)
