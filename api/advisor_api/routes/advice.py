"""Advice: jobs on one GPU, and placements on several."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastapi.responses import Response, StreamingResponse

from advisor.errors import AdvisorError
from advisor.formats.wire import as_answer, read, write
from advisor.wire.answers import BatchAnswer, Gains, ItemError, Recommendation
from advisor.wire.placement import Placement
from advisor.wire.requests import (
    BatchRequest,
    GainsRequest,
    PlacementRequest,
    RecommendationRequest,
    check_size,
)
from advisor_api.engine import Engine
from advisor_api.http.access import Reader
from advisor_api.http.errors import fault_of, may_refuse
from advisor_api.http.routing import JSON, DirectRoute, kept_answer, v1_router
from advisor_api.service import ServiceOf

recommendations = v1_router("recommendations", DirectRoute)


@recommendations.post("/recommendations", response_model=Recommendation)
async def recommend(asked: RecommendationRequest, _: Reader, service: ServiceOf) -> Response:
    """How are one to seven jobs to run: together on one GPU, or on separate ones?"""
    return kept_answer(await service.engine.recommend(asked))


@recommendations.post("/recommendations/batch", response_model=BatchAnswer)
async def recommend_batch(asked: BatchRequest, _: Reader, service: ServiceOf) -> Response:
    """The same for many requests, answered in their order; a wrong request spoils no other."""
    return StreamingResponse(_answers(service.engine, asked.requests), media_type=JSON)


@recommendations.post("/gains", response_model=Gains)
async def list_gains(asked: GainsRequest, _: Reader, service: ServiceOf) -> Response:
    """What does each job of a GPU model gain beside each other one, or beside one of them?"""
    return kept_answer(await service.engine.recommend(asked))


async def _answers(engine: Engine, requests: Sequence[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    """Piece by piece: a thousand answers are many MiB, and others are answered between them."""
    yield as_answer(b'{"answers":[')
    for number, request in enumerate(requests):
        yield (b"," if number else b"") + await _item(engine, request)
        await asyncio.sleep(0)
    yield b"]}"


async def _item(engine: Engine, request: Mapping[str, Any]) -> bytes:
    try:
        asked = read(RecommendationRequest, json.dumps(request), name="the request")
        return b'{"answer":' + await engine.recommend(asked) + b"}"
    except AdvisorError as error:
        fault = fault_of(error)
    return write({"error": ItemError(code=fault.code, message=fault.message)}).encode()


placements = v1_router("placements", DirectRoute)


@placements.post("/placements", response_model=Placement, responses=may_refuse(409))
async def place(asked: PlacementRequest, _: Reader, service: ServiceOf) -> Response:
    """Plan which jobs share a GPU: a queue of work to its end, or jobs that run from now on."""
    check_size(asked)
    return kept_answer(await service.engine.place(asked))
