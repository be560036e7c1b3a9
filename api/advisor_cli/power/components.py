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
    ("share", lambda at_share: f"{at_share.share_percent:g} %"),
    ("W", lambda at_share: f"{at_share.power_w:.0f}"),
    (
        "left, W",
        lambda at_share: None if at_share.headroom_w is None else f"{at_share.headroom_w:.0f}",
    ),
    (
        "memory as read, W",
        lambda at_share: None if at_share.memory_w is None else f"{at_share.memory_w:.0f}",
    ),
    ("MHz", lambda at_share: None if at_share.clock_mhz is None else f"{at_share.clock_mhz:.0f}"),
)


def components(
    job: Annotated[str, typer.Argument(help="Name of a profiled job")],
    gpu_model: GpuModelOption = None,
    as_json: AsJson = False,
) -> None:
    """Split a job's power into floor, memory (as read) and the rest.

    At each share of its profile, from measured windows. docs/component-power.md explains why there
    are no finer parts.

    Example: advisor power components triad
    """
    parts = components_of_job(job, read_settings(), gpu_model)
    if as_json:
        say(as_json_text(parts))
        return
    limit = "not known" if parts.power_limit_w is None else f"{parts.power_limit_w:.0f} W"
    say(f"{parts.job} alone on {parts.gpu_model}, power limit {limit}")
    print_table(table_of(_SHARES, parts.shares, [name for name, _ in _SHARES]))
    floor = "measured" if parts.floor_is_measured else "that of the empty GPU and of contexts"
    say_lines(
        (
            f"floor {parts.floor_w:.0f} W, with jobs open and none at work: {floor}",
            "memory as read: take differences below 10 W (H100) or 20 W (H200) for none",
        )
    )
