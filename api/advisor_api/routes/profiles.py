"""Jobs and their profiles: what is known, and changing it."""

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from advisor.wire.bounds import NAME
from advisor.wire.components import ComponentsOfJob, ComponentsOfPair
from advisor.wire.lists import Deleted, JobList, PairPoints, PointsTakenIn, ProfilePoints, Stored
from advisor.wire.requests import RecommendationRequest
from advisor_api.engine import bundled
from advisor_api.http.access import Reader, Writer
from advisor_api.http.errors import not_found
from advisor_api.http.routing import v1_router
from advisor_api.http.sent import answer, long_answer
from advisor_api.schemas.query import (
    GpuModelInQuery,
    JobInPath,
    JobsInPath,
    LimitInQuery,
    SpanOfPoints,
)
from advisor_api.schemas.records import PointsRequest, SoloPointsRequest
from advisor_api.service import profiles
from advisor_api.service.audit import Audited
from advisor_api.service.service import ServiceOf

router = v1_router("profiles")


@router.get("/jobs", response_model=JobList)
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


@router.get("/profiles/{job}", response_model=ProfilePoints)
async def list_profile_points(
    job: JobInPath, _: Reader, service: ServiceOf, span: SpanOfPoints
) -> Response:
    """The points of a job alone that recommendations are made from."""
    return await long_answer(lambda: profiles.profile_page(service, job, span))


@router.put("/profiles/{job}", response_model=Stored)
def replace_profile(
    job: JobInPath, sent: SoloPointsRequest, _: Writer, audited: Audited, service: ServiceOf
) -> Response:
    """Replace a job's stored points of one GPU model; the next answer is made from the new ones."""
    gpu_model = profiles.replacement(job, sent.points)
    with profiles.changing(service, audited, "profile.replace", f"{job} on {gpu_model}"):
        points = audited.signed(sent.points)
        return answer(Stored(stored=service.store.replace_profile(job, gpu_model, points)))


@router.delete("/profiles/{job}", response_model=Deleted)
def delete_profile(
    job: JobInPath,
    _: Writer,
    audited: Audited,
    service: ServiceOf,
    gpu_model: GpuModelInQuery = None,
) -> Response:
    """Forget a job's stored points, of one GPU model or of all; bundled points stay."""
    subject = f"{job} on {gpu_model}" if gpu_model else job
    with profiles.changing(service, audited, "profile.delete", subject):
        deleted = service.store.delete_profile(job, gpu_model)
        if not deleted:
            raise not_found(f"no points of {subject} are stored", "see GET /v1/jobs")
    return answer(Deleted(deleted=deleted))


@router.post("/points", response_model=PointsTakenIn)
def import_points(sent: PointsRequest, _: Writer, audited: Audited, service: ServiceOf) -> Response:
    """Bring in solo and pair points; those that are there already are left as they are."""
    with profiles.changing(service, audited, "points.import", f"{len(sent.points)} points"):
        return answer(profiles.take_in_points(service, audited.signed(sent.points)))


@router.get("/profiles/{job}/components", response_model=ComponentsOfJob)
async def show_job_components(
    job: JobInPath, _: Reader, service: ServiceOf, gpu_model: GpuModelInQuery = None
) -> Response:
    """What the power of a job alone goes to, at each share."""
    # What works the parts out is imported with the first question: most services are asked none.
    from advisor_power.components import components_by_share

    known = await service.engine.known_power([job], gpu_model)
    return await long_answer(lambda: components_by_share(known))


@router.get("/pairs/{a}/{b}/components", response_model=ComponentsOfPair)
async def show_pair_components(
    a: JobInPath, b: JobInPath, _: Reader, service: ServiceOf, gpu_model: GpuModelInQuery = None
) -> Response:
    """What the power of two jobs together goes to at each split, and who lowers the clock."""
    from advisor_power.components import components_by_split

    known = await service.engine.known_power([a, b], gpu_model)
    asked = RecommendationRequest.of(a, b, min_speed=0.0, gpu_model=known.gpu_model)
    given = await service.engine.answer(asked)

    def told() -> ComponentsOfPair:
        stored = service.store.pair_points(jobs=known.pair_names)
        points = [*stored, *bundled.pair_points().get(known.pair_names, [])]
        return components_by_split(known, given.recommendation, points)

    return await long_answer(told)


@router.get("/pairs/{a}/{b}/points", response_model=PairPoints)
async def list_pair_points(
    a: JobInPath, b: JobInPath, _: Reader, service: ServiceOf, span: SpanOfPoints
) -> Response:
    """What was measured of two jobs together: here, and what came with advisor."""
    return await long_answer(lambda: profiles.page_together(service, (a, b), span))


@router.get("/sets/{jobs}/points", response_model=PairPoints)
async def list_set_points(
    jobs: JobsInPath, _: Reader, service: ServiceOf, span: SpanOfPoints
) -> Response:
    """What was measured of two to seven jobs together: here, and what came with advisor."""
    return await long_answer(lambda: profiles.page_together(service, jobs.split("+"), span))
