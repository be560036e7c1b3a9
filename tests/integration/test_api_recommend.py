"""Recommendations and placements over HTTP, with the bundled profiles and the bundled model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Api, error_of, running
from typer.testing import CliRunner

from advisor.cli.app import app
from advisor.core.objectives import OBJECTIVES
from advisor_api.schemas.answers import BatchAnswer, PlacementAnswer, RecommendationAnswer

URL = "/v1/recommendations"
PAIR = ["fft", "resnet50-train-b2"]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service of somebody who has stored nothing."""
    with running(tmp_path_factory.mktemp("home")) as api:
        yield api


def command(monkeypatch: pytest.MonkeyPatch, home: Path, *arguments: str) -> Any:
    """What the command line answers to the same question."""
    monkeypatch.setenv("ADVISOR_HOME", str(home))
    done = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ({}, []),
        ({"objective": "max-min", "splits": "fine"}, ["--objective", "max-min", "--fine"]),
        (
            {"constraints": {"min_speed": 0.4, "max_power_w": 600, "memory_mib": 143771}},
            ["--min-speed", "0.4", "--max-power", "600", "--memory", "143771"],
        ),
        (
            {"gpu": "NVIDIA H200", "constraints": {"min_speed": {"fft": 0.7}}},
            ["--gpu-model", "NVIDIA H200", "--min-speed", "fft=0.7"],
        ),
    ],
)
def test_answer_is_that_of_the_command_line(
    api: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
    options: list[str],
) -> None:
    """Both doors give the same choice, numbers, reasons and warnings."""
    answer = api.post(URL, {"jobs": PAIR, **more})
    assert answer == command(monkeypatch, tmp_path, "recommend", *PAIR, *options)
    RecommendationAnswer.model_validate(answer)


def test_gigabytes_given_as_mib_are_refused(api: Api) -> None:
    """Not answered with "one after the other", as if no two jobs fitted."""
    body = {"jobs": PAIR, "constraints": {"memory_mib": 141}}
    status, code, message = error_of(api.ask("POST", URL, json=body))
    assert (status, code) == (422, "bad-input")
    assert message.startswith("no GPU has 141 MiB of memory")


def test_swapped_jobs_swap_the_answer(api: Api) -> None:
    """Which job is called the first changes nothing but the order."""
    answers = [api.post(URL, {"jobs": jobs}) for jobs in (PAIR, PAIR[::-1])]
    _check_mirrored(*(answer["choice"] for answer in answers))
    one, other = (answer["candidates"][:9] for answer in answers)
    for option, mirror in zip(one, other[::-1], strict=True):
        _check_mirrored(option, mirror)
    assert one[0]["share_a_percent"] != one[0]["share_b_percent"]


def _check_mirrored(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in ("share_{}_percent", "environment_{}", "rate_{}", "speed_{}"):
        assert one[name.format("a")] == other[name.format("b")]
        assert one[name.format("b")] == other[name.format("a")]
    assert one["power_w"] == other["power_w"]


def test_equal_requests_are_worked_out_once(api: Api) -> None:
    """However a request is written, an equal one has the same answer, from memory."""
    engine = api.service.engine
    least = {"triad": 0.3, "gemm": 0.3}
    one = {"jobs": ["gemm", "triad"], "gpu": "NVIDIA H200", "constraints": {"min_speed": 0.3}}
    other = {"constraints": {"min_speed": least}, "gpu": "NVIDIA H200", "jobs": ["gemm", "triad"]}
    first = api.post(URL, one)
    before = engine.hits, engine.misses
    assert api.post(URL, other) == first
    assert (engine.hits, engine.misses) == (before[0] + 1, before[1])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objectives_have_answers_of_their_own(api: Api, objective: str) -> None:
    """An answer that is kept for one objective is not given for another."""
    assert api.post(URL, {"jobs": PAIR, "objective": objective})["objective"] == objective


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"jobs": ["fft", "gemn"]}', "did you mean gemm"),
        ('{"jobs": ["fft"]}', "body.jobs"),
        ('{"jobs": ["fft", "gemm", "triad"]}', "body.jobs"),
        ('{"jobs": "fft gemm"}', "body.jobs"),
        ('{"jobs": ["fft", "../gemm"]}', "body.jobs.1"),
        ('{"jobs": ["fft", "gemm\\n"]}', "body.jobs.1"),
        ('{"jobs": ["fft", 7]}', "body.jobs.1"),
        ('{"jobs": ["fft", "gemm"], "split": "nine"}', "body.split"),
        ('{"jobs": ["fft", "gemm"], "splits": "all"}', "body.splits"),
        ('{"jobs": ["fft", "gemm"], "objective": "speed"}', "there is no objective speed"),
        ('{"jobs": ["fft", "gemm"], "gpu": "A100"}', "no profile on A100: fft, gemm"),
        ('{"jobs": ["fft", "gemm"], "constraints": {"max_power_w": "500 W"}}', "max_power_w"),
        ('{"jobs": ["fft", "gemm"], "constraints": {"max_power_kw": 0.5}}', "max_power_kw"),
        ('{"jobs": ["fft", "gemm"], "constraints": {"max_power_w": NaN}}', "NaN"),
        ('{"jobs": ["fft", "gemm"], "constraints": {"max_power_w": 1e999}}', "max_power_w"),
        ('{"jobs": ["fft", "gemm"], "constraints": {"max_power_w": true}}', "max_power_w"),
        ('{"jobs": ["fft", "gemm"], "constraints": {"min_speed": 50}}', "min_speed"),
        ('{"jobs": ["fft", "gemm"], "constraints": {"min_speed": {"triad": 0.5}}}', "triad"),
        ('{"jobs": ["fft", "gemm"], "max_power_w": 500}', "body.max_power_w"),
        ('{"jobs": ["fft", "gemm"]', "JSON"),
        ("[]", "body"),
    ],
)
def test_what_cannot_be_meant_is_refused(api: Api, body: str, says: str) -> None:
    """A slip of the pen gets 422, a code, and the place: never an answer to another question."""
    status, code, message = error_of(api.ask("POST", URL, content=body))
    assert (status, code) == (422, "bad-input")
    assert says in message


def test_no_split_is_told_with_what_comes_nearest(api: Api) -> None:
    """Limits that nothing keeps are an error with its own code, not an arbitrary split."""
    limits = {"jobs": PAIR, "constraints": {"max_power_w": 90}}
    status, code, message = error_of(api.ask("POST", URL, json=limits))
    assert (status, code) == (422, "no-split")
    assert "nearest is" in message


def test_batch_answers_each_request_in_order(api: Api) -> None:
    """One bad request spoils no other, and each item is what a request of its own would give."""
    alike = {"jobs": ["gemm", "gemm"], "objective": "throughput", "gpu": "NVIDIA H200"}
    good = [{"jobs": PAIR}, alike]
    bad = [{"jobs": ["fft"]}, {"jobs": ["fft", "nope"]}, {}]
    answers = api.post(f"{URL}/batch", {"requests": [good[0], *bad, good[1]]})
    BatchAnswer.model_validate(answers)
    items = answers["answers"]
    assert [items[0]["answer"], items[-1]["answer"]] == [api.post(URL, body) for body in good]
    assert [item["error"]["code"] for item in items[1:-1]] == ["bad-input"] * 3
    assert "there is no job nope" in items[2]["error"]["message"]


@pytest.mark.parametrize("count", [0, 1001])
def test_batches_are_bounded(api: Api, count: int) -> None:
    """A batch of nothing, and one without end, are refused whole."""
    answer = api.ask("POST", f"{URL}/batch", json={"requests": [{}] * count})
    assert error_of(answer)[:2] == (422, "bad-input")


@pytest.mark.parametrize("jobs", [{"fft": 2, "gemm": 1}, ["fft", "fft", "gemm"]])
def test_placement_is_that_of_the_command_line(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: Any
) -> None:
    """Counted or listed, the same jobs get the same plan through both doors."""
    limits = {"min_speed": {"fft": 0.4}}
    body = {"jobs": jobs, "gpus": 2, "work_s": {"gemm": 7200}, "constraints": limits}
    answer = api.post("/v1/placements", body)
    options = ("fft:2", "gemm", "--gpus", "2", "--work", "gemm=2h", "--min-speed", "fft=0.4")
    assert answer == command(monkeypatch, tmp_path, "place", *options)
    PlacementAnswer.model_validate(answer)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"jobs": {}, "gpus": 1}, "body.jobs"),
        ({"jobs": {"fft": 0}, "gpus": 1}, "body.jobs"),
        ({"jobs": {"fft": 1.5}, "gpus": 1}, "body.jobs"),
        ({"jobs": {"fft": 100_000, "gemm": 1}, "gpus": 1}, "100001 jobs"),
        ({"jobs": [f"job{n}" for n in range(201)], "gpus": 1}, "201 names"),
        ({"jobs": ["fft"], "gpus": 0}, "body.gpus"),
        ({"jobs": ["fft"], "gpus": 1, "time_limit_s": 3600}, "body.time_limit_s"),
        ({"jobs": ["fft"], "gpus": 1, "work_s": 0}, "body.work_s"),
        ({"jobs": ["fft"], "gpus": 1, "work_s": {"gemm": 60}}, "work was given for gemm"),
        ({"jobs": ["fft"], "gpus": 1, "objective": "max-min"}, "max-min"),
        ({"jobs": ["fft"], "gpus": 1, "constraints": {"min_speed": {"gemm": 0.5}}}, "gemm"),
    ],
)
def test_placements_are_bounded(api: Api, body: Any, says: str) -> None:
    """What would take hours, or cannot be meant, is refused before any work."""
    status, code, message = error_of(api.ask("POST", "/v1/placements", json=body))
    assert (status, code) == (422, "bad-input")
    assert says in message
