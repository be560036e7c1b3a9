"""The law of sets over measured rows, rules fitted to them, and jobs judged by all other jobs."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
from rows import Part, Row, known_busy, known_profiles

from advisor.predict.kernels import Kernels, computes_in_bursts
from advisor.predict.profiles import Floats, crowded, without_limit_w
from advisor.predict.sets import (
    ACTIVE_IDLE_OVER_W,
    CLASSES,
    OF_SET,
    ROUND_ROBIN,
    SLICED,
    SLICING_KEPT,
    JobsAlone,
    RoundRobin,
    SetClass,
    power_w,
    time_sliced,
)

K = TypeVar("K")

Kept = Callable[[Row], Floats]
"""Part of its speed at its limit that each job could keep with more requests; shape (jobs, 1)."""

Fit = Callable[[Sequence[Row]], Kept]

Watts = Callable[[Row, Floats], Floats]
"""Of a set whose jobs keep so much of their speed; shape (ways,)."""

OVER_W, FULLERS = np.arange(20.0, 121.0, 5.0), np.arange(9) / 20


def alone(row: Row, law: RoundRobin = ROUND_ROBIN, *, is_counted: bool = True) -> JobsAlone:
    """As the package takes the jobs of a row, shape (jobs, ways of the law)."""
    jobs = [_alone(row, part, law, part.kernels if is_counted else None) for part in row.parts]
    ways = np.atleast_1d(law.gaps).shape
    columns = ([np.broadcast_to(own, ways) for own in column] for column in zip(*jobs, strict=True))
    names = [field.name for field in fields(JobsAlone)]
    return JobsAlone(**dict(zip(names, map(np.array, columns), strict=True)))


def _alone(row: Row, part: Part, law: RoundRobin, counted: Kernels | None) -> list[Any]:
    whole, rate = part.whole, np.array([part.alone.rate])
    sm, dram = part.activity(), part.activity("dram_active_percent")
    whole_active = max(whole.sm_active_percent or 0.0, whole.dram_active_percent or 0.0) / 100
    cores = (whole.job_cpu_percent or 100.0) / 100
    bursts = computes_in_bursts(whole)
    ahead = getattr(known_profiles().get(whole.job), "reads_ahead", False)
    kernels = law.kernels(
        counted,
        rate,
        np.array([max(sm, dram)]),
        (whole.rate, whole_active, cores),
        serves=part.serves,
        waits=part.is_host or bursts,
        reads_ahead=ahead,
    )
    could = part.base / whole_active if part.serves else part.base
    power_w = part.alone.power_w or 0.0
    wanted_w = without_limit_w(row.limit_w, power_w, (part.alone.sm_clock_mhz or math.nan) / 1980)
    kind = float(part.fills), float(part.serves), idle_w(row), float(bursts), float(ahead), math.inf
    busy = known_busy().get(whole.job, math.nan) / 100
    of_share = part.alone.share_percent, part.base, could, part.needs
    of_gpu = busy, *kernels, float(counted is None), law.room, SLICING_KEPT, wanted_w
    return [*of_share, power_w, sm, dram, *kind, *of_gpu]


def idle_w(row: Row, over_w: float | Floats = ACTIVE_IDLE_OVER_W) -> Any:
    """With contexts and no work; `over_w` that of the empty card where it was not read."""
    return over_w + row.idle_w if math.isnan(row.active_idle_w) else row.active_idle_w


def _kept(row: Row, jobs: JobsAlone, could: Floats) -> Floats:
    return jobs.at_limit(could, row.limit_w) / jobs.rate


def round_robin(law: RoundRobin, *, is_counted: bool = True) -> Kept:
    """Under MPS; without what was counted, by what cores say of all jobs."""

    def kept(row: Row) -> Floats:
        jobs = alone(row, law, is_counted=is_counted)
        return _kept(row, jobs, jobs.could)

    return kept


def on_own_sms(corner: float | Floats) -> Kept:
    """Under MPS with limits that add up to the GPU."""

    def kept(row: Row) -> Floats:
        jobs = alone(row)
        of_own = np.where(jobs.served, np.inf, crowded(jobs.sm, jobs.dram, corner))
        return _kept(row, jobs, np.minimum(jobs.reach, jobs.rate * of_own))

    return kept


def by_turns(kept: float | Floats) -> Kept:
    """Time-sliced."""

    def could(row: Row) -> Floats:
        jobs = alone(row)
        return np.minimum(jobs.reach / jobs.rate, time_sliced(jobs, kept))

    return could


def drawn(over_w: float | Floats, fuller: float | Floats) -> Watts:
    """By active idle power over that of the empty card, where it was not read, and `FULLER`."""

    def watts(row: Row, kept: Floats) -> Floats:
        saved = _saved(row) * fuller
        return power_w(
            np.minimum(1.0, kept),
            row.column(lambda part: part.alone.power_w or 0.0),
            np.zeros_like(saved) + idle_w(row, over_w),
            row.limit_w,
            saved,
            is_sliced=row.mode == "time-sliced",
        )

    return watts


@functools.cache
def _saved(row: Row) -> Floats:
    return alone(row).saved(1.0)


def speed_offs(row: Row, kept: Floats) -> Floats:
    """Sum of the errors of a set's jobs; shape (ways,)."""
    said = row.column(lambda part: part.base) * np.minimum(1.0, kept)
    return np.abs(said - row.column(lambda part: part.speed)).sum(axis=0)


class Nearest(Generic[K]):
    """The rule of several, by their constants, with the smallest error of speeds.

    `at_once` are all of these constants as arrays: of a row such a rule says what all say.
    """

    def __init__(
        self,
        rule: Callable[[Any], Kept],
        constants: Sequence[K],
        at_once: object,
        rows: Sequence[Row],
    ) -> None:
        self._constants = constants
        self._kept = {id(row): rule(at_once)(row) for row in rows}
        self._offs = {id(row): speed_offs(row, self._kept[id(row)]) for row in rows}

    def best(self, rows: Sequence[Row]) -> K:
        """Its constants."""
        return self._constants[self._place(rows)]

    def fit(self, rows: Sequence[Row]) -> Kept:
        place = self._place(rows)
        return lambda row: self._kept[id(row)][:, [place]]

    def _place(self, rows: Sequence[Row]) -> int:
        return int(np.argmin(np.sum([self._offs[id(row)] for row in rows], axis=0)))


def fitted_watts(rows: Sequence[Row], kept: Kept) -> tuple[float, float]:
    """Constants of `drawn` with the smallest error: the first as if servers saved nothing."""
    over_w = _nearest(rows, kept, lambda ways: drawn(ways, 0.0), OVER_W)
    return over_w, _nearest(rows, kept, lambda ways: drawn(over_w, ways), FULLERS)


def _nearest(
    rows: Sequence[Row], kept: Kept, rule: Callable[[Floats], Watts], ways: Floats
) -> float:
    watts = rule(ways)
    offs = sum(np.abs(watts(row, kept(row)) / row.power_w - 1) for row in rows)
    return float(ways[np.argmin(offs)])


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said of one job and its set, by what was fitted to sets without that job."""

    row: Row
    part: Part
    of_class: SetClass
    set_class: SetClass
    could: float
    power_w: float
    efficiency: float
    """Measured energy of the work on a card each over that together, for each 1 predicted."""

    @property
    def speed(self) -> float:
        """What a server serves of its demand, others what they could do."""
        return min(self.could, self.part.base) if self.part.serves else self.could

    @property
    def points(self) -> float:
        return 100 * (self.speed - self.part.speed)

    @property
    def jobs(self) -> frozenset[str]:
        return frozenset([self.part.whole.job])

    @property
    def percent(self) -> float:
        return 100 * abs(self.power_w / self.row.power_w - 1)


def left_out(
    rows: Sequence[Row],
    fit: Fit,
    fit_watts: Callable[[Sequence[Row], Kept], tuple[float, float]] = fitted_watts,
    *,
    is_counted: bool = True,
) -> list[Judged]:
    """Every job of every set, by the constants of all other jobs."""
    found = list[Judged]()
    for job in sorted({job for row in rows for job in row.jobs}):
        free = [row for row in rows if job not in row.jobs]
        kept = fit(free)
        watts = drawn(*fit_watts(free, kept))
        for row in rows:
            if job in row.jobs:
                found += judge(row, kept(row), watts, job, is_counted=is_counted)
    return found


def judge(
    row: Row, kept: Floats, watts: Watts, *jobs: str, is_counted: bool = True
) -> Iterable[Judged]:
    """What is said of some jobs of a set."""
    predicted_w = watts(row, kept).item()
    could = [p.base * float(of) for p, of in zip(row.parts, kept[:, 0], strict=True)]
    said = [min(of, p.base) for of, p in zip(could, row.parts, strict=True)]
    classes = alone(row, is_counted=is_counted).classes[:, 0].tolist()
    if row.mode == "time-sliced":
        classes = [SLICED] * len(classes)
    alone_w = [part.whole.power_w or 0.0 for part in row.parts]
    measured = sum(p.speed * w for p, w in zip(row.parts, alone_w, strict=True)) / row.power_w
    expected = sum(s * w for s, w in zip(said, alone_w, strict=True)) / predicted_w
    for part, able, number in zip(row.parts, could, classes, strict=True):
        if part.whole.job in jobs:
            yield Judged(
                row,
                part,
                CLASSES[number],
                OF_SET[CLASSES[max(classes)]],
                able,
                predicted_w,
                measured / expected,
            )
