"""Which bundled points have results that nobody read, where they can be wrong."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import yaml

from advisor.core.records import UNREAD, PairPoint, SoloPoint
from advisor.validity.safe_counts import wrong_elsewhere
from advisor_data.bundled import bundled_checks

_Point = TypeVar("_Point", SoloPoint, PairPoint)

JOBS = Path(__file__).resolve().parents[3] / "jobs"

HALF_PRECISION = ("bf16", "fp16", "fp8")


@cache
def half_precision_jobs() -> frozenset[str]:
    """Names of the suite's jobs with products in half precision or less, by their job files."""
    inputs = {
        file.stem: yaml.safe_load(file.read_text()).get("input") for file in JOBS.glob("*.yaml")
    }
    return frozenset(j for j, own in inputs.items() if own and own.get("dtype") in HALF_PRECISION)


def unsafe_counts() -> dict[str, frozenset[int]]:
    """Counts of SMs at which the bundled checks found wrong results, by GPU model."""
    checks = bundled_checks()
    return {
        check.gpu_model: frozenset({*check.unsafe, *wrong_elsewhere(check.gpu_model, checks)})
        for check in checks
    }


def with_unread_flags(points: Iterable[_Point]) -> list[_Point]:
    """The points, in their order, with `results-unread` where it holds and nowhere else."""
    jobs, unsafe = half_precision_jobs(), unsafe_counts()
    found = list[_Point]()
    for point in points:
        others = tuple(flag for flag in point.flags if flag != UNREAD)
        unread = (UNREAD,) if is_unread(point, jobs, unsafe) else ()
        found.append(replace(point, flags=(*others, *unread)))
    return found


def is_unread(
    point: SoloPoint | PairPoint, jobs: frozenset[str], unsafe: Mapping[str, frozenset[int]]
) -> bool:
    """Whether one of these jobs ran at an unsafe count and nobody read its results there."""
    counts = unsafe.get(point.gpu_model, frozenset[int]())
    return any(
        job in jobs and units in counts and results is None for job, units, results in _seats(point)
    )


def _seats(point: SoloPoint | PairPoint) -> list[tuple[str, int | None, str | None]]:
    if isinstance(point, SoloPoint):
        return [(point.job, point.units_granted, point.results)]
    return [(part.job, part.units, part.results) for part in point.parts]
