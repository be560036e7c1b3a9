"""`advisor place` from outside, with bundled model and profiles; what two jobs cost at least."""

import functools
import json
import os
import shlex
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Advisor, answered
from forked import run_forked
from reading import answer_of

from advisor.core.gpu import PERCENTAGE, WHOLE
from advisor.decide.limits import Request
from advisor.errors import InputError
from advisor.placement.placing import Kind, Placing, Pool, SetAnswers
from advisor.settings import read_settings
from advisor.wire.requests import MOST_PLACED
from advisor_advice.conditions import find_profiles
from advisor_advice.options import min_speeds, read_works
from advisor_cli.place import read_entries
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import write_points
from advisor_models.registry import Registry

JOBS = ("bert-infer-b2:4", "vit-train:5", "triad:3", "bert-train:2")
"""Some of them share."""

SETS = ("bert-serve-30:3", "resnet50-train-b2:9", "triad:2", "--gpus", "6")
FEWEST = (*SETS, "--objective", "fewest-cards")


@pytest.fixture
def place(advisor: Advisor, monkeypatch: pytest.MonkeyPatch) -> Advisor:
    """The command with options, where nothing was measured."""
    monkeypatch.setenv("COLUMNS", "80")
    return functools.partial(advisor, "place")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plan of `JOBS`, as JSON, by a process of its own."""
    home = {**os.environ, "ADVISOR_HOME": str(tmp_path_factory.mktemp("home"))}
    works = ("--work", "2h", "--work", "triad=30min")
    done = run_forked(["place", *JOBS, "--gpus", "3", *works, "--json"], home)
    assert done.returncode == 0, done.stderr
    return answer_of(done.stdout)


@pytest.mark.slow
def test_json_adds_up(plan: dict[str, Any]) -> None:
    """Every job is in a group and has a row; energy is the sum of the groups and of idle GPUs."""
    found = plan
    named: dict[str, int] = {}
    for group in found["sets"]:
        for job in group["jobs"]:
            named[job["job"]] = named.get(job["job"], 0) + group["count"]
            assert job["speed"] >= 0.4
            assert job["environment"].get(PERCENTAGE) == (
                f"{job['share_percent']:g}" if job["share_percent"] < 100 else None
            )
    assert named == {"bert-infer-b2": 4, "vit-train": 5, "triad": 3, "bert-train": 2}
    busy_j = sum(group["count"] * group["energy_j"] for group in found["sets"])
    queue = found["queue"]
    assert queue["energy_j"] == pytest.approx(busy_j + queue["idle_j"])
    busy_s = sum(
        group["count"] * max(job["time_s"] for job in group["jobs"]) for group in found["sets"]
    )
    idle_s = found["gpus"][0]["gpus"] * queue["makespan_s"] - busy_s
    assert queue["idle_j"] == pytest.approx(idle_s * queue["idle_power_w"])
    for other in queue["baselines"]:
        assert other["energy_saved"] == pytest.approx(1 - queue["energy_j"] / other["energy_j"])
        assert other["time_saved"] == pytest.approx(1 - queue["makespan_s"] / other["makespan_s"])


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("gemm", "--gpus", "1", "--max-power", "200"), 10, "gemm cannot be placed"),
        (("bert-serve-30", "--max-p99", "1ms"), 10, "bert-serve-30 cannot be placed"),
        (("nosuch", "--gpus", "1"), 2, "there is no job nosuch"),
        (("gemm", "--gpus", "1", "--min-speed", "triad=0.5"), 2, "a job that is not there"),
        (("gemm", "--gpus", "0"), 2, "Invalid value for '--gpus'"),
        (
            ("gemm", "--gpus", "999999999"),
            2,
            "Invalid value for '--gpus'",
        ),
        (("--gpus", "1"), 2, "there are no jobs"),
        (("gemm", *FEWEST[-2:], "--work", "2h"), 2, "a queue is not placed by fewest-cards"),
        ((*SETS, "--gpu-uuid", "GPU-1"), 2, "6 GPUs are not the one GPU GPU-1"),
        (
            (*SETS, "--also", "H100=2", "--gpu-model", "NVIDIA H200", "--work", "1h"),
            2,
            "leave out --also",
        ),
        ((*FEWEST, "--also", "H100=2"), 2, "no further GPU model"),
        ((*SETS, "--rack-power", "8 horses"), 2, "write 8kW, or 8000"),
        ((*SETS, "--objective", "cost"), 2, "no prices"),
        ((*SETS, "--objective", "max-min"), 2, "'throughput', 'cost', 'fewest-cards'"),
    ],
)
def test_what_cannot_be_done_is_said(
    place: Advisor, options: tuple[str, ...], code: int, words: str
) -> None:
    done = place(*options)
    assert done.code == code
    assert words in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_queue_keeps_its_order_and_its_works() -> None:
    entries = [("a", 1, None), ("b", 2, None), ("a", 3, 5400.0)]
    assert read_entries(["a", "b:2", "a:3 1.5h"], None) == entries


@pytest.mark.parametrize("text", ["a:", ":3", "a:0", "a:-1", "a:1.5", "a:b", "", "a:1:2", "a 1h 2"])
def test_what_is_no_job_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a job"):
        read_entries([text], None)


def test_lines_of_a_file_are_named(tmp_path: Path) -> None:
    """A fault says its line; a file next to names, or a million jobs, is a mistake."""
    file = tmp_path / "jobs.txt"
    for content, said in (
        (b"a\n\nb:x\n", r"jobs\.txt:3: b:x is not a job"),
        (b"a 3\n", r"jobs\.txt:1: a 3: 3 is not a time"),
        (b"\xff\xfe", "not UTF-8"),
    ):
        file.write_bytes(content)
        with pytest.raises(InputError, match=said):
            read_entries([], file)
    with pytest.raises(InputError, match="jobs were given twice"):
        read_entries(["a"], file)
    with pytest.raises(InputError, match="more than 100000 jobs"):
        read_entries([f"a:{MOST_PLACED}", "b"], None)


def test_numbers_by_job() -> None:
    assert min_speeds(["50%", "b=0.7"], ["a", "b"]) == {"a": 0.5, "b": 0.7}
    assert read_works(["2h", "b=90min"], ["a", "b"]) == {"a": 7200.0, "b": 5400.0}
    with pytest.raises(InputError, match="fast has no number"):
        min_speeds(["a=fast"], ["a"])
    with pytest.raises(InputError, match="c=1h is for a job that is not there"):
        read_works(["c=1h"], ["a"])


def test_cards_at_the_power_limit_are_told_and_a_ceiling_keeps_them_out(place: Advisor) -> None:
    """Where predicted watts are cut off, sets were measured to break their floors."""
    asked = (
        "matmul-bf16:3",
        "notebook:6",
        "bert-serve-10:3",
        "--objective",
        "energy-efficiency",
    )
    gpu = ("--gpus", "8", "--gpu-model", "NVIDIA H200")
    (told,) = answered(place, *asked, *gpu)["risks"]
    assert "--max-power 699" in told
    below = answered(place, *asked, *gpu, "--max-power", "699")
    assert not below["risks"]
    assert max(one["power_w"] for one in below["sets"]) <= 699


def test_a_search_that_had_too_little_time_says_so(place: Advisor) -> None:
    asked = (*SETS, "vit-train:3", "fft:9", "--objective", "energy-efficiency", "--time-limit", "0")
    text = " ".join(place(*asked).out.split())
    assert "; a longer --time-limit may find it" in text, text
    assert answered(place, *asked)["timed_out"]


def test_what_rests_on_one_window_is_estimated(place: Advisor, tmp_path: Path) -> None:
    """A job that was seen on the whole GPU alone is told in pairs and in sets, the others not."""
    whole = next(p for p in bundled_solo_points({"bert-train"}) if p.share_percent == 100)
    write_points(tmp_path / "seen.jsonl", [replace(whole, job="mine", flags=())])
    wanted = ("mine:2", "vit-train:2", "--gpus", "4", "--profiles", "seen.jsonl")
    for work in ((), ("--work", "1h")):
        assert ". Estimated from one window of mine" in " ".join(place(*wanted, *work).out.split())
        jobs = [job for one in answered(place, *wanted, *work)["sets"] for job in one["jobs"]]
        assert {job["job"]: job["one_window"] for job in jobs} == {"mine": True, "vit-train": False}


@pytest.mark.slow
def test_launches_of_sets_are_commands(place: Advisor, advisor: Advisor) -> None:
    """`advisor launch` takes each as it is printed, and gives every job the share of the plan."""
    wanted = (*SETS, "vit-train:3", "--objective", "energy-efficiency")
    found = answered(place, *wanted)["sets"]
    done = place(*wanted, "--schedule").out
    together = [one for one in found if len(one["jobs"]) > 1]
    assert any(job["share_percent"] < 100 for one in together for job in one["jobs"])
    for one in together:
        command = f"advisor launch {one['launch']}"
        assert f"  GPU {one['gpus'][0]:<5} {command}\n" in done
        (pair,) = json.loads(advisor(*shlex.split(command)[1:], "--dry-run", "--json").out)["pairs"]
        shares = [(job["job"], job["share_percent"]) for job in one["jobs"]]
        names = [part["job"]["name"] for part in pair["jobs"]]
        assert [*zip(names, pair["split"]["shares"], strict=True)] == shares


@pytest.mark.slow
@pytest.mark.parametrize("gpu_model", ["NVIDIA H200", "NVIDIA H100 80GB HBM3"])
def test_no_bundled_pair_costs_less_than_its_bound(gpu_model: str, tmp_path: Path) -> None:
    """Watts, and those of the work that lags behind; nor than what the model expects of it."""
    points = [p for p in bundled_solo_points() if p.gpu_model == gpu_model]
    names = sorted({p.job for p in points if p.share_percent == WHOLE})
    profiles = find_profiles(
        names, read_settings({"ADVISOR_HOME": str(tmp_path)}), gpu_model
    ).profiles
    pool = Pool(
        gpu_model=gpu_model,
        gpus=1,
        profiles=tuple(profiles),
        limits=Request(),
        idle_power_w=profiles[0].idle_power_w,
        of_pairs=Registry(tmp_path / "models").open_champion(),
    )
    kinds = [
        Kind(name=profile.job, count=2, is_server=bool(profile.serving)) for profile in profiles
    ]
    answers = SetAnswers(Placing.of(kinds, [pool], "energy-efficiency"), 0)
    pairs = [*combinations_with_replacement(answers.there, 2)]
    places = [(answers.there.index(a), answers.there.index(b)) for a, b in pairs]
    found = zip(pairs, (answers.pair(a, b) for a, b in places), strict=True)
    costs = {pair: one.cost for pair, one in found if one}
    assert len(costs) > 100
    assert min(cost / float(answers.two.costs[pair]) for pair, cost in costs.items()) >= 1
    answers.two.look_at(np.array(pairs))
    parts = [cost / float(answers.two.costs[pair]) for pair, cost in costs.items()]
    assert min(parts) >= 1
    assert np.median(parts) == pytest.approx(1, abs=0.01)
