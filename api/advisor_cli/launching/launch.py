"""`advisor launch`: run jobs together at a proven split, and watch them."""

import getpass
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import typer

from advisor.core.gpu import Gpu
from advisor.core.objectives import DEFAULT_OBJECTIVE
from advisor.core.split import ADVISED_JOBS
from advisor.errors import InputError, SourceError
from advisor.launch.folder import LaunchFolder, create_folder, find_folder
from advisor.launch.start import check_memory, spawn_supervisor
from advisor.launch.status import LaunchStatus
from advisor.settings import Settings, read_settings
from advisor.wire.requests import LaunchRequest, NextPair, WhenOneEnds, WhenP99Breaks, check_launch
from advisor_advice.ask.words import every_job, job_requests, longest_p99_ms
from advisor_advice.launching import check_together, make_spec
from advisor_advice.resolved_launch import ResolvedLaunch
from advisor_cli.launching.end_screen import end_screens
from advisor_cli.launching.join import join as join_launch
from advisor_cli.launching.live import (
    asking_to_stop,
    exit_code,
    final_json,
    observations,
    show_json,
    show_lines,
    show_live,
    statuses,
)
from advisor_cli.launching.plan import plan_lines, whole_plan
from advisor_cli.launching.text import line
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.grouped import grouped
from advisor_cli.shared.options import AllowUnsafe, AsJson, LimitOptions, ObjectiveOption, job_names
from advisor_cli.shared.say import as_json_text, say
from advisor_cli.shared.screen import print_screen
from advisor_profiling import SUPERVISOR
from advisor_profiling.testbed.live import find_gpu, with_units

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
    objective: ObjectiveOption = DEFAULT_OBJECTIVE
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
    for names in together if join is None else ():
        check_together(len(names))
    asked = replace(_of_jobs(together, limits), **asdict(rules))
    check_launch(asked if share is None else replace(asked, split=f"{share:g}"))
    gpu = gpu if join is None else _gpu_of(join, settings)
    seen = _see_gpu(gpu, settings, needed=not dry_run)
    wanted = ResolvedLaunch(
        request=asked, gpu=gpu, card=seen, profiles=limits.profiles, asked_by=user_name()
    )
    if join is not None:
        code = join_launch(join, together[0], share, wanted, settings, as_json=as_json)
        raise typer.Exit(code)
    if dry_run:
        plan = whole_plan(make_spec(wanted, settings), wanted.card, settings)
        for text in [as_json_text(plan)] if as_json else plan_lines(plan):
            say(text)
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


def _gpu_of(launch_id: str, settings: Settings) -> str:
    """The GPU of a launch that runs; where it has none yet, nobody can join either."""
    folder = find_folder(settings.home / "launches", launch_id)
    return folder.read_status().gpu_uuid or folder.read_spec().gpu


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
    for note in () if as_json else spec.notes:
        say(f"! {note}", err=True)
    show = show_live if plain_console().is_terminal else show_lines
    with asking_to_stop(folder.ask_stop):
        status = (show_json(folder) if as_json else show)(statuses(folder, supervisor))
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
