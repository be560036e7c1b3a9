"""How long to wait before reading power, and how long to read it, by what is known of the card."""

from dataclasses import dataclass

from advisor.validity.sensor_record import PowerChannel, SensorRecord

AVERAGE_SETTLE_S = 1.1
"""For a mean over 1 s whose own window was not found: it rises in 0.92 s at most, after a delay
(Yang, Adamek, Armour, "Part-time Power Measurements", SC24, ten H100)."""

PERIODS_IN_WINDOW = 8
"""Readings that a window needs at least, so that its mean has an error."""


@dataclass(frozen=True, slots=True)
class PowerTiming:
    """What windows must keep to.

    Attributes:
        settle_s: After a change of load, new readings are of the new load alone.
        shortest_window_s: Shorter windows hold too few readings.
    """

    settle_s: float
    shortest_window_s: float

    @property
    def shown_s(self) -> float:
        """After a change of load, what is shown is of the new load alone.

        A reading is shown until the next one comes, so that one of just before `settle_s` may be
        seen for a period more.
        """
        return self.settle_s + self.shortest_window_s / PERIODS_IN_WINDOW


def power_timing(record: SensorRecord) -> PowerTiming | None:
    """Of the channel that meters read: instant, and average where the card has no other.

    None where that channel was not accepted, so that nothing is known of it.
    """
    instant, average = record.channel("instant"), record.channel("average")
    if instant is not None:
        return _timing(instant, instant.settle_s) if instant.accepted else None
    if average is None:
        return None
    return _timing(average, average.settle_s if average.accepted else AVERAGE_SETTLE_S)


def _timing(channel: PowerChannel, settle_s: float) -> PowerTiming:
    return PowerTiming(settle_s, PERIODS_IN_WINDOW * channel.period_ms / 1000)
