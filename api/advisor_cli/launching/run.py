"""`advisor run`: a queue of jobs on the GPUs of this host, until all are done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from advisor.core.gpu import CARD_UNITS, MEMORY_MIB, WHOLE, Gpu, vendor_of
from advisor.core.job import Job
from advisor.core.split import Split
from advisor.core.wording import as_asked, listed
from advisor.decide.filling import OBJECTIVE
from advisor.errors import STOPPED, InputError, JobError, NoSplitError
from advisor.launch.run_queue import QueueFile, open_queue
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor.launch.start import check_memory
from advisor.settings import Settings, read_settings
from advisor.wire.requests import LaunchRequest
from advisor_advice.ask.words import every_job, job_requests, longest_p99_ms, read_works
from advisor_advice.filling.advice import QueueCard, read_advice
from advisor_advice.filling.queue_run import QueueRun
from advisor_advice.launching import frozen
from advisor_advice.resolved_launch import ResolvedLaunch
from advisor_cli.launching.launch import user_name
from advisor_cli.launching.run_follow import follow, stop_all
from advisor_cli.launching.run_screen import FirstJob, RunPlan, alone_texts, end_screen
from advisor_cli.shared.grouped import grouped
from advisor_cli.shared.options import AsJson, MaxP99, MinSpeed
from advisor_cli.shared.say import as_json_text, say
from advisor_cli.shared.screen import print_screen
from advisor_profiling.testbed.live import find_gpu, with_units

_SUFFIXES = (".yaml", ".yml")

_CODES = {"done": 0, "stopped": STOPPED}
"""Exit codes by what came of the queue."""

_First = Sequence[tuple[QueueCard, LaunchSet]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAsked:
    """The jobs and the GPUs of a queue, and how it is run."""

    jobs: Annotated[
        list[str],
        typer.Argument(
            help="Names of jobs, A*3 for three of A; or a folder of job files, or files of one",
            metavar="JOBS...",
        ),
    ]
    gpus: Annotated[str, typer.Option(help="Indices or UUIDs of GPUs of this host, 0,1")] = "0"
    min_speed: MinSpeed = None
    max_p99: MaxP99 = None
    work: Annotated[
        list[str] | None,
        typer.Option(help="Time that a job takes alone, JOB=3h or 3h for all: tells when all end"),
    ] = None
    time_limit: Annotated[
        list[str] | None,
        typer.Option(
            help="End a job, as failed, once it has run for so long: JOB=2h, or 2h for all but "
            "servers"
        ),
    ] = None
    hang_s: Annotated[
        float | None,
        typer.Option(
            "--hang-after",
            help="End a job without progress for this many seconds; if not given, it is shown as "
            "stalled",
        ),
    ] = None
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin again, though the last time is not done")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would start, and start nothing")
    ] = False
    gpu_model: Annotated[
        str | None,
        typer.Option(help="With --dry-run: what would start on such GPUs, though none is here"),
    ] = None


@grouped
def run(asked: QueueAsked, as_json: AsJson = False) -> None:
    """Run a queue on the GPUs of this host until all jobs are done; goes on after any end.

    Servers start first and end with the last batch job. After Ctrl-C, a kill or a crash the same
    command goes on: what has finished is not run again.

    Example: advisor run nightly/ --gpus 0
    """
    names, settings = _named(asked.jobs, read_settings())
    found = [frozen(name, settings) for name in names]
    _check_ends(found)
    works_s = read_works(asked.work or (), names)
    limits_s = read_works(asked.time_limit or (), names, "--time-limit")
    if asked.gpu_model is not None and not asked.dry_run:
        raise InputError(
            "--gpu-model is for --dry-run", why="a queue runs on GPUs of this host: --gpus"
        )
    gpus, model = asked.gpus, asked.gpu_model
    there = _gpus(gpus, settings) if model is None else _assumed(gpus, model)
    cards = [_card(gpu, found, asked, settings) for gpu in there]
    _check_alone(found, cards)
    with open_queue(settings.home, settings.jobs_dir, names) as file:
        if asked.fresh and asked.dry_run:
            file = QueueFile(file.path.with_suffix(".fresh"))  # is never written
        elif asked.fresh:
            stop_all(QueueRun(found, cards, file, settings))
            file.remove()
        queue = QueueRun(found, cards, file, settings, limits_s)
        first = [*queue.first_sets()]
        _check_servers(queue, first)
        if asked.dry_run:
            plan = _plan(queue, first)
            say(as_json_text(plan)) if as_json else print_screen(plan.screen())
            return
        for text in () if as_json else alone_texts(_alone(cards)):
            say(f"! {text}", err=True)
        state = follow(queue, works_s, as_json=as_json)
    if not as_json:
        print_screen(end_screen(state))
    raise typer.Exit(_CODES.get(state.state, JobError.exit_code))


def _named(texts: Sequence[str], settings: Settings) -> tuple[tuple[str, ...], Settings]:
    """The names of the jobs, and the settings with the folder that they are of."""
    paths = [Path(text) for text in texts]
    if len(paths) == 1 and paths[0].is_dir():
        paths = sorted(path for path in paths[0].iterdir() if path.suffix in _SUFFIXES)
        if not paths:
            raise InputError(
                f"{texts[0]} has no job files",
                why="each job of a queue has one: advisor profile --name NAME -- COMMAND writes it",
                fix="name a folder of .yaml files",
            )
    elif any("/" in text and not path.exists() for text, path in zip(texts, paths, strict=True)):
        raise InputError(f"there is no {' '.join(texts)}", fix="name a folder of .yaml files")
    elif not all(path.suffix in _SUFFIXES for path in paths):
        return every_job(texts), settings
    folders = {path.absolute().parent for path in paths}
    if len(folders) > 1:
        raise InputError(
            f"the job files are in {len(folders)} folders",
            why="the jobs of a queue are of one folder",
            fix="put them together, or run one queue after the other",
        )
    return tuple(path.stem for path in paths), replace(settings, jobs_dir=folders.pop())


def _check_ends(jobs: Sequence[Job]) -> None:
    """Refuse jobs that do not end by themselves, and a queue that does not."""
    for job in jobs:
        if job.progress.kind == "runs":
            raise InputError(
                f"{job.name} is repeated without end, as its file says (progress: runs)",
                why="a queue waits until each job ends by itself",
                fix="read its progress by `counter` or `output`: docs/progress.md",
            )
    if all(job.offered_rate is not None for job in jobs):
        raise InputError(
            "all of these are servers",
            why="a queue ends its servers with its last batch job",
            fix=f"run them until they are stopped: advisor launch {as_asked(j.name for j in jobs)}",
        )


def _gpus(text: str, settings: Settings) -> list[Gpu]:
    found = [with_units(find_gpu(name), settings) for name in text.split(",")]
    _check_once(text, found)
    return found


def _assumed(text: str, gpu_model: str) -> list[Gpu]:
    """GPUs that need not be there, with what is known of their model."""
    names = [model for model in MEMORY_MIB if gpu_model.casefold() in model.casefold()]
    model = names[0] if len(names) == 1 else gpu_model
    found = [
        Gpu(
            uuid=name,
            model=model,
            vendor=vendor_of(model),
            index=int(name) if name.isdecimal() else n,
            units_total=CARD_UNITS.get(model),
            memory_mib=MEMORY_MIB.get(model),
        )
        for n, name in enumerate(text.split(","))
    ]
    _check_once(text, found)
    return found


def _check_once(text: str, gpus: Sequence[Gpu]) -> None:
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        raise InputError(f"--gpus {text} names a GPU twice", fix="name each once: --gpus 0,1")


def _card(gpu: Gpu, jobs: Sequence[Job], asked: QueueAsked, settings: Settings) -> QueueCard:
    names = [job.name for job in jobs]
    by_job_ms, for_all_ms = longest_p99_ms(asked.max_p99 or (), names)
    request = LaunchRequest(
        jobs=job_requests(names, names, asked.min_speed or (), by_job_ms),
        max_p99_ms=for_all_ms,
        objective=OBJECTIVE,
        hang_s=asked.hang_s,
    )
    wanted = ResolvedLaunch(request=request, gpu=gpu.uuid, card=gpu, asked_by=user_name())
    return QueueCard(wanted=wanted, advice=read_advice(jobs, wanted, settings))


def _check_alone(jobs: Sequence[Job], cards: Sequence[QueueCard]) -> None:
    """Refuse a job that does not even fit alone, and a server of which nothing is known."""
    for card in cards:
        for job in jobs:
            alone = LaunchSet(split=Split((WHOLE,)), parts=(LaunchPart(job=job),))
            check_memory(alone, card.gpu)
            if job.offered_rate is not None and job.name in card.advice.lacking:
                raise InputError(
                    f"{job.name} has no profile on {card.gpu.model}",
                    why="jobs that run beside a server must leave it what it needs",
                    fix=f"advisor profile {job.name}",
                )


def _check_servers(queue: QueueRun, first: _First) -> None:
    """Refuse servers that find no place together, unless they run already."""
    look = queue.look()
    waiting = [name for name in look.waiting if queue.is_server(name)]
    for _, made in first:
        for job in made.jobs:
            if job.name in waiting:
                waiting.remove(job.name)
    if waiting and not look.launches:
        raise NoSplitError(
            f"{listed(waiting)} would find no place beside the other servers",
            why="no way of sharing keeps the limits of all of them",
            fix="name more GPUs with --gpus, or allow more: --max-p99, --min-speed",
        )


def _plan(queue: QueueRun, first: _First) -> RunPlan:
    look = queue.look()
    waiting = [*look.waiting]
    for _, made in first:
        for job in made.jobs:
            waiting.remove(job.name)
    return RunPlan(
        first=tuple(row for card, made in first for row in _first_jobs(card, made)),
        running=tuple(job.status.job for launch in look.launches for job in launch.running),
        waiting=tuple(waiting),
        alone=_alone(queue.cards),
    )


def _alone(cards: Sequence[QueueCard]) -> dict[str, str]:
    return {name: why for card in cards for name, why in card.advice.lacking.items()}


def _first_jobs(card: QueueCard, made: LaunchSet) -> list[FirstJob]:
    names, split = [job.name for job in made.jobs], made.split
    expected = card.advice.expected(names, split.shares, split.sharing)
    speeds = [part.speed.value for part in expected.parts] if expected else [None] * len(names)
    return [
        FirstJob(job=name, gpu=card.gpu.index, share_percent=share, predicted_speed=speed)
        for name, share, speed in zip(names, split.shares, speeds, strict=True)
    ]
