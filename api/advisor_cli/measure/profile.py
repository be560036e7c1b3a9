"""`advisor profile`: measure one job alone at each share."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.core.job import check_one_gpu
from advisor.core.records import SoloPoint
from advisor.core.telemetry import NO_POWER
from advisor.errors import InputError
from advisor.formats.rows import from_row, to_row
from advisor.settings import Settings, read_settings
from advisor_cli.console import AsJson, as_json_text, grouped, plain_console, say, show_chart
from advisor_cli.measure.profile_here import Profiled, ProfileRequest, measure, named_job
from advisor_cli.measure.testbeds import On, check_engine, liner, open_points, part_of, stoppable
from advisor_profiling import reports
from advisor_profiling.fanout import FanOut, OnWhat, run_everywhere


@grouped
def profile(
    asked: ProfileRequest,
    on: On = "here",
    shard: Annotated[str, typer.Option(help="Of several jobs the one to measure, as 2/3")] = "1/1",
    as_json: AsJson = False,
) -> None:
    """Measure a job alone at each share: rate, power and counters.

    Each point is kept as soon as it is measured; after Ctrl-C or a crash the same command goes on.

    Example: advisor profile --name train -- python train.py
    """
    settings, console = read_settings(), plain_console(stderr=True)
    asked.check()
    if on != "here":
        _profile_on_nodes(asked, on, settings, console, as_json=as_json)
        return
    asked = replace(asked, what=_part(asked.what, shard))
    with stoppable(console):
        found = measure(asked, settings, console)
    if as_json:
        say(as_json_text(_as_json(found, asked.replayed)))
    else:
        _show_sweep(found, asked.replayed)
    if found.result.failures:
        raise typer.Exit(5)
    if as_json or asked.replayed:
        return
    name = found.job.name
    if found.lacking:
        here = f"advisor profile {name} --shares 50,100"
        after = "measure it on a card that tells its power" if found.lacking == NO_POWER else here
        say(f"no profile yet: {found.lacking}; next: {after}")
    elif asked.name is not None:
        say(f"next: advisor recommend {name}")


def _part(what: Sequence[str], shard: str) -> list[str]:
    number, count = part_of(shard)
    if count == 1:
        return [*what]
    if count != len(what):
        raise InputError(f"--shard {shard} is not one of {len(what)} jobs", fix="name each job")
    return [what[number - 1]]


def _profile_on_nodes(
    asked: ProfileRequest, on: OnWhat, settings: Settings, console: Console, *, as_json: bool
) -> None:
    """A GPU of some node for each job, with all its shares."""
    what = asked.what
    if asked.name is not None:
        raise InputError(f"--name cannot be combined with --on {on}", fix="write a job file")
    if twice := sorted({word for word in what if what.count(word) > 1}):
        raise InputError(f"{twice[0]} is named twice", fix="name each job once")
    check_engine(on, asked.gpu)
    jobs = [named_job([word], settings, replayed=False) for word in what]
    for job in jobs:
        check_one_gpu(job.name, job.gpus)
    # What changes a job makes it another shard, whose old answer does not count.
    names = [f"{job.name}-{job.job_hash}" for job in jobs]
    wanted = FanOut(
        names=names,
        on=on,
        run=f"profile-{zlib.crc32(repr(names).encode()):08x}",
        keep_answers=asked.resume,
        fresh=not asked.resume,
        options=("--resume",),  # a shard that is started again goes on in any case
    )
    with stoppable(console), open_points(settings, asked.gpu) as store:
        answers, code = run_everywhere(wanted, settings, store, liner(console))
    show_profiles(answers, as_json=as_json)
    if code:
        raise typer.Exit(code)


def _shown_points(found: Profiled, replayed: bool) -> list[SoloPoint]:
    """What was measured; of a replay as it was recorded."""
    points = [*map(reports.as_recorded, found.points)] if replayed else [*found.points]
    return [p for p in points if isinstance(p, SoloPoint)]


def _show_sweep(found: Profiled, replayed: bool) -> None:
    job, points = found.job, _shown_points(found, replayed)
    console = plain_console(least=reports.WIDTH)
    console.print(
        f"{job.name} on {found.gpu.model}, rate in {job.progress.unit}/s{_note(replayed)}"
    )
    if points:
        console.print(reports.table(points))
        if (requests := reports.requests(points)) is not None:
            console.print(requests)
        show_chart(reports.curves(points), below="share of the GPU, %")
        console.print(reports.summary(points, replayed=replayed), highlight=False)
    for line in found.problems:
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


def _as_json(found: Profiled, replayed: bool) -> dict[str, Any]:
    points, result = _shown_points(found, replayed), found.result
    return {
        "job": found.job.name,
        "gpu_model": found.gpu.model,
        "gpu_uuid": found.gpu.uuid,
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
        "problems": found.problems,
    }
