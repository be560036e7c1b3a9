"""How cards read their power, what kernels draw, and what data do to it."""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from fastapi.responses import Response

from advisor.errors import StoreError
from advisor.formats.wire import write
from advisor.validity.sensor_record import SensorRecord, SensorRecords
from advisor.wire.input_power import InputPowerRequest, InputPredictions
from advisor.wire.kernel_power import KernelReport, KernelReports
from advisor_api.http.access import Reader
from advisor_api.http.errors import may_refuse, not_found
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import long_answer
from advisor_api.schemas.query import SpanOfObservations
from advisor_api.service.service import Service, ServiceOf
from advisor_data.files.power_records import known_kernels, known_sensors
from advisor_data.store.pages import Position, Span, us_of

router = v1_router("power")

_Measured = TypeVar("_Measured", SensorRecord, KernelReport)


@router.get("/power/sensors", response_model=SensorRecords)
async def list_power_sensors(_: Reader, service: ServiceOf, span: SpanOfObservations) -> Response:
    """Records of power sensors, the newest first: of this host, and those that are bundled."""
    return await long_answer(lambda: _sensors(service, span))


@router.get("/power/kernels", response_model=KernelReports)
async def list_measured_kernels(
    _: Reader, service: ServiceOf, span: SpanOfObservations
) -> Response:
    """Measured kernels, the newest first: of this host, and those that are bundled."""
    return await long_answer(lambda: _kernels(service, span))


@router.post("/power/input", response_model=InputPredictions, responses=may_refuse(404))
async def predict_input_power(asked: InputPowerRequest, _: Reader, service: ServiceOf) -> Response:
    """What matrix products are expected to draw, by operands as text or by fingerprints."""
    return await long_answer(lambda: _predicted(asked, service.settings.home))


def _sensors(service: Service, span: Span) -> SensorRecords:
    found, following = _page(known_sensors(service.settings.home), span)
    return SensorRecords(sensors=found, next=following)


def _kernels(service: Service, span: Span) -> KernelReports:
    found, following = _page(known_kernels(service.settings.home), span)
    return KernelReports(kernels=found, next=following)


def _predicted(asked: InputPowerRequest, home: Path) -> InputPredictions:
    # Filling and counting bits are imported with the first question: most services are asked none.
    from advisor_power.data.predictor import NoInputModelError, predicted

    try:
        return predicted(asked, home)
    except NoInputModelError as missing:
        # No fault of the service: it answers all else, and a model may be made at any time.
        raise not_found(f"{missing.what}: {missing.why}", missing.fix) from missing


def _page(known: Sequence[_Measured], span: Span) -> tuple[tuple[_Measured, ...], str | None]:
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
