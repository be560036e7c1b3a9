"""Profiles, points and observations as the service reads and changes them; everything may block."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace

from advisor.core.observations import Record
from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import InputError
from advisor.predict.profiles import make_profiles
from advisor.validity.degenerate import with_flags, with_pair_flags, with_solo_flags
from advisor.validity.usable import why_no_profile
from advisor.wire.lists import Observations, PairPoints, PointsTakenIn, ProfilePoints, TakenIn
from advisor_api.engine import bundled
from advisor_api.http.errors import not_found
from advisor_api.service.audit import RequestAudit
from advisor_api.service.service import Service
from advisor_data.files import check_import
from advisor_data.lists import Page, Position, Span, page_of, position


@contextmanager
def changing(service: Service, audited: RequestAudit, action: str, subject: str) -> Generator[None]:
    """Write something that answers depend on: it is in the audit log, and counts at once.

    Raises:
        StoreError: it could not be recorded; nothing was done.
    """
    with audited.of(action, subject):
        try:
            yield
        finally:
            service.engine.changed()


def profile_page(service: Service, job: str, span: Span) -> ProfilePoints:
    """The points that a job's profile is made of, and where they come from.

    Of a job without a profile, what there is.

    Raises:
        HTTPException: 404, nothing was measured of it, or nothing on that GPU model.
    """
    theirs = [point for point in bundled.solo_points() if point.job == job]
    stored = service.store.profile_rows(job, job)
    if not (stored or theirs):
        raise not_found(f"nothing was measured of a job {job}", "see GET /v1/jobs")
    # Points of its own that make no profile leave the bundled one in use.
    own = stored and (not theirs or make_profiles(service.store.solo_points(job=job)))
    models = sorted({row.gpu_model for row in (stored if own else theirs)})
    if span.gpu_model is not None and span.gpu_model not in models:
        what = f"{job} was not measured on {span.gpu_model}"
        raise not_found(what, f"It was on {', '.join(models)}")
    found = _flagged_page(service, job, span) if own else page_of(theirs, span)
    return ProfilePoints(
        job=job,
        gpu_models=tuple(models),
        source="stored" if own else "bundled",
        points=tuple(found.records),
        next=_next(found.end),
    )


def _flagged_page(service: Service, job: str, span: Span) -> Page[SoloPoint]:
    """Stored points, flagged by all of their sweeps."""
    found = service.store.solo_page(job, span)
    runs = {point.run for point in found.records}
    sweeps = (p for run in runs for p in service.store.solo_points(job=job, run=run))
    flagged = {point.point_id: point for point in with_solo_flags(sweeps)}
    return replace(found, records=[flagged.get(p.point_id, p) for p in found.records])


def page_together(service: Service, names: Iterable[str], span: Span) -> PairPoints:
    """What was measured of jobs together: here, and what came with advisor."""
    jobs = tuple(sorted(names))
    stored = service.store.pair_page(jobs, span)
    stored = replace(stored, records=_flagged_pairs(service, jobs, stored.records))
    theirs = page_of(bundled.points_together().get(jobs, []), span)
    ends = [page.end for page in (stored, theirs) if page.end]
    # The next page begins for both where the first of them ends.
    end = max(ends, default=None)
    return PairPoints(
        jobs=jobs, stored=_up_to(stored, end), bundled=_up_to(theirs, end), next=_next(end)
    )


def _flagged_pairs(
    service: Service, together: Iterable[str], points: Sequence[PairPoint]
) -> list[PairPoint]:
    """The points, flagged by all that is known of their jobs alone."""
    jobs = set(together)
    stored = [point for job in jobs for point in service.store.solo_points(job=job)]
    alone = [*stored, *(point for point in bundled.solo_points() if point.job in jobs)]
    return with_pair_flags(points, with_solo_flags(alone))


def _up_to(page: Page[PairPoint], end: Position | None) -> tuple[PairPoint, ...]:
    return tuple(p for p in page.records if end is None or position(p) >= end)


def observation_page(service: Service, job: str | None, span: Span) -> Observations:
    """What launched jobs really did."""
    page = service.store.observation_page(job, span)
    return Observations(observations=tuple(page.records), next=_next(page.end))


def _next(end: Position | None) -> str | None:
    return None if end is None else str(end)


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


def take_in(service: Service, records: Sequence[Record], kind: type[Record]) -> TakenIn:
    """Keep the records of one kind; those that are there already are left as they are."""
    mine = [record for record in records if isinstance(record, kind)]
    return TakenIn(read=len(mine), new=service.store.add(mine))


def take_in_points(service: Service, points: Sequence[Record]) -> PointsTakenIn:
    """Keep points of both kinds, and count them.

    Raises:
        InputError: shares that are fractions, or a second unit of the rates of one job.
    """
    known = with_flags(points)
    jobs = {point.job for point in known if isinstance(point, SoloPoint)}
    check_import(known, [row for job in jobs for row in service.store.profile_rows(job, job)])
    solo, pairs = (take_in(service, known, kind) for kind in (SoloPoint, PairPoint))
    both = solo + pairs
    return PointsTakenIn(read=both.read, new=both.new, solo=solo, pairs=pairs)
