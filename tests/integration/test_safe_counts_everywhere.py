"""Libraries that are wrong at some numbers of SMs: no door of advisor names one of these."""

import functools
import json
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, answered
from forked import Forked
from host import FAKES, UUID, FakeHost
from in_process import running
from launch_server import launch_server, make_tokens
from launched import no_leftovers
from reading import answer_of
from unsafe_counts import UNSAFE_132, checked_132

from advisor.core.gpu import units_for_percent
from advisor.runtime.running_job import leftovers
from advisor.validity.safe_counts import keep_check
from advisor_data import bundled as count_checks

pytestmark = pytest.mark.slow

PAIR = ("gemm", "resnet50-train-b2")
JOBS = ("gemm:4", "triad:3", "bert-infer:5", "bert-train:2")
AVOIDED = (
    "not used: 26, 38, 52, 78, 92 and 104 of 132 SMs, at which GPU libraries compute wrong results "
    "(advisor check)"
)
NOT_CHECKED = (
    "no check of SM counts was run on NVIDIA H200, so libraries may compute wrong results at some: "
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
        assert api.post("/v1/placements", {"jobs": jobs, "gpus": 4, "min_speed": 0.2}) == answer


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


# `advisor check` from end to end: real processes, a fake driver, libraries that are wrong.


PYTHON = ("--python", str(FAKES / "fake_library_check.py"))
TWELVE = ("--counts", ",".join(map(str, range(8, 32, 2))))


def check(host: FakeHost, *options: str, code: int = 0, **more: str) -> dict[str, Any]:
    """Check and return the JSON; the command must have ended with this code."""
    done = host.advisor("check", *PYTHON, *options, "--json", **more)
    assert done.returncode == code, done.stderr
    return answer_of(done.stdout)


def doctor(host: FakeHost, **more: str) -> tuple[str, str]:
    """Verdict and words of the doctor on the results."""
    rows = json.loads(host.advisor("doctor", "--json", **more).stdout)["findings"]
    row = next(row for row in rows if row["check"] == "gpu 0 results")
    return row["verdict"], f"{row['found']}; {row['fix']}"


def stored(host: FakeHost) -> dict[str, Any]:
    return json.loads((host.folder / "home/checks/fake-h200.json").read_text())


def started(host: FakeHost) -> list[int]:
    """Counts at which a process of the last check was started."""
    last = max((host.folder / "home/logs").glob("check-*"))
    return sorted(int(f.name.split("-")[0]) for f in last.iterdir() if f.is_dir())


@contextmanager
def after_counts(host: FakeHost, done: int, **more: str) -> Generator[Forked]:
    """A check of twelve counts, when so many of them are done."""
    with host.start_advisor("check", *PYTHON, *TWELVE, FAKE_CHECK_S="0.5", **more) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.strip().startswith(f"{done}/12"))
        yield process


def test_the_one_count_that_is_wrong_is_found(host: FakeHost) -> None:
    """It is unsafe, the others are safe, that is stored, and the doctor shows it."""
    assert doctor(host)[0] == "warning"
    answer = check(host, "--counts", "8,40,66,92,132", FAKE_WRONG_AT="92")
    kept = stored(host)
    assert {key: answer[key] for key in kept} == kept
    assert answer.keys() - kept.keys() == {"safe", "unsafe", "not_known", "skipped"}
    known = {
        "safe": [8, 40, 66, 132],
        "unsafe": [92],
        "not_known": {},
        "wrong": {"92": answer["operations"][:2]},
        "libraries": {"torch": "2.0.0", "cublas": "130100"},
        "gpu_uuid": UUID,
        "units_total": 132,
        "skipped": {"attention bf16 cudnn": "no such thing"},
    }
    assert {key: answer[key] for key in known} == known
    verdict, words = doctor(host)
    assert verdict == "ok"
    assert re.match("4 of 5 SM counts are safe, checked .* here;", words)


def test_what_a_person_reads(host: FakeHost) -> None:
    done = host.advisor("check", *PYTHON, "--counts", "8,10,12,92", FAKE_WRONG_AT="92")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert [*lines[:4], lines[-1]] == [
        "Fake H200, 132 SMs, driver 580.00.00, torch 2.0.0, cublas 130100",
        "safe 8-12 132",
        "unsafe 92",
        "92 SMs 2 of 3: matmul bf16 forward 4096x4096x4096, convolution fp32 3x3 nchw",
        "From now on no job is given 92 SMs.",
    ]
    assert re.search(
        "4/4.*92 SMs  2 operations wrong  eta 0:0|92 SMs  2 operations", done.stderr, re.S
    )


def test_interrupt_then_the_same_command_goes_on(host: FakeHost) -> None:
    with after_counts(host, 2, FAKE_WRONG_AT="10") as process:
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate()
    assert process.returncode == 130, rest
    assert host.control("get_default_active_thread_percentage") == ""
    kept = stored(host)["checked"]
    assert 3 <= len(kept) < 13
    answer = check(host, *TWELVE, FAKE_WRONG_AT="10")
    assert (answer["unsafe"], len(answer["checked"])) == ([10], 13)
    assert set(started(host)) == {132} | set(answer["checked"]) - set(kept)
    again = check(host, *TWELVE, FAKE_CRASH_AT="8,10,132")
    assert again["unsafe"] == [10], "known counts need no GPU"


def test_a_process_that_crashes_is_not_called_safe(host: FakeHost) -> None:
    """Its count is not known, with the reason and another exit code; it is tried twice."""
    answer = check(host, "--counts", "8,92", code=5, FAKE_CRASH_AT="92")
    reason = "ended with exit code 3: CUDA error: an illegal memory access was encountered"
    assert (answer["checked"], answer["safe"]) == ([8, 132], [8, 132])
    assert answer["not_known"] == {"92": reason}
    assert started(host) == [8, 92, 92, 132]
    # What failed next to others is tried again alone.
    once = check(host, "--counts", "8,92", FAKE_CRASH_AT="92", FAKE_ONCE="92")
    assert (once["safe"], once["not_known"]) == ([8, 92, 132], {})
    # A count that cannot be computed is not known any more; nor one at which other SMs are seen.
    for faults in ({"FAKE_CRASH_AT": "92"}, {"FAKE_BLIND": "1"}):
        fresh = check(host, "--counts", "92", "--fresh", code=5, **faults)
        assert fresh["checked"] == stored(host)["checked"] == [8, 132]
    assert fresh["not_known"] == {"92": "it saw 132 SMs"}


def test_lost_daemon_ends_everything(host: FakeHost) -> None:
    """Without its daemon a process would run on the whole GPU: nothing more is started."""
    with after_counts(host, 1) as process:
        host.control("quit")
        _, rest = process.communicate()
    assert process.returncode == 4, rest
    assert "no MPS daemon answers" in rest
    assert leftovers(UUID, host.folder / "run") == []
    assert 2 <= len(stored(host)["checked"]) < 13


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"FAKE_WRONG_AT": "132"}, "2 of 3 operations are wrong on the whole GPU: matmul bf16"),
        ({"FAKE_CRASH_AT": "132"}, "nothing could be computed on all 132 SMs"),
    ],
)
def test_without_a_right_reference_nothing_is_said(
    host: FakeHost, more: dict[str, str], words: str
) -> None:
    """A wrong reference would make the wrong counts look right."""
    done = host.advisor("check", *PYTHON, "--counts", "8", **more)
    assert done.returncode == 5
    assert words in done.stderr
    assert not (host.folder / "home/checks").exists()


def test_another_driver_or_library_asks_for_another_check(host: FakeHost, tmp_path: Path) -> None:
    """The doctor says what changed; the next check believes nothing of the old one.

    Versions are those of the interpreter that jobs run with.
    """
    check(host, "--counts", "8,92", FAKE_WRONG_AT="92")
    # Under its whole name: PATH would lead back here.
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} {PYTHON[1]} "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    path = f"{tmp_path}:{host.environment()['PATH']}"
    assert "cublas 130100 then, 130200 now" in doctor(host, PATH=path, FAKE_CUBLAS="130200")[1]
    (host.folder / "nvml" / "driver").write_text("590.10.01")
    changed = "driver 580.00.00 then, 590.10.01 now"
    verdict, words = doctor(host)
    assert (verdict, changed in words, "advisor check again" in words) == ("warning", True, True)
    done = host.advisor("check", *PYTHON, "--counts", "92")
    assert f"{changed}: all is checked again" in done.stderr
    assert (stored(host)["checked"], doctor(host)[0]) == ([92, 132], "ok")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--counts", "13"), "ask for 12 or 14"),
        (("--python", "/nonexistent"), "/nonexistent cannot say which libraries it has"),
        (("--python", "python3"), "advisor check --python /path/to/python"),
        (("--gpu", "7"), "no single GPU is called 7"),
    ],
)
def test_bad_options(host: FakeHost, options: tuple[str, ...], words: str) -> None:
    done = host.advisor("check", *PYTHON, *options)
    assert done.returncode == 2
    assert words in done.stderr


def test_damaged_file_is_named(host: FakeHost) -> None:
    file = host.folder / "home/checks/fake-h200.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    done = host.advisor("check", *PYTHON, "--counts", "8")
    assert done.returncode == 7
    assert f"{file} is not a result of `advisor check`" in done.stderr
    assert (file.read_text(), doctor(host)[0]) == ("{", "missing")


# Jobs that report their results: shares at which they are wrong are found and kept away from.


@pytest.fixture
def of_results(host: FakeHost) -> Iterator[FakeHost]:
    (host.folder / "nvml" / "gpu0" / "name").write_text("NVIDIA H200")
    with no_leftovers(host):
        yield host


def profile(host: FakeHost, job: str, *options: str) -> dict[int, dict[str, Any]]:
    found = host.answer("profile", job, *options, *QUICK)
    return {row["units_granted"]: row for row in found["points"]}


def test_a_share_that_goes_wrong_is_flagged_and_never_advised(of_results: FakeHost) -> None:
    of_results.write_job("broken", "--behave", "nan", "--at", "50", results={"tolerance": 0.01})
    points = profile(of_results, "broken", "--shares", "10,50,90,100")
    assert {units: row["results"] for units, row in points.items()} == {
        12: "right", 66: "wrong", 118: "right", 132: "right",
    }  # fmt: skip
    assert [units for units, row in points.items() if "wrong-results" in row["flags"]] == [66]
    answer = of_results.answer("recommend", "broken", "broken", "--all")
    shares = {job["share_percent"] for option in answer["candidates"] for job in option["jobs"]}
    assert 50 not in shares
    assert {10, 90} <= shares
    assert any("66" in text for text in (*answer["warnings"], *answer["reasons"]))


def test_a_job_is_checked_at_every_count_and_keeps_away_from_where_it_is_wrong(
    of_results: FakeHost,
) -> None:
    """`advisor check --job`: short windows that give no rates; a later choice knows the counts."""
    of_results.write_job("broken", "--behave", "differs", "--at", "50", results={"tolerance": 0.01})
    profile(of_results, "broken", "--shares", "10,90,100")
    assert of_results.answer("check", "--job", "broken", "--counts", "12,66,70") == {
        "job": "broken", "gpu_model": "NVIDIA H200", "right": [12, 70, 132], "wrong": [],
        "differ": [66], "silent": [], "failed": {},
    }  # fmt: skip
    text = of_results.advisor("check", "--job", "broken", "--counts", "66").stdout
    assert "From now on broken is not given 66 SMs." in text
    answer = of_results.answer("recommend", "broken", "broken", "--all")
    jobs = [job for option in answer["candidates"] for job in option["jobs"]]
    assert jobs
    assert 50 not in {job["share_percent"] for job in jobs}


def test_a_job_that_reports_nothing_cannot_be_checked(host: FakeHost) -> None:
    host.write_job("silent")
    points = profile(host, "silent", "--shares", "50,100")
    assert {row["results"] for row in points.values()} == {None}
    assert not any("results" in flag for row in points.values() for flag in row["flags"])
    done = host.advisor("check", "--job", "silent", "--counts", "66")
    assert done.returncode == 2
    assert "silent reported nothing that can be compared" in done.stderr
    assert "docs/job-file.md" in done.stderr
