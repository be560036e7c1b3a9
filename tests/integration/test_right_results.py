"""Jobs that report their results: shares at which they are wrong are found and kept away from."""

from collections.abc import Iterator
from typing import Any

import pytest
from host import FakeHost
from launched import no_leftovers

pytestmark = pytest.mark.slow

QUICK = ("--window", "0.5")


@pytest.fixture
def h200(host: FakeHost) -> Iterator[FakeHost]:
    (host.folder / "nvml" / "gpu0" / "name").write_text("NVIDIA H200")
    with no_leftovers(host):
        yield host


def profile(host: FakeHost, job: str, *options: str) -> dict[int, dict[str, Any]]:
    found = host.answer("profile", job, *options, *QUICK)
    return {row["units_granted"]: row for row in found["points"]}


def test_a_share_that_goes_wrong_is_flagged_and_never_advised(h200: FakeHost) -> None:
    h200.write_job("broken", "--behave", "nan", "--at", "50", results={"tolerance": 0.01})
    points = profile(h200, "broken", "--shares", "10,50,90,100")
    assert {units: row["results"] for units, row in points.items()} == {
        12: "right", 66: "wrong", 118: "right", 132: "right",
    }  # fmt: skip
    assert [units for units, row in points.items() if "wrong-results" in row["flags"]] == [66]
    answer = h200.answer("recommend", "broken", "broken", "--all")
    shares = {job["share_percent"] for option in answer["candidates"] for job in option["jobs"]}
    assert 50 not in shares
    assert {10, 90} <= shares
    assert any("66" in text for text in (*answer["warnings"], *answer["reasons"]))


def test_a_job_is_checked_at_every_count_and_keeps_away_from_where_it_is_wrong(
    h200: FakeHost,
) -> None:
    """`advisor check --job`: short windows that give no rates; a later choice knows the counts."""
    h200.write_job("broken", "--behave", "differs", "--at", "50", results={"tolerance": 0.01})
    profile(h200, "broken", "--shares", "10,90,100")
    assert h200.answer("check", "--job", "broken", "--counts", "12,66,70") == {
        "job": "broken", "gpu_model": "NVIDIA H200", "right": [12, 70, 132], "wrong": [],
        "differ": [66], "silent": [], "failed": {},
    }  # fmt: skip
    text = h200.advisor("check", "--job", "broken", "--counts", "66").stdout
    assert "From now on broken is not given 66 SMs." in text
    answer = h200.answer("recommend", "broken", "broken", "--all")
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
