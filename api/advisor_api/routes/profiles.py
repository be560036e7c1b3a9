"""Jobs and their profiles: what is known, and changing it."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from advisor_api import bundled, profiles
from advisor_api.access import Reader, Writer
from advisor_api.answers import (
    Deleted,
    JobsAnswer,
    PairPointsAnswer,
    PointsTakenIn,
    ProfileAnswer,
    Written,
)
from advisor_api.audit import Audited
from advisor_api.engine import encoded
from advisor_api.query import KNOWN_QUERY
from advisor_api.records import PointsRequest, ProfileRequest
from advisor_api.schemas import NAME, BeforeInQuery, GpuModelInQuery, JobInPath, LimitInQuery
from advisor_api.sent import SentRoute
from advisor_api.service import ServiceOf

router = APIRouter(
    prefix="/v1", tags=["profiles"], dependencies=[KNOWN_QUERY], route_class=SentRoute
)


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
    rows = await service.engine.job_rows()
    names = sorted({row["job"] for row in rows if after is None or row["job"] > after})
    wanted = set(names[:limit])
    return _json({"jobs": [row for row in rows if row["job"] in wanted]})


@router.get("/profiles/{job}", response_model=ProfileAnswer)
def profile(
    job: JobInPath,
    _: Reader,
    service: ServiceOf,
    gpu_model: GpuModelInQuery = None,
    limit: LimitInQuery = 1000,
    before: BeforeInQuery = None,
) -> Response:
    """The points of a job alone that recommendations are made from."""
    source, points = profiles.profile_of(service, job)
    models = sorted({point.gpu_model for point in points})
    if gpu_model is not None and gpu_model not in models:
        raise profiles.not_found(
            f"{job} was not measured on {gpu_model}", f"It was on {', '.join(models)}"
        )
    rows = profiles.page(points, gpu_model, limit, profiles.moment_of(before))
    return _json({"job": job, "gpu_models": models, "source": source, "points": rows})


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
def pair_points(
    a: JobInPath,
    b: JobInPath,
    _: Reader,
    service: ServiceOf,
    gpu_model: GpuModelInQuery = None,
    limit: LimitInQuery = 1000,
    before: BeforeInQuery = None,
) -> Response:
    """What was measured of two jobs together: here, and what came with advisor."""
    first, second = sorted((a, b))
    stored = profiles.stored_pair(service, first, second)
    theirs = bundled.pair_points().get((first, second), [])
    until = profiles.moment_of(before)
    return _json(
        {
            "job_a": first,
            "job_b": second,
            "stored": profiles.page(stored, gpu_model, limit, until),
            "bundled": profiles.page(theirs, gpu_model, limit, until),
        }
    )


def _json(value: Any) -> Response:
    return Response(encoded(value), media_type="application/json")
