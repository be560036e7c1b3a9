"""How well component weights explain the power of jobs that they were not fitted to.

    .venv/bin/python docs/measurements/power/component_fit.py [FILES..]

From the bundled points, those that passed every cross-check; FILES, as `advisor data import` takes
them, have jobs alone on further cards, which nothing is fitted to. By job left out: the weights of
a GPU model are fitted without a job, and expect the power of its windows. Pairs: without both jobs;
their windows have counters of their own, and nothing was fitted to any pair. What is expected above
the power limit is the limit. The bar is 4 % on average.

These jobs also chose the exponent of the clock, so the pairs are the stricter test.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor.core.records import DOUBTFUL, PairPoint, SoloPoint
from advisor.predict.profiles import Floats
from advisor_data.bundled import bundled_pair_points, bundled_solo_points
from advisor_data.files import read_points
from advisor_power import components as activities
from advisor_power.components import (
    MICROBENCHMARK,
    SM_POWER_EXPONENT,
    TERMS,
    ComponentWeights,
    activity_of,
    fit_components,
    fitted_to,
    non_negative_least_squares,
)

BAR_PERCENT = 4.0
EXPONENTS = (0.0, 2.0, 2.5, 3.0)


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
    pairs = [p for p in bundled_pair_points() if DOUBTFUL.isdisjoint(p.flags) and p.power_w]
    pairs = [p for p in pairs if p.mode != "time-sliced"]
    gpu_models = sorted({p.gpu_model for p in solos})
    print("| weights | windows | mean error, % | median | 90 % within | bias |")
    print("| --- | --- | --- | --- | --- | --- |")
    judged = list(by_job(solos))
    pair_errors = list(by_pair(solos, pairs))
    tell("jobs alone", judged)
    for model in gpu_models:
        tell(f"jobs alone, {model}", [j for j in judged if j.point.gpu_model == model])
    for file in files:
        found = list(on_other_card(solos, file))
        if found:
            tell(f"jobs alone, {file.stem}", found)
    benchmarks = list(on_microbenchmarks(solos, files))
    for model in sorted({j.point.gpu_model for j in benchmarks}):
        tell(f"microbenchmarks, {model}", [j for j in benchmarks if j.point.gpu_model == model])
    tell("jobs alone, whole families left out", list(by_job(solos, family)))
    tell("pairs", pair_errors)
    for model in gpu_models:
        tell(f"pairs, {model}", [j for j in pair_errors if j.point.gpu_model == model])
    tell("pairs below 97 % of the limit", [j for j in pair_errors if not is_at_limit(j.point)])
    for exponent in EXPONENTS:
        activities.SM_POWER_EXPONENT = exponent
        tell(f"clock to the power of {exponent:g}: jobs alone", list(by_job(solos)))
        tell(f"clock to the power of {exponent:g}: pairs", list(by_pair(solos, pairs)))
    activities.SM_POWER_EXPONENT = SM_POWER_EXPONENT
    worst(judged)
    for model in gpu_models:
        show_weights(fit_components([p for p in solos if p.gpu_model == model]))


def itself(job: str) -> str:
    """A job is left out by its name."""
    return job


def family(job: str) -> str:
    """Jobs of one network: bert-infer, bert-train-b2 and so on."""
    return job.split("-")[0]


def by_job(solos: Sequence[SoloPoint], key: Callable[[str], str] = itself) -> Iterator[Judged]:
    """Every window of a job alone, by weights that know nothing of the job."""
    for model in sorted({p.gpu_model for p in solos}):
        mine = [p for p in solos if p.gpu_model == model]
        for left_out in sorted({key(p.job) for p in mine}):
            weights = fitted([p for p in mine if key(p.job) != left_out])
            yield from judge(weights, [p for p in mine if key(p.job) == left_out])


def on_other_card(solos: Sequence[SoloPoint], file: Path) -> Iterator[Judged]:
    """Every window of a file, by weights that know neither the card nor the job."""
    there = fitted_to(p for p in read_points(file) if isinstance(p, SoloPoint))
    for model, job in sorted({(p.gpu_model, p.job) for p in there}):
        weights = fitted([p for p in solos if p.gpu_model == model and p.job != job])
        yield from judge(weights, [p for p in there if (p.gpu_model, p.job) == (model, job)])


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


def fitted(points: Sequence[SoloPoint]) -> ComponentWeights:
    """The expected weights alone: nothing here needs the draws, which take most of the time."""
    known = [(p, a) for p in points if (a := activity_of(p)) is not None]
    highest = max(a.clock_mhz for _, a in known)
    terms = np.array([a.terms(highest) for _, a in known])
    watts = np.array([p.power_w or 0.0 for p, _ in known])
    values = non_negative_least_squares(terms / watts[:, None], np.ones(len(known)))
    return ComponentWeights(
        gpu_model=points[0].gpu_model,
        highest_clock_mhz=highest,
        values=values,
        draws=values[None],
        terms=terms,
        counters={},
        jobs=tuple(sorted({p.job for p, _ in known})),
    )


def judge(weights: ComponentWeights, points: Iterable[SoloPoint | PairPoint]) -> Iterator[Judged]:
    """What the weights expect against what was measured."""
    for point in points:
        found = activity_of(point)
        if found is None or not point.power_w:
            continue
        expected = float(found.terms(weights.highest_clock_mhz) @ weights.values)
        limited = min(expected, point.power_limit_w or expected)
        yield Judged(point, limited / point.power_w - 1)


def is_at_limit(point: SoloPoint | PairPoint) -> bool:
    """Whether the power limit may hold it."""
    return (point.power_w or 0) >= 0.97 * (point.power_limit_w or float("inf"))


def tell(name: str, judged: Sequence[Judged]) -> None:
    """One line of the table."""
    errors: Floats = 100 * np.array([j.error for j in judged])
    size = np.abs(errors)
    print(
        f"| {name} | {len(size)} | {size.mean():.2f} | {np.median(size):.2f} | "
        f"{np.quantile(size, 0.9):.1f} | {errors.mean():+.1f} |",
        flush=True,
    )


def worst(judged: Sequence[Judged]) -> None:
    """Jobs that the weights are furthest from."""
    print("\n| job left out | windows | mean error, % | bias |\n| --- | --- | --- | --- |")
    by_name: dict[str, list[float]] = {}
    for one in judged:
        if isinstance(one.point, SoloPoint):
            by_name.setdefault(one.point.job, []).append(100 * one.error)
    sizes = {name: float(np.mean(np.abs(errors))) for name, errors in by_name.items()}
    for name in sorted(sizes, key=lambda job: -sizes[job])[:10]:
        errors = by_name[name]
        print(f"| {name} | {len(errors)} | {sizes[name]:.1f} | {np.mean(errors):+.1f} |")
    within = sum(size <= BAR_PERCENT for size in sizes.values())
    print(f"\n{within} of {len(sizes)} jobs are within {BAR_PERCENT:g} % on average")


def show_weights(weights: ComponentWeights) -> None:
    """Watts of each term at 1, and where nine draws of ten lie."""
    print(f"\n{weights.gpu_model}: {len(weights.terms)} windows of {len(weights.jobs)} jobs")
    low, high = np.percentile(weights.draws, (5, 95), axis=0)
    for name, value, least, most in zip(TERMS, weights.values, low, high, strict=True):
        print(f"  {name:12s} {value:7.0f} W ({least:.0f} to {most:.0f})")


if __name__ == "__main__":
    main()
