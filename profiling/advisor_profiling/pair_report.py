"""What a campaign says to a person: what it will take, its pairs as a table, what it took."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from rich.table import Table
from rich.text import Text

from advisor.flags import DOUBTFUL
from advisor.objectives import DEFAULT_OBJECTIVE, OBJECTIVES, Candidate, SplitResult, best
from advisor.records import PairPoint, SoloPoint
from advisor_profiling.outcome import Cost

WIDTH = 120
"""Columns that the table may need."""

COLUMNS = ("pair", "windows", "best split", "speed", "speed", "W", "vs 50/50", "vs no limit")
"""Headings of the table; speed is relative to the job alone on the whole GPU."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """The best measured split of a pair that is not over-subscribed, by work per joule.

    Attributes:
        windows: Good points of the pair.
        best: The mean of its windows; None where the jobs' rates alone are not known.
        over_equal: Gain over 50/50 on the same card, 0.1 for 10 %; None where that was not
            measured.
        over_uncapped: Gain over MPS without limits on the same card.
    """

    pair: tuple[str, str]
    windows: int
    best: PairPoint | None = None
    speeds: tuple[float, float] | None = None
    over_equal: float | None = None
    over_uncapped: float | None = None


def summarise(points: Sequence[PairPoint], solo: Sequence[SoloPoint]) -> list[PairResult]:
    """Each pair's best split; points that failed a cross-check are left out.

    Args:
        points: Pair points of one run.
        solo: Solo points; those at 100 % give the rates that speeds are relative to.
    """
    alone = _whole_gpu_rates(solo)
    pairs: defaultdict[tuple[str, str], list[PairPoint]] = defaultdict(list)
    for point in points:
        if not DOUBTFUL & set(point.flags):
            pairs[point.pair].append(point)
    return [_result(pair, found, alone) for pair, found in sorted(pairs.items())]


def references(own: Sequence[SoloPoint], others: Iterable[SoloPoint]) -> list[SoloPoint]:
    """A run's solo points and, for jobs without a rate at 100 % there, their newest one elsewhere.

    Args:
        own: Solo points of the run.
        others: Solo points of any run on the same GPU model.
    """
    known = _whole_gpu_rates(own)
    newest: dict[str, SoloPoint] = {}
    for point in sorted(others, key=lambda p: p.started_at):
        if point.job not in known and _whole_gpu_rates([point]):
            newest[point.job] = point
    return [*own, *newest.values()]


def unknown_alone_text(points: Iterable[PairPoint], solo: Sequence[SoloPoint]) -> list[str]:
    """A line for each job of the pairs whose rate alone is not known."""
    jobs = {job for point in points for job in point.pair}
    return [
        f"no rate of {job} alone at 100 % is known: advisor profile {job}"
        for job in sorted(jobs - _whole_gpu_rates(solo).keys())
    ]


def table(results: Sequence[PairResult]) -> Table:
    """The pairs, one line each."""
    result = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        left = name in {"pair", "best split"}
        result.add_column(Text(name), justify="left" if left else "right", no_wrap=True)
    for line in results:
        result.add_row(*map(Text, _cells(line)))
    return result


def cost_text(cost: Cost, pair_points: int) -> str:
    """What a campaign took, in one line; the windows of its jobs alone are part of the cost."""
    if not cost.duration_s:
        return "nothing was measured"
    if not pair_points:
        return f"no pair was measured in {cost.duration_s / 60:.1f} GPU-minutes"
    return (
        f"{pair_points} pair points in {cost.duration_s / 60:.1f} GPU-minutes: "
        f"{cost.duration_s / pair_points:.1f} GPU-seconds a pair point, {cost.starts} starts, "
        f"{100 * cost.measuring_s / cost.duration_s:.0f} % of the time measuring "
        f"({100 * cost.window_s / cost.duration_s:.0f} % in windows, the rest settling), "
        f"{100 * cost.starting_s / cost.duration_s:.0f} % starting, "
        f"{100 * cost.waiting_s / cost.duration_s:.0f} % waiting for other GPUs"
    )


def nothing_to_do_text(windows: int, to_measure: int, *, dry_run: bool) -> str | None:
    """Why a campaign took nothing at all; None where it was to take something."""
    if dry_run:
        return "dry run: nothing was measured"
    if windows and not to_measure:
        return f"all {windows} windows were measured before"
    return None


def left_out_text(points: Sequence[PairPoint]) -> str | None:
    """How many points failed a cross-check, by flag; None when none did."""
    flags = Counter(flag for p in points for flag in p.flags if flag in DOUBTFUL)
    if not flags:
        return None
    listed = ", ".join(f"{count} {flag}" for flag, count in sorted(flags.items()))
    return f"left out of the table: {listed}"


def _result(
    pair: tuple[str, str], points: Sequence[PairPoint], alone: Mapping[str, float]
) -> PairResult:
    known = [c for c in (_candidate(p, alone) for p in _means(points)) if c is not None]
    limited = {c: p for c, p in known if p.mode in {"mps", "cu_mask"} and _fits(p)}
    if not limited:
        return PairResult(pair, len(points))
    objective = OBJECTIVES[DEFAULT_OBJECTIVE]
    chosen = best(limited, objective)
    value = objective.value(chosen.result)
    same_card = [(c, p) for c, p in known if p.gpu_uuid == limited[chosen].gpu_uuid]
    equal = [objective.value(c.result) for c, _ in same_card if _shares(c) == (50, 50)]
    free = [objective.value(c.result) for c, p in same_card if p.mode == "uncapped"]
    return PairResult(
        pair,
        len(points),
        limited[chosen],
        (chosen.result.speed_a, chosen.result.speed_b),
        _gain(value, equal),
        _gain(value, free),
    )


def _means(points: Sequence[PairPoint]) -> list[PairPoint]:
    """One point for each split and card, the mean of its complete windows: luck does not choose."""
    windows: defaultdict[tuple[object, ...], list[PairPoint]] = defaultdict(list)
    for p in points:
        if p.rate_a is not None and p.rate_b is not None and p.power_w:
            windows[p.gpu_uuid, p.mode, p.share_a_percent, p.share_b_percent].append(p)
    return [
        replace(
            same[0],
            rate_a=fmean(p.rate_a or 0 for p in same),
            rate_b=fmean(p.rate_b or 0 for p in same),
            power_w=fmean(p.power_w or 0 for p in same),
        )
        for same in windows.values()
    ]


def _fits(point: PairPoint) -> bool:
    """Whether the shares are not over-subscribed: no unit is in both."""
    if point.units_a is None or point.units_b is None or point.units_total is None:
        return point.share_a_percent + point.share_b_percent <= 100
    return point.units_a + point.units_b <= point.units_total


def _candidate(point: PairPoint, alone: Mapping[str, float]) -> tuple[Candidate, PairPoint] | None:
    solo_a, solo_b = alone.get(point.job_a), alone.get(point.job_b)
    if not (solo_a and solo_b and point.power_w) or point.rate_a is None or point.rate_b is None:
        return None
    result = SplitResult(
        rate_a=point.rate_a,
        rate_b=point.rate_b,
        solo_rate_a=solo_a,
        solo_rate_b=solo_b,
        power_w=point.power_w,
    )
    return Candidate(point.share_a_percent, point.share_b_percent, result), point


def _whole_gpu_rates(solo: Sequence[SoloPoint]) -> dict[str, float]:
    """Rate of each job alone on the whole GPU, the mean of its good windows."""
    rates: defaultdict[str, list[float]] = defaultdict(list)
    for point in solo:
        if point.share_percent == 100 and point.rate and not DOUBTFUL & set(point.flags):
            rates[point.job].append(point.rate)
    return {job: sum(found) / len(found) for job, found in rates.items()}


def _shares(candidate: Candidate) -> tuple[float, float]:
    return candidate.share_a_percent, candidate.share_b_percent


def _gain(value: float, others: Sequence[float]) -> float | None:
    mean = sum(others) / len(others) if others else 0
    return value / mean - 1 if mean else None


def _cells(line: PairResult) -> list[str]:
    cells = [" + ".join(line.pair), str(line.windows)]
    if line.best is None or line.speeds is None:
        return [*cells, *["-"] * (len(COLUMNS) - len(cells))]
    split = f"{line.best.share_a_percent:g}/{line.best.share_b_percent:g}"
    speeds = [f"{speed:.2f}" for speed in line.speeds]
    watts = f"{line.best.power_w:.0f}"
    return [*cells, split, *speeds, watts, _percent(line.over_equal), _percent(line.over_uncapped)]


def _percent(gain: float | None) -> str:
    return "-" if gain is None else f"{100 * gain:+.1f} %"
