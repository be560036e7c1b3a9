"""Models: which there are, how good they are, and which of them is used."""

from typing import Any

from fastapi.responses import Response

from advisor.wire.lists import Champion, ModelDetails, ModelList
from advisor_api.http.access import Admin, Reader
from advisor_api.http.routing import v1_router
from advisor_api.schemas.query import LimitInQuery, VersionInPath
from advisor_api.schemas.sending import answer
from advisor_api.service import models
from advisor_api.service.audit import Audited
from advisor_api.service.profiles import changing
from advisor_api.service.service import ServiceOf
from advisor_models.model_list import model_list

router = v1_router("models")


@router.get("/models", response_model=ModelList)
def list_models(_: Reader, service: ServiceOf, limit: LimitInQuery = 100) -> Response:
    """The models of this host, the champion first, and what was promoted when."""
    return answer(model_list(service.registry, limit))


@router.get("/models/{version}", response_model=ModelDetails)
def show(
    version: VersionInPath, _: Reader, service: ServiceOf, limit: LimitInQuery = 100
) -> Response:
    """All that is known of one model; `limit` is of its history."""
    return answer(models.details(service.registry, version, limit))


@router.get("/models/{version}/evaluation", response_model=dict[str, Any])
def evaluation(version: VersionInPath, _: Reader, service: ServiceOf) -> Response:
    """What `advisor evaluate` found of a model that carries it (docs/training.md)."""
    text = models.evaluation_of(service.registry, version)
    return Response(text, media_type="application/json")


@router.post("/models/{version}/promote", response_model=Champion)
def promote(version: VersionInPath, _: Admin, audited: Audited, service: ServiceOf) -> Response:
    """Make a model the champion; the next answer is made with it."""
    with changing(service, audited, "model.promote", version):
        return answer(models.promote(service.registry, version))


@router.post("/models/rollback", response_model=Champion)
def roll_back(_: Admin, audited: Audited, service: ServiceOf) -> Response:
    """Go back to the champion that the last promotion replaced."""
    with changing(service, audited, "model.rollback", "the champion"):
        return answer(models.roll_back(service.registry))
