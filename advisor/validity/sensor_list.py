"""Records of power sensors as the service lists them."""

from dataclasses import dataclass

from advisor.validity.sensor_record import SensorRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRecords:
    """What is known of power sensors, the newest first.

    Attributes:
        next: The `cursor` of the next page; None: this is the last one.
    """

    sensors: tuple[SensorRecord, ...]
    next: str | None
