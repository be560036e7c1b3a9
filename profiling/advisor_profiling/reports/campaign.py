"""What a campaign says to a person: what it will take, its pairs as a table, what it took."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from statistics import fmean

from rich.table import Table
from rich.text import Text

from advisor.core.flags import DOUBTFUL
from advisor.core.objectives import (
    DEFAULT_OBJECTIVE,
    OBJECTIVES,
    Candidate,
    PartResult,
    SplitResult,
    best,
)
from advisor.core.records import PairPoint, PointPart, SoloPoint
from advisor.core.split import EQUAL, Split
from advisor_profiling.campaign.campaign import Cost
from advisor_profiling.campaign.colocation import PlannedSplit

WIDTH = 120
"""Columns that the table may need."""

SoloByJob = Mapping[str, tuple[float, float]]
"""Rate and power of each job alone on the whole GPU."""

COLUMNS = (
    "pair", "windows", "best split", "speed 1", "speed 2", "W", "saves", "at 50/50", "no limit",
)  # fmt: skip
"""Headings of the table; speed is relative to the job alone on the whole GPU, and what is saved is
energy for the same work, against one after the other."""


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


def summarise(points: Sequence[PairPoint], solo: Sequence[SoloPoint]) -> list[PairResult]:
    """Each pair's best split, against solo points at 100 %; without those that failed a check."""
    alone = alone_by_job(solo)
    pairs: defaultdict[tuple[str, ...], list[PairPoint]] = defaultdict(list)
    for point in points:
        if not DOUBTFUL & set(point.flags):
            pairs[point.jobs].append(point)
    return [_result(pair, found, alone) for pair, found in sorted(pairs.items())]


def references(own: Sequence[SoloPoint], others: Iterable[SoloPoint]) -> list[SoloPoint]:
    """A run's solo points, and the newest of others for jobs without a rate at 100 % there."""
    known = alone_by_job(own)
    newest: dict[str, SoloPoint] = {}
    for point in sorted(others, key=lambda p: p.started_at):
        if point.job not in known and alone_by_job([point]):
            newest[point.job] = point
    return [*own, *newest.values()]


def percent_text(saved: float | None) -> str:
    """A part of energy that is saved, as a table has it."""
    return "-" if saved is None else f"{100 * saved:.1f} %"


def unknown_alone_text(points: Iterable[PairPoint], solo: Sequence[SoloPoint]) -> list[str]:
    """A line for each job of the pairs whose rate and power alone are not known."""
    jobs = {job for point in points for job in point.jobs}
    return [
        f"no rate and power of {job} alone at 100 % are known: advisor profile {job}"
        for job in sorted(jobs - alone_by_job(solo).keys())
    ]


def alone_by_job(solo: Iterable[SoloPoint], left_out: Set[str] = DOUBTFUL) -> SoloByJob:
    """Rate and power of each job alone on the whole GPU, the mean of its windows without flags."""
    readings: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for p in solo:
        if p.share_percent == 100 and p.rate and p.power_w and not left_out & set(p.flags):
            readings[p.job].append((p.rate, p.power_w))
    return {
        job: (fmean(rate for rate, _ in found), fmean(power_w for _, power_w in found))
        for job, found in readings.items()
    }


def means(points: Sequence[PairPoint]) -> list[tuple[PairPoint, int]]:
    """One point for each split and card, the mean of its complete windows, and how many they are.

    So luck does not choose.
    """
    windows: defaultdict[tuple[object, ...], list[PairPoint]] = defaultdict(list)
    for p in points:
        if p.power_w and all(part.rate is not None for part in p.parts):
            windows[p.jobs, p.gpu_uuid, p.mode, p.shares_percent].append(p)
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


def table(results: Sequence[PairResult]) -> Table:
    """The pairs, one line each."""
    result = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        left = name in {"pair", "best split"}
        result.add_column(Text(name), justify="left" if left else "right", no_wrap=True)
    for line in results:
        result.add_row(*map(Text, _cells(line)))
    return result


def planned_table(planned: Sequence[PlannedSplit]) -> Table:
    """What a campaign would measure, one line for each pair, set or job alone."""
    splits: defaultdict[tuple[str, ...], list[PlannedSplit]] = defaultdict(list)
    for item in planned:
        splits[item.jobs].append(item)
    result = Table(box=None, pad_edge=False, header_style="bold")
    result.add_column("to measure", no_wrap=True)
    result.add_column("windows", justify="right", no_wrap=True)
    result.add_column("splits")
    for jobs, items in splits.items():
        name = " + ".join(jobs) + (" alone" if len(jobs) == 1 else "")
        windows = sum(item.windows for item in items)
        result.add_row(*map(Text, (name, str(windows), " ".join(item.split for item in items))))
    return result


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
    if dry_run:
        return "dry run: nothing was measured"
    return None


def left_out_text(points: Sequence[PairPoint], left_out: Set[str] = DOUBTFUL) -> str | None:
    """How many points failed a cross-check, by flag; None when none did."""
    flags = Counter(flag for p in points for flag in p.flags if flag in left_out)
    if not flags:
        return None
    listed = ", ".join(f"{count} {flag}" for flag, count in sorted(flags.items()))
    return f"left out of the table: {listed}"


def _result(pair: tuple[str, ...], points: Sequence[PairPoint], alone: SoloByJob) -> PairResult:
    known = [c for c in (_candidate(p, alone) for p, _ in means(points)) if c is not None]
    limited = {c: p for c, p in known if p.mode in {"mps", "cu_mask"} and _fits(p)}
    if not limited:
        return PairResult(pair, len(points))
    chosen = best(limited, OBJECTIVES[DEFAULT_OBJECTIVE])
    same_card = [(c, p) for c, p in known if p.gpu_uuid == limited[chosen].gpu_uuid]
    equal = [c.result.energy_saved for c, _ in same_card if c.split == EQUAL]
    free = [c.result.energy_saved for c, p in same_card if p.mode == "uncapped"]
    return PairResult(
        pair,
        len(points),
        limited[chosen],
        (chosen.result.speeds[0], chosen.result.speeds[1]),
        chosen.result.energy_saved,
        _mean(equal),
        _mean(free),
    )


def _fits(point: PairPoint) -> bool:
    """Whether the shares are not over-subscribed: no unit is in both."""
    units = [part.units for part in point.parts if part.units is not None]
    if len(units) < len(point.parts) or point.units_total is None:
        return sum(point.shares_percent) <= 100
    return sum(units) <= point.units_total


def _candidate(point: PairPoint, alone: SoloByJob) -> tuple[Candidate, PairPoint] | None:
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


def _cells(line: PairResult) -> list[str]:
    cells = [" + ".join(line.pair), str(line.windows)]
    if line.best is None or line.speeds is None:
        return [*cells, *["-"] * (len(COLUMNS) - len(cells))]
    split = "/".join(f"{share:g}" for share in line.best.shares_percent)
    speeds = [f"{speed:.2f}" for speed in line.speeds]
    watts = f"{line.best.power_w:.0f}"
    saved = (line.saved, line.equal_saved, line.uncapped_saved)
    return [*cells, split, *speeds, watts, *map(percent_text, saved)]
