"""`advisor colocate`: measure pairs of jobs on one GPU at splits."""

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.cli.measure.colocate_request import ColocateRequest, check_anything
from advisor.cli.measure.on_nodes import Into, NodesRequest, On, run_on_nodes
from advisor.cli.measure.several_gpus import run_on_each
from advisor.cli.measure.testbeds import (
    REPLAY,
    LongestWindow,
    Noise,
    Telemetry,
    bundled_points,
    check_replay,
    known_timing,
    open_points,
    open_testbed,
    part_of,
    reporter_for,
    say_replay,
    stoppable,
)
from advisor.cli.shared.console import plain_console
from advisor.cli.shared.options import AllowUnsafe, AsJson
from advisor.core.job import Job
from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import InputError
from advisor.formats.job_file import sound_jobs
from advisor.formats.rows import to_row
from advisor.settings import Settings, read_settings
from advisor.validity.degenerate import with_pair_flags, with_solo_flags
from advisor_data import Store
from advisor_data.files.bundled import bundled_solo_points
from advisor_profiling.campaign.colocation import Campaign, Report, carry_out
from advisor_profiling.campaign.outcome import Cost
from advisor_profiling.campaign.plan_file import DEFAULT_SPLITS
from advisor_profiling.campaign.safe_plan import counts_on
from advisor_profiling.campaign.sweep import new_run
from advisor_profiling.reports import campaign as pair_report
from advisor_profiling.testbed.live import Mode, SourceName
from advisor_profiling.testbed.replay import ReplayTestbed
from advisor_profiling.testbed.testbed import Testbed
from advisor_profiling.window.clock import LiveClock
from advisor_profiling.window.rules import rules_for

ReportJson = dict[str, Any]
"""A report as JSON."""


def colocate(
    plan: Annotated[
        Path | None, typer.Argument(help="Plan file (docs/colocate.md); or --among or --pairs")
    ] = None,
    among: Annotated[str, typer.Option(help="All pairs of these jobs, such as a,b,c")] = "",
    pairs: Annotated[str, typer.Option(help="Pairs, such as a+b,c+d")] = "",
    splits: Annotated[
        str | None,
        typer.Option(
            help="nine, uncapped, time-sliced, 70/70, '66+66 units', 'around-best 8'; "
            f"{DEFAULT_SPLITS} if not given"
        ),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="Draw this many pairs of --among")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Windows for each pair and split; 1 if not given")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Name of the run; a new one measures everything again")
    ] = None,
    gpu: Annotated[str, typer.Option(help="Index, UUID, several (0,1) or `replay`")] = "0",
    shard: Annotated[str, typer.Option(help="Part of the plan, such as 2/8")] = "1/1",
    on: On = "here",
    shards: Annotated[
        int | None, typer.Option(min=1, help="With --on: parts, each for a GPU of some node")
    ] = None,
    into: Into = None,
    window: LongestWindow = 8,
    source: Telemetry = None,
    noise: Noise = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be measured, and how long")
    ] = False,
    allow_unsafe: AllowUnsafe = False,
    as_json: AsJson = False,
) -> None:
    """Measure pairs of jobs on one GPU at splits: both rates, and the power of both.

    Each point is kept as soon as it is measured; after Ctrl-C or a crash the same command goes on.
    """
    settings, console = read_settings(), plain_console(stderr=True)
    wanted = ColocateRequest(plan, among, pairs, splits, sample, repeats, run)
    gpus, part = _gpus(gpu), part_of(shard)
    check_replay(gpus, noise, source)
    names = [] if into else _shard_names(on, shards, shard)
    jobs = _jobs(settings, gpus[0], noise, console)
    chosen = wanted.plan(jobs)
    here = on == "here" and len(gpus) == 1
    timing = known_timing(settings, gpus[0], source, console) if here else None
    with stoppable(console), open_points(settings, gpus[0], into) as store:
        campaign = Campaign(
            plan=chosen,
            part=part,
            jobs=jobs,
            known=bundled_points(),
            store=store,
            reporter=reporter_for(console, into),
            rules=rules_for(window, timing),
            dry_run=dry_run,
            # A replay computes nothing.
            counts=partial(
                counts_on, home=settings.home, allow_unsafe=allow_unsafe or gpus[0] == REPLAY
            ),
        )
        before = _measured_pairs(campaign)
        if on != "here":
            request = NodesRequest(on=on, run=chosen.name, gpu=gpu)
            answers, code = run_on_nodes(request, names, settings, store, console)
            answer = _total(answers)
            for skipped in answer["skipped"]:
                reporter_for(console, None).phase(
                    f"skipping {' + '.join(skipped['pair'])}: {skipped['reason']}"
                )
        elif len(gpus) > 1:
            answers, code = run_on_each(gpus, part, sys.argv[1:], console)
            answer = _total(answers)
        else:
            answer, code = _on_one(campaign, settings, gpus[0], source, noise)
        if into is None:
            check_anything(answer, campaign.plan.name)
        _show(answer, campaign, before, as_json)
    if code:
        raise typer.Exit(code)


def _on_one(
    campaign: Campaign,
    settings: Settings,
    gpu: str,
    source: SourceName | None,
    noise: bool,
) -> tuple[ReportJson, int]:
    run = campaign.plan.name

    def open_gpu(mode: Mode | None) -> AbstractContextManager[Testbed]:
        seed = run if noise else None
        # A run goes on in several processes, one after the other and on several GPUs, and opens
        # a GPU with limits and without MPS; each time has logs of its own.
        logs = f"{run}/{new_run(LiveClock().utc())}"
        return open_testbed(settings, gpu, source, mode, logs, pairs=True, noise=seed)

    report = carry_out(campaign, open_gpu)
    return _as_json(report, replay=gpu == REPLAY), 5 if report.failures else 0


def _gpus(text: str) -> list[str]:
    gpus = [word.strip() for word in text.split(",") if word.strip()]
    if not gpus:
        raise InputError(f"--gpu {text!r} names no GPU", fix="write --gpu 0, or --gpu 0,1")
    return gpus


def _shard_names(on: str, shards: int | None, shard: str) -> list[str]:
    """What the parts are called that an engine places; none on this host."""
    if (on == "here") != (shards is None):
        raise InputError(
            "--on and --shards belong together", fix="write --on slurm --shards 8, or neither"
        )
    if on != "here" and shard != "1/1":
        raise InputError("--shard cannot be combined with --on", fix="give --shards alone")
    return [f"shard-{number}-of-{shards}" for number in range(1, (shards or 0) + 1)]


def _jobs(settings: Settings, gpu: str, noise: bool, console: Console) -> dict[str, Job]:
    if gpu == REPLAY:
        testbed = ReplayTestbed(bundled_solo_points())
        say_replay(console, testbed.gpu.model, noise)
        return testbed.jobs()
    sound, faults = sound_jobs(settings.jobs_dir)
    for fault in faults:
        console.print(f"! {fault}", highlight=False, soft_wrap=True)
    return {job.name: job for job in sound}


def _as_json(report: Report, *, replay: bool) -> ReportJson:
    return {
        "gpu_model": report.gpu_model,
        "replay": replay,
        "windows": report.windows,
        "to_measure": report.to_measure,
        "measured": report.measured,
        "estimated_s": report.estimated_s,
        "cost": asdict(report.cost),
        "skipped": [{"pair": list(s.pair), "reason": s.reason} for s in report.skipped],
        "failures": [{"target": str(f.target), "error": f.error} for f in report.failures],
    }


def _total(answers: Sequence[ReportJson]) -> ReportJson:
    """The answers of several GPUs as one."""
    total = dict(answers[0])
    for key in ("windows", "to_measure", "measured", "estimated_s"):
        total[key] = sum(answer[key] for answer in answers)
    costs = (Cost(**answer["cost"]) for answer in answers)
    total["cost"] = asdict(sum(costs, Cost()))
    total["failures"] = [failure for answer in answers for failure in answer["failures"]]
    # Each GPU leaves out the same pairs, for the same reasons.
    return total


def _show(answer: ReportJson, campaign: Campaign, before: int, as_json: bool) -> None:
    run, store = campaign.plan.name, campaign.store
    points = with_pair_flags(store.pair_points(run=run), with_solo_flags(_profiles(answer, store)))
    if as_json:
        rows = [to_row(point) for point in points]
        typer.echo(json.dumps({"run": run, **answer, "points": rows}))
        return
    console = plain_console()
    console.width = max(console.width, pair_report.WIDTH)
    note = " (replay of recorded points)" if answer["replay"] else ""
    solo = _solo_points(answer, run, store)
    console.print(f"run {run} on {answer['gpu_model']}{note}")
    console.print(pair_report.table(pair_report.summarise(points, solo)))
    new = _measured_pairs(campaign) - before
    for line in (
        *pair_report.unknown_alone_text(points, solo),
        _what_it_took(answer, new, campaign.dry_run),
        pair_report.left_out_text(points),
    ):
        if line:
            console.print(line, highlight=False)


def _solo_points(answer: ReportJson, run: str, store: Store) -> list[SoloPoint]:
    """Of the run; for jobs without a rate there, of other runs on such GPUs."""
    return pair_report.references(store.solo_points(run=run), _profiles(answer, store))


def _profiles(answer: ReportJson, store: Store) -> list[SoloPoint]:
    """All jobs alone on such GPUs."""
    model = answer["gpu_model"]
    stored = store.solo_points(gpu_model=model)
    if not answer["replay"]:
        return stored
    return stored + [point for point in _bundled_solo() if point.gpu_model == model]


def _bundled_solo() -> list[SoloPoint]:
    return [point for point in bundled_points() if isinstance(point, SoloPoint)]


def _measured_pairs(campaign: Campaign) -> int:
    """How many windows of pairs the run has; marked points of jobs that failed are none."""
    points: list[PairPoint] = campaign.store.pair_points(run=campaign.plan.name)
    return sum("failed" not in point.flags for point in points)


def _what_it_took(answer: ReportJson, pair_points: int, dry_run: bool) -> str:
    windows, left = answer["windows"], answer["to_measure"]
    nothing = pair_report.nothing_to_do_text(windows, left, dry_run=dry_run)
    return nothing or pair_report.cost_text(Cost(**answer["cost"]), pair_points)
