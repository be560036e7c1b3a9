"""A queue of jobs on several GPUs."""

from fastapi.responses import Response

from advisor.advice.placing import to_json
from advisor_api.engine.long_work import in_thread
from advisor_api.http.access import Reader
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import DirectRoute
from advisor_api.schemas.answers import PlacementAnswer
from advisor_api.schemas.lists import long_json
from advisor_api.schemas.requests import PlacementRequest
from advisor_api.service.service import ServiceOf

router = v1_router("placements", DirectRoute)


@router.post("/placements", response_model=PlacementAnswer)
async def place(asked: PlacementRequest, _: Reader, service: ServiceOf) -> Response:
    """Who shares a GPU with whom, so that a whole queue of jobs takes the least energy?"""
    # A queue of 100,000 jobs takes a while to spell out, before and after it is placed.
    planned = await service.engine.place(await in_thread(asked.wanted))
    return await long_json(lambda: to_json(planned))
