"""Every route of version 1: answers, records, launches, models, audit log and health.

Before them stand the parameters of paths, queries and headers, and the records of request bodies.
"""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    Tag,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema
from starlette.exceptions import HTTPException

from advisor.core.gpu import MOST_JOBS, named_model
from advisor.core.job import Verdict
from advisor.core.records import (
    OBSERVATION_WORDS,
    PARTS,
    Observation,
    PairPoint,
    Part,
    Record,
    SoloPoint,
)
from advisor.errors import AdvisorError, InputError, StoreError
from advisor.formats.rows import (
    FIRST_JOB,
    JOBS,
    LARGEST_INTEGER,
    SIGNED,
    column_types,
    from_row,
    received,
)
from advisor.formats.wire import as_answer, read, write
from advisor.launch.folder import LaunchList, Overview
from advisor.launch.spec import JobStatus, LaunchSpec, LaunchStatus
from advisor.predict.profiles import make_profiles
from advisor.validity.points import why_no_profile, with_flags, with_pair_flags, with_solo_flags
from advisor.validity.sensor_record import SensorRecord, SensorRecords
from advisor.wire.answers import (
    AuditLog,
    BatchAnswer,
    Champion,
    ComponentsOfJob,
    Deleted,
    Gains,
    ItemError,
    JobList,
    ModelDetails,
    ModelList,
    Observations,
    PairPoints,
    Placement,
    PointsTakenIn,
    ProfilePoints,
    Recommendation,
    Stored,
    TakenIn,
)
from advisor.wire.power import InputPowerRequest, InputPredictions, KernelReport, KernelReports
from advisor.wire.requests import (
    LAUNCH_ID,
    NAME,
    PRINTABLE,
    SET_OF_NAMES,
    VERSION,
    BatchRequest,
    GainsRequest,
    LaunchRequest,
    PlacementRequest,
    RecommendationRequest,
)
from advisor_api import bundled
from advisor_api.engine import Engine
from advisor_api.http.access import Admin, Launcher, Reader, Writer
from advisor_api.http.routing import (
    CHECKED_QUERY,
    ERROR_ANSWERS,
    JSON,
    DirectRoute,
    answer,
    fault_of,
    kept_answer,
    long_answer,
    may_refuse,
    not_found,
    v1_router,
)
from advisor_api.launches import launching
from advisor_api.launches.launching import Board
from advisor_api.service import Audited, Service, ServiceOf, changing
from advisor_data.bundled import all_kernels, all_sensors
from advisor_data.files import check_import
from advisor_data.lists import Page, Position, Span, page_of, position, us_of
from advisor_models.registry import (
    BUNDLED_NAME,
    Registry,
    model_details,
    model_list,
    read_artefact,
    standing,
)

JobInPath: TypeAlias = Annotated[str, Path(pattern=NAME, description="name of a job")]
JobsInPath: TypeAlias = Annotated[
    str,
    Path(
        pattern=SET_OF_NAMES,
        description="names of two to seven jobs, such as a+a+b: copies so often as they run",
    ),
]
VersionInPath: TypeAlias = Annotated[
    str, Path(pattern=VERSION, description="version of a model, or `bundled`")
]
GpuModelInQuery: TypeAlias = Annotated[
    str | None, Query(pattern=PRINTABLE, description="only this GPU model")
]
LimitInQuery: TypeAlias = Annotated[
    int, Query(ge=1, le=1000, description="most entries in the answer")
]


def _moment(text: Any) -> Any:
    # Not pydantic's own reading, which takes a bare number for seconds since 1970.
    return datetime.fromisoformat(text) if isinstance(text, str) else text


BeforeInQuery: TypeAlias = Annotated[
    datetime | None,
    BeforeValidator(_moment),
    Query(description="only those that started before this moment; without a zone it is UTC"),
]
LaunchInPath: TypeAlias = Annotated[str, Path(pattern=LAUNCH_ID, description="id of a launch")]
JoinInPath: TypeAlias = Annotated[
    str, Path(pattern=r"^[0-9a-f]{16}$", description="`join_id` of a job that was to join")
]
LaunchInQuery: TypeAlias = Annotated[
    str | None, Query(pattern=LAUNCH_ID, description="only launches before this one")
]
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,200}$",
        description="the same key with the same body starts a thing once, however often sent",
    ),
]
ActiveInQuery: TypeAlias = Annotated[bool, Query(description="only launches that are not over")]


def _span_of(usual: int) -> Callable[..., Awaitable[Span]]:
    """What reads a page's parameters, with its usual number of entries."""

    async def span(
        gpu_model: GpuModelInQuery = None,
        limit: LimitInQuery = usual,
        before: BeforeInQuery = None,
        cursor: Annotated[
            str | None,
            Query(
                pattern=r"^-?[0-9]{1,18}\.[0-9a-f]{32}$", description="`next` of the page before"
            ),
        ] = None,
    ) -> Span:
        return Span(
            limit=limit,
            gpu_model=gpu_model,
            before_us=None if before is None else us_of(before),
            after=None if cursor is None else Position.parse(cursor),
        )

    return span


# The parameter of a route that lists points.
_SpanOfPoints: TypeAlias = Annotated[Span, Depends(_span_of(1000))]

# The parameter of a route that lists observations.
_SpanOfObservations: TypeAlias = Annotated[Span, Depends(_span_of(100))]

# Records of one request, about what the longest body holds.
_MOST_POINTS = 1000

# A line of text; advisor.formats.rows refuses what else cannot be printed, which no pattern can
# say.
_LINE = r"^[^\u0000-\u001f\u007f-\u00a0\u00ad\u2028\u2029]+$"

_MOST_COLUMNS = 100


class _Strict(BaseModel):
    """Takes what it names, of the type that it names, and nothing else."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


def _as(kind: type[Record]) -> GetPydanticSchema:
    """Makes a record of an object that has its columns."""
    columns = _columns(kind)

    def record(row: BaseModel) -> Record:
        try:
            return received(from_row(kind, row.model_dump(exclude_none=True)))
        except InputError as error:
            raise ValueError(str(error)) from error

    def schema(_source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        row = handler.generate_schema(columns)
        return core_schema.no_info_before_validator_function(
            _of_this_version, core_schema.no_info_after_validator_function(record, row)
        )

    return GetPydanticSchema(schema)


def _of_this_version(row: Any) -> Any:
    """Each unknown column would be a fault of its own."""
    if isinstance(row, dict) and len(cast("dict[Any, Any]", row)) > _MOST_COLUMNS:
        raise ValueError(f"it has more than {_MOST_COLUMNS} columns")
    if isinstance(row, dict) and FIRST_JOB in row:
        raise ValueError(
            "columns such as job_1 and share_1_percent are those of flat files: write "
            '"jobs": [{"job": ..., "share_percent": ...}, ...], one object for each job'
        )
    return cast("Any", row)


def _columns(kind: type[Record] | type[Part]) -> type[BaseModel]:
    # The two bundles of keyword arguments are made from data, which no checker can follow.
    make = cast("Any", create_model)
    columns = column_types(kind)
    fields: dict[str, Any] = {
        field.name: _field(kind, field, *columns[field.name])
        for field in dataclasses.fields(kind)
        if field.name in columns
    }
    for part in (part for record, part in PARTS.items() if record is kind):
        jobs: Any = Annotated[list[_columns(part)], Field(min_length=2, max_length=MOST_JOBS)]
        fields[JOBS] = jobs, Field(description="one object for each job, in any order")
    return make(
        kind.__name__, __base__=_Strict, __doc__=(kind.__doc__ or "").splitlines()[0], **fields
    )


def _field(
    kind: type[Record] | type[Part], column: dataclasses.Field[Any], value: type, optional: bool
) -> tuple[Any, FieldInfo]:
    meaning, unit = column.metadata["meaning"], column.metadata["unit"]
    described: Any = {"description": f"{meaning}, {unit}" if unit else meaning}
    hint = _hint(kind, column.name, value)
    if column.default is dataclasses.MISSING:
        return hint, Field(**described)
    return (hint | None if optional else hint), Field(
        list(column.default) if value is tuple else column.default, **described
    )


def _hint(kind: type[Record] | type[Part], name: str, value: type) -> Any:
    """The type of a column's values with their bounds; advisor.formats.rows checks what is left."""
    if kind is Observation and name in OBSERVATION_WORDS:
        return Literal[OBSERVATION_WORDS[name]]
    return _OF_COLUMN.get(name) or (float if name.endswith(SIGNED) else _HINTS[value])


_OF_COLUMN: dict[str, Any] = {
    "job": Annotated[str, Field(pattern=NAME)],
    **dict.fromkeys(("gpu_model", "gpu_uuid"), Annotated[str, Field(pattern=PRINTABLE)]),
    "launch_id": Annotated[str, Field(pattern=LAUNCH_ID)],
    "results": Literal[get_args(Verdict)],
    "started_at": Annotated[
        str, Field(min_length=1, max_length=40, json_schema_extra={"format": "date-time"})
    ],
    "share_percent": Annotated[float, Field(gt=0, le=100)],
}

_HINTS: dict[type, Any] = {
    str: Annotated[str, Field(pattern=_LINE, min_length=1, max_length=500)],
    float: Annotated[float, Field(ge=0)],
    int: Annotated[int, Field(ge=0, le=LARGEST_INTEGER)],
    bool: bool,
    tuple: Annotated[
        list[Annotated[str, Field(pattern=r"^[a-z0-9-]{1,100}$")]],
        Field(max_length=32, fail_fast=True),
    ],
}


def _kind(row: object) -> str:
    return "pair" if isinstance(row, dict) and (JOBS in row or FIRST_JOB in row) else "solo"


PointRow: TypeAlias = Annotated[
    Annotated[SoloPoint, _as(SoloPoint), Tag("solo")]
    | Annotated[PairPoint, _as(PairPoint), Tag("pair")],
    Discriminator(_kind),
]


class SoloPointsRequest(_Strict):
    """All solo points that a job is to have on one GPU model."""

    points: Annotated[
        list[Annotated[SoloPoint, _as(SoloPoint)]],
        Field(min_length=2, max_length=_MOST_POINTS, fail_fast=True),
    ]


class PointsRequest(_Strict):
    """Measured points of both kinds; an object with `jobs` is a pair point."""

    points: Annotated[list[PointRow], Field(min_length=1, max_length=_MOST_POINTS, fail_fast=True)]


class ObservationsRequest(_Strict):
    """What launched pairs really did."""

    observations: Annotated[
        list[Annotated[Observation, _as(Observation)]],
        Field(min_length=1, max_length=_MOST_POINTS, fail_fast=True),
    ]


models = v1_router("models")

# The file of a model that holds what `advisor evaluate` found of it.
_EVALUATION = "evaluation.json"


@models.get("/models", response_model=ModelList)
def list_models(_: Reader, service: ServiceOf, limit: LimitInQuery = 100) -> Response:
    """The models of this host, the champion first, and what was promoted when."""
    return answer(model_list(service.registry, limit))


@models.get("/models/{version}", response_model=ModelDetails)
def show_model(
    version: VersionInPath, _: Reader, service: ServiceOf, limit: LimitInQuery = 100
) -> Response:
    """All that is known of one model; `limit` is of its history."""
    return answer(model_details(service.registry, _model_name(service.registry, version), limit))


@models.get("/models/{version}/evaluation", response_model=dict[str, Any])
def show_evaluation(version: VersionInPath, _: Reader, service: ServiceOf) -> Response:
    """What `advisor evaluate` found of a model that carries it (docs/training.md)."""
    registry = service.registry
    files = read_artefact(registry.folder(_model_name(registry, version))).files
    if _EVALUATION not in files:
        raise not_found(
            f"the model {version} carries no {_EVALUATION}",
            f"Its summary is in GET /v1/models/{version}, under manifest.figures",
        )
    return Response(files[_EVALUATION], media_type=JSON)


@models.post("/models/{version}/promote", response_model=Champion)
def promote_model(
    version: VersionInPath, _: Admin, audited: Audited, service: ServiceOf
) -> Response:
    """Make a model the champion; the next answer is made with it."""
    with changing(service, audited, "model.promote", version):
        model, before = _model_name(service.registry, version), service.registry.champion()
        service.registry.promote(model)
        return answer(Champion(champion=model, replaced=before))


@models.post("/models/rollback", response_model=Champion, responses=may_refuse(409))
def roll_back_promotion(_: Admin, audited: Audited, service: ServiceOf) -> Response:
    """Go back to the champion that the last promotion replaced."""
    with changing(service, audited, "model.rollback", "the champion"):
        before = service.registry.champion()
        if not standing(service.registry.history()):
            raise HTTPException(409, "no promotion stands. See GET /v1/models.")
        service.registry.rollback()
        return answer(Champion(champion=service.registry.champion(), replaced=before))


def _model_name(registry: Registry, name: str) -> str:
    """The name of a model; 404 where there is none of that name."""
    if name != BUNDLED_NAME and name not in registry.versions():
        raise not_found(f"there is no model {name}", "See GET /v1/models")
    return name


audit = v1_router("audit")


@audit.get("/audit", response_model=AuditLog)
def show_audit_log(
    _: Admin,
    service: ServiceOf,
    limit: LimitInQuery = 100,
    before: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="only entries with a lower number")
    ] = None,
) -> Response:
    """The audit log, the newest first."""
    return answer(AuditLog(entries=tuple(service.state.audit_log(limit, before))))


health = APIRouter(tags=["health"], responses=ERROR_ANSWERS)


@dataclass(frozen=True, slots=True)
class Health:
    """The only answer there is; others are errors."""

    status: Literal["ok"] = "ok"


@health.get("/healthz", response_model=Health)
async def check_alive() -> Response:
    """Whether the process lives."""
    return answer(Health())


@health.get("/readyz", response_model=Health)
async def check_ready(service: ServiceOf) -> Response:
    """Whether the database and the model answer; 503 `not-ready` says which does not."""
    await service.readiness.check()
    return answer(Health())


# Not as a response class: then its errors would be said to be plain text as well.
_TEXT = {"description": "The numbers", "content": {"text/plain": {"schema": {"type": "string"}}}}


@health.get("/metrics", responses={200: _TEXT}, dependencies=[CHECKED_QUERY])
async def show_metrics(_: Reader, service: ServiceOf) -> Response:
    """Numbers of this process in the text format of Prometheus."""
    # Without a model, or without the database, there are still numbers to show.
    with contextlib.suppress(AdvisorError):
        service.metrics.show_model(await service.engine.manifest())
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


launches = v1_router("launches")


async def _launching(_: Launcher, service: ServiceOf) -> Service:
    if not service.options.launching:
        raise launching.LaunchingOffError(
            "this service launches nothing", fix="start it with: advisor serve --launching"
        )
    return service


# The service, where requests may launch.
_LaunchingService = Annotated[Service, Depends(_launching)]


@launches.post(
    "/launches",
    status_code=202,
    response_model=LaunchStatus,
    responses={
        200: {"model": LaunchSpec, "description": "With dry_run: what would run"},
        202: {"headers": {"Location": {"schema": {"type": "string"}}}},
        **may_refuse(409),
    },
)
def launch_jobs(
    service: _LaunchingService,
    caller: Launcher,
    wanted: LaunchRequest,
    audited: Audited,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Run two to seven jobs together on a GPU of this server; answers before they run."""
    if wanted.dry_run:
        return answer(launching.plan(service, wanted, caller), 200)
    status = launching.launch(service, wanted, caller, idempotency_key, audited)
    return answer(
        launching.visible_launch(status, caller),
        202,
        {"Location": f"/v1/launches/{status.launch_id}"},
    )


@launches.get("/launches", response_model=LaunchList)
def list_launches(
    caller: Reader,
    service: ServiceOf,
    active: ActiveInQuery = False,
    limit: LimitInQuery = 100,
    before: LaunchInQuery = None,
) -> Response:
    """Launches of all hosts of this database, the newest first; those of `advisor launch`, too."""
    statuses = launching.listed(service, active=active, limit=limit, before=before)
    return answer(
        LaunchList(launches=tuple(launching.visible_launch(status, caller) for status in statuses))
    )


@launches.get("/launches/{launch_id}", response_model=LaunchStatus)
def show_launch(launch_id: LaunchInPath, caller: Reader, service: ServiceOf) -> Response:
    """Where a launch stands: rates, power, and what it was expected to do."""
    return answer(launching.visible_launch(launching.find(service, launch_id), caller))


@launches.get("/launches/{launch_id}/history", response_model=LaunchStatus)
def show_history(launch_id: LaunchInPath, caller: Reader, service: ServiceOf) -> Response:
    """The same with what the jobs that run, or ran last, did from their start on."""
    return answer(launching.visible_launch(launching.history(service, launch_id), caller))


@launches.delete(
    "/launches/{launch_id}", status_code=202, response_model=LaunchStatus, responses=may_refuse(409)
)
def stop_launch(
    launch_id: LaunchInPath, service: _LaunchingService, caller: Launcher, audited: Audited
) -> Response:
    """Ask for the end of a launch: its jobs are stopped in the safe order. Again does nothing."""
    return answer(
        launching.visible_launch(launching.stop(service, launch_id, audited), caller), 202
    )


@launches.delete(
    "/launches/{launch_id}/jobs/{job}",
    status_code=202,
    response_model=LaunchStatus,
    responses=may_refuse(409),
)
def end_job(
    launch_id: LaunchInPath,
    job: JobInPath,
    service: _LaunchingService,
    caller: Launcher,
    audited: Audited,
) -> Response:
    """Ask for the end of one job, all copies of it; the others go on. Again does nothing."""
    return answer(
        launching.visible_launch(launching.change(service, launch_id, job, audited), caller), 202
    )


@launches.post(
    "/launches/{launch_id}/resplit",
    status_code=202,
    response_model=LaunchStatus,
    responses=may_refuse(409),
)
def resplit_launch(
    launch_id: LaunchInPath, service: _LaunchingService, caller: Launcher, audited: Audited
) -> Response:
    """Ask for the jobs to start again at the split that `resplit` of the launch offers."""
    return answer(
        launching.visible_launch(launching.change(service, launch_id, None, audited), caller), 202
    )


@launches.post(
    "/launches/{launch_id}/joins",
    status_code=202,
    response_model=JobStatus,
    responses={202: {"headers": {"Location": {"schema": {"type": "string"}}}}, **may_refuse(409)},
)
def join_launch(
    launch_id: LaunchInPath,
    service: _LaunchingService,
    caller: Launcher,
    wanted: LaunchRequest,
    audited: Audited,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Let one more job run beside those of a launch that runs; answers before it does."""
    joining = launching.join(service, launch_id, wanted, caller, idempotency_key, audited)
    return answer(joining, 202, {"Location": f"/v1/launches/{launch_id}/joins/{joining.join_id}"})


@launches.get("/launches/{launch_id}/joins/{join_id}", response_model=JobStatus)
def show_join(
    launch_id: LaunchInPath, join_id: JoinInPath, caller: Reader, service: ServiceOf
) -> Response:
    """How a job does that was to join: `waiting` until its supervisor has answered."""
    return answer(launching.find_join(service, launch_id, join_id, caller))


overview = v1_router("launches", DirectRoute)


async def _request(request: Request) -> Request:
    return request


@overview.get("/overview", response_model=Overview)
async def show_overview(request: Annotated[Request, Depends(_request)], caller: Reader) -> Response:
    """The GPUs and their jobs, launches with their history, and observed savings.

    Its ETag is of all but the moment.
    """
    board: Board = request.app.state.board
    return (await board.answer(caller))(request)


recommendations = v1_router("recommendations", DirectRoute)


@recommendations.post("/recommendations", response_model=Recommendation)
async def recommend(request: RecommendationRequest, _: Reader, service: ServiceOf) -> Response:
    """How are one to seven jobs to run: together on one GPU, or on separate ones?"""
    return kept_answer(await service.engine.recommend(request))


@recommendations.post("/recommendations/batch", response_model=BatchAnswer)
async def recommend_batch(batch: BatchRequest, _: Reader, service: ServiceOf) -> Response:
    """The same for many requests, answered in their order; a wrong request spoils no other."""
    return StreamingResponse(_answers(service.engine, batch.requests), media_type=JSON)


@recommendations.post("/gains", response_model=Gains)
async def list_gains(request: GainsRequest, _: Reader, service: ServiceOf) -> Response:
    """What does each job of a GPU model gain beside each other one, or beside one of them?"""
    return kept_answer(await service.engine.recommend(request))


async def _answers(engine: Engine, requests: Sequence[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    """Piece by piece: a thousand answers are many MiB, and others are answered between them."""
    yield as_answer(b'{"answers":[')
    for number, request in enumerate(requests):
        yield (b"," if number else b"") + await _item(engine, request)
        await asyncio.sleep(0)
    yield b"]}"


async def _item(engine: Engine, request: Mapping[str, Any]) -> bytes:
    try:
        item = read(RecommendationRequest, json.dumps(request), name="the request")
        return b'{"answer":' + await engine.recommend(item) + b"}"
    except AdvisorError as error:
        fault = fault_of(error)
    return write({"error": ItemError(code=fault.code, message=fault.message)}).encode()


placements = v1_router("placements", DirectRoute)


@placements.post("/placements", response_model=Placement, responses=may_refuse(409))
async def place(request: PlacementRequest, _: Reader, service: ServiceOf) -> Response:
    """Plan which jobs share a GPU: a queue of work to its end, or jobs that run from now on."""
    request.check_size()
    return kept_answer(await service.engine.place(request))


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
    has_stored = stored and (not theirs or make_profiles(service.store.solo_points(job=job)))
    models = sorted({row.gpu_model for row in (stored if has_stored else theirs)})
    span = replace(span, gpu_model=span.gpu_model and named_model(span.gpu_model, models))
    if span.gpu_model is not None and span.gpu_model not in models:
        raise not_found(
            f"{job} was not measured on {span.gpu_model}", f"It was on {', '.join(models)}"
        )
    page = _flagged_page(service, job, span) if has_stored else page_of(theirs, span)
    return ProfilePoints(
        job=job,
        gpu_models=tuple(models),
        source="stored" if has_stored else "bundled",
        points=tuple(page.records),
        next=_next(page.end),
    )


def _flagged_page(service: Service, job: str, span: Span) -> Page[SoloPoint]:
    """Stored points, flagged by all of their sweeps."""
    page = service.store.page(SoloPoint, [job], span)
    runs = {point.run for point in page.records}
    sweeps = (p for run in runs for p in service.store.solo_points(job=job, run=run))
    flagged = {point.point_id: point for point in with_solo_flags(sweeps)}
    return replace(page, records=[flagged.get(p.point_id, p) for p in page.records])


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


def _observation_page(service: Service, job: str | None, span: Span) -> Observations:
    page = service.store.observation_page(job, span)
    return Observations(observations=tuple(page.records), next=_next(page.end))


def _next(end: Position | None) -> str | None:
    return None if end is None else str(end)


def _take_in(service: Service, records: Sequence[Record], kind: type[Record]) -> TakenIn:
    """Keep the records of one kind; those that are there already are left as they are."""
    mine = [record for record in records if isinstance(record, kind)]
    return TakenIn(read=len(mine), new=service.store.add(mine))


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
    job: JobInPath, _: Reader, service: ServiceOf, span: _SpanOfPoints
) -> Response:
    """The points of a job alone that recommendations are made from."""
    return await long_answer(lambda: _profile_page(service, job, span))


@profiles.put("/profiles/{job}", response_model=Stored, responses=may_refuse(409))
def replace_profile(
    job: JobInPath, sent: SoloPointsRequest, _: Writer, audited: Audited, service: ServiceOf
) -> Response:
    """Replace a job's stored points of one GPU model; the next answer is made from the new ones.

    Those that others sent only an admin replaces.
    """
    # They are of this job on one GPU model, and make a profile.
    if strangers := sorted({p.job for p in sent.points} - {job}):
        raise InputError(
            f"a point is of {strangers[0]}", why=f"the profile is of {job}", fix="correct one"
        )
    models = sorted({p.gpu_model for p in sent.points})
    if len(models) > 1:
        raise InputError(
            f"the points are of {' and '.join(models[:5])}",
            why="the profile of one GPU model is replaced at a time",
            fix="send them one after the other",
        )
    check_import(sent.points)
    if why := why_no_profile(sent.points):
        raise InputError(
            f"these points make no profile of {job}",
            why=f"{why}; it needs 100 % and one smaller share at least",
            fix="send the points of the whole sweep",
        )
    with changing(service, audited, "profile.replace", f"{job} on {models[0]}"):
        points = audited.signed(sent.points)
        return answer(
            Stored(stored=service.store.replace_profile(job, models[0], points, audited.owner))
        )


@profiles.delete("/profiles/{job}", response_model=Deleted, responses=may_refuse(409))
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
        if not (deleted := service.store.delete_profile(job, gpu_model, audited.owner)):
            raise not_found(f"no points of {subject} are stored", "see GET /v1/jobs")
    return answer(Deleted(deleted=deleted))


@profiles.post("/points", response_model=PointsTakenIn, responses=may_refuse(409))
def import_points(sent: PointsRequest, _: Writer, audited: Audited, service: ServiceOf) -> Response:
    """Bring in solo and pair points; those that are there already are left as they are.

    What was seen of a process takes the place of what was seen of its beginning.
    """
    with changing(service, audited, "points.import", f"{len(sent.points)} points"):
        flagged_points = with_flags(audited.signed(sent.points))
        jobs = {point.job for point in flagged_points if isinstance(point, SoloPoint)}
        check_import(
            flagged_points, [row for job in jobs for row in service.store.profile_rows(job, job)]
        )
        solo, pairs = (_take_in(service, flagged_points, kind) for kind in (SoloPoint, PairPoint))
        both = solo + pairs
        return answer(PointsTakenIn(read=both.read, new=both.new, solo=solo, pairs=pairs))


@profiles.get("/profiles/{job}/components", response_model=ComponentsOfJob)
async def show_job_components(
    job: JobInPath, _: Reader, service: ServiceOf, gpu_model: GpuModelInQuery = None
) -> Response:
    """What the power of a job alone goes to, at each share."""
    return answer(await service.engine.components(job, gpu_model))


@profiles.get("/pairs/{a}/{b}/points", response_model=PairPoints)
async def list_pair_points(
    a: JobInPath, b: JobInPath, _: Reader, service: ServiceOf, span: _SpanOfPoints
) -> Response:
    """What was measured of two jobs together: here, and what came with advisor."""
    return await long_answer(lambda: _page_together(service, (a, b), span))


@profiles.get("/sets/{jobs}/points", response_model=PairPoints)
async def list_set_points(
    jobs: JobsInPath, _: Reader, service: ServiceOf, span: _SpanOfPoints
) -> Response:
    """What was measured of two to seven jobs together: here, and what came with advisor."""
    return await long_answer(lambda: _page_together(service, jobs.split("+"), span))


observations = v1_router("observations")


@observations.post("/observations", response_model=TakenIn, responses=may_refuse(409))
def add_observations(
    sent: ObservationsRequest, _: Writer, audited: Audited, service: ServiceOf
) -> Response:
    """Keep what launched pairs did; those that are there already are left as they are."""
    with audited.of("observations.add", f"{len(sent.observations)} observations"):
        return answer(_take_in(service, audited.signed(sent.observations), Observation))


@observations.get("/observations", response_model=Observations)
async def list_observations(
    _: Reader,
    service: ServiceOf,
    span: _SpanOfObservations,
    job: Annotated[str | None, Query(pattern=NAME, description="only pairs with it")] = None,
) -> Response:
    """What launched pairs did, the newest first."""
    return await long_answer(lambda: _observation_page(service, job, span))


power = v1_router("power")

_Page = TypeVar("_Page", SensorRecords, KernelReports)


@power.get("/power/sensors", response_model=SensorRecords)
async def list_power_sensors(_: Reader, service: ServiceOf, span: _SpanOfObservations) -> Response:
    """Records of power sensors, the newest first: of this host, and those that are bundled."""
    return await long_answer(
        lambda: _page(SensorRecords, "sensors", all_sensors(service.settings.home), span)
    )


@power.get("/power/kernels", response_model=KernelReports)
async def list_measured_kernels(
    _: Reader, service: ServiceOf, span: _SpanOfObservations
) -> Response:
    """Measured kernels, the newest first: of this host, and those that are bundled."""
    return await long_answer(
        lambda: _page(KernelReports, "kernels", all_kernels(service.settings.home), span)
    )


@power.post("/power/input", response_model=InputPredictions, responses=may_refuse(404))
async def predict_input_power(
    request: InputPowerRequest, _: Reader, service: ServiceOf
) -> Response:
    """What matrix products are expected to draw, by operands as text or by fingerprints."""
    return await long_answer(lambda: _predicted(request, service))


def _predicted(request: InputPowerRequest, service: Service) -> InputPredictions:
    # Filling and counting bits are imported with the first question: most services are asked none.
    from advisor_power.data.predictor import NoInputModelError, predicted

    try:
        return predicted(request, service.settings.home)
    except NoInputModelError as missing:
        # No fault of the service: it answers all else, and a model may be made at any time.
        raise not_found(f"{missing.what}: {missing.why}", missing.fix) from missing


def _page(
    kind: type[_Page], name: str, records: Sequence[SensorRecord | KernelReport], span: Span
) -> _Page:
    """One page of what is known, the newest first, and where the next one begins."""
    model = span.gpu_model and named_model(span.gpu_model, (r.gpu_model for r in records))
    placed = {_position(record): record for record in records if model in (None, record.gpu_model)}
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
    content: Any = {name: tuple(placed[where] for where in taken), "next": following}
    return kind(**content)


def _position(record: SensorRecord | KernelReport) -> Position:
    with StoreError.instead_of(
        ValueError,
        f"a measurement of {record.gpu_uuid} says that it is of {record.measured_at!r}",
        why="that is no moment",
        fix="correct or remove its file, in sensors/ or kernels/ of the home",
    ):
        moment_us = us_of(datetime.fromisoformat(record.measured_at))
    return Position(moment_us, sha256(write(record).encode()).hexdigest()[:32])
