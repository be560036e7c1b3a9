"""`advisor colocate`: measure pairs of jobs on one GPU at splits."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.cli.benches import (
    REPLAY,
    bundled_points,
    open_pair_bench,
    open_points,
    say_replay,
    terminated_like_interrupt,
)
from advisor.cli.several_gpus import run_on_each
from advisor.errors import InputError
from advisor.job import Job
from advisor.job_file import list_jobs
from advisor.records import SoloPoint
from advisor.rows import to_row
from advisor.settings import Settings, read_settings
from advisor_data import Store
from advisor_data.bundled import bundled_solo_points
from advisor_profiling import pair_report
from advisor_profiling.bench import Bench
from advisor_profiling.campaign import Cost
from advisor_profiling.colocation import Campaign, Report, carry_out
from advisor_profiling.live import Mode, SourceName
from advisor_profiling.pairing import kinds_of
from advisor_profiling.plan import Plan
from advisor_profiling.plan_file import load_plan, plan_from_options, to_yaml
from advisor_profiling.plan_file import suggest as suggested_plan
from advisor_profiling.replay import ReplayBench
from advisor_profiling.report import ConsoleReporter
from advisor_profiling.window import rules_for

Answer = dict[str, Any]
"""A report as JSON."""


def colocate(
    plan: Annotated[
        Path | None, typer.Argument(help="Plan file (docs/colocate.md); or --among or --pairs")
    ] = None,
    among: Annotated[str, typer.Option(help="All pairs of these jobs, such as a,b,c")] = "",
    pairs: Annotated[str, typer.Option(help="Pairs, such as a+b,c+d")] = "",
    splits: Annotated[
        str, typer.Option(help="nine, uncapped, time-sliced, 70/70, '66+66 units'")
    ] = "nine,uncapped",
    sample: Annotated[int | None, typer.Option(min=1, help="Draw so many pairs of --among")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Windows for each pair and split")] = 1,
    run: Annotated[
        str | None, typer.Option(help="Name of the run; a new one measures all anew")
    ] = None,
    gpu: Annotated[str, typer.Option(help="Index, UUID, several (0,1) or `replay`")] = "0",
    shard: Annotated[str, typer.Option(help="Part of the plan, such as 2/8")] = "1/1",
    window: Annotated[float, typer.Option(min=0.5, help="Longest window, s")] = 8,
    source: Annotated[
        SourceName | None, typer.Option(help="Telemetry; vendor's if not given")
    ] = None,
    noise: Annotated[bool, typer.Option("--noise", help="Replay with the measured noise")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be measured, and how long")
    ] = False,
    suggest: Annotated[
        int | None, typer.Option(min=1, help="Only print a plan of so many pairs of all jobs")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Result as JSON on stdout")] = False,
) -> None:
    """Measure pairs of jobs on one GPU at splits: both rates, and the power of both.

    Each point is kept as soon as it is measured; after Ctrl-C or a crash the same command goes on.
    """
    settings, console = read_settings(), Console(stderr=True)
    jobs = _jobs(settings, gpu, noise, console)
    if suggest is not None:
        _print_suggestion(jobs, suggest, run)
        return
    wanted = _wanted(plan, among, pairs, splits, sample, repeats, run, jobs)
    gpus = _words(gpu)
    part = _part(shard)
    if noise and gpus != (REPLAY,):
        raise InputError("--noise is for a replay", fix="add --gpu replay, or leave it out")
    with terminated_like_interrupt(), open_points(settings, gpu) as store:
        try:
            if len(gpus) == 1:
                campaign = Campaign(
                    plan=wanted,
                    part=part,
                    jobs=jobs,
                    known=bundled_points(),
                    store=store,
                    reporter=ConsoleReporter(console),
                    rules=rules_for(window),
                    dry_run=dry_run,
                )
                answer, code = _on_one(campaign, settings, gpu, source, noise)
            else:
                answers, code = run_on_each(gpus, part, sys.argv[1:], console)
                answer = _total(answers)
        except KeyboardInterrupt:
            console.print("stopped; finished points are kept: the same command goes on from here")
            raise typer.Exit(130) from None
        _show(answer, wanted.name, store, as_json)
    if code:
        raise typer.Exit(code)


def _wanted(
    file: Path | None,
    among: str,
    pairs: str,
    splits: str,
    sample: int | None,
    repeats: int,
    run: str | None,
    jobs: Mapping[str, Job],
) -> Plan:
    if (file is not None) + bool(among) + bool(pairs) != 1:
        raise InputError(
            "what to measure is not clear", fix="give a plan file, or --among, or --pairs"
        )
    if file is None:
        return plan_from_options(among, pairs, splits, repeats, run, sample=sample)
    plan = load_plan(file, jobs)
    return plan if run is None else replace(plan, name=run)


def _print_suggestion(jobs: Mapping[str, Job], pairs: int, run: str | None) -> None:
    """A plan of jobs of every kind, as far as bundled profiles tell the kinds."""
    solo = [point for point in bundled_points() if isinstance(point, SoloPoint)]
    typer.echo(to_yaml(suggested_plan(jobs, kinds_of(solo), pairs, run or "suggested")), nl=False)


def _on_one(
    campaign: Campaign,
    settings: Settings,
    gpu: str,
    source: SourceName | None,
    noise: bool,
) -> tuple[Answer, int]:
    run = campaign.plan.name

    def open_bench(mode: Mode | None) -> AbstractContextManager[Bench]:
        return open_pair_bench(settings, gpu, source, mode, run, noise)

    report = carry_out(campaign, open_bench)
    return _as_json(report, replay=gpu == REPLAY), 5 if report.failures else 0


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise InputError(f"--shard {text} is no part of a plan", fix="write --shard 2/8")
    return int(number), int(count)


def _jobs(settings: Settings, gpu: str, noise: bool, console: Console) -> dict[str, Job]:
    if gpu == REPLAY:
        bench = ReplayBench(bundled_solo_points())
        say_replay(console, bench.gpu.model, noise)
        return bench.jobs()
    return {job.name: job for job in list_jobs(settings.jobs_dir)}


def _as_json(report: Report, *, replay: bool) -> Answer:
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


def _total(answers: Sequence[Answer]) -> Answer:
    """The answers of several GPUs as one."""
    total = dict(answers[0])
    for key in ("windows", "to_measure", "measured", "estimated_s"):
        total[key] = sum(answer[key] for answer in answers)
    costs = (Cost(**answer["cost"]) for answer in answers)
    total["cost"] = asdict(sum(costs, Cost()))
    total["failures"] = [failure for answer in answers for failure in answer["failures"]]
    # Each GPU leaves out the same pairs, for the same reasons.
    return total


def _show(answer: Answer, run: str, store: Store, as_json: bool) -> None:
    points = store.pair_points(run=run)
    if as_json:
        rows = [to_row(point) for point in points]
        typer.echo(json.dumps({"run": run, **answer, "points": rows}))
        return
    console = Console()
    console.width = max(console.width, pair_report.WIDTH)
    note = " (replay of recorded points)" if answer["replay"] else ""
    console.print(f"run {run} on {answer['gpu_model']}{note}")
    console.print(pair_report.table(pair_report.summarise(points, store.solo_points(run=run))))
    for line in (pair_report.cost_text(Cost(**answer["cost"]), answer["measured"]),
                 pair_report.left_out_text(points)):  # fmt: skip
        if line:
            console.print(line, highlight=False)
