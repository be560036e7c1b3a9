"""Which split of one GPU does the most for two jobs: one pair, or many at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError

from advisor.errors import AdvisorError
from advisor_api.access import Caller, Reader
from advisor_api.answers import BatchAnswer, RecommendationAnswer
from advisor_api.engine import Engine, encoded
from advisor_api.errors import fault_of
from advisor_api.schemas import BatchRequest, RecommendationRequest
from advisor_api.service import Service, ServiceOf

JSON = "application/json"

READ = "read"

router = APIRouter(prefix="/v1", tags=["recommendations"])


class _QuickRoute(APIRoute):
    """Calls its endpoint without FastAPI's search for parameters, half of the time of an answer.

    Whatever is no plain success, a body with a fault or a caller who may not read, goes FastAPI's
    way, so that it is told as everywhere.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        usual = super().get_route_handler()

        async def handle(request: Request) -> Response:
            caller = cast("Caller", request.scope["advisor.caller"])
            try:
                asked = RecommendationRequest.model_validate_json(await request.body())
            except ValidationError:
                return await usual(request)
            if READ not in caller.scopes:
                return await usual(request)
            return await recommend(asked, caller, cast("Service", request.app.state.service))

        return handle


async def recommend(asked: RecommendationRequest, _: Reader, service: ServiceOf) -> Response:
    """Which way of running two jobs on one GPU does the most and keeps every limit?"""
    return Response(await service.engine.recommend(asked.asked()), media_type=JSON)


router.add_api_route(
    "/recommendations",
    recommend,
    methods=["POST"],
    response_model=RecommendationAnswer,
    route_class_override=_QuickRoute,
)


@router.post("/recommendations/batch", response_model=BatchAnswer)
async def recommend_many(asked: BatchRequest, _: Reader, service: ServiceOf) -> Response:
    """The same for many pairs, answered in their order; a wrong request spoils no other."""
    return StreamingResponse(_answers(service.engine, asked.requests), media_type=JSON)


async def _answers(engine: Engine, requests: Sequence[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    """Piece by piece: a thousand answers are many MiB, and others are answered between them."""
    yield b'{"answers":['
    for number, request in enumerate(requests):
        yield (b"," if number else b"") + await _item(engine, request)
        await asyncio.sleep(0)
    yield b"]}"


async def _item(engine: Engine, request: Mapping[str, Any]) -> bytes:
    try:
        asked = RecommendationRequest.model_validate(request)
        return b'{"answer":' + await engine.recommend(asked.asked()) + b"}"
    except ValidationError as error:
        fault = fault_of(RequestValidationError(error.errors()))
    except AdvisorError as error:
        fault = fault_of(error)
    return encoded({"error": {"code": fault.code, "message": fault.message}})
