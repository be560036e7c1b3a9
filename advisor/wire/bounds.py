"""What a value of a request may be, written beside its type, and the names that share a bound."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

from advisor.core.objectives import ADVISED, find_objective
from advisor.errors import InputError

NAME = r"^[a-z0-9][a-z0-9._-]{0,99}$"
"""As in job files."""

SET_OF_NAMES = r"^[a-z0-9][a-z0-9._-]{0,99}(\+[a-z0-9][a-z0-9._-]{0,99}){1,6}$"
"""Two to seven of them (`advisor.core.split.MOST_JOBS`)."""

PRINTABLE = r"^[!-~]([ -~]{0,98}[!-~])?$"

VERSION = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"

LAUNCH_ID = r"^[0-9a-zA-Z-]{1,100}$"

_OF_SCHEMAS = ("ge", "gt", "le", "pattern", "min_length", "max_length")

_FEW = 10
"""Of a longer list only the first fault is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of a value, for `Annotated`: the reader of JSON holds them, and OpenAPI says them.

    The two methods are what pydantic asks of an annotation; nothing is imported for them.

    Attributes:
        ge: Least value; `gt`: the value is above it; `le`: largest value.
        pattern: Regular expression that a text matches.
        min_length: Of a text or a list; `max_length` likewise.
        check: Raises InputError for a text that cannot be meant.
        one_of: The texts that there are, for OpenAPI; `check` refuses others.
        says: What the value means.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    pattern: str | None = None
    min_length: int | None = None
    max_length: int | None = None
    check: Callable[[str], object] | None = None
    one_of: tuple[str, ...] = ()
    says: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        schema = handler(source)
        given = {name: getattr(self, name) for name in _OF_SCHEMAS}
        schema |= {name: value for name, value in given.items() if value is not None}
        if schema["type"] == "tuple" and (self.max_length or 0) > _FEW:
            schema["fail_fast"] = True
        if self.check is None:
            return schema
        check = {"type": "no-info", "function": partial(_checked, self.check)}
        return {"type": "function-after", "schema": schema, "function": check}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        more = {"description": self.says, "enum": list(self.one_of)}
        return {**handler(schema), **{name: value for name, value in more.items() if value}}


def _checked(check: Callable[[str], object], text: str) -> str:
    try:
        check(text)
    except InputError as error:
        # What pydantic takes for a fault of this value, and adds its place to.
        raise ValueError(str(error)) from error
    return text


JobName: TypeAlias = Annotated[str, Bounds(pattern=NAME, says="name of a job")]
GpuModel: TypeAlias = Annotated[
    str, Bounds(pattern=PRINTABLE, says="a GPU model as its driver names it")
]
GpuUuid: TypeAlias = Annotated[
    str,
    Bounds(pattern=r"^[0-9A-Za-z-]{1,64}$", says="UUID of a card, as its driver gives it"),
]
ObjectiveName: TypeAlias = Annotated[
    str, Bounds(check=find_objective, one_of=tuple(ADVISED), says="what is maximised")
]
Speed: TypeAlias = Annotated[
    float, Bounds(ge=0, le=1, says="relative speed: 1 is as alone on the whole GPU, 0 no limit")
]
Percent: TypeAlias = Annotated[
    float, Bounds(gt=0, le=100, says="share of the GPU, percent; 100 is no limit")
]
Gain: TypeAlias = Annotated[
    float, Bounds(ge=0, le=1, says="part that is gained over one after the other")
]
WorkSeconds: TypeAlias = Annotated[
    float, Bounds(ge=0, le=1e9, says="work, in seconds that it takes alone")
]
Milliseconds: TypeAlias = Annotated[float, Bounds(gt=0, le=1e9)]
Watts: TypeAlias = Annotated[float, Bounds(gt=0, le=1e6)]
Cores: TypeAlias = Annotated[float, Bounds(gt=0, le=1e6)]
Mebibytes: TypeAlias = Annotated[float, Bounds(gt=0, le=1e9)]
