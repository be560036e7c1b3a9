"""What every store does with points on their way in and out."""

from collections.abc import Iterable
from datetime import datetime

from advisor.records import SoloPoint
from advisor.rows import solo_from_row, to_row


def checked(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points as they will be read back.

    Raises:
        InputError: a point that could be written but not read, such as one with a negative rate.
    """
    return [solo_from_row(to_row(point)) for point in points]


def in_order(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points by the moment at which they started."""
    return sorted(points, key=lambda p: (datetime.fromisoformat(p.started_at), p.point_id))
