"""Writes what is recommended for all pairs of bundled profiles, to compare two versions.

    .venv/bin/python docs/measurements/recommendations.py --write before.json
    .venv/bin/python docs/measurements/recommendations.py --against before.json

The second one prints each recommendation that differs by more than rounding, and how many were
compared: the choice, how many limits each candidate breaks, and all values of all candidates with
their intervals. Sentences are counted apart, since words may change where nothing else does. Each
takes a few minutes. `--points` and `--model` take solo points and a model of another version. With
`--summary` it prints how many choose something else, and how far values are apart, as of a model
that was trained again nearly all are.
"""

import argparse
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.decide.recommendation import RatedSplit, Request

from advisor.core.objectives import OBJECTIVES
from advisor.core.records import SoloPoint
from advisor.errors import NoSplitError
from advisor.predict.profiles import make_profiles
from advisor.settings import read_settings
from advisor_advice.answers import answer
from advisor_advice.conditions import KnownJobs
from advisor_advice.profiles import ProfileSet, checked_on
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import read_points
from advisor_models.registry import Registry

ROUNDING = 1e-12
"""Relative difference of two numbers that is none."""

QUANTILES = (0.5, 0.9, 0.99, 1.0)

REQUESTS = {
    "default": Request(),
    "fine": Request(fine=True),
    "throughput": Request(objective="throughput", default_min_speed=0),
}


def main() -> None:
    """Write a file, or print a table of differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--points", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    found = dict(recommendations(options.points, options.model))
    if options.write:
        options.write.write_text(json.dumps(found))
    if options.against:
        before = json.loads(options.against.read_text())
        (summarise if options.summary else show)(before, found)


def show(before: dict[str, Any], found: dict[str, Any]) -> None:
    """Every difference but rounding."""
    keys = sorted(found.keys() | before.keys())
    differing = [key for key in keys if differs(found, before, key, "advice")]
    for key in differing:
        print(f"{key}\n  before: {before.get(key)}\n  now:    {found.get(key)}")
    print(f"{len(differing)} of {len(keys)} recommendations differ")
    words = sum(differs(found, before, key, "sentences") for key in keys)
    print(f"{words} of {len(keys)} say something in other words")


def summarise(before: dict[str, Any], found: dict[str, Any]) -> None:
    """How many choices are others, and quantiles of how far expected values are apart."""
    for name in REQUESTS:
        both = [(before[k]["advice"], of["advice"]) for k, of in found.items() if name in k]
        advised = [(old, new) for old, new in both if old and new]
        other = sum(old[0] != new[0] for old, new in advised)
        no_more = sum((old is None) != (new is None) for old, new in both)
        print(f"{name}: {len(both)} recommendations, {other} choose something else, "
              f"{no_more} are possible before or now alone")  # fmt: skip
        for what, place in (("speed", 0), ("power", 4)):
            apart = sorted(off for old, new in advised for off in differences(old, new, place))
            cells = (
                f"{q:.0%} within {100 * apart[int(q * (len(apart) - 1))]:.2g} %" for q in QUANTILES
            )
            print(f"  {what}: {', '.join(cells)}")


def differences(old: Any, new: Any, place: int) -> Iterator[float]:
    """How far an expected value of each candidate is from that of before, as a part of it."""
    known = {name: numbers[place][0] for name, _, numbers in old[1]}
    for name, _, numbers in new[1]:
        if name in known:
            yield abs(numbers[place][0] / known[name] - 1)


def recommendations(points: Path | None, model: Path | None) -> Iterator[tuple[str, Any]]:
    """Each pair in both orders on each GPU model, by each request."""
    settings = read_settings()
    predictor = Registry(settings.home / "models", bundled=model).open_champion()
    profiles = make_profiles(solo_points(points))
    for a, b in itertools.product(profiles.values(), repeat=2):
        if a.gpu_model != b.gpu_model:
            continue
        pair = ProfileSet((a, b), ())
        known = KnownJobs(found=pair, model=predictor, checked=checked_on(pair, settings))
        for name, request in REQUESTS.items():
            key = f"{a.gpu_model}: {a.job} + {b.job}, {name}"
            try:
                given = answer(known, request)
            except NoSplitError as error:
                yield key, {"advice": None, "sentences": str(error)}
                continue
            r = given.recommendation
            misses = [[miss.text for miss in option.violations] for option in r.candidates]
            yield (
                key,
                {
                    "advice": [r.choice.name, [values(option) for option in r.candidates]],
                    "sentences": [list(r.reasons), list(r.warnings), misses],
                },
            )


def solo_points(points: Path | None) -> list[SoloPoint]:
    """Those of a file, else the bundled ones."""
    if points is None:
        return bundled_solo_points()
    return [point for point in read_points(points) if isinstance(point, SoloPoint)]


def values(option: RatedSplit) -> list[Any]:
    """What is expected of one candidate."""
    p = option.prediction
    numbers = (*[n for part in p.parts for n in (part.speed, part.rate)], p.power_w)
    others = (p.objective_value(objective) for objective in OBJECTIVES.values())
    intervals = (*numbers, p.energy_saved, p.stp, option.objective_value, *others)
    return [
        option.name,
        len(option.violations),
        [[i.value, i.low, i.high] for i in intervals],
    ]


def differs(found: dict[str, Any], before: dict[str, Any], key: str, what: str) -> bool:
    """Whether one recommendation is another one than before, by what it advises or says."""
    return not same(found.get(key, {}).get(what), before.get(key, {}).get(what))


def same(one: Any, other: Any) -> bool:
    """Equal but for rounding."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=ROUNDING)
    return one == other


if __name__ == "__main__":
    main()
