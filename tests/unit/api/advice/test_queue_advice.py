"""Who starts on an empty GPU and who joins, by profiles that come with advisor."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from advised import settings_of

from advisor.core.job import Job
from advisor.decide.limits import Request
from advisor.decide.options import Running
from advisor.launch.spec import LaunchPart
from advisor.wire.requests import LaunchRequest
from advisor_advice.launching import ResolvedLaunch
from advisor_advice.queue import OpenCard, QueueCard, planned, read_card

NAMES = ("triad", "resnet50-train-b2", "bert-serve-10", "gemm", "mobilenet-train-b2")
"""Two that fill the GPU, a server, and two that leave most of it."""

SHARING = ("bert-infer", "resnet50-train-waiting", "resnet50-train-b2")


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> QueueCard:
    names = (*NAMES, *SHARING, "unknown")
    request = LaunchRequest.of(*NAMES, gpu_model="NVIDIA H100 80GB HBM3")
    jobs = [Job(name=name, command=("true",)) for name in names]
    home = tmp_path_factory.mktemp("home")
    return read_card(jobs, ResolvedLaunch(request=request), settings_of(home))


def first_sets(card: QueueCard, jobs: Sequence[str], gpus: int = 1) -> list[tuple[str, ...]]:
    empty = OpenCard(card=card, able=frozenset(jobs))
    return [names for _, names, _ in planned((empty,) * gpus, tuple(jobs))]


def beside(card: QueueCard, running: Sequence[str], *jobs: str) -> OpenCard:
    there = Running(shares=(100.0,) * len(running), sharing="limited", cap_percent=100.0)
    return OpenCard(card=card, able=frozenset(jobs), running=tuple(running), there=there)


def test_servers_start_first_and_no_more_than_seven(card: QueueCard) -> None:
    (names,) = first_sets(card, (*NAMES, *["mobilenet-train-b2"] * 6))
    assert names[0] == "bert-serve-10"
    assert len(names) == 7


def test_no_gpu_stays_empty_that_a_job_could_have(card: QueueCard) -> None:
    pair = ("resnet50-train-b2", "mobilenet-train-b2")
    for jobs, gpus, sizes in ((pair, 1, [2]), (pair, 2, [1, 1]), (SHARING, 1, [3])):
        assert [len(names) for names in first_sets(card, jobs, gpus)] == sizes


def test_who_joins_leaves_shares_as_they_are(card: QueueCard) -> None:
    """One joins at a time, where that is worth while; an empty GPU starts at the same time."""
    waiting = ("gemm", "mobilenet-train-b2")
    small = beside(card, ["resnet50-train-b2"], *waiting)
    ((where, names, split),) = planned((small,), waiting)
    assert (where, names, split.shares[0]) == (card, ("mobilenet-train-b2",), 100.0)
    filled = beside(card, ["triad"], "gemm")
    assert planned((filled,), ("gemm",)) == []
    empty = OpenCard(card=replace(card), able=frozenset(waiting))
    found = {names: where for where, names, _ in planned((small, empty), waiting)}
    assert found == {("mobilenet-train-b2",): card, ("gemm",): empty.card}


def test_beside_a_server_nobody_gains_by_waiting(card: QueueCard) -> None:
    """It never ends: every option is taken that keeps what is asked for both."""
    served = beside(card, ["bert-serve-10"], "gemm")
    ((_, names, split),) = planned((served,), ("gemm",))
    assert names == ("gemm",)
    assert split.shares[1] < 100
    strict = replace(card, request=Request(min_speed={"gemm": 0.99}))
    assert planned((beside(strict, ["bert-serve-10"], "gemm"),), ("gemm",)) == []


def test_of_who_is_unknown_nothing_is_expected(card: QueueCard) -> None:
    assert set(card.lacking) == {"unknown"}
    assert first_sets(card, ()) == []
    assert card.expected(["triad"], [100.0], "limited")
    assert card.expected(["triad", "unknown"], [100.0, 100.0], "limited") is None


def test_launches_know_what_jobs_are_held_to(card: QueueCard) -> None:
    """A limit of all servers is none of those that answer nobody; of the unknown nothing is."""
    asked = replace(card, request=Request(min_speed={"gemm": 0.5}, default_max_p99_ms=50.0))

    def limits(name: str) -> tuple[float | None, float | None]:
        part = asked.held_to(LaunchPart(job=Job(name=name, command=("true",))))
        return part.min_speed, part.max_p99_ms

    assert limits("bert-serve-10") == (None, 50.0)
    assert limits("gemm") == (0.5, None)
    assert limits("unknown") == (None, None)
