"""Records of power sensors and measured kernels as the service lists them; everything may block."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import TypeVar

from advisor.errors import StoreError
from advisor.formats.wire import write
from advisor.validity.sensor_list import SensorRecords
from advisor.validity.sensor_record import SensorRecord
from advisor.wire.kernel_power import KernelReport, KernelReports
from advisor_api.service.service import Service
from advisor_data.files.power_records import known_kernels, known_sensors
from advisor_data.store.pages import Position, Span, us_of

Measured = TypeVar("Measured", SensorRecord, KernelReport)


def sensor_page(service: Service, span: Span) -> SensorRecords:
    """Records of this host and bundled ones."""
    found, following = _page(known_sensors(service.settings.home), span)
    return SensorRecords(sensors=found, next=following)


def kernel_page(service: Service, span: Span) -> KernelReports:
    """Measured kernels of this host and bundled ones."""
    found, following = _page(known_kernels(service.settings.home), span)
    return KernelReports(kernels=found, next=following)


def _page(known: Sequence[Measured], span: Span) -> tuple[tuple[Measured, ...], str | None]:
    """What a page has of all that is known, the newest first, and where the next one begins."""
    placed = {_position(one): one for one in known if span.gpu_model in (None, one.gpu_model)}
    wanted = sorted(
        (
            where
            for where in placed
            if (span.before_us is None or where.started_at_us < span.before_us)
            and (span.after is None or where < span.after)
        ),
        reverse=True,
    )
    taken = wanted[: span.limit]
    following = str(taken[-1]) if len(taken) < len(wanted) else None
    return tuple(placed[where] for where in taken), following


def _position(one: SensorRecord | KernelReport) -> Position:
    try:
        moment_us = us_of(datetime.fromisoformat(one.measured_at))
    except ValueError as error:
        raise StoreError(
            f"a measurement of {one.gpu_uuid} says that it is of {one.measured_at!r}",
            why="that is no moment",
            fix="correct or remove its file, in sensors/ or kernels/ of the home",
        ) from error
    return Position(moment_us, sha256(write(one).encode()).hexdigest()[:32])
