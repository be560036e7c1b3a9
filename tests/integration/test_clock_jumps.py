"""The wall clock is set forwards and back by a day while the service and a launch run."""

import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from host import FAKES, FakeHost
from launch_server import LaunchServer, launch_server, make_tokens
from launched import no_leftovers
from raw_server import guessed

DAY_S = 86_400


@pytest.fixture
def clock(tmp_path: Path, fake_libraries: Path) -> Path:
    assert fake_libraries  # there is a compiler
    library, source = tmp_path / "fake_clock.so", FAKES / "clock" / "fake_clock.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    jump(library, 0)
    return library


def jump(clock: Path, offset_s: int) -> None:
    file = clock.with_suffix(".offset")
    file.touch()
    # Never cut: it is mapped.
    with file.open("r+b") as mapped:
        mapped.write(offset_s.to_bytes(8, "little", signed=True))


def steps(status: dict[str, Any]) -> float:
    return min(job["steps"] for job in status["jobs"])


def goes_on(server: LaunchServer, launch_id: str) -> None:
    before = server.status(launch_id)
    time.sleep(2)
    status = server.await_status(launch_id, lambda found: steps(found) > steps(before))
    assert (status["state"], status["code"]) == ("running", None)
    listed = server.ask("GET", "/v1/launches?active=true", scope="read").json["launches"]
    assert [one["launch_id"] for one in listed] == [launch_id]
    assert server.ask("GET", "/v1/jobs", scope="write").status == 200
    assert server.launch("one", "two").code == "busy"


@pytest.mark.slow
def test_clock_that_jumps_neither_ends_nor_hides_a_launch(host: FakeHost, clock: Path) -> None:
    for name in ("one", "two"):
        host.write_job(name)
    tokens = make_tokens(host, "clock")
    preload = {"LD_PRELOAD": str(clock), "FAKE_CLOCK_FILE": str(clock.with_suffix(".offset"))}
    with (
        no_leftovers(host),
        launch_server(host, tokens, "--launching", **preload) as server,
    ):
        first = server.launched("one", "two", duration_s=600)
        server.await_state(first, "running")
        assert {*guessed(server.port, ["adv_" + "x" * 40] * 400)} == {401, 429}
        for offset_s in (DAY_S, -DAY_S):
            jump(clock, offset_s)
            assert abs(moment(server, first) - time.time() - offset_s) < 60
            goes_on(server, first)
        jump(clock, DAY_S)
        assert server.stop_launch(first)["state"] == "stopped"

        jump(clock, -DAY_S)
        second = server.launched("one", "two", duration_s=600)
        server.await_state(second, "running")
        goes_on(server, second)
        listed = server.ask("GET", "/v1/launches", scope="read").json["launches"]
        assert {one["launch_id"] for one in listed} == {first, second}
        assert server.stop_launch(second)["state"] == "stopped"
        seen = server.ask("GET", "/v1/observations?job=one", scope="read").json["observations"]
        assert {one["launch_id"] for one in seen} == {first, second}
        assert all(0 < one["overlap_s"] < 600 for one in seen)


def moment(server: LaunchServer, launch_id: str) -> float:
    written = server.status(launch_id)["updated_at"]
    status = server.await_status(launch_id, lambda found: found["updated_at"] != written)
    time.sleep(1.5)
    status = server.status(launch_id)
    return datetime.fromisoformat(status["updated_at"]).replace(tzinfo=UTC).timestamp()
