"""The replay of a card's sensors: recordings that come with the package, instead of a GPU."""

import tempfile
from pathlib import Path

from advisor.core.wording import listed
from advisor.errors import InputError, StoreError
from advisor.validity.sensor_record import SensorRecord
from advisor_data.known import bundled_recording, bundled_sensors
from advisor_power.sensor.trace import Trace, read_trace


def recorded_sensor(gpu_model: str | None = None) -> tuple[SensorRecord, Trace]:
    """The bundled record of a GPU model, of the first one if none is named, and its recording.

    Raises:
        InputError: nothing is bundled, or nothing of that GPU model.
        StoreError: the installation is damaged.
    """
    records = bundled_sensors()
    if not records:
        raise InputError(
            "no recording of a power sensor comes with this version of advisor",
            fix="measure a card with `advisor power sensor`, or give a recording with --trace",
        )
    found = next((one for one in records if gpu_model in (None, one.gpu_model)), None)
    if found is None:
        models = sorted({one.gpu_model for one in records})
        raise InputError(
            f"no recording of a power sensor of {gpu_model} comes with advisor",
            fix=f"give --gpu-model one of {listed(models)}",
        )
    return found, bundled_trace(found)


def bundled_trace(record: SensorRecord) -> Trace:
    """The recording that a bundled record was made of.

    Raises:
        StoreError: the installation is damaged, or there is no room to unpack it.
    """
    packed = bundled_recording(record)
    with (
        StoreError.instead_of(
            OSError,
            "a recording cannot be unpacked into the folder for temporary files",
            fix="make room there, or name another folder with TMPDIR",
        ),
        tempfile.TemporaryDirectory() as folder,
    ):
        file = Path(folder) / "recording.jsonl"
        file.write_bytes(packed)
        return read_trace(file)
