"""`advisor launch`: run jobs together at a proven split, and watch them."""

import getpass
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Annotated

import typer

from advisor.core.gpu import Gpu
from advisor.core.job import Job
from advisor.core.split import ADVISED_JOBS
from advisor.core.wording import as_asked, counted, less_or_more, listed
from advisor.errors import AdvisorError, InputError, SourceError
from advisor.launch.folder import (
    JoinAnswer,
    JoinRequest,
    LaunchFolder,
    ask_join,
    create_folder,
    find_folder,
    last_answer,
    withdraw,
)
from advisor.launch.overview import LaunchPlan, PlannedJob, PlannedMemory, PlannedPair
from advisor.launch.start import check_memory, plan_of, spawn_supervisor
from advisor.launch.status import LaunchStatus
from advisor.settings import Settings, read_settings
from advisor.wire.requests import LaunchRequest, NextPair, WhenOneEnds, WhenP99Breaks, check_launch
from advisor_advice.launching import ResolvedLaunch, check_arguments, make_join, make_spec
from advisor_advice.options import every_job, job_requests, longest_p99_ms
from advisor_cli.console import plain_console, print_screen
from advisor_cli.launch_text import (
    asking_to_stop,
    end_screens,
    error_codes,
    exit_code,
    final_json,
    line,
    observations,
    show_json,
    show_lines,
    show_live,
    statuses,
)
from advisor_cli.options import (
    AllowUnsafe,
    AsJson,
    LimitOptions,
    ObjectiveOption,
    grouped,
    job_names,
)
from advisor_cli.say import as_json_text, say, say_lines
from advisor_profiling import SUPERVISOR
from advisor_profiling.testbed import find_gpu, with_units

_OF_LAUNCH = "this is settled when a launch begins, for all of its jobs"

_NOT_OF_JOIN = {
    **dict.fromkeys(("split", "then"), "those that run keep their shares"),
    "gpu": "the job joins on the GPU of the launch",
    "detach": "the command returns as soon as the job runs beside the others",
    "dry_run": "the shares of the launch and the job's forecast are shown as it joins",
    **dict.fromkeys(
        (
            "when_one_ends",
            "when_p99_breaks",
            "duration_s",
            "hang_s",
            "stop_on_wrong_results",
            "strict",
        ),
        _OF_LAUNCH,
    ),
}
"""Options that say nothing of a job that joins, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How those that run together are kept, and when they are ended, as `LaunchRequest` has it."""

    split: Annotated[
        str | None,
        typer.Option(
            help="30/70, 100/50/100 (100 is no limit), uncapped or time-sliced; if not given, the "
            "recommended one"
        ),
    ] = None
    objective: ObjectiveOption = None
    allow_unsafe: AllowUnsafe = False
    stop_on_wrong_results: Annotated[
        bool,
        typer.Option(
            "--stop-on-wrong-results", help="Stop all jobs when one reports a wrong result"
        ),
    ] = False
    strict: Annotated[
        bool, typer.Option("--strict", help="End all when a process of no job computes on the GPU")
    ] = False
    limit_memory: Annotated[
        bool,
        typer.Option(
            "--limit-memory/--no-memory-limit",
            help="Under MPS no job takes more GPU memory than it is known to need, and a margin",
        ),
    ] = True
    when_one_ends: Annotated[
        WhenOneEnds, typer.Option(help="The others go on under their limits, or are stopped")
    ] = "keep"
    when_p99_breaks: Annotated[
        WhenP99Breaks,
        typer.Option(
            help="Of a server that breaks its promised p99: tell, or end the newest batch job"
        ),
    ] = "tell"
    duration_s: Annotated[
        float | None,
        typer.Option("--duration", help="Stop those that run together after this many seconds"),
    ] = None
    hang_s: Annotated[
        float | None,
        typer.Option(
            "--hang-after",
            help="End a job without progress for this many seconds, but no idle server; if not "
            "given, it is shown as stalled",
        ),
    ] = None


@grouped
def launch(
    context: typer.Context,
    jobs: Annotated[
        list[str],
        typer.Argument(
            help="Names of two to seven jobs of the folder of jobs, A*3 for three of A",
            metavar="A B ...",
            autocompletion=job_names,
        ),
    ],
    rules: Rules,
    limits: LimitOptions,
    then: Annotated[
        list[str] | None, typer.Option(help="Jobs for afterwards, C+D*2; may be given again")
    ] = None,
    join: Annotated[
        str | None, typer.Option(help="Let one job join this launch, which runs", metavar="ID")
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Of the job that joins, percent; if not given, the best beside the rest"),
    ] = None,
    gpu: Annotated[str, typer.Option(help="Index or UUID")] = "0",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be started, and start nothing")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return as soon as all run under proven limits")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run two to seven jobs together on one GPU at a proven split, and watch them.

    Without --split the recommended one is taken. Ctrl-C stops all jobs in the safe order; closing
    the terminal, or killing this command, leaves them running and watched.

    Example: advisor launch train score --split 66/34 --detach
    """
    settings = read_settings()
    together = [every_job(jobs), *map(_together, then or ())]
    _check_join(context, join, share)
    asked = replace(_of_jobs(together, limits), **asdict(rules))
    check_launch(asked if share is None else replace(asked, split=f"{share:g}"))
    if join is None:
        check_arguments(asked, settings)
    else:
        # Of a launch without a GPU yet, which nobody can join either, it is the wanted one.
        folder = find_folder(settings.home / "launches", join)
        gpu = folder.read_status().gpu_uuid or folder.read_spec().gpu
    seen = _see_gpu(gpu, settings, needed=not dry_run)
    wanted = ResolvedLaunch(
        request=asked, gpu=gpu, card=seen, profiles=limits.profiles, asked_by=user_name()
    )
    if join is not None:
        raise typer.Exit(join_launch(join, together[0], share, wanted, settings, as_json=as_json))
    if dry_run:
        spec = make_spec(wanted, settings)
        plan = plan_of(spec, wanted.card, settings)
        pairs = (
            replace(planned, jobs=tuple(map(_with_file, planned.jobs, pair.jobs)))
            for planned, pair in zip(plan.pairs, spec.pairs, strict=True)
        )
        plan = replace(plan, pairs=tuple(pairs))
        say_lines([as_json_text(plan)] if as_json else _plan_lines(plan))
        return
    raise typer.Exit(_launch(wanted, settings, detach=detach, as_json=as_json))


def _check_join(context: typer.Context, join: str | None, share: float | None) -> None:
    if join is None and share is not None:
        raise InputError("--share is of a job that joins", fix="give --split, or --join ID")
    for option in context.command.params if join is not None else ():
        source = context.get_parameter_source(option.name or "")
        if option.name in _NOT_OF_JOIN and source is not None and source.name != "DEFAULT":
            raise InputError(
                f"{option.opts[0]} does not go with --join",
                why=_NOT_OF_JOIN[option.name],
                fix="give the share of the job that joins: --share 50"
                if option.name == "split"
                else "leave it out",
            )


def _of_jobs(together: Sequence[tuple[str, ...]], limits: LimitOptions) -> LaunchRequest:
    """Those that run together, one after the other, and what each of them must keep."""
    names = [name for each in together for name in each]
    by_job_ms, for_all_ms = longest_p99_ms(limits.max_p99 or (), names)
    least = limits.min_speed or ()
    first, *rest = (job_requests(each, names, least, by_job_ms) for each in together)
    return LaunchRequest(
        jobs=first,
        then=tuple(NextPair(jobs=each) for each in rest),
        max_p99_ms=for_all_ms,
        max_power_w=limits.max_power,
        memory_mib=limits.memory,
        gpu_model=limits.gpu_model,
    )


def user_name() -> str:
    """Who asks, as launches keep it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container a user may be a number only.
        return str(os.getuid())


def _together(text: str) -> tuple[str, ...]:
    names = every_job(text.split("+"))
    if len(names) < ADVISED_JOBS or not all(names):
        raise InputError(f"--then {text} names no jobs to share a GPU", fix="write --then C+D")
    return names


def _see_gpu(name: str, settings: Settings, *, needed: bool) -> Gpu | None:
    """The GPU; None where there is none and it is not needed."""
    try:
        return with_units(find_gpu(name), settings)
    except SourceError:
        if needed:
            raise
        return None


def _launch(wanted: ResolvedLaunch, settings: Settings, *, detach: bool, as_json: bool) -> int:
    """Start the jobs and follow them; the exit code of the command."""
    spec = make_spec(wanted, settings)
    if wanted.card:
        for pair in spec.pairs:
            check_memory(pair, wanted.card)
    folder = create_folder(settings.home / "launches", spec)
    supervisor = spawn_supervisor(folder, settings, SUPERVISOR)
    if detach:
        return _detached(folder, statuses(folder, supervisor), as_json=as_json)
    if not as_json:
        say_lines((f"! {note}" for note in spec.notes), err=True)
    show = show_live if plain_console().is_terminal else show_lines
    found = statuses(folder, supervisor)
    with asking_to_stop(folder.ask_stop):
        status = show_json(found, folder) if as_json else show(found)
    if not as_json:
        for screen in end_screens(status, observations(folder), settings.prices):
            print_screen(screen)
    return exit_code(status)


def _detached(folder: LaunchFolder, found: Iterator[LaunchStatus], *, as_json: bool) -> int:
    """Wait until the limits are proven and all run, or until it has failed."""
    status = next(status for status in found if status.over or status.state == "running")
    say(as_json_text(final_json(folder, status)) if as_json else folder.launch_id)
    if status.state == "failed":
        say(line(status), err=True)
    return exit_code(status)


_LOOK_S = 0.2


def join_launch(
    launch_id: str,
    jobs: Sequence[str],
    share_percent: float | None,
    wanted: ResolvedLaunch,
    settings: Settings,
    *,
    as_json: bool,
) -> int:
    """Ask the supervisor of a launch, and wait for its answer; the exit code of the command.

    Raises:
        InputError: more than one job, or a launch that is not running.
        NoSplitError: no share for the job is worth it, or keeps the limits.
    """
    if len(jobs) != 1:
        raise InputError(
            f"{len(jobs)} jobs cannot join {launch_id} at once", fix="name one job; then the next"
        )
    folder = find_folder(settings.home / "launches", launch_id)
    request = make_join(folder, jobs[0], share_percent, wanted, settings)
    say_lines(
        () if as_json else (*_expected_of_join(request), *(f"! {note}" for note in request.notes)),
        err=True,
    )
    said = _answer(folder, request)
    say(as_json_text(said) if as_json else _join_text(launch_id, said, request.share_percent))
    return 0 if said.code is None else error_codes().get(said.code, AdvisorError.exit_code)


def _expected_of_join(request: JoinRequest) -> Iterator[str]:
    """What is predicted of all, before anybody is asked."""
    if (forecast := request.forecast) is None:
        return
    names = (*request.beside, request.part.job.name)
    speeds = [
        f"{name} at {100 * job.rate.value / job.solo_rate:.0f} % of its speed"
        for name, job in zip(names, forecast.jobs, strict=True)
    ]
    yield (
        f"expected with {request.share_percent:g} % for {names[-1]}: {listed(speeds)}, "
        f"{forecast.power_w.value:.0f} W"
    )


def _answer(folder: LaunchFolder, request: JoinRequest) -> JoinAnswer:
    """What the supervisor says; Ctrl-C withdraws the request."""
    name = ask_join(folder, request)
    try:
        while (said := last_answer(folder, name, request.part.job.name)) is None:
            time.sleep(_LOOK_S)
        return said
    except KeyboardInterrupt:
        withdraw(folder, name)
        raise


def _join_text(launch_id: str, said: JoinAnswer, share_percent: float) -> str:
    if said.code is not None:
        return f"{said.job} did not join {launch_id}, which goes on as it was: {said.cause}"
    memory = "no limit" if said.memory_limit_mib is None else f"{said.memory_limit_mib:,} MiB"
    units = "" if said.units_granted is None else f" ({said.units_granted} units, memory {memory})"
    return f"{said.job} joined {launch_id} with {share_percent:g} %{units} at {said.joined_at}"


def _plan_lines(plan: LaunchPlan) -> Iterator[str]:
    """The same for a person."""
    yield f"nothing is started; on GPU {plan.gpu} ({plan.gpu_model or 'not seen'}):"
    for pair in plan.pairs:
        yield f"{as_asked(job.job for job in pair.jobs)} at {pair.split}"
        for job, alike in groupby(pair.jobs):
            yield from _job_lines(job, len([*alike]))
        yield f"  memory: {_memory_text(pair.memory)}"
        if pair.forecast:
            yield "  expected: " + ", ".join(_expected(pair))
            yield from dict.fromkeys(_rests(pair)) if plan.when_one_ends == "keep" else ()
    yield from (f"! {note}" for note in plan.notes)


def _with_file(planned: PlannedJob, job: Job) -> PlannedJob:
    return replace(
        planned,
        command=job.command,
        workdir=str(job.workdir) if job.workdir else None,
        environment={**dict(job.env), **planned.environment},
    )


def _job_lines(job: PlannedJob, copies: int) -> Iterator[str]:
    units = f", {job.units} units" if job.units is not None else ""
    yield f"  {as_asked([job.job] * copies)}: {job.share_percent:g} %{units}"
    yield f"    {' '.join(job.command or ())}"
    yield from (f"    {name}={value}" for name, value in job.environment.items())


def _memory_text(memory: PlannedMemory) -> str:
    needs = " + ".join("?" if need is None else f"{need:g}" for need in memory.needs_mib)
    if memory.most_mib is None:
        return f"{needs} MiB"
    fits = {True: "fits", False: "DOES NOT FIT", None: "not known whether it fits"}
    return f"{needs} of {memory.most_mib:.0f} MiB: {fits[memory.fits]}"


def _expected(pair: PlannedPair) -> Iterator[str]:
    forecast = pair.forecast
    assert forecast is not None
    yield counted(
        f"{job.job} {expected.rate.value:.4g} {job.rate_unit}/s"
        for job, expected in zip(pair.jobs, forecast.jobs, strict=True)
    )
    yield f"{forecast.power_w.value:.0f} W"
    if saved := forecast.energy_saved:
        yield f"{less_or_more(saved.value)} energy for the same work than one after the other"


def _rests(pair: PlannedPair) -> Iterator[str]:
    """What it costs that a limit stays when the other jobs have ended."""
    assert pair.forecast is not None
    names = [job.job for job in pair.jobs]
    for n in reversed(range(len(names))):
        if saved := pair.forecast.jobs[n].rest_energy_saved:
            ended = (*names[:n], *names[n + 1 :])
            yield (
                f"  once {counted(ended)} {'have' if len(ended) > 1 else 'has'} ended, {names[n]} "
                f"goes on under its limit: {less_or_more(saved)} energy than its work takes on the "
                "whole GPU"
            )
