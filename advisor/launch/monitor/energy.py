"""What a launch draws: the energy of its GPU."""

from advisor.core.telemetry import ENERGY_GPU, POWER_GPU, Source
from advisor.errors import AdvisorError


class Energy:
    """Energy since the first reading, J: by the counter, else integrated from the power.

    A source that fails for a while leaves a gap that the counter bridges; without a counter the gap
    is not counted.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._total_j: float | None = None
        self._counter_j: float | None = None
        self._power: tuple[float, float] | None = None

    def read(self, now_s: float) -> float | None:
        """Energy so far, J; None before anything could be read."""
        try:
            counter_j = self._source.read((ENERGY_GPU,))[ENERGY_GPU]
            power_w = None if counter_j is not None else self._source.read((POWER_GPU,))[POWER_GPU]
        except AdvisorError:
            # Telemetry that fails is no reason to lose sight of the jobs.
            counter_j = power_w = None
        if counter_j is not None:
            self._count(counter_j)
        elif power_w is not None:
            self._integrate(now_s, power_w)
        else:
            self._power = None
        return self._total_j

    def _count(self, counter_j: float) -> None:
        # It starts again with the driver.
        grown_j = counter_j - self._counter_j if self._counter_j is not None else 0.0
        self._total_j = (self._total_j or 0.0) + max(0.0, grown_j)
        self._counter_j, self._power = counter_j, None

    def _integrate(self, now_s: float, power_w: float) -> None:
        grown_j = 0.0
        if self._power is not None:
            then_s, then_w = self._power
            grown_j = (then_w + power_w) / 2 * (now_s - then_s)
        self._total_j = (self._total_j or 0.0) + grown_j
        self._power = (now_s, power_w)
