"""What the power sensors of one card do: how often, over what time and how late they read.

A reading at time u is of the power until a delay before it. It is either the mean over a window,
`R(u) = 1/W * integral of P(t) dt over [u - d - W, u - d] + noise`, or it forgets exponentially, as
a filter of first order does: P(t) counts by `exp(-(u - d - t) / tau) / tau`. The delay need not be
the same each time: a driver that asks the card every 100 ms for the newest of values which the card
makes in its own time shows one of any age. How far a board's readings are
off as a whole needs a meter outside it, and is not known here: only ratios on one card are claimed.
`advisor power sensor` measures a card and keeps one file for each card and driver.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from advisor.formats.wire import RecordFolder, read
from advisor.wire.power import Measurement

Response = Literal["mean", "exponential"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerChannel:
    """One power reading of the driver, in the words of `R(u)` above.

    Attributes:
        name: instant, average or memory.
        period_ms: Between two changes of the reading, median.
        response: mean (over a window) or exponential.
        window_ms: W, over which a reading is the mean; of an exponential response twice the time
            constant, since such readings are as late as those of a window so long.
        delay_ms: d, from the end of that window to the reading, mean.
        delay_spread_ms: Between the shortest and the longest delay: the period of the clock by
            which the card makes values, of which the driver shows the newest; 0: it has none.
        noise_w: Standard deviation of readings of a steady load.
        window_spread_ms: How far W would differ between halves of the data: twice its standard
            error.
        prediction_error: Root mean square of predicted less read, over the mean read, where a load
            that the fit did not see was switched on and off; 1 where there was none.
        median_error: Median of the same errors.
        accepted: Whether spread and error meet the requirements.
    """

    name: str
    period_ms: float
    window_ms: float
    delay_ms: float
    noise_w: float
    window_spread_ms: float
    prediction_error: float
    accepted: bool
    delay_spread_ms: float = 0.0
    median_error: float = 1.0
    response: Response = "mean"

    @property
    def longest_delay_s(self) -> float:
        """After the end of a window its mean is shown at the latest."""
        return (self.delay_ms + self.delay_spread_ms / 2) / 1000

    @property
    def memory_s(self) -> float:
        """What was longer ago, before the delay, counts for less than 1 %."""
        return memory_s(self.response, self.window_ms / 1000)

    @property
    def smear_s(self) -> float:
        """What a reading may be of is so long."""
        return self.memory_s + self.delay_spread_ms / 1000

    @property
    def late_s(self) -> float:
        """A window may have ended so much before or after it is taken to have."""
        return self.delay_spread_ms / 2000

    @property
    def settle_s(self) -> float:
        """After a change of load a reading is of the new load alone."""
        return self.longest_delay_s + self.memory_s


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyCounter:
    """The counter of joules.

    Attributes:
        period_ms: Between two changes, median.
        coverage_spread: Of the energy of square waves over their starting phases, the standard
            deviation over the mean: small where the counter integrates everything, large where it
            adds up windows between which it does not look.
        covers_everything: The spread is 1 % at most; None where it is between 1 and 5 %.
    """

    period_ms: float
    coverage_spread: float
    covers_everything: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRecord(Measurement):
    """What was found on one card with one driver.

    Attributes:
        channels: Those that the card has.
        absent: Names of channels that it does not have, or that read 0, always the same, or change
            too rarely or irregularly to be fitted.
        energy: None where the card has no counter.
        seconds: What measuring it took, s.
        source: live, replay or bundled.
        reasons: Why channels are absent or not accepted, a sentence each.
    """

    channels: tuple[PowerChannel, ...]
    absent: tuple[str, ...]
    energy: EnergyCounter | None
    seconds: float
    source: str
    reasons: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether anything of it is to be believed."""
        return any(channel.accepted for channel in self.channels)

    def channel(self, name: str) -> PowerChannel | None:
        """A channel by name; None where the card does not have it."""
        return next((channel for channel in self.channels if channel.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRecords:
    """What is known of power sensors, the newest first.

    Attributes:
        next: The `cursor` of the next page; None: this is the last one.
    """

    sensors: tuple[SensorRecord, ...]
    next: str | None


def memory_s(response: Response, window_s: float) -> float:
    """How far back a reading looks, from the end of its delay on."""
    # After five time constants less than 1 % of a reading is of what was before.
    return window_s if response == "mean" else 5 * window_s / 2


def record_for(
    gpu_uuid: str, gpu_model: str, driver: str, records: Iterable[SensorRecord]
) -> SensorRecord | None:
    """The record of this card, else the first of its model, each with this driver; else None.

    Nothing is known of a sensor with another driver.
    """
    same = [r for r in records if (r.gpu_model, r.driver) == (gpu_model, driver)]
    return next(iter([record for record in same if record.gpu_uuid == gpu_uuid] + same), None)


def origin_of(record: SensorRecord, gpu_uuid: str) -> str:
    """Of which card a record is, as messages say it."""
    card = "of this card" if record.gpu_uuid == gpu_uuid else "of another card of this model"
    return f"{card}, bundled" if record.source == "bundled" else card


def _parse_record(text: bytes) -> SensorRecord:
    """The record that `keep_record` wrote.

    Raises:
        ValueError: it is no record; says where.
    """
    record = read(SensorRecord, text)
    for channel in record.channels:
        times = (channel.period_ms, channel.window_ms)
        if min(times) <= 0 or min(channel.delay_ms, channel.noise_w) < 0:
            raise ValueError(f"channels.{channel.name}: a time that is not above 0, or noise below")
    return record


SENSOR_RECORDS = RecordFolder("sensors", "advisor power sensor", _parse_record)
"""Of this host, by card and driver."""


def keep_record(record: SensorRecord, home: Path) -> Path:
    """Write the record of its card with its driver, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    return SENSOR_RECORDS.keep(record, home, record.gpu_uuid, record.driver)


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
    instant = record.channel("instant")
    channel = instant or record.channel("average")
    if channel is None or (channel is instant and not channel.accepted):
        return None
    settle_s = channel.settle_s if channel.accepted else AVERAGE_SETTLE_S
    return PowerTiming(settle_s, PERIODS_IN_WINDOW * channel.period_ms / 1000)
