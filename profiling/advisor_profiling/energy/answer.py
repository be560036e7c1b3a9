"""What GPUs took while code ran, as `advisor.energy` tells it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from advisor.core.interval import Interval
from advisor.frames import Tabular, row_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEnergy:
    """What one GPU took, whoever used it.

    Attributes:
        energy_j: Expected, and bounds that hold it whatever the power did between readings.
        power_w: The same over the duration.
        by: `counter` of the card, or its `power` added up where it has none.
        sensor_known: Whether a record of the sensor says how late it shows (docs/power.md).
    """

    gpu_model: str
    gpu_uuid: str
    energy_j: Interval
    power_w: Interval
    by: str
    sensor_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy(Tabular):
    """What the GPUs took in all.

    Attributes:
        duration_s: Of the code.
    """

    duration_s: float
    gpus: tuple[GpuEnergy, ...]

    @property
    def energy_j(self) -> Interval:
        """Of all GPUs."""
        every = [gpu.energy_j for gpu in self.gpus]
        return Interval(*(sum(getattr(e, n) for e in every) for n in ("value", "low", "high")))

    @property
    def power_w(self) -> Interval:
        """Mean of all GPUs together."""
        return self.energy_j.times(1 / self.duration_s)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The GPUs."""
        return map(row_of, self.gpus)

    def __str__(self) -> str:
        j, w = self.energy_j, self.power_w
        return (
            f"{j.value:.4g} J ({j.low:.4g} to {j.high:.4g}) in {self.duration_s:.3g} s, "
            f"{w.value:.4g} W of {len(self.gpus)} GPU{'s' * (len(self.gpus) != 1)}"
        )
