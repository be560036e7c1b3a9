"""A queue of jobs on several GPUs, or jobs that run together there."""

from fastapi.responses import Response

from advisor.wire.placement import Placement, SetPlacement
from advisor.wire.requests import PlacementRequest, SetPlacementRequest, check_size
from advisor_api.http.access import Reader
from advisor_api.http.errors import may_refuse
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import DirectRoute, kept_answer
from advisor_api.service.service import ServiceOf

router = v1_router("placements", DirectRoute)


@router.post("/placements", response_model=Placement, responses=may_refuse(409))
async def place_queue(asked: PlacementRequest, _: Reader, service: ServiceOf) -> Response:
    """Plan a queue: which jobs share a GPU, at which split, and when."""
    check_size(asked)
    return kept_answer(await service.engine.place(asked))


@router.post("/placements/sets", response_model=SetPlacement, responses=may_refuse(409))
async def place_sets(asked: SetPlacementRequest, _: Reader, service: ServiceOf) -> Response:
    """Plan jobs that run together from now on: which of them, up to seven, share a GPU."""
    check_size(asked)
    return kept_answer(await service.engine.place(asked))
