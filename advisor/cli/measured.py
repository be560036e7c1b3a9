"""The measured points that commands learn from: files that were named, or what is bundled."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from advisor.degenerate import with_pair_flags, with_solo_flags
from advisor.errors import InputError
from advisor.flags import WRONG
from advisor.records import PairPoint, SoloPoint
from advisor_data.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.dataset import select
from advisor_data.files import read_points
from advisor_training.pairs import LeftOut

_Kind = TypeVar("_Kind", SoloPoint, PairPoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
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


def read_measured(pairs: Path | None, solo: Path | None, *, with_bundled: bool = False) -> Measured:
    """Pair points and solo points of files; of those not given, the bundled ones.

    Args:
        pairs: File of pair points.
        solo: File of solo points.
        with_bundled: The bundled points as well as those of the files.

    Raises:
        InputError: a file cannot be read, or has points of the other kind.
    """
    of_pairs = read_kind(pairs, PairPoint) if pairs else []
    of_jobs = read_kind(solo, SoloPoint) if solo else []
    if with_bundled or not pairs:
        of_pairs = list(dict.fromkeys([*of_pairs, *bundled_pair_points()]))
    if with_bundled or not solo:
        of_jobs = list(dict.fromkeys([*of_jobs, *bundled_solo_points()]))
    solos = with_solo_flags(of_jobs)
    selection = select(with_pair_flags(of_pairs, solos))
    return Measured(
        pairs=selection.points,
        profiled=_right(solos),
        references=() if solo and not with_bundled else _right(bundled_reference_points()),
        left_out=tuple(
            LeftOut(f"pair points flagged {flag}", count)
            for flag, count in sorted(selection.left_out.items())
        ),
    )


def _right(points: Iterable[SoloPoint]) -> tuple[SoloPoint, ...]:
    return tuple(point for point in points if WRONG.isdisjoint(point.flags))


def read_kind(path: Path, kind: type[_Kind]) -> list[_Kind]:
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
