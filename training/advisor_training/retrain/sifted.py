"""New points through every check: what a challenger learns from, and what it does not."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from advisor.core.flags import DOUBTFUL, WRONG
from advisor.core.records import PairPoint, SoloPoint
from advisor.validity.degenerate import with_pair_flags, with_solo_flags
from advisor_training.retrain.collected import Collected, PointSet
from advisor_training.retrain.plausible import implausible, too_fast, too_many
from advisor_training.retrain.refused import Refused, refuse, without

WRONG_RESULTS = ("wrong", "differ")
"""What a part says of its own results where they are not right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """Points after the checks.

    Attributes:
        accepted: What is learned from, new and known.
        refused: New points that are not; one refusal each.
        new: How many points the champion has not learned from.
    """

    accepted: PointSet
    refused: tuple[Refused, ...]
    new: int


def sift(collected: Collected, learned: PointSet, now: datetime) -> Sifted:
    """Check the points that the champion has not learned from.

    Known points pass the cross-checks again, too, which newer profiles may sharpen; they are not
    counted as refused.
    """
    points, known = collected.candidates, learned.ids
    new = points.where(lambda point: point.point_id not in known)
    refused = list(implausible(new, points.where(lambda p: p.point_id in known), now))
    flagged = with_flags(without(points, refused))
    refused += _doubtful(flagged, known)
    usable = usable_points(flagged)
    fresh = [point for point in usable.pairs if point.point_id not in known]
    refused += too_fast(fresh, usable.profiled)
    gone = {one.point_id for one in refused}
    left = (point for point in fresh if point.point_id not in gone)
    refused += too_many(left, len(learned.pairs))
    return Sifted(accepted=without(usable, refused), refused=tuple(refused), new=len(new.ids))


def with_flags(points: PointSet) -> PointSet:
    """The points with the flags of the cross-checks between them."""
    solos = with_solo_flags(points.profiled)
    return replace(points, profiled=tuple(solos), pairs=tuple(with_pair_flags(points.pairs, solos)))


def usable_points(flagged: PointSet) -> PointSet:
    """What may be learned from, as `advisor train` has it.

    Doubtful profiles stay, since they are taken at shares that have no others.
    """
    return PointSet(
        pairs=tuple(point for point in flagged.pairs if _doubt(point) is None),
        profiled=_right(flagged.profiled),
        references=_right(flagged.references),
    )


def _doubtful(flagged: PointSet, known: frozenset[str]) -> Iterator[Refused]:
    for point in flagged.pairs:
        if point.point_id not in known and (doubt := _doubt(point)):
            yield refuse(point, "flagged", doubt)
    for point in flagged.profiled:
        if point.point_id not in known and (flags := WRONG.intersection(point.flags)):
            yield refuse(point, "flagged", ", ".join(sorted(flags)))


def _doubt(point: PairPoint) -> str | None:
    """The flag of a cross-check, or what a job says of its own results."""
    flag = next((flag for flag in point.flags if flag in DOUBTFUL), None)
    wrong = (part.job for part in point.parts if part.results in WRONG_RESULTS)
    return flag or next((f"results of {job} are not right" for job in wrong), None)


def _right(points: Iterable[SoloPoint]) -> tuple[SoloPoint, ...]:
    return tuple(point for point in points if WRONG.isdisjoint(point.flags))
