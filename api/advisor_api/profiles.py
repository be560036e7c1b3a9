"""Profiles, points and observations as the service reads and changes them; everything may block."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.exceptions import HTTPException

from advisor.degenerate import with_flags, with_pair_flags, with_solo_flags
from advisor.errors import InputError
from advisor.observations import Observation, Record
from advisor.profiles import make_profiles
from advisor.records import PairPoint, SoloPoint
from advisor.rows import P, to_row
from advisor.usable import why_no_profile
from advisor_api import bundled
from advisor_api.audit import Audit
from advisor_api.service import Service
from advisor_data.imports import check_import


@contextmanager
def changing(service: Service, audited: Audit, action: str, subject: str) -> Generator[None]:
    """Write something that answers depend on: it is in the audit log, and counts at once.

    Raises:
        StoreError: it could not be recorded; nothing was done.
    """
    with audited.of(action, subject):
        try:
            yield
        finally:
            service.engine.changed()


def profile_of(service: Service, job: str) -> tuple[str, list[SoloPoint]]:
    """Where a job's profile comes from, and its points; of a job without one, what there is.

    Raises:
        HTTPException: 404, nothing was measured of it.
    """
    stored = with_solo_flags(service.store.solo_points(job=job))
    theirs = [point for point in bundled.solo_points() if point.job == job]
    if not (stored or theirs):
        raise not_found(f"nothing was measured of a job {job}", "see GET /v1/jobs")
    own = stored and (not theirs or make_profiles(stored))
    return ("stored", stored) if own else ("bundled", theirs)


def stored_pair(service: Service, job_a: str, job_b: str) -> list[PairPoint]:
    """The stored points of a pair, flagged by all that is known of its jobs alone."""
    jobs = {job_a, job_b}
    stored = [point for job in jobs for point in service.store.solo_points(job=job)]
    alone = [*stored, *(point for point in bundled.solo_points() if point.job in jobs)]
    pairs = service.store.pair_points(pair=(job_a, job_b))
    return with_pair_flags(pairs, with_solo_flags(alone))


def page(
    points: Iterable[P], gpu_model: str | None, limit: int, before: datetime | None
) -> list[dict[str, Any]]:
    """Rows, the newest first; those of one moment stay together, so a page may be longer.

    Args:
        points: All there are.
        gpu_model: Only those of this GPU model.
        limit: So many, and those that started with the last of them.
        before: Only those that started before.
    """
    moments = [(datetime.fromisoformat(p.started_at), p) for p in points]
    wanted = [
        (moment, point)
        for moment, point in moments
        if (gpu_model is None or point.gpu_model == gpu_model)
        and (before is None or moment < before)
    ]
    wanted.sort(key=lambda item: item[0], reverse=True)
    last = wanted[limit - 1][0] if len(wanted) > limit else None
    return [to_row(point) for moment, point in wanted if last is None or moment >= last]


def moment_of(before: datetime | None) -> datetime | None:
    """The moment that a page ends at; one without a zone is in UTC."""
    if before is not None and before.tzinfo is None:
        return before.replace(tzinfo=UTC)
    return before


def replacement(job: str, points: Sequence[SoloPoint]) -> str:
    """The GPU model of the points that are to become a job's profile.

    Raises:
        InputError: points of another job or of several GPU models, or points that make no profile.
    """
    if strangers := sorted({p.job for p in points} - {job}):
        raise InputError(
            f"a point is of {strangers[0]}", why=f"the profile is of {job}", fix="correct one"
        )
    models = sorted({p.gpu_model for p in points})
    if len(models) > 1:
        raise InputError(
            f"the points are of {' and '.join(models[:5])}",
            why="the profile of one GPU model is replaced at a time",
            fix="send them one after the other",
        )
    check_import(points)
    if why := why_no_profile(points):
        raise InputError(
            f"these points make no profile of {job}",
            why=f"{why}; it needs 100 % and one smaller share at least",
            fix="send the points of the whole sweep",
        )
    return models[0]


def take_in(service: Service, records: Sequence[Record], kind: type[Record]) -> dict[str, int]:
    """Keep the records of one kind; those that are there already are left as they are."""
    mine = [record for record in records if isinstance(record, kind)]
    return {"read": len(mine), "new": service.store.add(mine)}


def take_in_points(service: Service, points: Sequence[Record]) -> dict[str, Any]:
    """Keep points of both kinds, and count them.

    Raises:
        InputError: shares that are fractions, or a second unit of the rates of one job.
    """
    known = with_flags(points)
    jobs = {point.job for point in known if isinstance(point, SoloPoint)}
    check_import(known, [p for job in sorted(jobs) for p in service.store.solo_points(job=job)])
    solo, pairs = (take_in(service, known, kind) for kind in (SoloPoint, PairPoint))
    return {
        "read": solo["read"] + pairs["read"],
        "new": solo["new"] + pairs["new"],
        "solo": solo,
        "pairs": pairs,
    }


def observations_of(service: Service, job: str | None) -> list[Observation]:
    """All observations, or those with a job."""
    return [o for o in service.store.observations() if job is None or job in o.pair]


def not_found(what: str, fix: str) -> HTTPException:
    """404 with what is not there, and where to look."""
    return HTTPException(404, f"{what}. {fix}.")
