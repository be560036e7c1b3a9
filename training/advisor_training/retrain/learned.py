"""Which points a model has learned from, as a file next to it says."""

import json
from datetime import UTC, datetime

from advisor.core.records import Point
from advisor.errors import ModelError
from advisor_models.manifest import Artefact
from advisor_training.retrain.collected import Collected, PointSet

POINTS = "points.json"
"""A file of a model: the ids of its points; its hash is in the manifest, like that of any file."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""Of points whose moment nobody can read."""


def points_file(learned: PointSet) -> bytes:
    """The content of `POINTS`."""
    return json.dumps(sorted(learned.ids), indent=0).encode() + b"\n"


def learned_from(champion: Artefact, collected: Collected, *, is_bundled: bool) -> PointSet:
    """The points of the champion among those that are there.

    A model that `advisor train` made has no list of them: it knows what was measured before it. The
    bundled one knows the bundled points.

    Raises:
        ModelError: the list of its points is no list.
    """
    if POINTS in champion.files:
        ids = _ids(champion.files[POINTS])
        return (collected.own | collected.bundled).where(lambda point: point.point_id in ids)
    if is_bundled:
        return collected.bundled
    made = datetime.fromisoformat(champion.manifest.created_at)
    return collected.candidates.where(lambda point: moment_of(point, made) < made)


def _ids(data: bytes) -> frozenset[str]:
    with ModelError.instead_of(
        (ValueError, TypeError),
        f"{POINTS} of the model in use is not a list of points",
        fix="promote another model: advisor models list",
    ):
        return frozenset(json.loads(data))


def moment_of(point: Point, otherwise: datetime) -> datetime:
    """When a point was measured, with a time zone; otherwise where nobody can read it."""
    try:
        found = datetime.fromisoformat(point.started_at)
    except ValueError:
        return otherwise
    return found if found.tzinfo else found.replace(tzinfo=otherwise.tzinfo)
