"""The parts of power as tables with stacked bars."""

import typer

from advisor.wire.components import ComponentsOfJob, ComponentsOfPair, FittedTo
from advisor_cli.shared.power_bars import letters, print_parts


def show_job(found: ComponentsOfJob) -> None:
    """One job at each share."""
    typer.echo(f"{found.job} alone on {found.gpu_model}{_limit(found.power_limit_w)}")
    typer.echo(_legend(found.weights))
    print_parts("share", [(f"{one.share_percent:g} %", one.power) for one in found.shares])


def show_pair(found: ComponentsOfPair) -> None:
    """Two jobs at each split, and who lowers the clock where it falls most."""
    a, b = found.jobs
    typer.echo(f"{a} beside {b} on {found.gpu_model}{_limit(found.power_limit_w)}")
    typer.echo(_legend(found.weights))
    print_parts("split", [(one.split, one.power) for one in found.splits])
    known = [one for one in found.splits if one.causes_mhz is not None]
    worst = max(known or found.splits, key=lambda one: one.clock_loss_mhz)
    typer.echo(f"\nwhere the clock falls most: {worst.jostling}")


def _legend(weights: FittedTo) -> str:
    return (
        f"{letters()}\n~ estimated by weights fitted to {weights.windows} windows of "
        f"{weights.jobs} jobs alone, ? extrapolated: these had nothing like it; W (5 to 95 %)\n"
    )


def _limit(power_limit_w: float | None) -> str:
    return "" if power_limit_w is None else f", power limit {power_limit_w:.0f} W"
