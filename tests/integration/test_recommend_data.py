"""`advisor recommend --data` and the same over HTTP: what data that were not profiled change."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, in_this_process
from in_process import Api, error_of, running

from advisor.core.job import InputData, Job
from advisor.errors import InputError, ModelError
from advisor.formats.wire import read_tolerant, write
from advisor.wire.input_power import FEATURES, InputFingerprint
from advisor_data import open_store
from advisor_data.files.bundled import bundled_solo_points
from advisor_data.files.files import write_points
from advisor_power.operands.of_job import input_fingerprint

PAIR = ("resnet50-infer", "triad")
ZEROS = "resnet50-infer=bf16 zeros"
RANDOM_WARNING = "measured with random input"
ROUTE = "/v1/recommendations"


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, with_input_model: Path
) -> Advisor:
    return in_this_process(capsys, monkeypatch, with_input_model)


@pytest.fixture(scope="module")
def api(with_input_model: Path) -> Iterator[Api]:
    with running(with_input_model / "home") as api:
        yield api


def answer(advisor: Advisor, *words: str) -> dict[str, Any]:
    said = advisor("recommend", *PAIR, *words, "--json")
    assert said.code in (0, 10), said.err
    return json.loads(said.out)


def option(found: dict[str, Any], name: str = "50/50") -> dict[str, Any]:
    return next(o for o in found["candidates"] if o["split"] == name)


def warned(found: dict[str, Any]) -> str:
    return next((w for w in found["warnings"] if RANDOM_WARNING in w), "")


def test_data_that_draw_less_lower_the_power(advisor: Advisor) -> None:
    """Alone and together, and the warning is of the other job."""
    before, after = answer(advisor), answer(advisor, "--data", ZEROS)
    (change,) = after["data"]
    assert before["data"] == []
    assert set(change) == {"job", "whole_gpu_w", "whole_gpu_speed", "why_unknown"}
    assert (change["job"], change["why_unknown"]) == ("resnet50-infer", "")
    watts = change["whole_gpu_w"]
    assert watts["low"] <= watts["value"] <= watts["high"]
    assert watts["value"] < -20
    lower_w = [
        option(before, o["split"])["power_w"]["value"] - o["power_w"]["value"]
        for o in after["candidates"]
    ]
    assert min(lower_w) >= 0
    assert max(lower_w) > 20
    assert change["whole_gpu_speed"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert PAIR[0] in warned(before)
    assert warned(after).endswith(": triad")
    told = [w for w in after["warnings"] if "corrected for the data of resnet50-infer" in w]
    assert len(told) == 1


def test_data_that_draw_less_raise_the_speed_where_the_limit_held_the_clock_back(
    advisor: Advisor,
) -> None:
    said = advisor("recommend", "bert-infer", "triad", "--data", "bert-infer=bf16 zeros", "--json")
    found = json.loads(said.out)
    (change,) = found["data"]
    speed = change["whole_gpu_speed"]
    assert 1.05 < speed["low"] <= speed["value"] <= speed["high"] < 1.5
    assert any("power and speed are corrected for the data" in w for w in found["warnings"])


def test_what_is_not_known_widens_and_says_why(advisor: Advisor) -> None:
    """Types that were not profiled, and units that products do not use."""
    before = answer(advisor)
    after = answer(advisor, "--data", "resnet50-infer=fp16 zeros", "--data", "triad=fp32 zeros")
    assert [change["why_unknown"] for change in after["data"]] == [
        "it was profiled in bf16, not in fp16", "no tensor core computes its products, in fp32",
    ]  # fmt: skip
    power_w, wider_w = option(before)["power_w"], option(after)["power_w"]
    assert wider_w["value"] == power_w["value"]
    assert wider_w["low"] < power_w["low"]


def test_data_of_a_job_without_tensor_cores_are_not_known(advisor: Advisor) -> None:
    """What other units draw for data was not measured, and is not nothing."""
    after = answer(advisor, "--data", "triad=bf16 zeros")
    (change,) = after["data"]
    assert change["why_unknown"] == "no tensor core computes its products, in bf16"
    assert change["whole_gpu_w"]["low"] < -100


def test_profile_that_says_its_data_is_compared_with_them(
    advisor: Advisor, with_input_model: Path
) -> None:
    """Zeros were profiled, and zeros will run."""
    data = InputData(dtype="bf16", data="zeros")
    kept = input_fingerprint(data)
    assert kept is not None
    points = [
        dataclasses.replace(p, job="mine", run="r", input_fingerprint=write(kept))
        for p in bundled_solo_points({"resnet50-infer"})
        if p.gpu_model == "NVIDIA H200"
    ]
    with open_store(None, with_input_model / "home") as store:
        store.add(points)
    said = advisor("recommend", "mine", "triad", "--data", "mine=bf16 zeros", "--json")
    (change,) = json.loads(said.out)["data"]
    assert change["whole_gpu_w"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    said = advisor("recommend", "mine", "triad", "--data", "mine=bf16 normal(0,1)", "--json")
    (change,) = json.loads(said.out)["data"]
    assert change["whole_gpu_w"]["value"] > 20
    said = advisor("recommend", "mine", "triad", "--data", "mine=fp8 normal(0,1)", "--json")
    (change,) = json.loads(said.out)["data"]
    assert change["why_unknown"] == "it was profiled in bf16, not in fp8"


def test_profile_with_a_fingerprint_of_before_is_not_known(
    advisor: Advisor, with_input_model: Path
) -> None:
    """It lacks what is counted now, and is no fault of who asks."""
    kept = input_fingerprint(InputData(dtype="bf16", data="zeros"))
    assert kept is not None
    fewer = {name: x for name, x in kept.features.items() if not name.endswith("signs")}
    older = write(dataclasses.replace(kept, features=fewer))
    points = [
        dataclasses.replace(p, job="older", run="r", input_fingerprint=older)
        for p in bundled_solo_points({"resnet50-infer"})
        if p.gpu_model == "NVIDIA H200"
    ]
    with open_store(None, with_input_model / "home") as store:
        store.add(points)
    said = advisor("recommend", "older", "triad", "--data", "older=bf16 normal(0,1)", "--json")
    assert said.code == 0, said.err
    (change,) = json.loads(said.out)["data"]
    assert "fingerprint of an older version" in change["why_unknown"]


def test_bounds_are_numbers_where_the_idle_power_is_not_known(
    advisor: Advisor, with_input_model: Path
) -> None:
    """What other data change at most is a part of what is above the idle card."""
    points = [
        dataclasses.replace(p, idle_power_w=None) if p.job == PAIR[0] else p
        for p in bundled_solo_points(set(PAIR))
        if p.gpu_model == "NVIDIA H200"
    ]
    write_points(with_input_model / "solo.csv", points)
    told = ("--profiles", "solo.csv", "--data")
    for data in ("resnet50-infer=fp16 zeros", ZEROS):
        (change,) = (found := answer(advisor, *told, data))["data"]
        assert change["whole_gpu_w"]["low"] < 0
        power_w = option(found)["power_w"]
        assert power_w["low"] < power_w["value"] <= power_w["high"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("resnet50-infer=zeros", "does not say job, type and operands"),
        ("bf16 zeros", "does not say job, type and operands"),
        ("other=bf16 zeros", "is for a job that is not there"),
        ("resnet50-infer=bf17 zeros", "do not compute in bf17"),
        ("resnet50-infer=bf16 nonsense(1)", "nonsense"),
        ('resnet50-infer=bf16 file("none.npy")', "none.npy"),
        ("resnet50-infer=bf16 normal(0,1)" + "|scale(2)" * 300, "2000"),
    ],
)
def test_data_that_cannot_be_meant(advisor: Advisor, data: str, said: str) -> None:
    found = advisor("recommend", *PAIR, "--data", data)
    assert found.code == InputError.exit_code
    assert said in found.err


@pytest.mark.usefixtures("no_bundled_model")
def test_without_a_model_it_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = in_this_process(capsys, monkeypatch, tmp_path)("recommend", *PAIR, "--data", ZEROS)
    assert found.code == ModelError.exit_code
    assert "advisor power train" in found.err


def test_the_same_over_http(advisor: Advisor, api: Api) -> None:
    jobs: list[dict[str, Any]] = [
        {"job": PAIR[0], "data": {"dtype": "bf16", "operands": "zeros"}},
        {"job": PAIR[1]},
    ]
    assert api.post(ROUTE, {"jobs": jobs}) == answer(advisor, "--data", ZEROS)
    jobs[0]["data"] = {"dtype": "bf16", "operands": 'file("/etc/passwd")'}
    status, _, message = error_of(api.ask("POST", ROUTE, json={"jobs": jobs}))
    assert (status, "a file cannot be named here" in message) == (422, True)
    jobs[0]["data"] = {"dtype": "bf16", "operands": "normal(0,1)|" * 9}
    assert error_of(api.ask("POST", ROUTE, json={"jobs": jobs}))[0] == 422


def test_job_that_says_its_data_has_a_fingerprint() -> None:
    """And one that says none keeps the identity that it had before it could be said."""
    quiet = Job(name="a", command=("a",), input=InputData(dtype="bf16"))
    assert quiet.job_hash == "3b05c91d3bcd6a3c"
    assert input_fingerprint(quiet.input) is None
    telling = dataclasses.replace(quiet, input=InputData(dtype="bf16", data="zeros"))
    assert telling.job_hash != quiet.job_hash
    found = input_fingerprint(telling.input)
    assert found is not None
    assert set(found.features) == set(FEATURES)
    assert (found.dtype, found.features["a_zeros"], found.features["a_weight"]) == (
        "bf16",
        1.0,
        0.0,
    )
    assert read_tolerant(InputFingerprint, write(found)) == found
    with pytest.raises(InputError, match="without a type"):
        input_fingerprint(InputData(data="zeros"))
