"""Jobs that join a launch that runs: real processes and a fake driver."""

import json
from typing import Any

import pytest
from host import FakeHost
from launched import (
    await_end,
    await_nobody,
    await_status,
    detached,
    stop,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def jobs(jobs: FakeHost) -> FakeHost:
    jobs.write_job("third")
    return jobs


def joined(host: FakeHost, launch_id: str, *options: str, code: int = 0) -> dict[str, Any]:
    done = host.advisor("launch", "--join", launch_id, *options, "--json")
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def told(status: dict[str, Any]) -> list[tuple[str, float, str]]:
    return [(job["job"], job["share_percent"], job["outcome"]) for job in status["jobs"]]


def after(host: FakeHost, launch_id: str, seconds: float) -> dict[str, Any]:
    return await_status(host, launch_id, lambda status: status["rest_s"] > seconds)


def test_a_third_joins_two(jobs: FakeHost) -> None:
    launch_id = detached(jobs, "one", "two", "--split", "50/50")
    said = joined(jobs, launch_id, "third", "--share", "30")
    assert (said["job"], said["code"], said["units_granted"]) == ("third", None, 38)
    assert (said["memory_limit_mib"], said["share_percent"]) == (135_358, 30)
    assert said["joined_at"]
    status = after(jobs, launch_id, 4)
    assert told(status) == [
        ("one", 50, "running"),
        ("two", 50, "running"),
        ("third", 30, "running"),
    ]
    assert [bool(job["joined_at"]) for job in status["jobs"]] == [False, False, True]
    assert all(job["steps"] > 0 and job["proven"] for job in status["jobs"])
    last = stop(jobs, launch_id)
    assert (last["state"], last["code"]) == ("stopped", None)
    assert all(job["ended_at"] for job in last["jobs"])
    listed = jobs.advisor("launches").stdout
    assert f"third 30 % joined {said['joined_at'][11:17]}" in " ".join(listed.split())
    await_nobody(jobs)


def test_the_share_is_the_best_beside_those_that_stay(h200: FakeHost) -> None:
    launch_id = detached(h200, "triad", "gemm", "--split", "50/50")
    lax = {"ADVISOR_MIN_SPEED": "0.01", "ADVISOR_MIN_GAIN": "0"}
    done = h200.advisor(
        "launch", "--join", launch_id, "triad", "--min-speed", "0.01", "--json", **lax
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["units_granted"] <= 66
    refused = h200.advisor("launch", "--join", launch_id, "triad", "--min-speed", "1")
    assert refused.returncode == 10, refused.stderr
    assert "take it: --share" in refused.stderr
    stop(h200, launch_id)
    await_nobody(h200)


def test_nobody_joins_what_is_over(jobs: FakeHost) -> None:
    launch_id = detached(jobs, "one", "two", "--split", "50/50")
    settled = "settled when a launch begins"
    for options, words in (
        (("one", "two"), "2 jobs cannot join"),
        (("third", "--split", "30/70"), "those that run keep their shares"),
        (("third", "--share", "30", "--dry-run"), "dry_run is not of a job that joins"),
        (("third", "--share", "30", "--gpu", "1"), "on the GPU of the launch"),
        (("third", "--share", "30", "--duration", "9"), settled),
        (("third", "--share", "30", "--when-p99-breaks", "end-newest"), settled),
        (("third", "--share", "30", "--hang-after", "120"), settled),
        (("third", "--share", "30", "--when-one-ends", "stop"), settled),
        (("third", "--share", "30", "--stop-on-wrong-results"), settled),
        (("third", "--share", "30", "--min-speed", "0.5"), "given or recommended, not both"),
    ):
        done = jobs.advisor("launch", "--join", launch_id, *options)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    stop(jobs, launch_id)
    done = jobs.advisor("launch", "--join", launch_id, "third", "--share", "30")
    assert (done.returncode, "it is stopped" in done.stderr) == (2, True), done.stderr
    assert await_end(jobs, launch_id)["state"] == "stopped"
    await_nobody(jobs)
