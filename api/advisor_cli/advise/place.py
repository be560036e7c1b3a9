"""`advisor place`: a queue of jobs on several GPUs, who shares with whom, when and where."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from advisor.core.objectives import AIMS, DEFAULT_OBJECTIVE
from advisor.decide.limits import Limits
from advisor.errors import InputError
from advisor.formats.moments import read_duration
from advisor.place.problem import SAVES_ENERGY
from advisor.settings import read_settings
from advisor.wire.requests import MIN_GAIN, WORK_S, PlacementRequest, QueuedJobs, by_name
from advisor_advice.ask.words import longest_p99_ms, min_speeds, read_works
from advisor_advice.placement_wire import to_wire
from advisor_advice.placing import plan
from advisor_advice.placing_sets import RunningRequest, place_jobs
from advisor_advice.placing_sets import to_wire as sets_to_wire
from advisor_cli.advise import place_sets_text, place_text
from advisor_cli.advise.queue import Entry, read_entries
from advisor_cli.shared.options import (
    AsJson,
    Cores,
    GpuModelOption,
    GpuUuidOption,
    MaxP99,
    MaxPower,
    Memory,
    MinGain,
    MinSpeed,
    ProfilesOption,
    job_names,
)
from advisor_cli.shared.progress import progress
from advisor_cli.shared.say import as_json_text, say

PATIENCE_S = 2.0
"""After this long a person is shown how far it is."""


def place(
    *,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of profiled jobs, NAME:40 for forty of them",
            metavar="JOBS",
            autocompletion=job_names,
        ),
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
    also: Annotated[
        list[str] | None,
        typer.Option(help="More GPUs, of another model: 'NVIDIA H100 80GB HBM3=16'; sets only"),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="Of a queue: energy-efficiency, throughput (done soonest). Of jobs that run "
            "together, in sets: fewest-cards, least-energy, cost"
        ),
    ] = DEFAULT_OBJECTIVE,
    deadline: Annotated[
        str | None, typer.Option(help="When all work is to be done, 8h: of sets")
    ] = None,
    max_p99: MaxP99 = None,
    host_cores: Cores = None,
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
    """Plan a queue: who shares a GPU, at which split, and when; or who runs together.

    Every job is done; a pair that gains less than --min-gain does not share. Exit code 10: not
    every job can be placed within the limits.

    Example: advisor place bert-infer-b2:4 vit-train:3 triad:3 --gpus 4
    """
    wanted = {"pairs": pairs, "schedule": schedule, "notes": notes}
    details = [name for name, is_wanted in wanted.items() if is_wanted]
    if objective in AIMS:
        _refuse(objective, {"--gpu-uuid": gpu_uuid})
        settings = read_settings()
        running = RunningRequest(
            jobs=_queue(read_entries(jobs or (), file), work or (), min_speed or ()),
            gpus={gpu_model: gpus, **_more_gpus(also or (), gpu_model)},
            objective=objective,
            limits=Limits(
                default_min_speed=settings.min_speed,
                max_power_w=max_power,
                memory_mib=memory,
                host_cores=host_cores,
            ),
            deadline_s=None if deadline is None else read_duration(deadline),
            time_limit_s=time_limit,
        )
        running = _with_names(running, max_p99 or ())
        found = sets_to_wire(place_jobs(running, settings, profiles))
        say(as_json_text(found)) if as_json else place_sets_text.show(found, details)
        return
    of_sets = {"--also": also, "--deadline": deadline, "--max-p99": max_p99}
    _refuse(objective, of_sets | {"--host-cores": host_cores})
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
        say(f"nothing is known of what the card {gpu_uuid} draws beside others", err=True)
    if as_json:
        say(as_json_text(to_wire(planned)))
    else:
        place_text.show(planned, settings.prices, details)


def _with_names(asked: RunningRequest, longest: Sequence[str]) -> RunningRequest:
    """The same with the limits that are for jobs by name."""
    names = list(dict.fromkeys(job.job for job in asked.jobs))
    by_job, of_all = longest_p99_ms(longest, names)
    limits = replace(
        asked.limits,
        min_speed=by_name((job.job, job.min_speed) for job in asked.jobs),
        max_p99_ms=by_job,
        default_max_p99_ms=of_all,
    )
    return replace(asked, limits=limits)


def _refuse(objective: str, options: Mapping[str, object]) -> None:
    """Options that an objective does not know.

    Raises:
        InputError: one of them was given.
    """
    if given := [name for name, value in options.items() if value]:
        queues = ", ".join(SAVES_ENERGY)
        raise InputError(
            f"{', '.join(given)} is not for --objective {objective}",
            why=f"{queues} plan a queue in pairs, {', '.join(AIMS)} sets that run together",
            fix="name another objective, or leave it out",
        )


def _more_gpus(texts: Sequence[str], first: str | None) -> dict[str | None, int]:
    """Cards of further GPU models.

    Raises:
        InputError: no model and number, or the first model has no name.
    """
    found: dict[str | None, int] = {}
    for text in texts:
        name, _, count = text.rpartition("=")
        if not (name and count.isdecimal() and int(count)) or not first or name in (first, *found):
            raise InputError(
                f"--also {text} is no further GPU model",
                fix="name both: --gpu-model 'NVIDIA H200' --also 'NVIDIA H100 80GB HBM3=16'",
            )
        found[name] = int(count)
    return found


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
