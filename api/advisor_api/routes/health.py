"""Whether the process lives, whether it can answer, and its numbers."""

import contextlib
from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from advisor.errors import AdvisorError
from advisor_api.http.access import Reader
from advisor_api.http.errors import ERROR_ANSWERS
from advisor_api.http.routing import KNOWN_QUERY
from advisor_api.http.sent import answer
from advisor_api.service.service import ServiceOf

router = APIRouter(tags=["health"], responses=ERROR_ANSWERS)


@dataclass(frozen=True, slots=True)
class Health:
    """The only answer there is; others are errors."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", response_model=Health)
async def check_alive() -> Response:
    """Whether the process lives."""
    return answer(Health())


@router.get("/readyz", response_model=Health)
async def check_ready(service: ServiceOf) -> Response:
    """Whether the database and the model answer; 503 `not-ready` says which does not."""
    await service.readiness.check()
    return answer(Health())


# Not as a response class: then its errors would be said to be plain text as well.
_TEXT = {"description": "The numbers", "content": {"text/plain": {"schema": {"type": "string"}}}}


@router.get("/metrics", responses={200: _TEXT}, dependencies=[KNOWN_QUERY])
async def show_metrics(_: Reader, service: ServiceOf) -> Response:
    """Numbers of this process in the text format of Prometheus."""
    # Without a model, or without the database, there are still numbers to show.
    with contextlib.suppress(AdvisorError):
        service.metrics.show_model(await service.engine.manifest())
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
