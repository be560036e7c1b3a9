"""Power by what the data are: verdicts as a table, and a curve for each sweep."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from advisor.wire.power import ClaimQuantity, ClaimVerdict, Estimate, InputReport, InputSweep
from advisor_power.reports.tables import watts, within
from advisor_training.reports.document import BLUE, GREEN, GREY, RED, Figure, Ink, TextTable

_VERDICTS = ("", "claim", "verdict", "ours", "of", "paper", "clock, MHz", "levels")
_OTHERS = ("W", "of reference", "pJ", "flags", "data")

_HASH = re.compile(r"(sha256=\"[0-9a-f]{8})[0-9a-f]{56}(?=\")")
"""Of the content of a file: eight digits tell files of one table apart."""

_AXES: Mapping[ClaimQuantity, str] = {
    "ratio": "power over the reference",
    "watts": "W",
    "energy": "pJ of an operation or byte",
}
_COLOURS: Mapping[ClaimVerdict, str] = {"confirmed": GREEN, "refuted": RED, "open": GREY}


def title_of(one: InputReport) -> str:
    """A heading."""
    limit = f", {one.units} SMs" if one.units else ""
    return f"Input: {one.dtype} on {one.gpu_model}{limit}"


def notes_of(one: InputReport) -> Iterator[str]:
    """How to read it."""
    yield (
        f"Card {one.gpu_uuid}, driver {one.driver}, PyTorch {one.torch}, {one.measured_at[:10]}. "
        "The reference is normal random numbers, measured between the cases. Confirmed: the sign "
        "that was claimed, 2 % or more and over four standard errors; refuted: below 1 %, or the "
        "other sign by over four; else open. What should not change is confirmed below 1 % and "
        "refuted from 2 % on. Where the power limit was reached energy is compared, since power is "
        "the same there."
    )
    if not one.sweeps:
        yield "No takeaway was measured at two levels, so there is no verdict."


def tables_of(one: InputReport) -> Iterator[TextTable]:
    """Takeaways with their verdicts, then data that belong to none."""
    if one.sweeps:
        yield TextTable("Takeaways", _VERDICTS, [_row(sweep) for sweep in one.sweeps])
    if one.others:
        rows = [
            (
                watts(other.power_w),
                within(other.ratio, "{:.3f}"),
                f"{other.energy_pj:.4g}",
                ", ".join(other.flags),
                _HASH.sub(r"\1", other.case),
            )
            for other in one.others
        ]
        yield TextTable("Other data", _OTHERS, rows)


def overview_of(number: int, one: InputReport) -> tuple[Figure, ...]:
    """How far each sweep goes; none where no sweep has two levels."""
    known = [sweep for sweep in one.sweeps if sweep.change is not None]
    if not known:
        return ()
    caption = (
        f"{title_of(one)}: change over each sweep, with 95 % intervals. Of what should peak it is "
        "the peak above the higher end, of what should not change the largest difference."
    )
    height = 0.2 + 0.05 * len(known)
    draw = partial(_draw_changes, known)
    return (Figure(f"inputs-{number}", caption, draw, height, wide=True),)


def curves_of(number: int, one: InputReport) -> tuple[Figure, ...]:
    """Each sweep with two levels or more."""
    return tuple(
        Figure(
            f"inputs-{number}-{place}",
            f"{sweep.name}, {sweep.says}: {sweep.verdict}. {_AXES[sweep.quantity].capitalize()} "
            "by level, with 95 % intervals; levels stand at equal distances.",
            partial(_draw_sweep, sweep),
            0.55,
        )
        for place, sweep in enumerate(one.sweeps)
        if len(sweep.levels) > 1
    )


def _row(sweep: InputSweep) -> tuple[str, ...]:
    left_out = f", {sweep.left_out} not finite" if sweep.left_out else ""
    clocks = "-" if sweep.clocks_mhz is None else "{:.0f} to {:.0f}".format(*sweep.clocks_mhz)
    return (
        sweep.name,
        sweep.says,
        sweep.verdict,
        within(sweep.change, "{:+.1%}"),
        "energy" if sweep.quantity == "energy" else "power",
        sweep.paper,
        clocks,
        f"{len(sweep.levels)}{left_out}",
    )


def _draw_changes(sweeps: Sequence[InputSweep], axes: Any, ink: Ink) -> None:
    axes.axvline(0, color=ink.faint, linewidth=1)
    for place, sweep in enumerate(sweeps):
        if sweep.change is not None:
            _whisker(axes, sweep.change.times(100), place, _COLOURS[sweep.verdict], flat=True)
        where: Any = axes.get_yaxis_transform()
        name = f"{sweep.name} {sweep.says}: {sweep.verdict}"
        axes.text(0.01, place - 0.3, name, transform=where, va="bottom", color=ink.text)
    axes.set_yticks([])
    axes.set_ylim(len(sweeps) - 0.6, -0.9)
    axes.set_xlabel("change over the sweep, %", color=ink.text)


def _draw_sweep(sweep: InputSweep, axes: Any, ink: Ink) -> None:
    values = [level.value for level in sweep.levels]
    axes.plot(range(len(values)), [value.value for value in values], color=BLUE, linewidth=1.2)
    for place, value in enumerate(values):
        _whisker(axes, value, place, BLUE)
    if sweep.quantity == "ratio":
        axes.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(values)), [f"{level.level:g}" for level in sweep.levels])
    axes.set_xlabel("level of the sweep", color=ink.text)
    axes.set_ylabel(_AXES[sweep.quantity], color=ink.text)


def _whisker(axes: Any, found: Estimate, place: float, colour: str, *, flat: bool = False) -> None:
    ends = [found.value if bound is None else bound for bound in (found.low, found.high)]
    x, y = (ends, [place] * 2) if flat else ([place] * 2, ends)
    axes.plot(x, y, color=colour, linewidth=1.4)
    spot = (found.value, place) if flat else (place, found.value)
    axes.scatter(*spot, s=14, color=colour, zorder=3)
