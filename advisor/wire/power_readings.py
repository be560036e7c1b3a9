"""Readings of a power sensor, and how wrong they are, as `advisor report power` shows them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadingError:
    """Relative error of one way to read power, for kernels of one length.

    Attributes:
        median: Of the absolute relative errors.
        p95: Their 95th percentile.
        readings: How many there were.
    """

    kernel_s: float
    way: str
    median: float
    p95: float
    readings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorCurve:
    """Readings of one channel while the load was switched, and what its window and delay predict.

    Attributes:
        channel: Its name.
        load: What the load did: step or wave.
        read_s: When each reading was seen, since the beginning of the stretch.
        read_w: What it was; as many.
        times_s: Of the prediction.
        predicted_w: Without noise; as many.
    """

    channel: str
    load: str
    read_s: tuple[float, ...]
    read_w: tuple[float, ...]
    times_s: tuple[float, ...]
    predicted_w: tuple[float, ...]
