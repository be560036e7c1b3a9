"""Prints how often the intervals of a model hold what recorded launches drew and served.

    .venv/bin/python docs/measurements/model/launches.py
    .venv/bin/python docs/measurements/model/launches.py model

Each launch of ../launch-pairs.json and ../same-work.json at a split, on a card and day of its own,
against what the bundled model, or the one in that folder, says of it today. Launches in which a job
ran at an unsafe count of SMs are left out: it computed something else. They are of three cards, so
what they hold says how unlucky a card may be, and little of the others: that is in `advisor
evaluate`, by workload, run and card.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from advisor.core.interval import Interval
from advisor.core.split import Split
from advisor.predict.profiles import make_profiles
from advisor_data.bundled import bundled_solo_points
from advisor_data.known import bundled_checks
from advisor_models.model_predictor import ModelPredictor

HERE = Path(__file__).resolve().parent
MEASUREMENTS = HERE.parent
BUNDLED = HERE.parents[2] / "models/advisor_models/bundled"

Told: TypeAlias = tuple[str, str, Interval, float]
"""The launch, what is told, what is expected, and what was observed."""


def main() -> None:
    """A line for each number, then what is held of each."""
    predictor = ModelPredictor(Path(sys.argv[1]) if len(sys.argv) > 1 else BUNDLED)
    told = [line for launch in recorded() for line in compared(launch, predictor)]
    print("| launch | of | expected | observed | off | within |\n|" + " --- |" * 6)
    for launch, what, expected, observed in told:
        between = f"{expected.value:.4g} ({expected.low:.4g} to {expected.high:.4g})"
        off = f"{100 * (observed / expected.value - 1):+.1f} %"
        within = "yes" if _holds(expected, observed) else "no"
        print(f"| {launch} | {what} | {between} | {observed:.4g} | {off} | {within} |")
    print("\n| of | launches | off by, mean | held |\n|" + " --- |" * 4)
    for what in ("power", "speed"):
        its = [(expected, observed) for _, name, expected, observed in told if name == what]
        off = sum(observed / expected.value - 1 for expected, observed in its) / len(its)
        held = sum(_holds(expected, observed) for expected, observed in its) / len(its)
        print(f"| {what} | {len(its)} | {100 * off:+.1f} % | {100 * held:.0f} % |")


def recorded() -> Iterator[dict[str, Any]]:
    """What was observed in each launch."""
    for launch in json.loads((MEASUREMENTS / "launch-pairs.json").read_text("utf-8")):
        yield launch
    for launch in json.loads((MEASUREMENTS / "same-work.json").read_text("utf-8")):
        seen = launch["observed"]
        if all(is_right(job, seen["gpu_model"]) for job in seen["jobs"]):
            yield {**seen, "door": "command", "jobs_at_unsafe_counts": []}


def is_right(job: dict[str, Any], gpu_model: str) -> bool:
    """Whether results were right; of a job that reports none, whether its libraries are there."""
    if job["results"] is None:
        (wrong,) = (c.wrong for c in bundled_checks() if c.gpu_model == gpu_model)
        return not wrong.get(job["units"])
    return job["results"] == "right"


def compared(o: dict[str, Any], predictor: ModelPredictor) -> Iterator[Told]:
    """Power and both speeds of one launch; nothing where it is not to be counted."""
    if o["mode"] != "mps" or o["jobs_at_unsafe_counts"]:
        return
    profiles = make_profiles(bundled_solo_points())
    first, second = o["jobs"]
    a, b = (profiles.get((job["job"], o["gpu_model"])) for job in (first, second))
    if a is None or b is None:
        return
    split = Split((first["share_percent"], second["share_percent"]))
    (found,) = predictor.predict([a, b], [split])
    name = f"{a.job} + {b.job}, {split}, {o['door']}"
    yield name, "power", found.power_w, o["power_w"]
    for part, job in zip(found.parts, (first, second), strict=True):
        # A job that was faster than alone was slow alone.
        yield name, "speed", part.speed, min(job["rate"] / part.solo_rate, 1.0)


def _holds(expected: Interval, observed: float) -> bool:
    return expected.low <= observed <= expected.high


if __name__ == "__main__":
    main()
