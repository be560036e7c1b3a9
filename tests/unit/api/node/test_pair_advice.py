"""What is made of the answers of a service, right ones and wrong ones."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kube_answers import ANSWER
from pair_service import pair_service
from scripted_http import Reply, Scripted, scripted_http

from advisor.client import Client, JobRequest
from advisor_node.advice import (
    MOST_PAIRS,
    Advice,
    Apart,
    NoAnswer,
    Question,
    Together,
)

ASKED = Question(
    jobs=(JobRequest(job="fft", min_speed=0.5), JobRequest(job="gemm")), model="NVIDIA H200"
)
LIMIT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted_http() as found:
        yield found


@pytest.fixture
def now_s() -> list[float]:
    """Seconds of the clock, which a test moves on."""
    return [1000.0]


@pytest.fixture
def advice(server: Scripted, now_s: list[float]) -> Iterator[Advice]:
    with Client(server.url, timeout_s=1) as client:
        yield Advice(client, lambda: now_s[0])


def answers(*items: Any) -> Reply:
    return Reply(body={"answers": [{"answer": item, "error": None} for item in items]})


def spoilt(limit: str | None = None, sharing: str = "limited") -> dict[str, Any]:
    """A recommendation with another limit of the first job, or another way of sharing."""
    answer = copy.deepcopy(ANSWER)
    answer["choice"]["sharing"] = sharing
    if limit is not None:
        answer["choice"]["jobs"][0]["environment"] = {LIMIT: limit}
    return answer


def test_answer_is_asked_for_once_and_kept_for_a_while(
    server: Scripted, advice: Advice, now_s: list[float]
) -> None:
    server.will(answers(ANSWER))
    wanted = Together(
        shares=("26", "50"),
        needs_mib=(1000.0, 1000.0),
        energy_saved=0.5,
        split="26/50",
        speeds=(0.5, 0.5),
        low_speeds=(0.4, 0.4),
        gpu_model="NVIDIA H200",
    )
    assert advice.answers([ASKED, ASKED]) == advice.answers([ASKED]) == {ASKED: wanted}
    [seen] = server.seen
    [asked] = seen.body["requests"]
    assert asked["gpu_model"] == "NVIDIA H200"
    wishes = [(job["job"], job["min_speed"]) for job in asked["jobs"]]
    assert wishes == [("fft", 0.5), ("gemm", None)]
    now_s[0] += 100
    advice.answers([ASKED])
    assert len(server.seen) == 2


def test_jobs_that_are_better_in_turns_stay_apart(server: Scripted, advice: Advice) -> None:
    server.will(answers(spoilt(sharing="time-sliced")))
    assert advice.answers([ASKED])[ASKED] == Apart("time-sliced is better", (1000.0, 1000.0))


@pytest.mark.parametrize(
    ("saved", "violations", "split"),
    [(0.1, (), "26/50"), (-0.1, (), None), (0.1, ("too slow",), None)],
)
def test_priority_is_not_set_by_a_scheduler(
    server: Scripted, advice: Advice, saved: float, violations: tuple[str, ...], split: str | None
) -> None:
    """So the best way without one is taken, where that keeps the limits and saves anything."""
    answer = spoilt()
    energy = {"value": saved, "low": saved, "high": saved}
    plain = {**ANSWER["choice"], "energy_saved": energy, "violations": violations}
    answer["choice"]["jobs"][0]["environment"] = {LIMIT: "50", "CUDA_MPS_CLIENT_PRIORITY": "1"}
    answer["candidates"] = [answer["choice"], plain]
    server.will(answers(answer))
    found = advice.answers([ASKED])[ASKED]
    assert (found.split if isinstance(found, Together) else None) == split


@pytest.mark.parametrize("limit", ["0", "-5", "101", "nan", "", "all"])
def test_share_that_would_be_no_limit_is_not_taken(
    server: Scripted, advice: Advice, limit: str
) -> None:
    """The driver takes each of these as all SMs, and says nothing."""
    server.will(answers(spoilt(limit)))
    assert isinstance(advice.answers([ASKED])[ASKED], Apart)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=b"<html>"),
        Reply(body={"answers": []}),
        Reply(body=[]),
        Reply(status=500, body={"error": {"code": "internal", "message": "m", "request_id": "1"}}),
        Reply(status=401, body=b""),
        Reply(after_s=30),
    ],
)
def test_nonsense_is_no_answer_and_is_not_asked_for_again_at_once(
    server: Scripted, advice: Advice, now_s: list[float], reply: Reply
) -> None:
    server.will(reply)
    assert isinstance(advice.answers([ASKED])[ASKED], NoAnswer)
    assert isinstance(advice.answers([ASKED])[ASKED], NoAnswer)
    assert len(server.seen) == 1
    server.will(answers(ANSWER))
    now_s[0] += 11
    assert isinstance(advice.answers([ASKED])[ASKED], Together)


JOIN = replace(ASKED, running=(30.0,))


def test_who_joins_is_asked_about_with_the_shares_of_those_that_run(
    server: Scripted, advice: Advice, now_s: list[float]
) -> None:
    server.will(answers(ANSWER))
    found = advice.answers([JOIN])[JOIN]
    assert server.seen[0].body["requests"][0]["running"] == [30.0]
    assert isinstance(found, Together)
    assert (found.shares, found.needs_mib) == (("26", "50"), (1000.0, 1000.0))
    now_s[0] += 100
    server.will(answers({**ANSWER, "choice": None}))
    assert advice.answers([JOIN])[JOIN] == Apart("separate GPUs are better", (1000.0, 1000.0))


def test_a_refusal_of_one_question_is_an_answer_to_it(server: Scripted, advice: Advice) -> None:
    """Also beside a good one; what is refused as a whole says nothing of the jobs."""
    error = {"code": "bad-input", "message": "no profile"}
    items = [{"answer": None, "error": error}, {"answer": ANSWER, "error": None}]
    server.will(Reply(body={"answers": items}))
    found = advice.answers([ASKED, JOIN])
    assert (found[ASKED], type(found[JOIN])) == (Apart("no profile"), Together)


def test_new_questions_are_bounded_and_the_rest_has_no_answer_yet(
    server: Scripted, advice: Advice
) -> None:
    jobs = [(JobRequest(job="a", work_s=n + 1.0), JobRequest(job="b")) for n in range(250)]
    many = [replace(ASKED, jobs=pair) for pair in jobs]
    for rounds in (1, 2):
        server.will(answers(*[ANSWER] * 50), answers(*[ANSWER] * 50))
        assert len(advice.answers(many)) == rounds * MOST_PAIRS


def test_an_answer_about_other_jobs_is_not_taken(server: Scripted, advice: Advice) -> None:
    three = replace(ASKED, jobs=(*ASKED.jobs, ASKED.jobs[0]))
    server.will(answers(ANSWER))
    assert advice.answers([three])[three] == Apart("the service answered for 2 jobs")


def test_a_plan_of_sets_is_asked_for_once(
    server: Scripted, advice: Advice, now_s: list[float]
) -> None:
    jobs = [
        JobRequest(job="b", max_p99_ms=50), JobRequest(job="a"), JobRequest(job="a", min_speed=0.2),
        JobRequest(job="b", max_p99_ms=40), JobRequest(job="a", min_speed=0.6),
    ]  # fmt: skip
    server.will(pair_service({("a", "a", "b"): (50, 50, 30), ("a", "b"): (1, 1)}))
    for asked in (jobs, jobs[::-1]):
        assert advice.sets(asked, "NVIDIA H200") == (("a", "a", "b"),)
    [seen] = server.seen
    assert (seen.path, seen.body["gpus"]) == ("/v1/placements", 5)
    assert seen.body["gpu_model"] == "NVIDIA H200"
    kept = [(j["job"], j["count"], j["min_speed"], j["max_p99_ms"]) for j in seen.body["jobs"]]
    assert kept == [("a", 3, 0.6, None), ("b", 2, None, 40)]
    now_s[0] += 100
    server.will(Reply(status=422, body={"error": {"code": "bad-input", "message": "no"}}))
    assert advice.sets(jobs, "NVIDIA H200") == ()
    server.will(Reply(status=None))
    assert advice.sets(jobs[:3], "NVIDIA H200") == ()
    assert isinstance(advice.answers([ASKED])[ASKED], NoAnswer)
