"""The models of a host as lists and pages show them, damaged ones too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.errors import ModelError
from advisor.formats.typed_json import to_plain
from advisor_models.manifest import BUNDLED_NAME as BUNDLED
from advisor_models.manifest import Manifest, read_manifest
from advisor_models.registry import Registry


@dataclass(frozen=True, slots=True)
class Listed:
    """A model of this host; `key` is None for the bundled one, the manifest for a damaged one."""

    key: str | None
    is_champion: bool
    manifest: Manifest | None
    error: str | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return self.key or BUNDLED


def key_of(name: str) -> str | None:
    """The version as the registry has it."""
    return None if name == BUNDLED else name


def keys(registry: Registry) -> list[str | None]:
    """The bundled model and all versions."""
    return [None, *registry.versions()]


def list_models(registry: Registry) -> list[Listed]:
    """All models, the bundled one first.

    Raises:
        ModelError: the history cannot be read.
    """
    champion = registry.champion()
    return [_look(registry, key, is_champion=key == champion) for key in keys(registry)]


def model_row(item: Listed) -> dict[str, Any]:
    """What a list says of a model."""
    m = item.manifest
    return {
        **standing_of(item),
        "version": m and m.version,
        "created_at": m and m.created_at,
        "gpu_models": list(m.gpu_models) if m else [],
        "pairs": m and m.dataset.pairs,
        "figures": dict(m.figures) if m else {},
        "error": item.error,
    }


def model_details(item: Listed, manifest: Manifest) -> dict[str, Any]:
    """All that is known of a model."""
    return {**to_plain(manifest), **standing_of(item)}


def change_of_champion(now: str | None, before: str | None) -> Mapping[str, str]:
    """What a promotion or a rollback did."""
    return {"champion": now or BUNDLED, "replaced": before or BUNDLED}


def standing_of(item: Listed) -> dict[str, Any]:
    """What a model is called, and whether it is in use."""
    return {"model": item.name, "champion": item.is_champion}


def _look(registry: Registry, key: str | None, *, is_champion: bool) -> Listed:
    # A damaged model is one line of the list, not its end.
    try:
        return Listed(key, is_champion, read_manifest(registry.folder(key)))
    except ModelError as error:
        return Listed(key, is_champion, None, str(error))
