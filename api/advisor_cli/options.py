"""Options that several commands have, with one meaning and one help text."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_type_hints

import typer

from advisor.core.gpu import parse_memory_mib
from advisor.core.objectives import ADVISED
from advisor.settings import job_folders, read_settings
from advisor_advice.options import read_gain


def job_names(incomplete: str) -> list[str]:
    """Jobs that a shell completes a name to: by their files, since nobody waits for more."""
    folders = job_folders(read_settings().jobs_dir)
    files = (file for folder in folders for file in folder.glob("*.yaml"))
    return sorted({file.stem for file in files if file.stem.startswith(incomplete)})


REPLAY = "replay"
"""The GPU that gives what was recorded."""

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="As JSON on stdout")]

PairPointsOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Pair points; else those that come with advisor")
]

SoloPointsOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Solo points; else those that come with advisor")
]

WithBundled: TypeAlias = Annotated[
    bool, typer.Option("--with-bundled", help="The points that come with advisor, too")
]

WithLaunches: TypeAlias = Annotated[
    bool, typer.Option("--launches/--no-launches", help="Learn from what launches here did, too")
]

ProfilesOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Solo points that go before the stored and bundled ones")
]

ObjectiveOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=f"What is maximised: {', '.join(ADVISED)}; cost where prices are set, else energy"
    ),
]

Tries: TypeAlias = Annotated[
    int,
    typer.Option(
        "--try",
        min=1,
        max=3,
        help="Run so many of the best ways for 10 s each, and go on with that with the most work "
        "per joule; for jobs whose files say restartable: true",
    ),
]

MinSpeed: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Minimum speed, JOB=0.5 or 0.5 for all; 1 is as alone; 0.4 if not given, 0 lifts it"
    ),
]

MinGain: TypeAlias = Annotated[
    float | None,
    typer.Option(
        parser=read_gain,
        metavar="PART",
        help="Least gain for which jobs share, 0.05 or 5%; 1% if not given: a fault ends all",
    ),
]

MaxP99: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="Longest p99 latency, JOB=50ms, or 50ms for all jobs that answer requests"),
]

MaxPower: TypeAlias = Annotated[float | None, typer.Option(help="Most power of a GPU, W")]

Memory: TypeAlias = Annotated[
    float | None,
    typer.Option(
        parser=parse_memory_mib,
        metavar="SIZE",
        help="Memory of a GPU: 143771 (MiB), 80GiB, 141GB; that of its model if not given",
    ),
]

Cores: TypeAlias = Annotated[
    float | None, typer.Option(help="Host cores for all jobs together; not looked at if not given")
]

Notes: TypeAlias = Annotated[bool, typer.Option("--notes", help="What may be wrong with it")]

GpuModelOption: TypeAlias = Annotated[
    str | None, typer.Option(help="Such as 'NVIDIA H200'; for jobs with profiles of several")
]

GpuUuidOption: TypeAlias = Annotated[
    str | None, typer.Option(help="The card: power is corrected for what is known of it")
]

AllowUnsafe: TypeAlias = Annotated[
    bool, typer.Option("--allow-unsafe", help="Also at counts of SMs at which results are wrong")
]

LogLevel: TypeAlias = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option(help="Requests are logged at info")
]

LogFormat: TypeAlias = Annotated[
    Literal["text", "json"], typer.Option(help="Lines of the log as text, or as an object each")
]

ServiceAddress: TypeAlias = Annotated[
    str, typer.Option(help="Address of advisor serve; its token is in ADVISOR_TOKEN")
]

ServiceCa: TypeAlias = Annotated[
    Path | None, typer.Option(help="PEM file with who signed the service's certificate")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOptions:
    """What jobs that share a GPU must keep, and what is known of them."""

    min_speed: MinSpeed = None
    max_p99: MaxP99 = None
    max_power: MaxPower = None
    memory: Memory = None
    gpu_model: GpuModelOption = None
    profiles: ProfilesOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceOptions(LimitOptions):
    """What advice may be asked for, too."""

    min_gain: MinGain = None
    isolate: Annotated[
        bool, typer.Option("--isolate", help="A fault of one job must leave the others running")
    ] = False
    cores: Cores = None
    gpu_uuid: GpuUuidOption = None


R = TypeVar("R")


def grouped(command: Callable[..., R]) -> Callable[..., R]:
    """A command that takes each of its dataclasses field by field, as Typer reads it."""
    kinds: dict[str, Any] = {}
    flat: dict[str, inspect.Parameter] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            kinds[parameter.name] = parameter.annotation
            flat |= {each.name: each for each in _fields(parameter.annotation)}
        else:
            flat[parameter.name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)

    @functools.wraps(command)
    def taken(**given: Any) -> R:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in kinds.items()
        }
        return command(**given, **made)

    taken.__signature__ = inspect.Signature([*flat.values()])  # pyright: ignore[reportAttributeAccessIssue]
    taken.__annotations__ = {each.name: each.annotation for each in flat.values()}
    return taken


def _fields(kind: Any) -> Iterator[inspect.Parameter]:
    """Its own fields before those that it has in common with others, as help lists them."""
    types, own = get_type_hints(kind, include_extras=True), kind.__annotations__
    yield from (
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=types[field.name],
        )
        for field in sorted(fields(kind), key=lambda field: field.name not in own)
    )
