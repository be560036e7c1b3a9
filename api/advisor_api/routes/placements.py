"""Which of many jobs share a GPU."""

from fastapi import APIRouter
from fastapi.responses import Response

from advisor_api.access import Reader
from advisor_api.answers import PlacementAnswer
from advisor_api.engine import encoded
from advisor_api.schemas import PlacementRequest
from advisor_api.service import ServiceOf
from advisor_models.placing import to_json

router = APIRouter(prefix="/v1", tags=["placements"])


@router.post("/placements", response_model=PlacementAnswer)
async def place(asked: PlacementRequest, _: Reader, service: ServiceOf) -> Response:
    """Which of many jobs share a GPU, so that all together do the most work per joule?"""
    planned = await service.engine.place(asked.wanted())
    return Response(encoded(to_json(planned)), media_type="application/json")
