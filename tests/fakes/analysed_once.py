"""Made-up recordings differ in little: a channel with the same readings is analysed once."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from advisor.validity.sensor_record import PowerChannel
from advisor_power.sensor import analysis
from advisor_power.sensor.channel import power_channel
from advisor_power.sensor.trace import RecordedStage, Trace

_Found = tuple[PowerChannel | None, str]
_Seen = tuple[str, bytes, tuple[RecordedStage, ...]]


@contextmanager
def analysed_once() -> Generator[None]:
    """Meanwhile what is known of a channel, from its readings and stages, is not found anew."""
    known: dict[_Seen, _Found] = {}

    def remembered(trace: Trace, name: str) -> _Found:
        readings = trace.series.get(name)
        if readings is None:
            return power_channel(trace, name)
        seen = name, readings.times_s.tobytes() + readings.values.tobytes(), trace.stages
        if seen not in known:
            known[seen] = power_channel(trace, name)
        return known[seen]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "power_channel", remembered)
        yield
