"""Ask the same about random bundled jobs through every door, and count the answers that agree.

    .venv/bin/python docs/measurements/doors.py [--pairs 300] [--sets 300] [--placements 60]

Doors are Python and the command line, POST /v1/recommendations, `advisor launch` without a split,
`advisor run` on an empty GPU, and `advisor place` on one GPU. An answer is an option and its speeds
and power, to four digits. Nothing is stored and nothing of yours is read.
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
from advisor.errors import NoSplitError
from advisor.formats.job_file import load_job
from advisor.settings import SUITE, Settings, read_settings
from advisor.wire.requests import LaunchRequest, PlacementRequest, QueuedJobs
from advisor_advice.forecasting import recommended
from advisor_advice.launching import ResolvedLaunch
from advisor_advice.placing import place_jobs
from advisor_advice.queue import OpenCard, QueueCard, planned
from advisor_api.app import create_app
from advisor_api.http.access import ServeOptions
from advisor_data.bundled import GPU_MODEL, bundled_solo_points

Answer = tuple[str, tuple[float, ...], float] | None
"""Option, speeds and watts of a set that shares; None: a GPU for each."""


def main() -> None:
    """Print how many answers of each door are those of Python."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for kind, number in (("pairs", 300), ("sets", 300), ("placements", 60)):
        parser.add_argument(f"--{kind}", type=int, default=number)
    given = parser.parse_args()
    names = sorted({p.job for p in bundled_solo_points() if p.gpu_model == GPU_MODEL})
    dice = random.Random(56)
    sizes = [2] * given.pairs + [dice.randint(3, 7) for _ in range(given.sets)]
    batch = {job: "serve" not in job and "stream" not in job for job in names}
    asked = [sorted(dice.choices(names, k=k), key=batch.__getitem__) for k in sizes]
    placed = [sorted(dice.choices(names, k=dice.randint(2, 7))) for _ in range(given.placements)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ADVISOR_HOME"] = folder
        settings = read_settings()
        with TestClient(create_app(settings, ServeOptions(log_level="warning"))) as client:
            doors: dict[str, Callable[[Sequence[str]], Answer]] = {
                "HTTP": lambda jobs: _of_http(client, jobs),
                "launch": lambda jobs: _of_launch(jobs, settings),
                "run": lambda jobs: _of_run(jobs, settings),
            }
            agree: Counter[tuple[str, str]] = Counter()
            for jobs in asked:
                first = _of_python(jobs)
                for name, found in ((name, door(jobs)) for name, door in doors.items()):
                    agree[name, "pairs" if len(jobs) == 2 else "sets"] += found == first
                    if found != first:
                        print(f"{name}: {' '.join(jobs)}: {found}, Python {first}")
        agree["place", "placements"] = sum(_is_placed_so(jobs, settings) for jobs in placed)
    for (name, kind), count in sorted(agree.items()):
        print(f"{name}: {count} of {vars(given)[kind]} {kind}")


def _of_python(jobs: Sequence[str]) -> Answer:
    try:
        found = advisor.recommend(*jobs, gpu_model=GPU_MODEL)
    except NoSplitError:
        return None
    if found.verdict != "share":
        return None
    way = found.choice
    return way.split, tuple(_short(job.speed.value) for job in way.jobs), _short(way.power_w.value)


def _of_http(client: TestClient, jobs: Sequence[str]) -> Answer:
    body = {"jobs": [{"job": job} for job in jobs], "gpu_model": GPU_MODEL}
    found: Any = client.post("/v1/recommendations", json=body).json()
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
        [(made, _), *_] = recommended(_jobs(names), ResolvedLaunch(request=request), settings)
    except NoSplitError:
        return None
    assert made.forecast is not None
    speeds = tuple(_short(job.rate.value / job.solo_rate) for job in made.forecast.jobs)
    return str(made.split), speeds, _short(made.forecast.power_w.value)


def _of_run(names: Sequence[str], settings: Settings) -> Answer:
    request = LaunchRequest.of(*names, gpu_model=GPU_MODEL)
    card = QueueCard.read(_jobs(names), ResolvedLaunch(request=request), settings)
    ((_, jobs, split),) = planned((OpenCard(card=card, able=frozenset(names)),), tuple(names))
    expected = card.expected(jobs, split)  # in the order asked
    if expected is None or len(jobs) < len(names):
        return None
    speeds = tuple(_short(part.speed.value) for part in expected.parts)
    return str(expected.split), speeds, _short(expected.power_w.value)


def _is_placed_so(names: Sequence[str], settings: Settings) -> bool:
    queued = tuple(QueuedJobs(job=job) for job in names)
    request = PlacementRequest(jobs=queued, gpus=1, gpu_model=GPU_MODEL)
    (one,) = place_jobs(request, settings).sets
    seated = [job.job for job in one.jobs]
    speeds = tuple(_short(job.speed) for job in one.jobs)
    answer = one.launch.partition(" --split ")[2], speeds, _short(one.power_w)
    together = (len(seated) == len(names)) == (_of_python(names) is not None)
    return together and (len(seated) == 1 or answer == _of_python(seated))


def _short(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
