"""What sets of jobs on one GPU did, beside the same work on a GPU for each job."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from advisor.core.gpu import WHOLE
from advisor.core.objectives import PartResult, SplitResult
from advisor.core.records import DOUBTFUL, PairPoint, PointPart, SoloPoint
from advisor_profiling.reports.campaign import SoloByJob, alone_by_job, means, percent_text

WIDTH = 120
"""Columns that the table may need."""

LEFT_OUT = DOUBTFUL - {"not-settled"}
"""Flags of windows that no table of sets has. Rates of jobs that wait for the host never get flat,
and the more jobs there are, the more of them wait."""

COLUMNS = ("set, speed of each job", "sharing", "W", "slowest", "p99 ms", "saves, off", "idle")
"""Headings of the table; speed is relative to the job alone on the whole GPU. Energy is saved for
the same work, against a GPU for each job: with those that become free switched off, or idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPart:
    """One job of a set; a server does no more than is asked of it, so its speed is at most 1."""

    job: str
    share_percent: float
    speed: float
    latency_p99_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResult:
    """One set in one way of sharing on one card, the mean of its good windows.

    Attributes:
        slowest: The lowest speed.
        p99_ms: The longest tail of its servers; None where it has none.
        saved_off: Part of the energy saved for the same work, against a GPU for each job, where
            those that become free draw nothing; 0.1 is 10 %.
        saved_idle: The same where they draw idle power; None where that was not read.
    """

    parts: tuple[SetPart, ...]
    mode: str
    gpu_uuid: str
    windows: int
    power_w: float
    slowest: float
    p99_ms: float | None
    saved_off: float
    saved_idle: float | None


def set_results(points: Sequence[PairPoint], solo: Sequence[SoloPoint]) -> list[SetResult]:
    """Sets of jobs that were measured alone at 100 %, too; without points that failed a check."""
    alone = alone_by_job(solo, LEFT_OUT)
    good = [p for p in points if not LEFT_OUT & set(p.flags) and set(p.jobs) <= alone.keys()]
    found = [_result(point, windows, alone) for point, windows in means(good)]
    return sorted(found, key=lambda r: (len(r.parts), [p.job for p in r.parts], r.mode))


def set_table(results: Sequence[SetResult]) -> Table:
    """The sets, one line each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        left = name in COLUMNS[:2]
        table.add_column(Text(name), justify="left" if left else "right", no_wrap=not left)
    for result in results:
        table.add_row(*map(Text, _cells(result)))
    return table


def sharing_text(result: SetResult) -> str:
    """How the jobs share the GPU: `limits` where one of them has one."""
    limits = any(part.share_percent != WHOLE for part in result.parts)
    return "limits" if limits else result.mode


def _result(point: PairPoint, windows: int, alone: SoloByJob) -> SetResult:
    shared = SplitResult(
        tuple(PartResult(_rate(part, alone), *alone[part.job]) for part in point.parts),
        point.power_w or 0.0,
    )
    tails = [part.latency_p99_ms for part in point.parts if part.latency_p99_ms is not None]
    return SetResult(
        parts=tuple(
            SetPart(
                job=part.job,
                share_percent=part.share_percent,
                speed=speed,
                latency_p99_ms=part.latency_p99_ms,
            )
            for part, speed in zip(point.parts, shared.speeds, strict=True)
        ),
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


def _rate(part: PointPart, alone: SoloByJob) -> float:
    rate = part.rate or 0.0
    return rate if part.offered_rate is None else min(rate, alone[part.job][0])


def _cells(result: SetResult) -> list[str]:
    return [
        _text(result),
        sharing_text(result),
        f"{result.power_w:.0f}",
        f"{result.slowest:.2f}",
        "-" if result.p99_ms is None else f"{result.p99_ms:.0f}",
        percent_text(result.saved_off),
        percent_text(result.saved_idle),
    ]


def _text(result: SetResult) -> str:
    """Each job with its speed; those of copies follow one another."""
    names = [_name(part) for part in result.parts]
    texts = list[str]()
    for name, count in Counter(names).items():
        of_name = zip(names, result.parts, strict=True)
        speeds = ", ".join(f"{part.speed:.2f}" for its, part in of_name if its == name)
        texts.append(f"{f'{count} x ' if count > 1 else ''}{name} {speeds}")
    return " + ".join(texts)


def _name(part: SetPart) -> str:
    return part.job if part.share_percent == WHOLE else f"{part.job}@{part.share_percent:g}"
