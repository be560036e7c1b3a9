"""Launches over HTTP: a real server, real supervisors and jobs, and a fake driver."""

import json
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from host import UUID, FakeHost
from in_process import error_of, running
from launch_server import LaunchServer, launch_server, make_tokens, state_of
from launched import detached, no_leftovers
from postgres import Server
from waiting import eventually

from advisor.formats.moments import now
from advisor.formats.wire import to_plain
from advisor.launch.folder import new_launch_id
from advisor.launch.spec import LaunchStatus
from advisor.runtime.processes import wait_until
from advisor_api.launches.launching import HOST
from advisor_data.state import LaunchRow

RUNS = "running"


@pytest.fixture(scope="module")
def launch_host(fake_libraries: Path) -> Iterator[FakeHost]:
    """A host whose GPU is one that bundled profiles are of, with jobs of the same names."""
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        host = FakeHost(Path(folder), fake_libraries)
        (host.folder / "nvml" / "gpu0").mkdir(parents=True)
        (host.folder / "nvml" / "gpu0" / "name").write_text("NVIDIA H200")
        (host.folder / "home").mkdir()
        for name in ("triad", "gemm", "one"):
            host.write_job(name, env={"JOB_SECRET": "geheim"})
        with no_leftovers(host):
            yield host


@pytest.fixture(scope="module")
def shared(launch_host: FakeHost) -> Iterator[LaunchServer]:
    with launch_server(launch_host, make_tokens(launch_host, "shared"), "--launching") as server:
        yield server


@pytest.fixture
def server(shared: LaunchServer) -> Iterator[LaunchServer]:
    """The shared one; a test that fails leaves the GPU free."""
    yield shared
    for one in _active(shared):
        shared.stop_launch(one["launch_id"])


def test_launching_is_off_unless_it_is_turned_on(tmp_path: Path) -> None:
    """Not even an admin starts or stops anything through a server that was not told so."""
    with running(tmp_path / "home") as api:
        admin = api.token("admin")
        for method, path, body in (
            ("POST", "/v1/launches", _pair("one", "gemm")),
            ("DELETE", "/v1/launches/x", None),
            ("DELETE", "/v1/launches/x/jobs/a", None),
            ("POST", "/v1/launches/x/resplit", None),
            ("POST", "/v1/launches/x/joins", {**_jobs("one"), "share_percent": 30}),
        ):
            assert error_of(api.ask(method, path, admin, json=body))[:2] == (403, "launching-off")
        assert api.get("/v1/launches") == {"launches": []}


# one server


@pytest.mark.slow
def test_a_recommended_pair_is_launched_watched_and_stopped(server: LaunchServer) -> None:
    """202 at once; then proven limits, live rates next to the forecast, and a safe end."""
    key = {"Idempotency_Key": "first-of-all"}
    body = {
        "jobs": [{"job": "triad"}, {"job": "gemm"}],
        "objective": "throughput-per-watt",
        # Whether the model expects 0.4 of each job is no matter here.
        "min_speed": 0,
    }
    reply = server.ask("POST", "/v1/launches", body, "launch", **key)
    assert reply.status == 202, reply.text
    launch_id = reply.json["launch_id"]
    assert reply.headers["location"] == f"/v1/launches/{launch_id}"
    assert (reply.json["state"], reply.json["gpu_uuid"]) == ("accepted", UUID)
    assert reply.json["forecast"]["work_per_joule"]["value"] > 0

    again = server.ask("POST", "/v1/launches", json.dumps(body, indent=2), "launch", **key)
    assert again.json["launch_id"] == launch_id
    other = server.ask("POST", "/v1/launches", {**body, "duration_s": 9}, "launch", **key)
    assert (other.status, other.code) == (409, "idempotency-conflict")
    busy = server.launch("one", "gemm")
    assert (busy.status, busy.code, launch_id in busy.text) == (409, "busy", True)

    status = server.await_status(launch_id, lambda s: s["state"] == RUNS and s["work_per_joule"])
    assert all(job["proven"] and job["units_granted"] for job in status["jobs"])
    assert [one["launch_id"] for one in _active(server)] == [launch_id]
    for line in (
        'advisor_launches{state="running"} 1.0',
        f'advisor_observed_work_per_joule{{gpu="{UUID}"}}',
        f'advisor_predicted_work_per_joule{{gpu="{UUID}"}}',
    ):
        _await(lambda wanted=line: wanted in server.ask("GET", "/metrics").text)

    last = server.stop_launch(launch_id)
    assert (last["state"], {job["outcome"] for job in last["jobs"]}) == ("stopped", {"stopped"})
    again = server.ask("DELETE", f"/v1/launches/{launch_id}", scope="launch")
    assert (again.status, again.json["state"]) == (202, "stopped")
    assert _active(server) == []
    seen = server.ask("GET", "/v1/observations?job=triad").json["observations"]
    assert [one["launch_id"] for one in seen] == [launch_id]
    assert _audited(server, launch_id) == [
        ("launch.start", "begun"), ("launch.start", "done"),
        ("launch.stop", "begun"), ("launch.stop", "done"),
    ]  # fmt: skip


@pytest.mark.slow
def test_launches_of_the_command_line_are_adopted(
    server: LaunchServer, launch_host: FakeHost
) -> None:
    """`GET /v1/launches` shows all of this host; they hold their GPU, and a token may stop them."""
    launch_id = detached(launch_host, "one", "gemm", "--split", "26/50")
    _await(lambda: [one["launch_id"] for one in _active(server)] == [launch_id])
    assert server.launch("one", "gemm").code == "busy"
    assert server.stop_launch(launch_id)["state"] == "stopped"


def test_a_dry_run_starts_nothing(server: LaunchServer) -> None:
    """What would run is shown, without the command or the variables of a job."""
    before = len(server.ask("GET", "/v1/launches").json["launches"])
    reply = server.launch("one", "gemm", dry_run=True, then=[_jobs("triad", "gemm")["jobs"]])
    assert reply.status == 200, reply.text
    first, second = reply.json["pairs"]
    assert [job["units"] for job in first["jobs"]] == [34, 66]
    assert (first["forecast"], second["forecast"] is None) == (None, False)
    assert "geheim" not in reply.text
    assert "fake_job" not in reply.text
    assert len(server.ask("GET", "/v1/launches").json["launches"]) == before


@pytest.mark.slow
def test_a_job_joins_a_launch_that_runs(server: LaunchServer) -> None:
    """As at the command line: asked at once, then under its own proven limit; each key once."""
    key = {"Idempotency_Key": "joins-once"}
    launch_id = server.launched("one", "gemm")
    server.await_state(launch_id, RUNS)
    place, body = f"/v1/launches/{launch_id}/joins", {**_jobs("one"), "share_percent": 26}
    with ThreadPoolExecutor(10) as pool:
        asking = partial(server.ask, "POST", place, body, "launch", **key)
        replies = [one.result() for one in [pool.submit(asking) for _ in range(10)]]
    assert [one.status for one in replies] == [202] * 10, [one.text for one in replies]
    assert len({one.json["join_id"] for one in replies}) == 1
    reply = replies[0]
    assert reply.headers["location"] == f"{place}/{reply.json['join_id']}"
    said = _joined(server, place, reply.json)
    assert (said["outcome"], said["units_granted"]) == ("running", 34), said
    again = server.ask("POST", place, body, "launch", **key)
    assert (again.json["join_id"], again.json["outcome"]) == (said["join_id"], "running")
    status = server.await_status(launch_id, lambda s: len(s["jobs"]) == 3)
    assert [job["share_percent"] for job in status["jobs"]] == [26, 50, 26]
    assert {*_audited(server, launch_id)[-20:]} == {
        ("launch.join", "begun"),
        ("launch.join", "done"),
    }

    reply = server.ask("POST", place, {**body, "share_percent": 90}, "launch")
    refused = _joined(server, place, reply.json)
    assert (refused["outcome"], refused["code"]) == ("refused", "bad-input")
    assert "ask for 50 % or less" in refused["error"]
    seen = server.ask("GET", f"{place}/{refused['join_id']}").json
    assert (seen["code"], "50 %" in seen["error"]) == ("bad-input", False)

    none = server.ask("POST", f"/v1/launches/{launch_id}/resplit", None, "launch")
    assert (none.status, none.code) == (422, "no-split")
    for _ in range(2):
        ended = server.ask("DELETE", f"/v1/launches/{launch_id}/jobs/gemm", scope="launch")
        assert ended.status == 202, ended.text
        status = server.await_status(launch_id, lambda s: s["jobs"][1]["outcome"] == "stopped")
    assert [job["outcome"] for job in status["jobs"]] == ["running", "stopped", "running"]
    server.stop_launch(launch_id)
    reply = server.ask("POST", place, body, "launch")
    assert (reply.status, reply.code, "it is stopped" in reply.text) == (422, "bad-input", True)


def _joined(server: LaunchServer, place: str, asked: dict[str, Any]) -> dict[str, Any]:
    path = f"{place}/{asked['join_id']}"

    def answered() -> dict[str, Any] | None:
        said = server.ask("GET", path, scope="launch").json
        return said if said["outcome"] != "waiting" else None

    return eventually(answered, lambda: asked)


def _pair(a: str, b: str) -> dict[str, Any]:
    return {**_jobs(a, b), "split": "26/50"}


def _jobs(*names: str) -> dict[str, Any]:
    return {"jobs": [{"job": name} for name in names]}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({**_pair("one", "gemm"), "command": ["rm", "-rf", "/"]}, "bad-input"),
        (_pair("one", "nobody"), "bad-input"),
        (_pair("one", "../one"), "bad-input"),
        (_pair("one", "one\0"), "bad-input"),
        (_pair("one", "a" * 5000), "bad-input"),
        ({**_pair("one", "gemm"), "split": "nan/50"}, "bad-input"),
        ({**_pair("one", "gemm"), "gpu": "../0"}, "bad-input"),
        ({**_pair("one", "gemm"), "then": [_jobs("one")["jobs"]]}, "bad-input"),
        (_jobs("one", "gemm"), "bad-input"),  # one has no profile to recommend by
        ({**_jobs("triad", "gemm"), "max_power_w": 90}, "no-split"),
    ],
)
def test_a_request_that_cannot_be_is_refused(
    server: LaunchServer, launch_host: FakeHost, body: dict[str, Any], code: str
) -> None:
    """Names alone are taken, and only of jobs with a file; no refusal tells a path."""
    reply = server.ask("POST", "/v1/launches", body, "launch")
    assert (reply.status, reply.code) == (422, code), reply.text
    assert str(launch_host.folder) not in reply.text
    assert len(reply.text) < 2000
    assert _active(server) == []


def test_a_launch_of_another_host_is_shown_and_not_stopped(
    server: LaunchServer, launch_host: FakeHost
) -> None:
    """Nor is one of another home; its last status comes from the database; who can is named."""
    for host, home, said in (
        ("elsewhere", "theirs", "on elsewhere"),
        (HOST, "another", "under another home of this host"),
    ):
        launch_id = new_launch_id()
        status = to_plain(LaunchStatus(launch_id=launch_id, state=RUNS, updated_at=now()))
        row = LaunchRow(
            launch_id=launch_id, host=host, gpu="0", state=RUNS, spec="{}", home=home,
            status=json.dumps(status), asked_by="x", request_hash="", created_at=now(),
            updated_at=now(),
        )  # fmt: skip
        with state_of(launch_host) as state:
            state.add_launch(row)
            shown = server.status(launch_id)
            assert (shown["state"], shown["host"]) == (RUNS, host)
            reply = server.ask("DELETE", f"/v1/launches/{launch_id}", scope="launch")
            assert (reply.status, reply.code) == (409, "other-host")
            assert said in reply.text
            state.update_launch(launch_id, "stopped", json.dumps({**status, "state": "stopped"}))


@pytest.mark.slow
@pytest.mark.postgres
def test_launches_go_on_while_the_database_is_away(
    launch_host: FakeHost, postgres_server: Server, postgres_url: str
) -> None:
    """The pair runs on and is shown; when the database is back, everything is kept."""
    tokens = make_tokens(launch_host, "away", postgres_url)
    own = {"ADVISOR_DATABASE_URL": postgres_url, "ADVISOR_HOME": f"{launch_host.folder}/away"}
    with launch_server(launch_host, tokens, "--launching", **own) as server:
        launch_id = server.launched("one", "gemm")
        server.await_state(launch_id, RUNS)
        with ExitStack() as back:
            back.callback(postgres_server.start)
            postgres_server.stop()
            _await(lambda: server.launch("one", "gemm").status in (401, 503))
            first = server.status(launch_id, scope=None)
            assert server.await_status(
                launch_id, lambda s: _steps(s) > _steps(first), scope=None
            )["state"] == RUNS  # fmt: skip
        assert server.stop_launch(launch_id)["state"] == "stopped"
        _await(lambda: _kept_state(launch_host, launch_id, postgres_url) == "stopped")
        seen = server.ask("GET", "/v1/observations?job=one").json["observations"]
        assert [one["launch_id"] for one in seen].count(launch_id) == 1


def _active(server: LaunchServer) -> list[dict[str, Any]]:
    return server.ask("GET", "/v1/launches?active=true").json["launches"]


def _audited(server: LaunchServer, launch_id: str) -> list[tuple[str, str]]:
    return [
        (entry["action"], entry["outcome"])
        for entry in reversed(server.ask("GET", "/v1/audit", scope="admin").json["entries"])
        if entry["subject"].startswith(launch_id)
    ]


def _steps(status: dict[str, Any]) -> float:
    return sum(job["steps"] for job in status["jobs"])


def _kept_state(host: FakeHost, launch_id: str, url: str | None = None) -> str:
    with state_of(host, url) as state:
        row = state.launch(launch_id)
    assert row is not None
    return row.state


def _await(holds: Callable[[], bool]) -> None:
    assert wait_until(holds, 40, poll_s=0.2)
