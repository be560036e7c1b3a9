"""Whether weights of hardware counters tell what a GPU's power goes to.

    power = floor + leakage * (temperature - 30 C) + memory * time in which it moves data
          + fabric * time in which kernels run
          + (tensor, fp32, integer, warps) * activity * (clock / highest)^2.5

Fitted for each GPU model by non-negative least squares of the relative error.

    .venv/bin/python docs/measurements/power/component_fit.py [FILES..]

Of bundled points that passed every cross-check, each job by weights fitted without it, pairs by
weights without both jobs. FILES, as `advisor data import` takes them, have work of one kind, which
nothing is fitted to. Expected is the power limit at most.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

from advisor.core.records import DOUBTFUL, PairPoint, SoloPoint
from advisor.predict.profiles import Floats
from advisor.validity.points import is_usable, with_solo_flags
from advisor_data.bundled import bundled_pair_points, bundled_solo_points
from advisor_data.files import read_points

EXPONENT = 2.5  # of 0, 2, 2.5 and 3 jobs alone are nearest to this one
MICROBENCHMARK = "component-"  # begins the names of jobs that keep one part busy
SM_CLASSES = {
    "tensor": "tensor_active_percent",
    "fp32": "fp32_active_percent",
    "integer": "integer_active_percent",
    "warps": "sm_active_percent",
}


@dataclass(frozen=True, slots=True)
class Weights:
    """Watts of each term at 1, of one GPU model."""

    highest_clock_mhz: float
    values: Floats


def fitted_to(points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """Those with a power that passed every cross-check, no microbenchmark among them."""
    trusted = [p for p in with_solo_flags(points) if is_usable(p) and DOUBTFUL.isdisjoint(p.flags)]
    return [p for p in trusted if not p.job.startswith(MICROBENCHMARK)]


def terms(point: SoloPoint | PairPoint, highest_mhz: float) -> list[float] | None:
    """What weights are multiplied with; None: a reading is missing."""
    counters = [getattr(point, name) for name in (*SM_CLASSES.values(), "dram_active_percent")]
    clock_mhz, heat_c = point.sm_clock_mhz, point.temperature_c
    if None in counters or not clock_mhz or heat_c is None:
        return None
    alone = isinstance(point, SoloPoint)
    given = [point.units_granted] if alone else [p.units for p in point.parts]
    capped = None not in given and getattr(point, "mode", "") != "uncapped"
    units = max(1, sum(u or 0 for u in given))
    part = min(1.0, units / point.units_total) if capped and point.units_total else 1.0
    slower, (*classes, dram) = (clock_mhz / highest_mhz) ** EXPONENT, (v / 100 for v in counters)
    awake = min(1.0, classes[-1] / part)
    return [1.0, max(0.0, heat_c - 30.0) / 100, *(c * slower for c in classes), awake, dram]


@dataclass(frozen=True, slots=True)
class Judged:
    """One window that the weights had not seen, and the relative error of its total."""

    point: SoloPoint | PairPoint
    error: float


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Totals by component weights.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILES")
    files = parser.parse_args().files
    solos = fitted_to(bundled_solo_points())
    right = [p for p in bundled_pair_points() if DOUBTFUL.isdisjoint(p.flags) and p.power_w]
    pairs = [p for p in right if p.mode != "time-sliced"]
    print(
        "| weights | windows | mean error, % | median | 90 % within | bias |\n" + 6 * "| --- " + "|"
    )
    benchmarks = list(on_microbenchmarks(solos, files))
    for name, judged in (
        ("jobs alone", [*by_job(solos)]),
        ("microbenchmarks", benchmarks),
        ("pairs", [*by_pair(solos, pairs)]),
    ):
        if judged is not benchmarks:
            tell(name, judged)
        for model in sorted({j.point.gpu_model for j in judged}):
            tell(f"{name}, {model}", [j for j in judged if j.point.gpu_model == model])
    kinds(benchmarks)


def by_job(solos: Sequence[SoloPoint]) -> Iterator[Judged]:
    """Every window of a job alone, by weights without the job."""
    for model in sorted({p.gpu_model for p in solos}):
        mine = [p for p in solos if p.gpu_model == model]
        for left_out in sorted({p.job for p in mine}):
            weights = fitted([p for p in mine if p.job != left_out])
            yield from judge(weights, [p for p in mine if p.job == left_out])


def on_microbenchmarks(solos: Sequence[SoloPoint], files: Sequence[Path]) -> Iterator[Judged]:
    """Every window of a kind of work of its own, by the weights that are used: none is in them."""
    there = [p for file in files for p in read_points(file) if isinstance(p, SoloPoint)]
    benchmarks = [p for p in there if p.job.startswith(MICROBENCHMARK)]
    for model in sorted({p.gpu_model for p in benchmarks}):
        weights = fitted([p for p in solos if p.gpu_model == model])
        yield from judge(weights, [p for p in benchmarks if p.gpu_model == model])


def by_pair(solos: Sequence[SoloPoint], pairs: Sequence[PairPoint]) -> Iterator[Judged]:
    """Every window of a pair, by weights that know nothing of both jobs."""
    for model in sorted({p.gpu_model for p in solos}):
        theirs = [p for p in pairs if p.gpu_model == model]
        for jobs in sorted({p.jobs for p in theirs}):
            weights = fitted([p for p in solos if p.gpu_model == model and p.job not in jobs])
            yield from judge(weights, [p for p in theirs if p.jobs == jobs])


def fitted(points: Sequence[SoloPoint]) -> Weights:
    """Weights of one GPU model, none negative, with the least relative error."""
    highest = max(p.sm_clock_mhz or 0.0 for p in points if terms(p, 1.0))
    read = [(p.power_w, terms(p, highest)) for p in points]
    rows = [np.array(found) / power_w for power_w, found in read if power_w and found]
    summed: Any = LinearRegression(fit_intercept=False, positive=True)
    return Weights(highest, summed.fit(np.vstack(rows), np.ones(len(rows))).coef_)


def judge(weights: Weights, points: Iterable[SoloPoint | PairPoint]) -> Iterator[Judged]:
    """What the weights expect against what was measured."""
    for point in points:
        found = terms(point, weights.highest_clock_mhz)
        if found is None or not point.power_w:
            continue
        expected = float(np.array(found) @ weights.values)
        limited = min(expected, point.power_limit_w or expected)
        yield Judged(point, limited / point.power_w - 1)


def kinds(judged: Sequence[Judged]) -> None:
    """What the weights expect of each kind of work too much or too little."""
    by_kind: dict[str, dict[str, list[float]]] = {}
    for one in judged:
        if isinstance(one.point, SoloPoint):
            of_models = by_kind.setdefault(one.point.job.removeprefix(MICROBENCHMARK), {})
            of_models.setdefault(one.point.gpu_model, []).append(100 * one.error)
    models = sorted({model for of_models in by_kind.values() for model in of_models})
    print("\n| work of one kind |", "".join(f" {model}, % |" for model in models))
    print("| --- " * (len(models) + 1) + "|")
    for kind, of_models in sorted(by_kind.items()):
        print(f"| {kind} |", "".join(f" {np.mean(of_models[m]):+.0f} |" for m in models))


def tell(name: str, judged: Sequence[Judged]) -> None:
    """One line of the table."""
    errors: Floats = 100 * np.array([j.error for j in judged])
    size = np.abs(errors)
    most, bias = f"{np.quantile(size, 0.9):.1f}", f"{errors.mean():+.1f}"
    print(f"| {name} | {len(size)} | {size.mean():.2f} | {np.median(size):.2f} | {most} | {bias} |")


if __name__ == "__main__":
    main()
