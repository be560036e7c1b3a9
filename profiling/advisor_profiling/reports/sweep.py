"""What a sweep says to a person: live progress, a table, a plot, and what looked wrong."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.core.flags import FLAGS
from advisor.core.gpu import WHOLE
from advisor.core.records import Point, PointPart, SoloPoint
from advisor_profiling.campaign.campaign import Failure
from advisor_profiling.campaign.sweep import IDLE_DRIFT_W, SweepResult

WIDTH = 120
"""Columns that the table may need with several flags in a row."""


class ConsoleReporter:
    """Writes progress as lines, so that a log file reads as well as a terminal.

    Args:
        console: Where to.
        replayed: Windows come from recordings.
    """

    def __init__(self, console: Console, *, replayed: bool = False) -> None:
        self._console, self._replayed = console, replayed

    def phase(self, text: str) -> None:
        """A line for what takes a while."""
        self._say(f"{text} ...")

    def point(self, point: Point, done: int, total: int, eta_s: float) -> None:
        """A line for a point that was measured, with how long the others still take."""
        point = as_recorded(point) if self._replayed else point
        flags = f"  [{', '.join(point.flags)}]" if point.flags else ""
        eta = f"eta {int(eta_s) // 60}:{int(eta_s) % 60:02}"
        power = f"{_text(point.power_w)} W{_beside(point.power_stderr_w, point.power_w)}"
        self._say(f"{done}/{total}  {_what(point)}  {power}  {eta}{flags}")

    def failure(self, failure: Failure) -> None:
        """A red line for what could not be measured, and why."""
        self._say(f"failed: {failure.target}: {failure.error}", style="red")

    def _say(self, text: str, style: str | None = None) -> None:
        if not self._console.encoding.startswith("utf"):
            text = text.replace("±", "+-")
        # A line stays one: a log file has no width, and a terminal breaks lines itself.
        self._console.print(f"  {text}", style=style, highlight=False, markup=False, soft_wrap=True)


def as_recorded(point: Point) -> Point:
    """A replayed window: one recording, within which nothing varies, so no error is known."""
    if isinstance(point, SoloPoint):
        return replace(point, rate_stderr=None, power_stderr_w=None)
    parts = tuple(replace(part, rate_stderr=None) for part in point.parts)
    return replace(point, parts=parts, power_stderr_w=None)


def _what(point: Point) -> str:
    if isinstance(point, SoloPoint):
        return _job(point, point.units_granted)
    return f"{point.mode}  {'  |  '.join(_job(part, part.units) for part in point.parts)}"


def _job(of: SoloPoint | PointPart, units: int | None) -> str:
    """One job of a point."""
    error = _beside(of.rate_stderr, of.rate)
    speed = "-" if of.rate is None else f"{of.rate:.4g} {of.rate_unit}/s{error}"
    return f"{of.job} {of.share_percent:g} % = {_text(units)} units  {speed}"


COLUMNS = (
    "share%", "units", "rate", "±%", "W", "±%", "Δ%", "/kJ", "SM%", "DRAM%", "MHz", "flags",
)  # fmt: skip
"""Headings of the table; Δ is the energy counter against the mean of instant power."""


def table(points: Sequence[SoloPoint]) -> Table:
    """A profile as a table, one line per point; all but the flags fits into 80 columns."""
    return _laid_out(COLUMNS, points, _cells)


REQUEST_COLUMNS = ("share%", "offered", "answered", "answered%", "p50 ms", "p99 ms")
"""Headings of the table of a server; rates are per second."""


def requests(points: Sequence[SoloPoint]) -> Table | None:
    """What a server made of its demand, one line per point; None of a job that serves none."""
    served = [p for p in points if p.offered_rate is not None or p.latency_p50_ms is not None]
    return _laid_out(REQUEST_COLUMNS, served, _request_cells) if served else None


def _laid_out(
    columns: Sequence[str],
    points: Sequence[SoloPoint],
    cells_of: Callable[[SoloPoint], list[str]],
) -> Table:
    result = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        result.add_column(Text(name), justify="left" if name == "flags" else "right", no_wrap=True)
    for point in sorted(points, key=lambda p: (p.share_percent, p.repeat)):
        result.add_row(*map(Text, cells_of(point)))
    return result


def plot(points: Sequence[SoloPoint], width: int = 78, height: int = 16) -> str:
    """Rate (left axis) and power (right axis) against the share, as text."""
    import plotext  # most commands of campaigns draw nothing

    ordered = sorted(points, key=lambda p: p.share_percent)
    powered = [p for p in ordered if p.power_w is not None]
    canvas: Any = plotext
    canvas.clear_figure()
    canvas.theme("clear")
    canvas.plotsize(width, height)
    rate_label = f"{ordered[0].rate_unit}/s"
    canvas.plot([p.share_percent for p in ordered], [p.rate for p in ordered], label=rate_label)
    if powered:
        shares, watts = [p.share_percent for p in powered], [p.power_w for p in powered]
        canvas.plot(shares, watts, label="W (right)", marker="braille", yside="right")
    canvas.xlabel("share of the GPU, %")
    # It ends each line with a colour code even where there is no colour.
    return str(canvas.uncolorize(canvas.build()))


def problems(
    points: Sequence[SoloPoint], result: SweepResult | None = None, memory_mib: int | None = None
) -> list[str]:
    """What a reader should know before trusting the profile, one sentence each."""
    found = [
        f"{flag} at {', '.join(shares)} %: {FLAGS.get(flag, 'see docs/schema.md')}"
        for flag, shares in _shares_by_flag(points).items()
    ]
    if _differs_everywhere(points):
        found.append(
            "its results differ from those on the whole GPU at every share: fix the job's seed, or "
            "set results.tolerance in its file (docs/job-file.md, Results)"
        )
    used = max((p.memory_used_mib or 0 for p in points), default=0)
    if memory_mib and used > memory_mib / 2:
        found.append(
            f"it uses {used:.0f} of {memory_mib} MiB: too big to pair with another job of this size"
        )
    if result is not None:
        found += _sweep_problems(result)
    return found


def _differs_everywhere(points: Sequence[SoloPoint]) -> bool:
    """More likely a job that is never the same twice than a GPU that is never right."""
    compared = [p.results for p in points if p.share_percent < WHOLE and p.results]
    return len(compared) > 1 and set(compared) == {"differ"}


def _sweep_problems(result: SweepResult) -> list[str]:
    found = [f"no point of {f.target}: {f.error}" for f in result.failures]
    before, after = result.idle_before_w, result.idle_after_w
    if before is not None and after is not None and abs(after - before) > IDLE_DRIFT_W:
        found.append(
            f"idle power was {before:.1f} W before and {after:.1f} W after: the card was still "
            "cooling down or something else used it"
        )
    return found


def _shares_by_flag(points: Sequence[SoloPoint]) -> dict[str, list[str]]:
    shares: dict[str, list[str]] = {}
    for point in sorted(points, key=lambda p: p.share_percent):
        for flag in point.flags:
            shares.setdefault(flag, []).append(f"{point.share_percent:g}")
    return shares


def summary(points: Sequence[SoloPoint], *, replayed: bool = False) -> str:
    """One line: how exact the profile is and how long its windows were."""
    errors = [p.rate_stderr / p.rate for p in points if p.rate_stderr is not None and p.rate]
    median = f"{100 * statistics.median(errors):.2f} %" if errors else "unknown"
    windows_s = sum(point.window_s for point in points)
    exact = f"median standard error of the rate {median}"
    how = "one recording each, so their error is not known" if replayed else exact
    return f"{len(points)} points; {how}; {windows_s:.0f} s of windows"


def _cells(point: SoloPoint) -> list[str]:
    power_w, counter_w = point.power_w, point.counter_power_w
    gap = 100 * (counter_w / power_w - 1) if power_w and counter_w is not None else None
    return [
        f"{point.share_percent:g}",
        _text(point.units_granted),
        f"{point.rate:.4g}",
        _error(point.rate_stderr, point.rate),
        _text(power_w),
        _error(point.power_stderr_w, power_w),
        "-" if gap is None else f"{gap:+.1f}",
        "-" if not power_w else f"{1000 * point.rate / power_w:.4g}",
        _text(point.sm_active_percent),
        _text(point.dram_active_percent),
        "-" if point.sm_clock_mhz is None else f"{point.sm_clock_mhz:.0f}",
        " ".join(point.flags),
    ]


def _request_cells(point: SoloPoint) -> list[str]:
    offered = point.offered_rate
    numbers = (point.rate, point.latency_p50_ms, point.latency_p99_ms)
    rate, p50_ms, p99_ms = ("-" if number is None else f"{number:.4g}" for number in numbers)
    return [
        f"{point.share_percent:g}",
        "-" if offered is None else f"{offered:.4g}",
        rate,
        "-" if not offered else f"{100 * point.rate / offered:.1f}",
        p50_ms,
        p99_ms,
    ]


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def _error(stderr: float | None, mean: float | None) -> str:
    return "-" if stderr is None or not mean else f"{100 * stderr / mean:.2f}"


def _beside(stderr: float | None, mean: float | None) -> str:
    """The error behind a number; nothing where it is not known."""
    return "" if stderr is None or not mean else f" ±{_error(stderr, mean)} %"
