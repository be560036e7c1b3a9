"""How cards read their power, what kernels draw, and what data do to it."""

from fastapi.responses import Response

from advisor.validity.sensor_list import SensorRecords
from advisor.wire.input_power import InputPowerRequest, InputPredictions
from advisor.wire.kernel_power import KernelReports
from advisor_api.http.access import Reader
from advisor_api.http.routing import v1_router
from advisor_api.schemas.query import SpanOfObservations
from advisor_api.schemas.sending import long_answer
from advisor_api.service import input_power, power
from advisor_api.service.service import ServiceOf

router = v1_router("power")


@router.get("/power/sensors", response_model=SensorRecords)
async def sensors(_: Reader, service: ServiceOf, span: SpanOfObservations) -> Response:
    """Records of power sensors, the newest first: of this host, and those that are bundled."""
    return await long_answer(lambda: power.sensor_page(service, span))


@router.get("/power/kernels", response_model=KernelReports)
async def kernels(_: Reader, service: ServiceOf, span: SpanOfObservations) -> Response:
    """Measured kernels, the newest first: of this host, and those that are bundled."""
    return await long_answer(lambda: power.kernel_page(service, span))


@router.post("/power/input", response_model=InputPredictions)
async def inputs(asked: InputPowerRequest, _: Reader, service: ServiceOf) -> Response:
    """What matrix products are expected to draw, by operands as text or by fingerprints."""
    return await long_answer(lambda: input_power.predict(asked, service.settings.home))
