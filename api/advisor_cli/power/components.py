"""`advisor power components`: what the power of a job, or of two jobs together, goes to."""

from typing import Annotated

import typer

from advisor.errors import InputError
from advisor.settings import read_settings
from advisor.wire.answers import ComponentsOfJob, ComponentsOfPair, FittedTo
from advisor_advice.answers import components_of_job, components_of_pair
from advisor_cli.console import AsJson, GpuModelOption, as_json_text, say
from advisor_cli.power_bars import letters, print_parts


def components(
    job: Annotated[str, typer.Argument(help="Name of a profiled job", metavar="A")],
    other: Annotated[
        str | None,
        typer.Argument(help="A second job, with --splits; may be the same", metavar="[B]"),
    ] = None,
    splits: Annotated[
        bool, typer.Option("--splits", help="Both jobs on one GPU, at each split")
    ] = False,
    gpu_model: GpuModelOption = None,
    as_json: AsJson = False,
) -> None:
    """What the power of a GPU goes to: floor, classes of SM work, fabric and memory.

    Of one job at each share of its profile. Of two jobs with --splits: measured ones, else as the
    model in use predicts them, and who lowers the clock where the power limit is reached.

    Example: advisor power components triad matmul-bf16 --splits
    """
    if splits and other is None:
        raise InputError(
            "--splits needs a second job", fix=f"advisor power components {job} OTHER --splits"
        )
    if other is not None and not splits:
        raise InputError(
            f"{job} and {other} are two jobs",
            why="two jobs share a GPU at a split",
            fix=f"advisor power components {job} {other} --splits",
        )
    settings = read_settings()
    if other is None:
        of_job = components_of_job(job, settings, gpu_model)
        say(as_json_text(of_job)) if as_json else _show_job(of_job)
        return
    of_pair = components_of_pair(job, other, settings, gpu_model)
    say(as_json_text(of_pair)) if as_json else _show_pair(of_pair)


def _show_job(found: ComponentsOfJob) -> None:
    say(f"{found.job} alone on {found.gpu_model}{_limit(found.power_limit_w)}")
    say(_legend(found.weights))
    print_parts("share", [(f"{one.share_percent:g} %", one.power) for one in found.shares])


def _show_pair(found: ComponentsOfPair) -> None:
    a, b = found.jobs
    say(f"{a} beside {b} on {found.gpu_model}{_limit(found.power_limit_w)}")
    say(_legend(found.weights))
    print_parts("split", [(one.split, one.power) for one in found.splits])
    say(f"\nwhere the clock falls most: {found.worst.jostling}")


def _legend(weights: FittedTo) -> str:
    return (
        f"{letters()}\n~ estimated by weights fitted to {weights.windows} windows of "
        f"{weights.jobs} jobs alone, ? extrapolated: these had nothing like it; W (5 to 95 %)\n"
    )


def _limit(power_limit_w: float | None) -> str:
    return "" if power_limit_w is None else f", power limit {power_limit_w:.0f} W"
