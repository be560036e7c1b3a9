"""What one body may cost the service: its length, its keys, and the list of its faults."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_server import JSON, RawServer

RECOMMEND, PLACE, POINTS = "/v1/recommendations", "/v1/placements", "/v1/points"
SHORT, LONG = 64 * 1024, 1024 * 1024


@pytest.fixture(scope="module")
def writer(served: RawServer) -> dict[str, str]:
    with served.state() as state:
        return {**JSON, "Authorization": f"Bearer {state.make_token('all', ('admin',))[1]}"}


def _keys(count: int, value: Any = 0) -> dict[str, Any]:
    return {f"k{number}": value for number in range(count)}


def _body(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


PAIR = {"jobs": [{"job": "gemm"}, {"job": "triad"}]}

# Values are made by the tests, not by every process that collects this file.
DEAR: dict[str, tuple[str, Callable[[], Any]]] = {
    "counts of jobs": (PLACE, lambda: {"gpus": 1, "jobs": [_keys(110_000)]}),
    "speeds": (RECOMMEND, lambda: {"jobs": [_keys(90_000, "x")]}),
    "unknown fields": (RECOMMEND, lambda: _keys(95_000)),
    "a short list of names": (PLACE, lambda: {"gpus": 1, "jobs": [0] * 32_000}),
    "unknown fields of one request": (f"{RECOMMEND}/batch", lambda: {"requests": [_keys(90_000)]}),
    "unknown columns of one row": (POINTS, lambda: {"points": [_keys(90_000)]}),
    "unknown columns of all rows": (POINTS, lambda: {"points": [_keys(90)] * 1000}),
    "rows without end": (POINTS, lambda: {"points": [0] * 500_000}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEAR)
def test_a_wrong_body_holds_up_nobody(served: RawServer, writer: dict[str, str], kind: str) -> None:
    """However many faults a body has, it takes little of the service's time, and few are named."""
    path, value = DEAR[kind]
    body = _body(value())
    before_s = _cpu_s(served.process.pid)
    answer = served.ask("POST", path, body, writer)
    assert answer.status in (413, 422)
    assert len(answer.body) < 2000
    # CPU time, which is the same beside whatever else runs; listing all faults took half a second.
    assert _cpu_s(served.process.pid) - before_s < 0.25


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
