"""`advisor place`: a queue of jobs on several GPUs, who shares with whom, when and where."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.formats.wire import write
from advisor.settings import read_settings
from advisor.wire.requests import MIN_GAIN, WORK_S, PlacementRequest, QueuedJobs
from advisor_advice.placement_wire import to_wire
from advisor_advice.placing import plan
from advisor_cli.advise import place_text
from advisor_cli.advise.job_requests import min_speeds
from advisor_cli.advise.queue import Entry, read_entries, read_works
from advisor_cli.shared.options import (
    AsJson,
    GpuModelOption,
    GpuUuidOption,
    MaxPower,
    Memory,
    MinGain,
    MinSpeed,
    ProfilesOption,
)
from advisor_cli.shared.progress import progress

PATIENCE_S = 2.0
"""After this long a person is shown how far it is."""


def place(
    *,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(help="Names of profiled jobs, NAME:40 for forty of them", metavar="JOBS"),
    ] = None,
    gpus: Annotated[int, typer.Option(help="How many GPUs there are", min=1)],
    file: Annotated[
        Path | None,
        typer.Option("--jobs", help="File of jobs: NAME, NAME:40 or NAME:40 3h on each line"),
    ] = None,
    work: Annotated[
        list[str] | None,
        typer.Option(help="Time that a job takes alone, JOB=3h or 3h for all; 1h if not given"),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="energy-efficiency: least energy; throughput: done soonest")
    ] = DEFAULT_OBJECTIVE,
    min_speed: MinSpeed = None,
    min_gain: MinGain = MIN_GAIN,
    max_power: MaxPower = None,
    memory: Memory = None,
    gpu_model: GpuModelOption = None,
    gpu_uuid: GpuUuidOption = None,
    profiles: ProfilesOption = None,
    time_limit: Annotated[float, typer.Option(help="Most seconds of searching", min=0.0)] = 10.0,
    pairs: Annotated[bool, typer.Option("--pairs", help="Who shares with whom, and how")] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="When and where, and simpler ways to the end")
    ] = False,
    notes: Annotated[bool, typer.Option("--notes", help="What may be wrong with it")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a queue: which jobs share a GPU, at which split, and when.

    Every job is done; a pair that gains less than --min-gain does not share. Exit code 10: not
    every job can be placed within the limits.
    """
    asked = PlacementRequest(
        jobs=_queue(read_entries(jobs or (), file), work or (), min_speed or ()),
        gpus=gpus,
        objective=objective,
        max_power_w=max_power,
        memory_mib=memory,
        min_gain=min_gain,
        gpu_model=gpu_model,
        gpu_uuid=gpu_uuid,
        time_limit_s=time_limit,
    )
    with _progress("predicting pairs") as on_progress:
        settings = read_settings()
        planned = plan(asked, settings, profiles, on_progress)
    if gpu_uuid is not None and planned.card is None:
        typer.echo(f"nothing is known of what the card {gpu_uuid} draws beside others", err=True)
    if as_json:
        typer.echo(write(to_wire(planned)))
    else:
        wanted = {"pairs": pairs, "schedule": schedule, "notes": notes}
        details = [name for name, is_wanted in wanted.items() if is_wanted]
        place_text.show(planned, settings.prices, details)


def _queue(
    entries: Sequence[Entry], work: Sequence[str], least: Sequence[str]
) -> tuple[QueuedJobs, ...]:
    """Every job with its work: what its line says, else --work, else an hour."""
    names = list(dict.fromkeys(entry.name for entry in entries))
    works, speeds = read_works(work, names), min_speeds(least, names)
    return tuple(
        QueuedJobs(
            job=entry.name,
            count=entry.count,
            work_s=entry.work_s or works.get(entry.name, WORK_S),
            min_speed=speeds.get(entry.name),
        )
        for entry in entries
    )


@contextmanager
def _progress(what: str) -> Generator[Callable[[int, int], None]]:
    """A bar on a terminal where something takes long, nothing elsewhere."""
    shown_at = time.monotonic() + PATIENCE_S
    with progress() as bar:
        task = bar.add_task(what, visible=False)

        def on_progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=time.monotonic() > shown_at)

        yield on_progress
