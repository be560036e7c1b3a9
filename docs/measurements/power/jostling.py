"""At the power limit, who lowers the clock? C3 and C5 of CompPow, from the bundled pairs.

    .venv/bin/python docs/measurements/power/jostling.py [FILES...]

FILES are points of jobs alone and of pairs (.jsonl, .csv, .parquet), beside the bundled ones.

1. How well the weights tell the clock of pairs at the limit, whose jobs they were not fitted to:
   from the pair's own counters, and from both jobs alone and the rates that they keep, which is
   what `advisor power components A B --splits` has of pairs that were not measured (there the rates
   are predicted; here they are the measured ones).
2. C3: beside the same tensor job at the same SMs, does the partner's load of the memory lower the
   clock? Confirmed: slope below 0 by over 4 standard errors, which allow for windows of one pair
   being alike. Refuted: not below 0. The claim asks for one partner in five steps; here partners
   are other jobs, so that their tensor and FP32 loads are taken out by the same regression.
3. C5: does moving SMs move watts? Pairs of a compute job and a memory job that reach the limit at
   50/50: the sum of speeds at the best measured split over the one at 50/50. Confirmed: by 3 % or
   more in half of them, and the clock is higher there. Refuted: in under a quarter.
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from advisor.core.flags import DOUBTFUL
from advisor.core.records import PairPoint, SoloPoint
from advisor.core.telemetry import NEAR_LIMIT
from advisor.predict.profiles import Floats
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.files import read_points
from advisor_power.components.activity import activity_of
from advisor_power.components.together import at_once, at_power, at_work, clocks_mhz
from advisor_power.components.weights import ComponentWeights, fit_components, trusted

STANDARD_ERRORS = 4.0
TENSOR_PERCENT = 20.0
"""A tensor job has its tensor cores busy for so long alone on the whole GPU."""
MEMORY_PERCENT = 50.0
"""A memory job has the memory busy with data for so long."""
MORE = 0.03
FEWEST_SPLITS = 5

_Key = tuple[str, str, int | None]


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair point, and both jobs alone at the same SMs."""

    point: PairPoint
    alone: tuple[SoloPoint, SoloPoint]


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILES")
    read = [p for file in parser.parse_args().files for p in read_points(file)]
    solos = trusted([*bundled_solo_points(), *(p for p in read if isinstance(p, SoloPoint))])
    every = [*bundled_pair_points(), *(p for p in read if isinstance(p, PairPoint))]
    points = [p for p in every if DOUBTFUL.isdisjoint(p.flags) and p.power_w]
    pairs = list(with_jobs_alone(points, solos))
    limited = [p for p in pairs if at_limit(p.point)]
    print(
        f"{len(limited)} of {len(pairs)} windows of pairs at {NEAR_LIMIT:.0%} of the limit or more"
    )
    clocks(limited, solos)
    on_mps = [p for p in limited if p.point.mode == "mps"]
    slopes("all", on_mps, solos)
    moving("all", points, solos)
    for model in sorted({p.gpu_model for p in points}):
        slopes(model, [p for p in on_mps if p.point.gpu_model == model], solos)
        moving(model, [p for p in points if p.gpu_model == model], solos)


def with_jobs_alone(points: Sequence[PairPoint], solos: Sequence[SoloPoint]) -> Iterator[Pair]:
    """Pairs of which both jobs were measured alone at the SMs that they have in the pair."""
    newest: dict[_Key, SoloPoint] = {}
    for solo in sorted(solos, key=lambda p: p.started_at):
        newest[solo.gpu_model, solo.job, solo.units_granted] = solo
    for point in points:
        if point.mode == "time-sliced":
            continue
        whole = point.units_total if point.mode == "uncapped" else None
        keys = [(point.gpu_model, part.job, whole or part.units) for part in point.parts]
        if all(key in newest for key in keys):
            yield Pair(point, (newest[keys[0]], newest[keys[1]]))


def clocks(pairs: Sequence[Pair], solos: Sequence[SoloPoint]) -> None:
    """Measured clocks against those by weights that know neither job."""
    own: list[float] = []
    alone: list[float] = []
    measured: list[float] = []
    known: dict[tuple[str, tuple[str, ...]], ComponentWeights] = {}
    for pair in pairs:
        point = pair.point
        key = (point.gpu_model, point.jobs)
        if key not in known:
            known[key] = fit_components(
                p for p in solos if p.gpu_model == key[0] and p.job not in key[1]
            )
        weights, found = known[key], activity_of(point)
        if found is None or point.sm_clock_mhz is None:
            continue
        rows = weights.values[None]
        own.append(float(clocks_mhz(weights, found, point.power_limit_w or 0.0, rows)[0]))
        alone.append(from_jobs_alone(weights, pair))
        measured.append(point.sm_clock_mhz)
    for name, said in (("the pair's own counters", own), ("both jobs alone", alone)):
        errors = np.array(said) - np.array(measured)
        r = np.corrcoef(said, measured)[0, 1]
        print(
            f"clock from {name}: off by {np.abs(errors).mean():.0f} MHz on average, 80 % within "
            f"{np.quantile(np.abs(errors), 0.8):.0f}, bias {errors.mean():+.0f}, r {r:.2f}; "
            f"measured ones have a standard deviation of {np.std(measured):.0f} MHz"
        )


def from_jobs_alone(weights: ComponentWeights, pair: Pair) -> float:
    """The clock by what both jobs do alone, and the rates that they keep beside each other."""
    doing = [
        at_work(found, (part.rate or 0.0) / solo.rate, weights.highest_clock_mhz)
        for solo, part in zip(pair.alone, pair.point.parts, strict=True)
        if (found := activity_of(solo)) is not None
    ]
    return at_power(at_once(doing), weights, pair.point.power_w or 0.0).clock_mhz


def slopes(on: str, pairs: Sequence[Pair], solos: Sequence[SoloPoint]) -> None:
    """C3: the clock against the partner's loads, beside the same tensor job at the same SMs."""
    tensor = {
        (p.gpu_model, p.job)
        for p in solos
        if p.share_percent == 100 and (p.tensor_active_percent or 0) >= TENSOR_PERCENT
    }
    groups: dict[_Key, list[tuple[list[float], float, str]]] = {}
    for pair in pairs:
        for job, partner in (pair.alone, pair.alone[::-1]):
            if (job.gpu_model, job.job) in tensor:
                loads = [
                    partner.dram_active_percent or 0.0,
                    partner.tensor_active_percent or 0.0,
                    partner.fp32_active_percent or 0.0,
                ]
                key = (job.gpu_model, job.job, job.units_granted)
                alike = " ".join(pair.point.jobs)
                groups.setdefault(key, []).append((loads, pair.point.sm_clock_mhz or 0.0, alike))
    several = [found for found in groups.values() if len(found) > 1]
    if not several:
        print(f"\nC3, {on}: no tensor job with several partners at the limit: open")
        return
    loads = np.concatenate([demeaned(np.array([x for x, _, _ in found])) for found in several])
    clock = np.concatenate([demeaned(np.array([[y] for _, y, _ in found])) for found in several])[
        :, 0
    ]
    names = np.array([alike for found in several for _, _, alike in found])
    slope = np.linalg.lstsq(loads, clock, rcond=None)[0]
    errors = clustered_errors(loads, clock - loads @ slope, names)
    print(
        f"\nC3, {on}: {len(clock)} windows at the limit beside {len(several)} tensor jobs at "
        "given SMs"
    )
    for name, value, error in zip(("memory", "tensor", "FP32"), slope, errors, strict=True):
        print(f"  partner's {name}: {value:+.1f} MHz for each percent, standard error {error:.1f}")
    verdict = "open"
    if slope[0] < -STANDARD_ERRORS * errors[0]:
        verdict = "confirmed"
    elif slope[0] >= 0:
        verdict = "refuted"
    print(f"C3, the partner's load of the memory lowers the clock: {verdict}")


def clustered_errors(loads: Floats, left: Floats, names: npt.NDArray[np.str_]) -> Floats:
    """Standard errors of slopes where windows of one name are alike (Liang and Zeger, 1986)."""
    inverse = np.linalg.inv(loads.T @ loads)
    sums = np.array([loads[names == name].T @ left[names == name] for name in sorted(set(names))])
    clusters = len(sums)
    return np.sqrt(clusters / (clusters - 1) * np.diag(inverse @ (sums.T @ sums) @ inverse))


def demeaned(values: Floats) -> Floats:
    """Less the mean of each column."""
    return values - values.mean(axis=0)


def moving(on: str, points: Sequence[PairPoint], solos: Sequence[SoloPoint]) -> None:
    """C5: the best measured split against 50/50."""
    of_class = {
        (p.gpu_model, p.job): (p.dram_active_percent or 0) >= MEMORY_PERCENT
        for p in solos
        if p.share_percent == 100 and (p.sm_active_percent or 0) >= MEMORY_PERCENT
    }
    rates: dict[tuple[str, str], list[float]] = {}
    for p in (*solos, *bundled_reference_points()):
        if p.share_percent == 100:
            rates.setdefault((p.gpu_model, p.job), []).append(p.rate)
    groups: dict[tuple[str, str, tuple[str, ...]], list[PairPoint]] = {}
    for point in points:
        kinds = {of_class.get((point.gpu_model, job)) for job in point.jobs}
        if point.mode == "mps" and kinds == {True, False}:
            groups.setdefault((point.run, point.gpu_uuid, point.jobs), []).append(point)
    gains: list[tuple[float, float]] = []
    for found in groups.values():
        even = [p for p in found if p.shares_percent == (50.0, 50.0)]
        if len(found) >= FEWEST_SPLITS and even and at_limit(even[0]):
            best = max(found, key=lambda p: speeds(p, rates))
            rise = (best.sm_clock_mhz or 0) - (even[0].sm_clock_mhz or 0)
            gains.append((speeds(best, rates) / speeds(even[0], rates) - 1, rise))
    if not gains:
        print(f"\nC5, {on}: no such pair at the limit at 50/50: open")
        return
    both = sum(gain >= MORE and rise > 0 for gain, rise in gains)
    more = sum(gain >= MORE for gain, _ in gains)
    gain = 100 * statistics.median(gain for gain, _ in gains)
    rise = statistics.median(rise for _, rise in gains)
    print(
        f"\nC5, {on}: {len(gains)} measurements of compute beside memory, at the limit at 50/50, "
        f"of {FEWEST_SPLITS} splits or more: the best does {gain:.1f} % more in the median, "
        f"its clock is {rise:+.0f} MHz; {more} do {MORE:.0%} more, {both} of them at a higher clock"
    )
    verdict = "open"
    if 2 * both >= len(gains):
        verdict = "confirmed"
    elif 4 * both < len(gains):
        verdict = "refuted"
    print(f"C5, moving SMs moves watts: {verdict}")


def speeds(point: PairPoint, rates: dict[tuple[str, str], list[float]]) -> float:
    """Sum of both relative speeds, to the median rate alone on the GPU model."""
    return sum(
        (part.rate or 0.0) / statistics.median(rates[point.gpu_model, part.job])
        for part in point.parts
    )


def at_limit(point: PairPoint) -> bool:
    """Whether the power limit holds it: what held a clock back further below is not told."""
    return (point.power_w or 0.0) >= NEAR_LIMIT * (point.power_limit_w or math.inf)


if __name__ == "__main__":
    main()
