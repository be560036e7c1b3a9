"""What stores and files know of the two kinds of points, and do on their way in and out."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from advisor.records import PairPoint, Point, SoloPoint
from advisor.rows import P, from_row, to_row

KIND_NAMES: Mapping[type[Point], str] = {SoloPoint: "solo", PairPoint: "pair"}
"""Names of tables and files begin with these."""

IDENTITY: Mapping[type[Point], tuple[str, ...]] = {
    SoloPoint: ("run", "job", "gpu_uuid", "share_percent", "started_at"),
    PairPoint: (
        "run",
        "job_a",
        "job_b",
        "gpu_uuid",
        "mode",
        "share_a_percent",
        "share_b_percent",
        "started_at",
    ),
}
"""Columns that tell two measurements apart; `point_id` is made of them."""


def checked(points: Iterable[Point]) -> list[Point]:
    """The points as they will be read back.

    Raises:
        InputError: a point that could be written but not read, such as one with a negative rate.
    """
    return [from_row(type(point), to_row(point)) for point in points]


def in_order(points: Iterable[P]) -> list[P]:
    """The points by the moment at which they started."""
    return sorted(points, key=lambda p: (datetime.fromisoformat(p.started_at), p.point_id))


def names_of_pair(pair: tuple[str, str] | None) -> dict[str, str | None]:
    """What `job_a` and `job_b` of a pair's points are, in whichever order the names come."""
    job_a, job_b = sorted(pair) if pair else (None, None)
    return {"job_a": job_a, "job_b": job_b}
