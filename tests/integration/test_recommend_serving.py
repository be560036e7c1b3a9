"""A job that answers requests, from its points to the answers of command line and service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, answered
from in_process import Api, error_of, running
from new_database import keep
from store_points import point

from advisor.core.records import SoloPoint

PAIR = ("server", "triad")
URL = "/v1/recommendations"


def points() -> list[SoloPoint]:
    """It keeps up from 20 % on, and its latency falls with the share."""
    return [
        point(
            number, job="server", gpu_model="NVIDIA H200", units_total=132,
            share_percent=10.0 * number, rate=60.0 if number == 1 else 100.0, rate_stderr=0.5,
            power_w=150.0 + number, idle_power_w=80.0, power_limit_w=700.0, memory_used_mib=900.0,
            offered_rate=100.0, latency_p50_ms=2.0, latency_p99_ms=300.0 / number,
        )
        for number in range(1, 11)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    home = tmp_path_factory.mktemp("home")
    keep(home, *points())
    with running(home) as found:
        yield found


def jobs(server: dict[str, Any], other: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"job": name, **of_job} for name, of_job in zip(PAIR, (server, other), strict=True)]


@pytest.mark.parametrize(
    ("more", "own", "options"),
    [
        ({}, {}, []),
        ({"max_p99_ms": 240}, {}, ["--max-p99", "240ms"]),
        ({}, {"max_p99_ms": 240}, ["--max-p99", "server=0.24s"]),
    ],
)
def test_both_doors_give_the_same_answer(
    api: Api,
    advisor: Advisor,
    tmp_path: Path,
    more: dict[str, Any],
    own: dict[str, Any],
    options: list[str],
) -> None:
    """No split at which the server is too slow alone; it may be off, and need not be."""
    pair = jobs({"min_speed": 0.0, **own}, {"min_speed": 0.1})
    answer = api.post(URL, {"jobs": pair, "objective": "throughput", "every": True, **more})
    least = ["--min-speed", "server=0", "--min-speed", "triad=0.1", "--objective", "throughput"]
    keep(tmp_path / "home", *points())
    assert answer == answered(advisor, "recommend", *PAIR, *options, *least, "--all")
    assert answer["choice"]["sharing"] != "exclusive"
    if more or own:
        slow = [o for o in answer["candidates"] if o["jobs"][0]["share_percent"] <= 30]
        assert slow
        for option in slow:
            assert any("may have a p99 latency of" in text for text in option["violations"])
    assert any("p99 latency of server" in text for text in answer["warnings"])


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"jobs": jobs({}, {"max_p99_ms": 50})}, 422, "no latency of triad was measured"),
        ({"max_p99_ms": 0}, 422, "max_p99_ms"),
        ({"max_p99_ms": "50ms"}, 422, "max_p99_ms"),
        (
            {"jobs": jobs({"max_p99_ms": 1}, {})},
            422,
            "alone at 100 % has a p99 latency of 30 ms",
        ),
    ],
)
def test_latencies_that_cannot_be_held(
    api: Api, body: dict[str, Any], status: int, text: str
) -> None:
    found = error_of(api.ask("POST", URL, json={"jobs": jobs({}, {}), **body}))
    assert (found[0], text in found[2]) == (status, True), found


def test_placements_keep_latencies(api: Api) -> None:
    """For all that serve, or of one job; what cannot be held alone is refused as by advice."""
    for more, own in (({"max_p99_ms": 1}, {}), ({}, {"max_p99_ms": 1})):
        body = {"jobs": [{"job": "server", "count": 2, **own}], "gpus": 1, **more}
        status, _, message = error_of(api.ask("POST", "/v1/placements", json=body))
        assert (status, "server cannot be placed" in message) == (422, True), message
