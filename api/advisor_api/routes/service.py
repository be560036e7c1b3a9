"""The service itself: its models, audit log, health and metrics."""

import contextlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException

from advisor.errors import AdvisorError
from advisor.wire.lists import AuditLog, Champion, ModelDetails, ModelList
from advisor_api.http.access import Admin, Reader
from advisor_api.http.errors import ERROR_ANSWERS, may_refuse, not_found
from advisor_api.http.routing import JSON, KNOWN_QUERY, answer, v1_router
from advisor_api.schemas import LimitInQuery, VersionInPath
from advisor_api.service import Audited, ServiceOf, changing
from advisor_models.manifest import read_artefact
from advisor_models.registry import (
    BUNDLED_NAME,
    Registry,
    model_details,
    model_list,
    standing,
)

models = v1_router("models")

_EVALUATION = "evaluation.json"
"""The file of a model that holds what `advisor evaluate` found of it."""


@models.get("/models", response_model=ModelList)
def list_models(_: Reader, service: ServiceOf, limit: LimitInQuery = 100) -> Response:
    """The models of this host, the champion first, and what was promoted when."""
    return answer(model_list(service.registry, limit))


@models.get("/models/{version}", response_model=ModelDetails)
def show_model(
    version: VersionInPath, _: Reader, service: ServiceOf, limit: LimitInQuery = 100
) -> Response:
    """All that is known of one model; `limit` is of its history."""
    return answer(model_details(service.registry, _known(service.registry, version), limit))


@models.get("/models/{version}/evaluation", response_model=dict[str, Any])
def show_evaluation(version: VersionInPath, _: Reader, service: ServiceOf) -> Response:
    """What `advisor evaluate` found of a model that carries it (docs/training.md)."""
    registry = service.registry
    files = read_artefact(registry.folder(_known(registry, version))).files
    if _EVALUATION not in files:
        raise not_found(
            f"the model {version} carries no {_EVALUATION}",
            f"Its summary is in GET /v1/models/{version}, under manifest.figures",
        )
    return Response(files[_EVALUATION], media_type=JSON)


@models.post("/models/{version}/promote", response_model=Champion)
def promote_model(
    version: VersionInPath, _: Admin, audited: Audited, service: ServiceOf
) -> Response:
    """Make a model the champion; the next answer is made with it."""
    with changing(service, audited, "model.promote", version):
        known, before = _known(service.registry, version), service.registry.champion()
        service.registry.promote(known)
        return answer(Champion(champion=known, replaced=before))


@models.post("/models/rollback", response_model=Champion, responses=may_refuse(409))
def roll_back_promotion(_: Admin, audited: Audited, service: ServiceOf) -> Response:
    """Go back to the champion that the last promotion replaced."""
    with changing(service, audited, "model.rollback", "the champion"):
        before = service.registry.champion()
        if not standing(service.registry.history()):
            raise HTTPException(409, "no promotion stands. See GET /v1/models.")
        service.registry.rollback()
        return answer(Champion(champion=service.registry.champion(), replaced=before))


def _known(registry: Registry, name: str) -> str:
    """The name of a model; 404 where there is none of that name."""
    if name != BUNDLED_NAME and name not in registry.versions():
        raise not_found(f"there is no model {name}", "See GET /v1/models")
    return name


audit = v1_router("audit")

_LARGEST_NUMBER = 2**63 - 1


@audit.get("/audit", response_model=AuditLog)
def show_audit_log(
    _: Admin,
    service: ServiceOf,
    limit: LimitInQuery = 100,
    before: Annotated[
        int | None, Query(ge=1, le=_LARGEST_NUMBER, description="only entries with a lower number")
    ] = None,
) -> Response:
    """The audit log, the newest first."""
    return answer(AuditLog(entries=tuple(service.state.audit_log(limit, before))))


health = APIRouter(tags=["health"], responses=ERROR_ANSWERS)


@dataclass(frozen=True, slots=True)
class Health:
    """The only answer there is; others are errors."""

    status: Literal["ok"] = "ok"


@health.get("/healthz", response_model=Health)
async def check_alive() -> Response:
    """Whether the process lives."""
    return answer(Health())


@health.get("/readyz", response_model=Health)
async def check_ready(service: ServiceOf) -> Response:
    """Whether the database and the model answer; 503 `not-ready` says which does not."""
    await service.readiness.check()
    return answer(Health())


# Not as a response class: then its errors would be said to be plain text as well.
_TEXT = {"description": "The numbers", "content": {"text/plain": {"schema": {"type": "string"}}}}


@health.get("/metrics", responses={200: _TEXT}, dependencies=[KNOWN_QUERY])
async def show_metrics(_: Reader, service: ServiceOf) -> Response:
    """Numbers of this process in the text format of Prometheus."""
    # Without a model, or without the database, there are still numbers to show.
    with contextlib.suppress(AdvisorError):
        service.metrics.show_model(await service.engine.manifest())
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
