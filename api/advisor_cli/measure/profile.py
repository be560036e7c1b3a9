"""`advisor profile`: measure one job alone at each share."""

import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from advisor.core.gpu import Share
from advisor.core.job import Job, ProgressKind
from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor.runtime.jobs.launcher import check_program
from advisor.settings import Settings, read_settings
from advisor.validity.degenerate import with_solo_flags
from advisor.validity.safe_counts import Safety
from advisor.validity.safe_splits import moved_text
from advisor.validity.usable import why_no_profile
from advisor_cli.measure.on_nodes import NodesRequest, On, OnWhat, run_on_nodes
from advisor_cli.measure.profile_request import ProfileRequest, named_job, sweep_request
from advisor_cli.measure.profile_text import show_profiles, show_sweep
from advisor_cli.measure.testbeds import (
    LongestWindow,
    Noise,
    Telemetry,
    check_replay,
    known_timing,
    open_points,
    open_testbed,
    part_of,
    say_replay,
)
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.options import AllowUnsafe, AsJson, job_names
from advisor_cli.shared.say import say
from advisor_cli.shared.stopping import stoppable
from advisor_data import Store
from advisor_power.operands.of_job import with_fingerprint
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
from advisor_profiling.reports.sweep import ConsoleReporter
from advisor_profiling.testbed.live import Mode
from advisor_profiling.testbed.testbed import Testbed
from advisor_profiling.window.clock import LiveClock
from advisor_profiling.window.rules import WindowRules, rules_for


def profile(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Job name or file, several with --on, --shard; with --name: the command, after --",
            autocompletion=job_names,
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Name of a job given as a command")] = None,
    unit: Annotated[str, typer.Option(help="With --name: what one step is")] = "steps",
    progress: Annotated[
        ProgressKind | None,
        typer.Option(help="With --name: how progress is read; else found in the output"),
    ] = None,
    pattern: Annotated[str | None, typer.Option(help="With --progress output")] = None,
    shares: Annotated[str, typer.Option(help="Percentages, such as 10,50,100")] = "",
    units: Annotated[str, typer.Option(help="Exact SM counts, such as 12,66,132")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="Windows per share")] = 1,
    window: LongestWindow = 8,
    gpu: Annotated[str, typer.Option(help="Index, UUID or `replay`")] = "0",
    on: On = "here",
    shard: Annotated[str, typer.Option(help="Of several jobs the one to measure, as 2/3")] = "1/1",
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

    Example: advisor profile --name train -- python train.py
    """
    settings, console = read_settings(), plain_console(stderr=True)
    wanted = sweep_request(shares, units, repeats)
    check_replay([gpu], noise, source, mode)
    if on != "here":
        jobs = _jobs_of_nodes(what, name, on, settings)
        request = _nodes_request(on, jobs, gpu, fresh=not resume)
        _profile_on_nodes(request, jobs, settings, console, as_json=as_json)
        return
    asked = ProfileRequest(
        what=_part(what, shard),
        name=name,
        progress=progress,
        unit=unit,
        pattern=pattern,
        sweep=wanted,
        gpu=gpu,
        source=source,
        mode=mode,
        window_s=window,
        noise=noise,
        allow_unsafe=allow_unsafe,
        resume=resume,
        as_json=as_json,
    )
    _profile_here(asked, settings, console)


def _part(what: Sequence[str], shard: str) -> tuple[str, ...]:
    number, count = part_of(shard)
    if count == 1:
        return tuple(what)
    if count != len(what):
        raise InputError(f"--shard {shard} is not one of {len(what)} jobs", fix="name each job")
    return (what[number - 1],)


def _jobs_of_nodes(
    what: Sequence[str], name: str | None, on: OnWhat, settings: Settings
) -> list[Job]:
    if name is not None:
        raise InputError(f"--name cannot be combined with --on {on}", fix="write a job file")
    if twice := sorted({word for word in what if what.count(word) > 1}):
        raise InputError(f"{twice[0]} is named twice", fix="name each job once")
    return [named_job([word], settings, replayed=False) for word in what]


def _nodes_request(on: OnWhat, jobs: Sequence[Job], gpu: str, *, fresh: bool) -> NodesRequest:
    run = f"profile-{zlib.crc32(repr(_shard_names(jobs)).encode()):08x}"
    # A shard that is started again goes on in any case.
    return NodesRequest(
        on=on, run=run, gpu=gpu, keep_answers=not fresh, fresh=fresh, options=("--resume",)
    )


def _shard_names(jobs: Sequence[Job]) -> list[str]:
    """What changes a job makes it another shard, whose old answer does not count."""
    return [f"{job.name}-{job.job_hash}" for job in jobs]


def _profile_on_nodes(
    request: NodesRequest,
    jobs: Sequence[Job],
    settings: Settings,
    console: Console,
    *,
    as_json: bool,
) -> None:
    """A GPU of some node for each job, with all its shares."""
    with stoppable(console), open_points(settings, request.gpu) as store:
        answers, code = run_on_nodes(request, _shard_names(jobs), settings, store, console)
    show_profiles(answers, as_json=as_json)
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """A job, and everything open that measuring it needs."""

    asked: ProfileRequest
    job: Job
    run: str
    testbed: Testbed
    store: Store
    rules: WindowRules
    reporter: Reporter
    console: Console


def _profile_here(asked: ProfileRequest, settings: Settings, console: Console) -> None:
    job = asked.job(settings)
    if not asked.replayed:
        check_program(job, settings.job_environment())
        job = with_fingerprint(job)
    with _opened(asked, job, settings, console) as opened:
        shares = _shares(opened, _safety(opened, settings))
        points, result = _measure(opened, shares)
        gpu_model = opened.testbed.gpu.model
        stored = [p for p in opened.store.solo_points(job=job.name) if p.gpu_model == gpu_model]
        lacking = why_no_profile(stored or points)
    show_sweep(
        job,
        opened.testbed.gpu,
        points,
        result,
        as_json=asked.as_json,
        replayed=asked.replayed,
    )
    if result.failures:
        raise typer.Exit(5)
    if asked.as_json or asked.replayed:
        return
    if lacking:
        say(f"no profile yet: {lacking}; next: advisor profile {job.name} --shares 50,100")
    elif asked.name is not None:
        say(f"next: advisor recommend {job.name}")


@contextmanager
def _opened(
    asked: ProfileRequest, job: Job, settings: Settings, console: Console
) -> Generator[_Sweep]:
    """The testbed, and the store that its points go to."""
    rules = rules_for(asked.window_s, known_timing(settings, asked.gpu, asked.source, console))
    run = new_run(LiveClock().utc())
    seed = run if asked.noise else None
    with (
        stoppable(console),
        open_testbed(settings, asked.gpu, asked.source, asked.mode, run, noise=seed) as testbed,
    ):
        if asked.replayed:
            say_replay(console, testbed.gpu.model, asked.noise)
        with open_points(settings, asked.gpu) as store:
            yield _Sweep(
                asked=asked,
                job=job,
                run=run,
                testbed=testbed,
                store=store,
                rules=rules,
                reporter=ConsoleReporter(console, replayed=asked.replayed),
                console=console,
            )


def _safety(opened: _Sweep, settings: Settings) -> Safety:
    """What is known of the counts of the GPU; nothing where none is to be avoided."""
    job, testbed = opened.job, opened.testbed
    # A replay computes nothing.
    any_count = opened.asked.allow_unsafe or opened.asked.replayed or testbed.mode != "mps"
    counts = counts_on(testbed.gpu, settings.home, allow_unsafe=any_count)
    return counts.safety(job.name, testbed.gpu, opened.store.solo_points(job=job.name))


def _shares(opened: _Sweep, safety: Safety) -> tuple[Share, ...]:
    """What is measured: what was asked for, else the default shares at safe counts."""
    testbed = opened.testbed
    if asked := opened.asked.sweep.shares_on(testbed.gpu, testbed.mode):
        check_asked_shares(asked, opened.job, safety)
        return asked
    if moved := moved_text([share.percent for share in DEFAULT_SHARES], safety):
        opened.console.print(moved, highlight=False)
    return default_shares(DEFAULT_SHARES, safety)


def _measure(opened: _Sweep, shares: Sequence[Share]) -> tuple[list[SoloPoint], SweepResult]:
    """All points of the run, those that it had before included, and what came of the rest."""
    run, kept = (_earlier(opened) if opened.asked.resume else None) or (opened.run, [])
    done = {(p.share_percent, p.repeat) for p in kept}
    planned = plan(opened.job, shares, opened.asked.sweep.repeats, run)
    targets = [t for t in planned if (t.specs[0].share.percent, t.repeat) not in done]
    if kept:
        opened.console.print(
            f"run {run} of {kept[-1].started_at[:10]} has {len(kept)} points, "
            f"{len(targets)} to go; --fresh measures again"
        )
    result = sweep(targets, run, opened.testbed, opened.store, opened.reporter, opened.rules)
    # Only a whole sweep shows which of its points drew too little power.
    return with_solo_flags([*kept, *result.points]), result


def _earlier(opened: _Sweep) -> tuple[str, list[SoloPoint]] | None:
    """The sweep to go on with; a campaign's points of the job alone are none."""
    job, testbed, store = opened.job, opened.testbed, opened.store
    points = store.solo_points(job=job.name)
    campaigns = {run for run in {p.run for p in points} if store.pair_points(run=run)}
    sweeps = [p for p in points if p.run not in campaigns]
    return unfinished_run(sweeps, job, testbed.gpu, testbed.mode)
