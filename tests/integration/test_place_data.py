"""`advisor place --data` and the same over HTTP: a queue of jobs with other data than profiled."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, in_this_process
from hypothesis import given
from hypothesis import strategies as st
from in_process import Api, error_of, running

from advisor.errors import InputError, ModelError
from advisor.wire.requests import JobData
from advisor_cli.advise.job_requests import read_data
from advisor_data.files.bundled import bundled_solo_points
from advisor_power.operands.of_job import MOST_SENT, told_data

H200 = ("--gpu-model", "NVIDIA H200")
QUEUE = ("bert-infer-b2:2", "vit-train:2", "--gpus", "1", *H200)
ZEROS = "vit-train=bf16 zeros"
ROUTE = "/v1/placements"


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    """By the models that come with advisor."""
    return in_this_process(capsys, monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("service") / "home") as api:
        yield api


def answer(advisor: Advisor, *words: str) -> dict[str, Any]:
    said = advisor("place", *QUEUE, *words, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def groups(found: dict[str, Any]) -> set[tuple[str, ...]]:
    return {(*(job["job"] for job in g["jobs"]), g["split"]) for g in found["groups"]}


def body(*data: dict[str, str] | None) -> dict[str, Any]:
    """The queue, with data of `bert-infer-b2` and of `vit-train`."""
    names = ("bert-infer-b2", "vit-train")
    jobs = [
        {"job": name, "count": 2, **({"data": of} if of else {})}
        for name, of in zip(names, data, strict=True)
    ]
    return {"jobs": jobs, "gpus": 1, "gpu_model": "NVIDIA H200"}


def test_data_change_what_is_put_together(advisor: Advisor) -> None:
    """Two that share the GPU with random numbers had better be alone with zeros, and draw less."""
    before, after = answer(advisor), answer(advisor, "--data", ZEROS)
    assert ("vit-train", "vit-train", "50/50") in groups(before)
    assert ("vit-train", "alone") in groups(after)
    (own,) = (g for g in after["groups"] if g["jobs"][0]["job"] == "vit-train")
    (change,) = after["data"]
    assert set(change) == {"job", "whole_gpu_w", "whole_gpu_speed", "why_unknown"}
    assert (change["job"], change["why_unknown"]) == ("vit-train", "")
    assert change["whole_gpu_w"]["value"] < -100
    assert before["data"] == []
    assert after["energy_j"] < before["energy_j"] - 2 * 100 * own["jobs"][0]["time_s"]
    # What it is compared with is of the same data.
    alone = [
        next(b["energy_j"] for b in found["baselines"] if b["name"] == "one after the other")
        for found in (before, after)
    ]
    assert alone[1] < alone[0]
    told = [w for w in after["warnings"] if "corrected for the data of vit-train" in w]
    assert len(told) == 1
    assert not [w for w in before["warnings"] if "the data of" in w]


def test_text_says_it_once_a_job_and_counts_those_with_random_input(advisor: Advisor) -> None:
    """Of two bundled profiles one is still of random input."""
    out = advisor("place", *QUEUE, "--data", ZEROS).out
    assert out.count("power is corrected for the data of vit-train: ") == 1
    assert "1 bundled profile of jobs with random input" in out
    both = advisor("place", *QUEUE, "--data", ZEROS, "--data", "bert-infer-b2=bf16 zeros").out
    assert "random input" not in both


def test_pair_of_jobs_moves_by_what_both_do(advisor: Advisor) -> None:
    """The data of one job reach the pair that it is in, and no other."""
    words = ("place", "bert-infer-b2:2", "triad:2", "vit-train:2", "--gpus", "1", *H200, "--json")
    before = json.loads(advisor(*words).out)
    after = json.loads(advisor(*words, "--data", "bert-infer-b2=bf16 zeros").out)
    assert groups(before) == groups(after)
    for then, now in zip(before["groups"], after["groups"], strict=True):
        names = {job["job"] for job in then["jobs"]}
        assert (now["power_w"] < then["power_w"]) == ("bert-infer-b2" in names)
        assert [job["speed"] for job in now["jobs"]] == [job["speed"] for job in then["jobs"]]


def test_what_is_not_known_says_why_and_how_much_wider(advisor: Advisor) -> None:
    """Another type than that of the profile: the plan stays, and what it is expected to take."""
    before, after = answer(advisor), answer(advisor, "--data", "vit-train=fp16 zeros")
    (change,) = after["data"]
    assert change["why_unknown"] == "it was profiled in bf16, not in fp16"
    assert change["whole_gpu_w"]["value"] == 0
    assert change["whole_gpu_w"]["low"] < 0 < change["whole_gpu_w"]["high"]
    assert (after["energy_j"], after["groups"]) == (before["energy_j"], before["groups"])
    (said,) = [w for w in after["warnings"] if "the data of vit-train" in w]
    assert "change is not known (it was profiled in bf16, not in fp16): " in said
    assert "alone on the whole GPU power is -" in said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("vit-train=zeros", "does not say job, type and operands"),
        ("triad=bf16 zeros", "is for a job that is not there"),
        ("vit-train=bf17 zeros", "do not compute in bf17"),
        ("vit-train=bf16 nonsense(1)", "line 1, column 1"),
        ("vit-train=bf16 normal(0,1)|nonsense(1)", "line 1, column 13"),
        ('vit-train=bf16 file("none.npy")', "none.npy"),
    ],
)
def test_data_that_cannot_be_meant(advisor: Advisor, data: str, said: str) -> None:
    """As `advisor recommend` says it, with the place in the text."""
    found = advisor("place", *QUEUE, "--data", data)
    assert found.code == InputError.exit_code
    assert said in found.err
    pair = advisor("recommend", "vit-train", "gemm", *H200, "--data", data)
    assert said in pair.err


@pytest.mark.usefixtures("no_bundled_model")
def test_without_a_model_it_says_how_to_get_one(advisor: Advisor) -> None:
    found = advisor("place", *QUEUE, "--data", ZEROS)
    assert found.code == ModelError.exit_code
    assert "advisor power train" in found.err


def test_the_same_over_http(advisor: Advisor, api: Api) -> None:
    """The same keys and numbers; what somebody else sends names no file."""
    zeros = {"dtype": "bf16", "operands": "zeros"}
    assert api.post(ROUTE, body(None, zeros)) == answer(advisor, "--data", ZEROS)
    fp16 = {"dtype": "fp16", "operands": "zeros"}
    (change,) = api.post(ROUTE, body(None, fp16))["data"]
    assert change["why_unknown"] == "it was profiled in bf16, not in fp16"
    for operands, words in (
        ('file("/etc/passwd")', "a file cannot be named here"),
        ("normal(0,1)|nonsense(1)", "line 1, column 13"),
    ):
        asked = body(None, {"dtype": "bf16", "operands": operands})
        status, code, message = error_of(api.ask("POST", ROUTE, json=asked))
        assert (status, code) == (422, "bad-input")
        assert words in message


def test_one_name_has_one_kind_of_data(api: Api) -> None:
    """Jobs of a name are equal, so two kinds are two names; and nobody keeps a service filling."""
    asked = body(None, {"dtype": "bf16", "operands": "zeros"})
    other = {"job": "vit-train", "data": {"dtype": "bf16", "operands": "normal(0,1)"}}
    twice = {**asked, "jobs": [*asked["jobs"], other]}
    status, _, message = error_of(api.ask("POST", ROUTE, json=twice))
    assert status == 422
    assert "vit-train comes twice with two kinds of data, bf16 zeros and bf16 normal(0,1)" in (
        message
    )
    quiet = {**asked, "jobs": [*asked["jobs"], {"job": "vit-train"}]}
    assert [change["job"] for change in api.post(ROUTE, quiet)["data"]] == ["vit-train"]
    names = sorted({p.job for p in bundled_solo_points() if p.gpu_model == H200[1]})
    jobs = [
        {"job": name, "data": {"dtype": "bf16", "operands": f"uniform(0,{n + 1})"}}
        for n, name in enumerate(names[: MOST_SENT + 1])
    ]
    crowd = {"jobs": jobs, "gpus": 1, "gpu_model": "NVIDIA H200"}
    status, _, message = error_of(api.ask("POST", ROUTE, json=crowd))
    assert (status, f"these are {MOST_SENT + 1} kinds of data" in message) == (422, True)


def test_filling_says_how_far_it_is() -> None:
    """A bar of `advisor place` moves with each kind; a text that is seen again takes no time."""
    seen: list[tuple[int, int]] = []
    data = {name: JobData(dtype="bf16", operands="zeros") for name in ("a", "b")}
    found = told_data(data, lambda done, kinds: seen.append((done, kinds)))
    assert seen == [(1, 2), (2, 2)]
    assert found["a"] is found["b"]


@given(st.text(max_size=40))
def test_an_option_is_read_or_refused(text: str) -> None:
    """Whatever is written behind the name, job, type and operands come out, or an error."""
    try:
        (found,) = read_data([f"a={text}"], ["a"]).values()
    except InputError:
        return
    assert str(found).split() == text.split()
