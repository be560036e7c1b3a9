"""What measuring says to a person: live progress, tables of profiles, pairs and sets, a plot."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TypeAlias, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from advisor.core.gpu import EQUAL, WHOLE, Share, Split, read_bound
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    OBJECTIVES,
    Candidate,
    PartResult,
    SplitResult,
    best,
)
from advisor.core.records import DOUBTFUL, FLAGS, PairPoint, Point, PointPart, SoloPoint, grouped
from advisor.core.wording import in_digits
from advisor_profiling.campaign.campaign import IDLE_DRIFT_W, Cost, Failure, SweepResult
from advisor_profiling.campaign.plan import PlannedSplit
from advisor_profiling.window import Step

WIDTH = 120
"""Columns that the table may need."""

# Rate and power of each job alone on the whole GPU.
_SoloByJob = Mapping[str, tuple[float, float]]

T = TypeVar("T")

# Heading and cell of each column, for rows of one type.
_Columns: TypeAlias = Sequence[tuple[str, Callable[[T], str]]]


@dataclass(frozen=True, slots=True)
class PairResult:
    """The measured split of a pair that saves most energy and is not over-subscribed.

    Attributes:
        windows: Good points of the pair.
        best: The mean of its windows; None where the jobs' rates and power alone are not known.
        saved: Part of the energy saved for the same work, against one after the other; 0.1 is 10 %.
        equal_saved: The same of 50/50 on that card; None where it was not measured.
        uncapped_saved: The same of MPS without limits on that card.
    """

    pair: tuple[str, ...]
    windows: int
    best: PairPoint | None = None
    speeds: tuple[float, float] | None = None
    saved: float | None = None
    equal_saved: float | None = None
    uncapped_saved: float | None = None

    @classmethod
    def of(cls, points: Sequence[PairPoint], solo: Sequence[SoloPoint]) -> "list[PairResult]":
        """Each pair's best split, against solo points at 100 %, by points that passed checks."""
        alone = _alone_by_job(solo)
        good = (point for point in points if not DOUBTFUL & set(point.flags))
        return [
            _pair_result(pair, points_of_pair, alone)
            for pair, points_of_pair in sorted(grouped(good, lambda point: point.jobs).items())
        ]


def references(points: Sequence[SoloPoint], others: Iterable[SoloPoint]) -> list[SoloPoint]:
    """A run's solo points, and the newest of others for jobs without a rate at 100 % there."""
    alone = _alone_by_job(points)
    newest = {
        point.job: point
        for point in sorted(others, key=lambda p: p.started_at)
        if point.job not in alone and _alone_by_job([point])
    }
    return [*points, *newest.values()]


def _percent_text(saved: float | None) -> str:
    return "-" if saved is None else f"{100 * saved:.1f} %"


def unknown_alone_text(points: Iterable[PairPoint], solo: Sequence[SoloPoint]) -> list[str]:
    """A line for each job of the pairs whose rate and power alone are not known."""
    jobs = {job for point in points for job in point.jobs}
    return [
        f"no rate and power of {job} alone at 100 % are known: advisor profile {job}"
        for job in sorted(jobs - _alone_by_job(solo).keys())
    ]


def _alone_by_job(solo: Iterable[SoloPoint], left_out: Set[str] = DOUBTFUL) -> _SoloByJob:
    """Rate and power of each job alone on the whole GPU, the mean of its windows without flags."""
    whole = (p for p in solo if p.share_percent == 100 and not left_out & set(p.flags))
    readings = ((p.job, p.rate, p.power_w) for p in whole if p.rate and p.power_w)
    return {
        job: (fmean(rate for _, rate, _ in of_job), fmean(power_w for _, _, power_w in of_job))
        for job, of_job in grouped(readings, lambda reading: reading[0]).items()
    }


def _means(points: Sequence[PairPoint]) -> list[tuple[PairPoint, int]]:
    """One point for each split and card, the mean of its complete windows, and how many they are.

    So luck does not choose.
    """
    complete = (p for p in points if p.power_w and all(part.rate is not None for part in p.parts))
    windows = grouped(complete, lambda p: (p.jobs, p.gpu_uuid, p.mode, p.shares_percent))
    return [
        (
            replace(
                same[0],
                parts=tuple(map(_mean_part, zip(*(p.parts for p in same), strict=True))),
                power_w=fmean(p.power_w or 0 for p in same),
            ),
            len(same),
        )
        for same in windows.values()
    ]


def _mean_part(parts: Sequence[PointPart]) -> PointPart:
    tails = [part.latency_p99_ms for part in parts if part.latency_p99_ms is not None]
    rate = fmean(part.rate or 0 for part in parts)
    return replace(parts[0], rate=rate, latency_p99_ms=_mean(tails))


PAIR_COLUMNS: _Columns[PairResult] = (
    ("pair", lambda line: " + ".join(line.pair)),
    ("windows", lambda line: str(line.windows)),
    (
        "best split",
        lambda line: (
            "/".join(f"{share:g}" for share in line.best.shares_percent) if line.best else "-"
        ),
    ),
    ("speed 1", lambda line: f"{line.speeds[0]:.2f}" if line.speeds else "-"),
    ("speed 2", lambda line: f"{line.speeds[1]:.2f}" if line.speeds else "-"),
    ("W", lambda line: f"{line.best.power_w:.0f}" if line.best else "-"),
    ("saves", lambda line: _percent_text(line.saved)),
    ("at 50/50", lambda line: _percent_text(line.equal_saved)),
    ("no limit", lambda line: _percent_text(line.uncapped_saved)),
)
"""Speed is relative to the job alone on the whole GPU, and what is saved is energy for the same
work, against one after the other."""


def pair_table(results: Sequence[PairResult]) -> Table:
    """The pairs, one line each."""
    return _laid_out(PAIR_COLUMNS, results, left=("pair", "best split"))


_PLANNED: _Columns[tuple[tuple[str, ...], Sequence[PlannedSplit]]] = (
    ("to measure", lambda row: " + ".join(row[0]) + (" alone" if len(row[0]) == 1 else "")),
    ("windows", lambda row: str(sum(item.windows for item in row[1]))),
    ("splits", lambda row: " ".join(item.split for item in row[1])),
)


def planned_table(planned: Sequence[PlannedSplit]) -> Table:
    """What a campaign would measure, one line for each pair, set or job alone."""
    rows = grouped(planned, lambda item: item.jobs).items()
    return _laid_out(_PLANNED, rows, left=("to measure", "splits"), wrap=("splits",))


def cost_text(cost: Cost, points: int, what: str = "pair") -> str:
    """What a campaign took, in one line; the windows of its jobs alone are part of the cost."""
    if not cost.duration_s:
        return "nothing was measured"
    if not points:
        return f"no {what} was measured in {cost.duration_s / 60:.1f} GPU-minutes"
    return (
        f"{points} {what} points in {cost.duration_s / 60:.1f} GPU-minutes: "
        f"{cost.duration_s / points:.1f} GPU-seconds a {what} point, {cost.starts} starts, "
        f"{100 * cost.measuring_s / cost.duration_s:.0f} % of the time measuring "
        f"({100 * cost.window_s / cost.duration_s:.0f} % in windows, the rest settling), "
        f"{100 * cost.starting_s / cost.duration_s:.0f} % starting, "
        f"{100 * cost.waiting_s / cost.duration_s:.0f} % waiting for other GPUs"
    )


def nothing_to_do_text(windows: int, to_measure: int, *, dry_run: bool) -> str | None:
    """Why a campaign took nothing at all; None where it was to take something."""
    if windows and not to_measure:
        return f"all {windows} windows were measured before"
    return "dry run: nothing was measured" if dry_run else None


def left_out_text(points: Sequence[PairPoint], left_out: Set[str] = DOUBTFUL) -> str | None:
    """How many points failed a cross-check, by flag; None when none did."""
    flags = Counter(flag for p in points for flag in p.flags if flag in left_out)
    if not flags:
        return None
    return "left out of the table: " + ", ".join(f"{n} {flag}" for flag, n in sorted(flags.items()))


def _pair_result(
    pair: tuple[str, ...], points: Sequence[PairPoint], alone: _SoloByJob
) -> PairResult:
    candidates = [c for c in (_candidate(p, alone) for p, _ in _means(points)) if c is not None]
    limited = {c: p for c, p in candidates if p.mode in {"mps", "cu_mask"} and _fits(p)}
    if not limited:
        return PairResult(pair, len(points))
    chosen = best(limited, OBJECTIVES[DEFAULT_OBJECTIVE])
    same_card = [(c, p) for c, p in candidates if p.gpu_uuid == limited[chosen].gpu_uuid]
    return PairResult(
        pair,
        len(points),
        limited[chosen],
        (chosen.result.speeds[0], chosen.result.speeds[1]),
        chosen.result.energy_saved,
        _mean([c.result.energy_saved for c, _ in same_card if c.split == EQUAL]),
        _mean([c.result.energy_saved for c, p in same_card if p.mode == "uncapped"]),
    )


def _fits(point: PairPoint) -> bool:
    """Whether the shares are not over-subscribed: no unit is in both."""
    units = [part.units for part in point.parts if part.units is not None]
    if len(units) < len(point.parts) or point.units_total is None:
        return sum(point.shares_percent) <= 100
    return sum(units) <= point.units_total


def _candidate(point: PairPoint, alone: _SoloByJob) -> tuple[Candidate, PairPoint] | None:
    first, second, *more = point.parts
    if more:
        return None
    a, b = alone.get(first.job), alone.get(second.job)
    if not (a and b and point.power_w) or first.rate is None or second.rate is None:
        return None
    parts = PartResult(first.rate, *a), PartResult(second.rate, *b)
    return Candidate(Split(point.shares_percent), SplitResult(parts, point.power_w)), point


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


LEFT_OUT = DOUBTFUL - {"not-settled"}
"""Flags of windows that no table of sets has. Rates of jobs that wait for the host never get flat,
and the more jobs there are, the more of them wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResult:
    """One set in one way of sharing on one card, the mean of its good windows.

    Attributes:
        speeds: Of each part; a server does no more than its demand, so its speed is at most 1.
        slowest: The lowest speed.
        p99_ms: The longest tail of its servers; None where it has none.
        saved_off: Part of the energy saved for the same work, against a GPU for each job, where
            those that become free draw nothing; 0.1 is 10 %.
        saved_idle: The same where they draw idle power; None where that was not read.
    """

    parts: tuple[PointPart, ...]
    speeds: tuple[float, ...]
    mode: str
    gpu_uuid: str
    windows: int
    power_w: float
    slowest: float
    p99_ms: float | None
    saved_off: float
    saved_idle: float | None

    @property
    def sharing(self) -> str:
        """How the jobs share the GPU: `limits` where one of them has one."""
        return "limits" if any(part.share_percent != WHOLE for part in self.parts) else self.mode

    @classmethod
    def of(cls, points: Sequence[PairPoint], solo: Sequence[SoloPoint]) -> "list[SetResult]":
        """Sets of jobs that were measured alone at 100 %, too, by points that passed all checks."""
        alone = _alone_by_job(solo, LEFT_OUT)
        good = [p for p in points if not LEFT_OUT & set(p.flags) and set(p.jobs) <= alone.keys()]
        results = [_set_result(point, windows, alone) for point, windows in _means(good)]
        return sorted(results, key=lambda r: (len(r.parts), [p.job for p in r.parts], r.mode))


SET_COLUMNS: _Columns[SetResult] = (
    ("set, speed of each job", lambda result: _set_text(result)),
    ("sharing", lambda result: result.sharing),
    ("W", lambda result: f"{result.power_w:.0f}"),
    ("slowest", lambda result: f"{result.slowest:.2f}"),
    ("p99 ms", lambda result: _or_dash(result.p99_ms, ".0f")),
    ("saves, off", lambda result: _percent_text(result.saved_off)),
    ("idle", lambda result: _percent_text(result.saved_idle)),
)
"""Speed is relative to the job alone on the whole GPU. Energy is saved for the same work, against a
GPU for each job: with those that become free switched off, or idle."""


def set_table(results: Sequence[SetResult]) -> Table:
    """The sets, one line each."""
    left = [name for name, _ in SET_COLUMNS[:2]]
    return _laid_out(SET_COLUMNS, results, left=left, wrap=left)


def _set_result(point: PairPoint, windows: int, alone: _SoloByJob) -> SetResult:
    shared = SplitResult(
        tuple(PartResult(_served_rate(part, alone), *alone[part.job]) for part in point.parts),
        point.power_w or 0.0,
    )
    tails = [part.latency_p99_ms for part in point.parts if part.latency_p99_ms is not None]
    return SetResult(
        parts=point.parts,
        speeds=shared.speeds,
        mode=point.mode,
        gpu_uuid=point.gpu_uuid,
        windows=windows,
        power_w=shared.power_w,
        slowest=min(shared.speeds),
        p99_ms=max(tails, default=None),
        saved_off=shared.energy_saved,
        saved_idle=None
        if point.idle_power_w is None
        else shared.energy_saved_beside(point.idle_power_w),
    )


def _served_rate(part: PointPart, alone: _SoloByJob) -> float:
    rate = part.rate or 0.0
    return rate if part.offered_rate is None else min(rate, alone[part.job][0])


def _set_text(result: SetResult) -> str:
    """Each job with its speed; those of copies follow one another."""
    names = [
        part.job if part.share_percent == WHOLE else f"{part.job}@{part.share_percent:g}"
        for part in result.parts
    ]
    copies = grouped(zip(names, result.speeds, strict=True), lambda named: named[0])
    return " + ".join(
        f"{f'{len(its)} x ' if len(its) > 1 else ''}{name} "
        + ", ".join(f"{speed:.2f}" for _, speed in its)
        for name, its in copies.items()
    )


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
        power = f"{_text(point.power_w)} W{_beside(point.power_stderr_w, point.power_w)}"
        jobs = (
            _job(point, point.units_granted)
            if isinstance(point, SoloPoint)
            else f"{point.mode}  {'  |  '.join(_job(part, part.units) for part in point.parts)}"
        )
        self._say(f"{Step(f'{jobs}  {power}', done, total, eta_s)}{flags}")

    def failure(self, failure: Failure) -> None:
        """A red line for what could not be measured, and why."""
        self._say(f"failed: {failure.target}: {failure.cause}", style="red")

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


def _job(of: SoloPoint | PointPart, units: int | None) -> str:
    error = _beside(of.rate_stderr, of.rate)
    speed = "-" if of.rate is None else f"{in_digits(of.rate, 4)} {of.rate_unit}/s{error}"
    return f"{of.job} {of.share_percent:g} % = {_text(units)} units  {speed}"


_COLUMNS: _Columns[SoloPoint] = (
    ("share%", lambda point: f"{point.share_percent:g}"),
    ("units", lambda point: _text(point.units_granted)),
    ("rate", lambda point: in_digits(point.rate, 4)),
    ("±%", lambda point: _error(point.rate_stderr, point.rate)),
    ("W", lambda point: _text(point.power_w)),
    ("±%", lambda point: _error(point.power_stderr_w, point.power_w)),
    # The energy counter against the mean of instant power.
    ("Δ%", lambda point: _or_dash(_gap_percent(point), "+.1f")),
    ("/kJ", lambda p: in_digits(1000 * p.rate / p.power_w, 4) if p.power_w else "-"),
    ("SM%", lambda point: _text(point.sm_active_percent)),
    ("DRAM%", lambda point: _text(point.dram_active_percent)),
    ("MHz", lambda point: _or_dash(point.sm_clock_mhz, ".0f")),
    ("flags", lambda point: " ".join(point.flags)),
)


def table(points: Sequence[SoloPoint]) -> Table:
    """A profile as a table, one line per point; all but the flags fits into 80 columns."""
    return _laid_out(_COLUMNS, _ordered(points), left=("flags",))


# Of a server; rates are per second.
_REQUESTS: _Columns[SoloPoint] = (
    ("share%", lambda point: f"{point.share_percent:g}"),
    ("offered", lambda point: _or_dash(point.offered_rate, ".4g")),
    ("answered", lambda point: in_digits(point.rate, 4)),
    ("answered%", lambda p: f"{100 * p.rate / p.offered_rate:.1f}" if p.offered_rate else "-"),
    ("p50 ms", lambda point: _or_dash(point.latency_p50_ms, ".4g")),
    ("p99 ms", lambda point: _or_dash(point.latency_p99_ms, ".4g")),
)


def requests(points: Sequence[SoloPoint]) -> Table | None:
    """What a server made of its demand, one line per point; None of a job that serves none."""
    served = [
        p for p in _ordered(points) if p.offered_rate is not None or p.latency_p50_ms is not None
    ]
    return _laid_out(_REQUESTS, served) if served else None


def _ordered(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    return sorted(points, key=lambda p: (p.share_percent, p.repeat))


def _laid_out(
    columns: _Columns[T],
    rows: Iterable[T],
    *,
    left: Collection[str] = (),
    wrap: Collection[str] = (),
) -> Table:
    result = Table(box=None, pad_edge=False, header_style="bold")
    for name, _ in columns:
        justify = "left" if name in left else "right"
        result.add_column(Text(name), justify=justify, no_wrap=name not in wrap)
    for row in rows:
        result.add_row(*(Text(cell(row)) for _, cell in columns))
    return result


def curves(
    points: Sequence[SoloPoint],
) -> Iterator[tuple[list[float], list[float | None], dict[str, str]]]:
    """Rate (left axis) and power (right axis) against the share, with what plotext calls them."""
    ordered = sorted(points, key=lambda p: p.share_percent)
    rates: list[float | None] = [p.rate for p in ordered]
    yield [p.share_percent for p in ordered], rates, {"label": f"{ordered[0].rate_unit}/s"}
    if powered := [p for p in ordered if p.power_w is not None]:
        shares, watts = [p.share_percent for p in powered], [p.power_w for p in powered]
        yield shares, watts, {"label": "W (right)", "marker": "braille", "yside": "right"}


def problems(
    points: Sequence[SoloPoint], result: SweepResult | None = None, memory_mib: int | None = None
) -> list[str]:
    """What a reader should know before trusting the profile, one sentence each."""
    ordered = sorted(points, key=lambda p: p.share_percent)
    flags = ((flag, f"{point.share_percent:g}") for point in ordered for flag in point.flags)
    lines = [
        f"{flag} at {', '.join(share for _, share in shares)} %: "
        f"{FLAGS.get(flag, 'see docs/schema.md')}"
        for flag, shares in grouped(flags, lambda flagged: flagged[0]).items()
    ]
    # More likely a job that is never the same twice than a GPU that is never right.
    compared = [p.results for p in points if p.share_percent < WHOLE and p.results]
    if len(compared) > 1 and set(compared) == {"differ"}:
        lines.append(
            "its results differ from those on the whole GPU at every share: fix the job's seed, or "
            "set results.tolerance in its file (docs/job-file.md, Results)"
        )
    if options := read_bound(next((p.memory_bound for p in ordered if p.memory_bound), None))[1]:
        lines.append(f"it {options}")
    crowds = ((p, p.mps_clients) for p in ordered if p.mps_clients and p.share_percent < WHOLE)
    for point, clients in [(p, n) for p, n in crowds if n > 1][:1]:
        most = Share(point.share_percent).most_of(clients, point.units_total, point.units_granted)
        lines.append(f"it {most}")
    used = max((p.memory_used_mib or 0 for p in points), default=0)
    if memory_mib and used > memory_mib / 2:
        lines.append(
            f"it uses {used:.0f} of {memory_mib} MiB: too big to pair with another job of this size"
        )
    if result is None:
        return lines
    lines += [f"no point of {f.target}: {f.cause}" for f in result.failures]
    before, after = result.idle_before_w, result.idle_after_w
    if before is not None and after is not None and abs(after - before) > IDLE_DRIFT_W:
        lines.append(
            f"idle power was {before:.1f} W before and {after:.1f} W after: the card was still "
            "cooling down or something else used it"
        )
    return lines


def summary(points: Sequence[SoloPoint], *, replayed: bool = False) -> str:
    """One line: how exact the profile is, how long its windows were, kernels where counted."""
    errors = [p.rate_stderr / p.rate for p in points if p.rate_stderr is not None and p.rate]
    error = f"{100 * median(errors):.2f} %" if errors else "unknown"
    exact = f"median standard error of the rate {error}"
    how = "one recording each, so their error is not known" if replayed else exact
    counted = [p.kernels_per_unit for p in points if p.kernels_per_unit is not None]
    kernels = f"; {median(counted):.3g} kernels per unit of work" if counted else ""
    return (
        f"{len(points)} points; {how}; {sum(p.window_s for p in points):.0f} s of windows{kernels}"
    )


def _gap_percent(point: SoloPoint) -> float | None:
    power_w, counter_w = point.power_w, point.counter_power_w
    return 100 * (counter_w / power_w - 1) if power_w and counter_w is not None else None


def _text(value: float | None) -> str:
    return str(value) if isinstance(value, int) else _or_dash(value, ".1f")


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _error(stderr: float | None, mean: float | None) -> str:
    return "-" if stderr is None or not mean else f"{100 * stderr / mean:.2f}"


def _beside(stderr: float | None, mean: float | None) -> str:
    """The error behind a number; nothing where it is not known."""
    return "" if stderr is None or not mean else f" ±{_error(stderr, mean)} %"
