"""`advisor profile --on`: a GPU of some node for each job, with all its shares."""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.console import Console

from advisor.core.job import Job
from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor.formats.rows import from_row
from advisor.settings import Settings
from advisor_cli.measure.on_nodes import NodesRequest, Place, run_on_nodes
from advisor_cli.measure.testbeds import open_points
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.stopping import stoppable
from advisor_profiling.reports import sweep as report


def profile_on_nodes(
    on: Place,
    jobs: Sequence[Job],
    settings: Settings,
    console: Console,
    *,
    gpu: str,
    fresh: bool,
    as_json: bool,
) -> None:
    """Measure each job alone on a GPU of some node.

    Raises:
        InputError: a job is named twice.
    """
    names = [job.name for job in jobs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{twice[0]} is named twice", fix="name each job once")
    # What changes a job makes it another shard, whose old answer does not count.
    shards = [f"{job.name}-{job.job_hash}" for job in jobs]
    run = f"profile-{zlib.crc32(repr(shards).encode()):08x}"
    request = NodesRequest(
        on=on, run=run, gpu=gpu, keep_answers=not fresh, fresh=fresh, options=("--resume",)
    )
    with stoppable(console), open_points(settings, gpu) as store:
        answers, code = run_on_nodes(request, shards, settings, store, console)
    show_profiles(answers, as_json=as_json)
    if code:
        raise typer.Exit(code)


def show_profiles(answers: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print what `advisor profile --json` answered for each job."""
    if as_json:
        typer.echo(json.dumps({"profiles": list(answers)}))
        return
    console = plain_console()
    console.width = max(console.width, report.WIDTH)
    for answer in answers:
        note = " (replay of recorded points)" if answer["replay"] else ""
        console.print(f"{answer['job']} on {answer['gpu_model']}{note}")
        console.print(report.table([from_row(SoloPoint, row) for row in answer["points"]]))
        for line in answer["problems"]:
            console.print(f"! {line}", highlight=False)
