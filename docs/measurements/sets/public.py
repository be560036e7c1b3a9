"""How near the law of sets comes to tables that others have measured and published.

    python docs/measurements/sets/public.py [--igniter FILE]

Copies: ParvaGPU's table (parvagpu/, MIT, of github.com/MunQ-Lee/ParvaGPU_SC24 at 5f3de1e): one to
five copies of 11 models on an A100 under MPS without limits. Pairs: iGniter's 750 points on a V100,
with limits; FILE is i-Gniter/Profile/tools/gpulet.config of github.com/icloud-ecnu/igniter at
b1ff2ab, which has no licence and is not kept here. Both give rates of jobs alone on parts of the
GPU and no counters, so a job's SM activity is its rate, for each 1 that the GPU does at the job's
best part. Errors are in percent of what was measured; what is fitted is fitted to the other models.
"As it stands" is `advisor.predict.sets`, which has seen neither table.
"""

import argparse
import csv
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.core.records import FILLS_PERCENT
from advisor.predict.sets import MPS, SideBySide

PARTS = 7
"""Of an A100, into which MIG cuts it."""


@dataclass(frozen=True, slots=True)
class Point:
    """What jobs did together, of which the first is judged.

    Attributes:
        models: The judged one first.
        kept: Part that it kept of its rate alone at its limit.
        active: SM activity of each alone at its limit, from rates.
        in_parts: Part that it would keep in equal parts of the GPU, by its rate alone there.
    """

    models: tuple[str, ...]
    kept: float
    active: tuple[float, ...]
    in_parts: float = 1.0


Rule = Callable[[Point], float]


def main() -> None:
    """Print a table for each source."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--igniter", type=Path)
    igniter: Path | None = parser.parse_args().igniter
    copies = {
        "N times one": [untouched],
        "no gain": [no_gain],
        "a loss for each neighbour, fitted": taxes(),
        "soft minimum, two constants, fitted": crowds(),
        "the law as it stands": [crowded(MPS)],
        "an Nth each and the best part, fitted": in_parts(),
    }
    report("ParvaGPU, copies", parvagpu(), copies)
    if igniter:
        limited = {
            "no loss": [untouched],
            "one constant, fitted": taxes(),
            "the law as it stands": [crowded(MPS)],
            "the law, two constants fitted": crowds(),
        }
        report("iGniter, pairs with limits", pairs(igniter), limited)


# rules


def untouched(point: Point) -> float:
    """Nobody loses anything."""
    return 1.0


def no_gain(point: Point) -> float:
    """All together do what one does."""
    return 1 / len(point.models)


def taxes() -> list[Rule]:
    """The same loss for each neighbour."""

    def tax(loss: float) -> Rule:
        return lambda p: 1 / (1 + loss * (len(p.models) - 1))

    return [tax(loss / 200) for loss in range(400)]


def crowds() -> list[Rule]:
    """The law at other constants: for copies the soft minimum of N and c / activity."""
    grid = itertools.product(np.arange(0.8, 1.4, 0.01), np.arange(1.0, 8.1, 0.4))
    return [crowded(replace(MPS, supply=float(c), sharpness=float(k))) for c, k in grid]


def crowded(constants: SideBySide) -> Rule:
    """What the law leaves of what all want together; beside long kernels a small job waits, too."""

    def kept(point: Point) -> float:
        active = np.array(point.active)[:, None]
        fills = np.array(active * 100 >= FILLS_PERCENT) * 1.0
        nothing = np.zeros_like(active)
        return float(constants.kept(active, nothing, fills, nothing)[0, 0])

    return kept


def in_parts() -> list[Rule]:
    """The soft minimum, whose ceiling lies between the GPU's best and what equal parts of it do."""

    def between(constants: SideBySide, weight: float) -> Rule:
        def kept(point: Point) -> float:
            best = 1 / sum(point.active)
            wanted = np.array([[point.in_parts**-weight * best ** (weight - 1)]])
            return float(constants.crowded(wanted, wanted)[0])

        return kept

    grid = itertools.product((0.92, 0.94, 0.96, 0.98, 1.0), (4.0, 6.0, 8.0), (0.5, 0.75, 1.0))
    return [between(replace(MPS, supply=c, sharpness=k), w) for c, k, w in grid]


# tables


def parvagpu() -> list[Point]:
    """Copies on the whole GPU; a copy's rate is the mean of all."""
    found = list[Point]()
    for path in sorted((Path(__file__).parent / "parvagpu").glob("*.csv")):
        rates: dict[int, dict[tuple[int, int], float]] = defaultdict(dict)
        with path.open() as file:
            for part, batch, copies, rate, _ in list(csv.reader(file))[1:]:
                if float(rate):
                    rates[int(batch)][int(part), int(copies)] = float(rate)
        for of_batch in rates.values():
            alone = {part: rate for (part, copies), rate in of_batch.items() if copies == 1}
            for (part, copies), rate in of_batch.items():
                if part == PARTS and copies > 1 and PARTS in alone:
                    found.append(_copies(path.stem, copies, rate, alone))
    return found


def _copies(model: str, copies: int, rate: float, alone: Mapping[int, float]) -> Point:
    whole, best = alone[PARTS], max(rate * PARTS / part for part, rate in alone.items())
    parts = sorted(alone)
    an_nth = np.interp(PARTS / copies, [0, *parts], [0, *(alone[part] for part in parts)])
    return Point((model,) * copies, rate / whole, (whole / best,) * copies, float(an_nth) / whole)


def pairs(igniter: Path) -> list[Point]:
    """Each job of each pair; limits add up to 100 %."""
    profiles: dict[str, dict[str, Any]] = defaultdict(dict)
    for line in igniter.read_text().splitlines():
        for model, readings in json.loads(line).items():
            profiles[model].update(readings)
    found = list[Point]()
    for one, other, batch, other_batch, limit, took_ms, other_ms in profiles["interference"][
        "latency"
    ]:
        of_one = profiles[one]["latency"][str(batch)]
        of_other = profiles[other]["latency"][str(other_batch)]
        active = _active(of_one, limit), _active(of_other, 100 - limit)
        found += [
            Point((one, other), of_one[str(limit)] / took_ms, active),
            Point((other, one), of_other[str(100 - limit)] / other_ms, active[::-1]),
        ]
    return found


def _active(took_ms: Mapping[str, float], limit: int) -> float:
    """Part of the GPU's best that a job does at its limit: limits of 20 % and more are measured."""
    best = max(1 / (float(at) * ms) for at, ms in took_ms.items() if 20 <= float(at) <= 80)
    return 1 / (100 * took_ms[str(limit)]) / best


# errors


def report(title: str, points: Sequence[Point], rules: Mapping[str, Sequence[Rule]]) -> None:
    """Print what each rule errs by, each model left out in turn."""
    models = sorted({point.models[0] for point in points})
    print(f"\n| {title}: {len(points)} points | mean | nine of ten | {' | '.join(models)} |")
    print(f"|---{'|--:' * (len(models) + 2)}|")
    for name, choices in rules.items():
        offs = np.array([[_off(rule, p) for p in points] for rule in choices])
        of_models, every = list[str](), list[float]()
        for model in models:
            free = np.array([model not in point.models for point in points])
            own = np.array([point.models[0] == model for point in points])
            found = offs[int(np.argmin(offs[:, free].sum(axis=1))), own]
            of_models.append(f"{found.mean():.1f}")
            every += found.tolist()
        summary = f"{np.mean(every):.1f} | {np.quantile(every, 0.9):.1f}"
        print(f"| {name} | {summary} | {' | '.join(of_models)} |")


def _off(rule: Rule, point: Point) -> float:
    return 100 * abs(rule(point) / point.kept - 1)


if __name__ == "__main__":
    main()
