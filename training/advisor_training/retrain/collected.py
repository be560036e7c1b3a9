"""The points that a run of retraining can learn from: this site's own, and the bundled ones.

The site's own are what was measured there, and what its launches teach. Which of them a model has
learned from a file next to it says.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from advisor.core.records import Observation, PairPoint, Point, SoloPoint
from advisor.errors import ModelError
from advisor_data import Store
from advisor_data.bundled import bundled_pair_points, bundled_reference_points, bundled_solo_points
from advisor_models.manifest import Artefact
from advisor_training.dataset.observed import Teaching, profiles_that_lack, taught_here
from advisor_training.dataset.pairs import LeftOut
from advisor_training.dataset.rows import Rows

MeasurementKey: TypeAlias = tuple[str, ...]
"""Both jobs, GPU model, card and run."""


POINTS = "points.json"
"""A file of a model: the ids of its points; its hash is in the manifest, like that of any file."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)
"""Of points whose moment nobody can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSet:
    """Points of all kinds.

    Attributes:
        profiled: Jobs alone at all shares.
        references: Jobs alone on the whole GPU in the runs of the pairs, where those are others.
    """

    pairs: tuple[PairPoint, ...] = ()
    profiled: tuple[SoloPoint, ...] = ()
    references: tuple[SoloPoint, ...] = ()

    def __iter__(self) -> Iterator[Point]:
        yield from self.pairs
        yield from self.profiled
        yield from self.references

    def __or__(self, more: "PointSet") -> "PointSet":
        """The points of both, each once."""
        return PointSet(
            pairs=tuple(dict.fromkeys((*self.pairs, *more.pairs))),
            profiled=tuple(dict.fromkeys((*self.profiled, *more.profiled))),
            references=tuple(dict.fromkeys((*self.references, *more.references))),
        )

    def where(self, wanted: Callable[[Point], bool]) -> "PointSet":
        """Those points of each kind that are wanted."""
        return PointSet(
            pairs=tuple(filter(wanted, self.pairs)),
            profiled=tuple(filter(wanted, self.profiled)),
            references=tuple(filter(wanted, self.references)),
        )

    @property
    def ids(self) -> frozenset[str]:
        """`point_id` of every point of all kinds."""
        return frozenset(point.point_id for point in self)


def measurements(rows: Rows) -> list[MeasurementKey]:
    """Which measurement each row is of."""
    names = zip(rows.job_a, rows.job_b, rows.gpu_model, rows.card, rows.run, strict=True)
    return [tuple(map(str, name)) for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What there is to learn from.

    Attributes:
        own: Measured at this site, or observed there in launches.
        bundled: What the model of the package was learned from.
        with_bundled: Whether a challenger learns from the bundled pairs, too.
        launches_left_out: Launches that teach nothing, and why; no point is made of them.
    """

    own: PointSet
    bundled: PointSet
    with_bundled: bool = True
    launches_left_out: tuple[LeftOut, ...] = ()

    @property
    def candidates(self) -> PointSet:
        """What a challenger may learn from."""
        return self.own | (self.bundled if self.with_bundled else self._borrowed)

    @property
    def _borrowed(self) -> PointSet:
        """Bundled profiles of jobs in own pairs that have no profile of their own."""
        own, solos = self.own, self.bundled.profiled
        return PointSet(profiled=tuple(profiles_that_lack(own.pairs, own.profiled, solos)))


def collect(
    store: Store | None, home: Path, *, with_bundled: bool = True, with_launches: bool = True
) -> Collected:
    """All points of a store, those that its launches make if they teach, and the bundled ones.

    Without a store nothing was measured here. `home` is where this host keeps its checks of counts.

    Raises:
        StoreError: the store or a check of counts cannot be read.
    """
    bundled = bundled_points()
    if store is None:
        return Collected(own=PointSet(), bundled=bundled, with_bundled=with_bundled)
    measured = PointSet(pairs=tuple(store.pair_points()), profiled=tuple(store.solo_points()))
    seen = store.observations() if with_launches else []
    taught = _taught(seen, measured, bundled, home)
    return Collected(
        own=measured | PointSet(pairs=taught.points, references=taught.references),
        bundled=bundled,
        with_bundled=with_bundled,
        launches_left_out=taught.left_out,
    )


def _taught(
    seen: Sequence[Observation], measured: PointSet, bundled: PointSet, home: Path
) -> Teaching:
    borrowed = profiles_that_lack(seen, measured.profiled, bundled.profiled)
    return taught_here(seen, [*measured.profiled, *borrowed], home)


def bundled_points() -> PointSet:
    """The points that come with the package.

    Raises:
        StoreError: the installation lacks a file of them.
    """
    return PointSet(
        pairs=tuple(bundled_pair_points()),
        profiled=tuple(bundled_solo_points()),
        references=tuple(bundled_reference_points()),
    )


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
