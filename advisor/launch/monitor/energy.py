"""Adds up the energy of a GPU, and knows of how much of the time it is."""

from dataclasses import dataclass

from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, TelemetrySource
from advisor.errors import AdvisorError
from advisor.launch.records.status import SILENT_S

_NEARLY_ALL = 0.01
"""Energy is read as well as this; a gap that is smaller is none."""


@dataclass(frozen=True, slots=True)
class Metered:
    """Energy since the first reading.

    Attributes:
        joules: Of the time that could be metered.
        seconds: How long that was.
        at_s: When it was read last.
    """

    joules: float
    seconds: float
    at_s: float

    def since(self, first: "Metered") -> "Metered":
        """What came after an earlier reading."""
        return Metered(self.joules - first.joules, self.seconds - first.seconds, self.at_s)

    def whole_j(self, passed_s: float) -> float | None:
        """The energy of a time that was this long; None: it is of less of it, or of more."""
        near = abs(self.seconds - passed_s) <= _NEARLY_ALL * passed_s
        return self.joules if near else None


class CardMeter:
    """Energy since the first reading: by the counter, else integrated from the power.

    A source that is silent leaves a gap that the counter bridges. Without a counter one of
    `SILENT_S` and more stays a gap: neither its energy nor its time is counted.
    """

    def __init__(self, source: TelemetrySource) -> None:
        self._source = source
        self._found: Metered | None = None
        self._counter_j: float | None = None
        self._power_w: float | None = None

    def read(self, now_s: float) -> Metered | None:
        """All so far; None before anything could be read."""
        try:
            counter_j = self._source.read((ENERGY_GPU,))[ENERGY_GPU]
            if counter_j is not None:
                self._count(now_s, counter_j)
            # A counter that tells nothing now goes on, and will tell this time, too.
            elif self._counter_j is None:
                self._integrate(now_s, self._source.read((POWER_GPU,))[POWER_GPU])
        except AdvisorError:
            # Telemetry that fails is no reason to lose sight of the jobs.
            pass
        return self._found

    def _count(self, now_s: float, counter_j: float) -> None:
        grown_j = None if self._counter_j is None else counter_j - self._counter_j
        self._counter_j = counter_j
        # It starts again with the driver: what was drawn until then is not known.
        self._add(now_s, None if grown_j is None or grown_j < 0 else grown_j)

    def _integrate(self, now_s: float, power_w: float | None) -> None:
        if power_w is None:
            return
        then_w, self._power_w = self._power_w, power_w
        passed_s = now_s - self._found.at_s if self._found else 0.0
        if then_w is None or passed_s >= SILENT_S:
            self._add(now_s, None)
        else:
            self._add(now_s, (then_w + power_w) / 2 * passed_s)

    def _add(self, now_s: float, grown_j: float | None) -> None:
        """What came since the last reading; None: that is not known."""
        found = self._found or Metered(0.0, 0.0, now_s)
        if grown_j is None:
            self._found = Metered(found.joules, found.seconds, now_s)
        else:
            passed_s = now_s - found.at_s
            self._found = Metered(found.joules + grown_j, found.seconds + passed_s, now_s)
