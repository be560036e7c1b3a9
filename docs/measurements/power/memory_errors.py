"""The memory's power by weights that do not know the job, and how far its sensor repeats itself.

`component_claims.py` prints what is found here. Weights are of a floor, of leakage, of the time in
which kernels run that use the memory at all, and of the time in which it moves data. They are
fitted to relative errors, by non-negative least squares, to all jobs but the one that is judged.
No counter tells how often a row of the memory is opened, which costs energy as well.
"""

import itertools
import statistics
from collections.abc import Iterator, Sequence

import numpy as np
from memory_rises import Readings, Test

from advisor.core.records import SoloPoint
from advisor.predict.profiles import Floats
from advisor_power.components.activity import TERMS, activity_of
from advisor_power.components.least_squares import non_negative_least_squares
from advisor_power.components.weights import FEWEST_JOBS

ERROR, ERROR_W = 0.05, 5.0
BAR = f"{ERROR:.0%} or {ERROR_W:g} W on average"

IN_USE = 0.01
"""Part of the time in which data move from which on the memory counts as in use while kernels run.
From 0.003 to 0.04 it makes no difference on one H100 and one H200."""

_COLUMNS = [list(TERMS).index(name) for name in ("floor", "temperature", "fabric", "memory")]


def left_out(read: Sequence[SoloPoint], card: str = "") -> Test:
    """Aim: the memory's power of each job by weights that do not know it.

    Args:
        read: Windows with the memory's power.
        card: Named where all of them are of one.
    """
    claim = f"the memory's power, job left out{card and f', on {card}'}"
    rows: dict[str, list[tuple[Floats, float]]] = {}
    for p in read:
        if (terms := _terms(p)) is not None:
            rows.setdefault(p.job, []).append((terms, p.memory_power_w or 0.0))
    if len(rows) <= FEWEST_JOBS:
        return Test(claim, f"{len(rows)} jobs, of {FEWEST_JOBS + 1} needed", BAR, "open")
    errors = [error for job in rows for error in _errors_w(rows, job)]
    off_w = statistics.fmean(abs(e) for e, _ in errors)
    relative = [abs(e) / w for e, w in errors]
    mean, median = statistics.fmean(relative), statistics.median(relative)
    within = sum(abs(e) <= max(ERROR * w, ERROR_W) for e, w in errors)
    reached = mean <= ERROR or off_w <= ERROR_W
    return Test(
        claim,
        f"{mean:.1%} (median {median:.1%}), {off_w:.1f} W over {len(rows)} jobs; {within} of "
        f"{len(errors)} windows within one of both",
        BAR,
        "confirmed" if reached else "refuted",
    )


def left_out_on_each_card(read: Sequence[SoloPoint]) -> Iterator[Test]:
    """The same by weights of the card itself, where it has jobs enough."""
    for card in sorted({p.gpu_uuid for p in read}):
        mine = [p for p in read if p.gpu_uuid == card]
        if len({p.job for p in mine}) > FEWEST_JOBS:
            yield left_out(mine, card[:12])


def other_card(read: Sequence[SoloPoint]) -> Test:
    """What the memory of another card draws for the same job."""
    return _apart("another card", [(a, b) for a, b in _same(read) if a.gpu_uuid != b.gpu_uuid])


def again(read: Sequence[SoloPoint]) -> Test:
    """What the sensor of the same card says of the same job in another window of the same run."""
    pairs = [(a, b) for a, b in _same(read) if a.gpu_uuid == b.gpu_uuid and a.run == b.run]
    return _apart("the same card again", pairs)


def _same(read: Sequence[SoloPoint]) -> Iterator[tuple[SoloPoint, SoloPoint]]:
    """Pairs of windows of one job at one share."""
    for a, b in itertools.combinations(read, 2):
        if (a.job, a.share_percent) == (b.job, b.share_percent):
            yield a, b


def _apart(where: str, pairs: Sequence[tuple[SoloPoint, SoloPoint]]) -> Test:
    claim, bar = f"the memory's power, the same job on {where}", "none: a ceiling"
    if not pairs:
        return Test(claim, "no job was measured so", bar, "open")
    both = [(a.memory_power_w or 0.0, b.memory_power_w or 0.0) for a, b in pairs]
    gaps_w = [abs(a - b) for a, b in both]
    gaps = [gap_w / max(of) for gap_w, of in zip(gaps_w, both, strict=True)]
    return Test(
        claim,
        f"{statistics.fmean(gaps):.1%} apart on average, {statistics.median(gaps):.1%} in the "
        f"median, {max(gaps):.1%} at most, {statistics.fmean(gaps_w):.1f} W on average; "
        f"{len(gaps)} pairs",
        bar,
        "open",
    )


def _terms(point: SoloPoint) -> Floats | None:
    """Floor, leakage, time in use, time in which data move."""
    if (found := activity_of(point)) is None:
        return None
    floor, leakage, awake, moving = found.terms(found.clock_mhz)[_COLUMNS]
    return np.array([floor, leakage, min(awake, moving / IN_USE), moving])


def _errors_w(rows: Readings, job: str) -> Iterator[tuple[float, float]]:
    """Expected less measured, and measured, of each window of a job."""
    others = [row for name, found in rows.items() if name != job for row in found]
    matrix, watts = np.array([row for row, _ in others]), np.array([w for _, w in others])
    values = non_negative_least_squares(matrix / watts[:, None], np.ones(len(watts)))
    for row, measured_w in rows[job]:
        yield float(row @ values) - measured_w, measured_w
