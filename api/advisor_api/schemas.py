"""Parameters of paths, queries and headers, and the records of request bodies."""

import dataclasses
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args

from fastapi import Depends, Header, Path, Query
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

from advisor.core.gpu import MOST_JOBS
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
from advisor.errors import InputError
from advisor.formats.rows import (
    FIRST_JOB,
    JOBS,
    LARGEST_INTEGER,
    SIGNED,
    column_types,
    from_row,
    received,
)
from advisor.wire.requests import LAUNCH_ID, NAME, PRINTABLE, SET_OF_NAMES, VERSION
from advisor_data.lists import Position, Span, us_of

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


SpanOfPoints: TypeAlias = Annotated[Span, Depends(_span_of(1000))]
"""The parameter of a route that lists points."""

SpanOfObservations: TypeAlias = Annotated[Span, Depends(_span_of(100))]
"""The parameter of a route that lists observations."""

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
        made = core_schema.no_info_after_validator_function(record, row)
        return core_schema.no_info_before_validator_function(_of_this_version, made)

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
    doc = (kind.__doc__ or "").splitlines()[0]
    return make(kind.__name__, __base__=_Strict, __doc__=doc, **fields)


def _field(
    kind: type[Record] | type[Part], column: dataclasses.Field[Any], value: type, optional: bool
) -> tuple[Any, FieldInfo]:
    meaning, unit = column.metadata["meaning"], column.metadata["unit"]
    described: Any = {"description": f"{meaning}, {unit}" if unit else meaning}
    hint = _hint(kind, column.name, value)
    if column.default is dataclasses.MISSING:
        return hint, Field(**described)
    default = list(column.default) if value is tuple else column.default
    return (hint | None if optional else hint), Field(default, **described)


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
