"""The power of a GPU in parts, as rows with stacked bars."""

from collections.abc import Iterable, Mapping, Sequence

from advisor.core.objectives import Interval
from advisor.wire.answers import MARKS, NOT_IDENTIFIED, PowerParts
from advisor_cli.console import plain_table, print_table

# Characters from 0 to the power limit.
_BAR = 50

_LETTERS: Mapping[str, str] = {
    "floor": "f",
    "tensor": "t",
    "fp32": "3",
    "integer": "i",
    "warps": "w",
    "fabric": "c",
    "memory": "m",
}


def _bar(components_w: Mapping[str, Interval], most_w: float) -> str:
    """A letter for each `most_w / BAR` of each part, dots for what is left to `most_w`.

    The ends of the parts are rounded, not their lengths, so that the bar is as long as the sum.
    """
    drawn, reached_w = "", 0.0
    for name, value in components_w.items():
        reached_w += value.value
        drawn += _LETTERS[name] * (round(_BAR * reached_w / most_w) - len(drawn))
    return drawn.ljust(_BAR, ".")


def letters() -> str:
    """What the letters of the bars stand for, and how much of it is known."""
    of_parts = "  ".join([*(f"{letter} {name}" for name, letter in _LETTERS.items()), ". left"])
    return f"{of_parts}\n{NOT_IDENTIFIED}"


def print_parts(first: str, rows: Sequence[tuple[str, PowerParts]]) -> None:
    """A row for each power; `first` heads the column of their names."""
    most_w = max(p.power_w + max(p.headroom_w or 0.0, 0.0) for _, p in rows)
    headings = (first, "W", "left, W", "parts", *_LETTERS)
    cells = ((name, *_cells(power, most_w)) for name, power in rows)
    print_table(plain_table(headings, cells, headings), width=4 * _BAR)


def _cells(power: PowerParts, most_w: float) -> Iterable[str]:
    yield f"{MARKS[power.power_basis]}{power.power_w:.0f}"
    yield "" if power.headroom_w is None else f"{power.headroom_w:.0f}"
    yield _bar(power.components_w, most_w)
    for name, value in power.components_w.items():
        mark = MARKS[power.memory_basis if name == "memory" else power.others_basis]
        yield f"{mark}{value.value:.0f} ({value.low:.0f}-{value.high:.0f})"
