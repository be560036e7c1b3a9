"""Prints what measured windows of a pair are worth for the next answer about that pair.

    .venv/bin/python docs/measurements/model/measured_pairs.py

Every bundled pair is predicted by a model that has not seen one of its jobs. Then its windows are
taken in an order drawn by chance: the error of each is the one before it is known, with 0, 1 or 3
of the windows before it given to `advisor.predict.measured`. Windows of a pair on one card are at
different splits, so this is the error at splits that were not measured; windows of a pair at the
same split on another card are listed by themselves. Jobs that serve a demand are left out of the
speeds. Bounds hold 90 % of all errors before anything is known. Intervals are bootstraps over the
left-out jobs.
"""

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.core.interval import Interval
from advisor.core.split import UNCAPPED, Split
from advisor.predict.measured import MeasuredPredictor
from advisor.predict.predictions import PredictedPart, Prediction
from advisor.predict.profiles import Profile
from advisor.predict.windows import Window
from advisor_training.held_out import HeldOut, leave_one_job_out
from advisor_training.learners import LEARNERS
from advisor_training.points import read_measured
from advisor_training.rows import Data, make_data

KNOWN = (0, 1, 3)
QUANTITIES = ("speeds", "power below the limit", "power at the limit")


@dataclass(frozen=True)
class Tested:
    """One window of a pair, and what a model that had not seen one of its jobs expects."""

    left_out: str
    pair: tuple[str, str, str]
    profiles: tuple[Profile, Profile]
    window: Window
    expected: Prediction


@dataclass(frozen=True)
class Error:
    """Logarithm of measured over expected, and whether the bounds held it."""

    left_out: str
    log: float
    held: bool


def main() -> None:
    """Print both tables."""
    measured = read_measured(None, None, with_bundled=False)
    data = make_data(measured.pairs, measured.profiled, measured.references, measured.left_out)
    held_out = leave_one_job_out(data.rows, next(iter(LEARNERS.values())))
    tested = list(tested_of(data, held_out))
    random.Random(1).shuffle(tested)
    print(f"{len(data.rows)} windows of pairs, asked for each of its jobs left out")
    for where in ("other splits, same card", "same split, other card"):
        print(f"\n{where}\n\n| | windows known | n | mean abs. error % | median | held % |")
        print("|---|--:|--:|--:|--:|--:|")
        errors = errors_of(tested, where)
        for (quantity, known), found in sorted(errors.items()):
            row = " | ".join(figures(found))
            print(f"| {quantity} | {known} | {len(found)} | {row} |")


class Answers:
    """A predictor that says what a model said of one pair."""

    def __init__(self, tested: Sequence[Tested]) -> None:
        known = [one.expected for one in tested]
        # Of a job beside itself the mirror image is asked for, too.
        turned = [replace(p, split=p.split.turned(), parts=p.parts[::-1]) for p in known]
        self._by_split = {p.split: p for p in (*turned, *known)}

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[Prediction]:
        return [self._by_split[split] for split in splits]


def errors_of(tested: Sequence[Tested], where: str) -> dict[tuple[str, int], list[Error]]:
    """By quantity and number of windows that were known."""
    groups: defaultdict[tuple[object, ...], list[Tested]] = defaultdict(list)
    for one in tested:
        card = (one.window.gpu_uuid,) if "same card" in where else (one.window.split,)
        groups[one.left_out, one.pair, *card].append(one)
    errors: defaultdict[tuple[str, int], list[Error]] = defaultdict(list)
    for group in groups.values():
        if "same card" not in where:
            group = list({one.window.gpu_uuid: one for one in group}.values())
        for n, one in enumerate(group):
            for known in KNOWN:
                # The same questions at each count: only those that have so many before them.
                if n >= max(KNOWN) or ("same card" not in where and n >= known):
                    before = [other.window for other in group[n - known : n]]
                    for quantity, error in asked(one, group, before):
                        errors[quantity, known].append(error)
    return errors


def asked(
    one: Tested, group: Sequence[Tested], before: Sequence[Window]
) -> Iterator[tuple[str, Error]]:
    """The errors of one window, with others known."""
    predictor = MeasuredPredictor(Answers(group), {one.pair[:2]: before}, one.window.gpu_uuid)
    (found,) = predictor.predict(one.profiles, [one.window.split])
    for profile, part, rate in zip(one.profiles, found.parts, one.window.rates, strict=True):
        is_served = profile.serving is not None and profile.serving.offered_rate is not None
        if profile.job == one.left_out and rate and not is_served:
            yield "speeds", error(one.left_out, rate / part.solo_rate, part.speed)
    if one.window.power_w:
        limit = (one.profiles[0].power_limit_w or math.inf) * 0.97
        where = "at" if one.expected.power_w.value >= limit else "below"
        yield f"power {where} the limit", error(one.left_out, one.window.power_w, found.power_w)
        if found.efficiency and all(one.window.rates):
            yield "energy", error(one.left_out, efficiency(one), found.efficiency)


def efficiency(one: Tested) -> float:
    """Energy one after the other for each one that the window took for the same work."""
    of_jobs = zip(one.expected.parts, one.window.rates, strict=True)
    apart = sum((rate or 0) / part.solo_rate * part.solo_power_w for part, rate in of_jobs)
    return apart / (one.window.power_w or math.inf)


def error(left_out: str, measured: float, expected: Interval) -> Error:
    """Of one value."""
    held = expected.low <= measured <= expected.high
    return Error(left_out, math.log(measured / expected.value), held)


def figures(errors: Sequence[Error]) -> tuple[str, str, str]:
    """Mean with its interval, median, and how many were held."""
    by_job: defaultdict[str, list[float]] = defaultdict(list)
    for one in errors:
        by_job[one.left_out].append(100 * abs(one.log))
    draw = random.Random(1)
    means = sorted(
        statistics.mean(
            [x for job in draw.choices(list(by_job), k=len(by_job)) for x in by_job[job]]
        )
        for _ in range(400)
    )
    every = [x for of_job in by_job.values() for x in of_job]
    mean = f"{statistics.mean(every):.1f} [{means[20]:.1f} {means[-21]:.1f}]"
    held = f"{100 * statistics.mean(one.held for one in errors):.0f}"
    return mean, f"{statistics.median(every):.1f}", held


def tested_of(data: Data, held_out: HeldOut) -> Iterator[Tested]:
    """Each row with what was expected of it, with bounds from the errors of other jobs."""
    rows = data.rows
    row = held_out.row
    speeds = np.stack([rows.speed_a[row], rows.speed_b[row]], axis=1)
    logs = np.log(np.maximum(speeds, 0.02) / held_out.speed)
    power_logs = np.log(rows.power_w[row] / held_out.power_w)
    uncapped = rows.kind[row] == "uncapped"
    at_limit = held_out.power_w >= 0.97 * rows.power_limit_w[row]

    def bound(errors: Any, mask: Any) -> float:
        return float(np.quantile(np.abs(errors[mask]), 0.9))

    of_speeds = {kind: bound(logs, uncapped == kind) for kind in (False, True)}
    of_power = {
        (kind, limit): bound(power_logs, (uncapped == kind) & (at_limit == limit))
        for kind in (False, True)
        for limit in (False, True)
    }
    apart_w = np.stack([rows.profile_power_a_w[row], rows.profile_power_b_w[row]], axis=1)
    found, expected_w = ((x * apart_w).sum(axis=1) for x in (speeds, held_out.speed))
    energy_logs = np.log(np.maximum(found, 1) / rows.power_w[row] * held_out.power_w / expected_w)
    of_energy = {kind: bound(energy_logs, uncapped == kind) for kind in (False, True)}
    for k, r in enumerate(row.tolist()):
        measurement = data.measurements[rows.measurement[r]]
        jobs = (str(rows.job_a[r]), str(rows.job_b[r]))
        gpu_model = str(rows.gpu_model[r])
        profiles = (data.profiles[jobs[0], gpu_model], data.profiles[jobs[1], gpu_model])
        kind = bool(uncapped[k])
        split = UNCAPPED if kind else Split((float(rows.share_a[r]), float(rows.share_b[r])))
        solo = (float(rows.solo_rate_a[r]), float(rows.solo_rate_b[r]))
        parts = tuple(
            PredictedPart(around(speed, of_speeds[kind]), rate, profile.whole_gpu_power_w)
            for speed, rate, profile in zip(held_out.speed[k].tolist(), solo, profiles, strict=True)
        )
        expected = Prediction(
            split=split,
            parts=parts,
            power_w=around(float(held_out.power_w[k]), of_power[kind, bool(at_limit[k])]),
            efficiency_factors=(math.exp(-of_energy[kind]), math.exp(of_energy[kind])),
        )
        rates = tuple(s * rate for s, rate in zip(speeds[k].tolist(), solo, strict=True))
        window = Window(split, rates, float(rows.power_w[r]), measurement.gpu_uuid)
        pair = (*jobs, gpu_model)
        yield Tested(str(held_out.left_out[k]), pair, profiles, window, expected)


def around(value: float, log: float) -> Interval:
    """A value with bounds as far above as below, as logarithms."""
    return Interval(value, value * math.exp(-log), value * math.exp(log))


if __name__ == "__main__":
    main()
