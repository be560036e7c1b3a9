"""`advisor place`: a queue of jobs on several GPUs, who shares with whom, when and where."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from advisor.core.objectives import AIMS, DEFAULT_OBJECTIVE
from advisor.decide.limits import Limits
from advisor.errors import InputError
from advisor.formats.moments import read_duration
from advisor.place.problem import SAVES_ENERGY
from advisor.settings import Settings, read_settings
from advisor.wire.requests import (
    MIN_GAIN,
    MOST_PLACED,
    WORK_S,
    PlacementRequest,
    QueuedJobs,
    by_name,
)
from advisor_advice.ask.words import longest_p99_ms, min_speeds, read_works
from advisor_advice.placement_wire import sets_to_wire, to_wire
from advisor_advice.placing import Planned, limits_of, plan
from advisor_advice.placing_sets import RunningRequest, place_jobs
from advisor_advice.site.known_jobs import read_known
from advisor_advice.site.known_profiles import find_profiles
from advisor_cli.advise import place_sets_text, place_text
from advisor_cli.advise.queue import read_entries
from advisor_cli.shared.grouped import grouped
from advisor_cli.shared.options import (
    AsJson,
    Cores,
    GpuUuidOption,
    LimitOptions,
    MinGain,
    Notes,
    job_names,
)
from advisor_cli.shared.progress import progress
from advisor_cli.shared.say import as_json_text, say

PATIENCE_S = 2.0
"""After this long a person is shown how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet(LimitOptions):
    """The jobs and the GPUs, and what counts."""

    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of profiled jobs, NAME:40 for forty of them",
            metavar="JOBS",
            autocompletion=job_names,
        ),
    ] = None
    gpus: Annotated[int, typer.Option(help="How many GPUs there are", min=1, max=MOST_PLACED)]
    file: Annotated[
        Path | None,
        typer.Option("--jobs", help="File of jobs: NAME, NAME:40 or NAME:40 3h on each line"),
    ] = None
    work: Annotated[
        list[str] | None,
        typer.Option(help="Time that a job takes alone, JOB=3h or 3h for all; 1h if not given"),
    ] = None
    also: Annotated[
        list[str] | None,
        typer.Option(help="More GPUs, of another model: 'NVIDIA H100 80GB HBM3=16'; sets only"),
    ] = None
    objective: Annotated[
        str,
        typer.Option(
            help="Of a queue: energy-efficiency, throughput (done soonest). Of jobs that run "
            "together, in sets: fewest-cards, least-energy, cost"
        ),
    ] = DEFAULT_OBJECTIVE
    deadline: Annotated[
        str | None, typer.Option(help="When all work is to be done, 8h: of sets")
    ] = None
    host_cores: Cores = None
    min_gain: MinGain = MIN_GAIN
    gpu_uuid: GpuUuidOption = None
    time_limit: Annotated[float, typer.Option(help="Most seconds of searching", min=0.0)] = 10.0

    def queue(self) -> tuple[QueuedJobs, ...]:
        """Every job with its work: what its line says, else --work, else an hour.

        Raises:
            InputError: a line, a work or a speed that cannot be meant.
        """
        entries = read_entries(self.jobs or (), self.file)
        names = list(dict.fromkeys(entry.name for entry in entries))
        works = read_works(self.work or (), names)
        speeds = min_speeds(self.min_speed or (), names)
        return tuple(
            QueuedJobs(
                job=entry.name,
                count=entry.count,
                work_s=entry.work_s or works.get(entry.name, WORK_S),
                min_speed=speeds.get(entry.name),
            )
            for entry in entries
        )


@grouped
def place(
    fleet: Fleet,
    pairs: Annotated[bool, typer.Option("--pairs", help="Who shares with whom, and how")] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="When and where, and simpler ways to the end")
    ] = False,
    notes: Notes = False,
    as_json: AsJson = False,
) -> None:
    """Plan a queue: who shares a GPU, at which split, and when; or who runs together.

    Every job is done; a pair that gains less than --min-gain does not share. Exit code 10: not
    every job can be placed within the limits.

    Example: advisor place bert-infer-b2:4 vit-train:3 triad:3 --gpus 4
    """
    wanted = {"pairs": pairs, "schedule": schedule, "notes": notes}
    details = [name for name, is_wanted in wanted.items() if is_wanted]
    settings = read_settings()
    if fleet.objective in AIMS:
        found = sets_to_wire(place_jobs(_running(fleet, settings), settings, fleet.profiles))
        say(as_json_text(found)) if as_json else place_sets_text.show(found, details)
        return
    planned = _planned(fleet, settings)
    if fleet.gpu_uuid is not None and planned.card is None:
        say(f"nothing is known of what the card {fleet.gpu_uuid} draws beside others", err=True)
    if as_json:
        say(as_json_text(to_wire(planned)))
    else:
        place_text.show(planned, settings.prices, details)


def _running(fleet: Fleet, settings: Settings) -> RunningRequest:
    """Jobs that run together from now on."""
    _refuse(fleet.objective, {"--gpu-uuid": fleet.gpu_uuid})
    jobs = fleet.queue()
    by_job, of_all = longest_p99_ms(fleet.max_p99 or (), list(dict.fromkeys(j.job for j in jobs)))
    return RunningRequest(
        jobs=jobs,
        gpus={fleet.gpu_model: fleet.gpus, **_more_gpus(fleet.also or (), fleet.gpu_model)},
        objective=fleet.objective,
        limits=Limits(
            min_speed=by_name((job.job, job.min_speed) for job in jobs),
            default_min_speed=settings.min_speed,
            max_p99_ms=by_job,
            default_max_p99_ms=of_all,
            max_power_w=fleet.max_power,
            memory_mib=fleet.memory,
            host_cores=fleet.host_cores,
        ),
        deadline_s=None if fleet.deadline is None else read_duration(fleet.deadline),
        time_limit_s=fleet.time_limit,
    )


def _planned(fleet: Fleet, settings: Settings) -> Planned:
    """A queue in pairs, over time."""
    of_sets = {"--also": fleet.also, "--deadline": fleet.deadline, "--max-p99": fleet.max_p99}
    _refuse(fleet.objective, of_sets | {"--host-cores": fleet.host_cores})
    asked = PlacementRequest(
        jobs=fleet.queue(),
        gpus=fleet.gpus,
        objective=fleet.objective,
        max_power_w=fleet.max_power,
        memory_mib=fleet.memory,
        min_gain=fleet.min_gain,
        gpu_model=fleet.gpu_model,
        gpu_uuid=fleet.gpu_uuid,
        time_limit_s=fleet.time_limit,
    )
    with _progress("predicting pairs") as on_progress:
        found = find_profiles(asked.names, settings, asked.gpu_model, fleet.profiles)
        limits = limits_of(asked, settings.min_speed)
        known = read_known(found, settings, asked.gpu_uuid, any_of=True)
        return plan(known, asked, limits, on_progress)


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


@contextmanager
def _progress(what: str) -> Generator[Callable[[int, int], None]]:
    """A bar on a terminal where something takes long, nothing elsewhere."""
    shown_at = time.monotonic() + PATIENCE_S
    with progress() as bar:
        task = bar.add_task(what, visible=False)

        def on_progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=time.monotonic() > shown_at)

        yield on_progress
