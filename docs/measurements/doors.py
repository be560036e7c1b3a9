"""Ask the same about random bundled jobs through every door, and count the answers that agree.

    .venv/bin/python docs/measurements/doors.py [--pairs 300] [--sets 300]

Doors are Python and the command line, POST /v1/recommendations, `advisor launch` without a split,
and `advisor run` on an empty GPU. An answer is a verdict, an option, and what is expected of it:
speeds and power to four digits. Nothing is stored and nothing of yours is read.
"""

import argparse
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

import advisor
from advisor.core.job import Job
from advisor.core.split import Split
from advisor.errors import NoSplitError
from advisor.formats.job_file import load_job
from advisor.settings import SUITE, Settings, read_settings
from advisor.wire.requests import LaunchRequest
from advisor_advice.forecasting import recommended
from advisor_advice.launching import ResolvedLaunch
from advisor_advice.queue import read_advice
from advisor_api.app import create_app
from advisor_api.http.options import ServeOptions
from advisor_data.bundled import GPU_MODEL, bundled_solo_points

Answer = tuple[str, tuple[float, ...], float] | None
"""Option, speeds and watts of a set that shares; None: a GPU for each."""


def main() -> None:
    """Print how many answers of each door are those of Python."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--sets", type=int, default=300)
    given = parser.parse_args()
    names = sorted({p.job for p in bundled_solo_points() if p.gpu_model == GPU_MODEL})
    dice = random.Random(56)
    asked = [tuple(dice.choices(names, k=2)) for _ in range(given.pairs)]
    asked += [tuple(dice.choices(names, k=dice.randint(3, 7))) for _ in range(given.sets)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ADVISOR_HOME"] = folder
        settings = read_settings()
        with TestClient(create_app(settings, ServeOptions(log_level="warning"))) as client:
            doors: dict[str, Callable[[Sequence[str]], Answer]] = {
                "HTTP": lambda jobs: _of_json(_post(client, jobs)),
                "launch": lambda jobs: _of_launch(jobs, settings),
                "run": lambda jobs: _of_run(jobs, settings),
            }
            agree: Counter[tuple[str, str]] = Counter()
            for jobs in asked:
                kind = "pairs" if len(jobs) == 2 else "sets"
                first = _of_python(jobs)
                for name, door in doors.items():
                    agree[name, kind] += (same := door(jobs) == first)
                    if not same:
                        print(f"{name}: {' '.join(jobs)}: {door(jobs)}, Python {first}")
    for (name, kind), count in sorted(agree.items()):
        print(f"{name}: {count} of {given.pairs if kind == 'pairs' else given.sets} {kind}")


def _of_python(jobs: Sequence[str]) -> Answer:
    try:
        found = advisor.recommend(*jobs, gpu_model=GPU_MODEL)
    except NoSplitError:
        return None
    if found.verdict != "share":
        return None
    way = found.choice
    return way.split, tuple(_short(job.speed.value) for job in way.jobs), _short(way.power_w.value)


def _post(client: TestClient, jobs: Sequence[str]) -> Any:
    body = {"jobs": [{"job": job} for job in jobs], "gpu_model": GPU_MODEL}
    return client.post("/v1/recommendations", json=body).json()


def _of_json(found: Any) -> Answer:
    if found.get("verdict") != "share":
        return None
    way = found["choice"]
    speeds = tuple(_short(job["speed"]["value"]) for job in way["jobs"])
    return way["split"], speeds, _short(way["power_w"]["value"])


def _jobs(names: Sequence[str]) -> list[Job]:
    return [load_job(Path(SUITE) / f"jobs/{name}.yaml") for name in names]


def _of_launch(names: Sequence[str], settings: Settings) -> Answer:
    request = LaunchRequest.of(*names, gpu_model=GPU_MODEL)
    try:
        made, _ = recommended(_jobs(names), ResolvedLaunch(request=request), settings)
    except NoSplitError:
        return None
    assert made.forecast is not None
    speeds = tuple(_short(job.rate.value / job.solo_rate) for job in made.forecast.jobs)
    return str(made.split), speeds, _short(made.forecast.power_w.value)


def _of_run(names: Sequence[str], settings: Settings) -> Answer:
    request = LaunchRequest.of(*names, gpu_model=GPU_MODEL)
    advice = read_advice(_jobs(names), ResolvedLaunch(request=request), settings)
    found = advice.first_set(names, 0)
    if found is None or len(found[0]) < len(names):
        return None
    split = expected_of(found[1].split, names, found[0])
    speeds = {job: part.speed.value for job, part in zip(found[0], found[1].parts, strict=True)}
    return str(split), tuple(_short(speeds[job]) for job in names), _short(found[1].power_w.value)


def expected_of(split: Split, names: Sequence[str], order: Sequence[str]) -> Split:
    """The split with the shares in the order that was asked; copies have theirs in turn."""
    left = [*zip(order, split.shares, strict=True)]
    shares: list[float] = []
    for name in names:
        seat = next(pair for pair in left if pair[0] == name)
        left.remove(seat)
        shares.append(seat[1])
    return Split(tuple(shares), split.sharing)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
