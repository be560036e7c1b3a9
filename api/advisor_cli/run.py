"""`advisor run`: a queue of jobs on the GPUs of this host, until all are done."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from advisor.core.gpu import CARD_UNITS, MEMORY_MIB, WHOLE, Gpu, named_model, vendor_of
from advisor.core.job import Job
from advisor.core.records import SINGLE_WINDOW, grouped
from advisor.core.wording import as_requested, count_of, energy_text, less_or_more, listed
from advisor.errors import STOPPED, InputError, JobError, NoSplitError
from advisor.formats.moments import duration_text
from advisor.launch.run_queue import (
    LaunchedJob,
    LaunchView,
    QueueFile,
    QueueRecord,
    former_works,
    open_queue,
)
from advisor.launch.set_monitor import check_memory
from advisor.launch.spec import LaunchSet
from advisor.settings import Settings, read_settings
from advisor.wire.answers import Said
from advisor.wire.requests import LaunchRequest
from advisor_advice.launching import TRY_S, ResolvedLaunch, frozen
from advisor_advice.options import every_job, job_requests, longest_p99_ms, read_works
from advisor_advice.placing import check_deadline
from advisor_advice.queue import QueueCard, QueueLook, QueueRun
from advisor_advice.words import basis_of
from advisor_cli.console import (
    AsJson,
    Columns,
    MaxP99,
    MinSpeed,
    Tries,
    as_json_text,
    plain_console,
    print_screen,
    say,
    say_lines,
    table_of,
)
from advisor_cli.launches import asking_to_stop, speed_text, unread_text, user_name
from advisor_profiling.testbed import find_gpu, with_units

# Of a job; `ended` is a server that was ended with the last batch job; of the launch of a
# `silent` one nothing was heard for 10 s.
_State = Literal["waiting", "starting", "running", "silent", "ending", "done", "failed", "ended"]

_STATES: Mapping[str, _State] = {
    "waiting": "starting",
    "starting": "starting",
    "running": "running",
    "finished": "done",
    "failed": "failed",
    "hung": "failed",
    "ended": "ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunJob:
    """One job of the queue; docs/run.md has the keys."""

    job: str
    state: _State
    gpu: int | None = None
    share_percent: float | None = None  # of one with a GPU null: time-sliced
    below_normal: bool = False
    steps: float | None = None
    progress: float | None = None
    speed: float | None = None
    predicted_speed: float | None = None
    launch_id: str | None = None
    error: str | None = None
    unread: str | None = None
    unread_since: str | None = None
    stalled_since: str | None = None

    @property
    def unread_text(self) -> str:
        return unread_text(self.unread, self.unread_since, self.stalled_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunState:
    """The queue; docs/run.md has the keys."""

    state: Literal["running", "stopping", "done", "failed", "stopped"]
    jobs: tuple[_RunJob, ...]
    left_s: float | None
    gpu_s: float
    energy_j: float | None
    starts_j: float
    unwatched_s: float
    alone_s: float | None
    alone_j: float | None

    def count(self, *states: _State) -> int:
        return sum(job.state in states for job in self.jobs)

    @property
    def headline(self) -> str:
        said = [f"{self.count('done', 'ended')} of {count_of(len(self.jobs), 'job')} done"]
        for words, number in (
            ("running", self.count("starting", "running", "ending")),
            ("not heard of", self.count("silent")),
            ("waiting", self.count("waiting")),
            ("failed", self.count("failed")),
        ):
            said += [f"{number} {words}"] if number else []
        left = "" if self.left_s is None else f"; about {duration_text(self.left_s)} left"
        return ", ".join(said) + left


def run_state(queue: QueueRun, look: QueueLook) -> _RunState:
    """State of a queue."""
    record, jobs = look.record, [*_jobs(queue, look)]
    counted = [job for job in record.ended if job.came in ("finished", "ended")]
    state: Literal["running", "stopping", "done", "failed", "stopped"] = "running"
    if queue.done(look):
        state = "failed" if record.failed else "done"
    elif queue.stopping:
        state = "stopping" if look.launches else "stopped"
    return _RunState(
        state=state,
        jobs=tuple(jobs),
        left_s=_left_s(queue, jobs),
        gpu_s=record.held_s,
        energy_j=record.energy_j,
        starts_j=record.starts_j,
        unwatched_s=record.unwatched_s,
        alone_s=_sum([job.alone_j and job.alone_s for job in counted]),
        alone_j=_sum([job.alone_j for job in counted]),
    )


def _jobs(queue: QueueRun, look: QueueLook) -> Iterator[_RunJob]:
    """All jobs in the order of the queue; of jobs with one name the ended ones come first."""
    seats = defaultdict[str, list[_RunJob]](list)
    for ended in look.record.ended:
        if ended.came != "lost":
            seats[ended.job].append(
                _RunJob(
                    job=ended.job,
                    state=_STATES[ended.came],
                    steps=ended.steps,
                    progress=1.0 if ended.came == "finished" else None,
                    launch_id=ended.launch_id,
                    error=ended.error,
                )
            )
    for launch in look.launches:
        for job in launch.jobs:
            seats[job.part.job.name].append(_seated(queue, launch, job, look.record))
    for name in queue.names:
        waiting_seats = seats[name]
        yield (
            waiting_seats.pop(0)
            if waiting_seats
            else _RunJob(job=name, state="waiting", error=queue.late_text(name))
        )


def _seated(queue: QueueRun, launch: LaunchView, job: LaunchedJob, record: QueueRecord) -> _RunJob:
    name, status, running = job.part.job.name, job.status, launch.running
    card = next((card for card in queue.cards if card.gpu.uuid == launch.gpu), None)
    silent = launch.status.silent_s is not None and status.ended_at is None
    # By its work, else as many steps as an equal job had.
    equal = (ended.steps for ended in record.ended if (ended.job, ended.came) == (name, "finished"))
    steps = queue.works_s.get(name, 0.0) * (job.part.solo_rate or 0.0) or next(equal, None)
    names = [launched.part.job.name for launched in running]
    expected = card.expected(names, launch.split) if card and job in running else None
    progress = min(1.0, status.steps / steps) if steps else None
    return _RunJob(
        job=name,
        state="silent" if silent else _STATES.get(status.outcome, "ending"),
        gpu=card and card.gpu.index,
        share_percent=None if launch.status.sharing == "time-sliced" else status.share_percent,
        below_normal=status.below_normal,
        steps=status.steps,
        progress=1.0 if status.outcome == "finished" else progress,
        speed=status.relative_speed,
        predicted_speed=expected and expected.parts[running.index(job)].speed.value,
        launch_id=launch.launch_id,
        error=status.trouble,
        unread=status.unread,
        unread_since=status.unread_since,
        stalled_since=status.stalled_since,
    )


def _left_s(queue: QueueRun, jobs: Sequence[_RunJob]) -> float | None:
    """Seconds until all batch jobs are done, at the present pace; None: not known."""
    left_s, pace = 0.0, 0.0
    for job in jobs:
        if queue.is_server(job.job) or job.state in ("done", "failed", "ended"):
            continue
        alone_s = queue.works_s.get(job.job)
        if alone_s is None or (job.state == "running" and job.progress is None):
            return None
        left_s += alone_s * (1 - (job.progress or 0.0))
        if job.state == "running":
            pace += job.speed or job.predicted_speed or 0.0
    return left_s / pace if pace else None


def _sum(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present and len(present) == len(values) else None


_LOOK_S = 0.25


def _follow(queue: QueueRun, *, as_json: bool) -> _RunState:
    """Run a queue until nothing is left to do, or it is stopped; its last state.

    A terminal shows a live table, else each change is a line or an object.

    Raises:
        AdvisorError: what is needed for advice cannot be read; what runs goes on.
        OSError: what is kept of it cannot be written.
    """
    console, before = plain_console(), None
    live = (
        Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None
    )
    with live or nullcontext(), asking_to_stop(queue.stop):
        queue.take_up()
        while True:
            look = queue.look()
            state = run_state(queue, look)
            if live:
                live.update(_table(state), refresh=True)
            elif before is None or _key(before) != _key(state):
                say_lines([as_json_text(state)] if as_json else event_lines(before, state))
            before = state
            if state.state in ("done", "failed", "stopped"):
                queue.finish(look)
                return state
            if not queue.act(look):
                time.sleep(_LOOK_S)


def _key(state: _RunState) -> object:
    """Changes with the state of a job, or where its progress or its deadline is lost."""
    return state.state, [
        (job.state, job.state == "waiting" and job.error, job.unread_text) for job in state.jobs
    ]


def _share(job: _RunJob) -> str:
    """Its part of the GPU; one that is time-sliced has a turn, and no part."""
    if job.share_percent is None:
        return "time-sliced"
    limit = f"{job.share_percent:g} %" if job.share_percent < WHOLE else "no limit"
    return limit + " below normal" * job.below_normal


def _percent(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.0f} %"


_COLUMNS: Columns[_RunJob] = (
    ("job", lambda job: job.job),
    ("GPU", lambda job: job.gpu),
    ("share", lambda job: None if job.gpu is None else _share(job)),
    ("state", lambda job: job.state),
    (
        "progress",
        lambda job: _percent(job.progress) or (None if job.steps is None else f"{job.steps:,.0f}"),
    ),
    ("speed", lambda job: "" if job.speed is None else speed_text(job.speed)),
    ("predicted", lambda job: _percent(job.predicted_speed)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunPlan:
    """What `--dry-run` tells; docs/run.md has the keys."""

    dry_run: bool = True
    first: tuple[_RunJob, ...]
    tried: Mapping[str, tuple[str, ...]]
    running: tuple[str, ...]
    silent: tuple[str, ...]
    waiting: tuple[str, ...]
    spare_s: Mapping[str, float]
    alone: Mapping[str, str]
    basis: str | None

    def screen(self) -> Said:
        number = len(self.first) + len(self.waiting)
        run = f", {len(self.running)} running" if self.running else ""
        headline = f"DRY RUN: {count_of(number, 'job')}{run}; nothing is started."
        headline = " ".join(filter(None, (headline, self.basis)))
        return Said(headline=headline, lines=tuple(self._lines()))

    def _lines(self) -> Iterator[tuple[str, str]]:
        if self.running:
            yield "Running", f"{', '.join(self.running)}: the same command continues with them"
        yield from (("Silent", text) for text in self.silent)
        width = max((len(job.job) for job in self.first), default=0)
        for gpu, those in grouped(self.first, lambda job: job.gpu).items():
            rows = (_first(job, width) for job in those)
            yield from (("" if n else f"GPU {gpu}", row) for n, row in enumerate(rows))
        yield from (
            ("Trial", f"on GPU {gpu} {listed(splits)}, for {TRY_S:g} s each")
            for gpu, splits in self.tried.items()
        )
        if joining := [name for name in self.waiting if name not in self.alone]:
            yield (
                "Then",
                f"{', '.join(joining)}: each joins where that saves time or energy, else waits",
            )
        yield from (
            ("Due", f"{name} must start in {duration_text(spare_s)} to be done in time")
            for name, spare_s in self.spare_s.items()
        )
        yield from (("Alone", text) for text in _alone_texts(self.alone))


def _alone_texts(alone: Mapping[str, str]) -> Iterator[str]:
    """Jobs that cannot share a GPU, why, and what to do about it."""
    return (f"{name} shares no GPU: {why} (advisor profile {name})" for name, why in alone.items())


def _table(state: _RunState) -> Group:
    tail = (
        Text(f"{job.job}: {text}")
        for job in state.jobs
        for text in (job.error, job.unread_text)
        if text
    )
    shown = table_of(_COLUMNS, state.jobs, whole=[name for name, _ in _COLUMNS])
    return Group(Text(state.headline, style="bold"), shown, *tail)


def event_lines(before: _RunState | None, state: _RunState) -> Iterator[str]:
    """A line for each job that is in another state than before, or is not known or stalled now."""
    for n, job in enumerate(state.jobs):
        was = before.jobs[n] if before else None
        if (text := job.unread_text) and text != (was and was.unread_text):
            yield f"{job.job} {text}"
        if (was.state if was else "waiting") == job.state:
            if job.state == "waiting" and job.error and not (was and was.error):
                yield f"{job.job} {job.error}"
            continue
        at = "" if job.gpu is None else f" on GPU {job.gpu}, {_share(job)}"
        error = f": {job.error}" if job.error else ""
        yield f"{job.job} {job.state}{at}{error} ({state.headline})"


def end_screen(state: _RunState) -> Said:
    """Time and energy beside those of one job after the other, and how to go on."""
    said = f"{state.state.upper()}: {state.headline}."
    return Said(headline=said, lines=tuple(_end_lines(state)))


def _end_lines(state: _RunState) -> Iterator[tuple[str, str]]:
    yield "GPU use", _beside(state.gpu_s, state.alone_s, duration_text)
    if state.energy_j is not None:
        ran_j, starts = state.energy_j - state.starts_j, energy_text(state.starts_j)
        yield "Energy", _beside(ran_j, state.alone_j, energy_text)
        yield "", f"{starts} before jobs ran, {energy_text(state.energy_j)} in all"
    if state.unwatched_s:
        yield "Gaps", f"{state.unwatched_s:.1f} s without monitoring"
    yield from (
        ("Failed", f"{job.job}: {job.error}; advisor launches show {job.launch_id}")
        for job in state.jobs
        if job.state == "failed"
    )
    if state.state == "stopped":
        yield "Next", "the same command: stopped jobs start again, finished jobs do not"
    elif state.count("failed"):
        yield "Next", "the same command runs the failed jobs only"


def _beside(together: float, apart: float | None, text: Callable[[float], str]) -> str:
    if apart is None:
        return f"{text(together)}; saving unknown: not every job has a profile of this host"
    saved = less_or_more(1 - together / apart, 0) if apart else "nothing to compare"
    return f"{text(together)} instead of {text(apart)} for each job alone: {saved}"


def _first(job: _RunJob, width: int) -> str:
    speed = "" if job.predicted_speed is None else f", speed {_percent(job.predicted_speed)}"
    return f"{job.job:<{width}}  {_share(job)}{speed}"


_SUFFIXES = (".yaml", ".yml")

# Exit codes by what came of the queue.
_CODES = {"done": 0, "stopped": STOPPED}


def run(
    jobs: Annotated[
        list[str],
        typer.Argument(
            help="Names of jobs, A*3 for three of A; or a folder of job files; or job "
            "files of one folder",
            metavar="JOBS...",
        ),
    ],
    gpus: Annotated[str, typer.Option(help="Indices or UUIDs of GPUs of this host, 0,1")] = "0",
    min_speed: MinSpeed = None,
    max_p99: MaxP99 = None,
    work: Annotated[
        list[str] | None,
        typer.Option(help="Time that a job takes alone, JOB=3h or 3h for all; gives the time left"),
    ] = None,
    time_limit: Annotated[
        list[str] | None,
        typer.Option(
            help="Maximum run time, JOB=2h, or 2h for all but servers; a longer job fails"
        ),
    ] = None,
    deadline: Annotated[
        list[str] | None,
        typer.Option(
            help="Time from now until a job must be done, JOB=2h, or 2h for all but "
            "servers; needs --work"
        ),
    ] = None,
    hang_s: Annotated[
        float | None,
        typer.Option(
            "--hang-after",
            help="End a job after this many seconds without progress (default: show it as stalled)",
        ),
    ] = None,
    tries: Tries = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start the queue again from the beginning")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would start, and start nothing")
    ] = False,
    gpu_model: Annotated[
        str | None,
        typer.Option(help="With --dry-run: GPU model to plan for, even if this host has none"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a queue on the GPUs of this host until all jobs are done, over any interruption.

    Servers start first and end with the last batch job. After Ctrl-C, a kill or a crash the same
    command resumes: finished jobs do not run again.

    Example: advisor run nightly/ --gpus 0
    """
    names, settings = _named(jobs, read_settings())
    queue_jobs = [frozen(name, settings) for name in names]
    _check_ends(queue_jobs)
    given_s = read_works(work or (), names)
    batch = [job.name for job in queue_jobs if job.offered_rate is None]
    limits_s = read_works(time_limit or (), batch, "--time-limit")
    due_s = read_works(deadline or (), batch, "--deadline")
    if gpu_model is not None and not dry_run:
        raise InputError(
            "--gpu-model is for --dry-run", why="a queue runs on GPUs of this host: --gpus"
        )
    there = (
        _assumed(gpus, gpu_model)
        if gpu_model is not None
        else [with_units(find_gpu(name), settings) for name in gpus.split(",")]
    )
    former_s = former_works(settings.home / "launches", queue_jobs, there[0].model)
    works_s = former_s | given_s
    for name, in_s in due_s.items():
        check_deadline(name, works_s.get(name), in_s)
    if learned := [name for name in dict.fromkeys(names) if name in former_s.keys() - given_s]:
        works = (f"{name} {duration_text(former_s[name])}" for name in learned)
        say_lines([f"! work as in former launches: {', '.join(works)}"], err=True)
    by_job_ms, for_all_ms = longest_p99_ms(max_p99 or (), names)
    request = LaunchRequest(
        jobs=job_requests(names, names, min_speed or (), by_job_ms),
        max_p99_ms=for_all_ms,
        hang_s=hang_s,
        tries=tries,
    )
    if len({gpu.uuid for gpu in there}) < len(there):
        raise InputError(f"--gpus {gpus} names a GPU twice", fix="name each once: --gpus 0,1")
    launch = ResolvedLaunch(request=request, asked_by=user_name())
    cards = [QueueCard.read(queue_jobs, replace(launch, card=gpu), settings) for gpu in there]
    _check_alone(queue_jobs, cards)
    if once := listed({job.name: 0 for job in queue_jobs if tries > 1 and not job.restartable}):
        why = "a job file does not say restartable: true"
        say_lines([f"! sets with {once} are not tried: {why}"], err=True)
    with open_queue(settings.home, settings.jobs_dir, names) as file:
        if fresh and dry_run:
            file = QueueFile(file.path.with_suffix(".fresh"))  # is never written
        elif fresh:
            before = QueueRun(queue_jobs, cards, file, settings)
            before.stop()
            while (look := before.look()).launches:
                before.act(look)
                time.sleep(_LOOK_S)
            file.remove()
        queue = QueueRun(queue_jobs, cards, file, settings, limits_s, works_s, due_s)
        first = [*queue.first_sets()]
        look = queue.look()
        waiting = [name for name in _left(look, first) if queue.is_server(name)]
        if waiting and not (look.launches or look.record.ended):
            raise NoSplitError(
                f"{listed(waiting)} would find no place beside the other jobs",
                why="a server never ends, so no job can wait for it, and no job with a profile "
                "saves enough beside it within the limits of all",
                fix="name more GPUs with --gpus, allow more (--max-p99, --min-speed, --deadline), "
                f"or leave out {listed(waiting)}",
            )
        if dry_run:
            plan = _RunPlan(
                first=tuple(row for card, sets in first for row in _first_jobs(card, sets[0])),
                tried={
                    str(card.gpu.index): tuple(str(launch_set.split) for launch_set in sets)
                    for card, sets in first
                    if len(sets) > 1
                },
                running=tuple(job.status.job for launch in look.launches for job in launch.running),
                silent=tuple(
                    f"{launch_view.launch_id} is {launch_view.status.standing}"
                    for launch_view in look.launches
                    if launch_view.status.silent_s is not None
                ),
                waiting=tuple(_left(look, first)),
                spare_s={n: queue.spare_s(n) for n in _left(look, first) if n in due_s},
                alone=_alone(queue.cards),
                basis=_basis(queue.cards),
            )
            say(as_json_text(plan)) if as_json else print_screen(plan.screen())
            return
        if not as_json:
            texts = filter(None, (*_alone_texts(_alone(cards)), _basis(cards)))
            say_lines((f"! {text}" for text in texts), err=True)
        state = _follow(queue, as_json=as_json)
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
            fix=(
                "run them until they are stopped: advisor launch "
                f"{as_requested(j.name for j in jobs)}"
            ),
        )


def _assumed(text: str, gpu_model: str) -> list[Gpu]:
    """GPUs that need not be there, with what is known of their model."""
    model = named_model(gpu_model, MEMORY_MIB)
    return [
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


def _check_alone(jobs: Sequence[Job], cards: Sequence[QueueCard]) -> None:
    """Refuse a job that does not even fit alone, and a server of which nothing is known."""
    for card in cards:
        for job in jobs:
            check_memory([job], card.gpu)
            if job.offered_rate is not None and job.name in card.lacking:
                raise InputError(
                    f"{job.name} has no profile on {card.gpu.model}",
                    why="jobs that run beside a server must leave it what it needs",
                    fix=f"advisor profile {job.name}",
                )


def _left(look: QueueLook, first: Sequence[tuple[QueueCard, tuple[LaunchSet, ...]]]) -> list[str]:
    """Jobs that wait once these have started, in the order of the queue."""
    taken, names = Counter(job.name for _, sets in first for job in sets[0].jobs), look.waiting
    return [name for n, name in enumerate(names) if names[:n].count(name) >= taken[name]]


def _alone(cards: Sequence[QueueCard]) -> dict[str, str]:
    return {name: why for card in cards for name, why in card.lacking.items()}


def _basis(cards: Sequence[QueueCard]) -> str | None:
    """What speeds rest on, where that is no whole profile; None: all are of profiles."""
    profiles = [profile for card in cards for profile in card.profiles.values()]
    return basis_of(profiles) if any(SINGLE_WINDOW in p.flags for p in profiles) else None


def _first_jobs(card: QueueCard, made: LaunchSet) -> list[_RunJob]:
    names, split = [job.name for job in made.jobs], made.split
    expected = card.expected(names, split)
    speeds = [part.speed.value for part in expected.parts] if expected else [None] * len(names)
    return [
        _RunJob(
            job=name,
            gpu=card.gpu.index,
            state="waiting",
            share_percent=None if split.sharing == "time-sliced" else share,
            below_normal=low,
            predicted_speed=speed,
        )
        for name, (share, low), speed in zip(names, split.seats, speeds, strict=True)
    ]
