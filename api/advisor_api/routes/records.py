"""Measured records: profiles, points, observations, and power of sensors and kernels."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import Query
from fastapi.responses import Response

from advisor.core.records import Observation, PairPoint, Record, SoloPoint
from advisor.errors import InputError, StoreError
from advisor.formats.wire import write
from advisor.predict.profiles import make_profiles
from advisor.validity.points import why_no_profile, with_flags, with_pair_flags, with_solo_flags
from advisor.validity.sensor_record import SensorRecord, SensorRecords
from advisor.wire.answers import ComponentsOfJob, ComponentsOfPair
from advisor.wire.lists import (
    Deleted,
    JobList,
    Observations,
    PairPoints,
    PointsTakenIn,
    ProfilePoints,
    Stored,
    TakenIn,
)
from advisor.wire.power import InputPowerRequest, InputPredictions, KernelReport, KernelReports
from advisor.wire.requests import NAME, RecommendationRequest
from advisor_api import bundled
from advisor_api.http.access import Reader, Writer
from advisor_api.http.errors import may_refuse, not_found
from advisor_api.http.routing import answer, long_answer, v1_router
from advisor_api.schemas import (
    GpuModelInQuery,
    JobInPath,
    JobsInPath,
    LimitInQuery,
    ObservationsRequest,
    PointsRequest,
    SoloPointsRequest,
    SpanOfObservations,
    SpanOfPoints,
)
from advisor_api.service import Audited, Service, ServiceOf, changing
from advisor_data.files import check_import
from advisor_data.known import known_kernels, known_sensors
from advisor_data.lists import Page, Position, Span, page_of, position, us_of


def _profile_page(service: Service, job: str, span: Span) -> ProfilePoints:
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
    found = service.store.page(SoloPoint, [job], span)
    runs = {point.run for point in found.records}
    sweeps = (p for run in runs for p in service.store.solo_points(job=job, run=run))
    flagged = {point.point_id: point for point in with_solo_flags(sweeps)}
    return replace(found, records=[flagged.get(p.point_id, p) for p in found.records])


def _page_together(service: Service, names: Iterable[str], span: Span) -> PairPoints:
    """What was measured of jobs together: here, and what came with advisor."""
    jobs = tuple(sorted(names))
    stored = service.store.page(PairPoint, jobs, span)
    # Flagged by all that is known of their jobs alone.
    alone = [point for job in dict.fromkeys(jobs) for point in service.store.solo_points(job=job)]
    alone += [point for point in bundled.solo_points() if point.job in jobs]
    stored = replace(stored, records=with_pair_flags(stored.records, with_solo_flags(alone)))
    theirs = page_of(bundled.points_together().get(jobs, []), span)
    # The next page begins for both where the first of them ends.
    end = max([page.end for page in (stored, theirs) if page.end], default=None)
    return PairPoints(
        jobs=jobs, stored=_up_to(stored, end), bundled=_up_to(theirs, end), next=_next(end)
    )


def _up_to(page: Page[PairPoint], end: Position | None) -> tuple[PairPoint, ...]:
    return tuple(p for p in page.records if end is None or position(p) >= end)


def observation_page(service: Service, job: str | None, span: Span) -> Observations:
    """What launched jobs really did."""
    page = service.store.observation_page(job, span)
    return Observations(observations=tuple(page.records), next=_next(page.end))


def _next(end: Position | None) -> str | None:
    return None if end is None else str(end)


def _replacement(job: str, points: Sequence[SoloPoint]) -> str:
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


def _take_in_points(service: Service, points: Sequence[Record]) -> PointsTakenIn:
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


profiles = v1_router("profiles")


@profiles.get("/jobs", response_model=JobList)
async def list_jobs(
    _: Reader,
    service: ServiceOf,
    limit: LimitInQuery = 1000,
    after: Annotated[
        str | None, Query(pattern=NAME, description="only jobs whose name comes after this one")
    ] = None,
) -> Response:
    """The jobs that are defined or measured, by name; `limit` counts names."""
    return await long_answer(lambda: JobList(jobs=service.engine.jobs.rows(after or "", limit)))


@profiles.get("/profiles/{job}", response_model=ProfilePoints)
async def list_profile_points(
    job: JobInPath, _: Reader, service: ServiceOf, span: SpanOfPoints
) -> Response:
    """The points of a job alone that recommendations are made from."""
    return await long_answer(lambda: _profile_page(service, job, span))


@profiles.put("/profiles/{job}", response_model=Stored)
def replace_profile(
    job: JobInPath, sent: SoloPointsRequest, _: Writer, audited: Audited, service: ServiceOf
) -> Response:
    """Replace a job's stored points of one GPU model; the next answer is made from the new ones."""
    gpu_model = _replacement(job, sent.points)
    with changing(service, audited, "profile.replace", f"{job} on {gpu_model}"):
        points = audited.signed(sent.points)
        return answer(Stored(stored=service.store.replace_profile(job, gpu_model, points)))


@profiles.delete("/profiles/{job}", response_model=Deleted)
def delete_profile(
    job: JobInPath,
    _: Writer,
    audited: Audited,
    service: ServiceOf,
    gpu_model: GpuModelInQuery = None,
) -> Response:
    """Forget a job's stored points, of one GPU model or of all; bundled points stay."""
    subject = f"{job} on {gpu_model}" if gpu_model else job
    with changing(service, audited, "profile.delete", subject):
        deleted = service.store.delete_profile(job, gpu_model)
        if not deleted:
            raise not_found(f"no points of {subject} are stored", "see GET /v1/jobs")
    return answer(Deleted(deleted=deleted))


@profiles.post("/points", response_model=PointsTakenIn)
def import_points(sent: PointsRequest, _: Writer, audited: Audited, service: ServiceOf) -> Response:
    """Bring in solo and pair points; those that are there already are left as they are."""
    with changing(service, audited, "points.import", f"{len(sent.points)} points"):
        return answer(_take_in_points(service, audited.signed(sent.points)))


@profiles.get("/profiles/{job}/components", response_model=ComponentsOfJob)
async def show_job_components(
    job: JobInPath, _: Reader, service: ServiceOf, gpu_model: GpuModelInQuery = None
) -> Response:
    """What the power of a job alone goes to, at each share."""
    # What works the parts out is imported with the first question: most services are asked none.
    from advisor_power.components import components_by_share

    known = await service.engine.known_power([job], gpu_model)
    return await long_answer(lambda: components_by_share(known))


@profiles.get("/pairs/{a}/{b}/components", response_model=ComponentsOfPair)
async def show_pair_components(
    a: JobInPath, b: JobInPath, _: Reader, service: ServiceOf, gpu_model: GpuModelInQuery = None
) -> Response:
    """What the power of two jobs together goes to at each split, and who lowers the clock."""
    from advisor_power.components import components_by_split

    known = await service.engine.known_power([a, b], gpu_model)
    asked = RecommendationRequest.of(a, b, min_speed=0.0, gpu_model=known.gpu_model)
    decision = await service.engine.decide(asked)

    def told() -> ComponentsOfPair:
        stored = service.store.pair_points(jobs=known.pair_names)
        points = [*stored, *bundled.pair_points().get(known.pair_names, [])]
        return components_by_split(known, decision, points)

    return await long_answer(told)


@profiles.get("/pairs/{a}/{b}/points", response_model=PairPoints)
async def list_pair_points(
    a: JobInPath, b: JobInPath, _: Reader, service: ServiceOf, span: SpanOfPoints
) -> Response:
    """What was measured of two jobs together: here, and what came with advisor."""
    return await long_answer(lambda: _page_together(service, (a, b), span))


@profiles.get("/sets/{jobs}/points", response_model=PairPoints)
async def list_set_points(
    jobs: JobsInPath, _: Reader, service: ServiceOf, span: SpanOfPoints
) -> Response:
    """What was measured of two to seven jobs together: here, and what came with advisor."""
    return await long_answer(lambda: _page_together(service, jobs.split("+"), span))


observations = v1_router("observations")


@observations.post("/observations", response_model=TakenIn)
def add_observations(
    sent: ObservationsRequest, _: Writer, audited: Audited, service: ServiceOf
) -> Response:
    """Keep what launched pairs did; those that are there already are left as they are."""
    subject = f"{len(sent.observations)} observations"
    with audited.of("observations.add", subject):
        return answer(take_in(service, audited.signed(sent.observations), Observation))


@observations.get("/observations", response_model=Observations)
async def list_observations(
    _: Reader,
    service: ServiceOf,
    span: SpanOfObservations,
    job: Annotated[str | None, Query(pattern=NAME, description="only pairs with it")] = None,
) -> Response:
    """What launched pairs did, the newest first."""
    return await long_answer(lambda: observation_page(service, job, span))


power = v1_router("power")

_Page = TypeVar("_Page", SensorRecords, KernelReports)


@power.get("/power/sensors", response_model=SensorRecords)
async def list_power_sensors(_: Reader, service: ServiceOf, span: SpanOfObservations) -> Response:
    """Records of power sensors, the newest first: of this host, and those that are bundled."""
    return await long_answer(
        lambda: _page(SensorRecords, "sensors", known_sensors(service.settings.home), span)
    )


@power.get("/power/kernels", response_model=KernelReports)
async def list_measured_kernels(
    _: Reader, service: ServiceOf, span: SpanOfObservations
) -> Response:
    """Measured kernels, the newest first: of this host, and those that are bundled."""
    return await long_answer(
        lambda: _page(KernelReports, "kernels", known_kernels(service.settings.home), span)
    )


@power.post("/power/input", response_model=InputPredictions, responses=may_refuse(404))
async def predict_input_power(asked: InputPowerRequest, _: Reader, service: ServiceOf) -> Response:
    """What matrix products are expected to draw, by operands as text or by fingerprints."""
    return await long_answer(lambda: _predicted(asked, service.settings.home))


def _predicted(asked: InputPowerRequest, home: Path) -> InputPredictions:
    # Filling and counting bits are imported with the first question: most services are asked none.
    from advisor_power.data.predictor import NoInputModelError, predicted

    try:
        return predicted(asked, home)
    except NoInputModelError as missing:
        # No fault of the service: it answers all else, and a model may be made at any time.
        raise not_found(f"{missing.what}: {missing.why}", missing.fix) from missing


def _page(
    kind: type[_Page], name: str, known: Sequence[SensorRecord | KernelReport], span: Span
) -> _Page:
    """One page of what is known, the newest first, and where the next one begins."""
    placed = {_position(one): one for one in known if span.gpu_model in (None, one.gpu_model)}
    wanted = sorted(
        (
            where
            for where in placed
            if (span.before_us is None or where.started_at_us < span.before_us)
            and (span.after is None or where < span.after)
        ),
        reverse=True,
    )
    taken = wanted[: span.limit]
    following = str(taken[-1]) if len(taken) < len(wanted) else None
    found: Any = {name: tuple(placed[where] for where in taken), "next": following}
    return kind(**found)


def _position(one: SensorRecord | KernelReport) -> Position:
    try:
        moment_us = us_of(datetime.fromisoformat(one.measured_at))
    except ValueError as error:
        raise StoreError(
            f"a measurement of {one.gpu_uuid} says that it is of {one.measured_at!r}",
            why="that is no moment",
            fix="correct or remove its file, in sensors/ or kernels/ of the home",
        ) from error
    return Position(moment_us, sha256(write(one).encode()).hexdigest()[:32])
