"""Who starts on an empty GPU and who joins, by profiles that come with advisor."""

from dataclasses import replace
from pathlib import Path

import pytest
from advised import settings_of

from advisor.core.job import Job
from advisor.decide.limits import Request
from advisor.decide.options import Running
from advisor.launch.spec import LaunchPart
from advisor_advice.profiles import find_profiles
from advisor_advice.queue import FillAdvice

NAMES = ("triad", "resnet50-train-b2", "bert-serve-10", "gemm", "mobilenet-train-b2")
"""Two that fill the GPU, a server, and two that leave most of it."""


WHOLE = ("bert-infer", "resnet50-train-waiting", "resnet50-train-b2")
# They share, while no other is worth while beside the first alone.


@pytest.fixture
def advice(tmp_path: Path) -> FillAdvice:
    found = find_profiles((*NAMES, *WHOLE), settings_of(tmp_path), "NVIDIA H100 80GB HBM3")
    profiles = {profile.job: profile for profile in found.profiles}
    return FillAdvice(profiles=profiles, lacking={"unknown": "unknown has no profile"})


def test_servers_start_first_and_no_more_than_seven(advice: FillAdvice) -> None:
    found = advice.first_set((*NAMES, *["mobilenet-train-b2"] * 6), spare=0)
    assert found is not None
    names, prediction = found
    assert names[0] == "bert-serve-10"
    assert len(names) == len(prediction.split.shares) == 7


def test_jobs_are_left_for_other_gpus(advice: FillAdvice) -> None:
    pair = ("resnet50-train-b2", "mobilenet-train-b2")
    for jobs, spare, number in ((pair, 0, 2), (pair, 1, 1), (WHOLE, 0, 3)):
        found = advice.first_set(jobs, spare)
        assert found is not None
        assert len(found[0]) == number


def test_who_is_unknown_starts_no_set(advice: FillAdvice) -> None:
    assert advice.first_set(("unknown",), spare=0) is None
    there = Running(shares=(100.0,), sharing="limited", cap_percent=100.0)
    assert advice.joining(["unknown"], there, ["triad"]) is None
    assert advice.joining(["triad"], there, ["unknown"]) is None


def test_launches_know_what_jobs_are_held_to(advice: FillAdvice) -> None:
    """A limit of all servers is none of those that answer nobody; of the unknown nothing is."""
    asked = replace(advice, request=Request(min_speed={"gemm": 0.5}, default_max_p99_ms=50.0))

    def limits(name: str) -> tuple[float | None, float | None]:
        part = asked.held_to(LaunchPart(job=Job(name=name, command=("true",))))
        return part.min_speed, part.max_p99_ms

    assert limits("bert-serve-10") == (None, 50.0)
    assert limits("gemm") == (0.5, None)
    assert limits("unknown") == (None, None)
