"""The models of a host as lists and pages show them, damaged ones too."""

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.errors import ModelError
from advisor.formats.wire import to_plain
from advisor.wire.lists import Champion, ChampionChange, ModelDetails, ModelList, ModelRow
from advisor_models.history import HistoryEntry
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


def _model_row(item: Listed) -> ModelRow:
    """What a list says of a model."""
    m = item.manifest
    return ModelRow(
        model=item.name,
        champion=item.is_champion,
        version=m and m.version,
        created_at=m and m.created_at,
        gpu_models=m.gpu_models if m else (),
        pairs=m and m.dataset.pairs,
        figures=m.figures if m else {},
        error=item.error,
    )


def model_list(registry: Registry, limit: int | None = None) -> ModelList:
    """All models, the champion first, then the newest, and what became of them.

    At most so many models and changes as `limit` says; None: all of them.

    Raises:
        ModelError: the history cannot be read.
    """
    rows = [_model_row(item) for item in list_models(registry)]
    rows.sort(key=lambda row: (row.champion, row.created_at or ""), reverse=True)
    return ModelList(models=tuple(rows[:limit]), history=changes(registry.history(), limit))


def model_details(registry: Registry, key: str | None, limit: int | None = None) -> ModelDetails:
    """All that is known of one model; `limit` is of the changes that it had a part in.

    Raises:
        ModelError: it is damaged, or the history cannot be read.
    """
    manifest = read_manifest(registry.folder(key))
    had_part = [c for c in registry.history() if key in (c.version, c.replaced)]
    return ModelDetails(
        model=key or BUNDLED,
        champion=key == registry.champion(),
        manifest=to_plain(manifest),
        history=changes(had_part, limit),
    )


def changes(made: Iterable[HistoryEntry], limit: int | None = None) -> tuple[ChampionChange, ...]:
    """Changes of the champion by the names that people use, the newest first."""
    return tuple(
        ChampionChange(
            at=change.at,
            action=change.action,
            version=change.version or BUNDLED,
            replaced=change.replaced or BUNDLED,
            figures=change.figures,
        )
        for change in list(made)[::-1][:limit]
    )


def change_of_champion(now: str | None, before: str | None) -> Champion:
    """What a promotion or a rollback did."""
    return Champion(champion=now or BUNDLED, replaced=before or BUNDLED)


def _look(registry: Registry, key: str | None, *, is_champion: bool) -> Listed:
    # A damaged model is one line of the list, not its end.
    try:
        return Listed(key, is_champion, read_manifest(registry.folder(key)))
    except ModelError as error:
        return Listed(key, is_champion, None, str(error))
