"""The mean power of the memory over a window, from a sensor that averages by itself."""

import statistics
from collections.abc import Iterable, Sequence

from advisor.core.telemetry import POWER_MEMORY, Channel

FEWEST_READINGS = 4
"""From so many on, readings that are all the same tell of a sensor that is stuck: a working one
tells milliwatts, and load moves them."""


def memory_power_w(
    readings: Sequence[tuple[float, float | None]],
    channels: Iterable[Channel],
    begun_s: float,
    power_w: float | None,
) -> float | None:
    """Mean of the readings that are of the window alone, W.

    A mean over a second that is read earlier than a second after the beginning is of the time
    before as well. NVML's field 185 in the scope of the memory is such a mean.

    Readings are of a time in s and in W, or None; `power_w` is of the whole GPU over the window.

    Returns:
        None where the window is too short, a reading is missing, zero or not below the power of
        the whole GPU, or the sensor is stuck.
    """
    own = next((c for c in channels if c.name == POWER_MEMORY), None)
    if own is None or power_w is None:
        return None
    inside = [watts for at_s, watts in readings if at_s >= begun_s + (own.window_s or 0.0)]
    known = [watts for watts in inside if watts is not None and 0 < watts < power_w]
    if len(known) < max(len(inside), FEWEST_READINGS) or len(set(known)) == 1:
        return None
    return statistics.fmean(known)
