"""What is asked of the measurement of an operation, and what is known of the card's sensors."""

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.core.gpu import Gpu
from advisor.errors import InputError
from advisor.validity.sensor_record import PowerChannel, SensorRecord, record_for
from advisor.wire.power import StretchPower
from advisor_power.kernels.running.live import no_instant
from advisor_power.kernels.trace import IDLE

LEAD_S = 0.1
"""Of the operation before each run: several windows of the sensor."""


@dataclass(frozen=True, slots=True)
class Sensors:
    """What is known of the sensors of a card, and its instant channel."""

    record: SensorRecord
    channel: PowerChannel


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKernel:
    """What is asked of the measurement.

    Attributes:
        resolution_ms: Width of the curve's bins.
        within_w: Standard error of a bin in the first window of a run; None: what Table I's number
            of runs gives.
        runs: How many; None: by Table I and `within_w`.
        most_s: Longest time that it may take.
        enough: Runs that are made at least, where more would take longer; None: it is refused then.
        before: Operation before each run, or idle.
        lead_s: How long that runs.
        fresh: Measure again what was measured before.
        stretch: What slow sensors said of it, where that is known; else it is measured.
    """

    resolution_ms: float = 5.0
    within_w: float | None = None
    runs: int | None = None
    most_s: float = 600.0
    enough: int | None = None
    before: str = IDLE
    lead_s: float = 0.0
    fresh: bool = False
    stretch: StretchPower | None = None


def sensors_of(gpu: Gpu, records: Iterable[SensorRecord]) -> Sensors:
    """What is known of this card's sensors.

    Raises:
        InputError: nothing is.
        SourceError: the card has no instant channel.
    """
    record = record_for(gpu.uuid, gpu.model, gpu.driver or "", records)
    if record is None:
        raise InputError(
            f"there is no record of the power sensors of {gpu.model} with driver {gpu.driver}",
            why="without window, delay and noise of a reading nobody knows which time it is of",
            fix="run `advisor power sensor` first: a few minutes, once for a card and driver",
        )
    channel = record.channel("instant")
    if channel is None:
        raise no_instant(gpu.model)
    return Sensors(record, channel)
