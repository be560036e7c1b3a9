"""`advisor launch`: run jobs together at a proven split, and watch them."""

import getpass
import os
import time
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Annotated

import typer

from advisor.core.gpu import ADVISED_JOBS, Gpu, MemoryFit, read_bound
from advisor.core.wording import as_requested, counted, less_or_more
from advisor.errors import AdvisorError, InputError, SourceError
from advisor.launch.folder import (
    LaunchFolder,
    ask_join,
    create_folder,
    find_folder,
    first_status,
    join_status,
    withdraw,
)
from advisor.launch.spec import Forecast, JobStatus, LaunchSet, LaunchSpec, LaunchStatus
from advisor.launch.start import limit_environment, spawn_supervisor
from advisor.settings import Settings, read_settings
from advisor.wire.requests import (
    LaunchRequest,
    WhenOneEnds,
    WhenP99Breaks,
)
from advisor_advice.launching import ResolvedLaunch, check_arguments, make_join, make_spec
from advisor_advice.options import every_job, job_requests, longest_p99_ms
from advisor_cli.console import (
    AllowUnsafe,
    AsJson,
    LimitOptions,
    ObjectiveOption,
    Tries,
    as_json_text,
    grouped,
    job_names,
    plain_console,
    print_screen,
    say,
    say_lines,
)
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
from advisor_profiling import SUPERVISOR
from advisor_profiling.testbed import find_gpus, with_units


@grouped
def launch(
    jobs: Annotated[
        list[str],
        typer.Argument(
            help="Names of two to seven jobs with job files; A*3 for three of A",
            metavar="A B ...",
            autocompletion=job_names,
        ),
    ],
    *,
    split: Annotated[
        str | None,
        typer.Option(
            help="Split: 30/70, 100:low/50 (100: no limit, low: low priority), uncapped or"
            " time-sliced (default: the recommended one)"
        ),
    ] = None,
    share_percent: Annotated[
        float | None,
        typer.Option(
            "--share",
            help="Share of the joining job, percent (default: the best one)",
        ),
    ] = None,
    gpu: Annotated[str, typer.Option(help="GPU index or UUID; 0,1 for a job on two GPUs")] = "0",
    objective: ObjectiveOption = None,
    allow_unsafe: AllowUnsafe = False,
    stop_on_wrong_results: Annotated[
        bool,
        typer.Option(
            "--stop-on-wrong-results", help="Stop all jobs when one reports a wrong result"
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End all jobs when another process computes on the GPU")
    ] = False,
    alone: Annotated[
        bool | None,
        typer.Option(
            "--alone/--no-alone",
            help="First measure each job alone for some seconds, if it has a gate "
            "(default: if a profile is of another host)",
        ),
    ] = None,
    limit_memory: Annotated[
        bool,
        typer.Option(
            "--limit-memory/--no-memory-limit",
            help="Limit the GPU memory of each job to its measured need and a margin (MPS)",
        ),
    ] = True,
    when_one_ends: Annotated[
        WhenOneEnds,
        typer.Option(
            help="When a job ends, keep the others running under their limits, or stop them"
        ),
    ] = "keep",
    when_p99_breaks: Annotated[
        WhenP99Breaks,
        typer.Option(
            help="When a server exceeds its p99 limit, report it, or end the newest batch job"
        ),
    ] = "tell",
    duration_s: Annotated[
        float | None,
        typer.Option("--duration", help="Stop the jobs after this many seconds"),
    ] = None,
    hang_s: Annotated[
        float | None,
        typer.Option(
            "--hang-after",
            help="End a job (not an idle server) after this many seconds without progress "
            "(default: show it as stalled)",
        ),
    ] = None,
    tries: Tries = 1,
    power_limit_w: Annotated[
        float | None,
        typer.Option(
            "--power-limit",
            help="Lower the GPU's power limit, W, until the end of the launch; needs root",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would start, and start nothing")
    ] = False,
    limits: LimitOptions,
    then: Annotated[
        list[str] | None, typer.Option(help="Jobs to launch afterwards, C+D*2; repeatable")
    ] = None,
    join: Annotated[
        str | None, typer.Option(help="Add one job to a running launch", metavar="ID")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once all jobs run under proven limits")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run two to seven jobs together on one GPU at a proven split, and watch them.

    Without --split it uses the recommended split. Ctrl-C stops all jobs in the safe order. Closing
    the terminal or killing this command leaves them running and watched.

    Example: advisor launch train score --split 66/34 --detach
    """
    settings = read_settings()
    together = [every_job(jobs), *map(_together, then or ())]
    names = [name for each in together for name in each]
    by_job_ms, for_all_ms = longest_p99_ms(limits.max_p99 or (), names)
    first, *rest = (
        job_requests(each, names, limits.min_speed or (), by_job_ms) for each in together
    )
    request = LaunchRequest(
        jobs=first,
        then=tuple(rest),
        split=split,
        share_percent=share_percent,
        gpu=gpu,
        objective=objective,
        max_p99_ms=for_all_ms,
        max_power_w=limits.max_power,
        memory_mib=limits.memory,
        gpu_model=limits.gpu_model,
        allow_unsafe=allow_unsafe,
        stop_on_wrong_results=stop_on_wrong_results,
        strict=strict,
        alone=alone,
        limit_memory=limit_memory,
        when_one_ends=when_one_ends,
        when_p99_breaks=when_p99_breaks,
        duration_s=duration_s,
        hang_s=hang_s,
        tries=tries,
        power_limit_w=power_limit_w,
        dry_run=dry_run,
    )
    resolved = partial(
        ResolvedLaunch, request=request, profiles=limits.profiles, asked_by=user_name()
    )
    if join is not None:
        request.check_join()
        folder = find_folder(settings.home / "launches", join)
        # A launch without a GPU yet cannot be joined; the requested GPU is shown.
        card = _see_gpu(folder.read_status().gpu_uuid or folder.read_spec().gpu, settings)
        raise typer.Exit(join_launch(folder, resolved(card=card), settings, as_json=as_json))
    request.check()
    check_arguments(request, settings)
    card = _see_gpu(gpu, settings, needed=not dry_run)
    spec = make_spec(resolved(card=card), settings)
    if dry_run:
        say_lines([as_json_text(spec)] if as_json else _plan_lines(spec, card, settings))
        return
    raise typer.Exit(_launch(spec, settings, detach=detach, as_json=as_json))


def user_name() -> str:
    """The user, as launches keep it."""
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


def _see_gpu(name: str, settings: Settings, *, needed: bool = True) -> Gpu | None:
    """The GPU; None where there is none and it is not needed."""
    try:
        return with_units(find_gpus(name), settings)
    except SourceError:
        if needed:
            raise
        return None


def _launch(spec: LaunchSpec, settings: Settings, *, detach: bool, as_json: bool) -> int:
    """Start the jobs and follow them; the exit code of the command."""
    folder = create_folder(settings.home / "launches", spec)
    supervisor = spawn_supervisor(folder, settings, SUPERVISOR)
    if detach:
        return _detached(folder, statuses(folder, supervisor), as_json=as_json)
    if not as_json:
        say_lines((f"! {note}" for note in spec.notes), err=True)
    show = show_live if plain_console().is_terminal else show_lines
    progress = statuses(folder, supervisor)
    with asking_to_stop(folder.ask_stop):
        status = show_json(progress, folder) if as_json else show(progress)
    if not as_json:
        for screen in end_screens(status, observations(folder), settings.policy.prices):
            print_screen(screen)
    return exit_code(status)


def _detached(folder: LaunchFolder, progress: Iterator[LaunchStatus], *, as_json: bool) -> int:
    """Wait until the limits are proven and all run, or until it has failed."""
    status = next(status for status in progress if status.over or status.state == "running")
    say(as_json_text(final_json(folder, status)) if as_json else folder.launch_id)
    if status.state == "failed":
        say(line(status), err=True)
    return exit_code(status)


def join_launch(
    folder: LaunchFolder, wanted: ResolvedLaunch, settings: Settings, *, as_json: bool
) -> int:
    """Ask the supervisor of a launch, and wait for its answer; the exit code of the command.

    Raises:
        InputError: the launch is not running.
        NoSplitError: no share for the job is worth it, or keeps the limits.
    """
    (name,) = wanted.request.names
    request = make_join(folder, name, wanted.request.share_percent, wanted, settings)
    if not as_json:
        (made,) = request.pairs
        share = f"{first_status(request, '').jobs[-1].share_text} for {name}"
        expected = [f"with {share}: {_expected(made, made.forecast)}"] if made.forecast else []
        say_lines((*expected, *(f"! {note}" for note in request.notes)), err=True)
    join_name = ask_join(folder, request)
    try:
        while (said := join_status(folder, join_name, request)).outcome == "waiting":
            time.sleep(0.2)
    except KeyboardInterrupt:
        withdraw(folder, join_name)
        raise
    say(as_json_text(said) if as_json else _join_text(folder.launch_id, said))
    refused = said.outcome == "refused"
    return error_codes().get(said.code or "", AdvisorError.exit_code) if refused else 0


def _join_text(launch_id: str, said: JobStatus) -> str:
    if said.outcome == "refused":
        return f"{said.job} did not join {launch_id}, which goes on as it was: {said.error}"
    memory = "no limit" if said.memory_limit_mib is None else f"{said.memory_limit_mib:,} MiB"
    units = "" if said.units_granted is None else f" ({said.units_granted} units, memory {memory})"
    return f"{said.job} joined {launch_id} with {said.share_text}{units} at {said.joined_at}"


def _plan_lines(spec: LaunchSpec, gpu: Gpu | None, settings: Settings) -> Iterator[str]:
    model = gpu.model if gpu else "not seen"
    tried = f", each way for {spec.try_s:g} s and the best to its end" if spec.try_s else ""
    yield f"nothing is started; on GPU {spec.gpu} ({model}){tried}:"
    for pair in spec.pairs:
        card_mib = gpu and gpu.memory_mib
        yield f"{as_requested(job.name for job in pair.jobs)} at {pair.split}"
        shares = zip(pair.parts, pair.shares(card_mib), strict=True)
        for (part, share), alike in groupby(shares):
            units = f", {part.units} units" if part.units is not None else ""
            yield f"  {as_requested([part.job.name] * len([*alike]))}: {share.percent:g} %{units}"
            yield f"    {' '.join(part.job.command)}"
            bound, _ = read_bound(part.memory_bound)
            limits = limit_environment(pair, share, gpu, settings)
            yield from (
                f"    {name}={text}" for name, text in (bound | dict(part.job.env) | limits).items()
            )
        if pair.alone_s:
            yield f"  first those with a gate run alone for {pair.alone_s:g} s each"
        yield from (f"  memory: {_memory_text(memory)}" for memory in pair.memory(card_mib))
        if pair.forecast:
            yield f"  {_expected(pair, pair.forecast)}"
            rests = _rests(pair, pair.forecast) if spec.when_one_ends == "keep" else ()
            yield from dict.fromkeys(rests)
    yield from (f"! {note}" for note in spec.notes)


def _memory_text(memory: MemoryFit) -> str:
    needs = " + ".join("?" if need is None else f"{need:g}" for need in memory.needs_mib)
    if memory.most_mib is None:
        return f"{needs} MiB"
    verdict = "fits" if memory.fits else "not known whether it fits"
    return f"{needs} of {memory.most_mib:.0f} MiB: {verdict}"


def _expected(pair: LaunchSet, forecast: Forecast) -> str:
    rates = counted(
        f"{job.name} {expected.rate.value:.4g} {job.progress.unit}/s"
        for job, expected in zip(pair.jobs, forecast.jobs, strict=True)
    )
    saved = forecast.energy_saved
    than = " energy for the same work than one after the other"
    energy = f", {less_or_more(saved.value)}{than}" if saved else ""
    return f"expected: {rates}, {forecast.power_w.value:.0f} W{energy}"


def _rests(pair: LaunchSet, forecast: Forecast) -> Iterator[str]:
    """What it costs that a limit stays when the other jobs have ended."""
    names = [job.name for job in pair.jobs]
    for n in reversed(range(len(names))):
        if saved := forecast.jobs[n].rest_energy_saved:
            ended = (*names[:n], *names[n + 1 :])
            yield (
                f"  once {counted(ended)} {'have' if len(ended) > 1 else 'has'} ended, {names[n]} "
                f"goes on under its limit: {less_or_more(saved)} energy than its work takes on the "
                "whole GPU"
            )
