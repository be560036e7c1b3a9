"""How good the model of power by data is, on files that `advisor power input` kept.

    .venv/bin/python docs/measurements/power/input_model.py FILE.jsonl [..] [--without-signs]

Each pattern of data left out on the first card; then every other card, of which two points of each
type are known. In square brackets is what holds 95 % of the means when other patterns are drawn. No
GPU is needed.
"""

import argparse
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from advisor.core.gpu import CARD_UNITS
from advisor.core.telemetry import NEAR_LIMIT
from advisor.errors import InputError
from advisor.formats.typed_json import parse
from advisor.predict.profiles import Floats
from advisor.wire.input_power import InputPoint
from advisor_power.data.result import InputPower, read_kept
from advisor_power.data.training import (
    METHODS,
    FittedPower,
    Points,
    RelativeErrors,
    errors_of,
    group_left_out,
    learnable,
    noise_floor,
    physics,
    physics_and_trees,
    points_of,
    real_left_out,
    relative_errors,
)

LEAST_SPREAD = 0.05
"""Of calibration points, as a part of their mean: nearer ones tell no offset from a factor."""


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--without-signs", action="store_true", help="as before they were counted")
    options = parser.parse_args()
    read = without_signs if options.without_signs else read_kept
    results = [result for file in options.files for result in read(file)]
    points, unused = points_of(results)
    for why, count in unused.items():
        print(f"left out {count}: {why}")
    kept, left_out = learnable(points)
    print(f"{len(kept)} points of {kept[0].gpu_model}, each pattern of data left out; {left_out}")
    for name, found in group_left_out([p for p in kept if not p.real], METHODS).items():
        errors = errors_of(found)
        print(
            f"  {name:<12} power {_text(errors.get('power'))}  speed {_text(errors.get('speed'))}"
            f"  all, at the measured speed {_text(errors.get('energy'))}"
        )
    print(f"  repeated reference: {100 * (noise_floor(kept) or 0):.2f} %")
    _whole_gpu(kept)
    if any(p.real for p in kept):
        print("  tensors of files, learned from drawn numbers:")
        for name, errors in real_left_out(kept).items():
            print(f"  {name:<12} power {_text(errors.get('power'))}")
    for gpu_uuid in sorted({p.gpu_uuid for p in points} - {p.gpu_uuid for p in kept}):
        _other(gpu_uuid, [*kept, *_of_known_types(points, kept, gpu_uuid)])


def without_signs(file: Path) -> list[InputPower]:
    """Results with no sign in any fingerprint: also those of before, of tensors that are gone."""
    found: list[InputPower] = []
    for line in file.read_text().splitlines():
        plain = json.loads(line)
        if prints := plain["fingerprint"]:
            plain["fingerprint"] = prints | {"product_signs": 0.0}
            for side in ("a", "b"):
                plain["fingerprint"][side] = prints[side] | {"signs": 0.0}
        found.append(parse(InputPower, json.dumps(plain).encode()))
    return found


def _whole_gpu(points: tuple[InputPoint, ...]) -> None:
    """What the limit of the card and the data let expect, no measured power, on the whole GPU."""
    # Nothing is told of what held the clock back, so that all is expected at the limit of the card.
    untold = [replace(p, at_limit=False, throttled=False) for p in points if not p.real]
    found = group_left_out(untold, {"model": physics_and_trees})["model"]
    power_w = np.array([p.power_w for p in found.points])
    rates = np.array([p.flop_per_s for p in found.points])
    limits_w = np.array([p.power_limit_w or math.inf for p in found.points])
    whole = np.array([p.units == CARD_UNITS.get(p.gpu_model) for p in found.points])
    near = power_w >= NEAR_LIMIT * limits_w
    for name, which in (("at the limit", whole & near), ("below it", whole & ~near)):
        if which.any():
            power = _text(relative_errors(found.power_w[which], power_w[which]))
            speed = _text(relative_errors(found.flop_per_s[which], rates[which]))
            print(f"  whole GPU, {name}, by its data alone: power {power}  speed {speed}")


def _of_known_types(
    points: tuple[InputPoint, ...], kept: tuple[InputPoint, ...], gpu_uuid: str
) -> list[InputPoint]:
    known = {p.dtype for p in kept}
    return [p for p in points if p.gpu_uuid == gpu_uuid and p.dtype in known]


def _other(gpu_uuid: str, points: list[InputPoint]) -> None:
    try:
        found: Mapping[str, RelativeErrors] = other_card(points, gpu_uuid)
    except InputError as error:
        print(f"{gpu_uuid}: {error}")
        return
    there = [p for p in points if p.gpu_uuid == gpu_uuid]
    real = sum(p.real for p in there)
    print(f"{there[0].gpu_model}, {gpu_uuid}: {real} of {len(there)} points are tensors of files;")
    print("  power at the speed that was measured, two points of each type known:")
    for name, errors in found.items():
        print(f"  {name:<12} {_text(errors)}")


def other_card(points: Points, gpu_uuid: str) -> dict[str, RelativeErrors]:
    """Each method, learned from all other cards, on one of which it knows two points of each type.

    At the rate and the clock that were measured there.

    Raises:
        InputError: there is no other card, or nothing left to test on.
    """
    there = [p for p in points if p.gpu_uuid == gpu_uuid]
    elsewhere = [p for p in points if p.gpu_uuid != gpu_uuid]
    if not there or not elsewhere:
        raise InputError(f"points of {gpu_uuid} and of another card are needed")
    # The same two for all, so that methods are told the same.
    known = calibration_points(physics(elsewhere), there)
    tested = [p for p in there if not any(p is one for one in known)]
    return {
        name: relative_errors(
            carried_over(learner(elsewhere), known)(tested),
            np.array([p.power_w for p in tested]),
        )
        for name, learner in METHODS.items()
    }


def carried_over(fitted: FittedPower, known: Points) -> FittedPower:
    """What was learned on one card, for another one of which a few points are known.

    Power above idle is taken times a factor and moved, for each type by its points there; where
    they lie too close, by a factor alone. Types without a point stay as they are.
    """
    by_dtype: dict[str, tuple[float, float]] = {}
    for dtype in sorted({p.dtype for p in known}):
        of = _of_type(known, dtype)
        expected = fitted(of) - np.array([p.idle_w for p in of])
        by_dtype[dtype] = _line(expected, np.array([p.power_w - p.idle_w for p in of]))

    def predict(points: Points) -> Floats:
        idle_w = np.array([p.idle_w for p in points])
        lines = np.array([by_dtype.get(p.dtype, (1.0, 0.0)) for p in points]).reshape(-1, 2)
        return idle_w + np.maximum(lines[:, 0] * (fitted(points) - idle_w) + lines[:, 1], 0)

    return predict


def calibration_points(fitted: FittedPower, candidates: Points) -> tuple[InputPoint, ...]:
    """Two points of each type: the usual random numbers, and the lowest expected power above idle.

    Of a type without a reference the highest. The reference is what anybody measures first, and
    what was learned best; the highest expected power is that of the pattern that is known least.
    """
    chosen: list[InputPoint] = []
    for dtype in sorted({p.dtype for p in candidates}):
        of = _of_type(candidates, dtype)
        above = (fitted(of) - np.array([p.idle_w for p in of])).tolist()
        usual = [i for i, p in enumerate(of) if p.is_reference]
        low, high = above.index(min(above)), usual[0] if usual else above.index(max(above))
        chosen += [of[i] for i in dict.fromkeys((low, high))]
    return tuple(chosen)


def _line(expected: Floats, measured: Floats) -> tuple[float, float]:
    """Factor and offset that bring the expected to the measured."""
    factor = float(measured.mean() / expected.mean())
    if np.ptp(expected) < LEAST_SPREAD * expected.mean():
        return factor, 0.0
    slope, offset = np.polyfit(expected, measured, 1)
    return (float(slope), float(offset)) if slope > 0 else (factor, 0.0)


def _of_type(points: Points, dtype: str) -> list[InputPoint]:
    return [p for p in points if p.dtype == dtype]


def _text(errors: RelativeErrors | None) -> str:
    if errors is None:
        return "-"
    return f"{errors.mean:.2%} (p90 {errors.p90:.2%}, {errors.points} points)"


if __name__ == "__main__":
    main()
