"""What launched pairs really did."""

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from advisor.core.observations import Observation
from advisor.wire.lists import Observations, TakenIn
from advisor.wire.requests import NAME
from advisor_api.http.access import Reader, Writer
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import answer, long_answer
from advisor_api.schemas.query import SpanOfObservations
from advisor_api.schemas.records import ObservationsRequest
from advisor_api.service import profiles
from advisor_api.service.audit import Audited
from advisor_api.service.service import ServiceOf

router = v1_router("observations")


@router.post("/observations", response_model=TakenIn)
def add_observations(
    sent: ObservationsRequest, _: Writer, audited: Audited, service: ServiceOf
) -> Response:
    """Keep what launched pairs did; those that are there already are left as they are."""
    subject = f"{len(sent.observations)} observations"
    with audited.of("observations.add", subject):
        seen = audited.signed(sent.observations)
        return answer(profiles.take_in(service, seen, Observation))


@router.get("/observations", response_model=Observations)
async def list_observations(
    _: Reader,
    service: ServiceOf,
    span: SpanOfObservations,
    job: Annotated[str | None, Query(pattern=NAME, description="only pairs with it")] = None,
) -> Response:
    """What launched pairs did, the newest first."""
    return await long_answer(lambda: profiles.observation_page(service, job, span))
