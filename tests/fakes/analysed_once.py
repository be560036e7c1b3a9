"""Made-up recordings differ in little: a channel with the same readings is analysed once."""

import hashlib
import os
import pickle
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from advisor.validity.sensor_record import PowerChannel
from advisor_power.sensor import analysis
from advisor_power.sensor.analysis import power_channel
from advisor_power.sensor.trace import Trace

_Found = tuple[PowerChannel | None, str]


@contextmanager
def analysed_once(known: Path) -> Generator[None]:
    """Meanwhile what is known of a channel, from its readings and stages, is not found anew.

    Processes of the same run of the tests share the folder of what is known.
    """

    def remembered(trace: Trace, name: str) -> _Found:
        readings = trace.series.get(name)
        if readings is None:
            return power_channel(trace, name)
        seen = readings.times_s.tobytes() + readings.values.tobytes() + repr(trace.stages).encode()
        file = known / hashlib.sha256(name.encode() + seen).hexdigest()
        if not file.exists():
            draft = file.with_suffix(f".{os.getpid()}")
            draft.write_bytes(pickle.dumps(power_channel(trace, name)))
            draft.replace(file)
        return pickle.loads(file.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "power_channel", remembered)
        yield
