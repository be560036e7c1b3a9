"""`advisor profile`: measure one job alone at each share."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from advisor.cli.measure.on_nodes import Into, On
from advisor.cli.measure.profile_on_nodes import profile_on_nodes
from advisor.cli.measure.testbeds import (
    REPLAY,
    LongestWindow,
    Noise,
    Telemetry,
    check_replay,
    known_timing,
    open_points,
    open_testbed,
    part_of,
    reporter_for,
    say_replay,
    stoppable,
)
from advisor.cli.shared.console import plain_console, show_chart
from advisor.cli.shared.options import AllowUnsafe, AsJson
from advisor.core.gpu import Gpu, Share, Vendor
from advisor.core.job import Job, ProgressKind
from advisor.core.records import SoloPoint
from advisor.core.units import share_for_units
from advisor.errors import InputError
from advisor.formats.job_file import find_job, inline_job
from advisor.formats.rows import to_row
from advisor.runtime.jobs.launcher import check_program
from advisor.settings import Settings, read_settings
from advisor.validity.degenerate import with_solo_flags
from advisor.validity.safe_counts import Safety
from advisor.validity.safe_splits import moved_text
from advisor_data import Store
from advisor_data.files.bundled import bundled_solo_points
from advisor_profiling.campaign.outcome import Reporter
from advisor_profiling.campaign.safe_plan import check_asked_shares, counts_on, default_shares
from advisor_profiling.campaign.sweep import (
    DEFAULT_SHARES,
    SweepResult,
    new_run,
    plan,
    sweep,
    unfinished_run,
)
from advisor_profiling.operands.of_job import input_fingerprint
from advisor_profiling.reports import sweep as report
from advisor_profiling.testbed.live import Mode
from advisor_profiling.testbed.replay import ReplayTestbed
from advisor_profiling.testbed.testbed import Testbed
from advisor_profiling.window.clock import LiveClock
from advisor_profiling.window.rules import WindowRules, rules_for

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What is to be measured: shares in percent, or exact counts of units."""

    shares: tuple[float, ...]
    units: tuple[int, ...]
    repeats: int

    def shares_on(self, gpu: Gpu, mode: str) -> tuple[Share, ...]:
        """The shares that were asked for, in percent of this GPU, as `mode` can enforce them."""
        if mode == "uncapped":
            if self.units or set(self.shares) - {100.0}:
                raise InputError("without a limit 100 % is the only share", fix="use --mode mps")
            return (Share(100.0),)
        if self.units:
            vendor: Vendor = "amd" if mode == "cu_mask" else "nvidia"
            total = gpu.units_total or 0
            return tuple(Share(share_for_units(n, total, vendor)) for n in self.units)
        return tuple(map(Share, self.shares))


def profile(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Job name or file, with --on several; with --name: the command, after --"
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Name of a job given as a command")] = None,
    unit: Annotated[str, typer.Option(help="With --name: what one step is")] = "steps",
    progress: Annotated[
        ProgressKind, typer.Option(help="With --name: how progress is read (docs/progress.md)")
    ] = "counter",
    pattern: Annotated[str | None, typer.Option(help="With --progress output")] = None,
    shares: Annotated[str, typer.Option(help="Percentages, such as 10,50,100")] = "",
    units: Annotated[str, typer.Option(help="Exact SM counts, such as 12,66,132")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="Windows per share")] = 1,
    window: LongestWindow = 8,
    gpu: Annotated[str, typer.Option(help="Index, UUID or `replay`")] = "0",
    on: On = "here",
    shard: Annotated[str, typer.Option(hidden=True)] = "1/1",
    into: Into = None,
    source: Telemetry = None,
    mode: Annotated[Mode | None, typer.Option(help="How shares are enforced")] = None,
    noise: Noise = False,
    allow_unsafe: AllowUnsafe = False,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on with the last run, or start again")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Measure a job alone at each share: rate, power and counters.

    Each point is kept as soon as it is measured; after Ctrl-C or a crash the same command goes on.
    """
    settings = read_settings()
    wanted = _wanted(shares, units, repeats)
    check_replay([gpu], noise, source, mode)
    console = plain_console(stderr=True)
    if on != "here":
        if name is not None:
            raise InputError(f"--name cannot be combined with --on {on}", fix="write a job file")
        jobs = [_named_job([word], settings, replayed=gpu == REPLAY) for word in what]
        profile_on_nodes(on, jobs, settings, console, gpu=gpu, fresh=not resume, as_json=as_json)
        return
    if into is not None:
        what = [what[part_of(shard)[0] - 1]]
    if name is not None:
        job = inline_job(name, what, kind=progress, unit=unit, pattern=pattern)
    else:
        job = _named_job(what, settings, replayed=gpu == REPLAY)
    if gpu != REPLAY:
        check_program(job, settings.job_environment())
        input_fingerprint(job.input)
    rules = rules_for(window, known_timing(settings, gpu, source, console))
    run = new_run(LiveClock().utc())
    seed = run if noise else None
    with (
        stoppable(console),
        open_testbed(settings, gpu, source, mode, run, noise=seed) as testbed,
    ):
        if gpu == REPLAY:
            say_replay(console, testbed.gpu.model, noise)
        reporter = reporter_for(console, into)
        with open_points(settings, gpu, into) as store:
            # A replay computes nothing.
            any_count = allow_unsafe or gpu == REPLAY
            safety = _safety(job, testbed, store, settings, allow_unsafe=any_count)
            chosen = _shares(job, wanted, testbed, safety, console)
            points, result = _measure(
                job, chosen, wanted.repeats, run, testbed, store, rules, resume, console, reporter
            )
    _show(job, testbed.gpu, points, result, as_json, replayed=gpu == REPLAY)
    if result.failures:
        raise typer.Exit(5)


def _wanted(shares: str, units: str, repeats: int) -> SweepRequest:
    wanted = SweepRequest(_numbers("shares", shares, float), _numbers("units", units, int), repeats)
    if wanted.shares and wanted.units:
        raise InputError("--shares and --units were both given", fix="give one of them")
    return wanted


def _safety(
    job: Job, testbed: Testbed, store: Store, settings: Settings, *, allow_unsafe: bool
) -> Safety:
    """What is known of the counts of the GPU; nothing where none is to be avoided."""
    any_count = allow_unsafe or testbed.mode != "mps"
    counts = counts_on(testbed.gpu, settings.home, allow_unsafe=any_count)
    return counts.safety(job.name, testbed.gpu, store.solo_points(job=job.name))


def _shares(
    job: Job, wanted: SweepRequest, testbed: Testbed, safety: Safety, console: Console
) -> tuple[Share, ...]:
    """What is measured: what was asked for, else the default shares at safe counts."""
    if asked := wanted.shares_on(testbed.gpu, testbed.mode):
        check_asked_shares(asked, job, safety)
        return asked
    if moved := moved_text([share.percent for share in DEFAULT_SHARES], safety):
        console.print(moved, highlight=False)
    return default_shares(DEFAULT_SHARES, safety)


def _measure(
    job: Job,
    shares: Sequence[Share],
    repeats: int,
    run: str,
    testbed: Testbed,
    store: Store,
    rules: WindowRules,
    resume: bool,
    console: Console,
    reporter: Reporter,
) -> tuple[list[SoloPoint], SweepResult]:
    earlier = _earlier(job, testbed, store) if resume else None
    run, kept = earlier or (run, [])
    done = {(p.share_percent, p.repeat) for p in kept}
    planned = plan(job, shares, repeats, run)
    targets = [t for t in planned if (t.specs[0].share.percent, t.repeat) not in done]
    if kept:
        console.print(
            f"run {run} of {kept[-1].started_at[:10]} has {len(kept)} points, "
            f"{len(targets)} to go; --fresh measures again"
        )
    result = sweep(targets, run, testbed, store, reporter, rules)
    # Only a whole sweep shows which of its points drew too little power.
    return with_solo_flags([*kept, *result.points]), result


def _earlier(job: Job, testbed: Testbed, store: Store) -> tuple[str, list[SoloPoint]] | None:
    """The sweep to go on with; a campaign's points of the job alone are none."""
    points = store.solo_points(job=job.name)
    campaigns = {run for run in {p.run for p in points} if store.pair_points(run=run)}
    sweeps = [p for p in points if p.run not in campaigns]
    return unfinished_run(sweeps, job, testbed.gpu, testbed.mode)


def _show(
    job: Job,
    gpu: Gpu,
    points: list[SoloPoint],
    result: SweepResult,
    as_json: bool,
    replayed: bool,
) -> None:
    wrong = report.problems(points, result, gpu.memory_mib)
    if as_json:
        typer.echo(json.dumps(_as_json(job, gpu, points, result, wrong, replayed)))
        return
    console = plain_console()
    # Flags are never cut off: on a narrow terminal their lines wrap.
    console.width = max(console.width, report.WIDTH)
    console.print(f"{job.name} on {gpu.model}, rate in {job.progress.unit}/s{_note(replayed)}")
    if points:
        console.print(report.table(points))
        if (requests := report.requests(points)) is not None:
            console.print(requests)
        show_chart(report.plot(points))
        console.print(report.summary(points), highlight=False)
    for line in wrong:
        console.print(f"! {line}", highlight=False)


def _note(replayed: bool) -> str:
    return " (replay of recorded points)" if replayed else ""


def _as_json(
    job: Job,
    gpu: Gpu,
    points: list[SoloPoint],
    result: SweepResult,
    wrong: list[str],
    replayed: bool,
) -> dict[str, Any]:
    return {
        "job": job.name,
        "gpu_model": gpu.model,
        "gpu_uuid": gpu.uuid,
        "replay": replayed,
        "run": result.run,
        "points": [to_row(p) for p in sorted(points, key=lambda p: (p.share_percent, p.repeat))],
        "failures": [
            {
                "share_percent": f.target.specs[0].share.percent,
                "repeat": f.target.repeat,
                "error": f.error,
            }
            for f in result.failures
        ],
        "idle_power_before_w": result.idle_before_w,
        "idle_power_after_w": result.idle_after_w,
        "duration_s": result.duration_s,
        "problems": wrong,
    }


def _named_job(what: list[str], settings: Settings, *, replayed: bool) -> Job:
    if len(what) != 1:
        raise InputError(
            f"one job was expected, not {' '.join(what)}",
            fix="to profile a command: advisor profile --name NAME -- COMMAND",
        )
    if not replayed:
        return find_job(what[0], settings.jobs_dir)
    recorded = ReplayTestbed(bundled_solo_points()).jobs()
    if what[0] not in recorded:
        raise InputError(
            f"no recorded job {what[0]}", fix=f"recorded are: {', '.join(sorted(recorded))}"
        )
    return recorded[what[0]]


def _numbers(option: str, text: str, number: Callable[[str], _Number]) -> tuple[_Number, ...]:
    try:
        return tuple(number(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        kind = "whole numbers" if number is int else "numbers"
        raise InputError(
            f"--{option} {text} is not a list of {kind}", fix=f"write --{option} 10,20,30"
        ) from error
