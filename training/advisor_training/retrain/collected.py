"""The points that a run of retraining can learn from: this site's own, and the bundled ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from advisor.core.records import PairPoint, Point, SoloPoint
from advisor.predict.profiles import make_profiles
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSet:
    """Points of all kinds.

    Attributes:
        pairs: Two jobs together.
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
        """Some of the points."""
        return PointSet(
            pairs=tuple(filter(wanted, self.pairs)),
            profiled=tuple(filter(wanted, self.profiled)),
            references=tuple(filter(wanted, self.references)),
        )

    @property
    def ids(self) -> frozenset[str]:
        """Identities of the points."""
        return frozenset(point.point_id for point in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What there is to learn from.

    Attributes:
        own: Measured at this site.
        bundled: What the model of the package was learned from.
        with_bundled: Whether a challenger learns from the bundled pairs, too.
    """

    own: PointSet
    bundled: PointSet
    with_bundled: bool = True

    @property
    def candidates(self) -> PointSet:
        """What a challenger may learn from."""
        return self.own | (self.bundled if self.with_bundled else self._borrowed)

    @property
    def _borrowed(self) -> PointSet:
        """Bundled profiles of jobs in own pairs that have no profile of their own."""
        wanted = {(job, point.gpu_model) for point in self.own.pairs for job in point.jobs}
        lacking = wanted - make_profiles(self.own.profiled).keys()
        solos = self.bundled.profiled
        return PointSet(profiled=tuple(s for s in solos if (s.job, s.gpu_model) in lacking))


def collect(store: Store | None, *, with_bundled: bool = True) -> Collected:
    """All points of a store, and the bundled ones.

    What launches observed comes in here, as pair points, once it can be learned from.

    Args:
        store: Of the site; None: nothing was measured here.
        with_bundled: As of `Collected`.

    Raises:
        StoreError: the store cannot be read.
    """
    own = PointSet()
    if store is not None:
        own = PointSet(pairs=tuple(store.pair_points()), profiled=tuple(store.solo_points()))
    return Collected(own=own, bundled=bundled_points(), with_bundled=with_bundled)


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
