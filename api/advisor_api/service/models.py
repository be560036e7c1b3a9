"""Models as the service shows and changes them; everything may block."""

from starlette.exceptions import HTTPException

from advisor.wire.lists import Champion, ModelDetails
from advisor_api.service.profiles import not_found
from advisor_models.history import standing
from advisor_models.manifest import read_artefact
from advisor_models.model_list import BUNDLED, change_of_champion, key_of, model_details
from advisor_models.registry import Registry

EVALUATION = "evaluation.json"
"""The file of a model that holds what `advisor evaluate` found of it."""


def details(registry: Registry, name: str, limit: int) -> ModelDetails:
    """All that is known of one model.

    Raises:
        HTTPException: 404, there is none of that name.
        ModelError: it is damaged, or the history cannot be read.
    """
    return model_details(registry, known_key(registry, name), limit)


def evaluation_of(registry: Registry, name: str) -> bytes:
    """What was found of a model on jobs that it had not seen, as JSON.

    Raises:
        HTTPException: 404, there is no such model, or it carries no evaluation.
        ModelError: it is damaged.
    """
    files = read_artefact(registry.folder(known_key(registry, name))).files
    if EVALUATION not in files:
        raise not_found(
            f"the model {name} carries no {EVALUATION}",
            f"Its summary is in GET /v1/models/{name}, under manifest.figures",
        )
    return files[EVALUATION]


def promote(registry: Registry, name: str) -> Champion:
    """Make a model the champion.

    Raises:
        HTTPException: 404, there is none of that name.
        ModelError: it cannot be used.
    """
    key = known_key(registry, name)
    before = registry.champion()
    registry.promote(key)
    return change_of_champion(key, before)


def roll_back(registry: Registry) -> Champion:
    """Use again what the last promotion replaced.

    Raises:
        HTTPException: 409, no promotion stands.
        ModelError: what it replaced cannot be used.
    """
    before = registry.champion()
    if not standing(registry.history()):
        raise HTTPException(409, "no promotion stands. See GET /v1/models.")
    registry.rollback()
    return change_of_champion(registry.champion(), before)


def known_key(registry: Registry, name: str) -> str | None:
    """What the registry calls a model.

    Raises:
        HTTPException: 404, there is none of that name.
    """
    if name != BUNDLED and name not in registry.versions():
        raise not_found(f"there is no model {name}", "See GET /v1/models")
    return key_of(name)
