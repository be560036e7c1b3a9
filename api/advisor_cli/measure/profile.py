"""`advisor profile`: measure one job alone at each share."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console

from advisor.core.job import Job
from advisor.errors import InputError
from advisor.settings import Settings, read_settings
from advisor_cli.measure.on_nodes import NodesRequest, On, OnWhat, run_on_nodes
from advisor_cli.measure.profile_here import measure
from advisor_cli.measure.profile_request import ProfileRequest, named_job
from advisor_cli.measure.profile_text import show_profiles, show_sweep
from advisor_cli.measure.testbeds import open_points, part_of
from advisor_cli.shared.console import plain_console
from advisor_cli.shared.grouped import grouped
from advisor_cli.shared.options import AsJson
from advisor_cli.shared.say import say
from advisor_cli.shared.stopping import stoppable


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
        jobs = _jobs_of_nodes(asked.what, asked.name, on, settings)
        request = _nodes_request(on, jobs, asked.gpu, fresh=not asked.resume)
        _profile_on_nodes(request, jobs, settings, console, as_json=as_json)
        return
    asked = replace(asked, what=_part(asked.what, shard))
    _profile_here(asked, settings, console, as_json=as_json)


def _part(what: Sequence[str], shard: str) -> list[str]:
    number, count = part_of(shard)
    if count == 1:
        return [*what]
    if count != len(what):
        raise InputError(f"--shard {shard} is not one of {len(what)} jobs", fix="name each job")
    return [what[number - 1]]


def _jobs_of_nodes(
    what: Sequence[str], name: str | None, on: OnWhat, settings: Settings
) -> list[Job]:
    if name is not None:
        raise InputError(f"--name cannot be combined with --on {on}", fix="write a job file")
    if twice := sorted({word for word in what if what.count(word) > 1}):
        raise InputError(f"{twice[0]} is named twice", fix="name each job once")
    return [named_job([word], settings, replayed=False) for word in what]


def _nodes_request(on: OnWhat, jobs: Sequence[Job], gpu: str, *, fresh: bool) -> NodesRequest:
    run = f"profile-{zlib.crc32(repr(_shard_names(jobs)).encode()):08x}"
    # A shard that is started again goes on in any case.
    return NodesRequest(
        on=on, run=run, gpu=gpu, keep_answers=not fresh, fresh=fresh, options=("--resume",)
    )


def _shard_names(jobs: Sequence[Job]) -> list[str]:
    """What changes a job makes it another shard, whose old answer does not count."""
    return [f"{job.name}-{job.job_hash}" for job in jobs]


def _profile_on_nodes(
    request: NodesRequest,
    jobs: Sequence[Job],
    settings: Settings,
    console: Console,
    *,
    as_json: bool,
) -> None:
    """A GPU of some node for each job, with all its shares."""
    with stoppable(console), open_points(settings, request.gpu) as store:
        answers, code = run_on_nodes(request, _shard_names(jobs), settings, store, console)
    show_profiles(answers, as_json=as_json)
    if code:
        raise typer.Exit(code)


def _profile_here(
    asked: ProfileRequest, settings: Settings, console: Console, *, as_json: bool
) -> None:
    with stoppable(console):
        found = measure(asked, settings, console)
    show_sweep(
        found.job,
        found.gpu,
        list(found.points),
        found.result,
        as_json=as_json,
        replayed=asked.replayed,
    )
    if found.result.failures:
        raise typer.Exit(5)
    if as_json or asked.replayed:
        return
    name = found.job.name
    if found.lacking:
        say(f"no profile yet: {found.lacking}; next: advisor profile {name} --shares 50,100")
    elif asked.name is not None:
        say(f"next: advisor recommend {name}")
