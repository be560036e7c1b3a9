"""Points that a challenger does not learn from, and why; they stay in the store."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from advisor.core.records import Point, SoloPoint
from advisor_training.retrain.collected import PointSet

_Reason: TypeAlias = Literal[
    "malformed", "duplicate", "disputed", "impossible", "flagged", "too-many"
]
REASONS: tuple[_Reason, ...] = get_args(_Reason)


@dataclass(frozen=True, slots=True)
class Refused:
    """A point, and why it is not learned from.

    Attributes:
        why: With the value that is wrong.
    """

    point_id: str
    reason: _Reason
    why: str


@dataclass(frozen=True, slots=True)
class RefusedPoints:
    """All points that were left out for one reason.

    Attributes:
        example: Why the first of them was.
    """

    reason: _Reason
    points: int
    example: str
    point_ids: tuple[str, ...]


def refuse(point: Point, reason: _Reason, why: str) -> Refused:
    """A refusal that names the point's jobs and moment."""
    jobs = (point.job,) if isinstance(point, SoloPoint) else point.jobs
    return Refused(point.point_id, reason, f"{' + '.join(jobs)} at {point.started_at}: {why}")


def without(points: PointSet, refused: Iterable[Refused]) -> PointSet:
    """The points that were not refused."""
    ids = {one.point_id for one in refused}
    return points.where(lambda point: point.point_id not in ids)


def by_reason(refused: Iterable[Refused]) -> tuple[RefusedPoints, ...]:
    """Counted by reason, in the order of `REASONS`."""
    groups: dict[_Reason, list[Refused]] = {}
    for one in refused:
        groups.setdefault(one.reason, []).append(one)
    return tuple(
        RefusedPoints(
            reason, len(found), found[0].why, tuple(sorted(one.point_id for one in found))
        )
        for reason in REASONS
        if (found := groups.get(reason))
    )
