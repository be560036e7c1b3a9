"""Models: which there are, how good they are, and which of them is used."""

from typing import Any

from fastapi.responses import Response
from starlette.exceptions import HTTPException

from advisor.wire.lists import Champion, ModelDetails, ModelList
from advisor_api.http.access import Admin, Reader
from advisor_api.http.errors import may_refuse, not_found
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import JSON, answer
from advisor_api.schemas.query import LimitInQuery, VersionInPath
from advisor_api.service.audit import Audited
from advisor_api.service.profiles import changing
from advisor_api.service.service import ServiceOf
from advisor_models.manifest import BUNDLED_NAME as BUNDLED
from advisor_models.manifest import read_artefact
from advisor_models.registry import (
    Registry,
    change_of_champion,
    key_of,
    model_details,
    model_list,
    standing,
)

router = v1_router("models")

_EVALUATION = "evaluation.json"
"""The file of a model that holds what `advisor evaluate` found of it."""


@router.get("/models", response_model=ModelList)
def list_models(_: Reader, service: ServiceOf, limit: LimitInQuery = 100) -> Response:
    """The models of this host, the champion first, and what was promoted when."""
    return answer(model_list(service.registry, limit))


@router.get("/models/{version}", response_model=ModelDetails)
def show_model(
    version: VersionInPath, _: Reader, service: ServiceOf, limit: LimitInQuery = 100
) -> Response:
    """All that is known of one model; `limit` is of its history."""
    return answer(model_details(service.registry, _key(service.registry, version), limit))


@router.get("/models/{version}/evaluation", response_model=dict[str, Any])
def show_evaluation(version: VersionInPath, _: Reader, service: ServiceOf) -> Response:
    """What `advisor evaluate` found of a model that carries it (docs/training.md)."""
    registry = service.registry
    files = read_artefact(registry.folder(_key(registry, version))).files
    if _EVALUATION not in files:
        raise not_found(
            f"the model {version} carries no {_EVALUATION}",
            f"Its summary is in GET /v1/models/{version}, under manifest.figures",
        )
    return Response(files[_EVALUATION], media_type=JSON)


@router.post("/models/{version}/promote", response_model=Champion)
def promote_model(
    version: VersionInPath, _: Admin, audited: Audited, service: ServiceOf
) -> Response:
    """Make a model the champion; the next answer is made with it."""
    with changing(service, audited, "model.promote", version):
        key, before = _key(service.registry, version), service.registry.champion()
        service.registry.promote(key)
        return answer(change_of_champion(key, before))


@router.post("/models/rollback", response_model=Champion, responses=may_refuse(409))
def roll_back_promotion(_: Admin, audited: Audited, service: ServiceOf) -> Response:
    """Go back to the champion that the last promotion replaced."""
    with changing(service, audited, "model.rollback", "the champion"):
        before = service.registry.champion()
        if not standing(service.registry.history()):
            raise HTTPException(409, "no promotion stands. See GET /v1/models.")
        service.registry.rollback()
        return answer(change_of_champion(service.registry.champion(), before))


def _key(registry: Registry, name: str) -> str | None:
    """What the registry calls a model; 404 where there is none of that name."""
    if name != BUNDLED and name not in registry.versions():
        raise not_found(f"there is no model {name}", "See GET /v1/models")
    return key_of(name)
