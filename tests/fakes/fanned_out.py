"""What tests of `--on` share: a host with two fake GPUs, a plan for both, and what came of it."""

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from forked import Forked
from host import OTHER_UUID, UUID, FakeHost
from waiting import PATIENCE_S

from advisor.core.records import PairPoint
from advisor_data import open_store

PAIRS = "one+two,one+one,two+two,three+three"
PLAN = ("--pairs", PAIRS, "--splits", "50/50", "--window", "0.5", "--run", "night")
"""A pair has one window, so that no pair is cut in two where its node is lost."""


def two_gpus(host: FakeHost) -> dict[str, str]:
    """Three jobs and a second GPU; variables under which it is there."""
    for name in ("one", "two", "three"):
        host.write_job(name)
    (host.folder / "nvml" / "gpu1").mkdir()
    (host.folder / "nvml" / "gpu_count").write_text("2")
    return {"FAKE_CUDA_UUIDS": f"{UUID},{OTHER_UUID}"}


def stored(host: FakeHost) -> list[PairPoint]:
    with open_store(None, host.folder / "home") as store:
        return store.pair_points()


def of_shards(host: FakeHost) -> list[PairPoint]:
    """The pair points that shards which run have measured so far."""
    found = list[PairPoint]()
    for file in (host.folder / "home/fanout/night").glob("*/points.db"):
        with open_store(f"sqlite:///{file}", file.parent) as store:
            found += store.pair_points()
    return found


def each_once(points: list[PairPoint]) -> bool:
    """Whether these are the pairs of the plan, as on one host, none missing and none twice."""
    planned = [tuple(sorted(pair.split("+"))) for pair in PAIRS.split(",")]
    return Counter(point.jobs for point in points) == Counter(planned)


def until(holds: Callable[[], object], process: Forked) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(process.communicate())
        time.sleep(0.05)


def answer_of(process: Forked) -> dict[str, Any]:
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    return json.loads(output)
