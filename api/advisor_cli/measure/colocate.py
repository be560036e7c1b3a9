"""`advisor colocate`: measure pairs or larger sets of jobs on one GPU at splits."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial

import typer
from rich.console import Console

from advisor.core.job import Job
from advisor.formats.job_file import sound_jobs
from advisor.settings import Settings, job_folders, read_settings
from advisor_cli.measure.colocate_request import ColocateRequest, ColocateWhere, check_anything
from advisor_cli.measure.colocate_text import ReportJson, measured_pairs, show_campaign
from advisor_cli.measure.on_nodes import NodesRequest, run_on_nodes
from advisor_cli.measure.several_gpus import run_on_each
from advisor_cli.measure.testbeds import (
    bundled_points,
    check_replay,
    known_timing,
    open_points,
    open_testbed,
    part_of,
    say_replay,
)
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.grouped import grouped
from advisor_cli.shared.options import REPLAY
from advisor_cli.shared.stopping import stoppable
from advisor_data.files.bundled import bundled_set_references, bundled_solo_points
from advisor_power.data.of_job import with_fingerprint
from advisor_profiling.campaign.colocation import Campaign, CampaignReport, carry_out
from advisor_profiling.campaign.outcome import Cost
from advisor_profiling.campaign.plan import Plan
from advisor_profiling.campaign.safe_plan import counts_on
from advisor_profiling.campaign.sweep import new_run
from advisor_profiling.reports.sweep import ConsoleReporter
from advisor_profiling.testbed.live import Mode, SourceName
from advisor_profiling.testbed.replay import ReplayTestbed
from advisor_profiling.testbed.testbed import Testbed
from advisor_profiling.window.clock import LiveClock
from advisor_profiling.window.rules import SETS, WindowRules, rules_for


@grouped
def colocate(what: ColocateRequest, where: ColocateWhere) -> None:
    """Measure pairs or sets of jobs on one GPU at splits: rates, and the power of all.

    Each point is kept as soon as it is measured; after Ctrl-C or a crash the same command goes on.

    Example: advisor colocate --pairs train+score --splits 30/70,50/50
    """
    if code := _colocate(what, where, read_settings(), plain_console(stderr=True)):
        raise typer.Exit(code)


def _colocate(
    what: ColocateRequest, where: ColocateWhere, settings: Settings, console: Console
) -> int:
    """Measure and show; the exit code of the command."""
    gpus, part = where.gpus(), part_of(where.shard)
    check_replay(gpus, where.noise, where.source)
    names = where.shard_names()
    jobs = _jobs(settings, gpus[0], console)
    chosen = what.plan(jobs)
    if gpus[0] == REPLAY:
        with _open(settings, REPLAY, chosen) as replay:
            say_replay(console, replay.gpu.model, where.noise)
    jobs |= {name: with_fingerprint(jobs[name]) for name in chosen.jobs(jobs) & jobs.keys()}
    here = where.on == "here" and len(gpus) == 1
    timing = known_timing(settings, gpus[0], where.source, console) if here else None
    with stoppable(console), open_points(settings, gpus[0]) as store:
        campaign = Campaign(
            plan=chosen,
            part=part,
            jobs=jobs,
            known=bundled_points(),
            store=store,
            reporter=ConsoleReporter(console, replayed=gpus[0] == REPLAY),
            rules=rules_for(where.window, timing, SETS if chosen.has_sets else WindowRules()),
            dry_run=where.dry_run,
            # A replay computes nothing.
            counts=partial(
                counts_on, home=settings.home, allow_unsafe=where.allow_unsafe or gpus[0] == REPLAY
            ),
        )
        before = measured_pairs(campaign)
        answer, code = _answer(campaign, where, names, settings, console)
        if part == (1, 1):  # others may have what this part has not
            check_anything(answer, chosen)
        show_campaign(answer, campaign, before, as_json=where.as_json)
    return code


def _answer(
    campaign: Campaign, where: ColocateWhere, names: list[str], settings: Settings, console: Console
) -> tuple[ReportJson, int]:
    """What came of the campaign, of all GPUs together, and the exit code."""
    gpus = where.gpus()
    if where.on != "here":
        request = NodesRequest(
            on=where.on, run=campaign.plan.name, gpu=where.gpu, options=("--shards", "0")
        )
        answers, code = run_on_nodes(request, names, settings, campaign.store, console)
        answer = _total(answers)
        for skipped in answer["skipped"]:
            campaign.reporter.phase(f"skipping {' + '.join(skipped['pair'])}: {skipped['reason']}")
        return answer, code
    if len(gpus) > 1:
        answers, code = run_on_each(gpus, campaign.part, sys.argv[1:], console)
        return _total(answers), code
    return _on_one(campaign, settings, gpus[0], where.source, where.noise)


def _on_one(
    campaign: Campaign, settings: Settings, gpu: str, source: SourceName | None, noise: bool
) -> tuple[ReportJson, int]:
    run = campaign.plan.name

    def open_gpu(mode: Mode | None) -> AbstractContextManager[Testbed]:
        seed = run if noise else None
        # A run goes on in several processes, one after the other and on several GPUs, and opens
        # a GPU with limits and without MPS; each time has logs of its own.
        logs = f"{run}/{new_run(LiveClock().utc())}"
        return _open(settings, gpu, campaign.plan, source, mode, logs, seed)

    report = carry_out(campaign, open_gpu)
    return _as_json(report, replay=gpu == REPLAY), 5 if report.failures else 0


def _open(
    settings: Settings,
    gpu: str,
    plan: Plan,
    source: SourceName | None = None,
    mode: Mode | None = None,
    logs: str = "",
    noise: str | None = None,
) -> AbstractContextManager[Testbed]:
    """The GPU, or the replay of recorded pairs or sets, whichever the plan is about."""
    jobs, sets = plan.most_jobs, plan.has_sets
    return open_testbed(settings, gpu, source, mode, logs, jobs=jobs, sets=sets, noise=noise)


def _jobs(settings: Settings, gpu: str, console: Console) -> dict[str, Job]:
    if gpu == REPLAY:
        of_sets = ReplayTestbed(bundled_set_references()).jobs()
        return of_sets | ReplayTestbed(bundled_solo_points()).jobs()
    # Where there are none of our own, as in an empty folder, those that come with advisor.
    found = [sound_jobs(folder) for folder in job_folders(settings.jobs_dir)]
    for fault in found[0][1]:
        console.print(f"! {fault}", highlight=False, soft_wrap=True)
    sound = next((jobs for jobs, _ in found if jobs), list[Job]())
    return {job.name: job for job in sound}


def _as_json(report: CampaignReport, *, replay: bool) -> ReportJson:
    return {
        "gpu_model": report.gpu_model,
        "replay": replay,
        "windows": report.windows,
        "to_measure": report.to_measure,
        "measured": report.measured,
        "estimated_s": report.estimated_s,
        "planned": [asdict(planned) for planned in report.planned],
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
    for key in ("planned", "failures"):
        total[key] = [item for answer in answers for item in answer[key]]
    # Each GPU leaves out the same pairs, for the same reasons.
    return total
