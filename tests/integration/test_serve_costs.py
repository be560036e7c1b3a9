"""What one body may cost the service: its length, its keys, and the list of its faults."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_server import JSON, RawServer, guessed

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


def test_a_question_is_shorter_than_a_list(served: RawServer, writer: dict[str, str]) -> None:
    """64 KiB where names are asked about, 1 MiB where a thousand rows or questions go in."""
    for path in (RECOMMEND, PLACE, "/v1/launches"):
        refused = served.ask("POST", path, b"[" + b" " * (SHORT - 1) + b"]", writer)
        assert (refused.status, refused.code) == (413, "body-too-large")
        assert served.ask("POST", path, b"[" + b" " * (SHORT - 2) + b"]", writer).status != 413
    lists = {f"{RECOMMEND}/batch": "POST", POINTS: "POST", "/v1/observations": "POST"}
    for path, method in {**lists, "/v1/profiles/mine": "PUT"}.items():
        refused = served.ask(method, path, b"[" + b" " * (LONG - 1) + b"]", writer)
        assert (refused.status, refused.code) == (413, "body-too-large")
        assert served.ask(method, path, b"[" + b" " * (LONG - 2) + b"]", writer).status == 422


def test_who_may_not_write_is_told_nothing_of_the_body(served: RawServer) -> None:
    """Whether a body is good is looked at before, and told after, who asks."""
    answer = served.ask("POST", POINTS, _body({"points": [{"jb": 1}]}), JSON)
    assert (answer.status, answer.code) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", RECOMMEND),
        ("POST", f"{RECOMMEND}/batch"),
        ("POST", PLACE),
        ("GET", "/v1/launches"),
        ("GET", "/metrics"),
    ],
)
def test_unknown_query_parameters_are_refused(served: RawServer, method: str, path: str) -> None:
    body = _body(PAIR) if method == "POST" else None
    answer = served.ask(method, f"{path}?objectve=max-min", body, JSON if body else None)
    assert (answer.status, answer.code) == (422, "bad-input")
    assert "objectve" in json.loads(answer.body)["error"]["message"]


def test_a_flood_of_guesses_is_few_lines_of_log(served: RawServer, writer: dict[str, str]) -> None:
    """Of thousands of wrong tokens the log has some, and a good token works next to them."""
    before = len(served.log.read_text().splitlines())
    told = [
        status
        for n in range(0, 1000, 200)
        for status in guessed(served.port, map(str, range(n, n + 200)))
    ]
    assert {*told} == {401, 429}
    assert served.ask("GET", "/v1/jobs?limit=1", headers=writer).status == 200
    # A hundred, twenty a second, and a line a second of all that come beside these.
    logged = [line.split()[4] for line in served.log.read_text().splitlines()[before:]]
    assert logged.count("401") == told.count(401)
    assert logged.count("429") < told.count(429) / 2


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
