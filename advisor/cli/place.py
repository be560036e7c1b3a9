"""`advisor place`: which of many jobs share a GPU, which run alone, and at what split."""

import importlib.util
import json
import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from advisor.cli.least_speeds import least_speeds
from advisor.cli.options import AsJson, GpuModel, MaxPower, Memory, MinSpeed, Profiles
from advisor.errors import InputError
from advisor.place import PLACE_OBJECTIVE
from advisor.settings import read_settings

# What needs numpy is imported in the command: `advisor --help` works without it.

MAX_JOBS = 1_000_000
"""A larger number is no cluster but a slip of the keyboard."""

PATIENCE_S = 2.0
"""After this long a person is shown how far it is."""

_ENTRY = re.compile(r"([^:\s]+)(?::([0-9]{1,9}))?")


def place(
    *,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(help="Names of profiled jobs, NAME:40 for forty of them", metavar="JOBS"),
    ] = None,
    gpus: Annotated[int, typer.Option(help="How many GPUs there are", min=1)],
    file: Annotated[
        Path | None, typer.Option("--jobs", help="File of jobs, NAME or NAME:40 on each line")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="What is maximised: throughput-per-watt, throughput")
    ] = PLACE_OBJECTIVE,
    min_speed: MinSpeed = None,
    max_power: MaxPower = None,
    memory: Memory = None,
    gpu_model: GpuModel = None,
    profiles: Profiles = None,
    time_limit: Annotated[float, typer.Option(help="Most seconds of searching", min=0.0)] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Which of many jobs share a GPU, so that all together do the most work per joule?

    Exit code 10: not one job keeps every limit.
    """
    queue = read_queue(jobs or (), file)
    _check_installed()
    from advisor.cli import place_text
    from advisor.constraints import Limits
    from advisor_models.placing import Wanted, plan, to_json

    names, settings = list(dict.fromkeys(queue)), read_settings()
    limits = Limits(
        min_speed=least_speeds(min_speed or (), names),
        default_min_speed=settings.min_speed,
        max_power_w=max_power,
        memory_mib=memory,
    )
    wanted = Wanted(
        queue=queue,
        gpus=gpus,
        objective=objective,
        limits=limits,
        gpu_model=gpu_model,
        profiles=profiles,
        time_limit_s=time_limit,
    )
    with _progress() as told:
        planned = plan(wanted, settings, told)
    if as_json:
        typer.echo(json.dumps(to_json(planned)))
    else:
        place_text.show(planned)


def read_queue(entries: Sequence[str], file: Path | None) -> list[str]:
    """The name of each job, in the order in which they were given.

    Args:
        entries: `NAME`, or `NAME:40` for forty of them.
        file: The same, one on each line; empty lines and what follows a # do not count.

    Raises:
        InputError: no job, both ways at once, what is no name and count, or a file that cannot
            be read.
    """
    if file and entries:
        raise InputError("jobs were given twice", fix="name them, or give a file with --jobs")
    places = [("", entry) for entry in entries]
    if file:
        lines = enumerate(_text(file).splitlines(), start=1)
        stripped = ((f"{file}:{n}: ", line.partition("#")[0].strip()) for n, line in lines)
        places = [(place, entry) for place, entry in stripped if entry]
    counts = [_entry(place, entry) for place, entry in places]
    if not counts:
        raise InputError("there are no jobs", fix="name them, such as: advisor place gemm:2 triad")
    if sum(count for _, count in counts) > MAX_JOBS:
        raise InputError(f"these are more than {MAX_JOBS} jobs", fix="check the counts")
    return [name for name, count in counts for _ in range(count)]


def _entry(place: str, entry: str) -> tuple[str, int]:
    found = _ENTRY.fullmatch(entry)
    if not found or (count := int(found[2] or 1)) < 1:
        raise _no_entry(place, entry)
    return found[1], count


def _no_entry(place: str, entry: str) -> InputError:
    name, colon, count = entry.partition(":")
    if name and colon:
        return InputError(
            f"{place}{entry} has no count: {count!r} is no whole number above 0",
            fix=f"write {name}:40 for forty of {name}",
        )
    return InputError(f"{place}{entry} is no job", fix="write NAME, or NAME:40 for forty of it")


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text", fix="save it as UTF-8") from error
    except OSError as error:
        raise InputError(
            f"{file} cannot be read", why=error.strerror or str(error), fix="check its name"
        ) from error


def _check_installed() -> None:
    needed = ("numpy", "onnxruntime", "scipy")
    if missing := [name for name in needed if not importlib.util.find_spec(name)]:
        raise InputError(
            f"placing jobs needs {' and '.join(missing)}, which are not installed",
            fix="pip install 'sm-advisor[advise]'",
        )


@contextmanager
def _progress() -> Generator[Callable[[int, int], None]]:
    """A bar on a terminal where predicting takes long, nothing elsewhere."""
    console = Console(stderr=True)
    shown_at = time.monotonic() + PATIENCE_S
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("predicting pairs", visible=False)

        def told(done: int, pairs: int) -> None:
            bar.update(task, completed=done, total=pairs, visible=time.monotonic() > shown_at)

        yield told
