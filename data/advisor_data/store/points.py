"""What stores and files know of the kinds of records, and do on their way in and out."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from advisor.core.records import Observation, PairPoint, Record, SoloPoint
from advisor.errors import InputError
from advisor.formats.rows import P, from_row, to_row

KIND_NAMES: Mapping[type[Record], str] = {
    SoloPoint: "solo",
    PairPoint: "pair",
    Observation: "observation",
}
"""Names of files begin with these."""

IDENTITY: Mapping[type[Record], tuple[str, ...]] = {
    SoloPoint: ("run", "job", "gpu_uuid", "share_percent", "started_at", "written_by"),
    PairPoint: (
        "run",
        "jobs.job",
        "gpu_uuid",
        "mode",
        "jobs.share_percent",
        "started_at",
        "written_by",
    ),
    Observation: ("launch_id", "jobs.job", "gpu_uuid", "started_at", "written_by"),
}
"""Columns that tell two measurements apart, `jobs.` those of each job; `point_id` is their hash."""


def checked(points: Iterable[P]) -> list[P]:
    """The points as they will be read back.

    Raises:
        InputError: a point that could be written but not read, such as one with a negative rate.
    """
    return [from_row(type(point), to_row(point)) for point in points]


def in_order(points: Iterable[P]) -> list[P]:
    """The points by the moment at which they started."""
    return sorted(points, key=lambda p: (datetime.fromisoformat(p.started_at), p.point_id))


def only_of(job: str, gpu_model: str | None, points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points of a job's new profile, as they will be read back, each once.

    Raises:
        InputError: there are none, one is of another job or GPU model, or could not be read back.
    """
    found = {point.point_id: point for point in checked(points)}
    for point in found.values():
        if point.job != job or gpu_model not in (None, point.gpu_model):
            raise InputError(
                f"a point of {point.job} on {point.gpu_model} is not part of the profile of {job}"
                + (f" on {gpu_model}" if gpu_model else ""),
                fix="give points of that job and GPU model only",
            )
    if not found:
        raise InputError(
            f"a profile of {job} without points", fix="delete the profile, or give its points"
        )
    return list(found.values())
