"""Models as the service shows and changes them; everything may block."""

from collections.abc import Iterable
from typing import Any

from starlette.exceptions import HTTPException

from advisor.formats.typed_json import to_plain
from advisor_api.service.profiles import not_found
from advisor_models.history import Change, standing
from advisor_models.manifest import read_artefact
from advisor_models.model_list import BUNDLED, change_of_champion, key_of, list_models, model_row
from advisor_models.registry import Registry

EVALUATION = "evaluation.json"
"""The file of a model that holds what `advisor evaluate` found of it."""


def models_json(registry: Registry, limit: int) -> dict[str, Any]:
    """All models, the newest first, and what became of them.

    Raises:
        ModelError: the history cannot be read.
    """
    rows = [model_row(item) for item in list_models(registry)]
    rows.sort(key=lambda row: (row["champion"], row["created_at"] or ""), reverse=True)
    return {"models": rows[:limit], "history": _changes(registry.history(), limit)}


def model_json(registry: Registry, name: str, limit: int) -> dict[str, Any]:
    """All that is known of one model.

    Raises:
        HTTPException: 404, there is none of that name.
        ModelError: it is damaged, or the history cannot be read.
    """
    key = known_key(registry, name)
    manifest = read_artefact(registry.folder(key)).manifest
    history = [c for c in registry.history() if key in (c.version, c.replaced)]
    return {
        "model": name,
        "champion": key == registry.champion(),
        "manifest": to_plain(manifest),
        "history": _changes(history, limit),
    }


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


def promote(registry: Registry, name: str) -> dict[str, str]:
    """Make a model the champion.

    Raises:
        HTTPException: 404, there is none of that name.
        ModelError: it cannot be used.
    """
    key = known_key(registry, name)
    before = registry.champion()
    registry.promote(key)
    return dict(change_of_champion(key, before))


def roll_back(registry: Registry) -> dict[str, str]:
    """Use again what the last promotion replaced.

    Raises:
        HTTPException: 409, no promotion stands.
        ModelError: what it replaced cannot be used.
    """
    before = registry.champion()
    if not standing(registry.history()):
        raise HTTPException(409, "no promotion stands. See GET /v1/models.")
    registry.rollback()
    return dict(change_of_champion(registry.champion(), before))


def known_key(registry: Registry, name: str) -> str | None:
    """What the registry calls a model.

    Raises:
        HTTPException: 404, there is none of that name.
    """
    if name != BUNDLED and name not in registry.versions():
        raise not_found(f"there is no model {name}", "See GET /v1/models")
    return key_of(name)


def _changes(changes: Iterable[Change], limit: int) -> list[dict[str, Any]]:
    newest = list(changes)[::-1][:limit]
    names = ({"version": c.version or BUNDLED, "replaced": c.replaced or BUNDLED} for c in newest)
    return [{**to_plain(change), **name} for change, name in zip(newest, names, strict=True)]
