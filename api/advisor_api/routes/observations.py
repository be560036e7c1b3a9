"""What launched pairs really did."""

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from advisor.core.observations import Observation
from advisor_api.http.access import Reader, Writer
from advisor_api.http.routing import v1_router
from advisor_api.schemas.answers import ObservationsAnswer, TakenIn
from advisor_api.schemas.lists import SpanOfObservations, long_json
from advisor_api.schemas.records import ObservationsRequest
from advisor_api.schemas.requests import NAME
from advisor_api.service import profiles
from advisor_api.service.audit import Audited
from advisor_api.service.service import ServiceOf

router = v1_router("observations")


@router.post("/observations", response_model=TakenIn)
def add(
    sent: ObservationsRequest, _: Writer, audited: Audited, service: ServiceOf
) -> dict[str, int]:
    """Keep what launched pairs did; those that are there already are left as they are."""
    subject = f"{len(sent.observations)} observations"
    with audited.of("observations.add", subject):
        return profiles.take_in(service, sent.observations, Observation)


@router.get("/observations", response_model=ObservationsAnswer)
async def observations(
    _: Reader,
    service: ServiceOf,
    span: SpanOfObservations,
    job: Annotated[str | None, Query(pattern=NAME, description="only pairs with it")] = None,
) -> Response:
    """What launched pairs did, the newest first."""
    return await long_json(
        lambda: profiles.listed("observations", service.store.observation_page(job, span))
    )
