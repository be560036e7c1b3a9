"""The measured points that are learned from: files, the store, or what is bundled."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from advisor.core.records import WRONG, PairPoint, SoloPoint
from advisor.core.wording import count_of, listed
from advisor.errors import InputError
from advisor.settings import Settings
from advisor.validity.points import undisputed, with_pair_flags, with_solo_flags
from advisor_data import is_begun, open_store
from advisor_data.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
    select,
)
from advisor_data.files import read_points
from advisor_training.dataset.observed import profiles_that_lack, taught_here
from advisor_training.dataset.pairs import LeftOut

_Kind = TypeVar("_Kind", SoloPoint, PairPoint)


@dataclass(frozen=True, slots=True)
class PointsSource:
    """Where points came from, and how many, before any is left out."""

    name: str
    pair_points: int
    solo_points: int

    def __str__(self) -> str:
        counts = {"pair point": self.pair_points, "solo point": self.solo_points}
        return f"{listed(count_of(n, what) for what, n in counts.items() if n)} {self.name}"


MEASURED_HERE = "that were measured here"
BUNDLED = "that come with advisor"
OF_LAUNCHES = "of launches"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedPoints:
    """Points that passed every cross-check.

    Attributes:
        pairs: Two jobs together.
        profiled: Jobs alone at all shares, doubtful ones too, since `make_profiles` takes them
            where a share has no others; none of which the results are wrong.
        references: Jobs alone on the whole GPU in the runs of the pairs, where they are others.
        left_out: What did not pass.
    """

    pairs: tuple[PairPoint, ...]
    profiled: tuple[SoloPoint, ...]
    references: tuple[SoloPoint, ...]
    left_out: tuple[LeftOut, ...]
    sources: tuple[PointsSource, ...]


def read_own(settings: Settings, *, with_bundled: bool = False) -> CheckedPoints | None:
    """The points of this host's store; None where it has no pairs.

    Jobs that have no profile of their own get the bundled one of that GPU model.

    Raises:
        StoreError: the store cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return None
    with open_store(settings.database_url, settings.home) as store:
        pairs, solos = store.pair_points(), store.solo_points()
    if not pairs:
        return None
    own = PointsSource(MEASURED_HERE, len(pairs), len(solos))
    if with_bundled:
        return with_all_bundled(pairs, solos, own)
    borrowed = profiles_that_lack(pairs, solos, bundled_solo_points())
    sources = (own, PointsSource(BUNDLED, 0, len(borrowed))) if borrowed else (own,)
    return _measured(pairs, [*solos, *borrowed], (), sources)


def read_measured(
    pairs: Path | None, solo: Path | None, *, with_bundled: bool = False
) -> CheckedPoints:
    """Pair points and solo points of files; of those not given, the bundled ones.

    Raises:
        InputError: a file cannot be read, or has points of the other kind.
    """
    of_pairs = _read_kind(pairs, PairPoint) if pairs else []
    of_jobs = _read_kind(solo, SoloPoint) if solo else []
    files = " and ".join(str(file) for file in (pairs, solo) if file)
    source = PointsSource(f"of {files}", len(of_pairs), len(of_jobs))
    if with_bundled or not (pairs or solo):
        return with_all_bundled(of_pairs, of_jobs, source)
    if pairs and solo:
        return _measured(of_pairs, of_jobs, (), (source,))
    more_pairs = [] if pairs else bundled_pair_points()
    more_jobs = [] if solo else bundled_solo_points()
    return _measured(
        [*of_pairs, *more_pairs],
        [*of_jobs, *more_jobs],
        () if solo else bundled_reference_points(),
        (source, PointsSource(BUNDLED, len(more_pairs), len(more_jobs))),
    )


def with_launches(measured: CheckedPoints, settings: Settings) -> CheckedPoints:
    """The same points, and those that launches in this host's store make, where there are any.

    Raises:
        StoreError: the store or a check of counts cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return measured
    with open_store(settings.database_url, settings.home) as store:
        seen = store.observations()
    if not seen:
        return measured
    borrowed = profiles_that_lack(seen, measured.profiled, bundled_solo_points())
    profiled = (*measured.profiled, *right_ones(with_solo_flags(borrowed)))
    taught = taught_here(seen, profiled, settings.home)
    if not taught.points:
        return replace(measured, left_out=(*measured.left_out, *taught.left_out))
    of_launches = _measured(taught.points, profiled, taught.references, ())
    counts = PointsSource(OF_LAUNCHES, len(taught.points), len(taught.references))
    return CheckedPoints(
        pairs=(*measured.pairs, *of_launches.pairs),
        profiled=profiled,
        references=(*measured.references, *of_launches.references),
        left_out=(*measured.left_out, *taught.left_out, *of_launches.left_out),
        sources=(*measured.sources, counts),
    )


def with_all_bundled(
    pairs: Sequence[PairPoint], solos: Sequence[SoloPoint], source: PointsSource
) -> CheckedPoints:
    """These points and all bundled ones, each once."""
    more_pairs, more_solos = bundled_pair_points(), bundled_solo_points()
    bundled = PointsSource(BUNDLED, len(more_pairs), len(more_solos))
    return _measured(
        list(dict.fromkeys([*pairs, *more_pairs])),
        list(dict.fromkeys([*solos, *more_solos])),
        bundled_reference_points(),
        (source, bundled) if pairs or solos else (bundled,),
    )


def _measured(
    pairs: Sequence[PairPoint],
    profiled: Sequence[SoloPoint],
    references: Sequence[SoloPoint],
    sources: tuple[PointsSource, ...],
) -> CheckedPoints:
    solos, together = with_solo_flags(undisputed(profiled)), undisputed(pairs)
    disputed = len(profiled) - len(solos) + len(pairs) - len(together)
    selection = select(with_pair_flags(together, solos))
    return CheckedPoints(
        pairs=selection.points,
        profiled=right_ones(solos),
        references=right_ones(references),
        left_out=(
            *([LeftOut("unlike copies of a window", disputed)] if disputed else ()),
            *(
                LeftOut(f"pair points flagged {flag}", count)
                for flag, count in sorted(selection.left_out.items())
            ),
        ),
        sources=sources,
    )


def right_ones(points: Iterable[SoloPoint]) -> tuple[SoloPoint, ...]:
    """Those of which the results are not wrong."""
    return tuple(point for point in points if WRONG.isdisjoint(point.flags))


def _read_kind(path: Path, kind: type[_Kind]) -> list[_Kind]:
    """The points of a file.

    Raises:
        InputError: it cannot be read, or has points of the other kind.
    """
    points = read_points(path)
    found = [point for point in points if isinstance(point, kind)]
    if len(found) < len(points):
        raise InputError(
            f"{path} has solo points where pair points are wanted, or the other way round",
            fix="give pair points with --pairs and solo points with --solo",
        )
    return found
