"""What the power of a job or of a pair goes to: stacked bars, and the watts as a table."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from advisor.core.wording import count_of
from advisor.wire.answers import (
    MARKS,
    NOT_IDENTIFIED,
    ComponentsOfJob,
    ComponentsOfPair,
    PowerParts,
)
from advisor_training.reports.document import Figure, Ink, TextTable

COLOURS: Mapping[str, str] = {
    "floor": "#7d8590",
    "tensor": "#2f7ed8",
    "fp32": "#c8640a",
    "integer": "#9a6bd1",
    "warps": "#9c8500",
    "fabric": "#c94c86",
    "memory": "#1f9164",
}
"""Of the parts, as the pages of the service have them: seen on white and on black."""

FoundComponents = ComponentsOfJob | ComponentsOfPair


def title_of(found: FoundComponents) -> str:
    """A heading."""
    if isinstance(found, ComponentsOfJob):
        return f"Parts of the power: {found.job} alone on {found.gpu_model}"
    return f"Parts of the power: {' beside '.join(found.jobs)} on {found.gpu_model}"


def notes_of(found: FoundComponents) -> Iterator[str]:
    """How to read it, and of a pair where the clock falls most."""
    yield (
        "~ is estimated by weights fitted to "
        f"{count_of(found.weights.windows, 'window')} of {count_of(found.weights.jobs, 'job')} "
        "alone, ? is extrapolated: these had nothing like it. Without a mark it was measured."
    )
    yield NOT_IDENTIFIED
    if found.power_limit_w is None:
        yield "The power limit is not known."
    if isinstance(found, ComponentsOfPair):
        known = [one for one in found.splits if one.causes_mhz is not None]
        worst = max(known or found.splits, key=lambda one: one.clock_loss_mhz)
        yield f"Where the clock falls most: {worst.jostling}."


def tables_of(found: FoundComponents) -> Iterator[TextTable]:
    """Every bar as text, and of a pair who lowers the clock at each split."""
    is_pair = isinstance(found, ComponentsOfPair)
    yield TextTable(
        "W in parts, and their bounds (5 to 95 %)",
        ["split" if is_pair else "share", "W", "left, W", *COLOURS],
        [(name, *_cells(power)) for name, power in _powers(found)],
    )
    if is_pair:
        said = [(one.split, f"{one.clock_loss_mhz:.0f}", one.jostling) for one in found.splits]
        yield TextTable("Who lowers the clock", ("split", "below the highest, MHz", ""), said)


def figure_of(number: int, found: FoundComponents) -> Figure:
    """A bar for each share or split, and the power limit."""
    powers = _powers(found)
    caption = f"{title_of(found)}. A bar ends at the power"
    if found.power_limit_w is not None:
        caption += f"; the dashed line is the limit of {found.power_limit_w:.0f} W"
    draw = partial(_draw, powers, found.power_limit_w)
    height = 0.25 + 0.05 * len(powers)
    return Figure(f"parts-{number}", f"{caption}.", draw, height, wide=True)


def _powers(found: FoundComponents) -> list[tuple[str, PowerParts]]:
    if isinstance(found, ComponentsOfJob):
        return [(f"{one.share_percent:g} %", one.power) for one in found.shares]
    return [(one.split, one.power) for one in found.splits]


def _cells(power: PowerParts) -> Iterator[str]:
    yield f"{MARKS[power.power_basis]}{power.power_w:.0f}"
    yield "not known" if power.headroom_w is None else f"{power.headroom_w:.0f}"
    for name in COLOURS:
        value = power.components_w[name]
        mark = MARKS[power.memory_basis if name == "memory" else power.others_basis]
        yield f"{mark}{value.value:.0f} [{value.low:.0f}, {value.high:.0f}]"


def _draw(
    powers: Sequence[tuple[str, PowerParts]], limit_w: float | None, axes: Any, ink: Ink
) -> None:
    places, ends = range(len(powers)), [0.0] * len(powers)
    for part, colour in COLOURS.items():
        watts = [power.components_w[part].value for _, power in powers]
        axes.barh(places, watts, left=ends, color=colour, label=part, height=0.7)
        ends = [end + more for end, more in zip(ends, watts, strict=True)]
    if limit_w is not None:
        axes.axvline(limit_w, color=ink.text, linewidth=1, linestyle="--")
    axes.set_yticks(places, [name for name, _ in powers])
    axes.invert_yaxis()
    axes.set_xlabel("W", color=ink.text)
    axes.legend(
        frameon=False, labelcolor=ink.text, fontsize="small", ncols=len(COLOURS),
        loc="lower center", bbox_to_anchor=(0.5, 1.0), columnspacing=1.0, handlelength=1.0,
    )  # fmt: skip
