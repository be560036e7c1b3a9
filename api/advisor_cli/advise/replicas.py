"""`advisor replicas`: how many copies of one job a GPU holds, and what ends their number."""

from collections.abc import Iterator
from typing import Annotated

import typer

from advisor.core.split import MOST_JOBS
from advisor.core.wording import less_or_more
from advisor.decide.reasons import percent
from advisor.decide.recommendation import Request
from advisor.formats.wire import write
from advisor.settings import read_settings
from advisor.wire.requests import MIN_GAIN
from advisor.wire.sets import Copies, Replicas
from advisor_advice.set_advice import advise_replicas
from advisor_advice.site.known_profiles import find_profiles
from advisor_advice.site.promises import promised_p99_ms
from advisor_cli.advise.job_requests import longest_p99_ms, min_speeds
from advisor_cli.shared.console import plain_console, plain_table, print_table
from advisor_cli.shared.options import (
    AsJson,
    Cores,
    GpuModelOption,
    MaxP99,
    MaxPower,
    Memory,
    MinGain,
    MinSpeed,
    ProfilesOption,
)
from advisor_cli.shared.screen import MOST_WIDTH, print_folded


def replicas(
    job: Annotated[str, typer.Argument(help="Name of a profiled job", metavar="JOB")],
    most: Annotated[
        int, typer.Option(help="Copies that are looked at; beyond 7 nothing was measured")
    ] = MOST_JOBS,
    min_speed: MinSpeed = None,
    max_p99: MaxP99 = None,
    max_power: MaxPower = None,
    memory: Memory = None,
    cores: Cores = None,
    min_gain: MinGain = MIN_GAIN,
    gpu_model: GpuModelOption = None,
    profiles: ProfilesOption = None,
    as_json: AsJson = False,
) -> None:
    """How many copies of a job run on one GPU under MPS, and what ends their number?

    Says the rate of all, the tail, watts and joules for each unit of progress. Exit code 10: not
    even one keeps its limits.
    """
    settings = read_settings()
    by_job_ms, for_all_ms = longest_p99_ms(max_p99 or (), [job])
    request = Request(
        min_speed=min_speeds(min_speed or (), [job]),
        default_min_speed=settings.min_speed,
        max_p99_ms=promised_p99_ms([job], settings.jobs_dir) | by_job_ms,
        default_max_p99_ms=for_all_ms,
        max_power_w=max_power,
        memory_mib=memory,
        min_gain=min_gain,
        host_cores=cores,
    )
    found = find_profiles([job], settings, gpu_model, profiles)
    told = advise_replicas(found, request, settings, most=most)
    typer.echo(write(told)) if as_json else _show(told)


def _show(told: Replicas) -> None:
    unit, best, alone = told.rate_unit, told.copies[-1], told.copies[0]
    times = best.rate.value / alone.rate.value
    saved = less_or_more(1 - best.joules.value / alone.joules.value, 0)
    copies = "1 copy" if told.best == 1 else f"{told.best} copies"
    typer.echo(f"{told.job} on the {told.gpu_model}: {copies}. predicted")
    typer.echo(f"{times:.2f} times the rate of one, {saved} joules for each of its {unit}")
    headings = ("copies", f"{unit}/s", "each", "at worst", "p99 ms", "at worst", "W", "J each", "")
    print_table(plain_table(headings, _rows(told)))
    ended = f"ended by {told.ended_by}: " if told.ended_by else ""
    console = plain_console(highlight=False, most=MOST_WIDTH)
    print_folded(console, "", f"{ended}{told.why}")
    for warning in told.warnings:
        print_folded(console, "! ", warning)


def _rows(told: Replicas) -> Iterator[tuple[str, ...]]:
    for copies in (*told.copies, *filter(None, [told.beyond])):
        yield (*_cells(copies), "too many" if copies is told.beyond else "")


def _cells(copies: Copies) -> tuple[str, ...]:
    p99 = copies.latency_p99_ms
    return (
        str(copies.number),
        f"{copies.rate.value:,.4g}",
        percent(min(copies.speed.value, 1.0)),
        percent(min(copies.speed.low, 1.0)),
        f"{p99.value:.3g}" if p99 else "-",
        f"{p99.high:.3g}" if p99 else "-",
        f"{copies.power_w.value:.0f}",
        f"{copies.joules.value:.3g}",
    )
