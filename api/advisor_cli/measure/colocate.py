"""`advisor colocate`: measure pairs or larger sets of jobs on one GPU at splits."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.core.gpu import TIME_SLICED, UNCAPPED, Gpu
from advisor.core.job import Job
from advisor.core.records import DOUBTFUL, PairPoint, SoloPoint
from advisor.core.wording import listed
from advisor.errors import InputError
from advisor.formats.job_file import sound_jobs
from advisor.formats.rows import to_row
from advisor.launch.account import Trial
from advisor.launch.spec import LaunchSet
from advisor.settings import Settings, job_folders, read_settings
from advisor.validity.points import with_pair_flags, with_solo_flags
from advisor.wire.requests import LaunchRequest
from advisor_advice import forecasting
from advisor_advice.launching import ResolvedLaunch
from advisor_cli.console import (
    REPLAY,
    AllowUnsafe,
    AsJson,
    as_json_text,
    plain_console,
    say,
)
from advisor_cli.measure.testbeds import (
    Noise,
    On,
    Telemetry,
    bundled_points,
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
from advisor_data.bundled import bundled_set_points, bundled_set_references, bundled_solo_points
from advisor_power.data import with_fingerprint
from advisor_profiling import reports
from advisor_profiling.campaign.campaign import Cost, new_run
from advisor_profiling.campaign.plan import (
    DEFAULT_SET_SPLITS,
    DEFAULT_SPLITS,
    MOST_JOBS,
    Campaign,
    Member,
    Plan,
    PlanEntry,
    PlannedSplit,
    carry_out,
    counts_on,
    load_plan,
    named,
    plan_from_options,
    run_name,
    write_set,
)
from advisor_profiling.fanout import FanOut, OnWhat, run_everywhere
from advisor_profiling.reports import ConsoleReporter
from advisor_profiling.testbed import (
    Mode,
    ReplayTestbed,
    SourceName,
    Testbed,
    find_gpu,
    with_units,
)
from advisor_profiling.window import SETS, Clock, WindowRules, rules_for

# How many things of a long list a message names, and sets: people copy one of them.
_NAMED, _SETS_NAMED = 3, 8


def _plan_of(
    jobs: Mapping[str, Job],
    file: Path | None,
    run: str | None,
    splits: str | None,
    repeats: int | None,
    sample: int | None,
    **which: str,
) -> Plan:
    """The plan of a file, or of options: `among`, `pairs` or `sets`.

    Raises:
        InputError: there is none, or more than one, or it cannot be understood.
    """
    if (file is not None) + sum(map(bool, which.values())) != 1:
        raise InputError(
            "what to measure is not clear",
            fix="give a plan file, or --among, or --pairs, or --sets",
        )
    if file is None:
        if which["sets"] and sample:
            raise InputError("--sample has no meaning with --sets", fix="it draws pairs of --among")
        default = DEFAULT_SET_SPLITS if which["sets"] else DEFAULT_SPLITS
        return plan_from_options(
            splits=default if splits is None else splits,
            repeats=1 if repeats is None else repeats,
            name=run,
            sample=sample,
            **which,
        )
    options = {"splits": splits, "repeats": repeats, "sample": sample}
    if given := [f"--{name}" for name, value in options.items() if value not in (None, "")]:
        raise InputError(
            f"{', '.join(given)} cannot be combined with a plan file", fix="write it into the plan"
        )
    plan = load_plan(file, jobs)
    return plan if run is None else replace(plan, name=run_name(run))


def _shard_names(on: OnWhat, shards: int, shard: str, gpu: str) -> list[str]:
    """What the parts are called that an engine places; none on this host.

    Raises:
        InputError: the options do not go together.
    """
    if (on == "here") != (shards == 0):
        raise InputError(
            "--on and --shards belong together", fix="write --on slurm --shards 8, or neither"
        )
    check_engine(on, gpu)
    if on != "here" and shard != "1/1":
        raise InputError("--shard cannot be combined with --on", fix="give --shards alone")
    return [f"shard-{number}-of-{shards}" for number in range(1, shards + 1)]


def _check_anything(answer: Mapping[str, Any], plan: Plan) -> None:
    """Nothing of the plan can be measured: a mistake in the plan, not a result.

    Raises:
        InputError: every window was skipped.
    """
    skipped = answer["skipped"]
    if answer["windows"] or not skipped:
        return
    why = "; ".join(f"{' + '.join(item['pair'])}: {item['reason']}" for item in skipped[:_NAMED])
    raise InputError(
        f"no window of the plan {plan.name} can be measured",
        why=why + (f"; and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""),
        fix=_recorded(answer, skipped[0]["pair"], plan) if answer["replay"] else "choose others",
    )


def _recorded(answer: Mapping[str, Any], pair: Sequence[str], plan: Plan) -> str:
    """What a replay could have shown, of that pair where it was recorded at all."""
    if plan.has_sets:
        sets = sorted(
            {
                write_set(tuple(Member(part.job, part.share_percent) for part in point.parts))
                for point in bundled_set_points()
            },
            key=len,
        )
        return f"{len(sets)} sets were recorded, such as {listed(sets[:_SETS_NAMED])}"
    points = (point for point in bundled_points() if isinstance(point, PairPoint))
    recorded = [point for point in points if point.gpu_model == answer["gpu_model"]]
    if splits := {
        "/".join(f"{share:g}" for share in point.shares_percent)
        if point.mode == "mps"
        else point.mode
        for point in recorded
        if point.jobs == tuple(sorted(pair))
    }:
        return f"of {' + '.join(pair)} were recorded {listed(sorted(splits))}"
    pairs = sorted({"+".join(point.jobs) for point in recorded})
    return f"{len(pairs)} pairs were recorded, such as {listed(pairs[:_NAMED])}"


def _show_campaign(
    answer: dict[str, Any],
    campaign: Campaign,
    before: int,
    options: Sequence[LaunchSet],
    *,
    as_json: bool,
) -> None:
    run, store, has_sets = campaign.plan.name, campaign.store, campaign.plan.has_sets
    model = answer["gpu_model"]
    bundled = (p for p in bundled_points() if isinstance(p, SoloPoint)) if answer["replay"] else ()
    # All jobs alone on such GPUs.
    profiles = store.solo_points(gpu_model=model) + [p for p in bundled if p.gpu_model == model]
    points = with_pair_flags(store.pair_points(run=run), with_solo_flags(profiles))
    # For jobs without a rate in the run, of other runs on such GPUs.
    solo = reports.references(store.solo_points(run=run), profiles)
    sets = reports.SetResult.of(points, solo) if has_sets else []
    # What the jobs did in those of the ways that were measured, the best first.
    trials = sorted(
        (
            Trial(
                option,
                result.speeds,
                [part.latency_p99_ms for part in result.parts],
                result.power_w,
            )
            for option in options
            for result in sets
            if (result.mode == "time-sliced") == (option.split.sharing == "time-sliced")
            and [part.job for part in result.parts] == [job.name for job in option.jobs]
            and tuple(part.share_percent for part in result.parts) == option.split.shares
        ),
        key=lambda trial: trial.rank,
        reverse=True,
    )
    if as_json:
        rows = [to_row(point) for point in points]
        results = [asdict(result) for result in sets]
        tried = [
            {"split": str(t.pair.split), "work_per_joule": t.work_per_joule, "broken": t.broken}
            for t in trials
        ]
        say(as_json_text({"run": run, **answer, "sets": results, "tried": tried, "points": rows}))
        return
    console = plain_console(least=reports.WIDTH)
    note = " (replay of recorded points)" if answer["replay"] else ""
    console.print(f"run {run} on {answer['gpu_model']}{note}")
    pairs = reports.pair_table(reports.PairResult.of(points, solo))
    if campaign.dry_run:
        pairs = reports.planned_table([PlannedSplit(**planned) for planned in answer["planned"]])
    console.print(reports.set_table(sets) if has_sets and not campaign.dry_run else pairs)
    nothing = reports.nothing_to_do_text(
        answer["windows"], answer["to_measure"], dry_run=campaign.dry_run
    )
    new, what = _measured_pairs(campaign) - before, "set" if has_sets else "pair"
    for line in (
        *(f"{number}. {trial.text}" for number, trial in enumerate(trials, 1)),
        *reports.unknown_alone_text(points, solo),
        nothing or reports.cost_text(Cost(**answer["cost"]), new, what),
        reports.left_out_text(points, reports.LEFT_OUT if has_sets else DOUBTFUL),
    ):
        if line:
            console.print(line, highlight=False)


def _measured_pairs(campaign: Campaign) -> int:
    """How many windows of pairs the run has; marked points of jobs that failed are none."""
    points = campaign.store.pair_points(run=campaign.plan.name)
    return sum("failed" not in point.flags for point in points)


def colocate(
    file: Annotated[
        Path | None,
        typer.Argument(help="Plan file (docs/colocate.md); or --among or --pairs", metavar="PLAN"),
    ] = None,
    among: Annotated[str, typer.Option(help="All pairs of these jobs, such as a,b,c")] = "",
    pairs: Annotated[str, typer.Option(help="Pairs, such as a+b,c+d")] = "",
    sets: Annotated[
        str,
        typer.Option(
            help=f"Sets of 2 to {MOST_JOBS} jobs, such as a+b+c,a+a+d@50 (d limited to 50 %)"
        ),
    ] = "",
    splits: Annotated[
        str | None,
        typer.Option(
            help="nine, uncapped, time-sliced, 70/70, '66+66 units' "
            f"(default: {DEFAULT_SPLITS}). For sets: uncapped, time-sliced "
            f"(default: {DEFAULT_SET_SPLITS})"
        ),
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Draw this many pairs from --among")] = (
        None
    ),
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Windows for each pair and split (default: 1)")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Name of the run; a new one measures everything again")
    ] = None,
    tries: Annotated[
        int,
        typer.Option(
            "--try",
            min=1,
            max=3,
            help="Measure this many of the best options of one set, as `advisor launch "
            "--try` does, and print the best; launches nothing",
        ),
    ] = 1,
    gpu: Annotated[str, typer.Option(help="Index, UUID, several (0,1) or `replay`")] = "0",
    shard: Annotated[str, typer.Option(help="Part of the plan, such as 2/8")] = "1/1",
    on: On = "here",
    shards: Annotated[
        int, typer.Option(min=0, help="With --on: number of parts, each for one GPU of a node")
    ] = 0,
    window: Annotated[
        float | None, typer.Option(min=0.5, help="Longest window, s (default: 8, for sets 5)")
    ] = None,
    source: Telemetry = None,
    noise: Noise = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what would be measured and for how long, and measure nothing"
        ),
    ] = False,
    allow_unsafe: AllowUnsafe = False,
    as_json: AsJson = False,
) -> None:
    """Measure pairs or sets of jobs on one GPU at splits: their rates and the power.

    Each point is kept as soon as it is measured; after Ctrl-C or a crash the same command goes on.

    Example: advisor colocate --pairs train+score --splits 30/70,50/50
    """
    settings, console = read_settings(), plain_console(stderr=True)
    if not (gpus := [word.strip() for word in gpu.split(",") if word.strip()]):
        raise InputError(f"--gpu {gpu!r} names no GPU", fix="write --gpu 0, or --gpu 0,1")
    part = part_of(shard)
    check_replay(gpus, noise, source)
    names = _shard_names(on, shards, shard, gpu)
    jobs = _jobs(settings, gpus[0], console)
    chosen = _plan_of(jobs, file, run, splits, repeats, sample, among=among, pairs=pairs, sets=sets)
    card = None
    if gpus[0] == REPLAY:
        with _open(settings, REPLAY, chosen) as replay:
            card = replay.gpu
            say_replay(console, card.model, noise)
    options: Sequence[LaunchSet] = ()
    if tries > 1:
        if splits or "@" in sets:
            raise InputError("a split is given", fix="leave out --splits and @ in --sets, or --try")
        options = _options(sets, tries, jobs, card, gpus[0], settings)
        entries = tuple(
            PlanEntry(
                sets=(tuple(map(Member, (job.name for job in option.jobs), option.split.shares)),),
                splits=(TIME_SLICED if option.split.sharing == "time-sliced" else UNCAPPED,),
            )
            for option in options
        )
        name = chosen.name if run else f"{chosen.name}-try"
        chosen = replace(chosen, name=name, entries=entries)
    jobs |= {name: with_fingerprint(jobs[name]) for name in chosen.jobs(jobs) & jobs.keys()}
    here = on == "here" and len(gpus) == 1
    timing = measured_timing(settings, gpus[0], source, console) if here else None
    with stoppable(console), open_points(settings, gpus[0]) as store:
        campaign = Campaign(
            plan=chosen,
            part=part,
            jobs=jobs,
            measured=bundled_points(),
            store=store,
            reporter=ConsoleReporter(console, replayed=gpus[0] == REPLAY),
            rules=rules_for(window, timing, SETS if chosen.has_sets else WindowRules()),
            dry_run=dry_run,
            # A replay computes nothing.
            counts=lambda gpu: counts_on(
                gpu, settings.home, allow_unsafe=allow_unsafe or gpus[0] == REPLAY
            ),
        )
        before = _measured_pairs(campaign)
        answer, code = (
            _on_single_gpu(campaign, settings, gpus[0], source, noise)
            if here
            else _on_several(campaign, on, gpus, names, settings, console)
        )
        if part == (1, 1):  # others may have what this part has not
            _check_anything(answer, chosen)
        _show_campaign(answer, campaign, before, options, as_json=as_json)
    if code:
        raise typer.Exit(code)


def _options(
    sets: str,
    tries: int,
    jobs: Mapping[str, Job],
    card: Gpu | None,
    gpu: str,
    settings: Settings,
) -> list[LaunchSet]:
    """The best ways of sharing of one set, whose plan was read before.

    Raises:
        InputError: a job has no profile.
        NoSplitError: its jobs should not share.
    """
    jobs_of_set = [named(name.strip(), jobs) for name in sorted(sets.split("+"))]
    launch = ResolvedLaunch(
        request=LaunchRequest.of(*(job.name for job in jobs_of_set), tries=tries),
        card=card or with_units(find_gpu(gpu), settings),
    )
    return [
        option
        for option, _ in forecasting.recommended(jobs_of_set, launch, settings, measured=True)
    ]


def _on_several(
    campaign: Campaign,
    on: OnWhat,
    gpus: Sequence[str],
    names: list[str],
    settings: Settings,
    console: Console,
) -> tuple[dict[str, Any], int]:
    """What came of the campaign on all GPUs together, and the exit code."""
    wanted = (
        FanOut(names=[f"GPU {gpu}" for gpu in gpus], gpus=gpus, part=campaign.part)
        if on == "here"
        else FanOut(names=names, on=on, run=campaign.plan.name, options=("--shards", "0"))
    )
    answers, code = run_everywhere(wanted, settings, campaign.store, liner(console))
    counts, lists = ("windows", "to_measure", "measured", "estimated_s"), ("planned", "failures")
    total: dict[str, Any] = {
        **answers[0],
        **{key: sum(answer[key] for answer in answers) for key in counts},
        **{key: [item for answer in answers for item in answer[key]] for key in lists},
        "cost": asdict(sum((Cost(**answer["cost"]) for answer in answers), Cost())),
    }
    # Each GPU leaves out the same pairs, for the same reasons.
    for skipped in total["skipped"] if on != "here" else ():
        campaign.reporter.phase(f"skipping {' + '.join(skipped['pair'])}: {skipped['reason']}")
    return total, code


def _on_single_gpu(
    campaign: Campaign, settings: Settings, gpu: str, source: SourceName | None, noise: bool
) -> tuple[dict[str, Any], int]:
    run = campaign.plan.name

    def open_gpu(mode: Mode | None) -> AbstractContextManager[Testbed]:
        # A run goes on in several processes, one after the other and on several GPUs, and opens
        # a GPU with limits and without MPS; each time has logs of its own.
        logs = f"{run}/{new_run(Clock().utc())}"
        return _open(settings, gpu, campaign.plan, source, mode, logs, run if noise else None)

    report = carry_out(campaign, open_gpu)
    return {
        "gpu_model": report.gpu_model,
        "replay": gpu == REPLAY,
        "windows": report.windows,
        "to_measure": report.to_measure,
        "measured": report.measured,
        "estimated_s": report.estimated_s,
        "planned": [asdict(planned) for planned in report.planned],
        "cost": asdict(report.cost),
        "skipped": [{"pair": list(s.pair), "reason": s.reason} for s in report.skipped],
        "failures": [{"target": str(f.target), "error": str(f.cause)} for f in report.failures],
    }, 5 if report.failures else 0


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
    return open_testbed(
        settings, gpu, source, mode, logs, jobs=plan.most_jobs, sets=plan.has_sets, noise=noise
    )


def _jobs(settings: Settings, gpu: str, console: Console) -> dict[str, Job]:
    if gpu == REPLAY:
        of_sets = ReplayTestbed(bundled_set_references()).jobs
        return of_sets | ReplayTestbed(bundled_solo_points()).jobs
    # Where there are none of our own, as in an empty folder, those that come with advisor.
    by_folder = [sound_jobs(folder) for folder in job_folders(settings.jobs_dir)]
    for fault in by_folder[0][1]:
        console.print(f"! {fault}", highlight=False, soft_wrap=True)
    sound = next((jobs for jobs, _ in by_folder if jobs), list[Job]())
    return {job.name: job for job in sound if job.gpus == 1}
