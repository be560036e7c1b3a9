"""Libraries that are wrong at some numbers of SMs: no door of advisor names one of these."""

import functools
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, answered
from host import FakeHost
from in_process import running
from launch_server import launch_server, make_tokens
from launched import no_leftovers
from unsafe_counts import UNSAFE_132, checked_132

from advisor.core.gpu import units_for_percent
from advisor.validity.safe_counts import keep_check
from advisor_data import known as count_checks

pytestmark = pytest.mark.slow

PAIR = ("gemm", "resnet50-train-b2")
JOBS = ("gemm:4", "triad:3", "bert-infer:5", "bert-train:2")
LOW = {"min_speed": 0.2}
"""At the default none of them is sure enough of its speed to share."""
AVOIDED = (
    "not used: 26, 38, 52, 78, 92 and 104 of 132 SMs, at which GPU libraries compute wrong results "
    "(advisor check)"
)
NOT_CHECKED = (
    "nobody has checked at which numbers of SMs libraries compute right results on NVIDIA H200: "
    "advisor check"
)
QUICK = ("--window", "0.5")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user who has checked the GPU that the bundled profiles are of."""
    # What comes with the package would say something of every GPU of these tests.
    monkeypatch.setattr(count_checks, "bundled_checks", list)
    keep_check(checked_132(), tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def command(home: Path, advisor: Advisor) -> Callable[..., Any]:
    """What a command answers there."""
    return functools.partial(answered, advisor)


def unsafe_in(*shares: float) -> set[int]:
    return {units_for_percent(share, 132) for share in shares} & UNSAFE_132


def shares_of(answer: Any) -> list[float]:
    return [job["share_percent"] for option in answer["candidates"] for job in option["jobs"]]


def test_a_recommendation_names_no_unsafe_count(home: Path, command: Callable[..., Any]) -> None:
    answer = command("recommend", *PAIR, "--all")
    assert not unsafe_in(*shares_of(answer))
    assert AVOIDED in answer["reasons"]
    assert {option["split"] for option in answer["candidates"]} > {
        "10/90", "11/90", "26/54", "47/54", "50/50", "54/47", "54/26", "90/11", "90/10",
        "uncapped", "time-sliced", "exclusive",
    }  # fmt: skip
    assert NOT_CHECKED not in answer["warnings"]
    assert not unsafe_in(*shares_of(command("recommend", *PAIR, "--fine", "--all")))
    body = {"jobs": [{"job": name} for name in PAIR], "every": True}
    with running(home) as api:
        assert api.post("/v1/recommendations", body) == answer
        (home / "checks" / "nvidia-h200.json").unlink()
        api.service.engine.present.changed()
        assert NOT_CHECKED in api.post("/v1/recommendations", body)["warnings"]


def test_a_placement_names_no_unsafe_count(home: Path, command: Callable[..., Any]) -> None:
    """Each set has safe shares, on both doors."""
    answer = command("place", *JOBS, "--gpus", "4", "--min-speed", "0.2", "--work", "1h")
    shared = [group["jobs"] for group in answer["sets"] if len(group["jobs"]) == 2]
    shares = [job["share_percent"] for jobs in shared for job in jobs]
    assert shares
    assert not unsafe_in(*shares)
    entries = (entry.split(":") for entry in JOBS)
    jobs = [{"job": name, "count": int(count), "work_s": 3600.0} for name, count in entries]
    with running(home) as api:
        assert api.post("/v1/placements", {"jobs": jobs, "gpus": 4, **LOW}) == answer


def test_a_damaged_check_is_an_error_not_an_all_clear(home: Path, advisor: Advisor) -> None:
    """Who cannot read which counts are unsafe must not recommend one."""
    (home / "checks" / "nvidia-h200.json").write_text('{"gpu_model": "x"}')
    done = advisor("recommend", *PAIR)
    assert (done.code, "is not a result of `advisor check`" in done.err) == (7, True)


# launches and measurements, with a fake driver


@pytest.fixture(scope="module")
def h200(fake_libraries: Path) -> Iterator[FakeHost]:
    """A checked host with three jobs, two of which have bundled profiles."""
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        host = FakeHost(Path(folder), fake_libraries)
        (host.folder / "nvml" / "gpu0").mkdir(parents=True)
        (host.folder / "nvml" / "gpu0" / "name").write_text("NVIDIA H200")
        for name in ("triad", "gemm", "one"):
            host.write_job(name)
        keep_check(checked_132(), host.folder / "home")
        with no_leftovers(host):
            yield host


def test_an_unsafe_split_is_refused(h200: FakeHost) -> None:
    """What was wrong, what is near, how to have it all the same; over HTTP, too."""
    done = h200.advisor("launch", "one", "one", "--split", "70/30", "--json")
    assert done.returncode == 12
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "unsafe-count"
    assert all(
        part in error["message"]
        for part in (
            "70 % is 92 and 30 % is 38 of 132 SMs",
            "torch.mm bf16 and torch.bmm fp16",
            "take 54/26 (70+34 SMs)",
        )
    )
    assert h200.advisor("launch", "triad", "gemm", "--split", "70/30", "--dry-run").returncode == 12
    with launch_server(h200, make_tokens(h200, "unsafe"), "--launching") as server:
        refused = server.launch("one", "gemm", split="70/30")
        assert (refused.status, refused.code) == (422, "unsafe-count")
    assert [*(h200.folder / "home" / "launches").glob("*")] == []


def test_a_profile_is_measured_at_safe_counts(h200: FakeHost) -> None:
    """Eight shares instead of ten, with one sentence that says why."""
    done = h200.advisor("profile", "one", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    units = sorted(row["units_granted"] for row in json.loads(done.stdout)["points"])
    assert units == [12, 22, 34, 62, 66, 70, 118, 132]
    assert " ".join(done.stderr.split()).count("measured at 22, 34, 62 and 70 SMs instead") == 1


def test_an_unsafe_share_is_measured_only_where_that_is_asked_for(h200: FakeHost) -> None:
    for asked in (("--shares", "50,70"), ("--units", "66,92")):
        done = h200.advisor("profile", "triad", *asked, *QUICK)
        assert done.returncode == 12
        assert "the nearest safe counts are 70 and 118 SMs" in " ".join(done.stderr.split())
    options = ("--shares", "70,100", "--allow-unsafe")
    rows = h200.answer("profile", "triad", *options, *QUICK)["points"]
    assert sorted(row["units_granted"] for row in rows) == [92, 132]


def test_pairs_are_measured_at_safe_splits(h200: FakeHost) -> None:
    """Nine become the nearest safe ones; one that is named is refused or asked for."""
    nine = ("colocate", "--pairs", "one+gemm", "--splits", "nine", "--dry-run", *QUICK)
    done = h200.advisor(*nine)
    assert done.returncode == 0, done.stderr
    assert " ".join(done.stderr.split()).count("the nearest safe splits are measured instead") == 1
    named = ("colocate", "--pairs", "one+gemm", "--splits", "70/30", "--dry-run", *QUICK)
    assert h200.advisor(*named).returncode == 12
    assert h200.advisor(*named, "--allow-unsafe").returncode == 0
