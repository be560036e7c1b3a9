"""Whether the process lives, whether it can answer, and its numbers."""

import contextlib
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel

from advisor.errors import AdvisorError
from advisor_api.http.access import Reader
from advisor_api.http.errors import ERROR_ANSWERS
from advisor_api.http.routing import KNOWN_QUERY
from advisor_api.service.service import ServiceOf

router = APIRouter(tags=["health"], responses=ERROR_ANSWERS)


class Health(BaseModel):
    """The only answer there is; others are errors."""

    status: Literal["ok"] = "ok"


@router.get("/healthz")
async def healthz() -> Health:
    """Whether the process lives."""
    return Health()


@router.get("/readyz")
async def readyz(service: ServiceOf) -> Health:
    """Whether the database and the model answer; 503 `not-ready` says which does not."""
    await service.readiness.check()
    return Health()


# Not as a response class: then its errors would be said to be plain text as well.
_TEXT = {"description": "The numbers", "content": {"text/plain": {"schema": {"type": "string"}}}}


@router.get("/metrics", responses={200: _TEXT}, dependencies=[KNOWN_QUERY])
async def metrics(_: Reader, service: ServiceOf) -> Response:
    """Numbers of this process in the text format of Prometheus."""
    # Without a model, or without the database, there are still numbers to show.
    with contextlib.suppress(AdvisorError):
        service.metrics.show_model(await service.engine.manifest())
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
