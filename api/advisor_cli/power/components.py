"""`advisor power components`: what is known of where the power of a job goes."""

from typing import Annotated

import typer

from advisor.settings import read_settings
from advisor.wire.answers import ShareParts
from advisor_advice.answers import components_of_job
from advisor_cli.console import (
    AsJson,
    Columns,
    GpuModelOption,
    as_json_text,
    print_table,
    say,
    say_lines,
    table_of,
)

_SHARES: Columns[ShareParts] = (
    ("share", lambda one: f"{one.share_percent:g} %"),
    ("W", lambda one: f"{one.power_w:.0f}"),
    ("left, W", lambda one: None if one.headroom_w is None else f"{one.headroom_w:.0f}"),
    ("memory as read, W", lambda one: None if one.memory_w is None else f"{one.memory_w:.0f}"),
    ("MHz", lambda one: None if one.clock_mhz is None else f"{one.clock_mhz:.0f}"),
)


def components(
    job: Annotated[str, typer.Argument(help="Name of a profiled job")],
    gpu_model: GpuModelOption = None,
    as_json: AsJson = False,
) -> None:
    """Split a job's power into floor, memory (as read) and the rest.

    At each share of its profile, from measured windows. docs/component-power.md says why nothing
    finer is told.

    Example: advisor power components triad
    """
    found = components_of_job(job, read_settings(), gpu_model)
    if as_json:
        say(as_json_text(found))
        return
    limit_w = found.power_limit_w
    limit = "not known" if limit_w is None else f"{limit_w:.0f} W"
    say(f"{found.job} alone on {found.gpu_model}, power limit {limit}")
    print_table(table_of(_SHARES, found.shares, [name for name, _ in _SHARES]))
    floor = "measured" if found.floor_is_measured else "that of the empty GPU and of contexts"
    say_lines(
        (
            f"floor {found.floor_w:.0f} W, with jobs open and none at work: {floor}",
            "memory as read: take differences below 10 W (H100) or 20 W (H200) for none",
        )
    )
