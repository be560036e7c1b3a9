"""`advisor profile` and `advisor check`: a job alone at each share, and right results by SM count.

A profile may be of a replay, and asked for by Python.
"""

import math
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from advisor.core.gpu import SM_QUANTUM, Gpu, Share, Vendor, percent_for_units, share_for_units
from advisor.core.job import Job, ProgressKind, ProgressSettings, check_single_gpu
from advisor.core.records import NO_POWER, SoloPoint
from advisor.core.wording import count_of, in_rows, measuring
from advisor.errors import InputError
from advisor.files import open_home
from advisor.formats.job_file import find_job, inline_job, load_job, save_job
from advisor.formats.rows import from_row, to_row
from advisor.formats.wire import to_plain
from advisor.runtime.progress_search import WATCHED_S, CountableJob, find_progress
from advisor.runtime.running_job import check_program
from advisor.settings import Settings, read_settings
from advisor.validity.points import why_no_profile, with_solo_flags
from advisor.validity.safe_counts import (
    CHECKS,
    CheckedCounts,
    Safety,
    check_for,
    keep_check,
    moved_text,
    safe_solo_shares,
)
from advisor.wire.answers import Tabular
from advisor_cli.console import (
    REPLAY,
    AllowUnsafe,
    AsJson,
    as_json_text,
    grouped,
    job_names,
    plain_console,
    say,
    say_lines,
    show_chart,
)
from advisor_cli.measure.testbeds import (
    Noise,
    On,
    Telemetry,
    check_engine,
    check_replay,
    liner,
    measured_timing,
    open_points,
    open_testbed,
    part_of,
    say_replay,
    stoppable,
)
from advisor_data import open_store
from advisor_data.bundled import bundled_solo_points
from advisor_power.data import with_fingerprint
from advisor_profiling import reports
from advisor_profiling.campaign.campaign import (
    DEFAULT_SHARES,
    SweepResult,
    new_run,
    plan,
    sweep,
    unfinished_run,
)
from advisor_profiling.campaign.plan import check_requested_shares, counts_on, safety_of
from advisor_profiling.counts import (
    CheckedGpu,
    CheckOutcome,
    check_counts,
    continues,
    counts_to_check,
    installed_libraries,
)
from advisor_profiling.fanout import FanOut, OnWhat, run_everywhere
from advisor_profiling.reports import ConsoleReporter, problems
from advisor_profiling.testbed import (
    Mode,
    PhaseLock,
    ReplayTestbed,
    SourceName,
    Testbed,
    computes,
    find_gpu,
    find_gpus,
    live_backend,
    with_units,
)
from advisor_profiling.window import RESULTS_ONLY, Clock, rules_for

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProfileRequest:
    """What is to be measured here, and how."""

    what: Annotated[
        list[str],
        typer.Argument(
            help="Job name or file, several with --on, --shard; with --name: the command, after --",
            autocompletion=job_names,
        ),
    ]
    name: Annotated[str | None, typer.Option(help="Name of a job given as a command")] = None
    unit: Annotated[str, typer.Option(help="With --name: unit of one step")] = "steps"
    progress: Annotated[
        ProgressKind | None,
        typer.Option(help="With --name: how to read progress (default: search the output)"),
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option(help="With --progress output: regular expression of a progress line"),
    ] = None
    shares: Annotated[str, typer.Option(help="Shares to measure, percent, such as 10,50,100")] = ""
    units: Annotated[str, typer.Option(help="SM counts to measure, such as 12,66,132")] = ""
    repeats: Annotated[int, typer.Option(min=1, help="Windows per share")] = 1
    window: Annotated[float, typer.Option(min=0.5, help="Longest window, s")] = 8
    gpu: Annotated[
        str, typer.Option(help="GPU index, UUID or `replay`; 0,1 for a job on two GPUs")
    ] = "0"
    source: Telemetry = None
    mode: Annotated[Mode | None, typer.Option(help="How to enforce shares")] = None
    noise: Noise = False
    allow_unsafe: AllowUnsafe = False
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Continue the last run, or start again")
    ] = True

    def _wanted(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Shares in percent, or exact counts of units.

        Raises:
            InputError: a list is none of numbers, both are given, or nothing is to be measured.
        """
        if self.repeats < 1:
            raise InputError(
                f"{self.repeats} windows per share measure nothing", fix="give --repeats 1"
            )
        shares, units = _numbers("shares", self.shares, float), _numbers("units", self.units, int)
        if shares and 0 < min(shares) < 1:
            percent = ",".join(f"{100 * share:g}" for share in shares if share <= 1)
            hint = f"did you mean {percent}? " if max(shares) <= 1 else ""
            raise InputError(
                f"--shares {self.shares} has a share below 1 %",
                why="shares are in percent, and a GPU gives no fewer SMs than at 1 %",
                fix=f"{hint}write percentages such as 10,50,100",
            )
        for share in shares:
            Share(share)  # refuses what no GPU can give, before a job is looked at
        if shares and units:
            raise InputError("--shares and --units were both given", fix="give one of them")
        return shares, units

    def shares_on(self, gpu: Gpu, mode: str) -> tuple[Share, ...]:
        """The shares that were asked for, in percent of this GPU, as `mode` can enforce them.

        Raises:
            InputError: they cannot be understood, or there is no limit.
        """
        shares, units = self._wanted()
        if mode == "uncapped":
            if units or set(shares) - {100.0}:
                raise InputError("without a limit 100 % is the only share", fix="use --mode mps")
            return (Share(100.0),)
        if units:
            vendor: Vendor = "amd" if mode == "cu_mask" else "nvidia"
            total = gpu.units_total or 0
            return tuple(Share(share_for_units(n, total, vendor)) for n in units)
        return tuple(map(Share, shares))

    def check(self) -> None:
        """Refuse what no GPU gives and no replay does, before a job is looked at.

        Raises:
            InputError: said so.
        """
        check_replay([self.gpu], self.noise, self.source, self.mode)
        if not 0 < self.window < math.inf:
            raise InputError(f"no window takes {self.window:g} s", fix="give --window 8")
        self._wanted()

    @property
    def replayed(self) -> bool:
        """Whether no GPU is used."""
        return self.gpu == REPLAY

    def job(self, settings: Settings) -> Job:
        """The job that is meant.

        Raises:
            InputError: there is none, or not one alone.
        """
        gpus = len(self.gpu.split(","))
        if self.name is None or self.replayed:
            what = self.what if self.name is None else [self.name]
            job = _named_job(what, settings, replayed=self.replayed)
            if job.gpus != gpus:
                raise InputError(
                    f"{job.name} holds {count_of(job.gpus, 'GPU')}, and --gpu {self.gpu} names "
                    f"{gpus}",
                    fix="name as many, such as --gpu 0,1, or set gpus in its job file",
                )
            return job
        if self.progress is None and self.pattern is None:
            return _searched_job(self.name, self.what, self.gpu, settings)
        kind = self.progress or ("output" if self.pattern else "counter")
        progress = ProgressSettings(kind=kind, unit=self.unit, pattern=self.pattern)
        return replace(inline_job(self.name, self.what, progress), gpus=gpus)


def _searched_job(name: str, command: Sequence[str], gpu: str, settings: Settings) -> Job:
    """A command that tells its progress in some way; its file is written and named.

    Raises:
        InputError: the name or the command cannot be used.
        JobError: nothing tells its progress, or it failed.
        SourceError: there is no such GPU.
    """
    file = settings.jobs_dir / f"{name}.yaml"
    if file.is_file() and (countable := load_job(file)).command == tuple(command):
        return countable
    job = inline_job(name, command, ProgressSettings())
    check_program(job, settings.job_environment())
    card = find_gpus(gpu)  # before the command is watched in vain
    say(f"looking for progress in what {name} prints, about {WATCHED_S:g} s", err=True)
    environment = {**settings.job_environment(), "CUDA_VISIBLE_DEVICES": gpu}
    countable = find_progress(command, environment, computes=lambda: computes(card))
    if countable.command != tuple(command):
        counted = shlex.join(countable.command)
        say(f"it prints no count and runs PyTorch, so {counted} counts its steps", err=True)
    _tell_match(name, countable)
    job = replace(
        inline_job(name, countable.command, countable.match.progress), gpus=len(card.each)
    )
    if not file.exists():
        save_job(job, file)
        say(f"kept as {file}", err=True)
    return job


def _tell_match(name: str, countable: CountableJob) -> None:
    """Show what was found, and what else could be taken."""
    match, progress = countable.match, countable.match.progress
    if countable.counted:
        say(
            f"it runs PyTorch, so its optimizer steps can be counted, and all shares be measured "
            f"in one run: advisor profile --name {name} -- {countable.counted}",
            err=True,
        )
    if match.line:
        say(f"found, in {progress.unit}: {match.line}", err=True)
    elif progress.kind == "metrics":
        say(f"found, in {progress.unit}: {progress.counter} at {progress.url}", err=True)
    else:
        gate = ", and stands at its gate" if progress.gate else ""
        say(f"found: it counts in its progress file{gate}", err=True)
    if other := match.runner_up:
        say(
            f"next best, in {other.progress.unit}: {other.line} "
            f"(--pattern {shlex.quote(other.progress.pattern or '')})",
            err=True,
        )


def _named_job(what: Sequence[str], settings: Settings, *, replayed: bool) -> Job:
    """The one job of that name or file, of a replay a recorded one.

    Raises:
        InputError: there is none, or not one alone.
    """
    if len(what) != 1:
        raise InputError(
            f"one job was expected, not {' '.join(what)}",
            fix=f"to profile a command: {measuring(what)}" if what else "give its name",
        )
    if not replayed:
        return find_job(what[0], settings.jobs_dir)
    recorded = ReplayTestbed(bundled_solo_points()).jobs
    if what[0] not in recorded:
        raise InputError(
            f"no recorded job {what[0]}", fix=f"recorded are: {', '.join(sorted(recorded))}"
        )
    return recorded[what[0]]


def _numbers(option: str, text: str, number: Callable[[str], _Number]) -> tuple[_Number, ...]:
    """What an option lists, divided by commas.

    Raises:
        InputError: it is no list of numbers.
    """
    try:
        return tuple(number(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        kind = "whole numbers" if number is int else "numbers"
        raise InputError(
            f"--{option} {text} is not a list of {kind}", fix=f"write --{option} 10,20,30"
        ) from error


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Profiled(Tabular):
    """What a sweep measured.

    Attributes:
        points: Those of the run, of an earlier call included that it went on with.
        lacking: Why these and what was stored make no profile yet; None: they make one.
    """

    job: Job
    gpu: Gpu
    points: tuple[SoloPoint, ...]
    result: SweepResult
    lacking: str | None

    @property
    def problems(self) -> list[str]:
        """What went wrong, in words; empty: nothing."""
        return problems(list(self.points), self.result, self.gpu.memory_mib)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The points, with the columns of docs/schema.md."""
        yield from (
            {**to_row(point), "flags": ";".join(point.flags)}
            for point in sorted(self.points, key=lambda p: (p.share_percent, p.repeat))
        )


def profile(
    *what: str,
    name: str | None = None,
    unit: str = "steps",
    progress: ProgressKind | None = None,
    pattern: str | None = None,
    shares: str | Sequence[float] = "",
    units: str | Sequence[int] = "",
    repeats: int = 1,
    window: float = 8,
    gpu: str | int = "0",
    source: SourceName | None = None,
    mode: Mode | None = None,
    noise: bool = False,
    allow_unsafe: bool = False,
    resume: bool = True,
) -> Profiled:
    """Measure a job alone at each share: rate, power and counters.

    Each point is kept as soon as it is measured; after Ctrl-C the same call goes on. How far it is
    stands on stderr, as of the command.

    Args:
        what: Name of a job, or its file; with `name` the words of a command.
        name: Of a job given as a command.
        unit: With `name`: what one step is.
        progress: With `name`: how progress is read; else found in the output.
        pattern: Of the output.
        shares: Percentages, such as `[10, 50, 100]`.
        units: Exact counts of SMs.
        repeats: Windows per share.
        window: Longest window, s.
        gpu: Index, UUID or `replay`; `0,1` for a job that holds two GPUs.
        source: Telemetry; the vendor's if not given.
        mode: How shares are enforced.
        noise: Replay with the measured noise.
        allow_unsafe: Also at counts of SMs at which results are wrong.
        resume: Whether to go on with the last run.

    Raises:
        AdvisorError: as the command ends with.
    """
    request = _ProfileRequest(
        what=[*what],
        name=name,
        progress=progress,
        unit=unit,
        pattern=pattern,
        shares=_listed(shares),
        units=_listed(units),
        repeats=repeats,
        gpu=str(gpu),
        source=source,
        mode=mode,
        window=window,
        noise=noise,
        allow_unsafe=allow_unsafe,
        resume=resume,
    )
    request.check()
    return _measure(request, read_settings(), plain_console(stderr=True))


def _measure(request: _ProfileRequest, settings: Settings, console: Console) -> Profiled:
    """Run the sweep; the console is told how far it is."""
    job = request.job(settings)
    if not request.replayed:
        check_program(job, settings.job_environment())
        job = with_fingerprint(job)
    rules = rules_for(
        request.window, measured_timing(settings, request.gpu, request.source, console)
    )
    run = new_run(Clock().utc())
    seed = run if request.noise else None
    with (
        open_testbed(
            settings, request.gpu, request.source, request.mode, run, noise=seed
        ) as testbed,
        open_points(settings, request.gpu) as store,
    ):
        gpu = testbed.gpu
        if request.replayed:
            say_replay(console, gpu.model, request.noise)
        points = store.solo_points(job=job.name)
        # A replay computes nothing.
        any_count = request.allow_unsafe or request.replayed or testbed.mode != "mps"
        counts = counts_on(gpu, settings.home, allow_unsafe=any_count)
        shares = _shares(request, job, testbed, safety_of(job.name, gpu, points, counts), console)
        kept: list[SoloPoint] = []
        # A campaign's points of the job alone are no sweep to go on with.
        campaigns = {run for run in {p.run for p in points} if store.pair_points(run=run)}
        sweeps = [p for p in points if p.run not in campaigns]
        if request.resume and (earlier := unfinished_run(sweeps, job, gpu, testbed.mode)):
            run, kept = earlier
        done = {(p.share_percent, p.repeat) for p in kept}
        planned = plan(job, shares, request.repeats, run)
        targets = [t for t in planned if (t.specs[0].share.percent, t.repeat) not in done]
        if kept:
            console.print(
                f"run {run} of {kept[-1].started_at[:10]} has {len(kept)} points, "
                f"{len(targets)} to go; --fresh measures again"
            )
        reporter = ConsoleReporter(console, replayed=request.replayed)
        result = sweep(targets, run, testbed, store, reporter, rules, kept=kept, counted=job)
        stored = [p for p in store.solo_points(job=job.name) if p.gpu_model == gpu.model]
    # Only a whole sweep shows which of its points drew too little power.
    flagged = with_solo_flags(result.points)
    return Profiled(
        job=job,
        gpu=gpu,
        points=tuple(flagged),
        result=result,
        lacking=why_no_profile(stored or flagged),
    )


def _listed(values: str | Sequence[float]) -> str:
    return values if isinstance(values, str) else ",".join(f"{value:g}" for value in values)


def _shares(
    request: _ProfileRequest, job: Job, testbed: Testbed, safety: Safety, console: Console
) -> tuple[Share, ...]:
    """What is measured: what was asked for, else the default shares at safe counts.

    A replay has all that was recorded.
    """
    shares = request.shares_on(testbed.gpu, testbed.mode)
    if isinstance(testbed, ReplayTestbed):
        return testbed.shares_alone(job.name, shares)
    if shares:
        check_requested_shares(shares, job, safety)
        return shares
    wanted = [share.percent for share in DEFAULT_SHARES]
    if moved := moved_text(wanted, safety):
        console.print(moved, highlight=False)
    return tuple(map(Share, safe_solo_shares(wanted, safety)))


@grouped
def profile_command(
    request: _ProfileRequest,
    on: On = "here",
    shard: Annotated[str, typer.Option(help="Part of the jobs to measure, such as 2/3")] = "1/1",
    as_json: AsJson = False,
) -> None:
    """Measure a job alone at each share: rate, power and counters.

    Each point is kept as soon as it is measured; after Ctrl-C or a crash the same command goes on.

    Example: advisor profile --name train -- python train.py
    """
    settings, console = read_settings(), plain_console(stderr=True)
    request.check()
    if on != "here":
        _profile_on_nodes(request, on, settings, console, as_json=as_json)
        return
    request = replace(request, what=_part(request.what, shard))
    with stoppable(console):
        profiled = _measure(request, settings, console)
    if as_json:
        say(as_json_text(_as_json(profiled, request.replayed)))
    else:
        _show_sweep(profiled, request.replayed)
    if profiled.result.failures:
        raise typer.Exit(5)
    if as_json or request.replayed:
        return
    name = profiled.job.name
    if profiled.lacking:
        here = f"advisor profile {name} --shares 50,100"
        after = (
            "measure it on a card that tells its power" if profiled.lacking == NO_POWER else here
        )
        say(f"no profile yet: {profiled.lacking}; next: {after}")
    elif request.name is not None:
        say(f"next: advisor recommend {name}")


def _part(what: Sequence[str], shard: str) -> list[str]:
    number, count = part_of(shard)
    if count == 1:
        return [*what]
    if count != len(what):
        raise InputError(f"--shard {shard} is not one of {len(what)} jobs", fix="name each job")
    return [what[number - 1]]


def _as_json(profiled: Profiled, replayed: bool) -> dict[str, Any]:
    points, result = _shown_points(profiled, replayed), profiled.result
    return {
        "job": profiled.job.name,
        "gpu_model": profiled.gpu.model,
        "gpu_uuid": profiled.gpu.uuid,
        "replay": replayed,
        "run": result.run,
        "points": [to_row(p) for p in sorted(points, key=lambda p: (p.share_percent, p.repeat))],
        "failures": [
            {
                "share_percent": f.target.specs[0].share.percent,
                "repeat": f.target.repeat,
                "error": str(f.cause),
            }
            for f in result.failures
        ],
        "idle_power_before_w": result.idle_before_w,
        "idle_power_after_w": result.idle_after_w,
        "duration_s": result.duration_s,
        "problems": profiled.problems,
    }


def _profile_on_nodes(
    request: _ProfileRequest, on: OnWhat, settings: Settings, console: Console, *, as_json: bool
) -> None:
    """A GPU of some node for each job, with all its shares."""
    what = request.what
    if request.name is not None:
        raise InputError(f"--name cannot be combined with --on {on}", fix="write a job file")
    if twice := sorted({word for word in what if what.count(word) > 1}):
        raise InputError(f"{twice[0]} is named twice", fix="name each job once")
    check_engine(on, request.gpu)
    jobs = [_named_job([word], settings, replayed=False) for word in what]
    for job in jobs:
        check_single_gpu(job.name, job.gpus)
    # What changes a job makes it another shard, whose old answer does not count.
    names = [f"{job.name}-{job.job_hash}" for job in jobs]
    wanted = FanOut(
        names=names,
        on=on,
        run=f"profile-{zlib.crc32(repr(names).encode()):08x}",
        keep_answers=request.resume,
        fresh=not request.resume,
        options=("--resume",),  # a shard that is started again goes on in any case
    )
    with stoppable(console), open_points(settings, request.gpu) as store:
        answers, code = run_everywhere(wanted, settings, store, liner(console))
    show_profiles(answers, as_json=as_json)
    if code:
        raise typer.Exit(code)


def _shown_points(profiled: Profiled, replayed: bool) -> list[SoloPoint]:
    """What was measured; of a replay as it was recorded."""
    points = [*map(reports.as_recorded, profiled.points)] if replayed else [*profiled.points]
    return [p for p in points if isinstance(p, SoloPoint)]


def _show_sweep(profiled: Profiled, replayed: bool) -> None:
    job, points = profiled.job, _shown_points(profiled, replayed)
    console = plain_console(least=reports.WIDTH)
    console.print(
        f"{job.name} on {profiled.gpu.model}, rate in {job.progress.unit}/s{_note(replayed)}"
    )
    if points:
        console.print(reports.table(points))
        if (requests := reports.requests(points)) is not None:
            console.print(requests)
        show_chart(reports.curves(points), below="share of the GPU, %")
        console.print(reports.summary(points, replayed=replayed), highlight=False)
    for line in profiled.problems:
        console.print(f"! {line}", highlight=False)


def show_profiles(answers: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print what `advisor profile --json` answered for each of several jobs."""
    if as_json:
        say(as_json_text({"profiles": list(answers)}))
        return
    console = plain_console(least=reports.WIDTH)
    for answer in answers:
        console.print(f"{answer['job']} on {answer['gpu_model']}{_note(answer['replay'])}")
        console.print(reports.table([from_row(SoloPoint, row) for row in answer["points"]]))
        for line in answer["problems"]:
            console.print(f"! {line}", highlight=False)


def _note(replayed: bool) -> str:
    return " (replay of recorded points)" if replayed else ""


# Operations that are named of those that were wrong at a count.
_NAMED = 3


def _check_lines(outcome: CheckOutcome) -> Iterator[str]:
    check = outcome.check
    versions = ", ".join(f"{name} {version}" for name, version in check.libraries.items())
    yield f"{check.gpu_model}, {check.units_total} SMs, driver {check.driver}, {versions}"
    yield f"safe      {_ranges(check.safe)}"
    yield f"unsafe    {_ranges(check.unsafe)}"
    for count in check.unsafe:
        names = check.wrong[count]
        named = ", ".join(names[:_NAMED]) + (", .." if len(names) > _NAMED else "")
        yield f"  {count:>4} SMs  {len(names)} of {len(check.operations)}: {named}"
    yield from (
        f"  {count:>4} SMs  not known: {reason}"
        for count, reason in sorted(outcome.unknown.items())
    )
    yield from (f"  not tried: {name}: {reason}" for name, reason in outcome.skipped.items())
    yield (
        f"{count_of(len(check.checked), 'count')}, {count_of(len(check.operations), 'operation')} "
        f"each, {check.seconds:.0f} s, {check.checked_at[:10]}"
    )
    yield (
        f"From now on no job is given {_ranges(check.unsafe)} SMs."
        if check.unsafe
        else "Every count that was checked may be given to a job."
    )


def _ranges(counts: Iterable[int]) -> str:
    """Counts in a row as one: 8-16 is every even count from 8 to 16."""
    rows = in_rows(counts, SM_QUANTUM)
    return " ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in rows) or "none"


def _check_job(
    name: str, gpu_name: str, counts: Sequence[int], gpu: Gpu, settings: Settings, as_json: bool
) -> None:
    """Run a job that reports results at each count, long enough to read them.

    The points are kept: their results decide where the job may run, and no profile has their rates.

    Raises:
        InputError: there is no such job.
        JobError: the job does not run, or reports nothing on the whole GPU.
    """
    job = with_fingerprint(find_job(name, settings.jobs_dir))
    check_single_gpu(name, job.gpus)
    console = plain_console(stderr=True)
    total, run = gpu.units_total or 0, new_run(Clock().utc())
    shares = [Share(percent_for_units(count, total)) for count in {*counts, total}]
    with (
        stoppable(console),
        open_testbed(settings, gpu_name, None, "mps", run) as testbed,
        open_store(settings.database_url, settings.home) as store,
    ):
        targets = plan(job, shares, 1, run)
        result = sweep(targets, run, testbed, store, reports.ConsoleReporter(console), RESULTS_ONLY)
    verdicts = sorted((p.units_granted or 0, p.results or "silent") for p in result.points)
    by_verdict = {
        verdict: [units for units, of in verdicts if of == verdict]
        for verdict in ("right", "wrong", "differ", "silent")
    }
    failed = {f"{f.target.specs[0].share}": f.reason for f in result.failures}
    answer = {"job": job.name, "gpu_model": gpu.model, **by_verdict, "failed": failed}
    say_lines([as_json_text(answer)] if as_json else _job_lines(answer, len(shares)))
    if total in by_verdict["silent"]:
        raise InputError(
            f"{job.name} reported nothing that can be compared",
            why="it reports no values, or none in its first second",
            fix="let it report its loss or a checksum: docs/job-file.md, Results",
        )
    if result.failures:
        raise typer.Exit(5)


def _job_lines(answer: dict[str, Any], count: int) -> Iterator[str]:
    yield f"{answer['job']} on {answer['gpu_model']}, {count} SM counts"
    yield f"right     {_ranges(answer['right'])}"
    yield from (
        f"{key:9} {_ranges(answer[key])}: {meaning}"
        for key, meaning in (
            ("wrong", "a result was not finite"),
            ("differ", "results are not those on the whole GPU"),
            ("silent", "nothing was reported that can be compared"),
        )
        if answer[key]
    )
    yield from (f"failed at {share} %: {reason}" for share, reason in answer["failed"].items())
    if avoided := [*answer["wrong"], *answer["differ"]]:
        yield f"From now on {answer['job']} is not given {_ranges(sorted(avoided))} SMs."


def check(
    gpu: Annotated[str, typer.Option(help="Index or UUID")] = "0",
    counts: Annotated[str, typer.Option(help="SM counts, such as 66,92 (default: all)")] = "",
    python: Annotated[str, typer.Option(help="Python interpreter with PyTorch")] = "python3",
    job: Annotated[
        str | None, typer.Option(help="Check the results of this job instead of the libraries")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Check known counts again")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the numbers of SMs at which libraries of this host compute right results.

    Matrix products, convolutions, attention and more are computed at each count and compared with
    the whole GPU. After Ctrl-C or a crash the same command goes on.

    Example: advisor check --gpu 0
    """
    settings, console = read_settings(), plain_console(stderr=True)
    card = with_units(find_gpu(gpu), settings)
    if card.vendor != "nvidia":
        raise InputError(
            f"{card.model} is not checked",
            why="wrong results were found under NVIDIA MPS only",
            fix="choose an NVIDIA GPU with --gpu",
        )
    wanted = counts_to_check(_numbers("counts", counts, int), card)
    if job is not None:
        _check_job(job, gpu, wanted, card, settings, as_json)
        return
    libraries = installed_libraries(python, settings.job_environment())
    kept = _kept_check(card, wanted, libraries, settings, fresh, console)
    if kept is not None and set(wanted) <= set(kept.checked):
        console.print("all of these were checked before; --fresh checks them again")
        outcome = CheckOutcome(kept, {}, {})
    else:
        folder = open_home(settings.home, "logs", f"check-{Clock().utc().replace(':', '')}")
        with (
            stoppable(console),
            live_backend(settings, gpu, "mps") as backend,
            PhaseLock(settings.lock_dir).starting(),
        ):
            console.print("  the reference on the whole GPU ...", highlight=False)
            outcome = check_counts(
                wanted,
                python,
                CheckedGpu(backend, settings.job_environment(), folder),
                kept,
                keep=lambda check: keep_check(check, settings.home),
                report=lambda step: console.print(f"  {step}", highlight=False, soft_wrap=True),
            )
    found = outcome.check
    answer = {
        **to_plain(found),
        "safe": list(found.safe),
        "unsafe": list(found.unsafe),
        "not_known": outcome.unknown,
        "skipped": outcome.skipped,
    }
    say_lines([as_json_text(answer)] if as_json else _check_lines(outcome))
    if outcome.unknown:
        raise typer.Exit(5)


def _kept_check(
    gpu: Gpu,
    wanted: Sequence[int],
    libraries: Mapping[str, str],
    settings: Settings,
    fresh: bool,
    console: Console,
) -> CheckedCounts | None:
    """What an earlier check found and still holds."""
    if (kept := check_for(gpu.model, CHECKS.read(settings.home))) is None:
        return None
    if not continues(kept, gpu, libraries):
        changed = kept.differs_from(gpu.driver or "", libraries) or f"on card {kept.gpu_uuid}"
        console.print(f"checked before, but {changed}: all is checked again", soft_wrap=True)
        return None
    left = kept.without(wanted) if fresh else kept
    return left if left.checked else None
