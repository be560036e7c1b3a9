"""What a job does alone on the whole GPU: the reference of its relative speeds, and its class."""

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from advisor.core.records import SoloPoint

SoloSource = Literal["same run", "same card", "same model"]
"""Where a solo rate was measured, seen from the pair, best first: on the pair's card in its run,
on its card in another run, on another card of the same model."""

SOLO_SOURCES: tuple[SoloSource, ...] = get_args(SoloSource)

HIGH_PERCENT = 50.0
"""From here on an axis is high ("Energy-efficient GPU SM allocation", section 5.2)."""

MEMORY_COUNTERS = ("dram_active_percent", "memory_busy_percent")
"""The memory axis, in order of preference.

The paper's axis is memory bandwidth "usage" (table 1) or "utilization" (section 5.2). Its list of
metrics (section 3.1) has that next to a memory busy rate, so the time in which the memory interface
moves data comes first, and the time in which anything used the memory stands in for it. A class may
hang on the choice; `JobClass` says where.
"""


@dataclass(frozen=True, slots=True)
class SoloReference:
    """Rate and power of one job alone on the whole GPU.

    Attributes:
        slowdown: How much slower that is than in the job's fastest run, as a part of that.
    """

    rate: float
    power_w: float
    source: SoloSource
    slowdown: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """How much of the GPU a job uses when it is alone on it.

    Attributes:
        code: Compute, then memory, each H (at least 50 %) or L; None where a counter is missing.
        memory_counter: The column that `memory_percent` comes from.
        code_by_other_counter: The class by the other memory counter, where that is another one.
    """

    job: str
    gpu_model: str
    code: str | None
    sm_active_percent: float | None
    memory_percent: float | None
    memory_counter: str | None
    code_by_other_counter: str | None


Classes: TypeAlias = Mapping[tuple[str, str], JobClass]
"""Class of each (GPU model, job)."""


def whole_gpu(solos: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points that can be divided by: the whole GPU, with a rate and a power."""
    return [p for p in solos if p.share_percent == 100 and p.rate > 0 and (p.power_w or 0) > 0]


def solo_reference(
    solos: Iterable[SoloPoint], job_hash: str | None, gpu_model: str, gpu_uuid: str, run: str
) -> SoloReference | None:
    """Median rate and power over the solo points nearest to a pair; None where there are none.

    They are of the job on the whole GPU; points of another definition of it are no reference.
    """
    by_source: dict[SoloSource, list[SoloPoint]] = {source: [] for source in SOLO_SOURCES}
    for point in solos:
        if point.gpu_model == gpu_model and job_hash in (None, point.job_hash or job_hash):
            by_source[_source(point, gpu_uuid, run)].append(point)
    fastest = _fastest_run(itertools.chain.from_iterable(by_source.values()))
    for source, points in by_source.items():
        if points:
            powers = [point.power_w for point in points if point.power_w is not None]
            rate = statistics.median(point.rate for point in points)
            return SoloReference(rate, statistics.median(powers), source, 1 - rate / fastest)
    return None


def job_classes(solos: Sequence[SoloPoint]) -> Classes:
    """The class of each (GPU model, job) from its points on the whole GPU, medians over all."""
    points: dict[tuple[str, str], list[SoloPoint]] = {}
    for point in solos:
        points.setdefault((point.gpu_model, point.job), []).append(point)
    return {key: _class(key[1], key[0], found) for key, found in points.items()}


def _fastest_run(points: Iterable[SoloPoint]) -> float:
    """Highest of the median rates of each run on each card; 0 where there are no points."""
    rates: dict[tuple[str, str], list[float]] = {}
    for point in points:
        rates.setdefault((point.run, point.gpu_uuid), []).append(point.rate)
    return max(map(statistics.median, rates.values()), default=0.0)


def _source(point: SoloPoint, gpu_uuid: str, run: str) -> SoloSource:
    if point.gpu_uuid != gpu_uuid:
        return "same model"
    return "same run" if point.run == run else "same card"


def _class(job: str, gpu_model: str, points: Sequence[SoloPoint]) -> JobClass:
    compute = _median(points, "sm_active_percent")
    memory = {name: _median(points, name) for name in MEMORY_COUNTERS}
    codes = {name: _code(compute, value) for name, value in memory.items() if value is not None}
    counter = next(iter(codes), None)
    code = codes[counter] if counter else None
    return JobClass(
        job=job,
        gpu_model=gpu_model,
        code=code,
        sm_active_percent=compute,
        memory_percent=memory[counter] if counter else None,
        memory_counter=counter,
        code_by_other_counter=_other(codes, code),
    )


def _median(points: Sequence[SoloPoint], column: str) -> float | None:
    values: list[float] = [v for p in points if (v := getattr(p, column)) is not None]
    return statistics.median(values) if values else None


def _code(compute_percent: float | None, memory_percent: float) -> str | None:
    if compute_percent is None:
        return None
    return "".join("H" if v >= HIGH_PERCENT else "L" for v in (compute_percent, memory_percent))


def _other(codes: Mapping[str, str | None], code: str | None) -> str | None:
    return next((other for other in codes.values() if other != code), None)
