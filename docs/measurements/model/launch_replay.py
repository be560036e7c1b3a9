"""Prints how wrong the answer about a pair is before, after one and after three of its launches.

    .venv/bin/python docs/measurements/model/launch_replay.py

Recorded launches (../launch-pairs.json, ../same-work.json, ../launch-prices.json), in their order,
pair by pair and card by card. What the bundled model expects of each is taken together with the
launches before it, as `advisor recommend` does (advisor.predict.measured), once without them. The
model may have seen windows of the pair on other cards, launches never. Launches in which a job ran
at an unsafe count of SMs are left out. Only launches under limits are asked for, which are what
advice chooses from. Speeds are of jobs without a demand. Intervals are bootstraps over pairs.
"""

import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from launches import BUNDLED, MEASUREMENTS, recorded

from advisor.core.split import UNCAPPED, Split
from advisor.predict.measured import MeasuredPredictor
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.windows import Window
from advisor_data.files.bundled import bundled_solo_points
from advisor_models.model_predictor import ModelPredictor

Launch = Mapping[str, Any]


def main() -> None:
    """One table: each row the same launches, asked with nothing known and with those before."""
    by_pair: defaultdict[tuple[str, ...], list[Launch]] = defaultdict(list)
    for launch in sorted(every_launch(), key=lambda o: o["started_at"]):
        names = (job["job"] for job in launch["jobs"])
        by_pair[*names, launch["gpu_uuid"]].append(launch)
    print(
        "| of | launches before | launches | pairs | off without them, % | with them, % | held, % |"
    )
    print("|---|--:|--:|--:|---|---|--:|")
    for known in (1, 3):
        found: defaultdict[str, list[tuple[str, float, float, bool]]] = defaultdict(list)
        for pair, launches in by_pair.items():
            for quantity, was_off, off, held in asked(launches, known):
                found[quantity].append((" + ".join(pair[:2]), was_off, off, held))
        for quantity, errors in sorted(found.items()):
            without, taken = ([(pair, e[n]) for pair, *e in errors] for n in (0, 1))
            held = 100 * statistics.mean(e[-1] for e in errors)
            counts = f"{known} | {len(errors)} | {len({e[0] for e in errors})}"
            print(f"| {quantity} | {counts} | {mean(without)} | {mean(taken)} | {held:.0f} |")


def every_launch() -> Iterator[Launch]:
    """At safe counts of SMs, or without limits; jobs in the order of their names."""
    prices = json.loads((MEASUREMENTS / "launch-prices.json").read_text("utf-8"))
    safe = (o for o in recorded() if not o["jobs_at_unsafe_counts"])
    for o in (*safe, *(launch["observed"] for launch in prices)):
        yield {**o, "jobs": sorted(o["jobs"], key=lambda job: job["job"])}


def asked(launches: Sequence[Launch], known: int) -> Iterator[tuple[str, float, float, bool]]:
    """A quantity; how far its answer is off without and with `known` launches before; held."""
    for n, launch in enumerate(launches[known:]):
        profiles = profiles_of(launch)
        before = [window(o) for o in launches[n : n + known]]
        if profiles is None or launch["mode"] != "mps":
            continue
        names = tuple(p.job for p in profiles)
        plain = predictor()
        taken = MeasuredPredictor(plain, {names: before}, launch["gpu_uuid"])
        split = window(launch).split
        (was,), (now,) = (p.predict(profiles, [split]) for p in (plain, taken))
        for (quantity, seen, a), (_, _, b) in zip(
            values(launch, profiles, was), values(launch, profiles, now), strict=True
        ):
            was_off, off = (100 * abs(math.log(seen / x.value)) for x in (a, b))
            yield quantity, was_off, off, b.low <= seen <= b.high


def values(
    launch: Launch, profiles: Sequence[Profile], p: Prediction
) -> Iterator[tuple[str, float, Any]]:
    """What was observed and what is expected of it."""
    yield "power", launch["power_w"], p.power_w
    speeds = [
        job["rate"] / part.solo_rate for job, part in zip(launch["jobs"], p.parts, strict=True)
    ]
    for profile, speed, part in zip(profiles, speeds, p.parts, strict=True):
        if profile.serving is None or profile.serving.offered_rate is None:
            yield "speed", speed, part.speed
    apart_w = sum(s * part.solo_power_w for s, part in zip(speeds, p.parts, strict=True))
    if p.efficiency is not None:
        yield "energy", apart_w / launch["power_w"], p.efficiency


def window(o: Launch) -> Window:
    """A launch as the answer takes it in."""
    first, second = o["jobs"]
    limited = o["mode"] == "mps"
    split = Split((first["share_percent"], second["share_percent"])) if limited else UNCAPPED
    return Window(split, (first["rate"], second["rate"]), o["power_w"], o["gpu_uuid"])


@cache
def predictor() -> ModelPredictor:
    """The model that comes with advisor."""
    return ModelPredictor(BUNDLED)


@cache
def all_profiles() -> Mapping[tuple[str, str], Profile]:
    """Those that come with advisor."""
    return make_profiles(bundled_solo_points())


def profiles_of(o: Launch) -> tuple[Profile, Profile] | None:
    """Of both jobs, in the order of their names, as a launch has them."""
    first, second = (all_profiles().get((job["job"], o["gpu_model"])) for job in o["jobs"])
    return None if first is None or second is None else (first, second)


def mean(errors: Sequence[tuple[str, float]]) -> str:
    """With its 90 % interval over pairs that are drawn again."""
    by_pair: defaultdict[str, list[float]] = defaultdict(list)
    for pair, off in errors:
        by_pair[pair].append(off)
    draw = random.Random(1)
    means = sorted(
        statistics.mean(
            x for pair in draw.choices(list(by_pair), k=len(by_pair)) for x in by_pair[pair]
        )
        for _ in range(1000)
    )
    return f"{statistics.mean(off for _, off in errors):.1f} [{means[50]:.1f} {means[-51]:.1f}]"


if __name__ == "__main__":
    main()
