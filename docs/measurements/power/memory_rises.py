"""C1 of CompPow: does the memory's power rise with bytes, and hardly with work?

`component_claims.py` prints what is found here; it says how each test judges.
"""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.stats import spearmanr

from advisor.core.gpu import WHOLE
from advisor.core.records import SoloPoint
from advisor.predict.profiles import Floats
from advisor_power.components.weights import FEWEST_JOBS

COPIES = ("component-hbm-copy", "component-hbm-write", "triad")
FEWEST_SHARES = 5
LEAST_R2 = 0.95

PRODUCT_PERCENT, NO_BYTES_PERCENT = 50.0, 5.0
"""A product that has its operands in registers or L2: tensor cores busy, the memory hardly."""
IDLE = "component-idle"
MOST_WORK_W = 10.0

RISES, DOES_NOT_RISE = 0.8, 0.4
PIPES = ("tensor", "fp32", "fp16", "fp64", "integer")

DRAWS = 1000
_SEED = 0

Verdict: TypeAlias = Literal["confirmed", "refuted", "open"]
Readings: TypeAlias = Mapping[str, Sequence[tuple[Floats, float]]]
"""Of each job: what explains, and the memory's power."""


@dataclass(frozen=True, slots=True)
class Test:
    """One line: what was found of a claim, and what follows."""

    claim: str
    found: str
    needs: str
    verdict: Verdict


def copies(read: Sequence[SoloPoint]) -> Test:
    """C1: a straight line through the windows of each job that copies, on the worst card."""
    found: dict[str, float] = {}
    for job, card in itertools.product(COPIES, sorted({p.gpu_uuid for p in read})):
        mine = [
            p
            for p in read
            if (p.job, p.gpu_uuid) == (job, card) and p.dram_active_percent is not None
        ]
        if len({p.share_percent for p in mine}) >= FEWEST_SHARES:
            x, y = np.array([(p.dram_active_percent, p.memory_power_w) for p in mine]).T
            # Where nothing moves there is no line: a correlation of none is no proof of one.
            r2 = float(np.corrcoef(x, y)[0, 1] ** 2) if np.ptp(x) and np.ptp(y) else 0.0
            found[job] = min(r2, found.get(job, 1.0))
    verdict: Verdict = "open"
    if found:
        verdict = "confirmed" if min(found.values()) >= LEAST_R2 else "refuted"
    shown = ", ".join(f"{job} {r2:.3f}" for job, r2 in found.items())
    return Test(
        "C1: the memory's power rises with bytes, copies",
        f"R2 {shown}" if found else f"no copy at {FEWEST_SHARES} shares",
        f"R2 of at least {LEAST_R2:g} in each",
        verdict,
    )


def work(read: Sequence[SoloPoint]) -> Test:
    """C1: products without bytes against an idle context, medians of the whole GPU."""
    watts: dict[str, list[float]] = {}
    for p in read:
        if p.share_percent == WHOLE and (p.job == IDLE or _is_product_without_bytes(p)):
            watts.setdefault(p.job, []).append(p.memory_power_w or 0.0)
    idle_w = statistics.median(watts.pop(IDLE, [float("nan")]))
    above = {job: statistics.median(w) - idle_w for job, w in watts.items() if idle_w > 0}
    verdict: Verdict = "open"
    if above:
        within = all(abs(w) <= MOST_WORK_W for w in above.values())
        verdict = "confirmed" if within else "refuted"
    shown = ", ".join(f"{job} {w:+.1f} W" for job, w in above.items())
    return Test(
        "C1: and hardly with work, products without bytes",
        shown or f"no such product beside {IDLE}",
        f"within {MOST_WORK_W:g} W of idle",
        verdict,
    )


def _is_product_without_bytes(p: SoloPoint) -> bool:
    tensor, memory = p.tensor_active_percent, p.dram_active_percent
    return (tensor or 0.0) >= PRODUCT_PERCENT and memory is not None and memory <= NO_BYTES_PERCENT


def all_jobs(read: Sequence[SoloPoint]) -> Test:
    """C1: the order of all windows, and both slopes."""
    known: dict[str, list[tuple[Floats, float]]] = {}
    for p in read:
        if (row := _bytes_and_work(p)) is not None:
            known.setdefault(p.job, []).append((row, p.memory_power_w or 0.0))
    claim, bar = "C1: all jobs", f"Spearman of at least {RISES:g}"
    if len(known) < FEWEST_JOBS:
        return Test(claim, f"{len(known)} jobs, of {FEWEST_JOBS} needed", bar, "open")
    rank, low, high = _interval(known, _rank)
    slopes = [_interval(known, lambda rows, n=n: _slope(rows, n)) for n in (1, 2)]
    verdict: Verdict = (
        "confirmed" if rank >= RISES else "refuted" if rank <= DOES_NOT_RISE else "open"
    )
    of_bytes, of_work = (f"{v:+.1f} W ({lo:+.1f} to {hi:+.1f})" for v, lo, hi in slopes)
    return Test(
        claim,
        f"Spearman {rank:.2f} ({low:.2f} to {high:.2f}); for 100 % of the memory's time "
        f"{of_bytes}, of the busiest pipe's {of_work}",
        bar,
        verdict,
    )


def _bytes_and_work(point: SoloPoint) -> Floats | None:
    """1, and the parts of the time in which the memory and the busiest pipe are at work."""
    pipes = [getattr(point, f"{pipe}_active_percent") for pipe in PIPES]
    if point.dram_active_percent is None or None in pipes:
        return None
    return np.array([1.0, point.dram_active_percent / WHOLE, max(pipes) / WHOLE])


def _rank(rows: Sequence[tuple[Floats, float]]) -> float:
    moved, watts = [row[1] for row, _ in rows], [w for _, w in rows]
    if len(set(moved)) < 2 or len(set(watts)) < 2:
        return 0.0
    return float(spearmanr(moved, watts).statistic)


def _slope(rows: Sequence[tuple[Floats, float]], column: int) -> float:
    matrix, watts = np.array([row for row, _ in rows]), np.array([w for _, w in rows])
    return float(np.linalg.lstsq(matrix, watts, rcond=None)[0][column])


def _interval(
    known: Readings, value: Callable[[Sequence[tuple[Floats, float]]], float]
) -> tuple[float, float, float]:
    """A figure of all windows, with bounds from jobs drawn again."""
    dice, names = np.random.default_rng(_SEED), sorted(known)
    drawn = [
        value([row for n in dice.integers(len(names), size=len(names)) for row in known[names[n]]])
        for _ in range(DRAWS)
    ]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return value([row for name in names for row in known[name]]), float(low), float(high)
