"""What `advisor profile` says at its end."""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.core.gpu import Gpu
from advisor.core.job import Job
from advisor.core.records import SoloPoint
from advisor.formats.rows import from_row, to_row
from advisor_cli.shared.console import plain_console, show_chart
from advisor_cli.shared.say import as_json_text, say
from advisor_profiling.campaign.sweep import SweepResult
from advisor_profiling.reports import sweep as report


def show_sweep(
    job: Job,
    gpu: Gpu,
    points: list[SoloPoint],
    result: SweepResult,
    *,
    as_json: bool,
    replayed: bool,
) -> None:
    """Print what was measured: table, curve and problems, or JSON."""
    wrong = report.problems(points, result, gpu.memory_mib)
    if replayed:
        points = [p for p in map(report.as_recorded, points) if isinstance(p, SoloPoint)]
    if as_json:
        say(as_json_text(_as_json(job, gpu, points, result, wrong, replayed)))
        return
    console = plain_console(least=report.WIDTH)
    console.print(f"{job.name} on {gpu.model}, rate in {job.progress.unit}/s{_note(replayed)}")
    if points:
        console.print(report.table(points))
        if (requests := report.requests(points)) is not None:
            console.print(requests)
        show_chart(report.plot(points))
        console.print(report.summary(points, replayed=replayed), highlight=False)
    for line in wrong:
        console.print(f"! {line}", highlight=False)


def show_profiles(answers: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print what `advisor profile --json` answered for each of several jobs."""
    if as_json:
        say(as_json_text({"profiles": list(answers)}))
        return
    console = plain_console(least=report.WIDTH)
    for answer in answers:
        console.print(f"{answer['job']} on {answer['gpu_model']}{_note(answer['replay'])}")
        console.print(report.table([from_row(SoloPoint, row) for row in answer["points"]]))
        for line in answer["problems"]:
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
