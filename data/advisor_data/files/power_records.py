"""Records of power sensors, their recordings, and measured kernels: of this host, and bundled.

What reads them raises a StoreError where a file cannot be read, or the installation is damaged.
"""

import gzip
import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar

from advisor.errors import InputError, StoreError
from advisor.formats.kept import RecordFolder
from advisor.formats.wire import read_tolerant
from advisor.validity.sensor_record import SENSOR_RECORDS, SensorRecord
from advisor.wire.kernel_power import KernelReport

T = TypeVar("T")

KERNELS_FOLDER = "kernels"
"""In the advisor's home."""

KERNEL_REPORTS = RecordFolder(
    KERNELS_FOLDER, "advisor power kernel", lambda text: read_tolerant(KernelReport, text)
)
"""Of this host, by operation and conditions, beside the runs that each was made of."""

BUNDLED = "bundled"
"""Source of what comes with the package."""

SENSORS, KERNELS = "sensors", "kernels"
"""Folders of what is bundled: a record and its recording for each card; a table of kernels."""

KERNEL_TABLE = "kernels.jsonl"


def known_sensors(home: Path) -> list[SensorRecord]:
    """Records that were made on this host, then those that come with the package."""
    return [*SENSOR_RECORDS.read(home), *bundled_sensors()]


def known_kernels(home: Path) -> list[KernelReport]:
    """Kernels that were measured on this host, then those that come with the package."""
    return [*stored_kernels(home), *bundled_kernels()]


def stored_kernels(home: Path) -> list[KernelReport]:
    """Kernels that were measured on this host, by the names of their files."""
    return KERNEL_REPORTS.read(home)


def bundled_sensors() -> list[SensorRecord]:
    """Records of real cards that come with the package; none where there are none."""
    folder = _bundled() / SENSORS
    if not folder.is_dir():
        return []
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=str)
    return [_parsed(SensorRecord, file.read_bytes(), file.name) for file in files]


def bundled_recording(record: SensorRecord) -> bytes:
    """The recording that a bundled record was made of, for `advisor power sensor --trace`."""
    name = f"{bundled_name(record)}.jsonl.gz"
    try:
        return gzip.decompress((_bundled() / SENSORS / name).read_bytes())
    except (OSError, EOFError) as error:
        raise _broken(name, str(error)) from error


def bundled_kernels() -> list[KernelReport]:
    """Kernels measured on real cards that come with the package; none where there are none."""
    file = _bundled() / KERNELS / KERNEL_TABLE
    if not file.is_file():
        return []
    return [_parsed(KernelReport, line, KERNEL_TABLE) for line in file.read_bytes().splitlines()]


def bundled_name(record: SensorRecord) -> str:
    """What the files of a bundled record are called: GPU model, card and driver."""
    card = record.gpu_uuid.removeprefix("GPU-")[:8]
    slug = re.sub(r"[^a-z0-9.]+", "-", f"{record.gpu_model}-{card}-{record.driver}".lower())
    return slug.strip("-")


def _bundled() -> Traversable:
    return resources.files("advisor_data") / "bundled"


def _parsed(kind: type[T], text: bytes, name: str) -> T:
    try:
        return read_tolerant(kind, text, name=name)
    except InputError as error:
        raise _broken(name, str(error)) from error


def _broken(name: str, why: str) -> StoreError:
    return StoreError(
        f"advisor_data/bundled: {name} is missing or damaged", why=why, fix="install advisor again"
    )
