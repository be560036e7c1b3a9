"""How jobs do the most on one GPU: one pair or many at once, sets, and copies."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastapi.responses import Response, StreamingResponse

from advisor.errors import AdvisorError
from advisor.formats.wire import as_answer, read, write
from advisor.wire.answers import BatchAnswer, Gains, ItemError, Recommendation, Replicas, SetAdvice
from advisor.wire.requests import (
    BatchRequest,
    GainsRequest,
    RecommendationRequest,
    ReplicasRequest,
    SetRequest,
)
from advisor_api.engine.engine import Engine
from advisor_api.http.access import Reader
from advisor_api.http.errors import fault_of
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import JSON, DirectRoute, kept_answer
from advisor_api.service.service import ServiceOf

router = v1_router("recommendations", DirectRoute)


@router.post("/recommendations", response_model=Recommendation)
async def recommend_pair(asked: RecommendationRequest, _: Reader, service: ServiceOf) -> Response:
    """Which way of running two jobs on one GPU does the most and keeps every limit?"""
    return kept_answer(await service.engine.recommend(asked))


@router.post("/recommendations/batch", response_model=BatchAnswer)
async def recommend_batch(asked: BatchRequest, _: Reader, service: ServiceOf) -> Response:
    """The same for many pairs, answered in their order; a wrong request spoils no other."""
    return StreamingResponse(_answers(service.engine, asked.requests), media_type=JSON)


@router.post("/sets", response_model=SetAdvice)
async def recommend_set(asked: SetRequest, _: Reader, service: ServiceOf) -> Response:
    """How are three to seven jobs to run: together on one GPU, or with a card each?"""
    return kept_answer(await service.engine.recommend_set(asked))


@router.post("/replicas", response_model=Replicas)
async def count_copies(asked: ReplicasRequest, _: Reader, service: ServiceOf) -> Response:
    """How many copies of a job does one GPU hold, and what ends their number?"""
    return kept_answer(await service.engine.replicas(asked))


@router.post("/gains", response_model=Gains)
async def list_gains(asked: GainsRequest, _: Reader, service: ServiceOf) -> Response:
    """What does each job of a GPU model gain beside each other one, or beside one of them?"""
    return kept_answer(await service.engine.gains(asked))


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
