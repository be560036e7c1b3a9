"""What a job does alone on the whole GPU: the reference of its relative speeds, and its class."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from advisor.core.records import REPLAY_SOURCE, PairPoint, SoloPoint
from advisor.predict.profiles import serving_of

HIGH_PERCENT = 50.0
"""From here on an axis is high ("Energy-efficient GPU SM allocation", section 5.2)."""

MEMORY_COUNTERS = ("dram_active_percent", "memory_busy_percent")
"""The memory axis, in order of preference.

The paper's axis is memory bandwidth "usage" (table 1) or "utilization" (section 5.2). Its list of
metrics (section 3.1) has that next to a memory busy rate, so the time in which the memory interface
moves data comes first, and the time in which anything used the memory stands in for it.
"""


@dataclass(frozen=True, slots=True)
class SoloReference:
    """Rate and power of one job alone on the whole GPU.

    Attributes:
        slowdown: How much slower that is than in the job's fastest run, as a part of that.
    """

    rate: float
    power_w: float
    slowdown: float


Classes: TypeAlias = Mapping[tuple[str, str], str]
"""Of each (GPU model, job) how much of the GPU it uses alone: compute, then memory, each H (at
least 50 %) or L. Jobs that lack a counter are in no class."""


def whole_gpu(solos: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points that can be divided by: the whole GPU, with a rate and a power."""
    return [p for p in solos if p.share_percent == 100 and p.rate > 0 and (p.power_w or 0) > 0]


def references_by_job(solos: Iterable[SoloPoint]) -> dict[str, list[SoloPoint]]:
    """Those that can be divided by, by name of job."""
    found: dict[str, list[SoloPoint]] = {}
    for solo in whole_gpu(solos):
        found.setdefault(solo.job, []).append(solo)
    return found


def references_of(
    point: PairPoint, references: Mapping[str, Sequence[SoloPoint]]
) -> list[SoloReference | None]:
    """What each job of a point does alone; None where nobody measured it."""
    # What a replay runs is a record of the job, so its hash tells nothing of the job's definition.
    replayed = point.source == REPLAY_SOURCE
    return [
        solo_reference(
            references.get(part.job, ()),
            None if replayed else part.job_hash,
            point.gpu_model,
            point.gpu_uuid,
            point.run,
        )
        for part in point.parts
    ]


def solo_reference(
    solos: Iterable[SoloPoint], job_hash: str | None, gpu_model: str, gpu_uuid: str, run: str
) -> SoloReference | None:
    """Median rate and power over the solo points nearest to a pair; None where there are none.

    The nearest are those on the pair's card in its run, else on its card, else of its GPU model.
    They are of the job on the whole GPU; points of another definition of it are no reference.
    """
    fitting = [
        point
        for point in solos
        if point.gpu_model == gpu_model and job_hash in (None, point.job_hash or job_hash)
    ]
    on_card = [point for point in fitting if point.gpu_uuid == gpu_uuid]
    nearest = [point for point in on_card if point.run == run] or on_card or fitting
    if not nearest:
        return None
    rate = statistics.median(point.rate for point in nearest)
    power_w = statistics.median(p.power_w for p in nearest if p.power_w is not None)
    serving = serving_of(nearest)
    alone = serving.rate_alone(rate) if serving else rate
    return SoloReference(alone, power_w, 1 - rate / _fastest_run(fitting))


def job_classes(solos: Sequence[SoloPoint]) -> Classes:
    """The class of each (GPU model, job) from its points on the whole GPU, medians over all."""
    points: dict[tuple[str, str], list[SoloPoint]] = {}
    for point in solos:
        points.setdefault((point.gpu_model, point.job), []).append(point)
    return {key: code for key, found in points.items() if (code := _class(found))}


def _fastest_run(points: Iterable[SoloPoint]) -> float:
    """Highest of the median rates of each run on each card."""
    rates: dict[tuple[str, str], list[float]] = {}
    for point in points:
        rates.setdefault((point.run, point.gpu_uuid), []).append(point.rate)
    return max(map(statistics.median, rates.values()))


def _class(points: Sequence[SoloPoint]) -> str | None:
    compute = _median(points, "sm_active_percent")
    known = (_median(points, name) for name in MEMORY_COUNTERS)
    memory = next((percent for percent in known if percent is not None), None)
    if compute is None or memory is None:
        return None
    return "".join("H" if percent >= HIGH_PERCENT else "L" for percent in (compute, memory))


def _median(points: Sequence[SoloPoint], column: str) -> float | None:
    values: list[float] = [v for p in points if (v := getattr(p, column)) is not None]
    return statistics.median(values) if values else None
