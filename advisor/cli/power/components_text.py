"""The parts of power as tables with stacked bars."""

from collections.abc import Iterable, Mapping, Sequence

import typer
from rich.table import Table
from rich.text import Text

from advisor.cli.shared.console import print_table
from advisor.core.interval import Interval
from advisor.wire.components import (
    Basis,
    ComponentsOfJob,
    ComponentsOfPair,
    FittedTo,
    PowerParts,
)

BAR = 50
"""Characters from 0 to the power limit."""

_LETTERS: Mapping[str, str] = {
    "floor": "f",
    "tensor": "t",
    "fp32": "3",
    "integer": "i",
    "warps": "w",
    "fabric": "c",
    "memory": "m",
}

_MARKS: Mapping[Basis, str] = {"measured": "", "estimated": "~", "extrapolated": "?"}


def show_job(found: ComponentsOfJob) -> None:
    """One job at each share."""
    typer.echo(f"{found.job} alone on {found.gpu_model}{_limit(found.power_limit_w)}")
    typer.echo(_legend(found.weights))
    _print("share", [(f"{one.share_percent:g} %", one.power) for one in found.shares])


def show_pair(found: ComponentsOfPair) -> None:
    """Two jobs at each split, and who lowers the clock where it falls most."""
    a, b = found.jobs
    typer.echo(f"{a} beside {b} on {found.gpu_model}{_limit(found.power_limit_w)}")
    typer.echo(_legend(found.weights))
    _print("split", [(one.split, one.power) for one in found.splits])
    known = [one for one in found.splits if one.causes_mhz is not None]
    worst = max(known or found.splits, key=lambda one: one.clock_loss_mhz)
    typer.echo(f"\nwhere the clock falls most: {worst.jostling}")


def bar(components_w: Mapping[str, Interval], most_w: float) -> str:
    """A letter for each `most_w / BAR` of each part, dots for what is left to `most_w`.

    The ends of the parts are rounded, not their lengths, so that the bar is as long as the sum.
    """
    drawn, reached_w = "", 0.0
    for name, value in components_w.items():
        reached_w += value.value
        drawn += _LETTERS[name] * (round(BAR * reached_w / most_w) - len(drawn))
    return drawn.ljust(BAR, ".")


def _legend(weights: FittedTo) -> str:
    letters = "  ".join(f"{letter} {name}" for name, letter in _LETTERS.items())
    return (
        f"{letters}  . left\n~ estimated by weights fitted to {weights.windows} windows of "
        f"{weights.jobs} jobs alone, ? extrapolated: these had nothing like it; W (5 to 95 %)\n"
    )


def _limit(power_limit_w: float | None) -> str:
    return "" if power_limit_w is None else f", power limit {power_limit_w:.0f} W"


def _print(first: str, rows: Sequence[tuple[str, PowerParts]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (first, "W", "left, W", "parts", *_LETTERS):
        table.add_column(name, no_wrap=True, justify="left" if name == "parts" else "right")
    most_w = max(p.power_w + max(p.headroom_w or 0.0, 0.0) for _, p in rows)
    for name, power in rows:
        table.add_row(*map(Text, (name, *_cells(power, most_w))))
    print_table(table, width=4 * BAR)


def _cells(power: PowerParts, most_w: float) -> Iterable[str]:
    yield f"{_MARKS[power.power_basis]}{power.power_w:.0f}"
    yield "" if power.headroom_w is None else f"{power.headroom_w:.0f}"
    yield bar(power.components_w, most_w)
    for name, value in power.components_w.items():
        mark = _MARKS[power.memory_basis if name == "memory" else power.others_basis]
        yield f"{mark}{value.value:.0f} ({value.low:.0f}-{value.high:.0f})"
