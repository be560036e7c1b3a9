"""Jobs and their profiles: what is known, and changing it."""

from typing import Annotated, Any

from fastapi import Query
from fastapi.responses import Response

from advisor_api.http.access import Reader, Writer
from advisor_api.http.routing import v1_router
from advisor_api.schemas.answers import (
    Deleted,
    JobsAnswer,
    PairPointsAnswer,
    PointsTakenIn,
    ProfileAnswer,
    Written,
)
from advisor_api.schemas.lists import SpanOfPoints, long_json
from advisor_api.schemas.records import PointsRequest, ProfileRequest
from advisor_api.schemas.requests import NAME, GpuModelInQuery, JobInPath, LimitInQuery
from advisor_api.service import profiles
from advisor_api.service.audit import Audited
from advisor_api.service.service import ServiceOf

router = v1_router("profiles")


@router.get("/jobs", response_model=JobsAnswer)
async def jobs(
    _: Reader,
    service: ServiceOf,
    limit: LimitInQuery = 1000,
    after: Annotated[
        str | None, Query(pattern=NAME, description="only jobs whose name comes after this one")
    ] = None,
) -> Response:
    """The jobs that are defined or measured, by name; `limit` counts names."""
    return await long_json(lambda: {"jobs": service.engine.jobs.rows(after or "", limit)})


@router.get("/profiles/{job}", response_model=ProfileAnswer)
async def profile(job: JobInPath, _: Reader, service: ServiceOf, span: SpanOfPoints) -> Response:
    """The points of a job alone that recommendations are made from."""
    return await long_json(lambda: profiles.profile_page(service, job, span))


@router.put("/profiles/{job}", response_model=Written)
def replace_profile(
    job: JobInPath, sent: ProfileRequest, _: Writer, audited: Audited, service: ServiceOf
) -> dict[str, int]:
    """Replace a job's stored points of one GPU model; the next answer is made from the new ones."""
    gpu_model = profiles.replacement(job, sent.points)
    with profiles.changing(service, audited, "profile.replace", f"{job} on {gpu_model}"):
        return {"stored": service.store.replace_profile(job, gpu_model, sent.points)}


@router.delete("/profiles/{job}", response_model=Deleted)
def delete_profile(
    job: JobInPath,
    _: Writer,
    audited: Audited,
    service: ServiceOf,
    gpu_model: GpuModelInQuery = None,
) -> dict[str, int]:
    """Forget a job's stored points, of one GPU model or of all; bundled points stay."""
    subject = f"{job} on {gpu_model}" if gpu_model else job
    with profiles.changing(service, audited, "profile.delete", subject):
        deleted = service.store.delete_profile(job, gpu_model)
        if not deleted:
            raise profiles.not_found(f"no points of {subject} are stored", "see GET /v1/jobs")
    return {"deleted": deleted}


@router.post("/points", response_model=PointsTakenIn)
def import_points(
    sent: PointsRequest, _: Writer, audited: Audited, service: ServiceOf
) -> dict[str, Any]:
    """Bring in solo and pair points; those that are there already are left as they are."""
    with profiles.changing(service, audited, "points.import", f"{len(sent.points)} points"):
        return profiles.take_in_points(service, sent.points)


@router.get("/pairs/{a}/{b}/points", response_model=PairPointsAnswer)
async def pair_points(
    a: JobInPath, b: JobInPath, _: Reader, service: ServiceOf, span: SpanOfPoints
) -> Response:
    """What was measured of two jobs together: here, and what came with advisor."""
    return await long_json(lambda: profiles.pair_page(service, a, b, span))
